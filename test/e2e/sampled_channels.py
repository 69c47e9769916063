#!/usr/bin/env python3
"""Images of several channels that are sampled at computed places: sampled_channels.py DIRECTORY [ATTN_RUN]

Writes NAME.onnx, NAME_x.npy, NAME_g.npy and what the onnx package makes of them, NAME_y.npy, for each name that it
prints. From eight channels on these are read side by side. Taps of a cubic one each go to the border by themselves, as
PyTorch and ONNX Runtime have it; the onnx package puts the place there first, so that case has a reference of its own.

With ATTN_RUN it samples at places that are NaN, infinite or huge. ONNX does not say what is there. ONNX Runtime reads some
element; PyTorch gives NaN in some modes and an element in others. attnc's results are finite as ONNX Runtime's are: 0
behind zeros, what is at the border, or some element of the image. No other image is read.
"""
import itertools
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

MODES = {"linear": ("linear", "zeros", 0), "border": ("linear", "border", 1), "nearest": ("nearest", "zeros", 0),
         "cubic": ("cubic", "reflection", 0), "taps": ("cubic", "border", 0), "corners": ("cubic", "border", 1)}


def cubic_border(x, g, align):
    """In float64, of images [n, c, height, width]."""
    x, g = x.astype(np.float64), g.astype(np.float64)
    result = np.zeros((*x.shape[:2], *g.shape[1:3]))
    sides = []
    for d, size in ((1, x.shape[2]), (0, x.shape[3])):
        place = (g[..., d] + 1) / 2 * (size - 1) if align else ((g[..., d] + 1) * size - 1) / 2
        first, t = np.floor(place), place - np.floor(place)
        near = lambda s: (1.25 * s - 2.25) * s * s + 1
        far = lambda s: ((-0.75 * s + 3.75) * s - 6) * s + 3
        weights = far(t + 1), near(t), near(1 - t), far(2 - t)
        sides.append([(np.clip(first + k - 1, 0, size - 1).astype(int), w) for k, w in enumerate(weights)])
    for row, u in sides[0]:
        for column, v in sides[1]:
            for n in range(len(x)):
                result[n] += x[n][:, row[n], column[n]] * (u * v)[n]
    return result


def cases():
    for channels in (1, 7, 8, 17):
        yield f"linear_{channels}", "linear", channels, (5, 6), False
    for mode in ("border", "nearest", "cubic", "taps", "corners"):
        yield f"{mode}_16", mode, 16, (5, 6), False
    yield "open_9", "linear", 9, (5, 6), True
    yield "line_8", "linear", 8, (7,), False
    yield "volume_8", "linear", 8, (3, 4, 5), False


def far(folder, attn_run, how, outside, align, channels):
    rng = np.random.default_rng(channels)
    x = np.full((3, channels, 3, 4), np.nan, np.float32)  # those before and behind hold nothing to be read
    x[1] = rng.standard_normal((channels, 3, 4), np.float32)
    values = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 3e9, -1e19, 0.1], np.float32)
    g = np.tile(np.stack(np.meshgrid(values, values), -1), (3, 1, 1, 1))
    node = helper.make_node("GridSample", ["x", "g"], ["y"], mode=how, padding_mode=outside, align_corners=align)
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", x.shape), ("g", g.shape))]
    graph = helper.make_graph([node], "far", tensors, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(model, folder / "far.onnx")
    np.save(folder / "x.npy", x), np.save(folder / "g.npy", g)
    subprocess.run([attn_run, folder / "far.onnx", f"--input=x=@{folder}/x.npy", f"--input=g=@{folder}/g.npy",
                    f"--output=y=@{folder}/y.npy"], check=True, stdout=subprocess.DEVNULL)
    y = np.load(folder / "y.npy")[1]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.isfinite(y).all() and np.isfinite(session.run(None, {"x": x, "g": g})[0][1]).all(), (how, outside, align, y)
    known = np.zeros((channels, 8, 8), bool)
    known[:, -1, -1] = True  # both places are in the image
    want = np.zeros_like(y)
    # As at the border, far outside of it or not: a NaN is in front of the first element.
    clipped = np.nan_to_num(g, nan=-9).clip(-9, 9)
    if outside == "border" and how == "cubic":
        known[:], want = True, cubic_border(x[1:2], clipped[1:2], align)[0]
    else:
        near = helper.make_node("GridSample", ["x", "g"], ["y"], mode=how, align_corners=align,
                                padding_mode="border" if outside == "border" else "zeros")
        graph.node[0].CopyFrom(near)
        want = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)).run(
            None, {"x": x[[1, 1, 1]], "g": clipped})[0][1]  # fmt: skip
        known[:] |= outside != "reflection"
        known[:, -1, -1] = outside != "reflection" or how != "cubic"
    np.testing.assert_allclose(y[known], want[known], rtol=1e-4, atol=1e-4, err_msg=f"{how} {outside} {align} {channels}")
    # Weights of a cubic one sum to 1, and none is above 1 or below -0.15 in a dimension.
    assert np.abs(y).max() <= np.abs(x[1]).max() * (1 if how != "cubic" else 2), (how, outside, align)


if __name__ == "__main__" and len(sys.argv) > 2:
    for case in itertools.product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1), (2, 9)):
        far(pathlib.Path(sys.argv[1]), sys.argv[2], *case)
    print("finite")
elif __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    for name, mode, channels, image, isOpen in cases():
        rng = np.random.default_rng(channels)
        x = rng.standard_normal((2, channels, *image), np.float32)
        g = rng.uniform(-1.3, 1.3, (2, *(4,) * len(image), len(image))).astype(np.float32)
        how, outside, align = MODES[mode]
        node = helper.make_node("GridSample", ["x", "g"], ["y"], mode=how, padding_mode=outside, align_corners=align)
        shapes = [[f"x{d}" for d in range(x.ndim)], [*(f"g{d}" for d in range(g.ndim - 1)), len(image)]] if isOpen else [x.shape, g.shape]
        graph = helper.make_graph([node], name, [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip("xg", shapes)],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        onnx.save(model, folder / f"{name}.onnx")
        if (how, outside) == ("cubic", "border"):
            y = cubic_border(x, g, align)
        else:
            [y] = ReferenceEvaluator(model).run(None, {"x": x, "g": g})
        for tensor, value in {"x": x, "g": g, "y": y.astype(np.float32)}.items():
            np.save(folder / f"{name}_{tensor}.npy", value)
        print(name)
