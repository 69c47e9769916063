"""The weights of ONNX models under the names of their graphs."""
import numpy as np
import onnx
from onnx import numpy_helper

TWINS = {}


class Initialisers(dict):
    def __init__(self, path):
        super().__init__((i.name, numpy_helper.to_array(i)) for i in onnx.load(path).graph.initializer)

    def transposed(self, width, units, n=0):
        """The n-th nameless factor [width, units] of a MatMul, as a linear layer has it."""
        found = [v for k, v in self.items() if k.startswith(("onnx::MatMul", "val_")) and v.shape == (width, units)]
        return np.ascontiguousarray(found[n].T)

    def recurrent(self, kind, name, n=0, layer=0):
        """The n-th nameless LSTM or GRU under PyTorch's names."""
        mine = [v for k, v in self.items() if k.startswith("onnx::" + kind)]
        three = mine[3 * n:3 * n + 3]
        w, r = [v for v in three if v.ndim == 3][:2]
        b = next(v for v in three if v.ndim == 2)
        order = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2]}[kind]
        result = {}
        for direction, end in enumerate((f"_l{layer}", f"_l{layer}_reverse")[:w.shape[0]]):
            for what, value in (("weight_ih", w[direction]), ("weight_hh", r[direction]),
                                ("bias_ih", np.split(b[direction], 2)[0]), ("bias_hh", np.split(b[direction], 2)[1])):
                gates = np.split(value, len(order))
                result[f"{name}.{what}{end}"] = np.concatenate([gates[g] for g in order])
        return result

    def renamed(self, **names):
        """What has a name, under another first part: new="old"."""
        return {f"{new}.{k[len(old) + 1:]}": v for new, old in names.items() for k, v in self.items()
                if k.startswith(old + ".")}


def twin(system, model, **more):
    """`more`: inputs that the graph has and the model has not, from those that it has."""
    def register(convert):
        TWINS.setdefault(system, []).append((model, convert, more))
        return convert
    return register


def no_types(feeds):
    return np.zeros_like(feeds["input_ids"])


@twin("cho", "cho_gru_ts17")
def cho(o):
    loop = {f"decoder.{k}": v for k, v in o.renamed(cell="cell", maxout="max", output="out").items()}
    return loop | o.renamed(source_words="es", target_words="et", start="init") | o.recurrent("GRU", "encoder")


@twin("sutskever", "sutskever_lstm_ts17")
def sutskever(o):
    layers = [o.recurrent("LSTM", name, 2 * n + layer, layer) for n, name in enumerate(("encoder", "decoder")) for layer in (0, 1)]
    result = o.renamed(source_words="es", target_words="et", output="out") | {"output.weight": o.transposed(24, 40)}
    for part in layers:
        result |= part
    return result


@twin("bahdanau", "bahdanau_step_ts13")
@twin("bahdanau", "bahdanau_step_dynamo18")
def bahdanau(o):
    rng = np.random.default_rng(0)  # of the encoder, which the twin has not
    encoder = {f"encoder.weight_{k}_l0{end}": rng.standard_normal((72, n), np.float32) for k, n in (("ih", 16), ("hh", 24)) for end in ("", "_reverse")}
    encoder |= {f"encoder.bias_{k}_l0{end}": np.zeros(72, np.float32) for k in ("ih", "hh") for end in ("", "_reverse")}
    encoder |= {"source_words.weight": o["emb.weight"], "attend.key.weight": rng.standard_normal((24, 48), np.float32),
                "start.weight": o["wa.weight"], "start.bias": o["wa.bias"]}
    return encoder | o.renamed(words="emb", cell="cell", maxout="max", output="out") | {
        "attend.query.weight": o["wa.weight"], "attend.bias": o["wa.bias"], "attend.score.weight": o.transposed(24, 1)[0]}


def luong(o, **attend):
    result = o.renamed(words="emb", lower="l1", upper="l2", attentional="wc", output="out")
    if "output.weight" not in result:
        result |= {"attentional.weight": o.transposed(48, 24), "output.weight": o.transposed(24, 40)}
    return result | {"attend." + k.replace("__", "."): v for k, v in attend.items()}


