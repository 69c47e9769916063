#!/usr/bin/env python3
"""Sizes that a run computes and refuses, of parts of a tensor whose other parts are computed before: late_sizes.py FOLDER"""
import subprocess
import sys

import numpy as np
import onnx
from onnx import parser

MODEL = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n] x, int64[1] i) => (float[m] y) {
  read = Gather(x, i)
  seven = Constant<value = int64[1] {7}>()
  size = Sub(seven, i)
  many = ConstantOfShape<value = float[1] {0.5}>(size)
  both = Concat<axis = 0>(many, read)
  y = Cos(both)
}"""


def main(folder):
    onnx.save(parser.parse_model(MODEL), f"{folder}/m.onnx")
    x = np.arange(40, dtype=np.float32)
    np.save(f"{folder}/x.npy", x)
    for flags in ([], ["-O0"]):
        subprocess.run(["attnc", f"{folder}/m.onnx", "-o", f"{folder}/m.so", *flags], check=True)
        for i in (0, 3, 7, 8, 9, 30, 2**62):
            done = subprocess.run(["attn-run", f"{folder}/m.so", f"--input=x=@{folder}/x.npy", f"--input=i=1xi64={i}",
                                   f"--output=y=@{folder}/y.npy"], capture_output=True, text=True)
            if i > 7:
                assert done.returncode == 3 and "'many' (ConstantOfShape): a dimension has size -" in done.stderr, (i, done)
                continue
            want = np.cos(np.append(np.full(7 - i, 0.5), x[i]))
            np.testing.assert_allclose(np.load(f"{folder}/y.npy"), want, rtol=1e-5, atol=1e-6)
    print("sizes are looked at first")


if __name__ == "__main__":
    main(*sys.argv[1:])
