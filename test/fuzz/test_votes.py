#!/usr/bin/env python3
"""votes.test: what is said of models whose values f16 does not hold.

    test_votes.py --tools=build/bin
"""
import argparse
import pathlib
import sys
import warnings

import numpy as np
from onnx import TensorProto, helper

import models
from models import backend


def model(*nodes):
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, [3]) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return models.model_graphs.typed(result)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tools", type=pathlib.Path, required=True)
    server = backend.Server(str(p.parse_args().tools / "onnx-case-server"))
    warnings.simplefilter("ignore")
    square = helper.make_node("Mul", ["x", "x"], ["t"])
    feeds = {"x": np.array([2, 300, 400], np.float16)}
    for name, node in (("between", helper.make_node("Sqrt", ["t"], ["y"])), ("stored", helper.make_node("Identity", ["t"], ["y"]))):
        made = model(square, node)
        got, _ = server.run(made, feeds, ["y"])
        print(f"{name}: {models.verdict(server, made, [feeds])[0]}, {[float(v) for v in got[0]]}")


if __name__ == "__main__":
    sys.exit(main())
