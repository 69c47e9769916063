"""The cases of check_kernels.py: models of one kernel each, their inputs, weights and outputs in float64."""
import math
import os
import pathlib
import re
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e" / "recurrent"))
import attention_ir  # noqa: E402
from reference import recurrent  # noqa: E402

CASES = {}


def case(family, *sizes, **options):
    def register(function):
        for size in sizes:
            CASES.setdefault(family, []).append((function, size, options))
        return function
    return register


def model(nodes, inputs, outputs, weights=None, opset=18, free=None):
    """`inputs`: name to array; a dimension of `outputs` is free, and those of `inputs` in `free`: (name, axis) to name."""
    types = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16, "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
             "bool": TensorProto.BOOL}
    def value(name, array, isOutput):
        shape = [f"{name}{n}" if isOutput else (free or {}).get((name, n), size) for n, size in enumerate(array.shape)]
        return helper.make_tensor_value_info(name, types[str(array.dtype)], shape)
    graph = helper.make_graph(
        nodes, "g", [value(n, a, False) for n, a in inputs.items()], [value(n, a, True) for n, a in outputs.items()],
        [onnx.numpy_helper.from_array(a, n) for n, a in (weights or {}).items()])
    domains = {"": opset} | {node.domain: 1 for node in nodes if node.domain}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*domain) for domain in domains.items()], ir_version=10)


rng = np.random.default_rng(7)


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


PRECISION, ARCH, BUFFERS = "f32", "sm_80", "f32"


def rounded(x):
    """An operand of a product in float64, as the kernels round it."""
    x = np.asarray(x, np.float32)
    if PRECISION == "f16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(float)
    bits = x.view(np.uint32)
    if PRECISION == "bf16":  # to nearest, ties to even
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000
    if PRECISION == "tf32":  # ties away from zero
        bits = (bits + 0x1000) & 0xffffe000
    return bits.astype(np.uint32).view(np.float32).astype(float)


def factor(rows, columns):
    """How an operand of such a product is rounded: not at all where one side has few."""
    return rounded if min(rows, columns) > 8 else lambda x: x.astype(float)


def stored(w):
    """A weight as the library has it: rounded where products alone read it, and a small one not (it is in the code)."""
    return rounded(w) if PRECISION in ("bf16", "f16") and w.nbytes >= 1024 and w.shape[-1] % 8 == 0 else w.astype(float)


@case("gemm", (40, 72, 24), (10, 33, 40), (33, 24, 48), (100, 136, 17), (12, 264, 32))
@case("warpgroups", (257, 264, 72), (260, 257, 136))
def weights(size):
    """Weights on either side, contiguous along the sum or not: in 16 bits where precision says so."""
    m, n, k = size
    a, w = normal(m, k), normal(k, n)
    want = rounded(a) @ rounded(w)
    def one(equation, left, right, isRight=True):
        names = ["a", "w"] if isRight else ["w", "a"]
        given = dict(zip(names, (np.ascontiguousarray(left), np.ascontiguousarray(right))))
        return [helper.make_node("Einsum", names, ["y"], equation=equation)], {"a": given["a"]}, {"w": given["w"]}, {"y": want}
    return [one("mk,kn->mn", a, w), one("mk,nk->mn", a, w.T), one("mk,nk->mn", a, w.T, False), one("km,kn->mn", a.T, w, False)]


@case("gemm", (3, 11, 24, 18), (2, 9, 13, 40))
def weights_in_batches(size):
    b, m, n, k = size
    x, w = normal(b, m, k), normal(b, k, n)
    one = lambda equation, w: ([helper.make_node("Einsum", ["x", "w"], ["y"], equation=equation)], {"x": x}, {"w": w},
                               {"y": rounded(x) @ rounded(w if equation == "bmk,bkn->bmn" else w.transpose(0, 2, 1))})
    return [one("bmk,bkn->bmn", w), one("bmk,bnk->bmn", np.ascontiguousarray(w.transpose(0, 2, 1)))]


@case("gemm", (33, 260, 136, 16), (34, 256, 129, 24))
def large_tiles_of_weights(size):
    b, m, n, k = size
    x, w, t = normal(b, m, k), normal(k, n), normal(n, k)
    one = lambda equation, w: ([helper.make_node("Einsum", ["x", "w"], ["z"], equation=equation)], {"x": x}, {"w": w},
                               {"z": np.einsum(equation, rounded(x), rounded(w))})
    return [one("bmk,kn->bmn", w), one("bmk,nk->bmn", t)]


