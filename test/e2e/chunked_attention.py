#!/usr/bin/env python3
"""Attentions within chunks of a sequence and their neighbours: chunked_attention.py ATTN_RUN FOLDER

Scores have a batch dimension of chunks beside batch and heads, in whatever order the model reshapes. Each graph runs
with known and with unknown sizes; results against float64, and each softmax is fused without storing its scores.
"""
import json
import subprocess
import sys

import numpy as np
import onnx
from onnx import numpy_helper, parser

B, H, C, L, D = 2, 3, 4, 5, 8
N = C * L
CONSTANTS = {"zero": [0], "one": [1], "two": [2], "last": [-1], "row": [-2], "end": [1 << 40]}


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def neighbours(name, out):
    """The chunk before each one (axis 2), and itself behind it (axis 3)."""
    return f"""
  {out}_last = Slice({name}, last, end, two)
  {out}_rest = Slice({name}, zero, last, two)
  {out}_before = Concat<axis = 2>({out}_last, {out}_rest)
  {out} = Concat<axis = 3>({out}_before, {name})"""


def with_neighbours(x):
    return np.concatenate([np.roll(x, 1, axis=2), x], 3)


def heads_first(x):
    return x.reshape(B, N, H, D).transpose(0, 2, 1, 3).reshape(B, H, C, L, D)


def local(causal, back):
    """Reformer: heads, then chunks; the result's heads go behind the chunks."""
    text = ""
    for name in "qkv":
        text += f"""
  {name}_split = Reshape({name}, by_heads)
  {name}_heads = Transpose<perm = [0, 2, 1, 3]>({name}_split)
  {name}_own = Reshape({name}_heads, by_chunks)"""
    text += neighbours("k_own", "k_all") + neighbours("v_own", "v_all")
    text += """
  keep_row = Unsqueeze(keep, one)
  keep_own = Reshape(keep_row, mask_chunks)""" + neighbours("keep_own", "keep_all") + """
  keep_wide = Unsqueeze(keep_all, row)
  kept = Cast<to = 9>(keep_wide)"""
    if causal:
        text += """
  place_own = Reshape(place, place_chunks)""" + neighbours("place_own", "place_all") + """
  query_place = Unsqueeze(place_own, last)
  key_place = Unsqueeze(place_all, row)
  before = GreaterOrEqual(query_place, key_place)
  seen = And(before, kept)"""
    text += f"""
  kt = Transpose<perm = [0, 1, 2, 4, 3]>(k_all)
  s = MatMul(q_own, kt)
  z = Where({"seen" if causal else "kept"}, s, least)
  lse = ReduceLogSumExp<keepdims = 1>(z, last)
  d = Sub(z, lse)
  w = Exp(d)
  o = MatMul(w, v_all)
"""
    text += back

    def expected(q, k, v, keep, mask):
        s = heads_first(q) @ with_neighbours(heads_first(k)).swapaxes(3, 4)
        seen = with_neighbours(keep.reshape(B, 1, C, L))[..., None, :] > 0
        if causal:
            place = np.arange(N).reshape(1, 1, C, L)
            seen = seen & (place[..., None] >= with_neighbours(place)[..., None, :])
        o = softmax(np.where(seen, s, -1e9)) @ with_neighbours(heads_first(v))
        return o.reshape(B, H, N, D).transpose(0, 2, 1, 3).reshape(B, N, H * D)

    return text, expected


