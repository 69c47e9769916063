"""make_card_cases.py PACKAGE: adds a case whose stored outputs are right, one whose are wrong, one of which rows are stored, one to be timed,
and programs of either kind."""
import json
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import parser

package = pathlib.Path(sys.argv[1])
onnx.save(parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g (float[2,3] x) => (float[2,3] y) { y = Add(x, x) }'), package / "m.onnx")
x = np.ones((2, 3), np.float32)
wrong = x + x
wrong[1, ::2] = 1
for name, y in (("right", x + x), ("wrong", wrong), ("bench_gemv_small", None)):
    case = package / "cases" / name
    case.mkdir(parents=True)
    subprocess.run(["attnc", package / "m.onnx", "--target=cuda", "--gpu-arch=sm_80", "-o", case / "model.so"], check=True)
    description = {"inputs": {}, "outputs": {}, "bench": [], "flops": 6, "small": False}
    if y is not None:
        np.save(case / "x.npy", x)
        np.save(case / "y.npy", y)
        description = {"inputs": {"x": "x.npy"}, "outputs": {"y": "y.npy"}, "rtol": 0, "atol": 0}
    (case / "case.json").write_text(json.dumps(description))
case = package / "cases/sampled"
case.mkdir()
(case / "case.json").write_text(json.dumps({"library": "../right/model.so", "inputs": {"x": "../right/x.npy"}, "rtol": 0, "atol": 0,
                                            "outputs": {"y": {"file": "y.npy", "rows": [1]}}}))
np.save(case / "y.npy", np.array([[2, 2, 3]], np.float32))
for name, line in (("ptx-works", "exit 0"), ("ptx-fails", "echo two of three; exit 3")):
    program = package / "bin" / name
    program.write_text(f"#!/bin/sh\n{line}\n")
    program.chmod(0o755)
