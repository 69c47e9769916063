#!/usr/bin/env python3
"""Random nets of convolutions and of what stands between them: convolution_nets.py ATTNC ATTN_RUN FOLDER [COUNT] [SEED]

Channels move last where that saves transposes (attn-move-channels), so branches, sums, poolings, concatenations, means over
places, transposes and results in either order are drawn. Each net is compared with NumPy in float64, with sizes that are known
or open.
"""
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ATTNC, RUN, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
COUNT, SEED = int(sys.argv[4]) if len(sys.argv) > 4 else 60, int(sys.argv[5]) if len(sys.argv) > 5 else 0


def taps(x, node, value):
    """The elements of each window, behind its place."""
    size, strides, pads = (list(a.ints) for name in ("kernel_shape", "strides", "pads") for a in node.attribute if a.name == name)
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in pads[:len(size)])], constant_values=value)
    view = np.lib.stride_tricks.sliding_window_view(x, size, tuple(range(2, x.ndim)))
    return view[(slice(None), slice(None), *(slice(None, None, s) for s in strides))]


def convolve(node, x, w, bias=None):
    groups, spatial = next(a.i for a in node.attribute if a.name == "group"), "hwd"[:x.ndim - 2]
    view = taps(x, node, 0)
    view = view.reshape(len(x), groups, -1, *view.shape[2:])
    y = np.einsum(f"ngc{spatial}{spatial.upper()},gfc{spatial.upper()}->ngf{spatial}", view, w.reshape(groups, -1, *w.shape[1:]))
    y = y.reshape(len(x), -1, *y.shape[3:])
    return y if bias is None else y + bias.reshape(-1, *[1] * len(spatial))


def pool(node, x):
    window = tuple(range(x.ndim, 2 * x.ndim - 2))
    if node.op_type == "MaxPool":
        return taps(x, node, -np.inf).max(window)
    return taps(x, node, 0).sum(window) / taps(np.ones_like(x), node, 0).sum(window)


def softmax(x):
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


EVALUATE = {"Conv": convolve, "MaxPool": pool, "AveragePool": pool, "Relu": lambda node, x: np.maximum(x, 0),
            "Sigmoid": lambda node, x: 1 / (1 + np.exp(-x)), "Mul": lambda node, x, y: x * y, "Add": lambda node, x, y: x + y,
            "GlobalAveragePool": lambda node, x: x.mean(tuple(range(2, x.ndim)), keepdims=True),
            "Concat": lambda node, *parts: np.concatenate(parts, 1), "Softmax": lambda node, x: softmax(x),
            "Transpose": lambda node, x: x.transpose(list(node.attribute[0].ints))}


