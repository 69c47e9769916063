#!/usr/bin/env python3
"""Kernels run on threads with small stacks: small_stacks.py ATTNC RUNNER FOLDER [--mcpu=NAME]

RUNNER is small_stacks.c. Attention of wide heads, recurrent layers and products, in f32 and f16.
"""
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto as T, helper as h

STACK = 64 # KiB
TYPES = {"f32": T.FLOAT, "f16": T.FLOAT16}
NUMPY = {"f32": np.float32, "f16": np.float16}


def attention(dtype, width, queries, keys):
    node = h.make_node("Attention", ["q", "k", "v"], ["y"])
    return [node], {}, [(dtype, [1, 2, queries, width]), (dtype, [1, 2, keys, width]), (dtype, [1, 2, keys, width])]


def recurrent(op, gates, width):
    rng = np.random.default_rng(1)
    weights = {"w": rng.standard_normal((1, gates * width, width)), "r": rng.standard_normal((1, gates * width, width))}
    node = h.make_node(op, ["q", "w", "r"], ["y"], hidden_size=width)
    return [node], weights, [("f32", [5, 3, width])]


def product(dtype, rows, sums, columns):
    return [h.make_node("MatMul", ["q", "w"], ["y"])], {"w": np.ones((sums, columns))}, [(dtype, [rows, sums])]


CASES = {f"attention {t} {d} {q}x{k}": attention(t, d, q, k)
         for t in TYPES for d in (64, 128, 256, 512, 1024) for q, k in ((1, 300), (70, 300))}
CASES |= {f"{op} {n}": recurrent(op, gates, n) for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)) for n in (64, 512)}
CASES |= {f"product {t} {m}": product(t, m, 768, 500) for t in TYPES for m in (1, 7, 128)}
CASES["product of bytes"] = (
    [h.make_node("DynamicQuantizeLinear", ["q"], ["a", "s", "z"]),
     h.make_node("MatMulInteger", ["a", "w", "z"], ["b"]), h.make_node("Cast", ["b"], ["y"], to=T.FLOAT)],
    {"w": np.ones((768, 500), np.int8)}, [("f32", [70, 768])])
CASES["product of inputs"] = ([h.make_node("MatMul", ["q", "k"], ["y"])], {}, [("f32", [70, 700]), ("f32", [700, 333])])


def main(attnc, runner, folder, *flags):
    for number, (name, (nodes, weights, inputs)) in enumerate(CASES.items()):
        dtype = inputs[0][0]
        initializers = [onnx.numpy_helper.from_array(w if w.dtype == np.int8 else w.astype(NUMPY[dtype]), n) for n, w in weights.items()]
        graph = h.make_graph(nodes, "g", [h.make_tensor_value_info(n, TYPES[t], s) for n, (t, s) in zip("qkv", inputs)],
                             [h.make_tensor_value_info("y", TYPES[dtype], None)], initializers)
        path = f"{folder}/{number}.onnx"
        onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 23)], ir_version=10), path)
        subprocess.run([attnc, path, "-o", path + ".so", *flags], check=True)
        given = [t + ":" + ",".join(map(str, s)) for t, s in inputs]
        done = subprocess.run([runner, str(STACK), path + ".so", *given], capture_output=True, text=True)
        said = done.stdout.strip() + done.stderr.strip()
        print(f"{name}: {said or done.returncode}", flush=True)
        if done.returncode:
            sys.exit(f"{name} ended with {done.returncode}")


if __name__ == "__main__":
    main(*sys.argv[1:])
