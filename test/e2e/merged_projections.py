#!/usr/bin/env python3
"""Projections in one product: merged_projections.py write MODEL.onnx WIDTH
                              merged_projections.py run MODEL.so LIBATTNRT WIDTH

Two rows of a sequence attend to each other in two heads of WIDTH; the key has no
bias. `run` compares with NumPy in fp64, as compiled and after each of the weights
has been replaced alone.
"""
import ctypes
import sys

import numpy as np

ROWS, DEPTH, HEADS = 2, 40, 2


def make(width):
    rng = np.random.default_rng(7)
    columns = HEADS * width
    values = {name: rng.normal(size=(DEPTH, columns)).astype(np.float32) / 6 for name in ("wq", "wk", "wv")}
    return values | {name: rng.normal(size=columns).astype(np.float32) for name in ("bq", "bv")}


def write(path, width):
    import onnx
    from onnx import helper, numpy_helper
    width = int(width)
    heads = np.array([1, ROWS, HEADS, width], np.int64)
    constants = make(width) | {"heads": heads, "merged": np.array([1, ROWS, HEADS * width], np.int64),
                               "scale": np.array(width ** -0.5, np.float32)}
    nodes = []
    for name, permutation in ("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3]):
        nodes.append(helper.make_node("MatMul", ["x", "w" + name], [name + "0"]))
        if name != "k":
            nodes.append(helper.make_node("Add", [name + "0", "b" + name], [name + "1"]))
        nodes.append(helper.make_node("Reshape", [name + ("0" if name == "k" else "1"), "heads"], [name + "2"]))
        nodes.append(helper.make_node("Transpose", [name + "2"], [name], perm=permutation))
    nodes += [helper.make_node("MatMul", ["q", "k"], ["scores"]),
              helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
              helper.make_node("Softmax", ["scaled"], ["weights"], axis=-1),
              helper.make_node("MatMul", ["weights", "v"], ["context"]),
              helper.make_node("Transpose", ["context"], ["turned"], perm=[0, 2, 1, 3]),
              helper.make_node("Reshape", ["turned", "merged"], ["y"])]
    tensor = lambda name, shape: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "g", [tensor("x", [1, ROWS, DEPTH])], [tensor("y", [1, ROWS, HEADS * width])],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def reference(x, values, width):
    split = lambda y: y.reshape(ROWS, HEADS, width).transpose(1, 0, 2)
    x, values = x[0].astype(np.float64), {name: value.astype(np.float64) for name, value in values.items()}
    q, k, v = (split(x @ values["w" + n] + values.get("b" + n, 0)) for n in "qkv")
    scores = q @ k.transpose(0, 2, 1) * width ** -0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(1, ROWS, HEADS * width)


def run(library, runtime, width):
    from own_state import Runtime
    width = int(width)
    values, rng = make(width), np.random.default_rng(8)
    rt = Runtime(runtime, library)

    def check(what):
        x, y = rng.normal(size=(1, ROWS, DEPTH)).astype(np.float32), np.empty((1, ROWS, HEADS * width), np.float32)
        rt.run([x], [y])
        np.testing.assert_allclose(y, reference(x, values, width), rtol=1e-4, atol=1e-5, err_msg=what)

    check("as compiled")
    for name in "wv", "wq", "wk":
        values[name] = rng.normal(size=values[name].shape).astype(np.float32) / 6
        rt.call("attnrt_model_set_weight", rt.model, name.encode(), ctypes.byref(rt.view(values[name])))
        check(name + " replaced")
    print("agrees, and after each weight was replaced")


if __name__ == "__main__":
    {"write": write, "run": run}[sys.argv[1]](*sys.argv[2:])
