#!/usr/bin/env python3
"""Writes folders of ONNX models with random weights as Optimum lays them out: hub_models.py OUT [ARCH [LAYOUT]]

ARCH is one of ARCHS. LAYOUT: `separate` (no cache), `past` (decoder_model and decoder_with_past_model), `merged` or
`single` (one model.onnx). Needs torch and transformers, which no test installs.
"""
import copy
import json
import pathlib
import sys

import onnx
import torch
import transformers as T
from onnx import TensorProto, helper

VOCABULARY, PAD, EOS, BOS = 97, 0, 1, 2
LAYOUTS = ("separate", "past", "merged", "single")


def t5():
    return T.T5ForConditionalGeneration(T.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=PAD,
        pad_token_id=PAD, eos_token_id=EOS))


def marian():
    return T.MarianMTModel(T.MarianConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64,
        decoder_start_token_id=PAD, pad_token_id=PAD, eos_token_id=EOS, forced_eos_token_id=EOS, scale_embedding=True))


def bart():
    return T.BartForConditionalGeneration(T.BartConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64,
        decoder_start_token_id=EOS, pad_token_id=PAD, eos_token_id=EOS, bos_token_id=BOS, forced_eos_token_id=EOS,
        forced_bos_token_id=BOS))


def whisper():
    return T.WhisperForConditionalGeneration(T.WhisperConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=8, max_source_positions=30,
        max_target_positions=64, decoder_start_token_id=3, pad_token_id=PAD, eos_token_id=EOS, bos_token_id=BOS,
        suppress_tokens=None, begin_suppress_tokens=None))


def gpt2():
    return T.GPT2LMHeadModel(T.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, eos_token_id=EOS, pad_token_id=PAD,
        bos_token_id=BOS))


def llama():
    return T.LlamaForCausalLM(T.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, eos_token_id=EOS, pad_token_id=PAD, bos_token_id=BOS))


def vision():
    encoder = T.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=16,
                          patch_size=8)
    decoder = T.TrOCRConfig(vocab_size=VOCABULARY, d_model=32, decoder_layers=2, decoder_attention_heads=4,
                            decoder_ffn_dim=64, max_position_embeddings=64, cross_attention_hidden_size=32,
                            is_decoder=True, add_cross_attention=True, pad_token_id=PAD, eos_token_id=EOS, bos_token_id=BOS,
                            use_learned_position_embeddings=True)
    config = T.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = BOS, PAD, EOS
    return T.VisionEncoderDecoderModel(config)


ARCHS = {f.__name__: f for f in (t5, marian, bart, whisper, gpt2, llama, vision)}


def make(arch):
    """The model, the same for each layout; tokens that tell apart, and ends that come."""
    torch.manual_seed(len(arch) * 100 + ord(arch[0]))
    model = ARCHS[arch]().eval()
    for module in model.modules():
        if hasattr(module, "config"):
            module.config._attn_implementation = "eager"
    for name, p in model.named_parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.3)
    model.generation_config.max_length = 24
    return model


def source(arch, batch=2, length=6):
    """What an encoder of `arch` takes: name, example, dims; with a mask where it has one. None: there is no encoder."""
    if arch in ("gpt2", "llama"):
        return None
    if arch == "whisper":
        return [("input_features", torch.randn(batch, 8, 60), {0: "batch_size"})]
    if arch == "vision":
        return [("pixel_values", torch.randn(batch, 3, 16, 16), {0: "batch_size"})]
    dims = {0: "batch_size", 1: "encoder_sequence_length"}
    return [("input_ids", torch.randint(3, VOCABULARY, (batch, length)), dims),
            ("attention_mask", torch.ones(batch, length, dtype=torch.int64), dims)]


def cache_of(flat):
    cache = T.DynamicCache()
    for layer in range(len(flat) // 2):
        cache.update(flat[2 * layer], flat[2 * layer + 1], layer)
    return cache


def flat_of(cache):
    return [x for layer in cache.layers for x in (layer.keys, layer.values)]


class Encoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, x, mask=None):
        return (self.encoder(x) if mask is None else self.encoder(x, attention_mask=mask)).last_hidden_state


