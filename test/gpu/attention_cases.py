"""Cases of check_kernels.py with attention, as operators of ONNX and (attention_ir.py) in IR."""
import os
import re

import numpy as np
from onnx import helper

import attention_ir
import kernel_cases
from kernel_cases import Bounded, case, normal, rounded


def unit_of_weights(d, e, queries):
    """Half a unit of the last place of weights, and as much again; 0 where they are f32."""
    kind = kernel_cases.PRECISION if kernel_cases.BUFFERS == "f32" else kernel_cases.BUFFERS
    isHopper = kernel_cases.ARCH.startswith("sm_90a") and "cc=90" in os.environ.get("ATTN_FAKE_CUDA", "")
    isWarpgroup = kind != "tf32" and isHopper and queries > (255 if kernel_cases.BUFFERS == "f32" or max(d, e) <= 128 else 64)
    isNarrow = max(d, e) <= (256 if isWarpgroup else 128) and queries > 16
    return {"bf16": 2.0 ** -8, "f16": 2.0 ** -11, "tf32": 2.0 ** -10}.get(kind, 0) * isNarrow


def attend(q, k, v, visible=None, bias=0):
    """(b, h, i, d), (b, g, j, d), (b, g, j, e) in float64; rows that see no key are NaN.

    Weights are rounded in the kernels, too, at a scale that depends on their
    tiles: half a unit of their last place, and as much again for sums of them."""
    unit = unit_of_weights(q.shape[-1], v.shape[-1], q.shape[2])
    near = rounded if unit else lambda x: x.astype(float)
    ratio = q.shape[1] // k.shape[1]
    k, v = (np.repeat(near(x), ratio, 1) for x in (k, v))
    s = near(q) @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + bias
    if visible is not None:
        s = np.where(visible, s, -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(s - s.max(-1, keepdims=True))
        w = e / e.sum(-1, keepdims=True)
        return Bounded(attention_ir.mixed(w != 0, w, v), unit * attention_ir.mixed(w != 0, w, np.abs(v)) if unit else 0)


def qkv(b, h, g, i, j, d, e):
    return normal(b, h, i, d), normal(b, g, j, d), normal(b, g, j, e)


# For warpgroups: heads of 64, 128, 256 and padded ones; several tiles, the last with one key or two.
LONG = [(1, 2, 1, 300, 257, 64, 64), (1, 1, 1, 257, 258, 128, 128), (1, 1, 1, 256, 130, 256, 192),
        (1, 1, 1, 260, 128, 80, 40), (1, 3, 3, 256, 1, 18, 6)]
ATTENTION = [(1, 2, 2, 1, 7, 8, 8), (2, 2, 1, 5, 33, 16, 16), (1, 4, 2, 70, 70, 64, 64), (1, 1, 1, 33, 40, 6, 10),
             (1, 2, 2, 20, 48, 128, 128), (1, 1, 1, 17, 19, 256, 256), (1, 2, 1, 65, 32, 64, 32)]


@case("attention", *ATTENTION, opset=23)
@case("warpgroups", *LONG, opset=23)
def full(size):
    q, k, v = qkv(*size)
    return [helper.make_node("Attention", ["q", "k", "v"], ["y"])], {"q": q, "k": k, "v": v}, {}, {"y": attend(q, k, v)}


@case("warpgroups", (1, 2, 1, 255, 130, 64, 64), (1, 1, 1, 256, 130, 64, 64), (1, 2, 1, 17, 130, 64, 64), opset=23, free={("q", 2): "queries"})
def any_queries(size):
    """The host chooses the kernel."""
    return full(size)


@case("attention", *ATTENTION[1:5], opset=23)
@case("warpgroups", *LONG, opset=23)
def causal(size):
    q, k, v = qkv(*size)
    seen = np.arange(size[4])[None, :] <= np.arange(size[3])[:, None]
    nodes = [helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=1)]
    return nodes, {"q": q, "k": k, "v": v}, {}, {"y": attend(q, k, v, seen)}


