#!/usr/bin/env python3
"""erf.py write MODEL.onnx X.npy
   erf.py check X.npy Y.npy Z.npy   y = erf(x), z = erf(x / sqrt(2))
   erf.py write-gelu MODEL.onnx X.npy
   erf.py check-gelu X.npy Y.npy    between two products in bf16 by 1

Relative errors are at most 2.7e-7 beside fp64's erf; where erf is 1 in f32 the result is 1 itself, so that GELU's
1 + erf(x) is 0 for large negative x.
"""
import math
import sys

import numpy as np


def write(path, values):
    import onnx
    from onnx import helper, numpy_helper
    tensor = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"])
    nodes = [helper.make_node("Erf", ["x"], ["y"]), helper.make_node("Div", ["x", "root"], ["q"]),
             helper.make_node("Erf", ["q"], ["z"])]
    root = numpy_helper.from_array(np.array(math.sqrt(2), np.float32), "root")
    graph = helper.make_graph(nodes, "g", [tensor("x")], [tensor("y"), tensor("z")], [root])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    bf16 = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    rng = np.random.default_rng(3)
    dense = np.concatenate([np.linspace(-6, 6, 100003), rng.normal(size=20000), 3.76 + np.linspace(-1e-5, 1e-5, 101)])
    np.save(values, np.concatenate([bf16, dense.astype(np.float32)]))


def error(x, y):
    """The largest relative error for finite x."""
    want = np.array([math.erf(v) for v in x])
    assert np.array_equal(np.isnan(want), np.isnan(y)), "NaN"
    assert (np.abs(y[np.abs(x) >= 3.85]) == 1).all(), "an erf near 1 is not 1"
    assert (np.signbit(y) == np.signbit(x))[~np.isnan(x)].all(), "signs"
    normal = np.abs(want) > 1e-37
    return (np.abs(y - want)[normal] / np.abs(want[normal])).max()


def check(x, y, z):
    x, y, z = (np.load(path).astype(np.float64) for path in (x, y, z))
    worst = error(x, y), error(x / np.float64(np.float32(math.sqrt(2))), z)
    # A rounding of the argument is the quotient's own.
    print("agrees" if worst[0] < 2.7e-7 and worst[1] < 3.5e-7 else f"differs by {worst}")


def write_gelu(path, values):
    import onnx
    from onnx import helper, numpy_helper
    scalars = {"root": math.sqrt(2), "one": 1, "half": 0.5}
    constants = [numpy_helper.from_array(np.eye(64, dtype=np.float32), "same")]
    constants += [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in scalars.items()]
    chain = [("MatMul", "x same h"), ("Div", "h root q"), ("Erf", "q e"), ("Add", "e one a"), ("Mul", "h a m"),
             ("Mul", "m half g"), ("MatMul", "g same y")]
    nodes = [helper.make_node(kind, names.split()[:-1], names.split()[-1:]) for kind, names in chain]
    tensor = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 64])
    graph = helper.make_graph(nodes, "g", [tensor("x")], [tensor("y")], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    bf16 = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    np.save(values, np.where(np.abs(bf16) < 1e38, bf16, 0).reshape(-1, 64))  # no sum with infinity, no overflow


def check_gelu(x, y):
    x, y = (np.load(path).astype(np.float64).ravel() for path in (x, y))
    want = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in x])
    # The rounding to bf16, and erf's own error, 3.6e-6; where erf is -1 nothing is left.
    bound = np.abs(want) * 2.0**-8 + 2e-6 * np.minimum(np.abs(x), 5) + 1e-37
    worst = (np.abs(y - want) / bound).max()
    print("agrees" if worst <= 1 else f"differs by {worst} of the bound")


if __name__ == "__main__":
    commands = {"write": write, "check": check, "write-gelu": write_gelu, "check-gelu": check_gelu}
    commands[sys.argv[1]](*sys.argv[2:])