twin("luong_dot", "luong_dot_step_ts17")(luong)
twin("luong_local_m", "luong_local_m_step_ts17")(luong)
# s W h here is (W' h) . s there
twin("luong_general", "luong_general_step_ts13")(lambda o: luong(o, weight=np.ascontiguousarray(o.transposed(24, 24).T)))
twin("luong_concat", "luong_concat_step_dynamo18")(lambda o: luong(o, weight=o.transposed(48, 24), score__weight=o["va"][:, 0]))
twin("luong_location", "luong_location_step_ts17")(lambda o: luong(o, weight=o.transposed(24, 12)))
twin("luong_local_p", "luong_local_p_step_ts17")(
    lambda o: luong(o, weight=np.ascontiguousarray(o.transposed(24, 24, 0).T), position__weight=o.transposed(24, 24, 1), position_score__weight=o.transposed(24, 1)[0]))


@twin("content_based", "content_based_read_ts17")
def content_based(o):
    return o.renamed(key="k", strength="b")


@twin("show_attend_tell_soft", "show_attend_tell_soft_step_ts17")
@twin("show_attend_tell_hard", "show_attend_tell_hard_step_dynamo18")
def show_attend_tell(o):
    return o.renamed(words="emb", gate="beta", cell="cell", from_state="lh", from_image="lz", output="lo") | {
        "look.query.weight": o["dec.weight"], "look.key.weight": o.transposed(20, 24), "look.bias": o["dec.bias"] + o["enc.bias"],
        "look.score.weight": o.transposed(24, 1)[0]}


@twin("spatial_transformer", "spatial_transformer_ts20")
def spatial_transformer(o):
    return o.renamed(edges="loc.0", hidden="loc.4", change="loc.6", shapes="conv", output="out") | {
        "identity": np.array([[1, 0, 0], [0, 1, 0]], np.float32)}


@twin("chorowski", "chorowski_location_step_ts17")
def chorowski(o):
    return o.renamed(words="emb", cell="cell", output="out") | {
        "attend.query.weight": o["w.weight"], "attend.bias": o["w.bias"], "attend.key.weight": o.transposed(20, 24),
        "attend.location.weight": o["conv.weight"], "attend.location_projection.weight": o.transposed(4, 24),
        "attend.score.weight": o.transposed(24, 1)[0]}


@twin("listen_attend_spell", "las_speller_step_dynamo18")
def speller(o):
    rng = np.random.default_rng(0)  # of the listener, which the twin has not
    listener = {}
    for name, width in (("first", 8), ("second", 48), ("third", 48)):
        for end in ("", "_reverse"):
            listener |= {f"{name}.weight_ih_l0{end}": rng.standard_normal((48, width), np.float32), f"{name}.weight_hh_l0{end}": rng.standard_normal((48, 12), np.float32),
                         f"{name}.bias_ih_l0{end}": np.zeros(48, np.float32), f"{name}.bias_hh_l0{end}": np.zeros(48, np.float32)}
    return listener | o.renamed(words="emb", lower="l1", upper="l2", phi="phi", psi="psi", output="out") | {
        "psi.weight": o.transposed(24, 16), "ctc.weight": np.zeros((20, 24), np.float32), "ctc.bias": np.zeros(20, np.float32)}


@twin("lstmn", "lstmn_step_ts17")
def lstmn(o):
    key, query, last = o.transposed(24, 24, 0), o.transposed(16, 24), o.transposed(24, 24, 1)
    return {"remember.key.weight": key, "remember.query.weight": np.concatenate([query, last], 1), "remember.score.weight": o.transposed(24, 1)[0],
            "gates.weight": o["gates.weight"], "gates.bias": o["gates.bias"]}


@twin("retain", "retain_ts17")
def retain(o):
    return o.renamed(output="out") | o.recurrent("GRU", "for_alpha", 0) | o.recurrent("GRU", "for_beta", 1) | {
        "embedded.weight": o.transposed(30, 16), "visit_score.weight": o.transposed(16, 1), "visit_score.bias": o["wa.bias"],
        "beta.weight": o.transposed(16, 16), "beta.bias": o["wb.bias"]}


