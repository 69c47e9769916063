"""Models whose sizes are inputs."""
import onnx
from onnx import TensorProto, helper


def save(name, nodes, inputs):
    values = [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs]
    graph = helper.make_graph(nodes, name, values, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), name + ".onnx")


X = ("x", TensorProto.FLOAT, ["n"])
save("tile", [helper.make_node("Tile", ["x", "r"], ["y"], name="t")], [X, ("r", TensorProto.INT64, [1])])
save("reshape", [helper.make_node("Reshape", ["x", "s"], ["z"], name="r"),
                 helper.make_node("ReduceSum", ["z"], ["y"], keepdims=0)], [X, ("s", TensorProto.INT64, [2])])
# The size is computed from a sum, so that no allocation at the entry can know it.
save("nested", [helper.make_node("ReduceSum", ["k"], ["total"], keepdims=1),
                helper.make_node("Relu", ["x"], ["p"]),
                helper.make_node("Mul", ["total", "total"], ["many"]),
                helper.make_node("Div", ["many", "total"], ["size"]),
                helper.make_node("Concat", ["size", "size"], ["shape"], axis=0),
                helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
                helper.make_node("Exp", ["zeros"], ["ones"]),
                helper.make_node("MatMul", ["ones", "zeros"], ["square"]),
                helper.make_node("ReduceSum", ["square"], ["y"], keepdims=0)], [X, ("k", TensorProto.INT64, [1])])
