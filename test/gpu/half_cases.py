"""Cases of check_kernels.py on buffers of f16 and bf16. Products of those are exact, sums are in f32."""
import math

import ml_dtypes
import numpy as np
from onnx import helper

from kernel_cases import Bounded, case, factor, normal
from row_cases import OPEN_ROWS, ROWS


def halves(make):
    """Each case with buffers of f16 and of bf16."""
    def built(size):
        return [one for kind in (np.float16, ml_dtypes.bfloat16) for one in make(size, kind)]
    built.__name__ = make.__name__
    return built


def in_steps(kind, *values):
    """The last of `values`, each of which the graph rounds; what rounds them adds up."""
    unit = 2.0 ** -11 if kind is np.float16 else 2.0 ** -8
    return Bounded(values[-1], unit * sum(map(np.abs, values)), kind)


@case("half", (9, 9, 1), (10, 33, 40), (40, 72, 24), (31, 64, 33), (33, 40, 32), (100, 136, 72), (34, 63, 66))
@case("half_warpgroups", (257, 264, 72), (260, 257, 136))
@halves
def half_orders(size, kind):
    """Both factors along the sum or across it, in aligned groups of 8 and not."""
    m, n, k = size
    a, b = normal(m, k).astype(kind), normal(k, n).astype(kind)
    want = in_steps(kind, a.astype(float) @ b.astype(float))
    one = lambda equation, *factors: ([helper.make_node("Einsum", ["a", "b"], ["y"], equation=equation)],
                                      dict(zip("ab", map(np.ascontiguousarray, factors))), {}, {"y": want})
    return [one("mk,kn->mn", a, b), one("mk,nk->mn", a, b.T), one("km,kn->mn", a.T, b), one("km,nk->mn", a.T, b.T)]


@case("half", (33, 520, 24), (31, 65, 24), opset=20)
@case("half_warpgroups", (256, 259, 65), opset=20)
@halves
def half_epilogues(size, kind):
    """What cuBLASLt makes in one step, and a near miss: an addend after the activation."""
    m, n, k = size
    a, w, c, r = (normal(*shape).astype(kind) for shape in ((m, k), (k, n), (n,), (m, n)))
    p = a.astype(float) @ w.astype(float)
    q, s = p + c.astype(float), np.maximum(p + c.astype(float), 0)
    t = q + r.astype(float)
    gelu = 0.5 * q * (1 + np.tanh(np.sqrt(2 / np.pi) * (q + 0.044715 * q**3)))
    start = [helper.make_node("MatMul", ["a", "w"], ["p"]), helper.make_node("Add", ["p", "c"], ["q"])]
    relu, add = helper.make_node("Relu", ["q"], ["s"]), lambda term: helper.make_node("Add", [term, "r"], ["y"])
    one = lambda steps, inputs, *values: ([*start, *steps], {"a": a, **inputs}, {"w": w, "c": c}, {"y": in_steps(kind, *values)})
    return [one([add("q")], {"r": r}, p, q, t),
            one([helper.make_node("Gelu", ["q"], ["y"], approximate="tanh")], {}, 1.2 * p, 1.2 * q, gelu),  # its slope is less
            one([relu, add("s")], {"r": r}, p, q, s + r.astype(float))]


@case("half", (9, 520, 255), (12, 528, 256), (33, 515, 264), opset=20)
@case("half_warpgroups", (257, 520, 264), (257, 520, 384), opset=20)
@halves
def half_long_sums(size, kind):
    """From sums of 256 or 384 on cuBLASLt makes what it can of an epilogue, and a launch in place the rest: an activation that it
    does not have, with other operands, or an addend behind one."""
    m, n, k = size
    a, w, c, r, row = (normal(*shape).astype(kind) for shape in ((m, k), (k, n), (n,), (m, n), (m, 1)))
    p = a.astype(float) @ (w := (w.astype(float) / 16).astype(kind)).astype(float)
    q = p + c.astype(float)
    gelu, relu = 0.5 * q * (1 + np.vectorize(math.erf)(q / np.sqrt(2))), np.maximum(q, 0)
    start = [helper.make_node("MatMul", ["a", "w"], ["p"]), helper.make_node("Add", ["p", "c"], ["q"])]
    one = lambda steps, inputs, *values: ([*start, *steps], {"a": a, **inputs}, {"w": w, "c": c}, {"y": in_steps(kind, *values)})
    return [one([helper.make_node("Gelu", ["q"], ["y"])], {}, 1.2 * p, 1.2 * q, gelu),
            one([helper.make_node("Gelu", ["q"], ["s"]), helper.make_node("Add", ["s", "row"], ["t"]), helper.make_node("Add", ["r", "t"], ["y"])],
                {"r": r, "row": row}, 1.2 * p, 1.2 * q, gelu, gelu + row.astype(float), gelu + row.astype(float) + r.astype(float)),
            one([helper.make_node("Relu", ["q"], ["s"]), helper.make_node("Mul", ["s", "r"], ["y"])], {"r": r},
                r.astype(float) * p, r.astype(float) * q, relu * r.astype(float))]


@case("half", (33, 136, 264, 40), (33, 130, 257, 18))
@halves
def half_large_tiles(size, kind):
    b, m, n, k = size
    x, w = normal(b, m, k).astype(kind), normal(k, n).astype(kind)
    return [([helper.make_node("MatMul", ["x", "w"], ["z"])], {"x": x}, {"w": w},
             {"z": in_steps(kind, x.astype(float) @ w.astype(float))})]


