#!/usr/bin/env python3
"""Windows that slide over rows, and elements a few steps apart: windows.py ATTNC ATTN_RUN FOLDER

Convolutions and poolings are compared with NumPy in float64, strided slices bit by bit. Widths and heights lie around vectors
and groups of rows, static and open; inputs end where the last window does.
"""
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ATTNC, RUN, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16, "int32": TensorProto.INT32,
         "uint8": TensorProto.UINT8}
CPUS = ("native", "x86-64-v3", "x86-64")


def results(name, cpu, node, feeds, dims, tables=()):
    """What the node makes of each of `feeds`, by one library for `dims`."""
    dtype = TYPES[str(feeds[0].dtype)]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", dtype, dims)],
                              [helper.make_tensor_value_info("y", dtype, None)], list(tables))
    path = FOLDER / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    subprocess.run([ATTNC, path, "-o", FOLDER / "w.so", f"--mcpu={cpu}"], check=True)
    for number, x in enumerate(feeds):
        np.save(FOLDER / "x.npy", x)
        subprocess.run([RUN, FOLDER / "w.so", f"--threads={1 + number % 2}", f"--input=x=@{FOLDER}/x.npy",
                        f"--output=y=@{FOLDER}/y.npy"], check=True, stdout=subprocess.DEVNULL)
        yield x, np.load(FOLDER / "y.npy")


def windows(x, kernel, stride, dilation):
    span = [(k - 1) * dilation + 1 for k in kernel]
    return np.lib.stride_tricks.sliding_window_view(x, span, (2, 3))[:, :, ::stride, ::stride, ::dilation, ::dilation]


def sizes(kernel, stride, dilation, outputs):
    return [(o - 1) * stride + (k - 1) * dilation + 1 for k, o in zip(kernel, outputs)]


def check_convolutions(cpu):
    rng, count = np.random.default_rng(1), 0
    for channels, kernel, stride, dilation in [(70, (3, 3), 1, 1), (9, (3, 3), 2, 1), (64, (5, 5), 2, 1), (12, (7, 3), 1, 1),
                                               (8, (2, 9), 3, 1), (65, (1, 4), 4, 1), (16, (3, 3), 1, 2), (10, (3, 2), 5, 3)]:
        w = rng.standard_normal((channels, 1, *kernel)).astype(np.float32)
        node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[stride] * 2, dilations=[dilation] * 2, group=channels)
        shapes = [(1, 1), (3, 15), (4, 16), (5, 17), (8, 33), (9, 100)]
        feeds = [rng.standard_normal((1 + (h == 5), channels, *sizes(kernel, stride, dilation, (h, v)))).astype(np.float32)
                 for h, v in shapes]
        for dims, some in [(["n", channels, "h", "w_"], feeds), *((list(x.shape), [x]) for x in feeds[2:4])]:
            for x, y in results("conv", cpu, node, some, dims, [numpy_helper.from_array(w, "w")]):
                taps = windows(x.astype(np.float64), kernel, stride, dilation)
                want = np.einsum("nchwij,cij->nchw", taps, w[:, 0].astype(np.float64))
                bound = np.einsum("nchwij,cij->nchw", np.abs(taps), np.abs(w[:, 0]).astype(np.float64))
                assert y.shape == want.shape and np.all(np.abs(y - want) <= 1e-6 * bound), (cpu, kernel, stride, dims, x.shape)
                count += 1
    return count