class Decoder(torch.nn.Module):
    """(ids, states, mask of the encoder) or (ids, mask, positions), then the past -> logits, present."""

    def __init__(self, model, arch, layers, has_past, has_present):
        super().__init__()
        self.model, self.arch, self.layers = model, arch, layers
        self.has_past, self.has_present = has_past, has_present

    def forward(self, ids, a, c, *past):
        if self.arch in ("gpt2", "llama"):
            out = self.model(input_ids=ids, attention_mask=a, position_ids=c, use_cache=self.has_present,
                             past_key_values=cache_of(past) if self.has_past else None)
            return (out.logits, *flat_of(out.past_key_values)) if self.has_present else out.logits
        both = None
        if self.has_past:
            own = [x for n, x in enumerate(past) if n % 4 < 2]
            cross = [x for n, x in enumerate(past) if n % 4 >= 2]
            both = T.EncoderDecoderCache(cache_of(own), cache_of(cross))
        masks = {} if c is None else dict(attention_mask=c)
        if self.arch == "whisper" and not self.has_past:
            masks["decoder_attention_mask"] = torch.ones_like(ids)
        out = self.model(encoder_outputs=T.modeling_outputs.BaseModelOutput(last_hidden_state=a), decoder_input_ids=ids,
                         past_key_values=both, use_cache=self.has_present, **masks)
        if not self.has_present:
            return out.logits
        own = flat_of(out.past_key_values.self_attention_cache)
        cross = flat_of(out.past_key_values.cross_attention_cache)
        if self.has_past:
            return (out.logits, *own)
        return (out.logits, *[x for n in range(self.layers) for x in (*own[2 * n:2 * n + 2], *cross[2 * n:2 * n + 2])])


class Whole(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, *rest):
        ids = rest[-1]
        masks = dict(attention_mask=rest[0]) if len(rest) > 1 else dict(decoder_attention_mask=torch.ones_like(ids))
        return self.model(x, decoder_input_ids=ids, use_cache=False, **masks).logits


def export(module, path, inputs, outputs, dims):
    names = [name for name, _ in inputs]
    torch.onnx.export(module.eval(), tuple(x for _, x in inputs), str(path), input_names=[n for n, x in inputs if x is not None],
                      output_names=outputs, dynamic_axes={n: d for n, d in dims.items() if n in names + outputs},
                      dynamo=False, opset_version=17, do_constant_folding=True)


def export_decoder(model, arch, folder, name, has_past, has_present, tokens=3, past=4):
    config = model.config.get_text_config(decoder=True) if arch != "vision" else model.config.decoder
    layers = next(n for n in (getattr(config, a, None) for a in ("num_decoder_layers", "num_hidden_layers", "decoder_layers")) if n)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "d_kv", None) or config.hidden_size // config.num_attention_heads
    batch = 2
    ids = torch.randint(3, VOCABULARY, (batch, tokens))
    tokens_dim = "sequence_length" if arch in ("gpt2", "llama") else "decoder_sequence_length"
    dims = {"input_ids": {0: "batch_size", 1: tokens_dim}}
    own = {0: "batch_size", 2: "past_sequence_length"}
    if arch in ("gpt2", "llama"):
        total = tokens + (past if has_past else 0)
        mask = torch.ones(batch, total, dtype=torch.int64)
        positions = torch.arange(total - tokens, total)[None].repeat(batch, 1)
        inputs = [("input_ids", ids), ("attention_mask", mask), ("position_ids", positions)]
        dims["attention_mask"] = {0: "batch_size", 1: "past_sequence_length + 1" if has_past else tokens_dim}
        dims["position_ids"] = {0: "batch_size", 1: tokens_dim}
        kinds = ("",)
    else:
        states = Encoder(model)(*[x for _, x, _ in source(arch)])
        given = source(arch)
        has_mask = len(given) > 1
        inputs = [("input_ids", ids), ("encoder_hidden_states", states),
                  ("encoder_attention_mask", given[1][1] if has_mask else None)]
        dims["encoder_hidden_states"] = {0: "batch_size", 1: "encoder_sequence_length"} if has_mask else {0: "batch_size"}
        dims["encoder_attention_mask"] = {0: "batch_size", 1: "encoder_sequence_length"}
        kinds = ("decoder.", "encoder.")
    outputs = ["logits"]
    dims["logits"] = {0: "batch_size", 1: tokens_dim}
    for layer in range(layers):
        for kind in kinds:
            for part in ("key", "value"):
                name_in, name_out = f"past_key_values.{layer}.{kind}{part}", f"present.{layer}.{kind}{part}"
                if kind == "encoder.":
                    length, dim = inputs[1][1].shape[1], {0: "batch_size", 2: "encoder_sequence_length_out"}
                else:
                    length, dim = past, own
                dims[name_in] = dim
                dims[name_out] = dim if kind == "encoder." else {0: "batch_size", 2: "past_sequence_length + sequence_length"}
                if has_past:
                    inputs.append((name_in, torch.randn(batch, heads, length, width)))
                if has_present and not (has_past and kind == "encoder."):
                    outputs.append(name_out)
    export(Decoder(model, arch, layers, has_past, has_present), folder / name, inputs, outputs, dims)


