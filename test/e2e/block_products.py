#!/usr/bin/env python3
"""Products by matrices in blocks, in every spelling, beside float64: block_products.py BIN FOLDER"""
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

K, N, BLOCK = 160, 200, 32
BLOCKS = K // BLOCK
TARGETS = ([], ["--mcpu=x86-64-v3"], ["--mcpu=x86-64"])


def save(path, nodes, inputs, outputs, constants):
    value = lambda name, kind, shape: helper.make_tensor_value_info(name, kind, shape)  # noqa: E731
    graph = helper.make_graph(nodes, "g", [value(*i) for i in inputs], [value(*o) for o in outputs], constants)
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=domains, ir_version=10), path)


def narrow(name, kind, values):
    """A tensor of int4 or uint4, two elements a byte."""
    flat = values.reshape(-1).astype(np.uint8) & 15
    flat = np.append(flat, np.zeros(len(flat) % 2, np.uint8))
    return helper.make_tensor(name, kind, values.shape, (flat[::2] | flat[1::2] << 4).tobytes(), raw=True)


def half_steps(rows, block):
    """How far each element may be from what it is rounded to, where blocks of a row become 8 bits."""
    k = rows.shape[-1]
    padded = np.pad(np.abs(rows), [(0, 0)] * (rows.ndim - 1) + [(0, -k % block)])
    most = padded.reshape(*rows.shape[:-1], -1, block).max(-1)
    return np.repeat(most, block, -1)[..., :k] / 254


class Run:
    def __init__(self, bin, folder):
        self.bin, self.folder, self.number = bin, pathlib.Path(folder), 0

    def library(self, path, kernels, options):
        """Compiles and counts the calls of kernels of blocks."""
        self.number += 1
        library, dump = self.folder / f"{self.number}.so", self.folder / f"dump{self.number}"
        subprocess.run([f"{self.bin}/attnc", path, "-o", library, f"--dump-ir={dump}", *options], check=True)
        text = "".join(path.read_text() for path in dump.glob("*attn-lower-block-products.mlir"))  # if that changed anything
        calls = len(re.findall(r"attn\.kernel @gemm_q", text))
        assert calls == kernels, f"{path} {options}: {calls} kernels of blocks, expected {kernels}"
        return library

    def check(self, path, kernels, inputs, want, bound, flags=()):
        """The outputs are within `bound` (of each element, or of all) of float64 on every target, for one row and for many."""
        for options in TARGETS:
            library = self.library(path, kernels, [*options, *flags])
            command = [f"{self.bin}/attn-run", library]
            for name, value in inputs.items():
                np.save(self.folder / f"{name}.npy", value)
                command.append(f"--input={name}=@{self.folder / name}.npy")
            command += [f"--output={n}=@{self.folder / n}_out.npy" for n in want]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            for name, value in want.items():
                error = np.abs(np.load(self.folder / f"{name}_out.npy") - value)
                assert error.shape == value.shape, f"{path} {options} {name}: {error.shape}"
                most = bound[name] if isinstance(bound, dict) else bound
                assert (error <= most).all(), f"{path} {options} {name}: off by {error.max()}"


