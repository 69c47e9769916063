#!/usr/bin/env python3
"""A bf16 attention of one query, whose kernel selects and keeps vectors of bf16, compiled for processors without
and with them: bf16_moves.py BIN FOLDER CPU..."""
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper


def main(bin, folder, *cpus):
    shapes = {"q": ["b", 1, 23], "k": ["b", "n", 23], "v": ["b", "n", 111]}
    nodes = [helper.make_node("Transpose", ["k"], ["t"], perm=[0, 2, 1]), helper.make_node("MatMul", ["q", "t"], ["s"]),
             helper.make_node("Softmax", ["s"], ["w"], axis=-1), helper.make_node("MatMul", ["w", "v"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(n, TensorProto.BFLOAT16, s) for n, s in shapes.items()],
                              [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, ["b", 1, 111])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), f"{folder}/m.onnx")
    for cpu in cpus:
        command = [f"{bin}/attnc", f"{folder}/m.onnx", f"--mcpu={cpu}", "--require-fused=1", "-o", f"{folder}/{cpu}.so"]
        subprocess.run(command, check=True)
        for keys in (1, 15, 17, 40):
            rng = np.random.default_rng(keys)
            x = {n: rng.standard_normal([{"b": 3, "n": keys}.get(d, d) for d in s]).astype(ml_dtypes.bfloat16)
                 for n, s in shapes.items()}
            for name, value in x.items():
                np.save(f"{folder}/{name}.npy", value)
            run = subprocess.run([f"{bin}/attn-run", f"{folder}/{cpu}.so", *(f"--input={n}=@{folder}/{n}.npy" for n in x),
                                  f"--output=y=@{folder}/y.npy"], capture_output=True, text=True)
            if "this machine lacks" in run.stderr:
                print(f"{cpu}: not this processor")
                break
            assert run.returncode == 0, run.stderr
            q, k, v = (a.astype(np.float64) for a in x.values())
            score = q @ k.swapaxes(1, 2)
            weight = np.exp(score - score.max(-1, keepdims=True))
            weight /= weight.sum(-1, keepdims=True)
            got = np.load(f"{folder}/y.npy").view(ml_dtypes.bfloat16).astype(np.float64)
            # Scores and weights are rounded to bf16, as the graph has them: 2^-9 of each.
            bound = (weight * (2**-9 * (np.abs(score) * 4 + 3))) @ np.abs(v) + 2**-8 * np.abs(weight @ v)
            assert (np.abs(got - weight @ v) <= bound).all(), (cpu, keys)
    print("bf16 moves")


main(*sys.argv[1:])
