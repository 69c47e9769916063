#!/usr/bin/env python3
"""Inputs whose sizes have different names and are equal in a run, or one of them is 1, against NumPy: joined_sizes.py FOLDER"""
import json
import subprocess
import sys

import numpy as np
import onnx
from onnx import parser

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
MODELS = {
    "attention": """g (float[b,2,s,8] q, float[b,2,t,8] k, float[b,2,t,8] v, float[m,1,r,t] mask) => (float[] y) {
  turned = Transpose<perm = [0, 1, 3, 2]>(k)
  products = MatMul(q, turned)
  scale = Constant<value = float {0.35}>()
  scores = Mul(products, scale)
  masked = Add(scores, mask)
  weights = Softmax<axis = -1>(masked)
  sums = MatMul(weights, v)
  rows = Transpose<perm = [0, 2, 1, 3]>(sums)
  shape = Constant<value = int64[3] {0, 0, -1}>()
  y = Reshape(rows, shape)
}""",
    "where": """g (bool[b,s] c, float[n,s] x, float[t] z) => (float[] y) {
  gelu = Tanh(x)
  y = Where(c, gelu, z)
}""",
    "product": """g (float[b,2,s,4] x, float[m,2,4,t] z) => (float[] y) { y = MatMul(x, z) }""",
    "chain": """g (float[n] x, float[m] z, float[k] w) => (float[] y) {
  a = Add(x, z)
  c = Mul(a, w)
  d = Sub(c, x)
  e = Add(d, z)
  total = ReduceSum<keepdims = 1>(e)
  y = Div(e, total)
}""",
    "loop": """g (float[n] x, float[m] z) => (float[] y) {
  trips = Constant<value = int64 {3}>()
  y = Loop(trips, , x)<body = body (int64 i, bool c, float[l] a) => (bool d, float[l] b) {
    d = Identity(c)
    b = Add(a, z)
  }>
}""",
    "weight": """g (float[n,m] x) => (float[] y)
<float[2,4] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}> { y = Add(x, w) }""",
    # Outputs of another size than where n is 4; more than one of them.
    "flat": """g (float[n,4] x, float[4,4] z) => (float[] y, float[] v) {
  y = Add(x, z)
  shape = Constant<value = int64[1] {-1}>()
  v = Reshape(x, shape)
}""",
    # A part that has nothing along the axis may have any other sizes; one whose size there the run brings may not.
    "parts": """g (float[n,0] x, float[m,3] z, float[k,p] w) => (float[] y) { y = Concat<axis = 1>(x, z, w) }""",
    "empty": """g (float[n,0] x, float[m,0] z) => (float[] y) { y = Concat<axis = -1>(x, z) }""",
    # A requirement of two sizes that are the same only where those are that the form joins.
    "mask": """g (float[s,8] q, float[t,8] k, float[u,8] v, float[r,w] mask) => (float[] y) {
  turned = Transpose<perm = [1, 0]>(k)
  products = MatMul(q, turned)
  masked = Add(products, mask)
  weights = Softmax<axis = -1>(masked)
  y = MatMul(weights, v)
}""",
}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True)) if x.size else x
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v, mask):
    y = softmax(q @ k.transpose(0, 1, 3, 2) * np.float32(0.35) + mask) @ v
    return y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1)


def chain(x, z, w):
    e = (x + z) * w - x + z
    return e / e.sum(keepdims=True)


WEIGHT = np.arange(1, 9, dtype=np.float32).reshape(2, 4)
FORMULA = {"flat": lambda x, z: (x + z, x.reshape(-1)),
           "mask": lambda q, k, v, mask: np.matmul(softmax(q @ k.T + mask), v), "attention": attention, "where": lambda c, x, z: np.where(c, np.tanh(x), z), "product": lambda x, z: np.matmul(x, z),
           "chain": chain, "loop": lambda x, z: x + z + z + z, "weight": lambda x: x + WEIGHT,
           "parts": lambda x, z, w: np.concatenate([z, w], 1), "empty": lambda x, z: x}


def attention_shapes(b, s, t, m, r):
    return {"q": (b, 2, s, 8), "k": (b, 2, t, 8), "v": (b, 2, t, 8), "mask": (m, 1, r, t)}


def where_shapes(b, n, s, t):
    return {"c": (b, s), "x": (n, s), "z": (t,)}


