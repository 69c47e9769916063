#!/usr/bin/env python3
"""An attention whose queries, keys and values are projections of one tensor, with its weights at random.

    projections.py MODEL.onnx KIND BATCH ROWS WIDTH HEADS [VALUES]     KIND: bf16, f16 or f32; VALUES: WIDTH of values
"""
import sys

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

KINDS = {"bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16), "f16": (TensorProto.FLOAT16, np.float16), "f32": (TensorProto.FLOAT, np.float32)}


def write(path, kind, batch, rows, width, heads, values=None):
    rng, (type, element) = np.random.default_rng(5), KINDS[kind]
    batch, rows, width, heads, values = map(int, (batch, rows, width, heads, values or width))
    weights, nodes = [], []
    for name in "qkv":
        columns = values if name == "v" else width
        for prefix, shape in ("w", (width, columns)), ("b", (columns,)):
            weights.append(numpy_helper.from_array((rng.standard_normal(shape) / 8).astype(element), prefix + name))
        nodes += [helper.make_node("MatMul", ["x", "w" + name], ["p" + name]), helper.make_node("Add", ["p" + name, "b" + name], [name])]
    nodes.append(helper.make_node("Attention", ["q", "k", "v"], ["y"], q_num_heads=heads, kv_num_heads=heads))
    value = lambda name, columns: helper.make_tensor_value_info(name, type, [batch, rows, columns])
    graph = helper.make_graph(nodes, "g", [value("x", width)], [value("y", values)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)


if __name__ == "__main__":
    write(*sys.argv[1:])
