#!/usr/bin/env python3
"""What a call from Python costs above the C API: a model of three inputs that adds them, timed by attn-bench and from
Python, alternating. The least median of the rounds counts on both sides; the goal is 5 us.

    PYTHONPATH=build/python python_call.py [BUILD]
"""
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from onnx import TensorProto, helper, save

import attnc

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2] / "build")


def write_model(path):
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", 16]) for n in "abcy"]
    graph = helper.make_graph([helper.make_node("Sum", list("abc"), ["y"])], "sum", info[:3], info[3:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def from_c(library):
    done = subprocess.run([BUILD / "bin/attn-bench", library, "--threads=1", "--runs=20000", "--dim=rows:4", "--json"],
                          check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["median_ms"] * 1e3


def from_python(call, runs=20000):
    times = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1e3


def main():
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/sum.so"
        write_model(f"{folder}/sum.onnx")
        attnc.compile(f"{folder}/sum.onnx", library)
        model = attnc.load(library, threads=1)
        a, b, c = np.ones((3, 4, 16), np.float32)
        out = {"y": np.empty((4, 16), np.float32)}
        feeds = {"a": a, "b": b, "c": c}
        rounds = [(from_c(library), from_python(lambda: model(a=a, b=b, c=c)), from_python(lambda: model(a, b, c)),
                   from_python(lambda: model.run(feeds, out=out)), from_python(lambda: None)) for _ in range(5)]
        c_api, named, placed, into, nothing = (min(column) for column in zip(*rounds))
        print(f"C API {c_api:.2f} us; above it: by name {named - nothing - c_api:.2f} us, by place {placed - nothing - c_api:.2f} us, "
              f"run() into given memory {into - nothing - c_api:.2f} us")


if __name__ == "__main__":
    main()
