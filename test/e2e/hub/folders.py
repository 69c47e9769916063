"""Folders of small models as Optimum lays them out, and the same decoder in NumPy."""
import json

import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

WIDTH, HEADS, VOCABULARY, PLACES, EOS, BOS = 8, 2, 23, 64, 1, 2
PAD = VOCABULARY + 1  # added behind the vocabulary, as people do: no step may be given it
rng = np.random.default_rng(12)
TABLE = rng.normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
PLACE = rng.normal(size=(PLACES, WIDTH)).astype(np.float32)
OUT = rng.normal(size=(WIDTH, VOCABULARY)).astype(np.float32)


def info(name, dtype, shape):
    return h.make_tensor_value_info(name, dtype, shape)


class Graph:
    def __init__(self):
        self.nodes, self.weights = [], []

    def constant(self, value):
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def __call__(self, op, *inputs, name=None, **attributes):
        inputs = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        name = name or f"v{len(self.nodes)}"
        self.nodes.append(h.make_node(op, inputs, [name], name=f"{op}_{name}", **attributes))
        return name

    def save(self, path, inputs, outputs):
        graph = h.make_graph(self.nodes, "g", inputs, outputs, self.weights)
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def axes(*numbers):
    return np.array(numbers, np.int64)


def sizes(g, value, axis):
    return g("Gather", g("Shape", value), np.int64(axis), axis=0)


