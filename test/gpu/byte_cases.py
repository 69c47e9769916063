"""Cases of check_kernels.py with products of integers, which are exact."""
import numpy as np
from onnx import TensorProto, helper

from block_cases import representable
from kernel_cases import Bounded, case, normal, rng

ROWS = {("x", 0): "rows"}


def draw(kind, *shape):
    return rng.integers(0, 256, shape).astype(np.uint8).view(np.int8 if kind == "s" else np.uint8)


def sums(size):
    """MatMulInteger of (M, K, N, signs of both sides, zero points: a of x, b of w, B of its columns)."""
    m, k, n, signs, zeros = size
    x, w, inputs, weights, names = draw(signs[0], m, k), draw(signs[1], k, n), {}, {}, ["x", "w", "", ""]
    za, zb = np.zeros((), np.uint8), np.zeros((), np.uint8)
    if "a" in zeros:
        za, names[2] = draw(signs[0]), "za"
        inputs["za"] = za
    if "b" in zeros.lower():
        zb = draw(signs[1], n) if "B" in zeros else draw(signs[1])
        weights["zb"], names[3] = zb, "zb"
    while not names[-1]:
        names.pop()
    want = (x.astype(int) - za.astype(int)) @ (w.astype(int) - zb.astype(int))
    return [helper.make_node("MatMulInteger", names, ["y"])], {"x": x} | inputs, {"w": w} | weights, {"y": want.astype(np.int32)}


# Groups of 16, stages of 64 and panels of 32 columns end anywhere; tiles of 32, 64 and 128 rows, of 64 and 128 columns.
@case("bytes", (9, 1, 1, "us", ""), (31, 15, 31, "us", "a"), (32, 16, 32, "us", "aB"), (33, 17, 33, "uu", "ab"), (40, 63, 63, "ss", "a"),
      (10, 64, 64, "su", "aB"), (35, 65, 65, "us", "ab"), (64, 130, 7, "uu", ""), (65, 208, 100, "us", "aB"), (12, 80, 2, "ss", "aB"))
@case("bytes", (1, 64, 33, "us", "a"), (2, 16, 8, "us", "aB"), (3, 15, 31, "uu", "ab"), (4, 400, 9, "su", "aB"), (5, 17, 40, "us", "b"),
      (7, 1, 1, "us", "a"), (8, 1040, 32, "ss", "aB"), (1, 33, 4300, "us", "a"), (8, 2064, 6, "us", "aB"))
@case("bytes_large", (260, 64, 2112, "us", "aB"), (97, 17, 16896, "us", ""), (98, 208, 16897, "us", "aB"))
def integers(size):
    return sums(size)


@case("bytes", *((m, 80, 40, "us", "aB") for m in (0, 1, 2, 4, 5, 8, 9, 33)), free=ROWS)
def open_integers(size):
    return sums(size)


@case("bytes", (2, 3, 33, 17, 18, "us", "a"), (1, 2, 5, 16, 33, "uu", "aB"), (0, 2, 5, 16, 33, "us", ""), (3, 1, 70, 80, 8, "ss", "ab"), free={("x", 0): "b", ("w", 0): "b"})
@case("bytes", (2, 2, 33, 17, 18, "us", "a"), free={("x", 2): "m", ("x", 3): "k", ("w", 2): "k", ("w", 3): "n"})
def computed(size):
    """Both sides come from outside, with a matrix for each of two leading dimensions."""
    *batch, m, k, n, signs, zeros = size
    x, w = draw(signs[0], *batch, m, k), draw(signs[1], *batch, k, n)
    za = draw(signs[0]) if "a" in zeros else np.zeros((), np.int8)
    zb = draw(signs[1], n) if "B" in zeros else draw(signs[1]) if "b" in zeros else np.zeros((), np.int8)
    names = ["x", "w"] + ["za" if "a" in zeros else ""] * bool(zeros) + ["zb"] * ("b" in zeros.lower())
    inputs = {"x": x, "w": w} | ({"za": za} if "a" in zeros else {}) | ({"zb": zb} if "b" in zeros.lower() else {})
    want = (x.astype(int) - za.astype(int)) @ (w.astype(int) - zb.astype(int))
    return [helper.make_node("MatMulInteger", names, ["y"])], inputs, {}, {"y": want.astype(np.int32)}