def main(bin, folder):
    run, rng = Run(bin, folder), np.random.default_rng(3)
    codes = rng.integers(0, 16, (N, K)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.1, (N, BLOCKS)).astype(np.float32)
    zeros = rng.integers(0, 16, (N, BLOCKS)).astype(np.uint8)
    each = lambda t: np.repeat(t.astype(np.float64), BLOCK, 1)  # noqa: E731
    plain, shifted = (codes - 8.0) * each(scales), (codes - each(zeros)) * each(scales)
    one, many = rng.standard_normal((1, K)).astype(np.float32), rng.standard_normal((2, 50, K)).astype(np.float32)
    bias = rng.standard_normal(N).astype(np.float32)
    inputs, feeds = [("x", 1, [1, K]), ("xs", 1, [2, "length", K])], {"x": one, "xs": many}
    outputs = [("y", 1, [1, N]), ("z", 1, [2, "length", N])]
    store = lambda name, value: numpy_helper.from_array(value, name)  # noqa: E731

    # MatMulNBits: without zero points and with; a bias and an activation behind it.
    packed = codes.reshape(N, BLOCKS, BLOCK)
    odd = np.pad(zeros, ((0, 0), (0, BLOCKS % 2)))
    constants = [store("w", packed[..., ::2] | packed[..., 1::2] << 4), store("s", scales.reshape(-1)),
                 store("o", (odd[:, ::2] | odd[:, 1::2] << 4).reshape(-1)), store("b", bias)]
    sizes = {"K": K, "N": N, "bits": 4, "block_size": BLOCK}
    nodes = [helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **sizes),
             helper.make_node("MatMulNBits", ["xs", "w", "s", "o"], ["p"], domain="com.microsoft", **sizes),
             helper.make_node("Add", ["p", "b"], ["q"]), helper.make_node("Relu", ["q"], ["z"])]
    nbits = run.folder / "nbits.onnx"
    save(nbits, nodes, inputs, outputs, constants)
    run.check(nbits, 2, feeds, {"y": one @ plain.T, "z": np.maximum(many @ shifted.T + bias, 0)}, 2e-5)

    # Rounded rows are off by half a step at most, whatever the file says; an empty batch is none.
    rounding = {"y": half_steps(one, BLOCK) @ np.abs(plain).T + 2e-5, "z": half_steps(many, BLOCK) @ np.abs(shifted).T + 2e-5}
    int8 = ["--precision=int8"]
    run.check(nbits, 2, feeds, {"y": one @ plain.T, "z": np.maximum(many @ shifted.T + bias, 0)}, rounding, int8)
    none = {"x": one, "xs": many[:, :0]}
    run.check(nbits, 2, none, {"y": one @ plain.T, "z": np.zeros((2, 0, N))}, {"y": rounding["y"], "z": 0}, int8)

    # In f16: rows and scales, as a file has them whose products are to be of that type; results are rounded to it.
    halves = [store("w", packed[..., ::2] | packed[..., 1::2] << 4), store("s", scales.astype(np.float16).reshape(-1)), constants[2]]
    nodes = [helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **sizes),
             helper.make_node("MatMulNBits", ["xs", "w", "s", "o"], ["z"], domain="com.microsoft", **sizes)]
    half_file = run.folder / "halves.onnx"
    half = TensorProto.FLOAT16
    save(half_file, nodes, [("x", half, [1, K]), ("xs", half, [2, "length", K])], [("y", half, [1, N]), ("z", half, [2, "length", N])], halves)
    x16, xs16, s16 = (value.astype(np.float16) for value in (one, many, scales))
    want = {"y": x16.astype(np.float64) @ ((codes - 8.0) * each(s16)).T, "z": xs16.astype(np.float64) @ ((codes - each(zeros)) * each(s16)).T}
    rounded = {name: np.abs(value) * 2.0**-11 + 1e-4 for name, value in want.items()}
    run.check(half_file, 2, {"x": x16, "xs": xs16}, want, rounded)

    # DequantizeLinear of int4 as K x N, and of uint4 as N x K behind a Transpose and in a Gemm.
    constants = [narrow("w", TensorProto.INT4, codes.T.astype(np.int8) - 8), store("s", scales.T.copy()),
                 narrow("v", TensorProto.UINT4, codes), store("t", scales), narrow("o", TensorProto.UINT4, zeros), store("b", bias)]
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["a"], axis=0, block_size=BLOCK), helper.make_node("MatMul", ["xs", "a"], ["z"]),
             helper.make_node("DequantizeLinear", ["v", "t", "o"], ["c"], axis=1, block_size=BLOCK),
             helper.make_node("Gemm", ["x", "c", "b"], ["y"], transB=1)]
    linear = run.folder / "linear.onnx"
    save(linear, nodes, inputs, outputs, constants)
    run.check(linear, 2, feeds, {"y": one @ shifted.T + bias, "z": many @ plain.T}, 2e-5)
    rounding = {"y": half_steps(one, BLOCK) @ np.abs(shifted).T + 2e-5, "z": half_steps(many, BLOCK) @ np.abs(plain).T + 2e-5}
    run.check(linear, 2, feeds, {"y": one @ shifted.T + bias, "z": many @ plain.T}, rounding, int8)

    # One column, whose blocks do not divide K, and zero points that are floats, with which rows stay as they are.
    tail, blocks = 2051, 129
    line = rng.integers(0, 16, tail).astype(np.uint8)
    short = np.pad(line, (0, blocks * 16 - tail)).reshape(1, blocks, 16)
    floats, ones = rng.uniform(6, 9, (1, blocks)).astype(np.float32), np.ones(blocks, np.float32)
    column, shift = line[None] - 8.0, line[None] - np.repeat(floats.astype(np.float64), 16, 1)[:, :tail]
    sizes_16 = {"K": tail, "N": 1, "bits": 4, "block_size": 16}
    constants = [store("w", short[..., ::2] | short[..., 1::2] << 4), store("s", ones), store("f", floats)]
    nodes = [helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **sizes_16),
             helper.make_node("MatMulNBits", ["x", "w", "s", "f"], ["z"], domain="com.microsoft", **sizes_16)]
    narrow_file = run.folder / "column.onnx"
    save(narrow_file, nodes, [("x", 1, ["n", tail])], [("y", 1, ["n", 1]), ("z", 1, ["n", 1])], constants)
    x = rng.standard_normal((9, tail)).astype(np.float32)
    rounding = {"y": half_steps(x, 16) @ np.abs(column).T + 2e-3, "z": 2e-3}
    run.check(narrow_file, 2, {"x": x}, {"y": x @ column.T, "z": x @ shift.T}, rounding, int8)

    # The library holds the codes as they are stored, and an embedding reads them.
    table = rng.integers(-8, 8, (3000, 512)).astype(np.int8)
    factors = rng.uniform(0.01, 0.1, (3000, 16)).astype(np.float32)
    constants = [narrow("w", TensorProto.INT4, table), store("s", factors)]
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["a"], axis=1, block_size=BLOCK), helper.make_node("Gather", ["a", "ids"], ["y"])]
    embedding = run.folder / "embedding.onnx"
    save(embedding, nodes, [("ids", 7, ["n"])], [("y", 1, ["n", 512])], constants)
    ids = np.array([0, 2999, 17], np.int64)
    run.check(embedding, 0, {"ids": ids}, {"y": table[ids] * np.repeat(factors[ids], BLOCK, 1).astype(np.float64)}, 1e-6)
    big = run.folder / "big.onnx"
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["a"], axis=1, block_size=BLOCK),
             helper.make_node("Transpose", ["a"], ["t"], perm=[1, 0]), helper.make_node("MatMul", ["x", "t"], ["y"])]
    save(big, nodes, [("x", 1, ["n", 512])], [("y", 1, ["n", 3000])], constants)
    library = run.library(big, 1, [])
    ratio = library.stat().st_size / big.stat().st_size
    assert ratio <= 1.05, f"the library is {ratio:.2f} times as large as the file"

    # What cannot be is said, and nothing is written.
    for change, message in (({"K": K - BLOCK}, "x has"), ({"N": N + 1}, "bytes of codes"), ({"block_size": 24}, "power of 2"), ({"bits": 3}, "3 bits")):
        broken = run.folder / "broken.onnx"
        nodes = [helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", **{**sizes, **change})]
        constants = [store("w", packed[..., ::2] | packed[..., 1::2] << 4), store("s", scales.reshape(-1))]
        save(broken, nodes, inputs[:1], [("y", 1, None)], constants)
        done = subprocess.run([f"{bin}/attnc", broken, "-o", run.folder / "broken.so"], capture_output=True, text=True)
        assert done.returncode == (2 if "bits" in change else 3), f"{change}: exit {done.returncode}: {done.stderr}"
        assert not (run.folder / "broken.so").exists(), change
        if "K" not in change:
            assert message in done.stderr, done.stderr
    print("block products agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
