#!/usr/bin/env python3
"""Quantised products beside exact integer sums: quantized_products.py BIN FOLDER"""
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

K, N = 70, 50
TARGETS = ([], ["--mcpu=x86-64-v3"], ["--mcpu=x86-64"])


def save(path, nodes, inputs, outputs, constants, opset=21):
    value = lambda name, kind, shape: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)  # noqa: E731
    graph = helper.make_graph(nodes, "g", [value(*i) for i in inputs], [value(*o) for o in outputs],
                              [numpy_helper.from_array(v, n) for n, v in constants.items()])
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=10), path)


def quantised(x):
    """DynamicQuantizeLinear in f32, as the operator is defined."""
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = np.float32((high - low) / np.float32(255)) if high > low else np.float32(1) / np.float32(255)
    zero = np.uint8(np.clip(np.rint(-low / scale), 0, 255))
    return np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8), scale, zero


class Run:
    def __init__(self, bin, folder):
        self.bin, self.folder, self.number = bin, pathlib.Path(folder), 0

    def library(self, path, kernels, options):
        """Compiles and counts the calls of kernels of bytes."""
        self.number += 1
        library, dump = self.folder / f"{self.number}.so", self.folder / f"dump{self.number}"
        subprocess.run([f"{self.bin}/attnc", path, "-o", library, f"--dump-ir={dump}", *options], check=True)
        text = next(dump.glob("*attn-lower-products.mlir")).read_text()
        calls = len(re.findall(r"attn\.kernel @gemm_i8", text))
        assert calls == kernels, f"{path} {options}: {calls} kernels of bytes, expected {kernels}"
        return library

    def outputs(self, library, inputs, names):
        command = [f"{self.bin}/attn-run", library]
        for name, value in inputs.items():
            np.save(self.folder / f"{name}.npy", value)
            command.append(f"--input={name}=@{self.folder / name}.npy")
        command += [f"--output={n}=@{self.folder / n}_out.npy" for n in names]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return [np.load(self.folder / f"{n}_out.npy") for n in names]


def integer_products(run, rng):
    """MatMulInteger, all signs and zero points: the sums themselves."""
    for number, (left, right, zeros) in enumerate([("u1", "i1", "a"), ("u1", "i1", ""), ("i1", "i1", "a"), ("u1", "u1", "ab"),
                                                   ("u1", "i1", "aB"), ("i1", "u1", "aB"), ("u1", "u1", "")]):
        draw = lambda kind, *shape: rng.integers(0, 256, shape).astype(np.uint8).view(kind)  # noqa: E731
        w, constants, inputs = draw(right, K, N), {}, [("x", left, ["m", 3, K])]
        za, zb = np.zeros((), left), np.zeros((), right)
        names = ["x", "w"]
        if "a" in zeros:
            za = draw(left)
            inputs.append(("za", left, []))
            names.append("za")
        if "b" in zeros.lower():
            zb = draw(right, N) if "B" in zeros else draw(right)
            constants["zb"] = zb
            names.append("zb")
        path = run.folder / f"integer{number}.onnx"
        save(path, [helper.make_node("MatMulInteger", names, ["y"])], inputs, [("y", "i4", ["m", 3, N])], constants | {"w": w})
        for options in TARGETS:
            library = run.library(path, 1, options)
            for rows in (1, 4, 7):
                x = draw(left, rows, 3, K)
                [y] = run.outputs(library, {"x": x} | ({"za": za} if "a" in zeros else {}), ["y"])
                want = (x.astype(np.int64) - za.astype(np.int64)) @ (w.astype(np.int64) - zb.astype(np.int64))
                np.testing.assert_array_equal(y, want, f"{left} {right} {zeros} {options}")


