#!/usr/bin/env python3
"""Recurrent layers on an empty batch, which only the run knows: empty_batch.py --tools=build/bin"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def model(kind, hidden, direction):
    directions, width = 2 if direction == "bidirectional" else 1, 5
    rng = np.random.default_rng(hidden)
    weights = {"w": (directions, GATES[kind] * hidden, width), "r": (directions, GATES[kind] * hidden, hidden)}
    graph = helper.make_graph(
        [helper.make_node(kind, ["x", "w", "r"], ["y"], hidden_size=hidden, direction=direction)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["time", "batch", width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(rng.standard_normal(shape, np.float32), name) for name, shape in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=pathlib.Path, default=pathlib.Path("build/bin"))
    tools, failed = parser.parse_args().tools, 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for kind in GATES:
            for hidden in (3, 16, 33):
                for direction in ("forward", "bidirectional"):
                    onnx.save(model(kind, hidden, direction), folder / "m.onnx")
                    subprocess.run([tools / "attnc", folder / "m.onnx", "-o", folder / "m.so"], check=True)
                    for batch in (0, 1):
                        np.save(folder / "x.npy", np.zeros((4, batch, 5), np.float32))
                        done = subprocess.run([tools / "attn-run", folder / "m.so", f"--input=x=@{folder / 'x.npy'}",
                                               f"--output=y=@{folder / 'y.npy'}"], stderr=subprocess.PIPE, text=True)
                        want = (4, 2 if direction == "bidirectional" else 1, batch, hidden)
                        if done.returncode or np.load(folder / "y.npy").shape != want:
                            failed += 1
                            print(f"{kind} {hidden} {direction}, batch {batch}: status {done.returncode} {done.stderr}")
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
