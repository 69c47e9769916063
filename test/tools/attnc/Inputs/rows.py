"""y = softmax(x x^T) + 1 of rows x, of which there are 'seq'."""
import sys

import onnx
from onnx import helper

nodes = [
    helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
    helper.make_node("MatMul", ["x", "t"], ["s"]),
    helper.make_node("Softmax", ["s"], ["p"]),
    helper.make_node("MatMul", ["p", "s"], ["y"]),
]
graph = helper.make_graph(nodes, "rows", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["seq", 64])],
                          [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["seq", "seq"])])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), sys.argv[1])
