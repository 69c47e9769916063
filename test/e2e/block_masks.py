#!/usr/bin/env python3
"""Masks that hide keys by blocks: block_masks.py DIRECTORY KIND...

Writes KIND.onnx, KIND_q.npy, KIND_k.npy, KIND_v.npy and what NumPy makes of them in
fp64, KIND_y.npy; values that no query sees are NaN.
"""
import sys

import numpy as np

HEADS, WIDTH = 2, 8
INFINITY, LEAST = np.float32(-np.inf), np.finfo(np.float32).min


def sizes(kind):
    """Positions and the size of blocks."""
    return (333, 20) if kind == "ragged" else (384, 32)


def visible(kind):
    """Which keys each query sees: [heads or 1, n, n]."""
    n, block = sizes(kind)
    i, j = np.arange(n)[:, None] // block, np.arange(n) // block
    if kind in ("floor", "quotient", "shifted", "rounded"):
        return (np.maximum(np.arange(n)[:, None] - 3 * (kind == "shifted"), 0) // block == j)[None]
    near = abs(i - j) <= 1
    if kind in ("neighbours", "ragged"):
        return near[None]
    shown = near | (i == 0) | (j == 0) | ((i * 7 + j) % 11 == 0)
    if kind == "heads":
        return np.stack([shown, i == j])
    if kind == "random":
        return np.random.default_rng(3).random((1, n, n)) < 0.4
    if kind == "early":  # rows of the second block see nothing
        shown = shown & (i != 1)
    if kind == "entry":
        shown = shown.copy()
        shown[77, 301] = not shown[77, 301]
    return shown[None]


def bias(kind):
    n, _ = sizes(kind)
    return -abs(np.arange(n)[:, None] - np.arange(n)).astype(np.float32)[None] * np.array([[[0.5]], [[0.25]]], np.float32)


def mask_nodes(kind, add, constant):
    """The scores "s" with the mask, as "x"."""
    shown, (n, block) = visible(kind), sizes(kind)
    if kind in ("floor", "quotient", "shifted", "rounded", "neighbours"):
        add("Shape", ["q"], "shape")
        add("Gather", ["shape", constant(np.int64(2))], "n")
        count = constant(np.int64(n)) if kind == "floor" else "n"
        add("Range", [constant(np.int64(0)), count, constant(np.int64(1))], "positions")
        rows = "positions"
        if kind == "shifted":
            rows = add("Sub", ["positions", constant(np.int64(3))], "earlier")
        numbers = []
        for name, positions in ("rows", rows), ("columns", "positions"):
            if kind in ("floor", "rounded"):
                add("Cast", [positions], name + "_real", to=1)
                add("Div", [name + "_real", constant(np.float32(block))], name + "_quotient")
                numbers.append(add("Floor", [name + "_quotient"], name))
            else:
                numbers.append(add("Div", [positions, constant(np.int64(block))], name))
        rows = add("Unsqueeze", [numbers[0], constant(np.array([1]))], "rows_2d")
        columns = add("Unsqueeze", [numbers[1], constant(np.array([0]))], "columns_2d")
        if kind == "neighbours":
            add("Sub", [rows, columns], "difference")
            add("Abs", ["difference"], "distance")
            add("LessOrEqual", ["distance", constant(np.int64(1))], "shown")
        else:
            add("Equal", [rows, columns], "shown")
        return add("Where", ["shown", "s", constant(INFINITY)], "x")
    if kind in ("select", "random", "heads", "entry"):
        return add("Where", [constant(shown[None]), "s", constant(INFINITY)], "x")
    if kind == "bias":
        return add("Add", ["s", constant(np.where(shown, bias(kind), INFINITY)[None])], "x")
    least = INFINITY if kind in ("added", "ragged") else LEAST
    return add("Add", ["s", constant(np.where(shown, np.float32(0), least)[None])], "x")


def write(kind, path):
    import onnx
    from onnx import helper, numpy_helper
    nodes, constants = [], []

    def constant(value):
        constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(constants)}"))
        return constants[-1].name

    def add(op, inputs, output, **attributes):
        nodes.append(helper.make_node(op, inputs, [output], output, **attributes))
        return output

    add("Transpose", ["k"], "kt", perm=[0, 1, 3, 2])
    add("MatMul", ["q", "kt"], "raw")
    add("Mul", ["raw", constant(np.float32(WIDTH ** -0.5))], "s")
    mask_nodes(kind, add, constant)
    add("Softmax", ["x"], "p", axis=-1)
    add("MatMul", ["p", "v"], "y")
    rows = "n" if kind in ("quotient", "shifted", "neighbours", "rounded") else sizes(kind)[0]
    tensor = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, HEADS, rows, WIDTH])
    graph = helper.make_graph(nodes, "g", [tensor(name) for name in "qkv"], [tensor("y")], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def data(kind, directory):
    rng, (n, _), shown = np.random.default_rng(5), sizes(kind), visible(kind)
    q, k, v = (rng.normal(size=(1, HEADS, n, WIDTH)).astype(np.float32) for _ in range(3))
    shown = np.broadcast_to(shown, (HEADS, n, n))
    unseen = ~shown.any(1)
    if kind != "early":
        v[0][unseen] = np.nan
    for name, array in ("q", q), ("k", k), ("v", v):
        np.save(f"{directory}/{kind}_{name}.npy", array)
    q, k, v = (x[0].astype(np.float64) for x in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) * WIDTH ** -0.5 + (bias(kind) if kind == "bias" else 0)
    # In a row that sees no key the least float is added to each score, and takes it up.
    scores = np.where(shown, scores, np.where(shown.any(-1, keepdims=True), -np.inf, LEAST))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    seen = v if kind == "early" else np.where(unseen[..., None], 0, v)
    expected = weights / weights.sum(-1, keepdims=True) @ seen
    np.save(f"{directory}/{kind}_y.npy", expected[None].astype(np.float32))


if __name__ == "__main__":
    for kind in sys.argv[2:]:
        write(kind, f"{sys.argv[1]}/{kind}.onnx")
        data(kind, sys.argv[1])