@case("attention", *ATTENTION[1:4], opset=23)
@case("warpgroups", *LONG[:3], opset=23)
def dense_mask_and_bias(size):
    q, k, v = qkv(*size)
    seen = kernel_cases.rng.random((size[3], size[4])) < 0.6
    seen[:, 0] = True
    bias = normal(size[0], 1, size[3], size[4])
    nodes = [helper.make_node("Attention", ["q", "k", "v", "m"], ["y"])]
    boolean = (nodes, {"q": q, "k": k, "v": v, "m": seen}, {}, {"y": attend(q, k, v, seen)})
    added = (nodes, {"q": q, "k": k, "v": v, "m": bias}, {}, {"y": attend(q, k, v, None, bias.astype(float))})
    return [boolean, added]


@case("attention", (1, 2, 2, 1, 300, 64, 64), (2, 4, 2, 1, 1100, 16, 24), (1, 2, 1, 5, 700, 128, 128), (1, 2, 1, 2, 1603, 64, 64),
      (1, 1, 1, 3, 70, 12, 20), (2, 70, 70, 1, 63, 64, 64), (1, 2, 2, 1, 64, 64, 64), (1, 2, 2, 4, 65, 128, 128), opset=23)
def decode(size):
    """Few queries, and rows of fewer pieces than a group has lanes: many keys are in parts. A dense mask."""
    q, k, v = qkv(*size)
    seen = kernel_cases.rng.random((size[3], size[4])) < 0.6
    seen[:, 0] = True
    nodes = [helper.make_node("Attention", ["q", "k", "v"], ["y"])]
    masked = [helper.make_node("Attention", ["q", "k", "v", "m"], ["y"])]
    inputs = {"q": q, "k": k, "v": v}
    return [(nodes, inputs, {}, {"y": attend(q, k, v)}), (masked, inputs | {"m": seen}, {}, {"y": attend(q, k, v, seen)})]


@case("attention", (1, 2, 2, 1, 1, 16, 16), (2, 2, 1, 1, 40, 64, 64), (1, 2, 1, 3, 600, 32, 32), opset=23,
      free={("k", 2): "keys", ("v", 2): "keys"})
def decode_any_length(size):
    """Parts are as many as for many keys: some are empty."""
    q, k, v = qkv(*size)
    return [helper.make_node("Attention", ["q", "k", "v"], ["y"])], {"q": q, "k": k, "v": v}, {}, {"y": attend(q, k, v)}


