#!/usr/bin/env python3
"""Twenty layers with RMSNorm: each reads the sum of all before it at places of its own. deep_layers.py FOLDER"""
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

LAYERS, WIDTH = 20, 32


class Graph:
    def __init__(self):
        self.nodes, self.weights, self.rng = [], [], np.random.default_rng(0)

    def constant(self, value):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape):
        return (0.2 * self.rng.normal(size=shape)).astype(np.float32)

    def __call__(self, op, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        inputs = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"{op}_{name}", **attributes))
        return name

    def norm(self, x):
        mean = self("ReduceMean", self("Pow", x, np.float32(2)), axes=[-1], keepdims=1)
        inverse = self("Reciprocal", self("Sqrt", self("Add", mean, np.float32(1e-6))))
        return self("Mul", self("Mul", x, inverse), self.weight(WIDTH))

    def heads(self, x, *permutation):
        apart = self("Reshape", self("MatMul", x, self.weight(WIDTH, WIDTH)), np.array([0, -1, 4, 8]))
        return self("Transpose", apart, perm=permutation)

    def layer(self, x):
        y = self.norm(x)
        q, k, v = self.heads(y, 0, 2, 1, 3), self.heads(y, 0, 2, 3, 1), self.heads(y, 0, 2, 1, 3)
        weights = self("Softmax", self("Mul", self("MatMul", q, k), np.float32(0.35)), axis=-1)
        mixed = self("Transpose", self("MatMul", weights, v), perm=[0, 2, 1, 3])
        mixed = self("Reshape", mixed, np.array([0, -1, WIDTH]))
        x = self("Add", x, self("MatMul", mixed, self.weight(WIDTH, WIDTH)))
        y = self.norm(x)
        gate = self("MatMul", y, self.weight(WIDTH, 48))
        gate = self("Mul", gate, self("Sigmoid", gate))
        wide = self("Mul", gate, self("MatMul", y, self.weight(WIDTH, 48)))
        return self("Add", x, self("MatMul", wide, self.weight(48, WIDTH)))


def main(folder):
    g = Graph()
    x = "x"
    for _ in range(LAYERS):
        x = g.layer(x)
    g.nodes.append(helper.make_node("Identity", [g.norm(x)], ["y"]))
    io = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", "sequence", WIDTH]) for n in "xy"]
    graph = helper.make_graph(g.nodes, "g", io[:1], io[1:], g.weights)
    path = f"{folder}/deep.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    subprocess.run(["attnc", path, "-o", f"{folder}/deep.so", f"--require-fused={LAYERS}"], check=True)
    feed = g.rng.normal(size=(2, 5, WIDTH)).astype(np.float32)
    np.save(f"{folder}/x.npy", feed)
    subprocess.run(["attn-run", f"{folder}/deep.so", f"--input=x=@{folder}/x.npy", f"--output=y=@{folder}/y.npy"],
                   check=True)
    want, = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": feed})
    np.testing.assert_allclose(np.load(f"{folder}/y.npy"), want, rtol=1e-3, atol=1e-3)
    print(f"{LAYERS} layers agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