@case("gemm", (9, 9, 1), (10, 12, 3), (33, 31, 17), (64, 65, 16), (37, 50, 41), (100, 68, 40))
@case("warpgroups", (257, 260, 100), (256, 259, 65))
def matmul_bias_relu(size):
    m, n, k = size
    a, w, c, r = normal(m, k), normal(k, n), normal(n), normal(m, n)
    nodes = [helper.make_node("MatMul", ["a", "w"], ["p"]), helper.make_node("Add", ["p", "c"], ["q"]),
             helper.make_node("Relu", ["q"], ["s"]), helper.make_node("Add", ["s", "r"], ["y"])]
    want = np.maximum(rounded(a) @ rounded(w) + c, 0) + r
    return nodes, {"a": a, "r": r}, {"w": w, "c": c}, {"y": want}


@case("gemm", (40, 260, 20), (33, 257, 17), (20, 264, 12), (12, 264, 256), opset=20)
def epilogues(size):
    """What cuBLASLt makes in one step, and what it makes a part of where sums are long: GELU by erf, a bias a row, the sum twice."""
    m, n, k = size
    a, w, c, r, row = normal(m, k), normal(k, n), normal(n), normal(m, n), normal(m, 1)
    sum = rounded(a) @ rounded(w)
    gelu = lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    erf = lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))
    product, biased = helper.make_node("MatMul", ["a", "w"], ["p"]), helper.make_node("Add", ["p", "c"], ["q"])
    def one(steps, inputs, weights, want):
        return [product, *steps], {"a": a, **inputs}, {"w": w, **weights}, {"y": want}
    return [one([helper.make_node("Identity", ["p"], ["y"])], {}, {}, sum),
            one([helper.make_node("Add", ["p", "c"], ["y"])], {}, {"c": c}, sum + c),
            one([helper.make_node("Relu", ["p"], ["y"])], {}, {}, np.maximum(sum, 0)),
            one([biased, helper.make_node("Relu", ["q"], ["y"])], {}, {"c": c}, np.maximum(sum + c, 0)),
            one([biased, helper.make_node("Gelu", ["q"], ["y"], approximate="tanh")], {}, {"c": c}, gelu(sum + c)),
            one([biased, helper.make_node("Add", ["r", "q"], ["y"])], {"r": r}, {"c": c}, sum + c + r),
            one([helper.make_node("Mul", ["p", "h"], ["q"]), helper.make_node("Add", ["q", "c"], ["y"])], {},
                {"h": np.float32(0.25), "c": c}, 0.25 * sum + c),
            one([biased, helper.make_node("Gelu", ["q"], ["y"])], {}, {"c": c}, erf(sum + c)),
            one([helper.make_node("Add", ["p", "row"], ["y"])], {"row": row}, {}, sum + row),
            one([helper.make_node("Add", ["p", "p"], ["y"])], {}, {}, sum + sum)]


@case("gemm", (11, 9, 6, 0, 1), (40, 33, 20, 0, 1), (40, 36, 18, 1, 0), (34, 70, 8, 1, 1),
      (33, 257, 6, 0, 1), (10, 260, 9, 1, 0), (12, 300, 7, 1, 1))
@case("warpgroups", (300, 256, 70, 0, 1), (256, 384, 64, 1, 0), (260, 257, 130, 1, 1))
def gemm_transposed(size):
    m, n, k, left, right = size
    a, b, c = normal(*((k, m) if left else (m, k))), normal(*((n, k) if right else (k, n))), normal(n)
    nodes = [helper.make_node("Gemm", ["a", "b", "c"], ["y"], transA=left, transB=right, alpha=0.5)]
    want = 0.5 * (rounded(a.T if left else a) @ rounded(b.T if right else b)) + c
    return nodes, {"a": a, "b": b}, {"c": c}, {"y": want}


@case("gemm", (2, 3, 9, 13, 8), (1, 2, 40, 34, 5))
def heads(size):
    b, h, i, j, d = size
    q, k = normal(b, i, h, d), normal(b, j, h, d)
    nodes = [helper.make_node("Einsum", ["q", "k"], ["y"], equation="bihd,bjhd->bijh")]
    return nodes, {"q": q, "k": k}, {}, {"y": np.einsum("bihd,bjhd->bijh", rounded(q), rounded(k))}