@case("half", (1, 1, 1), (1, 31, 3), (1, 72, 264), (2, 33, 30), (4, 40, 64), (8, 65, 260), (1, 16, 4104))
@halves
def half_few_rows(size, kind):
    """Weights that are contiguous along columns and along the sum, few columns."""
    m, n, k = size
    a, w, c = (normal(*shape).astype(kind) for shape in ((m, k), (k, n), (n,)))
    product = a.astype(float) @ w.astype(float)
    gemm = lambda w, **options: ([helper.make_node("Gemm", ["a", "w", "c"], ["y"], **options)], {"a": a}, {"w": w, "c": c},
                                 {"y": in_steps(kind, product, product + c.astype(float))})
    turned = np.ascontiguousarray(w.T)
    return [gemm(w), gemm(turned, transB=1),
            ([helper.make_node("Einsum", ["b", "a"], ["y"], equation="nk,mk->nm")], {"b": turned, "a": a}, {},
             {"y": in_steps(kind, product.T)})]


@case("half", (0, 16, 8), (3, 40, 24), (33, 16, 0), (40, 33, 17), free={("a", 0): "rows", ("a", 1): "inner", ("b", 0): "inner"})
@halves
def half_any_size(size, kind):
    m, n, k = size
    a, b = normal(m, k).astype(kind), normal(k, n).astype(kind)
    return [([helper.make_node("MatMul", ["a", "b"], ["y"])], {"a": a, "b": b}, {},
             {"y": in_steps(kind, a.astype(float) @ b.astype(float))})]


@case("half", (20, 40, 24), (3, 33, 17), (2, 16, 40))
@halves
def half_by_f32(size, kind):
    """A factor of 16 bits and one of f32."""
    m, n, k = size
    a, b = normal(m, k).astype(kind), normal(k, n)
    name = "f16" if kind is np.float16 else "bf16"
    text = f"""
      func.func @main(%a: tensor<{m}x{k}x{name}> {{attn.name = "a"}}, %b: tensor<{k}x{n}xf32> {{attn.name = "b"}})
          -> (tensor<{m}x{n}xf32> {{attn.name = "y"}}) attributes {{attn.entry}} {{
        %zero = arith.constant 0.0 : f32
        %empty = tensor.empty() : tensor<{m}x{n}xf32>
        %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
        %y = linalg.matmul ins(%a, %b : tensor<{m}x{k}x{name}>, tensor<{k}x{n}xf32>) outs(%zeros : tensor<{m}x{n}xf32>)
            -> tensor<{m}x{n}xf32>
        return %y : tensor<{m}x{n}xf32>
      }}"""
    near = factor(m, n)
    return [(text, {"a": a, "b": b}, {}, {"y": near(a.astype(np.float32)) @ near(b)})]


@case("half", (2, 3, 8, 12, 4), (1, 2, 6, 9, 3))
@case("half", (2, 3, 8, 12, 4), free={("x", 0): "images"})
@halves
def half_patches(size, kind):
    """Halves are widened for a convolution alone, whose result is rounded and turned: they are multiplied as they are."""
    images, channels, side, features, patch = size
    x, w = normal(images, channels, side, side).astype(kind), normal(features, channels, patch, patch).astype(kind)
    cast = lambda name, made, to: helper.make_node("Cast", [name], [made], to=to)
    narrow = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [cast("x", "wide", 1), cast("w", "wide_w", 1), helper.make_node("Conv", ["wide", "wide_w"], ["made"], strides=[patch, patch]),
             cast("made", "halves", narrow), helper.make_node("Transpose", ["halves"], ["y"], perm=[0, 2, 3, 1])]
    tiles = x.astype(float).reshape(images, channels, side // patch, patch, side // patch, patch)
    want = in_steps(kind, np.einsum("bcipjq,fcpq->bijf", tiles, w.astype(float)))
    return [(nodes, {"x": x}, {"w": w}, {"y": want})]


@case("half", *ROWS)
@case("half", *OPEN_ROWS, free={("x", 0): "rows", ("x", 1): "columns"})
@halves
def half_softmax(size, kind):
    x = (3 * normal(*size)).astype(kind)
    e = np.exp(x.astype(float) - x.astype(float).max(-1, keepdims=True, initial=-np.inf))
    want = e / e.sum(-1, keepdims=True)
    nodes = [helper.make_node("Softmax", ["x"], ["y"]), helper.make_node("LogSoftmax", ["x"], ["z"])]
    return [(nodes, {"x": x}, {}, {"y": in_steps(kind, want), "z": in_steps(kind, np.log(want))})]


@case("half", (3, 1), (6, 5), (5, 768), (3, 1500), (2, 1600))
@halves
def half_layer_norm(size, kind):
    x, scale, bias = (normal(*size) + 10).astype(kind), normal(size[1]).astype(kind), normal(size[1]).astype(kind)
    nodes = [helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], epsilon=1e-3)]
    wide = x.astype(float)
    unit = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-3)
    want = unit * scale.astype(float) + bias.astype(float)
    return [(nodes, {"x": x}, {"s": scale, "b": bias}, {"y": in_steps(kind, want)})]
