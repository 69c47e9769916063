"""attn-decompose against NumPy in float64: layouts, grouped heads, masks, masked-row policies, dtypes."""
import itertools
import sys

import numpy as np
from run_mlir import call

rng = np.random.default_rng(7)
SIZE = dict(b=2, h=4, i=3, j=5, d=8, e=6)
NAMES = "b, h, i, j, d, e"
PASSES = "attn-decompose"
MLIR = {np.float32: "f32", np.float64: "f64", np.float16: "f16"}


def tensor(shape, dtype=np.float32, dynamic=True):
    return "tensor<" + "".join(("?" if dynamic else str(n)) + "x" for n in shape) + MLIR[dtype] + ">"


def check(name, got, want, tolerance):
    same = got.shape == want.shape and np.allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    print(f"{name}: {'ok' if same else 'WRONG'}")
    if not same:
        print(got, want, sep="\n")
        sys.exit(1)


def softmax(s, policy):
    with np.errstate(invalid="ignore"):
        m = s.max(-1, keepdims=True)
        e = np.exp(s - m)
        w = e / e.sum(-1, keepdims=True)
    masked = np.isneginf(m)
    if policy == "zero":
        w = np.where(masked, 0, w)
    if policy == "uniform":
        w = np.where(masked, 1 / s.shape[-1], w)
    return w


