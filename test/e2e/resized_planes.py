#!/usr/bin/env python3
"""Resize of planes against its formula in float64: resized_planes.py ATTNC ATTN_RUN FOLDER

Known and open sizes, dimensions that grow and shrink, types, scales whose products with sizes are rounded, integers whose
sums lie beyond their type, and an infinity that reaches the outputs around it alone.
"""
import math
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ATTNC, RUN, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
# mode, place, shape, new shape
CASES = [
    ("linear", "half_pixel", (1, 3, 16, 16), (1, 3, 40, 33)), ("linear", "align_corners", (2, 2, 37, 29), (2, 2, 74, 61)),
    ("linear", "asymmetric", (1, 2, 50, 70), (1, 2, 17, 140)), ("linear", "pytorch_half_pixel", (1, 5, 9, 1), (1, 5, 1, 3)),
    ("linear", "half_pixel", (1, 2, 4, 5, 6), (1, 2, 8, 5, 13)), ("linear", "align_corners", (3, 1, 1, 7), (3, 1, 5, 7)),
    ("cubic", "half_pixel", (1, 3, 14, 14), (1, 3, 16, 37)), ("cubic", "align_corners", (1, 2, 40, 40), (1, 2, 13, 55)),
    ("nearest", "asymmetric", (1, 3, 20, 21), (1, 3, 40, 63)), ("nearest", "half_pixel", (2, 2, 33, 17), (2, 2, 11, 40)),
    ("nearest", "align_corners", (1, 1, 5, 300), (1, 1, 9, 100)), ("linear", "half_pixel", (1, 3, 8, 8), (2, 3, 8, 16)),
    # A place between two inputs would be rounded to the next one, were the dimension not the same.
    ("ceil", "tf_half_pixel_for_nn", (1, 2, 6, 5), (1, 2, 6, 12)), ("cubic", "half_pixel", (2, 2, 6, 5), (2, 2, 6, 12)),
]
ROUNDINGS = {"nearest": math.floor, "ceil": math.ceil}
SCALED = [((1, 1, 7, 33), (1, 1, 18, 85)), ((1, 2, 5, 16), (1, 2, 17, 48))]  # 18 / 7 in f32 is below 18 / 7


def places(place, out, size, scale):
    o = np.arange(out, dtype=np.float64)
    if place == "align_corners":
        return o * (size - 1) / (out - 1) if out > 1 else o * 0
    if place == "asymmetric":
        return o / scale
    if place == "pytorch_half_pixel" and out == 1:
        return o - 0.5
    if place == "tf_half_pixel_for_nn":
        return (o + 0.5) / scale
    return (o + 0.5) / scale - 0.5


def weights(mode, at):
    """Rows and weights around a place."""
    if mode in ROUNDINGS:
        return [(ROUNDINGS[mode](at), 1.0)]
    low = math.floor(at)
    t, a = at - low, -0.75
    if mode == "linear":
        return [(low, 1 - t), (low + 1, t)]
    near = lambda x: ((a + 2) * x - (a + 3)) * x * x + 1
    far = lambda x: ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return [(low - 1, far(1 + t)), (low, near(t)), (low + 1, near(1 - t)), (low + 2, far(2 - t))]


def resize(x, mode, place, shape, scales):
    for dim, out in enumerate(shape):
        size = x.shape[dim]
        if out == size and scales[dim] == 1:
            continue
        x = np.moveaxis(x, dim, -1)
        y = np.zeros((*x.shape[:-1], out))
        for o, at in enumerate(places(place, out, size, scales[dim])):
            for row, weight in weights(mode, at):
                y[..., o] += weight * x[..., min(max(row, 0), size - 1)]
        x = np.moveaxis(y, -1, dim)
    return x


def check(name, mode, place, x, shape, by_scales, is_open, flags):
    attributes = {"mode": mode, "coordinate_transformation_mode": place}
    if mode in ROUNDINGS:
        attributes |= {"mode": "nearest", "nearest_mode": ROUNDINGS[mode].__name__}
    scales = [np.float32(to / of) for to, of in zip(shape, x.shape)]
    given = numpy_helper.from_array(np.array(scales) if by_scales else np.array(shape, np.int64), "given")
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    sizes = [f"d{n}" if is_open and n > 1 else size for n, size in enumerate(x.shape)]
    node = helper.make_node("Resize", ["x", "", "given"] if by_scales else ["x", "", "", "given"], ["y"], **attributes)
    graph = helper.make_graph([node], "resize", [helper.make_tensor_value_info("x", kind, sizes)],
                              [helper.make_tensor_value_info("y", kind, [None] * x.ndim)], [given])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), FOLDER / "model.onnx")
    np.save(FOLDER / "x.npy", x)
    subprocess.run([ATTNC, FOLDER / "model.onnx", "-o", FOLDER / "model.so", *flags], check=True)
    subprocess.run([RUN, FOLDER / "model.so", f"--input=x=@{FOLDER}/x.npy", f"--output=y=@{FOLDER}/y.npy"], check=True)
    y = np.load(FOLDER / "y.npy")
    want = resize(x.astype(np.float64), mode, place, shape, [float(s) for s in scales] if by_scales else
                  [to / of for to, of in zip(shape, x.shape)])
    assert y.shape == tuple(shape), (name, y.shape, shape)
    finite = np.isfinite(want)
    assert (np.isfinite(y) == finite).all(), f"{name}: {np.isfinite(y).sum()} finite results, {finite.sum()} expected"
    least = 0
    if x.dtype.kind != "f":
        want, least = np.clip(want, np.iinfo(x.dtype).min, np.iinfo(x.dtype).max), 0 if mode in ROUNDINGS else 1
    eps = np.finfo(x.dtype if x.dtype.kind == "f" else np.float32).eps
    error = np.abs(y[finite].astype(np.float64) - want[finite]).max(initial=0)
    assert error <= least + 16 * eps * np.abs(x[np.isfinite(x)].astype(np.float64)).max(), f"{name}: {error}"


def main():
    np.seterr(invalid="ignore")  # 0 times an infinity
    count = 0
    for n, (mode, place, shape, new) in enumerate(CASES):
        rng = np.random.default_rng(n)
        x = rng.standard_normal(shape).astype(np.float32)
        stained = x.copy()
        stained.flat[x.size // 2] = np.inf
        for is_open in (False, True):
            check(f"case {n}", mode, place, x, new, False, is_open, ["-O0"] if n % 4 == 3 else [])
            check(f"case {n}, inf", mode, place, stained, new, False, is_open, [])
            count += 2
    for n, (shape, new) in enumerate(SCALED):
        x = np.random.default_rng(100 + n).standard_normal(shape)
        for is_open in (False, True):
            for kind in (np.float32, np.float16, np.float64):
                check(f"scales {n} {kind.__name__}", "linear", "half_pixel", x.astype(kind), new, True, is_open, [])
            check(f"scales {n} bytes", "nearest", "asymmetric", (x * 50).astype(np.int8), new, True, is_open, [])
            count += 4
    for kind in (np.uint8, np.int8, np.int16, np.int32):
        ends = np.iinfo(kind)
        x = np.random.default_rng(200).choice(np.array([ends.min, ends.max], kind), (1, 2, 7, 6))
        for mode, is_open in (("cubic", False), ("cubic", True), ("linear", False)):
            check(f"{mode} {kind.__name__}", mode, "half_pixel", x, (1, 2, 11, 17), False, is_open, [])
            count += 1
    print(count, "resized planes agree")


main()
