"""Cases of check_kernels.py with products of f32: in tiles, of few rows, and what comes behind them."""
import math

import numpy as np
from onnx import helper

from kernel_cases import Bounded, case, factor, normal, rounded, stored


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