def check_products(cpu):
    """Convolutions that sum over channels, with pads and a bias."""
    rng, count = np.random.default_rng(4), 0
    for channels, filters, groups, kernel, stride, pad in [(20, 33, 1, (1, 1), 1, 0), (3, 17, 1, (3, 3), 2, 1), (20, 9, 1, (3, 2), 1, 1),
                                                          (32, 48, 2, (1, 1), 1, 0), (36, 18, 2, (3, 3), 1, 1), (17, 16, 1, (2, 2), 2, 0),
                                                          (16, 5, 1, (1, 1), 2, 0), (40, 40, 20, (3, 3), 2, 1), (3, 8, 1, (4, 4), 4, 0)]:
        w = rng.standard_normal((filters, channels // groups, *kernel)).astype(np.float32)
        bias = rng.standard_normal(filters).astype(np.float32)
        tables = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "bias")]
        node = helper.make_node("Conv", ["x", "w", "bias"], ["y"], strides=[stride] * 2, group=groups, pads=[pad] * 4)
        feeds = [rng.standard_normal((n, channels, *(s - 2 * pad for s in sizes(kernel, stride, 1, outputs)))).astype(np.float32)
                 for n, outputs in [(1, (3, 3)), (2, (4, 16)), (1, (5, 17)), (1, (9, 7))]]
        for dims, some in [(["n", channels, "h", "w_"], feeds), *((list(x.shape), [x]) for x in feeds[1:3])]:
            for x, y in results("product", cpu, node, some, dims, tables):
                taps = windows(np.pad(x.astype(np.float64), [(0, 0), (0, 0), (pad, pad), (pad, pad)]), kernel, stride, 1)
                taps = taps.reshape(len(x), groups, channels // groups, *taps.shape[2:])
                parts = w.reshape(groups, filters // groups, *w.shape[1:]).astype(np.float64)
                sums, bound = (np.einsum("ngchwij,gfcij->ngfhw", *both).reshape(len(x), filters, *taps.shape[3:5])
                               for both in ((taps, parts), (np.abs(taps), np.abs(parts))))
                want = sums + bias[:, None, None].astype(np.float64)
                where = cpu, kernel, stride, groups, dims, x.shape
                assert y.shape == want.shape and np.all(np.abs(y - want) <= 2e-6 * (bound + 1)), where
                count += 1
    return count


def check_transposed(cpu):
    """ConvTranspose, with windows that lie side by side (a product), and others."""
    rng, count = np.random.default_rng(5), 0
    for channels, filters, kernel, stride, pad in [(20, 9, (2, 2), (2, 2), 0), (7, 33, (4, 4), (4, 4), 0), (8, 16, (3, 1), (3, 1), 0),
                                                  (20, 9, (2, 2), (2, 2), 1), (6, 5, (3, 3), (2, 2), 1), (6, 5, (2, 2), (3, 3), 0)]:
        w = rng.standard_normal((channels, filters, *kernel)).astype(np.float32)
        bias = rng.standard_normal(filters).astype(np.float32)
        tables = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "bias")]
        node = helper.make_node("ConvTranspose", ["x", "w", "bias"], ["y"], strides=stride, pads=[pad] * 4)
        feeds = [rng.standard_normal((n, channels, h, v)).astype(np.float32) for n, h, v in [(1, 2, 3), (2, 4, 16), (0, 5, 17)]]
        for dims, some in [(["n", channels, "h", "w_"], feeds), *((list(x.shape), [x]) for x in feeds[1:])]:
            for x, y in results("transposed", cpu, node, some, dims, tables):
                parts = np.einsum("nchw,cfij->nfhwij", x.astype(np.float64), w.astype(np.float64))
                size = [(o - 1) * s + k for o, s, k in zip(x.shape[2:], stride, kernel)]
                want = np.zeros((len(x), filters, *size)) + bias[:, None, None].astype(np.float64)
                for i, j in np.ndindex(kernel):
                    want[:, :, i:i + parts.shape[2] * stride[0]:stride[0], j:j + parts.shape[3] * stride[1]:stride[1]] += parts[..., i, j]
                want = want[:, :, pad:size[0] - pad, pad:size[1] - pad]
                assert y.shape == want.shape and np.all(np.abs(y - want) <= 1e-5 * np.abs(want).max(initial=0)), (cpu, kernel, stride, pad, dims)
                count += 1
    return count


def check_poolings(cpu):
    """The first of equal elements is the one that a maximum takes: indices tell."""
    rng, count = np.random.default_rng(2), 0
    for kernel, stride in [((2, 2), 2), ((3, 3), 1), ((3, 3), 2), ((4, 2), 3)]:
        for h, v in [(1, 1), (5, 17), (8, 31)]:
            x = rng.integers(-3, 4, (2, 5, *sizes(kernel, stride, 1, (h, v)))).astype(np.float32)
            taps = windows(x, kernel, stride, 1).reshape(2, 5, h, v, -1)
            attributes = {"kernel_shape": kernel, "strides": [stride] * 2}
            for op, want in [("MaxPool", taps.max(-1)), ("AveragePool", taps.astype(np.float64).mean(-1))]:
                for dims in (list(x.shape), ["n", 5, "h", "w"]):
                    (_, y), = results("pool", cpu, helper.make_node(op, ["x"], ["y"], **attributes), [x], dims)
                    assert y.shape == want.shape and np.all(np.abs(y - want) <= 1e-6 * (1 + np.abs(want))), (cpu, op, kernel, h, v)
                    count += 1
    return count


def check_slices(cpu):
    rng, count = np.random.default_rng(3), 0
    for dtype in TYPES:
        for step in (2, 3, 4, 5):
            tables = [numpy_helper.from_array(np.array([value], np.int64), name)
                      for name, value in [("starts", 1), ("ends", 1 << 40), ("axes", 1), ("steps", step)]]
            node = helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])
            feeds = [rng.integers(0, 200, (3, 2 + step * (n - 1))).astype(dtype) for n in (1, 3, 15, 16, 17, 40)]
            for dims, some in [(["n", "m"], feeds), *((list(x.shape), [x]) for x in feeds[3:5])]:
                for x, y in results("slice", cpu, node, some, dims, tables):
                    assert np.array_equal(y, x[:, 1::step]), (cpu, dtype, step, x.shape)
                    count += 1
    return count


print(sum(check(cpu) for cpu in CPUS for check in (check_convolutions, check_products, check_transposed, check_poolings, check_slices)), "results agree")