def merge(folder):
    """decoder_model and decoder_with_past_model as one, with a branch for each."""
    first, later = (onnx.load(folder / f"decoder{n}_model.onnx") for n in ("", "_with_past"))
    initializers = {}

    def branch(model, name):
        graph = copy.deepcopy(model.graph)
        names = {}
        for tensor in graph.initializer:
            key = (tensor.data_type, tuple(tensor.dims), tensor.raw_data)
            if key not in initializers:
                initializers[key] = copy.deepcopy(tensor)
                initializers[key].name = f"weight_{len(initializers)}"
            names[tensor.name] = initializers[key].name
        for node in graph.node:
            for n, value in enumerate(node.input):
                node.input[n] = names.get(value, value)
        del graph.initializer[:], graph.input[:]
        graph.name = name
        return graph

    def rename(graph, suffix):
        made = {o for node in graph.node for o in node.output}
        for node in graph.node:
            for values in (node.input, node.output):
                for n, value in enumerate(values):
                    if value in made:
                        values[n] = value + suffix
            node.name += suffix
        for value in graph.output:
            value.name += suffix

    inputs = {v.name: v for v in [*later.graph.input, *first.graph.input]}
    none, past = branch(first, "no_past"), branch(later, "with_past")
    have = {o.name for o in past.output}
    outputs = list(first.graph.output)
    order = []
    for value in outputs:
        if value.name not in have:
            shape = [d.dim_value or 0 for d in value.type.tensor_type.shape.dim]
            shape[2] = 1
            zeros = helper.make_tensor(value.name + "_none", TensorProto.FLOAT, shape, [])
            past.node.append(helper.make_node("Constant", [], [value.name], value=zeros))
            past.output.append(copy.deepcopy(value))
        order.append(next(o for o in past.output if o.name == value.name))
    order = [copy.deepcopy(o) for o in order]
    del past.output[:]
    past.output.extend(order)
    rename(none, "/first"), rename(past, "/later")
    for graph in (none, past):  # sizes are the branch's own
        for value in graph.output:
            value.type.tensor_type.shape.ClearField("dim")
            value.type.tensor_type.ClearField("shape")
    node = helper.make_node("If", ["use_cache_branch"], [o.name for o in outputs], "optimum::if", then_branch=past,
                            else_branch=none)
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    graph = helper.make_graph([node], "merged", [*inputs.values(), flag], outputs, list(initializers.values()))
    merged = helper.make_model(graph, opset_imports=first.opset_import, ir_version=first.ir_version)
    onnx.save(merged, folder / "decoder_model_merged.onnx")
    for n in ("", "_with_past"):
        (folder / f"decoder{n}_model.onnx").unlink()


def write(out, arch, layout):
    folder = pathlib.Path(out) / f"{arch}-{layout}"
    folder.mkdir(parents=True, exist_ok=True)
    model = make(arch)
    given = source(arch)
    with torch.no_grad():
        if given and layout != "single":
            dims = {name: dim for name, _, dim in given}
            dims["last_hidden_state"] = given[-1][2]
            export(Encoder(model), folder / "encoder_model.onnx", [(n, x) for n, x, _ in given], ["last_hidden_state"], dims)
        if layout == "separate":
            export_decoder(model, arch, folder, "decoder_model.onnx", False, False)
        elif layout == "single" and given:
            ids = torch.randint(3, VOCABULARY, (2, 3))
            dims = {name: dim for name, _, dim in given}
            dims |= {"decoder_input_ids": {0: "batch_size", 1: "decoder_sequence_length"},
                     "logits": {0: "batch_size", 1: "decoder_sequence_length"}}
            export(Whole(model), folder / "model.onnx", [*[(n, x) for n, x, _ in given], ("decoder_input_ids", ids)],
                   ["logits"], dims)
        elif layout == "single":
            export_decoder(model, arch, folder, "model.onnx", True, True)
        else:
            export_decoder(model, arch, folder, "decoder_model.onnx", False, True)
            export_decoder(model, arch, folder, "decoder_with_past_model.onnx", True, True, tokens=1)
            if layout == "merged":
                merge(folder)
    (folder / "config.json").write_text(json.dumps(model.config.to_dict(), default=str))
    (folder / "generation_config.json").write_text(json.dumps(model.generation_config.to_diff_dict(), default=str))
    return model, folder


if __name__ == "__main__":
    for arch in sys.argv[2:3] or ARCHS:
        for layout in sys.argv[3:4] or LAYOUTS:
            try:
                print(*write(sys.argv[1], arch, layout)[1:])
            except Exception as error:
                print(arch, layout, "FAILED", repr(error)[:500])
                if len(sys.argv) > 3:
                    raise
