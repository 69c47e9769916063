"""all-MiniLM-L6-v2 as an ONNX file, written node by node from its safetensors.

The spelling is the one of PyTorch's TorchScript exporter at opset 17 for the
eager BERT of transformers, followed by the sentence model's mean pooling and
normalisation; batch and sequence are dynamic.
"""
import json
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file


class Graph:
    def __init__(self):
        self.nodes, self.initializers, self.count = [], [], 0

    def node(self, op, *inputs, name=None, **attributes):
        self.count += 1
        output = name or f"/{op}_{self.count}_output_0"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=f"/{op}_{self.count}", **attributes))
        return output

    def constant(self, value, dtype=np.int64):
        return self.node("Constant", value=numpy_helper.from_array(np.asarray(value, dtype)))

    def weight(self, name, array):
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name


def write_minilm(folder, path):
    """Reads config.json and model.safetensors in `folder`, writes the ONNX file `path`."""
    folder = pathlib.Path(folder)
    config = json.loads((folder / "config.json").read_text())
    weights = load_file(folder / "model.safetensors")
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    width, eps = hidden // heads, config["layer_norm_eps"]
    g = Graph()

    def size(value, axis):
        return g.node("Gather", g.node("Shape", value), g.constant(axis), axis=0)

    def vector(*sizes):
        parts = [g.node("Unsqueeze", s, g.constant([0])) if isinstance(s, str) else g.constant([s]) for s in sizes]
        return g.node("Concat", *parts, axis=0)

    def linear(x, name):
        matrix = g.weight(f"{name}.weight^T", weights[f"{name}.weight"].T)
        return g.node("Add", g.weight(f"{name}.bias", weights[f"{name}.bias"]), g.node("MatMul", x, matrix))

    def layer_norm(x, name):
        return g.node("LayerNormalization", x, g.weight(f"{name}.weight", weights[f"{name}.weight"]),
                      g.weight(f"{name}.bias", weights[f"{name}.bias"]), axis=-1, epsilon=eps)

    # Embeddings: word + token type + position.
    table = "embeddings.{}_embeddings.weight"
    def embed(kind, ids):
        return g.node("Gather", g.weight(table.format(kind), weights[table.format(kind)]), ids, axis=0)
    sequence = g.node("Unsqueeze", size("input_ids", 1), g.constant([0]))
    positions = g.constant(np.arange(config["max_position_embeddings"])[None])
    positions = g.node("Slice", positions, g.constant([0]), sequence, g.constant([1]), g.constant([1]))
    x = g.node("Add", embed("word", "input_ids"), embed("token_type", "token_type_ids"))
    x = layer_norm(g.node("Add", x, embed("position", positions)), "embeddings.LayerNorm")

    # (1 - mask) * finfo.min, broadcast over heads and queries.
    mask = g.node("Unsqueeze", g.node("Unsqueeze", "attention_mask", g.constant([1])), g.constant([2]))
    mask = g.node("Sub", g.constant(1.0, np.float32), g.node("Cast", mask, to=TensorProto.FLOAT))
    mask = g.node("Mul", mask, g.constant(np.finfo(np.float32).min, np.float32))

    def split_heads(y, perm):
        y = g.node("Reshape", y, vector(size(y, 0), size(y, 1), heads, width))
        return g.node("Transpose", y, perm=perm)

    for layer in range(config["num_hidden_layers"]):
        p = f"encoder.layer.{layer}."
        q = split_heads(linear(x, p + "attention.self.query"), [0, 2, 1, 3])
        k = split_heads(linear(x, p + "attention.self.key"), [0, 2, 3, 1])
        v = split_heads(linear(x, p + "attention.self.value"), [0, 2, 1, 3])
        scores = g.node("Div", g.node("MatMul", q, k), g.constant(np.sqrt(width), np.float32))
        probabilities = g.node("Softmax", g.node("Add", scores, mask), axis=-1)
        context = g.node("Transpose", g.node("MatMul", probabilities, v), perm=[0, 2, 1, 3])
        context = g.node("Reshape", context, vector(size(context, 0), size(context, 1), hidden))
        x = layer_norm(g.node("Add", linear(context, p + "attention.output.dense"), x), p + "attention.output.LayerNorm")
        h = linear(x, p + "intermediate.dense")
        erf = g.node("Erf", g.node("Div", h, g.constant(np.sqrt(2.0), np.float32)))
        h = g.node("Mul", g.node("Mul", h, g.node("Add", erf, g.constant(1.0, np.float32))), g.constant(0.5, np.float32))
        x = layer_norm(g.node("Add", linear(h, p + "output.dense"), x), p + "output.LayerNorm")

    # Mean over the tokens that are not padding, then unit length.
    shown = g.node("Unsqueeze", "attention_mask", g.constant([-1]))
    shown = g.node("Cast", g.node("Expand", shown, g.node("Shape", x)), to=TensorProto.FLOAT)
    total = g.node("ReduceSum", g.node("Mul", x, shown), g.constant([1]), keepdims=0)
    count = g.node("Clip", g.node("ReduceSum", shown, g.constant([1]), keepdims=0), g.constant(1e-9, np.float32))
    mean = g.node("Div", total, count)
    norm = g.node("Clip", g.node("ReduceL2", mean, axes=[1], keepdims=1), g.constant(1e-12, np.float32))
    g.node("Div", mean, g.node("Expand", norm, g.node("Shape", mean)), name="sentence_embedding")

    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
              for name in ("input_ids", "attention_mask", "token_type_ids")]
    output = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", hidden])
    graph = helper.make_graph(g.nodes, "all-MiniLM-L6-v2", inputs, [output], g.initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
