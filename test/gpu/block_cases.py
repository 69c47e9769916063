"""Cases of check_kernels.py with matrices that are stored in blocks of a few bits."""
import numpy as np
from onnx import helper

from kernel_cases import case, normal, rng

ROWS = {("x", 0): "rows"}


def in_bytes(codes, bits):
    """Codes along the last dimension, the first one in a byte's lowest bits."""
    count = 8 // bits
    codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % count)])
    return sum((codes[..., n::count].astype(int) << bits * n for n in range(count))).astype(np.uint8)


def nbits(size):
    """MatMulNBits of (rows, K, N, block, bits, zero points: none, codes or floats, of f16 or not)."""
    m, k, n, block, bits, kind = size
    blocks = -(-k // block)
    x, codes = normal(m, k), rng.integers(0, 2**bits, (n, k))
    scales = (rng.uniform(0.5, 1, (n, blocks)) / 2**bits).astype(np.float32)
    padded = np.pad(codes, ((0, 0), (0, blocks * block - k))).reshape(n, blocks, block)
    weights = {"w": in_bytes(padded, bits), "s": scales.reshape(-1)}
    zeros = np.full((n, blocks), 2.0**(bits - 1))
    if kind == "codes":
        zeros = rng.integers(0, 2**bits, (n, blocks))
        weights["z"] = in_bytes(zeros, bits).reshape(-1)
    if kind == "floats":
        zeros = rng.uniform(0, 2**bits, (n, blocks)).astype(np.float32)
        weights["z"] = zeros.reshape(-1)
    each = lambda part: np.repeat(part.astype(float), block, 1)[:, :k]
    want = x.astype(float) @ ((codes - each(zeros)) * each(scales)).T
    nodes = [helper.make_node("MatMulNBits", ["x", *weights], ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block)]
    return nodes, {"x": x}, weights, {"y": want}


@case("blocks", (1, 64, 33, 32, 4, "none"), (2, 96, 32, 16, 4, "codes"), (3, 128, 31, 64, 8, "floats"), (7, 256, 1, 128, 4, "codes"),
      (8, 64, 65, 32, 2, "codes"), (5, 72, 40, 32, 4, "none"), (4, 67, 34, 16, 8, "codes"), (2, 2048, 40, 32, 4, "none"),
      (1, 1072, 30, 256, 4, "floats"), (9, 96, 40, 32, 4, "codes"), (40, 67, 70, 16, 8, "none"), (33, 130, 33, 64, 2, "floats"))
def fixed_rows(size):
    return nbits(size)


@case("blocks", *((m, 96, 40, 32, 4, "codes") for m in (0, 1, 2, 3, 4, 5, 8, 9, 33)), free=ROWS)
def open_rows(size):
    return nbits(size)


@case("blocks", (1, 96, 70, 32), (6, 64, 33, 16), (20, 64, 33, 32), opset=21)
def signed_columns(size):
    """K x N in bytes with a sign, and what comes behind the product."""
    m, k, n, block = size
    x, w, bias = normal(m, k), rng.integers(-128, 128, (k, n)).astype(np.int8), normal(n)
    scales = (rng.uniform(0.5, 1, (k // block, n)) / 128).astype(np.float32)
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["v"], axis=0, block_size=block),
             helper.make_node("MatMul", ["x", "v"], ["p"]), helper.make_node("Add", ["p", "b"], ["q"]), helper.make_node("Relu", ["q"], ["y"])]
    want = x.astype(float) @ (w * np.repeat(scales.astype(float), block, 0)) + bias
    return nodes, {"x": x}, {"w": w, "s": scales, "b": bias}, {"y": np.maximum(want, 0)}


def representable(size):
    """A product of f32 by weights that codes of that many bits hold, to a scale's rounding: each block has the largest code."""
    m, k, n, block, bits = size
    most = 2**(bits - 1) - 1
    codes = rng.integers(-most, most + 1, (-(-k // block), block, n))
    codes[:, 0] = most
    weights = (codes * (rng.uniform(0.5, 1, (codes.shape[0], 1, n)) / most)).reshape(-1, n)[:k].astype(np.float32)
    x, bias = normal(m, k), normal(n)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])]
    return nodes, {"x": x}, {"w": weights, "b": bias}, {"y": x.astype(float) @ weights + bias}


@case("blocks", (1, 80, 33, 32, 4), (9, 80, 40, 32, 4), flags=["--weights=int4:32"])
@case("blocks", (3, 80, 33, 16, 8), flags=["--weights=int8:16"])
@case("blocks", (1, 90, 34, 90, 8), (33, 90, 65, 90, 8), flags=["--weights=int8"])
def narrowed(size):
    return representable(size)


@case("blocks", *((m, 80, 33, 32, 4) for m in (0, 1, 8, 9)), free=ROWS, flags=["--weights=int4:32"])
def narrowed_open(size):
    return representable(size)
