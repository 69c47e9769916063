#!/usr/bin/env python3
"""Multi-head additive attentions against float64: head_vectors.py ATTN_RUN FOLDER"""
import json
import subprocess
import sys

import numpy as np
import onnx
from onnx import parser

N, M, H, D = 21, 37, 3, 10
VECTORS = (np.arange(H * D) * 7 % 11 - 5).astype(np.float32).reshape(H, D) / 8
ROWS = (np.arange(N * D) * 5 % 13 - 6).astype(np.float32).reshape(N, 1, D) / 8
HEADS = """
  i = Unsqueeze(q, first)
  j = Unsqueeze(k, zeroth)
  x = Add(i, j)"""
SUM = "  z = Mul(t, a)\n  s = ReduceSum<keepdims = 0>(z, last)\n"
MASKED = "  z = Mul(t, a)\n  r = ReduceSum<keepdims = 0>(z, last)\n  s = Add(r, mask)\n"


def leaky(x):
    return np.where(x < 0, 0.2 * x, x)


def scores(q, k, f, vectors):
    return (f(q[:, None] + k[None]) * vectors).sum(-1)


# name, kind, what makes the scores, vectors, activation, rows of q
CASES = [
    ("tanh", "additive", HEADS + "\n  t = Tanh(x)\n" + SUM, VECTORS, np.tanh, N),
    ("leaky_masked", "additive", HEADS + "\n  t = LeakyRelu<alpha = 0.2>(x)\n" + MASKED, VECTORS, leaky, N),
    ("product", "additive", HEADS + """
  t = Tanh(x)
  r = Unsqueeze(a, last)
  u = Unsqueeze(t, third)
  z = MatMul(u, r)
  s = Squeeze(z, ends)
""", VECTORS, np.tanh, N),
    ("one_query", "additive", HEADS + "\n  t = Tanh(x)\n" + SUM, VECTORS, np.tanh, 1),
    # Near miss: what differs from query to query is no vector of a head.
    ("of_a_query", None, HEADS + "\n  t = Tanh(x)\n" + SUM, ROWS[:, None], np.tanh, N),
]


def main(tool, folder):
    rng = np.random.default_rng(5)
    for name, kind, body, vectors, f, rows in CASES:
        given = {"q": rng.standard_normal((rows, H, D)), "k": rng.standard_normal((M, H, D))}
        masked = "mask" in body
        if masked:
            given["mask"] = np.where(rng.random((rows, M, 1)) < 0.4, -np.inf, 0)
            given["mask"][:, 0] = 0
        given = {n: value.astype(np.float32) for n, value in given.items()}
        for n, value in given.items():
            np.save(f"{folder}/{n}.npy", value)
        # Open sizes, where the vectors do not fix them.
        n = "N" if name != "of_a_query" else str(N)
        declared = f"float[{n},{H},{D}] q, float[M,{H},{D}] k" + (f", float[{n},M,1] mask" if masked else "")
        flat = ", ".join(map(str, vectors.flatten()))
        model = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17]>
g ({declared}) => (float[{n},{H},{D}] y)
<float{str(list(vectors.shape)).replace(' ', '')} a = {{{flat}}}, int64[1] zeroth = {{0}}, int64[1] first = {{1}},
 int64[1] third = {{3}}, int64[1] last = {{-1}}, int64[2] ends = {{3, 4}}> {{
{body}
  w = Softmax<axis = 1>(s)
  y = Einsum<equation = "ijh,jhd->ihd">(w, k)
}}""")
        onnx.checker.check_model(model)
        path, report, result = f"{folder}/{name}.onnx", f"{folder}/{name}.json", f"{folder}/y.npy"
        onnx.save(model, path)
        subprocess.run([tool, path, f"--fusion-report={report}", f"--output=y=@{result}",
                        *(f"--input={n}=@{folder}/{n}.npy" for n in given)], check=True, stdout=subprocess.DEVNULL)
        (verdict,) = json.load(open(report))
        assert verdict["fused"] and (verdict["kind"] == "additive") == (kind == "additive"), (name, verdict)
        q, k = (given[n].astype(np.float64) for n in "qk")
        s = scores(q, k, f, vectors) + (given["mask"] if masked else 0)
        e = np.exp(s - s.max(1, keepdims=True))
        want = np.einsum("ijh,jhd->ihd", e / e.sum(1, keepdims=True), k)
        np.testing.assert_allclose(np.load(result), want, rtol=1e-4, atol=1e-5, err_msg=name)
    print(len(CASES), "graphs agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
