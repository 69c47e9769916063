"""Models whose output y may be what a branch returns for their output q, with inputs and what is expected:
branch_outputs.py FOLDER"""
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPE = [6, 64]
rng = np.random.default_rng(1)
x, z = (rng.standard_normal(SHAPE).astype(np.float32) for _ in "xz")
w = (rng.standard_normal([64, 64]) / 10).astype(np.float32)
for n, array in dict(x=x, z=z, y=x @ w, then=np.exp(z) @ w, yes=np.array(True), no=np.array(False)).items():
    np.save(f"{sys.argv[1]}/{n}.npy", array)


def info(name):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE)


then = helper.make_graph([helper.make_node("MatMul", ["e", "w"], ["t"])], "then", [], [info("t")])
other = helper.make_graph([helper.make_node("Identity", ["y"], ["o"])], "else", [], [info("o")])
nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Exp", ["z"], ["e"]),
         helper.make_node("If", ["c"], ["q"], then_branch=then, else_branch=other)]
for outputs in ("qy", "yq"):
    graph = helper.make_graph(nodes, "g", [info("x"), info("z"), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
                              [info(n) for n in outputs], [numpy_helper.from_array(w, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              f"{sys.argv[1]}/{outputs}.onnx")