def dynamic(run, rng):
    """One DynamicQuantizeLinear for two products, scales by column, bias and ReLU."""
    constants = {"one": np.float32(1)}
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])]
    weights = {}
    for name in ("a", "b"):
        weights[name] = (rng.integers(-128, 128, (K, N)).astype(np.int8), rng.uniform(0.01, 0.02, N).astype(np.float32),
                         rng.standard_normal(N).astype(np.float32))
        for what, value in zip(("w", "ws", "bias"), weights[name]):
            constants[what + name] = value
        nodes += [helper.make_node("MatMulInteger", ["q", "w" + name, "z"], ["i" + name]),
                  helper.make_node("Cast", ["i" + name], ["f" + name], to=TensorProto.FLOAT),
                  helper.make_node("Mul", ["s", "ws" + name], ["m" + name]),
                  helper.make_node("Mul", ["f" + name, "m" + name], ["p" + name]),
                  helper.make_node("Add", ["p" + name, "bias" + name], ["y" + name] if name == "a" else ["r"])]
    nodes.append(helper.make_node("Relu", ["r"], ["yb"]))
    path = run.folder / "dynamic.onnx"
    save(path, nodes, [("x", "f4", ["m", K])], [("ya", "f4", ["m", N]), ("yb", "f4", ["m", N])], constants)
    for options in TARGETS:
        library = run.library(path, 2, options)
        for x in (rng.standard_normal((5, K)), rng.uniform(1, 2, (9, K)), -rng.uniform(1, 2, (1, K)), np.zeros((2, K))):
            x = x.astype(np.float32)
            q, scale, zero = quantised(x)
            for got, name in zip(run.outputs(library, {"x": x}, ["ya", "yb"]), "ab"):
                w, ws, bias = weights[name]
                sums = (q.astype(np.int64) - int(zero)) @ w.astype(np.int64)
                want = sums * (np.float64(scale) * ws) + bias
                np.testing.assert_allclose(got, want if name == "a" else np.maximum(want, 0), rtol=1e-5, atol=1e-5)


def dequantised(run, rng):
    """QuantizeLinear and DequantizeLinear around MatMul and Gemm, the result quantised again for the next one."""
    scale, zero = np.float32(0.05), np.uint8(120)
    middle, origin = np.float32(0.02), np.int8(-3)
    w = rng.integers(-127, 128, (N, K)).astype(np.int8)
    v = rng.integers(-127, 128, (N, K)).astype(np.int8)
    ws, vs = (rng.uniform(0.001, 0.002, size).astype(np.float32) for size in (N, K))
    bias = rng.integers(-1000, 1000, N).astype(np.int32)
    node = helper.make_node
    nodes = [node("QuantizeLinear", ["x", "scale", "zero"], ["q"]), node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
             node("DequantizeLinear", ["w", "ws", "wz"], ["dw"], axis=0), node("DequantizeLinear", ["bias", "bs"], ["db"], axis=0),
             node("Gemm", ["d", "dw", "db"], ["h"], transB=1),
             node("QuantizeLinear", ["h", "middle", "origin"], ["hq"]), node("DequantizeLinear", ["hq", "middle", "origin"], ["hd"]),
             node("DequantizeLinear", ["v", "vs"], ["dv"], axis=1), node("MatMul", ["hd", "dv"], ["y"])]
    constants = {"scale": scale, "zero": zero, "middle": middle, "origin": origin, "w": w, "ws": ws, "v": v, "vs": vs,
                 "bias": bias, "bs": scale * ws, "wz": np.zeros(N, np.int8)}
    path = run.folder / "dequantised.onnx"
    save(path, nodes, [("x", "f4", ["m", K])], [("y", "f4", ["m", K])], constants)
    for options in TARGETS:
        library = run.library(path, 2, options)
        for rows in (1, 6, 17):
            x = rng.standard_normal((rows, K)).astype(np.float32)
            q = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.int64)
            h = ((q - int(zero)) @ w.T.astype(np.int64) + bias) * (np.float64(scale) * ws)
            ratio = h / np.float64(middle)
            hq = np.clip(np.rint(ratio) + int(origin), -128, 127)
            want = (hq - int(origin)) @ (v * vs.astype(np.float64)) * np.float64(middle)
            # Where h lies within rounding of the middle between two steps, either is right.
            doubtful = (np.abs(ratio - np.floor(ratio) - 0.5) < 1e-4) @ np.ones((N, 1))
            step = float(middle) * float(np.abs(v * vs).max())
            [y] = run.outputs(library, {"x": x}, ["y"])
            assert (np.abs(y - want) <= 1e-5 * (1 + np.abs(want)) + doubtful * step).all(), np.abs(y - want).max()


def patches(x, kernel, strides, pads, dilations, padding):
    """[N, y, x, C, window] of x, with `padding` around it."""
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=padding)
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    windows = np.lib.stride_tricks.sliding_window_view(x, extent, (2, 3))
    return windows[:, :, ::strides[0], ::strides[1], ::dilations[0], ::dilations[1]].transpose(0, 2, 3, 1, 4, 5)


