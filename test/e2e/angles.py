#!/usr/bin/env python3
"""Sines, cosines and tangents of f32 and f16 beside NumPy's of longer floats: angles.py ATTNC ATTN-RUN FOLDER [OPTION...]

Angles of positions (rotary embeddings) are as large as these, and what is behind the point counts. Sizes on both sides
of a vector; one angle above 2^20 among small ones sends a vector another way. 2 units in the last place, of tangents 4.
"""
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

FUNCTIONS = {"Sin": (np.sin, 2), "Cos": (np.cos, 2), "Tan": (np.tan, 4)}
SCALES = {np.float32: (1, 300, 8192, 131072, 2.0**20, 1.5e6, 1e9, 1e20, 3e38), np.float16: (1, 300, 65000)}
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, np.pi / 2, 2.0**20, -(2.0**20))


def model(element):
    value = lambda name, shape: helper.make_tensor_value_info(name, element, shape)
    nodes = [helper.make_node(op, ["x"], [op]) for op in FUNCTIONS]
    graph = helper.make_graph(nodes, "angles", [value("x", ["n"])], [value(op, None) for op in FUNCTIONS])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def main(attnc, attn_run, folder, *options):
    folder, rng, compared, problems = pathlib.Path(folder), np.random.default_rng(1), 0, 0
    for dtype, scales in SCALES.items():
        onnx.save(model(helper.np_dtype_to_tensor_dtype(np.dtype(dtype))), folder / "m.onnx")
        subprocess.run([attnc, folder / "m.onnx", "-o", folder / "m.so", *options], check=True)
        cases = [rng.uniform(-scale, scale, n) for scale in scales for n in (1, 7, 8, 17, 300)]
        cases += [np.array(SPECIAL), np.r_[np.linspace(-9, 9, 31), 1e9]]
        for case in cases:
            x = case.astype(dtype)
            np.save(folder / "x.npy", x)
            files = {op: folder / f"{op}.npy" for op in FUNCTIONS}
            subprocess.run([attn_run, folder / "m.so", f"--input=x=@{folder / 'x.npy'}",
                            *(f"--output={op}=@{path}" for op, path in files.items())], check=True, stdout=subprocess.DEVNULL)
            for op, (function, most) in FUNCTIONS.items():
                with np.errstate(all="ignore"):
                    want, got = function(x.astype(np.longdouble)), np.load(files[op])
                    ulps = np.abs(got - want) / np.spacing(np.abs(want).astype(dtype))
                # A zero keeps its sign.
                right = np.where(np.isnan(want), np.isnan(got), (ulps <= most) & ((want != 0) | (np.signbit(got) == np.signbit(want))))
                compared += right.size
                for n in np.flatnonzero(~right)[:3]:
                    problems += 1
                    print(f"{op}({x[n]!r}) is {got[n]!r}, not {want[n]!r}")
    print(f"{compared} results, {problems} wrong")
    return problems != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
