#!/usr/bin/env python3
"""Writes the models of a test file: onnxtext.py FILE FOLDER

Between a line `MODEL name` and a line `END` stands a model in ONNX's textual
form, or its body alone, which gets opset 17 in front of it. Each becomes
FOLDER/name.onnx. `MODEL name weights=W:384x1536,V:8` adds float initialisers
too large to write down.
"""
import os
import re
import sys

import numpy as np
import onnx.parser
from onnx import numpy_helper

HEADER = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>\n'


def main(source, folder):
    os.makedirs(folder, exist_ok=True)
    text = open(source).read()
    for name, weights, body in re.findall(r"^MODEL (\w+)(?: weights=(\S+))?\n(.*?)^END$", text, re.M | re.S):
        model = onnx.parser.parse_model(body if body.lstrip().startswith("<") else HEADER + body)
        for weight in (weights or "").split(","):
            if weight:
                key, shape = weight.split(":")
                values = np.arange(np.prod([int(n) for n in shape.split("x")]), dtype=np.float32)
                model.graph.initializer.append(
                    numpy_helper.from_array(values.reshape([int(n) for n in shape.split("x")]), key))
        for number, node in enumerate(model.graph.node):
            node.name = node.name or f"{node.op_type.lower()}_{number}"
        onnx.save(model, f"{folder}/{name}.onnx")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