def blocks():
    """LongT5: chunks, then heads; a bias for heads beside a mask for chunks."""
    text = ""
    for name in "qkv":
        text += f"\n  {name}_own = Reshape({name}, blocks)"
    for name in "kv":
        text += f"\n  {name}_wide = Pad({name}_own, around)"
        text += "".join(f"\n  {name}{n} = Slice({name}_wide, {at}, {to}, one)"
                        for n, (at, to) in enumerate((("zero", "row"), ("one", "last"), ("two", "end"))))
        text += f"\n  {name}_all = Concat<axis = 2>({name}0, {name}1, {name}2)"
    text += """
  s = Einsum<equation = "...qhd,...khd->...hqk">(q_own, k_all)
  both = Add(bias, mask)
  z = Add(s, both)
  w = Softmax<axis = -1>(z)
  o = Einsum<equation = "...hqk,...khd->...qhd">(w, v_all)
  y = Reshape(o, merged)"""

    def expected(q, k, v, keep, mask):
        def around(x):
            x = np.pad(x.reshape(B, C, L, H, D), ((0, 0), (1, 1), (0, 0), (0, 0), (0, 0)))
            return np.concatenate([x[:, n:n + C] for n in range(3)], 2)

        s = np.einsum("bcqhd,bckhd->bchqk", q.reshape(B, C, L, H, D), around(k)) + TABLES["bias"] + mask
        return np.einsum("bchqk,bckhd->bcqhd", softmax(s), around(v)).reshape(B, N, H * D)

    return text, expected


RNG = np.random.default_rng(3)
TABLES = {
    "by_heads": np.array([0, 0, H, D]), "by_chunks": np.array([0, 0, -1, L, D]), "mask_chunks": np.array([0, 1, -1, L]),
    "place_chunks": np.array([1, 1, -1, L]), "blocks": np.array([0, -1, L, H, D]), "merged": np.array([0, -1, H * D]),
    "joined": np.array([0, 0, -1, D]), "least": np.array(-1e9, np.float32), "place": np.arange(N),
    "around": np.array([0, 1, 0, 0, 0, 0, 1, 0, 0, 0]),
    "bias": RNG.standard_normal((1, 1, H, L, 3 * L)).astype(np.float32),
    **{name: np.array(value) for name, value in CONSTANTS.items()},
}
# Chunks are joined before the heads go behind them, or afterwards.
JOINED = """  chunks = Reshape(o, joined)
  behind = Transpose<perm = [0, 2, 1, 3]>(chunks)
  y = Reshape(behind, merged)"""
APART = """  behind = Transpose<perm = [0, 2, 3, 1, 4]>(o)
  y = Reshape(behind, merged)"""
CASES = {"local": local(False, JOINED), "causal": local(True, JOINED), "apart": local(False, APART), "blocks": blocks()}


def main(tool, folder):
    given = {n: RNG.standard_normal((B, N, H * D)).astype(np.float32) for n in "qkv"}
    given["keep"] = (np.arange(N) < np.array([[N], [13]])).astype(np.int64)
    given["mask"] = np.where(RNG.random((B, C, 1, 1, 3 * L)) < 0.3, -1e10, 0).astype(np.float32)
    for name, value in given.items():
        np.save(f"{folder}/{name}.npy", value)
    for name, (body, expected) in CASES.items():
        for b, n, c in ((B, N, C), ("b", "n", "c")):
            rows = f"float[{b},{n},{H * D}]"
            model = parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
g ({rows} q, {rows} k, {rows} v, int64[{b},{n}] keep, float[{b},{c},1,1,{3 * L}] mask) => ({rows} y) {{
{body}
}}""")
            model.graph.initializer.extend(numpy_helper.from_array(value, n) for n, value in TABLES.items())
            onnx.checker.check_model(model)
            path, result, report = f"{folder}/{name}_{b}.onnx", f"{folder}/y.npy", f"{folder}/report.json"
            onnx.save(model, path)
            subprocess.run([tool, path, f"--fusion-report={report}", f"--output=y=@{result}",
                            *(f"--input={n}=@{folder}/{n}.npy" for n in given)],
                           check=True, stdout=subprocess.DEVNULL)
            said = [(v["fused"], v["kind"], v["reason"]) for v in json.load(open(report))]
            assert said == [(True, "dot", "")], (path, said)
            want = expected(*(v.astype(np.float64) if v.dtype.kind == "f" else v for v in given.values()))
            np.testing.assert_allclose(np.load(result), want, rtol=1e-3, atol=1e-4, err_msg=path)
    print(len(CASES), "graphs agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