ANY = {("x", 0): "b", ("x", 1): "m", ("x", 2): "k", ("y", 0): "b", ("y", 1): "k", ("y", 2): "n"}


@case("gemm", (2, 12, 40, 17), (1, 33, 9, 33), free=ANY)
@case("gemm", (33, 130, 132, 16), (34, 129, 128, 18))
@case("warpgroups", (66, 256, 256, 68), (2, 300, 270, 260))
def large_tiles(size):
    b, m, n, k = size
    x, y = normal(b, m, k), normal(b, k, n)
    return [helper.make_node("MatMul", ["x", "y"], ["z"])], {"x": x, "y": y}, {}, {"z": rounded(x) @ rounded(y)}


@case("gemv", (1, 1, 1), (1, 31, 3), (1, 32, 16), (1, 33, 17), (2, 64, 100), (3, 68, 128), (4, 100, 40), (5, 7, 3), (7, 36, 300),
      (8, 128, 257), (8, 30, 260))
def few_rows(size):
    """Rows times weights that are contiguous along columns, and a bias."""
    m, n, k = size
    a, w, c = normal(m, k), normal(k, n), normal(n)
    nodes = [helper.make_node("MatMul", ["a", "w"], ["p"]), helper.make_node("Add", ["p", "c"], ["q"]), helper.make_node("Relu", ["q"], ["y"])]
    return nodes, {"a": a}, {"w": w, "c": c}, {"y": np.maximum(a.astype(float) @ stored(w) + c, 0)}


@case("gemv", (1, 1, 4), (1, 15, 32), (1, 16, 256), (1, 17, 260), (2, 33, 30), (3, 40, 31), (4, 16, 512), (6, 9, 516), (8, 65, 44))
def few_rows_by_transposed(size):
    """Weights that are contiguous along the sum; few rows, and few columns; rows that are contiguous and not."""
    m, n, k = size
    a, w, c = normal(m, k), normal(n, k), normal(n)
    one = lambda equation, left, right, want: ([helper.make_node("Einsum", ["a", "b"], ["y"], equation=equation)],
                                               {"a": left, "b": right}, {}, {"y": want})
    product = a.astype(float) @ w.T
    return [([helper.make_node("Gemm", ["a", "w", "c"], ["y"], transB=1)], {"a": a}, {"w": w, "c": c},
             {"y": a.astype(float) @ stored(w).T + c}),
            one("nk,mk->nm", w, a, product.T), one("km,nk->mn", a.T.copy(), w, product), one("kn,km->nm", w.T.copy(), a.T.copy(), product.T)]


@case("gemv", ("bhd,hde->bhe", 1, 3, 20, 24), ("bhd,hed->bhe", 4, 2, 33, 40), ("bhd,ehd->be", 2, 4, 20, 36), ("bhd,dhe->be", 3, 5, 12, 20),
      ("hd,bhde->e", 1, 6, 8, 12), ("bhd,heb->de", 9, 3, 4, 40), ("bd,dhe->beh", 2, 3, 9, 31), ("d,de->e", 1, 1, 70, 64), ("dh,ed->eh", 1, 1, 90, 50))
def orders(size):
    """Batches, sums over several dimensions, in any order of them."""
    equation, *sizes = size
    sizes = dict(zip("bhde", sizes))
    left, right = (normal(*(sizes[letter] for letter in term)) for term in equation.split("->")[0].split(","))
    want = np.einsum(equation, left.astype(float), right)
    return ([helper.make_node("Einsum", ["a", "w"], ["y"], equation=equation)], {"a": left}, {"w": right},
            {"y": Bounded(want, np.abs(want - np.einsum(equation, left.astype(float), stored(right))))})


@case("gemv", (1, 16, 4100), (2, 33, 2048), (3, 20, 2500), (8, 4, 3000))
def long_sums(size):
    """Blocks share a sum; another launch adds their parts."""
    m, n, k = size
    a, w, t, c = normal(m, k), normal(k, n), normal(n, k), normal(n)
    one = lambda **options: ([helper.make_node("Gemm", ["a", "w", "c"], ["y"], **options)], {"a": a})
    return [(*one(), {"w": w, "c": c}, {"y": a.astype(float) @ stored(w) + c}),
            (*one(transB=1), {"w": t, "c": c}, {"y": a.astype(float) @ stored(t).T + c})]


