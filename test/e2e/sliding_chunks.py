#!/usr/bin/env python3
"""Sliding windows as Longformer computes them, in overlapping chunks with a skew: sliding_chunks.py ATTN_RUN FOLDER

Each graph has a reference in float64: each query sees the keys at most a window away. Others look like them, but are no
such attentions; their reference is the graph itself, in float64.
"""
import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# What graphs differ in: a mask of keys; a slice that is off by one; weights that are not 0 where the softmax is; rows of
# queries that are gathered from a tensor with one more; tokens of all batches in one dimension; places without a key in
# a table for each batch and head, or in one that is wrong for the last head; scores that are rounded once or twice.
# Then keys in front that all queries see, as of Longformer's global tokens: with queries of their own; with some that are
# padding; with both sums rounded to f16; with queries of which those of the window, or of the keys in front, are the
# first half; with weights one place off.
HALF_QUERIES = ("half", "fronthalf")
FRONT = ("front", "others", "padded", "halved", *HALF_QUERIES, "off")
VARIANTS = ("", "masked", "shifted", "raised", "gathered", "merged", "table", "uneven", "rounded", "coarser", *FRONT)
FUSED = ("", "masked", "merged", "table", "rounded", "front", "others", "padded", "halved", *HALF_QUERIES)
EXACT = ("", "masked", "gathered", "merged", "table", "front", "others", "padded", *HALF_QUERIES)
# batch, tokens, window, heads, width
SIZES = [(1, 8, 2, 2, 4), (2, 16, 2, 1, 8), (2, 24, 4, 3, 5), (1, 64, 16, 2, 16), (3, 12, 3, 2, 8)]
LONG = (1, 1024, 64, 1, 8)  # blocks of keys lie between those in front and the window
HIDDEN = np.finfo(np.float32).min


