#!/usr/bin/env python3
"""Deformable attention, whose queries sample two maps: sampled_values.py DIRECTORY

Writes NAME.onnx, NAME_INPUT.npy and what the onnx package makes of them, NAME_y.npy, for each name that it prints: rows
of one vector or a few, and with a rest.
"""
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

HEADS, QUERIES, POINTS, MAPS = 2, 7, 3, ((5, 6), (3, 4))
WIDTHS = (8, 16, 17, 32, 64, 80)


def make(width):
    rng = np.random.default_rng(width)
    shapes = {"s": (HEADS, QUERIES, len(MAPS) * POINTS)}
    nodes, taken = [], []
    for n, image in enumerate(MAPS):
        shapes |= {f"x{n}": (HEADS, width, *image), f"g{n}": (HEADS, QUERIES, POINTS, 2)}
        nodes += [helper.make_node("GridSample", [f"x{n}", f"g{n}"], [f"t{n}"], mode="linear", align_corners=0),
                  helper.make_node("Unsqueeze", [f"t{n}", "three"], [f"u{n}"])]
        taken.append(f"u{n}")
    nodes += [helper.make_node("Concat", taken, ["v"], axis=3), helper.make_node("Reshape", ["v", "shape"], ["values"]),
              helper.make_node("Softmax", ["s"], ["p"], name="weigh", axis=-1),
              helper.make_node("Unsqueeze", ["p", "one"], ["weights"]),
              helper.make_node("Mul", ["values", "weights"], ["weighed"]),
              helper.make_node("ReduceSum", ["weighed", "last"], ["sum"], keepdims=0),
              helper.make_node("Transpose", ["sum"], ["y"], perm=[0, 2, 1])]
    known = {"three": [3], "one": [1], "last": [-1], "shape": [HEADS, width, QUERIES, len(MAPS) * POINTS]}
    graph = helper.make_graph(
        nodes, "sampled", [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [HEADS, QUERIES, width])],
        [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in known.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    feeds = {k: (rng.uniform(-1.2, 1.2, v) if k[0] == "g" else rng.standard_normal(v)).astype(np.float32)
             for k, v in shapes.items()}
    return model, feeds


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    for width in WIDTHS:
        model, feeds = make(width)
        onnx.save(model, folder / f"width_{width}.onnx")
        [y] = ReferenceEvaluator(model).run(None, feeds)
        for name, value in {**feeds, "y": y.astype(np.float32)}.items():
            np.save(folder / f"width_{width}_{name}.npy", value)
        print(f"width_{width}")