@case("gemm", (33, 36, 20), (10, 33, 17), free={("a", 0): "rows"})
@case("gemv", (1, 40, 64), (3, 33, 70), (8, 36, 100), (9, 36, 100), (2, 20, 2100), (1, 20, 2100), (8, 300, 20), (9, 300, 20), free={("a", 0): "rows"})
def any_rows(size):
    """As many rows as the run has: few, or tiles of them."""
    m, n, k = size
    a, w, c = normal(m, k), normal(k, n), normal(n)
    near = factor(m, n)
    nodes = [helper.make_node("Gemm", ["a", "w", "c"], ["y"])]
    return nodes, {"a": a}, {"w": w, "c": c}, {"y": near(a) @ near(stored(w)) + c}


@case("rows", (2, 3, 5, 1), (4, 130, 66, 2), (4, 140, 64, 3), (4, 140, 64, 4))
@case("rows", (2, 3, 5, 1), (1, 9, 64, 4), free={("x", 0): "b", ("x", 1): "n", ("row", 0): "b", ("more", 0): "b", ("more", 1): "n"})
def side_by_side(size):
    """Ops that do not need each other are one launch; parts of a result are written by 16 bytes where they begin and end so."""
    b, n, d, few = size
    x, row, more, y = normal(b, n, d), normal(b, 1, d), normal(b, n, few), normal(37)
    nodes = [helper.make_node("Concat", ["x", "row"], ["behind"], axis=1), helper.make_node("Concat", ["row", "x"], ["front"], axis=1),
             helper.make_node("Concat", ["x", "more"], ["beside"], axis=2), helper.make_node("Neg", ["y"], ["minus"])]
    want = {"behind": np.concatenate([x, row], 1), "front": np.concatenate([row, x], 1), "beside": np.concatenate([x, more], 2), "minus": -y}
    return nodes, {"x": x, "row": row, "more": more, "y": y}, {}, {name: array.astype(float) for name, array in want.items()}


# Of a warp, of a block; in accesses of 16 bytes, 8 and 4; whole, with idle threads, too long for registers.
ROWS = [(3, 1), (9, 31), (4, 33), (6, 256), (2, 257), (5, 1024), (3, 1025), (2, 1026), (1, 1280), (2, 3000), (1, 16384), (1, 16388), (2, 16385)]
# The last one is misaligned, the one before it too long for registers.
OPEN_ROWS = [(2, 1), (5, 32), (2, 520), (1, 4096), (1, 4104), (2, 4097), (2, 0)]


@case("rows", *ROWS)
@case("rows", *OPEN_ROWS, free={("x", 0): "rows", ("x", 1): "columns"})
def softmax(size):
    x = 3 * normal(*size)
    e = np.exp(x.astype(float) - x.max(-1, keepdims=True, initial=-np.inf))
    want = e / e.sum(-1, keepdims=True)
    nodes = [helper.make_node("Softmax", ["x"], ["y"]), helper.make_node("LogSoftmax", ["x"], ["z"])]
    return nodes, {"x": x}, {}, {"y": want, "z": np.log(want)}


# Every size is open: what a kernel takes of all these buffers must have room in its parameters.
@case("rows", (49, 2, 3, 1, 5), (70, 1, 2, 3, 4), free={(f"x{n}", axis): f"d{axis}" for n in range(70) for axis in range(4)})
def sum_of_many(size):
    count, *shape = size
    inputs = {f"x{n}": normal(*shape) for n in range(count)}
    want = sum(x.astype(float) for x in inputs.values())
    return [helper.make_node("Sum", list(inputs), ["y"])], inputs, {}, {"y": want}


@case("rows", (3, 1), (6, 5), (5, 768), (3, 1500), *ROWS[-4:])
@case("rows", *OPEN_ROWS[:-1], free={("x", 0): "rows", ("x", 1): "columns", ("s", 0): "columns", ("b", 0): "columns"})
def layer_norm(size):
    x, scale, bias = normal(*size) + 10, normal(size[1]), normal(size[1])
    nodes = [helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], epsilon=1e-3)]
    wide = x.astype(float)
    want = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-3) * scale + bias
    given, weights = {"x": x}, {"s": scale, "b": bias}
    return [(nodes, given, weights, {"y": want}), (nodes, given | weights, {}, {"y": want})]


def unit_of_weights(d, e, queries):
    """Half a unit of the last place of weights, and as much again; 0 where they are f32."""
    kind = PRECISION if BUFFERS == "f32" else BUFFERS
    isWarpgroup = kind != "tf32" and ARCH.startswith("sm_90a") and "cc=90" in os.environ.get("ATTN_FAKE_CUDA", "") and queries >= 256
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