def attention(name, layouts, policy, divisor=1, dtype=np.float32, dynamic=True, mask="b0j", scale=0.3):
    """layouts: query, key, value, result as letters of NAMES, '0' for a unit dimension."""
    heads = {"h": SIZE["h"] // divisor}
    arrays, maps, full = [], [], []
    for n, layout in enumerate(layouts[:3] + [mask]):
        kv = n in (1, 2)
        shape = [1 if c == "0" else (heads.get(c) if kv and c in heads else SIZE[c]) for c in layout]
        x = rng.standard_normal(shape).astype(dtype if n < 3 else np.float32)
        if n == 3:
            x = np.where(x > 0.5, -np.inf, x).astype(np.float32)
            x[0] = -np.inf
        arrays.append(x)
        exprs = [f"h floordiv {divisor}" if kv and c == "h" and divisor > 1 else c for c in layout]
        maps.append(f"affine_map<({NAMES}) -> ({', '.join(exprs)})>")
        x64 = x.astype(np.float64)
        if kv and "h" in layout:
            x64 = np.repeat(x64, divisor, layout.index("h"))
        present = [c for c in layout if c != "0"]
        x64 = x64.reshape([s for s, c in zip(x64.shape, layout) if c != "0"])
        order = [c for c in "bhijde" if c in present]
        x64 = np.transpose(x64, [present.index(c) for c in order])
        for axis, c in enumerate("bhijde"):
            if c not in present:
                x64 = np.expand_dims(x64, axis)
        full.append(x64)
    out = layouts[3]
    maps.append(f"affine_map<({NAMES}) -> ({', '.join(out)})>")
    out_shape = [1 if c == "0" else SIZE[c] for c in out]
    types = [tensor(a.shape, dtype if n < 3 else np.float32, dynamic) for n, a in enumerate(arrays)]
    text = f"""
func.func @main(%q: {types[0]}, %k: {types[1]}, %v: {types[2]}, %m: {types[3]}) -> {tensor(out_shape, dtype, dynamic)} {{
  %o = attn.attention masked_rows {policy} maps [{', '.join(maps)}]
      ins(%q, %k, %v : {', '.join(types[:3])}) captures(%m : {types[3]}) -> {tensor(out_shape, dtype, dynamic)}
    score {{
    ^bb0(%s: f32, %x: f32):
      %c = arith.constant {scale} : f32
      %i = attn.index 2 : index
      %j = attn.index 3 : index
      %d = arith.subi %i, %j : index
      %n = arith.index_cast %d : index to i32
      %f = arith.sitofp %n : i32 to f32
      %y = arith.mulf %s, %c : f32
      %z = arith.addf %y, %x : f32
      %t = arith.addf %z, %f : f32
      attn.yield %t : f32
    }} weight {{
    ^bb0(%w: f32, %x: f32):
      %h = attn.index 1 : index
      %n = arith.index_cast %h : index to i32
      %f = arith.sitofp %n : i32 to f32
      %y = arith.mulf %w, %f : f32
      attn.yield %y : f32
    }}
  return %o : {tensor(out_shape, dtype, dynamic)}
}}"""
    got = call(text, PASSES, arrays, len(out), dtype)
    q, k, v, m = full
    s = (q * k).sum((4, 5)) * scale + m[..., 0, 0]
    s = s + np.arange(s.shape[2])[:, None] - np.arange(SIZE["j"])[None, :]
    w = softmax(s, policy) * np.arange(s.shape[1])[:, None, None]
    o = (w[..., None, None] * v).sum((3, 4))  # b h i e
    order = [c for c in out if c != "0"]
    o = o[tuple(slice(None) if c in order else 0 for c in "bhie")]
    want = np.transpose(o, [[c for c in "bhie" if c in order].index(c) for c in order]).reshape(out_shape)
    check(name, got, want, 2e-3 if dtype == np.float16 else 2e-5)


policies = ["zero", "nan", "uniform", "finite"]
for policy in policies:
    attention(f"bshd {policy}", ["bihd", "bjhd", "bjhe", "bihe"], policy)
attention("bhsd static", ["bhid", "bhjd", "bhje", "bhie"], "zero", dynamic=False)
attention("transposed key", ["bhid", "bhdj", "bhje", "bihe"], "zero")
attention("grouped", ["bihd", "bjhd", "bjhe", "bihe"], "nan", divisor=2)
attention("one key head", ["bihd", "bjhd", "bhje", "bihe"], "zero", divisor=4)
attention("unit dims", ["0i0d", "0j0d", "b0j0e", "0bi0e"], "nan")
attention("mask over all", ["bhid", "bhjd", "bhje", "bhie"], "zero", mask="bhij")
attention("f16", ["bhid", "bhjd", "bhje", "bhie"], "zero", dtype=np.float16)

for dtype, log in itertools.product([np.float32, np.float64, np.float16], [False, True]):
    x = (rng.standard_normal((3, 7, 2)) * 4).astype(dtype)
    t = tensor(x.shape, dtype)
    text = f"""
func.func @main(%x: {t}) -> {t} {{
  %y = attn.softmax %x dim 1 {'log' if log else ''} : {t}
  return %y : {t}
}}"""
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    want = e / e.sum(1, keepdims=True)
    tolerance = {np.float32: 1e-6, np.float64: 1e-13, np.float16: 2e-3}[dtype]
    check(f"softmax {t} {'log' if log else ''}", call(text, PASSES, [x], 3, dtype), np.log(want) if log else want,
          tolerance)

for axis, bias in itertools.product([1, 2], [False, True]):
    x = rng.standard_normal((3, 5, 7)).astype(np.float32) + 3
    scale, shift = (rng.standard_normal(x.shape[axis:]).astype(np.float32) for _ in range(2))
    t, p = tensor(x.shape), tensor(scale.shape)
    text = f"""
func.func @main(%x: {t}, %s: {p}, %b: {p}) -> {t} {{
  %y = attn.layer_norm %x, %s{', %b' if bias else ''} axis {axis} epsilon 1.0e-5 : {t}, {p}{', ' + p if bias else ''}
  return %y : {t}
}}"""
    axes = tuple(range(axis, 3))
    x64 = x.astype(np.float64)
    want = (x64 - x64.mean(axes, keepdims=True)) / np.sqrt(x64.var(axes, keepdims=True) + 1e-5) * scale
    check(f"layer_norm axis {axis} bias {bias}", call(text, PASSES, [x, scale, shift], 3), want + shift * bias, 1e-5)