def put_decoder(g, tokens, mask, positions, past, states):
    """logits, present. `mask`, `past` or `states` may be None."""
    x = g("Add", g("Gather", TABLE, tokens), g("Gather", PLACE, positions))
    if states:
        x = g("Add", x, g("Unsqueeze", g("ReduceMean", states, axes=[1], keepdims=0), axes(1)))
    heads = lambda value, width: g("Transpose", g("Reshape", value, axes(0, 0, HEADS, width)), perm=[0, 2, 1, 3])
    if states:
        query = own = heads(x, WIDTH // HEADS)
    else:  # as GPT-NeoX has them: query and key are slices of one projection, and the key is the first state
        eye = np.eye(WIDTH, dtype=np.float32).reshape(WIDTH, HEADS, WIDTH // HEADS)
        both = heads(g("MatMul", x, np.concatenate([eye, eye], 2).reshape(WIDTH, -1)), 2 * WIDTH // HEADS)
        part = lambda n: g("Slice", both, axes(n * WIDTH // HEADS), axes((n + 1) * WIDTH // HEADS), axes(3))
        query, own = part(0), part(1)
    keys = g("Concat", past, own, axis=2) if past else g("Identity", own)
    scores = g("MatMul", query, g("Transpose", keys, perm=[0, 1, 3, 2]))
    count, new = sizes(g, keys, 2), sizes(g, tokens, 1)
    columns = g("Range", np.int64(0), count, np.int64(1))
    rows = g("Range", g("Sub", count, new), count, np.int64(1))
    visible = g("LessOrEqual", g("Unsqueeze", columns, axes(0)), g("Unsqueeze", rows, axes(1)))
    if mask:
        visible = g("And", visible, g("Unsqueeze", g("Cast", mask, to=T.BOOL), axes(1, 2)))
    weights = g("Softmax", g("Where", visible, scores, np.float32(-1e9)), axis=-1)
    mixed = g("Reshape", g("Transpose", g("MatMul", weights, keys), perm=[0, 2, 1, 3]), axes(0, 0, WIDTH))
    return g("MatMul", g("Add", x, mixed), OUT), keys


def decoder(tokens, mask, states=None):
    """The same in float64: scores of the token behind each row."""
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    x = TABLE[tokens].astype(np.float64) + PLACE[positions]
    if states is not None:
        x = x + states.mean(1, keepdims=True)
    n = tokens.shape[1]
    rows = x.reshape(len(x), n, HEADS, -1).transpose(0, 2, 1, 3)
    scores = rows @ rows.transpose(0, 1, 3, 2)
    visible = np.tril(np.ones((n, n), bool)) & (mask[:, None, None] != 0)
    scores = np.where(visible, scores, -1e9)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    mixed = (weights @ rows).transpose(0, 2, 1, 3).reshape(x.shape)
    return ((x + mixed)[:, -1] @ OUT.astype(np.float64))


def encode(ids, mask):
    x = TABLE[ids].astype(np.float64) * mask[:, :, None]
    return np.tanh(x)


def write_encoder(folder):
    g = Graph()
    mask = g("Unsqueeze", g("Cast", "attention_mask", to=T.FLOAT), axes(2))
    g("Tanh", g("Mul", g("Gather", TABLE, "input_ids"), mask), name="last_hidden_state")
    shape = ["batch_size", "encoder_sequence_length"]
    g.save(folder / "encoder_model.onnx", [info("input_ids", T.INT64, shape), info("attention_mask", T.INT64, shape)],
           [info("last_hidden_state", T.FLOAT, [*shape, WIDTH])])


def write_decoder(path, has_encoder, has_past, has_present, is_merged=False):
    g = Graph()
    tokens = ["batch_size", "sequence_length"]
    cache = ["batch_size", HEADS, "past_sequence_length", WIDTH // HEADS]
    inputs = [info("input_ids", T.INT64, tokens)]
    if has_encoder:
        inputs.append(info("encoder_hidden_states", T.FLOAT, ["batch_size", "encoder_sequence_length", WIDTH]))
    else:
        total = "past_sequence_length + sequence_length" if has_past else "sequence_length"
        inputs.append(info("attention_mask", T.INT64, ["batch_size", total]))
    inputs.append(info("position_ids", T.INT64, tokens))
    if has_past:
        inputs.append(info("past_key_values.0.key", T.FLOAT, cache))
    mask = None if has_encoder else "attention_mask"
    states = "encoder_hidden_states" if has_encoder else None
    if is_merged:
        inputs.append(info("use_cache_branch", T.BOOL, [1]))
        branches = {}
        for name, past in (("then_branch", "past_key_values.0.key"), ("else_branch", None)):
            inner = Graph()
            inner.weights = g.weights
            logits, keys = put_decoder(inner, "input_ids", mask, "position_ids", past, states)
            for node in inner.nodes:  # names are the model's
                node.name = name + node.name
                for values in (node.input, node.output):
                    for n, value in enumerate(values):
                        values[n] = f"{name}_{value}" if value.startswith("v") else value
            branches[name] = h.make_graph(inner.nodes, name, [], [
                info(f"{name}_{logits}", T.FLOAT, None), info(f"{name}_{keys}", T.FLOAT, None)])
        g.nodes.append(h.make_node("If", ["use_cache_branch"], ["logits", "present.0.key"], "optimum::if", **branches))
    else:
        logits, keys = put_decoder(g, "input_ids", mask, "position_ids", "past_key_values.0.key" if has_past else None, states)
        g("Identity", logits, name="logits")
        if has_present:
            g("Identity", keys, name="present.0.key")
    outputs = [info("logits", T.FLOAT, [*tokens, VOCABULARY])]
    if has_present:
        longer = [*cache[:2], "past_sequence_length + sequence_length", cache[3]]
        outputs.append(info("present.0.key", T.FLOAT, longer))
    g.save(path, inputs, outputs)


def call_columns(folder, name):
    """Gives the columns of the masks in a folder another name."""
    for path in folder.glob("*.onnx"):
        model = onnx.load(path)
        for value in model.graph.input:
            if value.name == "attention_mask":
                value.type.tensor_type.shape.dim[1].dim_param = name
        onnx.save(model, path)


def write(folder, layout, has_encoder, **generation):
    """LAYOUT: separate, past, merged, single."""
    folder.mkdir(parents=True, exist_ok=True)
    if has_encoder:
        write_encoder(folder)
    if layout == "separate":
        write_decoder(folder / "decoder_model.onnx", has_encoder, False, False)
    elif layout == "past":
        write_decoder(folder / "decoder_model.onnx", has_encoder, False, True)
        write_decoder(folder / "decoder_with_past_model.onnx", has_encoder, True, True)
    elif layout == "merged":
        write_decoder(folder / "decoder_model_merged.onnx", has_encoder, True, True, is_merged=True)
    else:
        write_decoder(folder / "model.onnx", has_encoder, True, True)
    (folder / "config.json").write_text(json.dumps(dict(
        is_encoder_decoder=has_encoder, decoder_start_token_id=BOS, bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD)))
    (folder / "generation_config.json").write_text(json.dumps(dict(max_length=14, **generation)))
    return folder
