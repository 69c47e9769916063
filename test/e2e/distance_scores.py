#!/usr/bin/env python3
"""Attentions whose scores are distances of query and key: distance_scores.py ATTN_RUN FOLDER

Each is a graph with a reference in float64 and the kind of score that the report must name.
"""
import json
import subprocess
import sys

import numpy as np
import onnx
from onnx import parser

B, N, M, D, E = 2, 21, 37, 24, 8
VECTOR = (np.arange(D) * 7 % 11 - 5).astype(np.float32)[:, None] / 10
DIFFERENCE = """
  q4 = Unsqueeze(q, two)
  k4 = Unsqueeze(k, one)
  d = Sub({0})
"""
FORWARD, BACKWARD = DIFFERENCE.format("q4, k4"), DIFFERENCE.format("k4, q4")


def softmax(s):
    e = np.exp(s - np.max(s, -1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def differences(q, k):
    return q[:, :, None] - k[:, None]


def squares(q, k):
    return (differences(q, k) ** 2).sum(-1)


def norms(x):
    return np.sqrt((x * x).sum(-1))


def cosine(q, k):
    return q @ k.swapaxes(1, 2) / np.maximum(norms(q)[:, :, None] * norms(k)[:, None], 1e-6)


# name, kind, text that makes s, scores
CASES = [
    ("squares", "distance", FORWARD + "  x = Mul(d, d)\n  t = ReduceSum<keepdims = 0>(x, last)\n  s = Mul(t, gamma)",
     lambda q, k, w: -0.07 * squares(q, k)),
    ("powers", "distance", BACKWARD + "  x = Pow(d, twice)\n  t = ReduceSum<keepdims = 0>(x, last)\n  s = Mul(t, gamma)",
     lambda q, k, w: -0.07 * squares(q, k)),
    ("sums_of_squares", "distance", FORWARD + "  t = ReduceSumSquare<axes = [-1], keepdims = 0>(d)\n  s = Mul(t, gamma)",
     lambda q, k, w: -0.07 * squares(q, k)),
    ("distances", "distance", FORWARD + "  t = ReduceL2<axes = [-1], keepdims = 0>(d)\n  s = Neg(t)",
     lambda q, k, w: -np.sqrt(squares(q, k))),
    ("city_blocks", "additive", BACKWARD + "  x = Abs(d)\n  t = ReduceSum<keepdims = 0>(x, last)\n  s = Mul(t, gamma)",
     lambda q, k, w: -0.07 * np.abs(differences(q, k)).sum(-1)),
    ("parts_of_squares", "dot", """
  qq = ReduceSumSquare<axes = [-1], keepdims = 1>(q)
  kk = ReduceSumSquare<axes = [-1], keepdims = 1>(k)
  kr = Transpose<perm = [0, 2, 1]>(kk)
  kt = Transpose<perm = [0, 2, 1]>(k)
  p = MatMul(q, kt)
  pp = Mul(p, twice)
  both = Add(qq, kr)
  t = Sub(both, pp)
  s = Mul(t, gamma)""", lambda q, k, w: -0.07 * squares(q, k)),
    ("cosines", "dot", """
  kt = Transpose<perm = [0, 2, 1]>(k)
  p = MatMul(q, kt)
  qn = ReduceL2<axes = [-1], keepdims = 1>(q)
  kn = ReduceL2<axes = [-1], keepdims = 1>(k)
  kr = Transpose<perm = [0, 2, 1]>(kn)
  n = MatMul(qn, kr)
  least = Constant<value = float {1e-6}>()
  m = Max(n, least)
  s = Div(p, m)""", lambda q, k, w: cosine(q, k)),
    ("broadcast_cosines", "dot", """
  q4 = Unsqueeze(q, two)
  k4 = Unsqueeze(k, one)
  x = Mul(q4, k4)
  p = ReduceSum<keepdims = 0>(x, last)
  qn = ReduceL2<axes = [-1], keepdims = 0>(q4)
  kn = ReduceL2<axes = [-1], keepdims = 0>(k4)
  n = Mul(qn, kn)
  least = Constant<value = float {1e-6}>()
  m = Max(n, least)
  s = Div(p, m)""", lambda q, k, w: cosine(q, k)),
    # w [q; k; q k], the score of a pair in reading comprehension, has a product of three in it.
    ("three", "dot", f"""
  u = Constant<value = float[{D},1] {{{", ".join(map(str, VECTOR[:, 0]))}}}>()
  qu = MatMul(q, u)
  ku = MatMul(k, u)
  kr = Transpose<perm = [0, 2, 1]>(ku)
  both = Add(qu, kr)
  q4 = Unsqueeze(q, two)
  k4 = Unsqueeze(k, one)
  x = Mul(q4, k4)
  xu = MatMul(x, u)
  p = Squeeze(xu, last)
  s = Add(p, both)""", lambda q, k, w: q @ (k * VECTOR[:, 0]).swapaxes(1, 2) + q @ VECTOR + (k @ VECTOR).swapaxes(1, 2)),
    # Near misses: what is summed depends on the pair in another way, or is no sum.
    ("weighted", "given", FORWARD + "  x = Mul(d, d)\n  z = Mul(x, w)\n  t = ReduceSum<keepdims = 0>(z, last)\n  s = Neg(t)",
     lambda q, k, w: -(differences(q, k) ** 2 * w).sum(-1)),
    ("largest", "given", FORWARD + "  x = Abs(d)\n  t = ReduceMax<axes = [-1], keepdims = 0>(x)\n  s = Neg(t)",
     lambda q, k, w: -np.abs(differences(q, k)).max(-1)),
]


def main(tool, folder):
    rng = np.random.default_rng(11)
    given = {name: rng.standard_normal(shape).astype(np.float32)
             for name, shape in (("q", (B, N, D)), ("k", (B, M, D)), ("v", (B, M, E)), ("w", (N, M, 1)))}
    given["k"][:, :5] = given["q"][:, :5] + 100  # far from 0 and from most, where products of sums would cancel
    given["q"][:, :3] += 100
    for name, value in given.items():
        np.save(f"{folder}/{name}.npy", value)
    q, k, v, w = (given[n].astype(np.float64) for n in "qkvw")
    for name, kind, body, scores in CASES:
        inputs = [n for n in "qkvw" if n != "w" or name == "weighted"]
        declared = ", ".join(f"float{str(list(given[n].shape)).replace(' ', '')} {n}" for n in inputs)
        model = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17]>
g ({declared}) => (float[{B},{N},{E}] y) {{
  one = Constant<value = int64[1] {{1}}>()
  two = Constant<value = int64[1] {{2}}>()
  last = Constant<value = int64[1] {{-1}}>()
  gamma = Constant<value = float {{-0.07}}>()
  twice = Constant<value = float {{2}}>()
{body}
  a = Softmax<axis = -1>(s)
  y = MatMul(a, v)
}}""")
        onnx.checker.check_model(model)
        path, report, result = f"{folder}/{name}.onnx", f"{folder}/{name}.json", f"{folder}/y.npy"
        onnx.save(model, path)
        subprocess.run([tool, path, f"--fusion-report={report}", f"--output=y=@{result}",
                        *(f"--input={n}=@{folder}/{n}.npy" for n in inputs)], check=True, stdout=subprocess.DEVNULL)
        verdicts = json.load(open(report))
        assert [(v["fused"], v["kind"]) for v in verdicts] == [(True, kind)], (name, verdicts)
        subprocess.run(["attnc", path, "--emit=linalg", "-o", f"{folder}/{name}.mlir"], check=True)
        stored = f"{N}x{M}" in open(f"{folder}/{name}.mlir").read()
        assert stored == (kind == "given"), (name, "scores stored" if stored else "no scores stored")
        want = softmax(scores(q, k, w)) @ v
        # Products of vectors that are far from 0 lose what their difference keeps.
        tolerance = 0.2 if name == "parts_of_squares" else 1e-4
        np.testing.assert_allclose(np.load(result), want, rtol=1e-3, atol=tolerance, err_msg=name)
    print(len(CASES), "graphs agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
