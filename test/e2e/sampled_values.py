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


def make_batch(images):
    """Scores [image, query, head, sample] beside samples of [image * head, ...]."""
    model, feeds = make(16)
    graph, count = model.graph, len(MAPS) * POINTS
    rng = np.random.default_rng(images)
    for n, image in enumerate(MAPS):
        feeds |= {f"x{n}": rng.standard_normal((images * HEADS, 16, *image)).astype(np.float32),
                  f"g{n}": rng.uniform(-1.2, 1.2, (images * HEADS, QUERIES, POINTS, 2)).astype(np.float32)}
    feeds["s"] = rng.standard_normal((images, QUERIES, HEADS, count)).astype(np.float32)
    del graph.input[:]
    graph.input.extend(helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape)
                       for k, v in feeds.items())
    for node in graph.node:
        if node.op_type == "Softmax":
            node.output[0] = "by_query"
    at = next(i for i, node in enumerate(graph.node) if node.op_type == "Softmax") + 1
    for node in (helper.make_node("Reshape", ["by_head", "flat"], ["p"]),
                 helper.make_node("Transpose", ["by_query"], ["by_head"], perm=[0, 2, 1, 3])):
        graph.node.insert(at, node)
    graph.initializer.append(numpy_helper.from_array(np.array([-1, QUERIES, count], np.int64), "flat"))
    shape = next(t for t in graph.initializer if t.name == "shape")
    shape.CopyFrom(numpy_helper.from_array(np.array([-1, 16, QUERIES, count], np.int64), "shape"))
    graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, QUERIES, 16]))
    return model, feeds


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    made = {f"width_{width}": make(width) for width in WIDTHS}
    made |= {"batch_1": make_batch(1), "batch_3": make_batch(3)}
    for case, (model, feeds) in made.items():
        onnx.save(model, folder / f"{case}.onnx")
        [y] = ReferenceEvaluator(model).run(None, feeds)
        for name, value in {**feeds, "y": y.astype(np.float32)}.items():
            np.save(folder / f"{case}_{name}.npy", value)
        print(case)