class Bounded:
    """Numbers of a type, and how far off they may be beyond the errors of f32."""

    def __init__(self, want, slack, dtype=np.float32):
        self.want, self.slack, self.dtype = want, slack, dtype


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
    seen = rng.random((size[3], size[4])) < 0.6
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
    seen = rng.random((size[3], size[4])) < 0.6
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
    if BUFFERS == "bf16":
        text = re.sub(r"\bf16|(?<=x)f16", "bf16", text)
    def stored(x):
        with np.errstate(invalid="ignore"):
            want, slack = (x.want, x.slack) if isinstance(x, Bounded) else (x, 0)
            return Bounded(want, slack + (2.0 ** -8 if BUFFERS == "bf16" else 2.0 ** -11) * np.where(np.isfinite(want), abs(want), 0))
    return text, inputs, weights, {name: stored(x) for name, x in outputs.items()}


def in_ir(make):
    def built(size):
        units, isHalf = unit_of_weights(size[5], size[6], size[3]), BUFFERS != "f32"
        made = make(attention_ir.Maker(rng, size[:7], *((to_both_halves, np.float16) if isHalf else (rounded,))), *size[7:])
        made = [narrow(one, units) if isinstance(one, attention_ir.Attention) else (*one[:3], {"y0": Bounded(*one[3])}) for one in made]
        return [in_half(*one) for one in made] if isHalf else made
    built.__name__ = make.__name__
    return built


for make, family, sizes in attention_ir.CASES:
    case(family, *sizes)(in_ir(make))


# Operator, direction, steps, items, inputs, units; options: b(ias), l(engths), s(tates), p(eepholes), c(lip), t(ime is
# the second dimension), r(eset after the product), f(orget gate is 1 - i), a(ctivations of its own), d(ynamic sizes).
# Few processors, little shared memory: several units, or no weights, a block.
@case("recurrent", ("LSTM", "forward", 7, 1, 5, 20, "b"), ("GRU", "forward", 5, 3, 4, 33, "bs"),
      ("RNN", "reverse", 6, 2, 3, 70, "ba"), ("LSTM", "bidirectional", 6, 3, 5, 33, "blspcd"),
      ("GRU", "bidirectional", 5, 3, 4, 17, "blsdt"), ("GRU", "reverse", 4, 5, 3, 9, "blsr"),
      ("LSTM", "reverse", 5, 6, 3, 12, "blsftca"), ("GRU", "forward", 1, 2, 4, 10, "bs"),
      ("LSTM", "forward", 1, 1, 4, 65, "bs"), ("GRU", "forward", 1, 5, 4, 36, "bsrd"), ("RNN", "forward", 3, 4, 2, 1, ""),
      ("LSTM", "forward", 0, 2, 3, 8, "bs"), ("LSTM", "forward", 0, 2, 3, 8, "bsd"), ("GRU", "bidirectional", 3, 0, 3, 8, "bsd"),
      ("GRU", "forward", 2, 1, 3, 256, ""), ("LSTM", "forward", 2, 1, 3, 192, ""))  # 48 KiB of weights a block, no more