class Net:
    """Values are [N, C, H, W], or of one dimension less in between; `values` has their channels and their sizes' level."""

    def __init__(self, rng, spatial):
        self.rng, self.spatial = rng, spatial
        self.nodes, self.tables, self.values, self.tiles = [], [], [], False

    def table(self, array):
        self.tables.append((f"t{len(self.tables)}", array))
        return self.tables[-1][0]

    def node(self, op, inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def some(self):
        return self.values[self.rng.integers(max(0, len(self.values) - 4), len(self.values))]

    def add(self, name, channels, level):
        self.values.append((name, channels, level))

    def convolution(self):
        x, channels, level = self.some()
        kind = self.rng.integers(5)
        filters, groups, size, stride = int(self.rng.choice([5, 8, 16, 17, 24])), 1, 1, 1
        if kind == 1:
            size = 3
        elif kind == 2:
            filters, groups, size, stride = channels, channels, 3, 1 + int(self.rng.integers(2) and level < 2)
        elif kind == 3:
            filters, groups, size = 2 * channels, channels, 3
        elif kind == 4 and level < 2:  # windows side by side
            groups, size, stride, self.tiles = 1 + int(channels % 2 == 0 and self.rng.integers(2)), 2, 2, True
            filters *= groups
        w = self.table(0.4 * self.rng.standard_normal((filters, channels // groups, *[size] * self.spatial)))
        inputs = [x, w] + ([self.table(self.rng.standard_normal(filters))] if self.rng.integers(2) else [])
        y = self.node("Conv", inputs, group=groups, strides=[stride] * self.spatial, pads=[size // 3] * 2 * self.spatial,
                      kernel_shape=[size] * self.spatial)
        self.add(y, filters, level + (stride == 2))

    def elementwise(self):
        x, channels, level = self.some()
        op = str(self.rng.choice(["Relu", "Sigmoid", "Mul", "Add"]))
        inputs = [x]
        if op in ("Mul", "Add"):
            shape = [[channels, *[1] * self.spatial], [1], [1, channels, *[1] * self.spatial]][self.rng.integers(3)]
            inputs.append(self.table(self.rng.standard_normal(shape)))
        self.add(self.node(op, inputs), channels, level)

    def residual(self):
        x, channels, level = self.some()
        others = [v for v in self.values if v[1:] == (channels, level)]
        y = others[self.rng.integers(len(others))][0]
        self.add(self.node("Add", [x, y]), channels, level)

    def pool(self):
        x, channels, level = self.some()
        op = str(self.rng.choice(["MaxPool", "AveragePool"]))
        stride = 1 + int(self.rng.integers(2) and level < 2)
        self.add(self.node(op, [x], kernel_shape=[3] * self.spatial, pads=[1] * 2 * self.spatial, strides=[stride] * self.spatial),
                 channels, level + (stride == 2))

    def excite(self):
        x, channels, level = self.some()
        mean = self.node("GlobalAveragePool", [x])
        w = self.table(self.rng.standard_normal((channels, channels, *[1] * self.spatial)))
        ones = [1] * self.spatial
        gate = self.node("Sigmoid", [self.node("Conv", [mean, w], group=1, strides=ones, pads=[0, 0] * self.spatial, kernel_shape=ones)])
        self.add(self.node("Mul", [x, gate]), channels, level)

    def concatenation(self):
        x, channels, level = self.some()
        y, more, _ = [v for v in self.values if v[2] == level][0]
        self.add(self.node("Concat", [x, y, x], axis=1), 2 * channels + more, level)

    def normalization(self):
        """Over channels, as ConvNeXt has it: transposed there and back."""
        x, channels, level = self.some()
        rank = self.spatial + 2
        last = self.node("Transpose", [x], perm=[0, *range(2, rank), 1])
        scaled = self.node("Mul", [last, self.table(self.rng.standard_normal(channels))])
        if self.rng.integers(2):
            scaled = self.node("Softmax", [scaled], axis=-1)
        self.add(self.node("Transpose", [scaled], perm=[0, rank - 1, *range(1, rank - 1)]), channels, level)


def net(rng):
    n = Net(rng, int(rng.choice([1, 2, 2, 3])))
    channels = int(rng.choice([3, 16]))
    n.add("x", channels, 0)
    n.convolution()
    steps = [n.convolution] * 4 + [n.elementwise] * 3 + [n.residual, n.residual, n.pool, n.excite, n.concatenation, n.normalization]
    for _ in range(int(rng.integers(3, 12))):
        steps[rng.integers(len(steps))]()
    results = [n.values[-1][0]]
    if rng.integers(2):
        results.append(n.node("Relu", [n.values[len(n.values) // 2][0]]))
    if rng.integers(2):
        results.append(n.node("Transpose", [results[0]], perm=[0, *range(2, n.spatial + 2), 1]))
    return n, channels, results


def evaluate(n, x, results):
    values = {"x": x, **{name: array.astype(np.float32).astype(np.float64) for name, array in n.tables}}
    for node in n.nodes:
        values[node.output[0]] = EVALUATE[node.op_type](node, *(values[name] for name in node.input))
    return [values[name] for name in results]


def model(n, results, dims):
    graph = helper.make_graph(n.nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
                              [numpy_helper.from_array(array.astype(np.float32), name) for name, array in n.tables])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def check(number):
    rng = np.random.default_rng([SEED, number])
    n, channels, results = net(rng)
    sizes = [4, 8, 12, 16] if n.tiles else [1, 5, 8, 14, 17]
    shape = [int(rng.integers(1, 3)), channels, *(int(rng.choice(sizes)) for _ in range(n.spatial))]
    x = rng.standard_normal(shape).astype(np.float32)
    dims = shape if number % 2 else ["n", channels, *("hwd"[:n.spatial])]
    path = FOLDER / "net.onnx"
    onnx.save(model(n, results, dims), path)
    want = evaluate(n, x.astype(np.float64), results)
    subprocess.run([ATTNC, path, "-o", FOLDER / "net.so", f"--mcpu={('native', 'x86-64-v3')[number % 3 == 0]}"], check=True)
    np.save(FOLDER / "x.npy", x)
    outputs = [f"--output={name}=@{FOLDER}/{name}.npy" for name in results]
    subprocess.run([RUN, FOLDER / "net.so", f"--threads={1 + number % 2}", f"--input=x=@{FOLDER}/x.npy", *outputs], check=True,
                   stdout=subprocess.DEVNULL)
    for name, right in zip(results, want):
        y = np.load(FOLDER / f"{name}.npy")
        assert y.shape == right.shape, (number, name, y.shape, right.shape)
        worst = np.abs(y - right).max() / max(1, np.abs(right).max())
        assert worst <= 1e-5, (number, name, worst)


for number in range(COUNT):
    check(number)
print(COUNT, "nets agree")
