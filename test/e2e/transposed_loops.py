#!/usr/bin/env python3
"""Elementwise loops that read along one dimension and write along another: transposed_loops.py ATTNC ATTN_RUN FOLDER

Copies keep every bit; sums of transposed operands are compared with NumPy. Sizes lie around the squares that are
transposed in registers, static and open.
"""
import itertools
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ATTNC, RUN, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
TYPES = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "float16": TensorProto.FLOAT16, "int64": TensorProto.INT64}


def numbers(rng, shape, dtype):
    return rng.integers(-1000, 1000, shape).astype(dtype)


def graph(nodes, inputs, dtype, tables=()):
    shapes = [helper.make_tensor_value_info(name, TYPES[dtype], shape) for name, shape in inputs.items()]
    made = helper.make_graph(nodes, "g", shapes, [helper.make_tensor_value_info("y", TYPES[dtype], None)], list(tables))
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def compiled(name, model, *flags):
    onnx.save(model, FOLDER / f"{name}.onnx")
    library = FOLDER / f"{name}.so"
    subprocess.run([ATTNC, FOLDER / f"{name}.onnx", "-o", library, *flags], check=True)
    return library


def run(library, feeds, threads=1):
    for name, value in feeds.items():
        np.save(FOLDER / f"{name}.npy", value)
    subprocess.run([RUN, library, f"--threads={threads}", f"--output=y=@{FOLDER}/y.npy",
                    *(f"--input={name}=@{FOLDER}/{name}.npy" for name in feeds)], check=True, stdout=subprocess.DEVNULL)
    return np.load(FOLDER / "y.npy")


def check_copies(cpu):
    rng, count = np.random.default_rng(1), 0
    for dtype, order in itertools.product(TYPES, ([1, 0], [0, 2, 1], [0, 3, 1, 2], [2, 0, 1, 3])):
        rank = len(order)
        library = compiled("copy", graph([helper.make_node("Transpose", ["x"], ["y"], perm=order)], {"x": list("abcd"[:rank])},
                                         dtype), f"--mcpu={cpu}")
        for a, b in [(1, 1), (3, 40), (7, 8), (8, 9), (15, 16), (16, 16), (17, 33), (48, 32), (0, 5), (300, 70)]:
            x = numbers(rng, {2: (a, b), 3: (2, a, b), 4: (2, a, 3, b)}[rank], dtype)
            y = run(library, {"x": x}, threads=1 + count % 3)
            assert np.array_equal(y, x.transpose(order)), (cpu, dtype, order, x.shape)
            count += 1
    return count


def check_static(cpu):
    rng, count = np.random.default_rng(2), 0
    for a, b in [(16, 48), (17, 16), (8, 24), (40, 100), (1000, 33)]:
        x, bias, row = (numbers(rng, shape, np.float32) for shape in ((3, a, b), (a, 1), (b,)))
        nodes = [helper.make_node("Mul", ["x", "row"], ["scaled"]),
                 helper.make_node("Transpose", ["scaled"], ["turned"], perm=[0, 2, 1]),
                 helper.make_node("Transpose", ["bias"], ["line"], perm=[1, 0]),
                 helper.make_node("Add", ["turned", "line"], ["y"])]
        model = graph(nodes, {"x": [3, a, b], "bias": [a, 1]}, "float32", [numpy_helper.from_array(row, "row")])
        y = run(compiled("static", model, f"--mcpu={cpu}"), {"x": x, "bias": bias}, threads=2)
        assert np.array_equal(y, (x * row).swapaxes(1, 2) + bias.T), (cpu, a, b)
        count += 1
    return count


def check_patches(cpu):
    """Convolutions, which copy patches row by row, and results to channels."""
    rng, count = np.random.default_rng(3), 0
    for channels, outputs, kernel, stride, size in [(3, 5, 3, 2, 19), (8, 8, 3, 1, 20), (16, 64, 1, 1, 12), (2, 17, 5, 3, 23)]:
        x, w = numbers(rng, (2, channels, size, size), np.float32), numbers(rng, (outputs, channels, kernel, kernel), np.float32)
        node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[stride, stride], pads=[1, 1, 1, 1])
        for open_sizes in (False, True):
            shape = ["n", channels, "h", "w_"] if open_sizes else list(x.shape)
            y = run(compiled("conv", graph([node], {"x": shape}, "float32", [numpy_helper.from_array(w, "w")]), f"--mcpu={cpu}"),
                    {"x": x}, threads=2)
            padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))).astype(np.float64)
            windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
            want = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64))
            bound = np.einsum("nchwij,ocij->nohw", np.abs(windows), np.abs(w).astype(np.float64))
            assert np.all(np.abs(y - want) <= 1e-5 * bound + 1e-6), (cpu, channels, outputs, kernel, open_sizes)
            count += 1
    return count


count = sum(check(cpu) for cpu in ("native", "x86-64-v3", "x86-64") for check in (check_copies, check_static, check_patches))
print(count, "results agree")
