#!/usr/bin/env python3
"""Sizes that a run computes and refuses, of parts of a tensor whose other parts are computed before, and sizes that would be
negative in a branch that a run does not take, or in a loop: late_sizes.py FOLDER"""
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


# The convolution needs more rows than many runs have. What it would copy in patches is larger than all else.
BRANCHES = """<ir_version: 8, opset_import: ["" : 18]>
g (float[b,4,n,m] x, bool c) => (float y) {
  last = Constant<value = int64 {-1}>()
  before = CumSum(x, last)
  z = If(c) <
    then_branch = t () => (float p) {
      shape = Constant<value = int64[4] {4,4,8,8}>() w = ConstantOfShape<value = float[1] {0.01}>(shape)
      k = Conv(x, w) e = Sigmoid(k) f = Softmax(e) p = ReduceSum<keepdims = 0>(f) },
    else_branch = u () => (float q) {
      r = Softmax(x) s = Transpose<perm = [0,1,3,2]>(r) h = MatMul(s, r) i = MatMul(r, h) j = Softmax<axis = -2>(i)
      q = ReduceSum<keepdims = 0>(j) }
  >
  sum = ReduceSum<keepdims = 0>(before)
  y = Add(z, sum)
}"""


def check_branches(folder):
    onnx.save(parser.parse_model(BRANCHES), f"{folder}/b.onnx")
    subprocess.run(["attnc", f"{folder}/b.onnx", "-o", f"{folder}/b.so"], check=True)
    for n, m in ((1, 9), (7, 100), (5, 300), (9, 9)):
        np.save(f"{folder}/x.npy", np.ones((2, 4, n, m), np.float32))
        for taken in (0, 1):
            done = subprocess.run(["attn-run", f"{folder}/b.so", f"--input=x=@{folder}/x.npy", f"--input=c=bool={taken}",
                                   f"--output=y=@{folder}/y.npy"], capture_output=True, text=True)
            if taken and n < 8:
                assert done.returncode == 3 and "the input is too short" in done.stderr, (n, m, done)
                continue
            # Each softmax adds up to 1, over a row or a column.
            ones = 2 * 4 * (n - 7) if taken else 2 * 4 * m
            assert done.returncode == 0, (n, m, taken, done)
            np.testing.assert_allclose(np.load(f"{folder}/y.npy"), ones + 2 * 4 * n * m * (m + 1) / 2, rtol=1e-5)


LOOP = """<ir_version: 8, opset_import: ["" : 18]>
g (float[1,2,n] x, int64 trips) => (float[t,1,2,m] y) {
  none = Constant<value = bool {1}>()
  y = Loop(trips, none) <body = b (int64 i, bool go) => (bool on, float[1,2,m] k) {
    shape = Constant<value = int64[3] {2,2,8}>() w = ConstantOfShape<value = float[1] {0.5}>(shape)
    on = Identity(go) k = Conv(x, w) }>
}"""


def check_loop(folder):
    onnx.save(parser.parse_model(LOOP), f"{folder}/l.onnx")
    subprocess.run(["attnc", f"{folder}/l.onnx", "-o", f"{folder}/l.so"], check=True)
    for n, trips in ((3, 0), (3, -1), (3, 2), (8, 0), (8, 1), (11, 3)):
        np.save(f"{folder}/x.npy", np.ones((1, 2, n), np.float32))
        done = subprocess.run(["attn-run", f"{folder}/l.so", f"--input=x=@{folder}/x.npy", f"--input=trips=i64={trips}",
                               f"--output=y=@{folder}/y.npy"], capture_output=True, text=True)
        if n < 8 and trips > 0:
            assert done.returncode == 3 and "gathers values that have a dimension of size -4" in done.stderr, (n, trips, done)
            continue
        np.testing.assert_allclose(np.load(f"{folder}/y.npy"), np.full((max(trips, 0), 1, 2, max(n - 7, 0)), 8.0), rtol=1e-6)


def main(folder):
    check_branches(folder)
    check_loop(folder)
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