@case("bytes", *((m, 48, n) for m in (1, 5, 40) for n in (40, 35)))
def requantised(size):
    """QLinearMatMul; scales are powers of two, so that the next quantisation is exact."""
    m, k, n = size
    x, w, zb = draw("u", m, k), draw("s", k, n), draw("s", n)
    weights = {"w": w, "xs": np.float32(0.25), "xz": np.uint8(131), "ws": np.full(n, 0.125, np.float32), "wz": zb, "ys": np.float32(16), "yz": np.uint8(120)}
    total = ((x.astype(int) - 131) @ (w.astype(int) - zb.astype(int))) * (0.25 * 0.125 / 16)
    want = np.clip(np.rint(total) + 120, 0, 255).astype(np.uint8)
    return [helper.make_node("QLinearMatMul", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"])], {"x": x}, weights, {"y": want}


@case("bytes", (1, 70, 50), (6, 64, 36), (33, 70, 50), (34, 96, 68))
def dynamic(size):
    """What quantize_dynamic makes, with a bias, ReLU and a residual."""
    m, k, n = size
    x, r, w = normal(m, k), normal(m, n), draw("s", k, n)
    ws, bias = rng.uniform(0.01, 0.02, n).astype(np.float32), normal(n)
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = np.float32((high - low) / np.float32(255))
    zero = np.clip(np.rint(-low / scale), 0, 255)
    q = np.clip(np.rint(x / scale) + zero, 0, 255)
    total = (q.astype(int) - int(zero)) @ w.astype(int)
    want = np.maximum(total * (scale * ws).astype(float) + bias, 0) + r
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"]),
             helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT), helper.make_node("Mul", ["s", "ws"], ["t"]),
             helper.make_node("Mul", ["f", "t"], ["p"]), helper.make_node("Add", ["p", "b"], ["c"]),
             helper.make_node("Relu", ["c"], ["d"]), helper.make_node("Add", ["d", "r"], ["y"])]
    return nodes, {"x": x, "r": r}, {"w": w, "ws": ws, "b": bias}, {"y": Bounded(want.astype(np.float32).astype(float), 1e-5 * np.abs(total * scale * 0.02))}


@case("bytes", (1, 90, 34), (33, 90, 65), (34, 64, 32), flags=["--precision=int8"])
def rounded_rows(size):
    """Rows and columns that codes of 8 bits hold, to a scale's rounding."""
    m, k, n = size
    nodes, inputs, weights, _ = representable((m, k, n, k, 8))
    codes = rng.integers(-127, 128, (m, k))
    codes[:, 0] = 127
    x = (codes * (rng.uniform(0.5, 1, (m, 1)) / 127)).astype(np.float32)
    total = x.astype(float) @ weights["w"] + weights["b"]
    return nodes, {"x": x}, weights, {"y": Bounded(total.astype(np.float32), 1e-6 * (np.abs(x.astype(float)) @ np.abs(weights["w"])))}


@case("bytes", (2, 90, 34), (34, 64, 32), flags=["--precision=int8"])
def not_finite(size):
    """A row that has an infinity or a NaN gives NaN, and no other row knows of it."""
    nodes, inputs, weights, outputs = rounded_rows(size)
    x, y = inputs["x"], outputs["y"]
    x[0, 7], x[1, 3] = -np.inf, np.nan
    y.want[:2] = np.nan
    if len(x) > 2:
        x[2, :2], y.want[2] = np.inf, np.nan
    return nodes, inputs, weights, outputs


@case("bytes", (1, 90, 34), (33, 96, 65), flags=["--precision=int8"])
def rounded_half_rows(size):
    """Rows and columns of f16 that codes of 8 bits hold: whole numbers up to 127, and powers of two."""
    m, k, n = size
    draw = lambda *shape: rng.integers(-127, 128, shape)
    x, w, bias = draw(m, k), draw(k, n), normal(n).astype(np.float16)
    x[:, 0], w[0], w[:, 3] = 127, -127, 0
    x, w = x * np.exp2(rng.integers(-9, -5, (m, 1))), w * np.exp2(rng.integers(-9, -5, n))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
    total = x @ w + bias.astype(float)
    inputs, weights = {"x": x.astype(np.float16)}, {"w": w.astype(np.float16), "b": bias}
    return nodes, inputs, weights, {"y": Bounded(total.astype(np.float16), 2e-3 * np.abs(total) + 2e-3, np.float16)}
