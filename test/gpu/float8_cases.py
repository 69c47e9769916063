"""Cases of check_kernels.py with weights of float8e4m3fn, which stay in 8 bits."""
import ml_dtypes
import numpy as np
from onnx import helper

from kernel_cases import Bounded, case, normal, rng, rounded

E4M3 = ml_dtypes.float8_e4m3fn
ROWS = {("x", 0): "rows"}


def codes(k, n):
    """Each finite number of e4m3, subnormal ones and zeros of either sign among them, and NaN in the second column."""
    every = np.array([code for code in range(256) if code & 0x7f != 0x7f], np.uint8)
    chosen = rng.choice(every, (k, n))
    chosen.reshape(-1)[:every.size] = every[:chosen.size]
    if n > 1:
        chosen[k // 2, 1] = rng.choice([0x7f, 0xff])
    return chosen.view(E4M3)


def operand(x, few):
    """What the kernels multiply by: rounded where matrix units do it."""
    return np.asarray(x, float) if few else rounded(x)


def dequantised(size, form, half=False):
    """Rows times codes in order `form` with a scale for each column (n), for all (1) or in the way (k), and an epilogue."""
    m, k, n = size
    order, scaled = form
    x, w, bias = normal(m, k), codes(k, n), normal(n)
    scales = {"n": rng.uniform(0.5, 1, n), "1": np.array(0.375), "k": rng.uniform(0.5, 1, k)}[scaled].astype(np.float32) / 64
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["v"], axis=int((order == "kn") == (scaled != "k"))),
             helper.make_node("Transpose", ["v"], ["t"], perm=[1, 0] if order == "nk" else [0, 1]),
             helper.make_node("MatMul", ["x", "t"], ["p"]), helper.make_node("Add", ["p", "b"], ["q"]), helper.make_node("Relu", ["q"], ["y"])]
    if half:
        x, bias, scales = (each.astype(np.float16) for each in (x, bias, scales))
    each = scales.astype(float)[:, None] if scaled == "k" else scales.astype(float)
    few = 0 < m <= 8 or n < 8  # too few for a matrix unit
    want = x.astype(float) if half else operand(x, few)
    want = want @ operand(w.astype(float) * each, few) if scaled == "k" else (want @ w.astype(float)) * each
    want = np.maximum(want + bias.astype(float), 0)
    if half:
        want = Bounded(want.astype(np.float16), 2e-3 * np.abs(want) + 2e-3, np.float16)
    return nodes, {"x": x}, {"w": w if order == "kn" else np.ascontiguousarray(w.T), "s": scales, "b": bias}, {"y": want}


@case("float8", (1, 64, 33), (2, 160, 17), (8, 80, 66), (3, 67, 40), (1, 2064, 24), (9, 80, 40), (33, 112, 63), (65, 67, 70), (130, 96, 129), (40, 64, 6), opset=21)
def columns(size):
    return [dequantised(size, form) for form in (("kn", "n"), ("nk", "n"), ("nk", "1"))]


@case("float8", (1, 64, 33), (8, 160, 17), (40, 80, 66), (130, 160, 129), (34, 67, 40), (257, 80, 260), opset=21)
def half_columns(size):
    return [dequantised(size, form, half=True) for form in (("kn", "n"), ("kn", "1"))]


@case("float8", *((m, 96, 40) for m in (0, 1, 2, 8, 9, 33)), free=ROWS, opset=21)
def open_columns(size):
    return dequantised(size, ("kn", "n"))


@case("float8", (5, 64, 33), (20, 64, 33), opset=21)
def rows_scaled(size):
    """Scales along the sum: what the kernels do not have is written out."""
    return dequantised(size, ("kn", "k"))


@case("float8", (5, 64, 33, 16), (20, 64, 33, 32), opset=21)
def blocks(size):
    """Several scales a column likewise."""
    m, k, n, block = size
    x, w = normal(m, k), codes(k, n)
    scales = (rng.uniform(0.5, 1, (k // block, n)) / 64).astype(np.float32)
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["v"], axis=0, block_size=block), helper.make_node("MatMul", ["x", "v"], ["y"])]
    return nodes, {"x": x}, {"w": w, "s": scales}, {"y": operand(x, m <= 8) @ operand(w.astype(float) * np.repeat(scales.astype(float), block, 0), m <= 8)}


def narrowed(size, half=False):
    """A product by weights that are stored in e4m3, one column of nothing among them, and what comes behind."""
    m, k, n = size
    x, w, bias = normal(m, k), normal(k, n), normal(n)
    w[:, 2] = 0
    w[3, 5] = 1000  # the others of its column are small beside it
    if half:
        x, w, bias = (each.astype(np.float16) for each in (x, w, bias))
    wide = w.astype(np.float32)
    scales = np.abs(wide).max(0) / np.float32(127)
    stored = (wide / np.where(scales, scales, 1)).astype(E4M3).astype(float) * scales.astype(float)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["q"]), helper.make_node("Relu", ["q"], ["y"])]
    want = np.maximum((x.astype(float) if half else operand(x, 0 < m <= 8)) @ stored + bias.astype(float), 0)
    if half:
        want = Bounded(want.astype(np.float16), 2e-3 * np.abs(want) + 2e-3, np.float16)
    return nodes, {"x": x}, {"w": w, "b": bias}, {"y": want}


@case("float8", (1, 90, 34), (8, 96, 40), (33, 90, 65), (40, 96, 130), flags=["--weights=fp8"])
@case("float8", *((m, 96, 40) for m in (0, 1, 9)), flags=["--weights=fp8"], free=ROWS)
def narrowed_weights(size):
    return narrowed(size)


@case("float8", (1, 90, 34), (33, 96, 65), flags=["--weights=fp8"])
def narrowed_halves(size):
    return narrowed(size, half=True)