CASES = {
    "attention": [attention_shapes(*sizes) for sizes in ((3, 5, 7, 3, 5), (3, 5, 7, 1, 5), (3, 5, 7, 3, 1), (2, 40, 33, 1, 1),
                                                         (1, 5, 7, 3, 5), (2, 1, 7, 1, 5), (3, 5, 7, 2, 5))],
    "where": [where_shapes(*sizes) for sizes in ((3, 3, 17, 17), (3, 1, 17, 17), (1, 3, 17, 1), (3, 3, 1, 17), (1, 1, 1, 9),
                                                 (1, 4, 17, 1), (1, 0, 17, 1), (3, 2, 17, 17), (3, 3, 17, 4))],
    "product": [{"x": (b, 2, 5, 4), "z": (m, 2, 4, 3)} for b, m in ((3, 3), (3, 1), (1, 3), (1, 1), (3, 2))],
    "chain": [{"x": (n,), "z": (m,), "w": (k,)} for n, m, k in ((9, 9, 9), (9, 1, 9), (1, 9, 1), (1, 1, 9), (9, 1, 1), (9, 8, 9))],
    "loop": [{"x": (n,), "z": (m,)} for n, m in ((5, 5), (5, 1), (1, 5), (1, 1), (5, 4))],
    "weight": [{"x": (2, 4)}, {"x": (1, 4)}, {"x": (2, 1)}],
    "flat": [{"x": (n, 4), "z": (4, 4)} for n in (4, 1, 3)],
    "parts": [{"x": (n, 0), "z": (m, 3), "w": (k, p)} for n, m, k, p in ((4, 4, 4, 2), (2, 4, 4, 2), (0, 4, 4, 0), (4, 4, 2, 2),
                                                                         (4, 4, 2, 0))],
    "empty": [{"x": (n, 0), "z": (m, 0)} for n, m in ((3, 3), (3, 2), (0, 2))],
    "mask": [{"q": (2, 8), "k": (t, 8), "v": (u, 8), "mask": (2, w)} for t in (1, 7) for u in (1, 7) for w in (1, 7)],
}


def values(shapes, rng):
    return {name: rng.standard_normal(shape).astype(np.float32) if name != "c" else rng.random(shape) < 0.5
            for name, shape in shapes.items()}


def run(folder, library, feeds, outputs, entry=()):
    args = ["attn-run", library, *entry, *(f"--output={name}=@{folder}/{name}.npy" for name in outputs)]
    for name, value in feeds.items():
        np.save(f"{folder}/{name}.npy", value)
        args.append(f"--input={name}=@{folder}/{name}.npy")
    return subprocess.run(args, capture_output=True, text=True)


def check(folder, library, name, feeds, entry=()):
    outputs = "yv" if name == "flat" else "y"
    done = run(folder, library, feeds, outputs, entry)
    try:
        want = FORMULA[name](**feeds)
    except ValueError: # NumPy does not broadcast or multiply them
        assert done.returncode == 3, (name, done)
        assert any(text in done.stderr for text in ("sizes", "has size", "columns")), (name, done)
        return
    assert done.returncode == 0, (name, {n: v.shape for n, v in feeds.items()}, done)
    for output, value in zip(outputs, want if isinstance(want, tuple) else (want,)):
        np.testing.assert_allclose(np.load(f"{folder}/{output}.npy"), value, rtol=2e-5, atol=2e-6)


def main(folder):
    rng = np.random.default_rng(7)
    for name, text in MODELS.items():
        onnx.save(parser.parse_model(HEAD + text), f"{folder}/{name}.onnx")
        for flags in ([], ["-O0"]):
            library = f"{folder}/{name}.so"
            subprocess.run(["attnc", f"{folder}/{name}.onnx", "-o", library, f"--fusion-report={folder}/report.json", *flags],
                           check=True)
            for shapes in CASES[name]:
                check(folder, library, name, values(shapes, rng))
            if not flags:
                with open(f"{folder}/report.json", encoding="utf-8") as file:
                    verdicts = json.load(file)
                fused = sum(v["fused"] for v in verdicts)
                print(f"{name}: {len(CASES[name])} runs as expected" + (f", {fused} fused" if verdicts else ""))
    both = f"{folder}/both.so"
    subprocess.run(["attnc", f"a={folder}/where.onnx", f"b={folder}/chain.onnx", "-o", both], check=True)
    for entry, name in (("a", "where"), ("b", "chain")):
        for shapes in CASES[name]:
            check(folder, both, name, values(shapes, rng), [f"--entry={entry}"])
    print("both entries serve them")


if __name__ == "__main__":
    main(*sys.argv[1:])
