#!/usr/bin/env python3
"""Cast, QuantizeLinear and DequantizeLinear of float4e2m1, float8e8m0, int2 and uint2 against ml_dtypes and onnx: narrow_types.py FOLDER"""
import itertools
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TYPES = {"float4_e2m1fn": TensorProto.FLOAT4E2M1, "float8_e8m0fnu": TensorProto.FLOAT8E8M0, "int2": TensorProto.INT2,
         "uint2": TensorProto.UINT2}
CODES = {"float4_e2m1fn": 16, "float8_e8m0fnu": 256, "int2": 4, "uint2": 4}


def compile_and_run(folder, nodes, inputs, output, initializers=(), feeds=None):
    """`inputs`, `output`: (name, type, shape). The output, as it lies in its file; None where the model is refused."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value(*i) for i in inputs], [value(*output)], list(initializers))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11), f"{folder}/m.onnx")
    if subprocess.run(["attnc", f"{folder}/m.onnx", "-o", f"{folder}/m.so"], capture_output=True).returncode:
        return None
    args = ["attn-run", f"{folder}/m.so", f"--output={output[0]}=@{folder}/out.npy"]
    for name, array in (feeds or {}).items():
        np.save(f"{folder}/{name}.npy", array)
        args.append(f"--input={name}=@{folder}/{name}.npy")
    subprocess.run(args, check=True)
    return np.load(f"{folder}/out.npy")


def same(got, want):
    np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(want).astype(np.float32))


def numbers(dtype):
    """Every code, what lies half-way between two, and what lies beyond them."""
    if dtype.name.startswith("float8"):
        powers = np.ldexp(np.float32(1), np.arange(-149, 128)).astype(np.float32)
        return np.concatenate([powers, 1.25 * powers[30:-1], 1.5 * powers[30:-1], -powers, [0, np.inf, np.nan, 3.4e38]])
    if dtype.name.startswith("float4"):
        return np.concatenate([np.arange(-8, 8, 0.125), [1e30, -1e30, np.inf, -np.inf, -0.0]])
    return np.arange(-9.0, 9.0)


def widened(name):
    return helper.make_node("Cast", [name], ["y"], to=TensorProto.FLOAT)


def check_all_codes(folder, name):
    dtype, proto, count = np.dtype(name), TYPES[name], CODES[name]
    lengths = (1, 3, count) if name.startswith("float") else (1, 2, 3, 5, 9)
    cast = [widened("x")]
    for length in lengths:
        codes = np.arange(length) % count
        values = (codes - count // 2 * (name == "int2")).astype(dtype) if "int" in name else codes.astype(np.uint8).view(dtype)
        out = ("y", TensorProto.FLOAT, [length])
        stored = numpy_helper.from_array(values, "x")
        same(compile_and_run(folder, cast, [], out, [stored]), values)
        typed = onnx.TensorProto(name="x", data_type=proto, dims=[length], int32_data=stored.raw_data)
        same(compile_and_run(folder, cast, [], out, [typed]), values)
    x = numbers(dtype).astype(np.float32)
    made = compile_and_run(folder, [helper.make_node("Cast", ["x"], ["t"], to=proto), widened("t")],
                           [("x", TensorProto.FLOAT, ["n"])], ("y", TensorProto.FLOAT, ["n"]), feeds={"x": x})
    if name.startswith("float8"):
        want = numpy_helper.to_float8e8m0(x).view(dtype)
    else: # integers keep their low bits
        want = x.astype(dtype) if "float" in name else np.asarray(x.astype(np.int8)).astype(dtype)
    same(made, want)
    return lengths


def check_blocks(folder, name):
    dtype = np.dtype(name)
    rng = np.random.default_rng(5)
    low = -2 if name == "int2" else 0
    codes = rng.integers(low, low + 4, (6, 8)).astype(dtype)
    zeros = rng.integers(low, low + 4, (6, 2)).astype(dtype)
    scales = rng.random((6, 2)).astype(np.float32) + np.float32(0.5)
    spread = lambda t: np.repeat(np.asarray(t).astype(np.float32), 4, 1)  # noqa: E731
    want = (codes.astype(np.float32) - spread(zeros)) * spread(scales)
    node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], axis=1, block_size=4)
    arrays = {"x": codes, "s": scales, "z": zeros}
    out = ("y", TensorProto.FLOAT, [6, 8])
    same(compile_and_run(folder, [node], [], out, [numpy_helper.from_array(v, k) for k, v in arrays.items()]), want)
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["t"], axis=1, block_size=4)
    x = (rng.standard_normal((6, 8)) * 3).astype(np.float32)
    got = compile_and_run(folder, [node, widened("t")], [("x", TensorProto.FLOAT, [6, 8])], ("y", TensorProto.FLOAT, [6, 8]),
                          [numpy_helper.from_array(v, k) for k, v in arrays.items() if k != "x"], {"x": x})
    same(got, np.clip(np.rint(x / spread(scales)) + spread(zeros), low, low + 3))


def check_stored(folder):
    """Matrices of float8e4m3fn that are weights: a scale for each row, column or block, or one for all, and rows of one."""
    rng = np.random.default_rng(6)
    codes = np.arange(64 * 32).astype(np.uint8).view(ml_dtypes.float8_e4m3fn).reshape(64, 32) # NaN and -0 among them
    draw = lambda *shape: rng.random(shape).astype(np.float32) + np.float32(0.5)  # noqa: E731
    row, column, block = draw(64), draw(32), draw(16, 32)
    ids = np.array([63, 0, 7], np.int64)
    for scales, spread, given in ((row, row[:, None], {"axis": 0}), (column, column, {"axis": 1}), (draw(1)[0], None, {}),
                                  (block, np.repeat(block, 4, 0), {"axis": 0, "block_size": 4})):
        want = codes.astype(np.float32) * (scales if spread is None else spread)
        arrays = {"x": codes, "s": np.asarray(scales), "z": np.zeros_like(scales, ml_dtypes.float8_e4m3fn)}
        stored = [numpy_helper.from_array(v, k) for k, v in arrays.items()]
        node = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], **given)
        same(compile_and_run(folder, [node], [], ("y", TensorProto.FLOAT, [64, 32]), stored), want)
        nodes = [helper.make_node("DequantizeLinear", ["x", "s"], ["v"], **given), helper.make_node("Gather", ["v", "i"], ["y"])]
        got = compile_and_run(folder, nodes, [("i", TensorProto.INT64, [3])], ("y", TensorProto.FLOAT, [3, 32]), stored[:2], {"i": ids})
        same(got, want[ids])


def check_rounding(folder):
    x = numbers(np.dtype("float8_e8m0fnu")).astype(np.float32)
    for mode, saturate in itertools.product(("up", "down", "nearest"), (0, 1)):
        node = helper.make_node("Cast", ["x"], ["t"], to=TensorProto.FLOAT8E8M0, round_mode=mode, saturate=saturate)
        got = compile_and_run(folder, [node, widened("t")], [("x", TensorProto.FLOAT, ["n"])], ("y", TensorProto.FLOAT, ["n"]), feeds={"x": x})
        same(got, numpy_helper.to_float8e8m0(x, bool(saturate), mode))
    node = helper.make_node("Cast", ["x"], ["t"], to=TensorProto.FLOAT8E8M0, round_mode="sideways")
    assert compile_and_run(folder, [node, widened("t")], [("x", TensorProto.FLOAT, ["n"])], ("y", TensorProto.FLOAT, ["n"])) is None


def main(folder):
    assert ml_dtypes.int2 # its import gives NumPy the names
    for name in TYPES:
        lengths = check_all_codes(folder, name)
        if "int" in name:
            check_blocks(folder, name)
        print(f"{name}: all codes, {len(lengths)} lengths" + (", 2 kinds of blocks" if "int" in name else ""))
    check_stored(folder)
    print("float8_e4m3fn: 4 kinds of scales")
    check_rounding(folder)
    print("round_mode and saturate as in onnx")
    short = onnx.TensorProto(name="x", data_type=TensorProto.INT2, dims=[9], raw_data=b"\1\2")
    assert compile_and_run(folder, [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], [], ("y", TensorProto.FLOAT, [9]),
                           [short]) is None
    print("too few bytes are refused")


if __name__ == "__main__":
    main(*sys.argv[1:])
