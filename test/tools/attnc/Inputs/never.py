"""Writes a model of which every run fails: its indices are beyond the table."""
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

nodes = [helper.make_node("Add", ["i", "offset"], ["j"]), helper.make_node("Gather", ["table", "j"], ["q"]),
         helper.make_node("Transpose", ["k"], ["kt"], perm=[1, 0]), helper.make_node("MatMul", ["q", "kt"], ["s"]),
         helper.make_node("Softmax", ["s"], ["p"], axis=-1), helper.make_node("MatMul", ["p", "k"], ["o"])]
info = helper.make_tensor_value_info
graph = helper.make_graph(nodes, "never", [info("i", TensorProto.INT64, ["n"]), info("k", TensorProto.FLOAT, ["m", 8])],
                          [info("o", TensorProto.FLOAT, ["n", 8])],
                          [numpy_helper.from_array(np.array(1000), "offset"),
                           numpy_helper.from_array(np.arange(80, dtype=np.float32).reshape(10, 8) / 80, "table")])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), sys.argv[1])
