#!/usr/bin/env python3
"""Codes and what is read from them beside f32 arithmetic, bit for bit: codes.py BIN FOLDER

Inputs are the halves between two codes with their neighbours, the ends of f32, NaN, infinities and both zeros.
"""
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

SPECIAL = np.array([0, -0.0, np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45, -1e-45, 1e-38, -1e-38, 0.3, -0.3], np.float32)


def save(path, cases):
    """Codes of x; what those of -x say, which are no result; and the codes of that, by the same scale."""
    nodes, constants, outputs = [], [], []
    for n, (scale, zero) in enumerate(cases):
        constants += [numpy_helper.from_array(scale, f"scale{n}"), numpy_helper.from_array(zero, f"zero{n}")]
        how = [f"scale{n}", f"zero{n}"]
        nodes += [helper.make_node("QuantizeLinear", [f"x{n}", *how], [f"code{n}"]),
                  helper.make_node("Neg", [f"x{n}"], [f"less{n}"]),
                  helper.make_node("QuantizeLinear", [f"less{n}", *how], [f"inner{n}"]),
                  helper.make_node("DequantizeLinear", [f"inner{n}", *how], [f"read{n}"]),
                  helper.make_node("QuantizeLinear", [f"read{n}", *how], [f"again{n}"])]
        kind = helper.np_dtype_to_tensor_dtype(zero.dtype)
        outputs += [helper.make_tensor_value_info(f"code{n}", kind, ["n"]),
                    helper.make_tensor_value_info(f"read{n}", onnx.TensorProto.FLOAT, ["n"]),
                    helper.make_tensor_value_info(f"again{n}", kind, ["n"])]
    inputs = [helper.make_tensor_value_info(f"x{n}", onnx.TensorProto.FLOAT, ["n"]) for n in range(len(cases))]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def near_halves(scale, zero):
    limits = np.iinfo(zero.dtype)
    halves = np.arange(int(limits.min) - int(zero) - 1, int(limits.max) - int(zero) + 1)
    x = ((halves + 0.5) * np.float64(scale)).astype(np.float32)
    below, above, all_of = x, x, [x]
    for _ in range(5):
        below, above = np.nextafter(below, np.float32(-np.inf)), np.nextafter(above, np.float32(np.inf))
        all_of += [below, above]
    return np.concatenate([*all_of, SPECIAL])


def codes_of(x, scale, zero):
    limits = np.iinfo(zero.dtype)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        steps = np.rint(x / scale) + np.float32(zero)
    return np.where(np.isnan(steps), limits.min, np.clip(steps, limits.min, limits.max)).astype(zero.dtype)


def main(bin, folder):
    folder, rng = pathlib.Path(folder), np.random.default_rng(17)
    scales = [*np.exp(rng.uniform(-9, 5, 24)), 1 / 255, 0.1, 1.0, 0.5, 3.0, 1e-20, 1e20, 1e-26, 1e-40, 1e30]
    cases = [(np.float32(scale), np.array(rng.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1) if n % 3 else 0, kind))
             for n, scale in enumerate(scales) for kind in (np.uint8, np.int8)]
    save(folder / "model.onnx", cases)
    inputs = [near_halves(*case) for case in cases]
    for options in [[], ["--mcpu=x86-64-v3"], ["-O0"]]:
        command = [f"{bin}/attn-run", folder / "model.onnx", *options]
        for n, x in enumerate(inputs):
            np.save(folder / f"x{n}.npy", x)
            command += [f"--input=x{n}=@{folder}/x{n}.npy",
                        *(f"--output={name}{n}=@{folder}/{name}{n}.npy" for name in ("code", "read", "again"))]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for n, (scale, zero) in enumerate(cases):
            code = codes_of(inputs[n], scale, zero)
            with np.errstate(over="ignore", under="ignore"):
                read = (codes_of(-inputs[n], scale, zero).astype(np.float32) - np.float32(zero)) * scale
            for name, want in {"code": code, "read": read, "again": codes_of(read, scale, zero)}.items():
                got = np.load(folder / f"{name}{n}.npy")
                differs = np.flatnonzero(got.view(f"u{got.itemsize}") != want.view(f"u{want.itemsize}"))
                if len(differs):
                    at = differs[0]
                    sys.exit(f"{options} {name} of {inputs[n][at]!r}, scale {scale!r}, zero point {zero}: "
                             f"{got[at]!r}, not {want[at]!r} ({len(differs)} in all)")
    print(f"{len(cases)} scales agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
