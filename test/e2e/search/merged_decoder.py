#!/usr/bin/env python3
"""Writes a decoder with and without its past in one graph, as Optimum does: merged_decoder.py FILE [FLAG]"""
import sys

import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper


def info(name, dtype, shape):
    return h.make_tensor_value_info(name, dtype, shape)


def branch(name, *nodes):
    return h.make_graph(list(nodes), name, [], [info(name, T.FLOAT, ["batch", "now", 8])])


flag = sys.argv[2] if len(sys.argv) > 2 else "use_cache_branch"
table = numpy_helper.from_array(np.eye(20, 8, dtype=np.float32), "table")
nodes = [
    h.make_node("Gather", ["table", "input_ids"], ["x"]),
    h.make_node("If", [flag], ["present"], "choose",
                then_branch=branch("longer", h.make_node("Concat", ["past", "x"], ["longer"], axis=1)),
                else_branch=branch("first", h.make_node("Identity", ["x"], ["first"]))),
    h.make_node("ReduceSum", ["present", "axis"], ["sum"], keepdims=0),
    h.make_node("MatMul", ["sum", "turned"], ["logits"]),
]
inputs = [info("input_ids", T.INT64, ["batch", 1]), info("past", T.FLOAT, ["batch", "before", 8]),
          info(flag, T.BOOL, [1])]
outputs = [info("logits", T.FLOAT, ["batch", 20]), info("present", T.FLOAT, ["batch", "now", 8])]
weights = [table, numpy_helper.from_array(np.eye(8, 20, dtype=np.float32), "turned"),
           numpy_helper.from_array(np.array([1]), "axis")]
graph = h.make_graph(nodes, "g", inputs, outputs, weights)
onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), sys.argv[1])
