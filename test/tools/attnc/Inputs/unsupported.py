"""Writes a model with an operator that no one supports, in a node whose name would clear a terminal."""
import sys

import onnx
from onnx import TensorProto, helper

value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])
node = helper.make_node("NoSuchOperator", ["x"], ["y"], name="a\x1b[2Jb")
graph = helper.make_graph([node], "g", [value("x")], [value("y")])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), sys.argv[1])
