#!/usr/bin/env python3
"""Attentions that choose one value for each query: hard_attention.py ATTN_RUN FOLDER"""
import subprocess
import sys

import numpy as np
import onnx
from onnx import numpy_helper, parser

B, N, M, D, E = 2, 21, 37, 24, 8
SCORES = """
  kt = Transpose<perm = [0, 2, 1]>(k)
  s = MatMul(q, kt)
  p = Softmax<axis = -1>(s)
"""
NOISE = np.random.default_rng(6).gumbel(size=(B, N, M)).astype(np.float32)
MATRIX = f"tensor<{B}x{N}x{M}xf32>"


def chosen(v, at, scale=1.0):
    """v at the positions, counted from the end where negative; 0 beyond either end."""
    inside = (at >= -M) & (at < M)
    rows = np.take_along_axis(v, np.where(inside, at % M, 0)[..., None], 1)
    return np.where(inside[..., None], rows * scale, 0)


def one_hot(at, values="ends"):
    return f"  h = OneHot<axis = -1>({at}, depth, {values})\n"


def scattered(value):
    return f"""  none = ConstantOfShape<value = float[1] {{0}}>(whole)
  ones = ConstantOfShape<value = float[1] {{{value}}}>(rows)
  h = ScatterElements<axis = -1>(none, a, ones)
"""


# name, text that makes h, output of (q k^T, v, positions), whether ones are stored
CASES = [
    ("argmax", SCORES + "  a = ArgMax<axis = -1, keepdims = 0>(p)\n" + one_hot("a"),
     lambda s, v, at: chosen(v, s.argmax(-1)), False),
    ("scores", SCORES + "  a = ArgMax<axis = -1, keepdims = 0>(s)\n" + one_hot("a"),
     lambda s, v, at: chosen(v, s.argmax(-1)), False),
    ("equal", SCORES + "  a = ArgMax<axis = -1, keepdims = 1>(p)\n  e = Equal(a, places)\n  h = Cast<to = 1>(e)\n",
     lambda s, v, at: chosen(v, s.argmax(-1)), False),
    ("top", SCORES + """  t, i = TopK<axis = -1>(p, one)
  last = Constant<value = int64[1] {-1}>()
  a = Squeeze(i, last)
""" + one_hot("a"), lambda s, v, at: chosen(v, s.argmax(-1)), False),
    ("scattered", SCORES + "  a = ArgMax<axis = -1, keepdims = 1>(p)\n" + scattered(1),
     lambda s, v, at: chosen(v, s.argmax(-1)), False),
    # A sample of the softmax, whose noise is given.
    ("noise", SCORES + "  z = Add(s, noise)\n  a = ArgMax<axis = -1, keepdims = 1>(z)\n" + scattered(1),
     lambda s, v, at: chosen(v, (s + NOISE).argmax(-1)), False),
    # Positions of any origin: negative ones, and ones beyond the end.
    ("given", one_hot("at"), lambda s, v, at: chosen(v, at), False),
    # Near misses: another number than one, and every key that is not chosen.
    ("scattered_given", "  c = Clip(at, low, high)\n  a = Unsqueeze(c, end)\n" + scattered(1),
     lambda s, v, at: chosen(v, np.clip(at, -M, M - 1)), False),
    ("scattered_halves", SCORES + "  a = ArgMax<axis = -1, keepdims = 1>(p)\n" + scattered(0.5),
     lambda s, v, at: chosen(v, s.argmax(-1), 0.5), True),
    # Several largest scores are several rows.
    ("largest", SCORES + "  m = ReduceMax<axes = [2], keepdims = 1>(s)\n  e = Equal(s, m)\n  h = Cast<to = 1>(e)\n",
     lambda s, v, at: chosen(v, s.argmax(-1)), True),
    ("halves", one_hot("at", "half"), lambda s, v, at: chosen(v, at, 0.5), True),
    ("others", "  w = Unsqueeze(at, end)\n  e = Equal(w, places)\n  n = Not(e)\n  h = Cast<to = 1>(n)\n",
     lambda s, v, at: v.sum(1)[:, None] - np.where((at >= 0)[..., None], chosen(v, at), 0), True),
]


def main(tool, folder):
    rng = np.random.default_rng(5)
    given = {name: rng.standard_normal(shape).astype(np.float32)
             for name, shape in (("q", (B, N, D)), ("k", (B, M, D)), ("v", (B, M, E)))}
    given["at"] = rng.integers(-M - 4, M + 4, (B, N))
    for name, value in given.items():
        np.save(f"{folder}/{name}.npy", value)
    tables = {"depth": np.array(M), "ends": np.array([0, 1], np.float32), "half": np.array([0, 0.5], np.float32),
              "places": np.arange(M), "whole": np.array([B, N, M]), "rows": np.array([B, N, 1]), "noise": NOISE,
              "low": np.array(-M), "high": np.array(M - 1), "one": np.array([1]), "end": np.array([2])}
    for name, body, output, stored in CASES:
        model = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17]>
g (float[{B},{N},{D}] q, float[{B},{M},{D}] k, float[{B},{M},{E}] v, int64[{B},{N}] at) => (float[{B},{N},{E}] y) {{
{body}
  y = MatMul(h, v)
}}""")
        model.graph.initializer.extend(numpy_helper.from_array(value, n) for n, value in tables.items())
        onnx.checker.check_model(model)
        path, result = f"{folder}/{name}.onnx", f"{folder}/y.npy"
        onnx.save(model, path)
        subprocess.run([tool, path, f"--output=y=@{result}", *(f"--input={n}=@{folder}/{n}.npy" for n in given)],
                       check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["attnc", path, "--emit=linalg", "-o", f"{folder}/{name}.mlir"], check=True)
        text = open(f"{folder}/{name}.mlir").read()
        contracted = [line for line in text.splitlines() if "linalg.contract" in line and f"{MATRIX}, " in line]
        assert bool(contracted) == stored, (name, contracted)
        q, k, v = (given[n].astype(np.float64) for n in "qkv")
        np.testing.assert_allclose(np.load(result), output(q @ k.swapaxes(1, 2), v, given["at"]), rtol=1e-5, atol=1e-5,
                                   err_msg=name)
    print(len(CASES), "graphs agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