@twin("graph_attention", "graph_attention_ts17")
def graph_attention(o):
    return {"w1": o["w1"], "w2": o["w2"], "to1": o["a1"][:, :8, 0], "from1": o["a1"][:, 8:, 0], "to2": o["a2"][:, :4, 0], "from2": o["a2"][:, 4:, 0]}


@twin("mpcn", "multi_pointer_coattention_ts17")
def mpcn(o):
    return o.renamed(words="emb", output="out") | {
        "gate.weight": o.transposed(16, 16, 0), "gate.bias": o["gi.bias"], "value.weight": o.transposed(16, 16, 1), "value.bias": o["gu.bias"],
        "m0": o["m.0"], "m1": o["m.1"], "w0": o["w.0"], "w1": o["w.1"]}


@twin("memory_network", "memn2n_ts17")
def memory_network(o):
    return {"order": o["pe"]} | {f"{new}{k}.weight": o[old.format(k)] for k in range(4) for new, old in (("words", "e.{}.weight"), ("age", "t.{}"))}


@twin("co_attention", "coattention_parallel_dynamo18")
def co_attention(o):
    factors = {"across": (20, 20), "of_image": (20, 12, 0), "of_text": (20, 12, 1), "image_score": (12, 1, 0), "text_score": (12, 1, 1)}
    return o.renamed(text="emb") | {f"{name}.weight": o.transposed(*factor) for name, factor in factors.items()}


@twin("self_attentive", "self_attentive_embedding_ts17")
def self_attentive(o):
    return o.renamed(words="emb", output="out") | o.recurrent("LSTM", "encoder") | {
        "hidden.weight": o.transposed(24, 16), "hops.weight": o.transposed(16, 4), "identity": np.eye(4, dtype=np.float32)}


def parts_of_heads(o, old, new, names, matrices):
    """Four products of an attention and two behind it, the n-th of each shape without a name."""
    square, (wide, narrow) = matrices
    result = {f"{new}.{part}.weight": square[n] for n, part in enumerate(("self.query", "self.key", "self.value", "self.output"))}
    result |= {f"{new}.wide.weight": wide, f"{new}.narrow.weight": narrow}
    return result | {f"{new}.{ours}.{end}": o[f"{old}.{theirs}.{end}"] for ours, theirs in names.items() for end in ("weight", "bias")
                     if f"{old}.{theirs}.{end}" in o}


def matrices(o, layer):
    return [o.transposed(32, 32, 4 * layer + n) for n in range(4)], (o.transposed(32, 48, layer), o.transposed(48, 32, layer))


BERT = {"self.query": "attention.self.query", "self.key": "attention.self.key", "self.value": "attention.self.value",
        "self.output": "attention.output.dense", "norm_self": "attention.output.LayerNorm", "wide": "intermediate.dense", "narrow": "output.dense",
        "normed": "output.LayerNorm"}
HEAD = {"output.weight": np.zeros((3, 32), np.float32), "output.bias": np.zeros(3, np.float32)}  # which the models have not
POOLED = {"pooled.weight": np.zeros((32, 32), np.float32), "pooled.bias": np.zeros(32, np.float32)} | HEAD


@twin("bert", "bert_sdpa_ts17", token_type_ids=no_types)
def bert(o):
    e = "m.embeddings."
    result = {"word.weight": o[e + "word_embeddings.weight"], "place.weight": o[e + "position_embeddings.weight"],
              "part.weight": o[e + "token_type_embeddings.weight"]}
    for n in (0, 1):
        result |= parts_of_heads(o, f"m.encoder.layer.{n}", f"encoder.{n}", BERT, matrices(o, n))
    return result | o.renamed(placed="m.embeddings.LayerNorm") | POOLED


