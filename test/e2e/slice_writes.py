#!/usr/bin/env python3
"""Assignments to slices, as PyTorch's exporters write them: slice_writes.py DIRECTORY

Writes NAME.onnx, NAME_x.npy, NAME_u.npy and what NumPy makes of them, NAME_y.npy, for each name that it prints. Sizes
are open in the names that end in "_open": places that count from an end are no slice there. The indices of "stored" are
a constant, those of the others are made by Range, Slice, Expand and Concat. What is no slice is there, too: places twice
(the last one counts), places on both sides of 0, backwards, places that are data, sums.
"""
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CASES = {  # the shape, and a slice or a list of places for each of the first dimensions
    "one": ((6, 70), [slice(2, 5)]),
    "all": ((5, 7), [slice(None), slice(None)]),
    "inner": ((3, 9, 300), [slice(0, 3), slice(1, -1), slice(100, 299)]),
    "strided": ((9, 80), [slice(1, None, 2), slice(3, None, 7)]),
    "last": ((4, 200, 5), [slice(None), slice(-100, None)]),
    "one_row": ((4, 200, 5), [slice(2, 3), slice(0, 150)]),
    "empty": ((4, 200), [slice(3, 3), slice(None)]),
    "stored": ((3, 40, 6), [slice(1, 3), slice(4, 40, 3)]),
    "inner_open": ((3, 9, 300), [slice(0, 3), slice(1, -1), slice(100, 299)]),
    "strided_open": ((9, 80), [slice(1, None, 2), slice(3, None, 7)]),
    "last_open": ((4, 200, 5), [slice(None), slice(-100, None)]),
    "empty_open": ((4, 200), [slice(4, None), slice(None)]),
    "twice": ((6, 4), [[1, 2, 1, 2]]),
    "around": ((6, 4), [[-1, 0, 1]]),
    "back": ((6, 4), [[3, 2, 1]]),
    "negative": ((6, 4), [[-3, -2, -1]]),
    "negative_open": ((6, 4), [[-3, -2, -1]]),
    "around_open": ((6, 4), [[-1, 0, 1]]),
    "columns_open": ((4, 9), [slice(None), [-3, -2, -1]]),
    "data": ((6, 4, 33), [[3, 0, 3, 5]]),
    "sums": ((6, 4), [[1, 2, 3]]),
}


def make(name, folder):
    shape, parts = CASES[name]
    isOpen, isStored = name.endswith("_open"), name == "stored"
    rng = np.random.default_rng(len(name))
    nodes, constants, feeds = [], [], {}

    def add(op, inputs, **attributes):
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def constant(value):
        constants.append(numpy_helper.from_array(np.asarray(value, np.int64), f"c{len(constants)}"))
        return constants[-1].name

    places = [np.arange(size)[part] if isinstance(part, slice) else np.array(part) for size, part in zip(shape, parts)]
    lead = [len(p) for p in places]
    grid = np.stack(np.meshgrid(*places, indexing="ij"), -1).astype(np.int64)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [f"n{d}" for d in range(len(shape))] if isOpen else shape)]
    if isStored:
        indices = constant(grid)
    elif name == "data":
        inputs.append(helper.make_tensor_value_info("p", TensorProto.INT64, [len(parts[0]), 1]))
        feeds["p"], indices = grid, "p"
    else:
        sizes, columns = add("Shape", ["x"]), []
        for d, part in enumerate(parts):
            if isinstance(part, slice):
                size = add("Gather", [sizes, constant(d)])
                column = add("Range", [constant(0), size, constant(1)])
                bounds = [part.start or 0, 2**63 - 1 if part.stop is None else part.stop, part.step or 1]
                column = add("Slice", [column, constant(bounds[:1]), constant(bounds[1:2]), constant([0]), constant(bounds[2:])])
            else:
                column = constant(part)
            columns.append(add("Reshape", [column, constant([-1 if e == d else 1 for e in range(len(parts))])]))
        total = columns[0]
        for column in columns[1:]:
            total = add("Add", [total, column])
        around = add("Shape", [total])
        joined = [add("Unsqueeze", [add("Expand", [column, around]), constant([-1])]) for column in columns]
        indices = add("Concat", joined, axis=-1)
    update = lead + list(shape[len(parts):])
    inputs.insert(1, helper.make_tensor_value_info("u", TensorProto.FLOAT, [f"u{d}" for d in range(len(shape))] if isOpen else update))
    x, u = rng.standard_normal(shape, np.float32), rng.standard_normal(update, np.float32)
    nodes.append(helper.make_node("ScatterND", ["x", indices, "u"], ["y"], reduction="add" if name == "sums" else "none"))
    y = x.copy()
    for at in np.ndindex(*lead):
        y[tuple(grid[at])] = u[at] + (y[tuple(grid[at])] if name == "sums" else 0)
    graph = helper.make_graph(nodes, name, inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / f"{name}.onnx")
    for tensor, value in {"x": x, "u": u, "y": y, **feeds}.items():
        np.save(folder / f"{name}_{tensor}.npy", value)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    for name in CASES:
        make(name, folder)
        print(name)