class Graph:
    """ONNX nodes, and what they compute in float64."""

    def __init__(self):
        self.nodes, self.constants, self.values = [], [], {}

    def add(self, op, inputs, value, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"{op.lower()}_{len(self.nodes)}", **attributes))
        self.values[name] = value
        return name

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        self.values[name] = np.asarray(array)
        return name

    def transpose(self, x, perm):
        return self.add("Transpose", [x], self.values[x].transpose(perm), perm=perm)

    def reshape(self, x, shape):
        return self.add("Reshape", [x, self.constant(np.array(shape))], self.values[x].reshape(shape))

    def slice(self, x, axis, start, end):
        places = [slice(None)] * self.values[x].ndim
        places[axis] = slice(start, end)
        numbers = [self.constant(np.array([n])) for n in (start, end, axis)]
        return self.add("Slice", [x, *numbers], self.values[x][tuple(places)])

    def concat(self, parts, axis):
        return self.add("Concat", parts, np.concatenate([self.values[p] for p in parts], axis), axis=axis)

    def pad(self, x, before, after, value):
        padded = np.pad(self.values[x], list(zip(before, after)), constant_values=value)
        return self.add("Pad", [x, self.constant(np.array(before + after)), self.constant(np.float32(value))], padded)

    def rounded(self, x, dtype=np.float16):
        """As a number of `dtype`, and again of f32."""
        narrow = self.add("Cast", [x], self.values[x], to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        return self.add("Cast", [narrow], self.values[x].astype(dtype).astype(np.float64), to=TensorProto.FLOAT)

    def einsum(self, text, a, b):
        return self.add("Einsum", [a, b], np.einsum(text, self.values[a], self.values[b]), equation=text)

    def chunks(self, x, size, step):
        """Overlapping chunks of the second dimension."""
        count = (self.values[x].shape[1] - size) // step + 1
        parts = []
        for n in range(count):
            part = self.slice(x, 1, n * step, n * step + size)
            parts.append(self.add("Unsqueeze", [part, self.constant(np.array([1]))], self.values[part][:, None]))
        return self.concat(parts, 1)


def scores(g, queries, k, w, variant=""):
    """Scores of each query by the place of the key in its window: [batch * heads, tokens / w, w, 2 w + 1]."""
    shift = variant == "shifted"
    rows = g.einsum("bcxd,bcyd->bcxy", queries, g.chunks(k, 2 * w, w))
    if variant in ("rounded", "coarser"):
        rows = g.rounded(rows)
    bh, count = g.values[rows].shape[:2]
    skewed = g.reshape(g.pad(rows, [0, 0, 0, 0], [0, 0, 1, 0], 0), [bh, count, 2 * w, 2 * w + 1])
    upper = g.slice(g.slice(skewed, 2, 0, w), 3, 0, w + 1)
    last = g.slice(g.slice(g.slice(skewed, 1, count - 1, count), 2, w, 2 * w), 3, 0, w + 1)
    lower = g.slice(g.slice(skewed, 2, w - 1, 2 * w - 1), 3, w + 1 - shift, 2 * w + 1 - shift)
    first = g.slice(g.slice(g.slice(skewed, 1, 0, 1), 2, 0, w - 1), 3, w + 2, 2 * w + 1)
    first = g.pad(first, [0, 0, 1, 1], [0, 0, 0, 0], 0)
    if variant in ("rounded", "coarser"):  # what has been rounded is, or is not, a number of the type
        lower = g.rounded(lower, np.float16 if variant == "rounded" else ml_dtypes.bfloat16)
    return g.concat([g.concat([first, lower], 1), g.concat([upper, last], 1)], 3)


def front_scores(g, q, variant):
    """Scores of the keys in front, whose number is open, and that number: [batch, heads, tokens, keys]."""
    queries = "o" if variant == "others" else q
    rows = g.einsum("bhid,bhjd->bhij", queries, "f")
    batch, heads, tokens, keys = g.values[rows].shape
    count = g.add("Shape", ["f"], np.array([keys]), start=2, end=3)
    if variant == "padded":
        # As an assignment to an index of arrays is exported: each element has a place.
        turned = g.transpose(rows, [0, 3, 1, 2])
        rest = [g.constant(np.arange(n).reshape(shape)) for n, shape in ((heads, [heads, 1, 1]), (tokens, [tokens, 1]))]
        pads = g.values["p"].shape[0]
        number = g.add("Shape", ["p"], np.array([pads]), start=0, end=1)
        ends = [(heads, tokens, 1), g.constant(np.array([heads, tokens, 1]))]
        shape = g.concat([number, ends[1]], 0)
        full = (pads, *ends[0])
        places = [g.reshape(g.slice("p", 1, n, n + 1), [-1, 1, 1, 1]) for n in (0, 1)] + rest
        places = g.concat([g.add("Expand", [x, shape], np.broadcast_to(g.values[x], full)) for x in places], 3)
        updates = g.add("Expand", [g.constant(HIDDEN), g.slice(shape, 0, 0, 3)], np.full(full[:3], HIDDEN))
        value = g.values[turned].copy()
        value[tuple(g.values["p"].T)] = HIDDEN
        rows = g.transpose(g.add("ScatterND", [turned, places, updates], value), [0, 2, 3, 1])
    return rows, count


def build(batch, tokens, w, heads, width, variant):
    rng = np.random.default_rng(7)
    g = Graph()
    long = {"half": "qf", "fronthalf": "qk"}.get(variant, "")
    for name in "qkv":
        shape = (batch, tokens, heads, width * (1 + (name in long)))
        if variant == "merged":
            shape = (tokens * batch, heads * width)
        g.values[name] = rng.standard_normal(shape).astype(np.float32).astype(np.float64)
    g.values["m"] = np.where(rng.random((batch, tokens)) < 0.3, -1e4, rng.standard_normal((batch, tokens))).astype(
        np.float32).astype(np.float64)
    if variant in FRONT:
        for name, rows in (("f", 3), ("u", 3), ("o", tokens)):
            size = (batch, heads, rows, width * (1 + (name in long)))
            g.values[name] = rng.standard_normal(size).astype(np.float32).astype(np.float64)
        g.values["p"] = np.array([[0, 2], [batch - 1, 1]])
    perm, qkv = [0, 2, 1, 3], (g.slice("q", 3, 0, width) if variant == "half" else "q", "k", "v")
    if variant == "merged":
        perm, qkv = [1, 2, 0, 3], [g.reshape(x, [tokens, batch, heads, width]) for x in qkv]
    q, k, v = (g.reshape(g.transpose(x, perm), [batch * heads, tokens, g.values[x].shape[3]]) for x in qkv)
    queries = g.chunks(q, 2 * w, w)
    if variant == "gathered":
        extra = np.zeros((batch, 1, heads, width))
        g.values["r"] = np.concatenate([g.values["q"], extra], 1).transpose(0, 2, 1, 3).reshape(-1, tokens + 1, width)
        places = np.arange(tokens // w - 1)[:, None] * w + np.arange(2 * w)
        queries = g.add("Gather", ["r", g.constant(places)], g.values["r"][:, places], axis=1)
    s = g.reshape(scores(g, queries, k, w, variant), [batch, heads, tokens, 2 * w + 1])
    rows, columns = np.arange(tokens)[:, None], np.arange(2 * w + 1) - w
    key = g.add("Add", [g.constant(rows), g.constant(columns)], rows + columns)
    if variant == "masked":
        # The mask of a key, as the product of 1 and it.
        ones = g.constant(np.ones((batch, tokens, 1), np.float32))
        bias = scores(g, g.chunks(ones, 2 * w, w), g.reshape("m", [batch, tokens, 1]), w)
        bias = g.reshape(bias, [batch, 1, tokens, 2 * w + 1])
        s = g.add("Add", [s, bias], g.values[s] + g.values[bias])
    before = g.add("Less", [key, g.constant(np.array(0))], rows + columns < 0)
    behind = g.add("GreaterOrEqual", [key, g.constant(np.array(tokens))], rows + columns >= tokens)
    hidden = g.add("Or", [before, behind], g.values[before] | g.values[behind])
    if variant in ("table", "uneven"):
        table = np.broadcast_to(g.values[hidden], (batch, heads, tokens, 2 * w + 1)).copy()
        table[0, -1, 0, 2 * w] |= variant == "uneven"
        hidden = g.constant(table)
    s = g.add("Where", [hidden, g.constant(np.float32(-np.inf)), s], np.where(g.values[hidden], -np.inf, g.values[s]))
    if variant in FRONT:
        own = g.slice("q", 3, 0, width) if variant == "fronthalf" else "q"
        rows, number = front_scores(g, g.transpose(own, [0, 2, 1, 3]), variant)
        s = g.concat([rows, s], 3)
    e = np.exp(g.values[s] - g.values[s].max(-1, keepdims=True))
    p = g.add("Softmax", [s], e / e.sum(-1, keepdims=True), axis=-1)
    if variant in FRONT:
        keys, axis, all_ends = g.values["f"].shape[2], g.constant(np.array([3])), g.constant(np.array([2**31]))
        whole, zero = g.values[p], g.constant(np.array([0]))
        front = g.add("Slice", [p, zero, number, axis], whole[..., :keys])
        if variant == "off":  # the values of keys in front get the weights of others
            front = g.add("Slice", [p, g.constant(np.array([1])), g.add("Add", [number, g.constant(np.array([1]))],
                                                                        g.values[number] + 1), axis],
                          whole[..., 1:keys + 1])
        front = g.einsum("bhij,bhje->bhie", front, "u")
        p = g.add("Slice", [p, number, all_ends, axis], whole[..., keys:])
    if variant == "raised":
        more = g.add("Add", [p, g.constant(np.float32(0.25))], g.values[p] + 0.25)
        p = g.add("Where", [hidden, g.constant(np.float32(0)), more], np.where(g.values[hidden], 0, g.values[more]))
    count = tokens // w
    p = g.reshape(p, [batch * heads, count, w, 2 * w + 1])
    p = g.reshape(g.pad(p, [0, 0, 0, 0], [0, 0, 0, w + 1], 0), [batch * heads, count, w * (3 * w + 2)])
    p = g.reshape(g.slice(p, 2, 0, w * (3 * w + 1)), [batch * heads, count, w, 3 * w + 1])
    p = g.slice(p, 3, 0, 3 * w)
    values = g.chunks(g.pad(v, [0, w, 0], [0, w, 0], -1), 3 * w, w)
    y = g.reshape(g.einsum("bcxy,bcyd->bcxd", p, values), [batch, heads, tokens, width])
    if variant == "halved":
        front, y = (g.add("Cast", [x], g.values[x].astype(np.float16), to=TensorProto.FLOAT16) for x in (front, y))
        half = g.add("Add", [front, y], g.values[front] + g.values[y])
        y = g.add("Cast", [half], g.values[half].astype(np.float64), to=TensorProto.FLOAT)
    elif variant in FRONT:
        y = g.add("Add", [front, y], g.values[front] + g.values[y])
    y = g.transpose(y, [0, 2, 1, 3])
    return g, y


def reference(g, sizes, variant):
    batch, tokens, w, heads, width = sizes
    q, k, v, m = (g.values[x] for x in "qkvm")
    if q.ndim == 2:
        q, k, v = (x.reshape(tokens, batch, heads, width).swapaxes(0, 1) for x in (q, k, v))
    s = np.einsum("bihd,bjhd->bhij", q[..., :k.shape[3]], k) + (m[:, None, None] if variant == "masked" else 0)
    tokens = np.arange(q.shape[1])
    s = np.where(abs(tokens[:, None] - tokens) <= w, s, -np.inf)
    v = v.transpose(0, 2, 1, 3)
    if variant in FRONT:
        f = g.values["o"] if variant == "others" else q.transpose(0, 2, 1, 3)[..., :g.values["f"].shape[3]]
        f = f @ g.values["f"].transpose(0, 1, 3, 2)
        if variant == "padded":
            for row, key in g.values["p"]:
                f[row, :, :, key] = -np.inf
        s, v = np.concatenate([f, s], 3), np.concatenate([g.values["u"], v], 2)
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)


def check(run, folder, sizes, variant):
    g, y = build(*sizes, variant)
    inputs = ["r" if variant == "gathered" else "q", "k", "v", *(["m"] if variant == "masked" else [])]
    inputs += {"others": ["f", "u", "o"], "padded": ["f", "u", "p"]}.get(variant, ["f", "u"] if variant in FRONT else [])
    open_dims = {"f": {2: "fronts"}, "u": {2: "fronts"}, "p": {0: "pads"}}
    name = f"{folder}/{'x'.join(map(str, sizes))}{variant}"
    used, nodes = {y}, []
    for node in reversed(g.nodes):
        if node.output[0] in used:
            nodes.insert(0, node)
            used.update(node.input)
    model = helper.make_model(helper.make_graph(
        nodes, "sliding_chunks",
        [helper.make_tensor_value_info(x, TensorProto.INT64 if x == "p" else TensorProto.FLOAT,
                                       [open_dims.get(x, {}).get(n, size) for n, size in enumerate(g.values[x].shape)])
         for x in inputs],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, g.values[y].shape)],
        [c for c in g.constants if c.name in used]),
        opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, name + ".onnx")
    command = [run, name + ".onnx", f"--fusion-report={name}.json", f"--output={y}=@{name}.npy"]
    for x in inputs:
        np.save(f"{name}_{x}.npy", g.values[x].astype(np.int64 if x == "p" else np.float32))
        command.append(f"--input={x}=@{name}_{x}.npy")
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    expected = g.values[y]
    if variant in EXACT:
        same = np.allclose(expected, reference(g, sizes, variant), rtol=1e-12, atol=1e-12)
        assert same, "the graph is another"
    got = np.load(name + ".npy")
    error = np.abs(got - expected).max()
    tolerance = {"rounded": 2e-3, "halved": 2e-3, "coarser": 2e-2}.get(variant, 2e-5)  # a sum may be rounded the other way
    assert error <= tolerance * np.abs(expected).max(), f"{name}: differs by {error}"
    verdict, = json.load(open(name + ".json"))
    if variant in FUSED:
        mask = "window+causal+prefix" if variant in FRONT else "window"
        assert verdict["verdict"] == "fused" and mask in verdict["mask"], f"{name}: {verdict}"
    elif variant != "gathered":
        assert verdict["verdict"] == "missed", f"{name}: {verdict['verdict']}"


def main():
    run, folder = sys.argv[1:]
    for sizes in SIZES:
        for variant in VARIANTS:
            check(run, folder, sizes, variant)
    check(run, folder, LONG, "front")
    print("graphs agree")


if __name__ == "__main__":
    main()
