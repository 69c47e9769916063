"""The decoders of models.py beside llama.cpp, as its Q8_0 and Q4_0 store them: codes of 8 or 4 bits and a scale for each
32 numbers of a row.

model.onnx has the same products as MatMulNBits of the same bits and blocks, of the same weights; model.gguf is llama.cpp's
file. Both sides append to caches of their own, and both round the rows of a product to 8 bits (attnc by --precision=int8;
attnc-rows does not). llama.cpp's caches are f16, attnc's f32. Its embedding is in blocks, too.
"""
import json

import numpy as np

import models
import stored

SOURCES = ["gpt2-prefill-s256", "gpt2-decode-past512", "llama4l-decode-past1024"]
BITS = {"q8_0": 8, "q4_0": 4}
TARGETS = {f"{source}.{kind}": 1.05 if "decode" in source else 1.5 for source in SOURCES for kind in BITS}
CONTEXT = 2048

#: The weights of a layer and those behind all of them, in the order in which models.py draws them; None is drawn alone.
GPT2 = ["attn_norm.weight", "attn_norm.bias", "attn_qkv.weight", "attn_qkv.bias", "attn_output.weight", "attn_output.bias",
        "ffn_norm.weight", "ffn_norm.bias", "ffn_up.weight", "ffn_up.bias", "ffn_down.weight", "ffn_down.bias"]
LLAMA = ["attn_norm.weight", "attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight", "ffn_norm.weight",
         "ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"]


def write(folder, name):
    """model.onnx, open.onnx (caches of any length) and model.gguf in `folder`; returns the inputs."""
    source, kind = name.rsplit(".", 1)
    net = models.MODELS[source].make()
    (folder / "caches.json").write_text(json.dumps(net.caches))
    past = next((net.feeds[cache].shape[2] for cache, _ in net.caches), 0)
    (folder / "llamacpp.json").write_text(json.dumps({"past": past, "outputs": len(net.outputs)}))
    plain = folder / "f32.onnx"
    net.save(plain)
    stored.write_blocks(plain, net.feeds, folder / "model.onnx", BITS[kind])
    write_gguf(net, kind, folder / "model.gguf")
    if net.caches:
        net.open_caches()
        net.save(plain)
        stored.write_blocks(plain, net.feeds, folder / "open.onnx", BITS[kind])
    plain.unlink()
    return [net.feeds]


def tensors(net):
    """Name and value of each weight, as llama.cpp calls them: matrices by rows of results."""
    from onnx import numpy_helper
    drawn = {t.name: t for t in net.g.initializers}
    drawn = [numpy_helper.to_array(drawn[f"w{i + 1}"]) for i in range(net.count)]
    is_gpt2 = drawn[1].ndim == 3
    yield "token_embd.weight", drawn[0]
    if is_gpt2:
        positions = np.zeros((CONTEXT, drawn[1].shape[2]), np.float32)
        positions[:drawn[1].shape[1]] = drawn[1][0]
        yield "position_embd.weight", positions
    names, rest = (GPT2, drawn[2:]) if is_gpt2 else (LLAMA, drawn[1:])
    last = ["output_norm.weight", "output_norm.bias"] if is_gpt2 else ["output_norm.weight", "output.weight"]
    layers = (len(rest) - len(last)) // len(names)
    names = [f"blk.{layer}.{name}" for layer in range(layers) for name in names] + last
    for name, value in zip(names, rest, strict=True):
        yield name, value.T if value.ndim == 2 else value


def write_gguf(net, kind, path):
    try:
        import gguf
    except ImportError:
        return
    made = dict(tensors(net))
    is_gpt2, layers = "position_embd.weight" in made, sum(name.endswith("attn_norm.weight") for name in made)
    width = made["token_embd.weight"].shape[1]
    heads, groups = width // 64, made.get("blk.0.attn_k.weight", made["token_embd.weight"][:width]).shape[0] // 64
    writer = gguf.GGUFWriter(path, "gpt2" if is_gpt2 else "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(made["blk.0.ffn_up.weight"].shape[0])
    writer.add_head_count(heads)
    if is_gpt2:
        writer.add_layer_norm_eps(1e-12)
    else:
        writer.add_head_count_kv(groups)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_dimension_count(64)
    writer.add_vocab_size(made["token_embd.weight"].shape[0])
    writer.add_tokenizer_model("none")
    blocks = getattr(gguf.GGMLQuantizationType, kind.upper())
    for name, value in made.items():
        value = np.ascontiguousarray(value)
        if value.ndim == 2 and name != "position_embd.weight":
            writer.add_tensor(name, gguf.quants.quantize(value, blocks), raw_dtype=blocks)
        else:
            writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Decoder:
    """llama.cpp by its C functions: what one run of the model computes, over and over."""

    def __init__(self, folder, threads):
        import llama_cpp as api
        self.api, facts = api, json.loads((folder / "llamacpp.json").read_text())
        self.past, self.outputs = facts["past"], facts["outputs"]
        api.llama_backend_init()
        self.model = api.llama_model_load_from_file(str(folder / "model.gguf").encode(), api.llama_model_default_params())
        options = api.llama_context_default_params()
        options.n_ctx, options.n_batch, options.n_ubatch = CONTEXT, 512, 512
        options.n_threads = options.n_threads_batch = threads
        self.context = api.llama_init_from_model(self.model, options)
        if not self.context:
            raise RuntimeError("llama.cpp does not take the file")
        self.vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        for first in range(0, self.past, 512):
            self.decode(np.arange(first, min(first + 512, self.past)) % self.vocabulary, first)

    def decode(self, ids, first):
        """The scores behind the last of `ids`, the first of which stands at position `first`."""
        api = self.api
        batch = api.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = int(token), first + i, 1, 0
            batch.logits[i] = i == len(ids) - 1
        status = api.llama_decode(self.context, batch)
        api.llama_batch_free(batch)
        if status:
            raise RuntimeError(f"llama_decode returned {status}")
        return np.ctypeslib.as_array(api.llama_get_logits_ith(self.context, -1), (self.vocabulary,))

    def run(self, feeds):
        """Outputs as the model's. What cannot be compared is empty: caches, and all that is computed from others' caches."""
        self.api.llama_memory_seq_rm(self.api.llama_get_memory(self.context), 0, self.past, -1)
        scores = self.decode(feeds["input_ids"][0], self.past)
        none = np.empty(0, np.float32)
        return [none] * (self.outputs - 1) + [none if self.past else scores.reshape(1, -1).copy()]


def judge(result):
    """Adds "targets" to a result, as verdict.judge does."""
    import verdict
    verdict.judge_sides(result, [("attnc", ("llama-cpp",), TARGETS[result["case"]])])
