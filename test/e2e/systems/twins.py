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


def twin(system, model):
    def register(convert):
        TWINS.setdefault(system, []).append((model, convert))
        return convert
    return register


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