@case("attention", (1, 2, 1, 40, 70, 64, 64), (1, 1, 1, 66, 100, 128, 128), (1, 2, 1, 3, 100, 64, 64), opset=23)
@case("warpgroups", (1, 2, 1, 256, 300, 64, 64), (1, 1, 1, 258, 140, 128, 128), opset=23)
def hidden_values(size):
    """Values of hidden keys that are NaN, infinite or too large for 16 bits, and such values that are seen."""
    q, k, v = qkv(*size)
    seen = np.arange(size[4])[None, :] <= np.arange(size[3])[:, None]
    v[:, :, size[3] // 2 :: 9] = np.float32(np.inf)
    v[:, :, size[3] // 2 + 3 :: 9] = np.float32(np.nan)
    v[:, :, size[3] :] = np.float32(3e38)
    nodes = [helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=1)]
    return nodes, {"q": q, "k": k, "v": v}, {}, {"y": attend(q, k, v, seen)}


@case("warpgroups", (1, 132, 2, 256, 130, 8, 8), opset=23)
def many_heads(size):
    """Heads that are made again have fewer blocks than blocks of queries."""
    return hidden_values(size)


@case("attention", (1, 2, 2, 90, 90, 16, 16, 20), (1, 1, 1, 70, 70, 32, 32, 3), opset=23)
@case("warpgroups", (1, 2, 2, 400, 400, 64, 64, 60), opset=23)
def window(size):
    """The keys within `w` of a query, by a mask that the graph computes; a NaN beyond them reaches nothing."""
    *shape, w = size
    q, k, v = qkv(*shape)
    i = np.arange(shape[3])
    seen = (i[None, :] <= i[:, None]) & (i[:, None] - i[None, :] < w)
    want = attend(q, k, v, seen)
    nodes = [helper.make_node("Attention", ["q", "k", "v", "m"], ["y"])]
    return nodes, {"q": q, "k": k, "v": v}, {"m": seen}, {"y": want}


@case("attention", (1, 2, 2, 70, 70, 16, 16, 9), (1, 2, 1, 40, 40, 64, 64, 33), opset=23)
def prefix(size):
    """Keys in front are seen by all queries, later ones by later queries."""
    *shape, p = size
    q, k, v = qkv(*shape)
    i = np.arange(shape[3])
    seen = (i[None, :] <= i[:, None]) | (i[None, :] < p)
    nodes = [helper.make_node("Attention", ["q", "k", "v", "m"], ["y"])]
    return nodes, {"q": q, "k": k, "v": v}, {"m": seen}, {"y": attend(q, k, v, seen)}


@case("attention", (3, 2, 1, 20, 70, 64, 64), (2, 2, 2, 1, 300, 16, 16), opset=24)
def lengths(size):
    """Keys behind a sequence's end; one of the sequences has all of them."""
    q, k, v = qkv(*size)
    n = np.linspace(1, size[4], size[0]).astype(np.int64)
    seen = (np.arange(size[4]) < n[:, None])[:, None, None]
    nodes = [helper.make_node("Attention", ["q", "k", "v", "", "", "", "n"], ["y"])]
    return nodes, {"q": q, "k": k, "v": v, "n": n}, {}, {"y": attend(q, k, v, seen)}


@case("attention", (2, 3, 40, 8), (1, 5, 33, 12))
def additive(size):
    b, i, j, d = size
    q, k, v, a = normal(b, i, d), normal(b, j, d), normal(b, j, 16), normal(d, 1)
    nodes = [helper.make_node("Unsqueeze", ["q", "two"], ["q4"]), helper.make_node("Unsqueeze", ["k", "one"], ["k4"]),
             helper.make_node("Add", ["q4", "k4"], ["x"]), helper.make_node("Tanh", ["x"], ["t"]),
             helper.make_node("MatMul", ["t", "a"], ["s1"]), helper.make_node("Squeeze", ["s1", "three"], ["s"]),
             helper.make_node("Softmax", ["s"], ["w"]), helper.make_node("MatMul", ["w", "v"], ["y"])]
    s = (np.tanh(q.astype(float)[:, :, None] + k[:, None]) @ a)[..., 0]
    e = np.exp(s - s.max(-1, keepdims=True))
    weights = {"a": a, "one": np.array([1]), "two": np.array([2]), "three": np.array([3])}
    return nodes, {"q": q, "k": k, "v": v}, weights, {"y": e / e.sum(-1, keepdims=True) @ v}


def to_both_halves(x):
    """What f16 and bf16 hold alike."""
    return np.round(np.clip(x, -3.9, 3.9) * 64) / 64


def narrow(attention, units):
    """As the kernels make it; weights are rounded as in attend()."""
    text, inputs, weights, outputs = attention_ir.entry(attention)
    # Sums of weights that are no softmax's are as large as their terms.
    slack = units + (2e-6 if attention.normalizer == "none" else 0)
    if slack:
        outputs["y0"] = Bounded(outputs["y0"], slack * attention_ir.magnitude(attention))
    return text, inputs, weights, outputs


def in_half(text, inputs, weights, outputs):
    """Buffers of f16, or of bf16 with the same numbers. The results are rounded to them: half a unit of the last place."""
    if kernel_cases.BUFFERS == "bf16":
        text = re.sub(r"\bf16|(?<=x)f16", "bf16", text)
    def stored(x):
        with np.errstate(invalid="ignore"):
            want, slack = (x.want, x.slack) if isinstance(x, Bounded) else (x, 0)
            unit = 2.0 ** -8 if kernel_cases.BUFFERS == "bf16" else 2.0 ** -11
            return Bounded(want, slack + unit * np.where(np.isfinite(want), abs(want), 0))
    return text, inputs, weights, {name: stored(x) for name, x in outputs.items()}


def in_ir(make):
    def built(size):
        units, isHalf = unit_of_weights(size[5], size[6], size[3]), kernel_cases.BUFFERS != "f32"
        made = make(attention_ir.Maker(kernel_cases.rng, size[:7], *((to_both_halves, np.float16) if isHalf else (rounded,))), *size[7:])
        made = [narrow(one, units) if isinstance(one, attention_ir.Attention) else (*one[:3], {"y0": Bounded(*one[3])}) for one in made]
        return [in_half(*one) for one in made] if isHalf else made
    built.__name__ = make.__name__
    return built


for make, family, sizes in attention_ir.CASES:
    case(family, *sizes)(in_ir(make))
