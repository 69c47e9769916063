#!/usr/bin/env python3
"""An attention whose queries, keys and values are projections of one tensor, with its weights at random.

    projections.py MODEL.onnx KIND BATCH ROWS WIDTH HEADS     KIND: bf16, f16 or f32
"""
import sys

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

KINDS = {"bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16), "f16": (TensorProto.FLOAT16, np.float16), "f32": (TensorProto.FLOAT, np.float32)}


def write(path, kind, batch, rows, width, heads):
    rng, (type, element) = np.random.default_rng(5), KINDS[kind]
    batch, rows, width, heads = map(int, (batch, rows, width, heads))
    weights, nodes = [], []
    for name in "qkv":
        for prefix, shape in ("w", (width, width)), ("b", (width,)):
            weights.append(numpy_helper.from_array((rng.standard_normal(shape) / 8).astype(element), prefix + name))
        nodes += [helper.make_node("MatMul", ["x", "w" + name], ["p" + name]), helper.make_node("Add", ["p" + name, "b" + name], [name])]
    nodes.append(helper.make_node("Attention", ["q", "k", "v"], ["y"], q_num_heads=heads, kv_num_heads=heads))
    value = lambda name: helper.make_tensor_value_info(name, type, [batch, rows, width])
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)


if __name__ == "__main__":
    write(*sys.argv[1:])
