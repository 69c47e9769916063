#!/usr/bin/env python3
"""Graph attention as PyTorch Geometric writes it, a softmax over the edges of each node by scatters, in which an edge
that repeats counts again: segment_softmax.py FOLDER

The report names it with a reason; the result is that of NumPy in float64.
"""
import json
import subprocess
import sys

import numpy as np
import onnx
from onnx import parser

SEGMENTS = """<ir_version: 9, opset_import: ["" : 18]>
g (float[n,1] q, float[n,1] k, float[n,8] v, int64[2,e] edges) => (float[n,8] y) {
  first = Constant<value = int64 {0}>()
  second = Constant<value = int64 {1}>()
  last = Constant<value = int64[1] {-1}>()
  width = Constant<value = int64[1] {8}>()
  rows = Gather(edges, first)
  columns = Gather(edges, second)
  qi = Gather(q, rows)
  kj = Gather(k, columns)
  vj = Gather(v, columns)
  sum = Add(qi, kj)
  s = LeakyRelu<alpha = 0.2>(sum)
  shape = Shape(q)
  shape8 = Shape(v)
  index = Unsqueeze(rows, last)
  lows = ConstantOfShape<value = float[1] {-3e38}>(shape)
  maxima = ScatterElements<axis = 0, reduction = "max">(lows, index, s)
  m = Gather(maxima, rows)
  c = Sub(s, m)
  x = Exp(c)
  zeros = ConstantOfShape<value = float[1] {0}>(shape)
  sums = ScatterElements<axis = 0, reduction = "add">(zeros, index, x)
  z = Gather(sums, rows)
  tiny = Constant<value = float {1e-16}>()
  total = Add(z, tiny)
  a = Div(x, total)
  w = Mul(a, vj)
  count = Shape<start = 1, end = 2>(edges)
  eight = Concat<axis = 0>(count, width)
  index8 = Expand(index, eight)
  zeros8 = ConstantOfShape<value = float[1] {0}>(shape8)
  y = ScatterElements<axis = 0, reduction = "add">(zeros8, index8, w)
}"""


def main(folder):
    rng = np.random.default_rng(3)
    path, report = f"{folder}/segments.onnx", f"{folder}/segments.json"
    onnx.save(parser.parse_model(SEGMENTS), path)
    subprocess.run(["attnc", path, "-o", f"{folder}/segments.so", f"--fusion-report={report}"], check=True)
    verdicts = json.load(open(report))
    assert len(verdicts) == 1 and not verdicts[0]["fused"], verdicts
    assert verdicts[0]["reason"].startswith("a softmax over the edges of each node"), verdicts
    assert verdicts[0]["node"] == "node 'a' (Div)", verdicts
    n, edges = 5, np.array([[0, 0, 0, 2, 4], [1, 1, 3, 2, 0]])
    given = {"q": rng.standard_normal((n, 1)), "k": rng.standard_normal((n, 1)), "v": rng.standard_normal((n, 8))}
    given = {key: value.astype(np.float32) for key, value in given.items()}
    for name, value in (given | {"edges": edges}).items():
        np.save(f"{folder}/{name}.npy", value)
    subprocess.run(["attn-run", f"{folder}/segments.so", f"--output=y=@{folder}/y.npy",
                    *(f"--input={name}=@{folder}/{name}.npy" for name in ("q", "k", "v", "edges"))],
                   check=True, stdout=subprocess.DEVNULL)
    q, k, v = (given[name].astype(np.float64) for name in "qkv")
    s = q[edges[0], 0] + k[edges[1], 0]
    x = np.exp(np.where(s > 0, s, 0.2 * s))
    want = np.zeros((n, 8))
    np.add.at(want, edges[0], x[:, None] / np.bincount(edges[0], x, n)[edges[0], None] * v[edges[1]])
    np.testing.assert_allclose(np.load(f"{folder}/y.npy"), want, rtol=1e-4, atol=1e-5)
    print("agrees")


if __name__ == "__main__":
    main(*sys.argv[1:])