@case("recurrent", ("LSTM", "forward", 4, 2, 3, 150, "bs"), ("GRU", "bidirectional", 3, 2, 3, 130, "bsl"), fake="processors=3")
@case("recurrent", ("LSTM", "forward", 4, 13, 3, 24, "bsl"), ("GRU", "bidirectional", 4, 9, 3, 18, "bs"), fake="processors=9,seed=4")
@case("recurrent", ("LSTM", "bidirectional", 3, 2, 3, 66, "bs"), ("GRU", "forward", 4, 5, 3, 40, "bs"), fake="shared=4000,seed=9")
@case("recurrent", ("LSTM", "forward", 3, 2, 3, 260, "bs"), fake="processors=40,seed=2")
def layer(size):
    op, direction, steps, batch, inputs, hidden, options = size
    gates, directions = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], 1 + (direction == "bidirectional")
    functions = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}[op]
    if "a" in options:
        functions = {"RNN": ["Relu"], "LSTM": ["HardSigmoid", "Softsign", "Tanh"]}[op]
    how = dict(op=op, direction=direction, layout=int("t" in options), clip=0.7 if "c" in options else None,
               linear_before_reset=int("r" in options), input_forget=int("f" in options),
               activations=[(name, 0.2, 0.5) for name in functions] * directions)
    state = (batch, directions, hidden) if "t" in options else (directions, batch, hidden)
    x = normal(*((batch, steps, inputs) if "t" in options else (steps, batch, inputs)))
    w, r = normal(directions, gates * hidden, inputs), normal(directions, gates * hidden, hidden) / np.float32(hidden ** 0.5)
    operands = {"x": x, "w": w, "r": r, "b": normal(directions, 2 * gates * hidden) if "b" in options else None,
                "lens": rng.integers(1, steps + 1, batch).astype(np.int32) if "l" in options else None,
                "h": normal(*state) if "s" in options else None,
                "c": normal(*state) if "s" in options and op == "LSTM" else None,
                "p": normal(directions, 3 * hidden) if "p" in options else None}
    attributes = dict(hidden_size=hidden, direction=direction, activations=functions * directions, layout=how["layout"])
    attributes |= {"clip": 0.7} if "c" in options else {}
    attributes |= {"linear_before_reset": 1} if "r" in options else {}
    attributes |= {"input_forget": 1} if "f" in options else {}
    names = ["y", "last_h", "last_c"][:2 + (op == "LSTM")]
    given = [name if array is not None else "" for name, array in operands.items()][:8 if op == "LSTM" else 6]
    nodes = [helper.make_node(op, given, names, **attributes)]
    arrays = {name: array for name, array in operands.items() if array is not None}
    want = recurrent(how, *operands.values())
    weights = {name: arrays.pop(name) for name in ("w", "r", "b", "p") if name in arrays}
    return nodes, arrays, weights, dict(zip(names, want))


@case("rows", (64, 512, "float32"), (65, 504, "float32"), (64, 520, "float16"), (33, 1000, "float16"), (70, 513, "float32"), (3, 8, "float32"),
      free={("x", 0): "rows"})
def wide_elements(size):
    """So many elements that a thread takes 16 bytes, or too few; operands by rows, columns, turned round; bytes and words."""
    m, n, kind = size
    x, t, row, column = (rng.standard_normal(shape).astype(kind) for shape in ((m, n), (n, m), (m, 1), (n,)))
    nodes = [helper.make_node("Transpose", ["t"], ["u"], perm=[1, 0]), helper.make_node("Max", ["x", "u"], ["a"]),
             helper.make_node("Max", ["a", "row"], ["b"]), helper.make_node("Max", ["b", "column"], ["y"]),
             helper.make_node("Less", ["x", "row"], ["l"]), helper.make_node("Where", ["l", "row", "x"], ["z"])]
    want = {"y": np.maximum.reduce([x, t.T, np.broadcast_to(row, (m, n)), np.broadcast_to(column, (m, n))]),
            "z": np.where(x < row, row, x)}
    return nodes, {"x": x, "t": t, "row": row}, {"column": column}, {k: Bounded(v.astype(float), 0, x.dtype) for k, v in want.items()}


# Of "d": the number of items, and of steps.
SIZES = {("x", 0): "steps", ("x", 1): "items", ("lens", 0): "items", ("h", 1): "items", ("c", 1): "items"}
TURNED = {("x", 0): "items", ("x", 1): "steps", ("lens", 0): "items", ("h", 0): "items", ("c", 0): "items"}


HOST = {"flags": ["--allow-host-ops"]}


def entry_of(operands, result, body):
    """A function in IR, of f32 or f64 tensors by name."""
    kind = lambda shape, element="f32": f"tensor<{'x'.join(map(str, shape))}x{element}>"
    named = ", ".join(f'%{name}: {kind(*shape)} {{attn.name = "{name}"}}' for name, shape in operands.items())
    results = ", ".join(f'{kind(*shape)} {{attn.name = "{name}"}}' for name, shape in result.items())
    body = re.sub(r"<(\w+(?:x\w+)*):(f\d+)>", r"tensor<\1x\2>", body)
    return f"func.func @main({named}) -> ({results}) attributes {{attn.entry}} {{\n{body}\n}}\n"


CUBE_ROOT = "math.cbrt"  # of f64, which no operator of ONNX asks for and a GPU has no code for