CONVOLUTIONS = [  # x, w, size, filters, window, strides, pads, dilations
    ("u1", "i1", (3, 32, 48), 20, (16, 16), (16, 16), (0, 0, 0, 0), (1, 1)),
    ("i1", "i1", (3, 19, 14), 24, (4, 4), (4, 4), (0, 0, 0, 0), (1, 1)),
    ("u1", "i1", (17, 9, 8), 70, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    ("i1", "u1", (9, 13, 11), 33, (3, 5), (2, 1), (1, 2, 0, 3), (1, 2)),
    ("u1", "i1", (48, 7, 5), 40, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    ("u1", "u1", (16, 6, 6), 80, (1, 1), (2, 2), (0, 0, 0, 0), (1, 1))]


def convolutions(run, rng):
    """ConvInteger, QLinearConv and dequantised Conv: patches that tile, overlap, are padded and have gaps."""
    node, draw = helper.make_node, lambda kind, *shape: rng.integers(0, 256, shape).astype(np.uint8).view(kind)
    for number, (kind, other, (c, *size), m, window, strides, pads, dilations) in enumerate(CONVOLUTIONS):
        filters = {name: draw(other, m, c, *window) for name in ("sums", "bytes", "floats")}
        zx, zw = draw(kind), draw(other, m) if number == 5 else draw(other) if other == "u1" else np.zeros((), other)
        scale, scales, out = np.float32(0.03), rng.uniform(0.01, 0.02, m).astype(np.float32), np.float32(4.0)
        bias, zy = rng.integers(-9999, 9999, m).astype(np.int32), draw("u1")
        constants = {f"w_{name}": w for name, w in filters.items()}
        constants |= {"zx": zx, "zw": zw, "s": scale, "ws": scales, "ys": out, "zy": zy, "bias": bias,
                      "bs": (scale * scales).astype(np.float32), "wz": np.broadcast_to(zw, m).copy()}
        attributes = {"strides": strides, "pads": pads, "dilations": dilations, "kernel_shape": window}
        nodes = [node("ConvInteger", ["x", "w_sums", "zx", "zw"], ["sums"], **attributes),
                 node("QLinearConv", ["x", "s", "zx", "w_bytes", "ws", "wz", "ys", "zy", "bias"], ["bytes"], **attributes),
                 node("DequantizeLinear", ["x", "s", "zx"], ["dx"]), node("DequantizeLinear", ["w_floats", "ws", "wz"], ["dw"], axis=0),
                 node("DequantizeLinear", ["bias", "bs"], ["db"], axis=0), node("Conv", ["dx", "dw", "db"], ["floats"], **attributes)]
        path = run.folder / f"convolution{number}.onnx"
        save(path, nodes, [("x", kind, ["b", c, *size])],
             [(name, dtype, ["b", m, "h", "v"]) for name, dtype in (("sums", "i4"), ("bytes", "u1"), ("floats", "f4"))], constants)
        for options in TARGETS[number % len(TARGETS):][:1]:
            library = run.library(path, 3, options)
            for batch in (1, 3):
                x = draw(kind, batch, c, *size)
                rows = patches(x.astype(np.int64) - int(zx), window, strides, pads, dilations, 0)
                zeros = zw.astype(np.int64).reshape(-1, 1, 1, 1)
                sums = {name: np.einsum("nyxcij,mcij->nmyx", rows, w.astype(np.int64) - zeros) for name, w in filters.items()}
                upright = lambda v: v.reshape(-1, 1, 1)  # noqa: E731
                factor = np.float64(scale) * scales.astype(np.float64)
                got = dict(zip(("sums", "bytes", "floats"), run.outputs(library, {"x": x}, ["sums", "bytes", "floats"])))
                np.testing.assert_array_equal(got["sums"], sums["sums"], f"{path} {options}")
                want = np.clip(np.rint((sums["bytes"] + upright(bias)) * upright(factor / np.float64(out))) + int(zy), 0, 255)
                np.testing.assert_array_equal(got["bytes"], want, f"{path} {options}")
                np.testing.assert_allclose(got["floats"], (sums["floats"] + upright(bias)) * upright(factor), rtol=1e-5, atol=1e-2)


def two_computed(run, rng):
    """MatMulInteger of two operands that the run has, of every sign, and a filter of few bytes or of groups."""
    node = helper.make_node
    draw = lambda kind, *shape: rng.integers(0, 256, shape).astype(np.uint8).view(kind)  # noqa: E731
    cases = [("u1", "i1", ["b", 2, "m", K], ["b", 2, K, "n"], False), ("i1", "u1", ["b", 2, "m", K], ["b", 2, "n", K], True),
             ("u1", "u1", ["b", 3, "m", "k"], [3, "k", "n"], False), ("i1", "i1", ["m", "k"], ["k", "n"], False),
             ("u1", "i1", [2, "m", 20], [2, 20, 17], False), ("i1", "u1", ["b", 2, "m", K], [K, 9], False)]
    for number, (left, right, a, b, turned) in enumerate(cases):
        zeros = {"za": draw(left), "zb": draw(right)}
        nodes = [node("Transpose", ["y"], ["t"], perm=[0, 1, 3, 2])] * turned
        nodes.append(node("MatMulInteger", ["x", "t" if turned else "y", "za", "zb"], ["sums"]))
        path = run.folder / f"pair{number}.onnx"
        result = a[:-1] + [b[-2] if turned else b[-1]]
        save(path, nodes, [("x", left, a), ("y", right, b)], [("sums", "i4", result)], zeros)
        for options in TARGETS[number % len(TARGETS):][:1]:
            library = run.library(path, 1, options)
            for sizes in ({"b": 1, "m": 1, "k": 1, "n": 1}, {"b": 3, "m": 13, "k": 65, "n": 33}, {"b": 2, "m": 8, "k": 64, "n": 48}):
                x, y = (draw(kind, *(sizes.get(size, size) for size in shape)) for kind, shape in ((left, a), (right, b)))
                [got] = run.outputs(library, {"x": x, "y": y}, ["sums"])
                matrix = y.astype(np.int64) - int(zeros["zb"])
                want = (x.astype(np.int64) - int(zeros["za"])) @ (matrix.swapaxes(-1, -2) if turned else matrix)
                np.testing.assert_array_equal(got, want, f"{path} {options} {sizes}")
    for number, (c, m, groups) in enumerate([(3, 5, 1), (8, 12, 2), (6, 66, 3)]):
        w = draw("i1", m, c // groups, 3, 3)
        path = run.folder / f"few{number}.onnx"
        save(path, [node("ConvInteger", ["x", "w"], ["sums"], pads=[1] * 4, group=groups)], [("x", "u1", [2, c, 7, 6])],
             [("sums", "i4", [2, m, 7, 6])], {"w": w})
        for options in TARGETS[number % len(TARGETS):][:1]:
            x = draw("u1", 2, c, 7, 6)
            [got] = run.outputs(run.library(path, 1, options), {"x": x}, ["sums"])
            rows = patches(x.astype(np.int64), (3, 3), (1, 1), [1] * 4, (1, 1), 0)
            split = rows.reshape(*rows.shape[:3], groups, c // groups, 3, 3)
            want = np.einsum("nyxgcij,gmcij->ngmyx", split, w.astype(np.int64).reshape(groups, m // groups, c // groups, 3, 3))
            np.testing.assert_array_equal(got, want.reshape(got.shape), f"{path} {options}")


def constant_zeros(run, rng):
    """Cast, Sub, Mul: what is subtracted from a weight of bytes is any number, a zero point of theirs or not."""
    node, rows = helper.make_node, rng.standard_normal((5, 512)).astype(np.float32)
    for number, (kind, zero) in enumerate([("i1", 3), ("u1", 128), ("i1", 128), ("i1", 0.5), ("i1", 300), ("u1", -3)]):
        w = rng.integers(0, 256, (512, 64)).astype(np.uint8).view(kind)
        nodes = [node("Cast", ["w"], ["f"], to=TensorProto.FLOAT), node("Sub", ["f", "z"], ["d"]), node("Mul", ["d", "s"], ["v"]),
                 node("MatMul", ["x", "v"], ["y"])]
        path = run.folder / f"zero{number}.onnx"
        save(path, nodes, [("x", "f4", ["m", 512])], [("y", "f4", ["m", 64])], {"w": w, "z": np.float32(zero), "s": np.float32(0.25)})
        library = run.folder / f"zero{number}.so"
        subprocess.run([f"{run.bin}/attnc", path, "-o", library], check=True)
        [y] = run.outputs(library, {"x": rows}, ["y"])
        matrix = (w.astype(np.float64) - zero) / 4
        bound = 1e-5 * (np.abs(rows).astype(np.float64) @ np.abs(matrix))
        assert (np.abs(y - rows.astype(np.float64) @ matrix) <= bound).all(), f"{kind} less {zero}"


def main(bin, folder):
    run, rng = Run(bin, folder), np.random.default_rng(5)
    integer_products(run, rng)
    dynamic(run, rng)
    dequantised(run, rng)
    convolutions(run, rng)
    two_computed(run, rng)
    constant_zeros(run, rng)
    print("quantised products agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
