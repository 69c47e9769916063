#!/usr/bin/env python3
"""Values that are weighed twice, or by two parts of one softmax, against float64: two_softmaxes.py ATTN_RUN FOLDER"""
import json
import subprocess
import sys

import numpy as np
import onnx
from onnx import numpy_helper, parser

B, N, M, H, W, D = 2, 11, 7, 5, 6, 8


def softmax(s, axis):
    e = np.exp(s - s.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


SCORES = """
  t = Transpose<perm = [0, 2, 1]>(q)
  s = MatMul(c, t)
  x = Softmax<axis = {0}>(s)
  y = Softmax<axis = {1}>(s)
"""


def both_ways(c, q):
    s = np.einsum("bnd,bmd->bnm", c, q)
    return np.einsum("bnm,bjm,bjd->bnd", softmax(s, 2), softmax(s, 1), c)


def other_way(c, q):
    s = np.einsum("bnd,bmd->bnm", c, q)
    return np.einsum("bnm,bjm,bjd->bnd", softmax(s, 1), softmax(s, 2), c)


def gathered(k, v, q):
    return softmax(q, 2) @ (softmax(k, 1).transpose(0, 2, 1) @ v)


def criss_cross(q, k, v):
    column, row = np.einsum("byxd,bkxd->byxk", q, k), np.einsum("byxd,bykd->byxk", q, k)
    column[:, range(H), :, range(H)] = -np.inf
    w = softmax(np.concatenate([column, row], 3), 3)
    return np.einsum("byxk,bkxd->byxd", w[..., :H], v) + np.einsum("byxk,bykd->byxd", w[..., H:], v)


CO = {"c": ["B", "N", D], "q": ["B", "M", D]}
FEATURES = {"k": ["B", "N", D], "v": ["B", "N", D], "q": ["B", "M", D]}
IMAGE = {name: [B, H, W, D] for name in "qkv"}
LINEAR = """
  w = Softmax<axis = 1>(k)
  f = Softmax<axis = 2>(q)
  {gather}
  o = MatMul(f, g)"""

# name, inputs, graph, what it computes, verdicts
CASES = [
    # QANet's context over the query over the context, in the order in which it is written.
    ("both_ways", CO, SCORES.format(2, 1) + """
  u = Transpose<perm = [0, 2, 1]>(y)
  xy = MatMul(x, u)
  o = MatMul(xy, c)""", both_ways, [True, True]),
    ("both_ways_by_einsum", CO, SCORES.format(2, 1) + """
  xy = Einsum<equation = "bnm,bjm->bjn">(x, y)
  o = Einsum<equation = "bjn,bjd->bnd">(xy, c)""", both_ways, [True, True]),
    # Near miss: what weighs the values is normalised over what is summed before; it is that sum's attention.
    ("other_way", CO, SCORES.format(1, 2) + """
  xy = Einsum<equation = "bnm,bjm->bnj">(x, y)
  o = MatMul(xy, c)""", other_way, [False, True]),
    # Linear attention: values are gathered for each feature, and the features are no keys.
    ("gathered", FEATURES, LINEAR.format(gather="""
  t = Transpose<perm = [0, 2, 1]>(w)
  g = MatMul(t, v)"""), gathered, [True, False]),
    ("gathered_by_einsum", FEATURES, LINEAR.format(gather="""
  g = Einsum<equation = "bnd,bne->bde">(w, v)"""), gathered, [True, False]),
    # A term of unit dimensions beside the features.
    ("gathered_with_a_term", {**FEATURES, "m": [1, 1, D]}, """
  p = Add(q, m)""" + LINEAR.format(gather="""
  g = Einsum<equation = "bnd,bne->bde">(w, v)""").replace("(q)", "(p)"),
     lambda k, v, q, m: gathered(k, v, q + m), [True, False]),
    # A pixel's column, without itself, and its row: no part has values for each pixel, and none are made.
    ("criss_cross", IMAGE, """
  r = Einsum<equation = "byxd,bkxd->byxk">(q, k)
  column = Add(r, itself)
  row = Einsum<equation = "byxd,bykd->byxk">(q, k)
  s = Concat<axis = 3>(column, row)
  w = Softmax<axis = 3>(s)
  a, b = Split<axis = 3>(w, sizes)
  y = Einsum<equation = "byxk,bkxd->byxd">(a, v)
  z = Einsum<equation = "byxk,bykd->byxd">(b, v)
  o = Add(y, z)""", criss_cross, [False]),
]


def main(tool, folder):
    rng = np.random.default_rng(3)
    known = {"B": B, "N": N, "M": M}
    for name, inputs, body, compute, fused in CASES:
        given = {n: rng.standard_normal([known.get(size, size) for size in sizes]).astype(np.float32)
                 for n, sizes in inputs.items()}
        declared = ", ".join(f"float[{','.join(map(str, sizes))}] {n}" for n, sizes in inputs.items())
        want = compute(*(value.astype(np.float64) for value in given.values()))
        shape = ",".join(map(str, IMAGE["q"])) if inputs is IMAGE else f"B,{'N' if 'c' in inputs else 'M'},{D}"
        model = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17]>
g ({declared}) => (float[{shape}] o)
<int64[2] sizes = {{{H}, {W}}}> {{
{body}
}}""")
        itself = np.where(np.eye(H, dtype=bool), -np.inf, 0).astype(np.float32)[:, None]
        model.graph.initializer.append(numpy_helper.from_array(itself, "itself"))
        onnx.checker.check_model(model)
        path, report, result = f"{folder}/{name}.onnx", f"{folder}/{name}.json", f"{folder}/o.npy"
        onnx.save(model, path)
        for n, value in given.items():
            np.save(f"{folder}/{n}.npy", value)
        subprocess.run([tool, path, f"--fusion-report={report}", f"--output=o=@{result}",
                        *(f"--input={n}=@{folder}/{n}.npy" for n in given)], check=True, stdout=subprocess.DEVNULL)
        verdicts = [verdict["fused"] for verdict in json.load(open(report))]
        assert verdicts == fused, (name, verdicts)
        np.testing.assert_allclose(np.load(result), want, rtol=1e-4, atol=1e-5, err_msg=name)
    print(len(CASES), "graphs agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