@case("host", (3, 5, 4), (40, 33, 7), **HOST)
def cube_root_between_products(size):
    """A function without code for a GPU: two copies around it."""
    m, n, k = size
    x, w, v = normal(m, k), normal(k, n), normal(n, k)
    body = f"""
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : <{m}x{n}:f32>
  %f = linalg.fill ins(%zero : f32) outs(%e : <{m}x{n}:f32>) -> <{m}x{n}:f32>
  %p = linalg.matmul ins(%x, %w : <{m}x{k}:f32>, <{k}x{n}:f32>) outs(%f : <{m}x{n}:f32>) -> <{m}x{n}:f32>
  %s = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}} ins(%p : <{m}x{n}:f32>) outs(%e : <{m}x{n}:f32>) {{
  ^bb0(%a: f32, %o: f32):
    %wide = arith.extf %a : f32 to f64
    %root = {CUBE_ROOT} %wide : f64
    %r = arith.truncf %root : f64 to f32
    linalg.yield %r : f32
  }} -> <{m}x{n}:f32>
  %g = tensor.empty() : <{m}x{k}:f32>
  %h = linalg.fill ins(%zero : f32) outs(%g : <{m}x{k}:f32>) -> <{m}x{k}:f32>
  %y = linalg.matmul ins(%s, %v : <{m}x{n}:f32>, <{n}x{k}:f32>) outs(%h : <{m}x{k}:f32>) -> <{m}x{k}:f32>
  return %y : <{m}x{k}:f32>"""
    text = entry_of({"x": [(m, k)], "w": [(k, n)], "v": [(n, k)]}, {"y": [(m, k)]}, body)
    return text, {"x": x, "w": w, "v": v}, {}, {"y": np.cbrt(x.astype(float) @ w) @ v}


@case("host", (6, 9), (2, 3000), free={("x", 0): "rows", ("x", 1): "columns"}, **HOST)
def remainder_of_a_part(size):
    """On a view of a buffer, of open sizes; one operand is a table of constants."""
    x = 10 * normal(*size)
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Slice", ["a", "one", "last", "axis"], ["b"]),
             helper.make_node("Mod", ["b", "c"], ["y"], fmod=1), helper.make_node("Neg", ["a"], ["z"])]
    weights = {"c": np.float32([0.75]), "one": np.array([1]), "last": np.array([2**40]), "axis": np.array([1])}
    return nodes, {"x": x}, weights, {"y": np.fmod(np.abs(x)[:, 1:], np.float32(0.75)), "z": -np.abs(x)}


@case("host", (5, 7), **HOST)
def cube_root_in_a_loop(size):
    steps, n = size
    x = np.float64(normal(steps, n))
    body = f"""
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %steps = arith.constant {steps} : index
  %y = scf.for %i = %c0 to %steps step %c1 iter_args(%s = %z) -> (<{n}:f64>) {{
    %row = tensor.extract_slice %x[%i, 0] [1, {n}] [1, 1] : <{steps}x{n}:f64> to <{n}:f64>
    %e = tensor.empty() : <{n}:f64>
    %t = linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
        iterator_types = ["parallel"]}} ins(%row, %s : <{n}:f64>, <{n}:f64>) outs(%e : <{n}:f64>) {{
    ^bb0(%a: f64, %b: f64, %o: f64):
      %root = {CUBE_ROOT} %a : f64
      %sum = arith.addf %root, %b : f64
      linalg.yield %sum : f64
    }} -> <{n}:f64>
    scf.yield %t : <{n}:f64>
  }}
  return %y : <{n}:f64>"""
    text = entry_of({"z": [(n,), "f64"], "x": [(steps, n), "f64"]}, {"y": [(n,), "f64"]}, body)
    return text, {"z": np.zeros(n), "x": x}, {}, {"y": np.cbrt(x).sum(0)}


@case("host", (5, 0), (5, 1))
def choice_of_buffers(size):
    """If: a buffer of the device or a table of constants; neither is touched by the CPU."""
    n, flag = size
    x, table = normal(n), np.arange(n, dtype=np.float32)
    value = onnx.numpy_helper.from_array(table, "v")
    branches = {f"{key}_branch": helper.make_graph([node], key, [], [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [n])])
                for key, node in (("then", helper.make_node("Neg", ["x"], ["t"])), ("else", helper.make_node("Constant", [], ["e"], value=value)))}
    nodes = [helper.make_node("If", ["c"], ["h"], **branches), helper.make_node("Sub", ["h", "x"], ["y"])]
    return nodes, {"c": np.array(bool(flag)), "x": x}, {}, {"y": (-x if flag else table).astype(float) - x}
