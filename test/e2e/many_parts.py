#!/usr/bin/env python3
"""Concatenations of many parts that are computed one by one: many_parts.py ATTN_RUN FOLDER

The whole is an output, or is read by a sum and a product. It is compared with NumPy in float64.
"""
import itertools
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RUN, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])


def graph(parts, dim, is_open, is_output, shape):
    names = [f"p{n}" for n in range(parts)]
    nodes = [helper.make_node("Split", ["x"], names, axis=dim, num_outputs=parts)]
    for n, name in enumerate(names):
        nodes += [helper.make_node("Mul", [name, f"s{n % 3}"], [f"m{n}"]), helper.make_node("Softmax", [f"m{n}"], [f"e{n}"], axis=-1)]
    # The last part stands first, and the first one twice.
    order = [f"e{n}" for n in (parts - 1, *range(parts - 1), 0)]
    nodes.append(helper.make_node("Concat", order, ["whole"], axis=dim))
    nodes += [] if is_output else [helper.make_node("Add", ["whole", "whole"], ["twice"]),
                                   helper.make_node("ReduceSum", ["twice", "axis"], ["y"], keepdims=0)]
    tables = [numpy_helper.from_array(np.array([0.5 + n], np.float32), f"s{n}") for n in range(3)]
    tables.append(numpy_helper.from_array(np.array([dim], np.int64), "axis"))
    dims = ["a" if is_open and d != dim else size for d, size in enumerate(shape)]
    return helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
                             [helper.make_tensor_value_info("whole" if is_output else "y", TensorProto.FLOAT, None)], tables)


def expected(x, parts, dim):
    pieces = []
    for n, piece in enumerate(np.split(x.astype(np.float64), parts, dim)):
        e = np.exp((0.5 + n % 3) * (piece - piece.max(-1, keepdims=True)))
        pieces.append(e / e.sum(-1, keepdims=True))
    return np.concatenate([pieces[-1], *pieces[:-1], pieces[0]], dim)


count, rng = 0, np.random.default_rng(1)
for parts, dim, is_open, is_output in itertools.product((31, 33, 100), (0, 1), (False, True), (False, True)):
    shape = (2 * parts, 5) if dim == 0 else (5, 2 * parts)
    x = rng.standard_normal(shape, np.float32)
    model = helper.make_model(graph(parts, dim, is_open, is_output, shape), opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, FOLDER / "m.onnx")
    np.save(FOLDER / "x.npy", x)
    name = "whole" if is_output else "y"
    subprocess.run([RUN, FOLDER / "m.onnx", f"--input=x=@{FOLDER}/x.npy", f"--output={name}=@{FOLDER}/y.npy"], check=True,
                   stdout=subprocess.DEVNULL)
    y, want = np.load(FOLDER / "y.npy"), expected(x, parts, dim)
    if not is_output:
        want = 2 * want.sum(dim)
    assert y.shape == want.shape and np.all(np.abs(y - want) <= 1e-5 * np.maximum(want, 1)), (parts, dim, is_open, is_output)
    count += 1
# Parts whose number of rows is open, and some without any.
for parts, dim in itertools.product((32, 33, 80), (0, 1)):
    names = [f"p{n}" for n in range(parts)]
    nodes = [helper.make_node("Mul" if n % 7 else "Slice", ["x", f"s{n % 3}"] if n % 7 else ["x", "none", "none", "axis"], [name])
             for n, name in enumerate(names)]
    nodes += [helper.make_node("Concat", names, ["whole"], axis=dim), helper.make_node("Exp", ["whole"], ["y"])]
    tables = [numpy_helper.from_array(np.array([0.5 + n], np.float32), f"s{n}") for n in range(3)]
    tables += [numpy_helper.from_array(np.array([value], np.int64), name) for name, value in (("none", 0), ("axis", dim))]
    dims = ["n", 3] if dim == 0 else [3, "n"]
    body = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
                             [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], tables)
    onnx.save(helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), FOLDER / "m.onnx")
    for rows in (0, 1, 4):
        x = rng.standard_normal((rows, 3) if dim == 0 else (3, rows), np.float32)
        np.save(FOLDER / "x.npy", x)
        subprocess.run([RUN, FOLDER / "m.onnx", f"--input=x=@{FOLDER}/x.npy", f"--output=y=@{FOLDER}/y.npy"], check=True,
                       stdout=subprocess.DEVNULL)
        want = np.exp(np.concatenate([x.astype(np.float64) * (0.5 + n % 3) for n in range(parts) if n % 7], dim))
        np.testing.assert_allclose(np.load(FOLDER / "y.npy"), want, rtol=1e-5)
        count += 1
print(count, "results agree")