@twin("distilbert", "distilbert_ts14")
def distilbert(o):
    names = {"self.query": "attention.q_lin", "self.key": "attention.k_lin", "self.value": "attention.v_lin", "self.output": "attention.out_lin",
             "norm_self": "sa_layer_norm", "wide": "ffn.lin1", "narrow": "ffn.lin2", "normed": "output_layer_norm"}
    result = {"word.weight": o["m.embeddings.word_embeddings.weight"], "place.weight": o["m.embeddings.position_embeddings.weight"]}
    for n in (0, 1):
        result |= parts_of_heads(o, f"m.transformer.layer.{n}", f"encoder.{n}", names, matrices(o, n))
    return result | o.renamed(placed="m.embeddings.LayerNorm") | POOLED


@twin("roberta", "roberta_ts17")
def roberta(o):
    result = bert(o)
    # Of its one type, which is added to each word.
    result["word.weight"] = result["word.weight"] + result.pop("part.weight")
    return {k.replace("pooled", "dense"): v for k, v in result.items()}


@twin("albert", "albert_dynamo18", token_type_ids=no_types)
def albert(o):
    e, group = "m.embeddings.", "m.encoder.albert_layer_groups.0.albert_layers.0"
    names = {"self.query": "attention.query", "self.key": "attention.key", "self.value": "attention.value", "self.output": "attention.dense",
             "norm_self": "attention.LayerNorm", "wide": "ffn", "narrow": "ffn_output", "normed": "full_layer_layer_norm"}
    return parts_of_heads(o, group, "layer", names, matrices(o, 0)) | o.renamed(narrow_normed="m.embeddings.LayerNorm") | POOLED | {
        "word.weight": o[e + "word_embeddings.weight"], "place.weight": o[e + "position_embeddings.weight"],
        "part.weight": o[e + "token_type_embeddings.weight"], "placed.weight": o.transposed(16, 32),
        "placed.bias": o["m.encoder.embedding_hidden_mapping_in.bias"]}


@twin("vit", "vit_ts17")
def vit(o):
    names = {"self.query": "attention.q_proj", "self.key": "attention.k_proj", "self.value": "attention.v_proj", "self.output": "attention.o_proj",
             "norm_self": "layernorm_before", "norm_wide": "layernorm_after", "wide": "mlp.fc1", "narrow": "mlp.fc2"}
    result = {"token_row": o["m.embeddings.cls_token"], "places": o["m.embeddings.position_embeddings"]}
    for n in (0, 1):
        result |= parts_of_heads(o, f"m.layers.{n}", f"encoder.{n}", names, matrices(o, n))
    return result | o.renamed(patches="m.embeddings.patch_embeddings.projection", norm="m.layernorm") | HEAD


@twin("xlnet", "xlnet_ts17", token_type_ids=no_types)
def xlnet(o):
    result = {"word.weight": o["m.word_embedding.weight"], "rates": (1 / 10000 ** (np.arange(0, 32, 2) / 32)).astype(np.float32),
              "logits.weight": np.zeros((5, 32), np.float32), "logits.bias": np.zeros(5, np.float32)}
    for n in (0, 1):
        old, new = f"m.layer.{n}.", f"stack.{n}."
        for ours, theirs in {"query": "q", "key": "k", "value": "v", "distant": "r"}.items():
            result[f"{new}{ours}.weight"] = o[f"{old}rel_attn.{theirs}"].reshape(32, 32).T
        result |= {new + "output.weight": o[old + "rel_attn.o"].reshape(32, 32), new + "u": o[old + "rel_attn.r_w_bias"],
                   new + "v": o[old + "rel_attn.r_r_bias"], new + "s": np.zeros((4, 8), np.float32),
                   new + "segment": np.zeros((2, 4, 8), np.float32), new + "wide.weight": o.transposed(32, 48, n),
                   new + "narrow.weight": o.transposed(48, 32, n)}
        for ours, theirs in {"norm_self": "rel_attn.layer_norm", "normed": "ff.layer_norm", "wide": "ff.layer_1", "narrow": "ff.layer_2"}.items():
            result |= {f"{new}{ours}.{end}": o[f"{old}{theirs}.{end}"] for end in ("weight", "bias") if f"{old}{theirs}.{end}" in o}
    return result
