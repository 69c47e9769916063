#!/usr/bin/env python3
"""Products of constants become weights: fold_constants.py ATTNC ATTN_RUN FOLDER

For each model it prints how many weights were made, and how many products of two weights are left for the run. Results
are compared with NumPy in float64, at level 0, where nothing is folded, too, and in bf16.
"""
import pathlib
import re
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ATTNC, RUN, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
rng = np.random.default_rng(1)
TABLE, W, V = (rng.standard_normal(shape) / 16 for shape in ((256, 128), (128, 192), (192, 192)))
BIAS, SMALL, THIN = rng.standard_normal(192), rng.standard_normal((64, 64)) / 8, rng.standard_normal((512, 4))
MANY = [rng.standard_normal((192, 128)) / 16 for _ in range(9)]
WEIGHTS = {**{f"m{n}": table for n, table in enumerate(MANY)}, "table": TABLE, "w": W, "v": V, "bias": BIAS, "small": SMALL, "thin": THIN, "wide": THIN.T.copy()}


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs.split(), [output], **attributes)


KEYS = [node("MatMul", "table w", "p"), node("Add", "p bias", "k"), node("Relu", "k", "r"), node("Transpose", "r", "t", perm=[1, 0])]
keys = np.maximum(TABLE @ W + BIAS, 0)
branch = helper.make_graph([node("MatMul", "table w", "q"), node("MatMul", "x q", "z")], "b", [],
                           [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)])
other = helper.make_graph([node("MatMul", "x p", "o")], "o", [], [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)])
# The nodes, the width of x, what is expected, and the type.
MODELS = {
    "projected": ([*KEYS, node("MatMul", "x t", "y")], 192, lambda x: x @ keys.T),
    "two": ([*KEYS[:3], node("MatMul", "r v", "s"), node("Transpose", "s", "u", perm=[1, 0]), node("MatMul", "x u", "y")], 192,
            lambda x: x @ (keys @ V).T),
    # What two read is stored before their ways part.
    "shared": ([*KEYS, node("MatMul", "x t", "a"), node("MatMul", "r v", "s"), node("MatMul", "a s", "y")], 192,
               lambda x: x @ keys.T @ (keys @ V)),
    "output": ([node("MatMul", "table w", "c"), node("Add", "c x", "y")], 192, lambda x: TABLE @ W + x),
    "halves": ([*KEYS, node("MatMul", "x t", "y")], 192, lambda x: x @ keys.T, TensorProto.FLOAT16),
    # Bodies are left alone.
    "branches": ([node("MatMul", "table w", "p"), node("ReduceSum", "x", "sum", keepdims=0), node("Greater", "sum zero", "if"),
                  node("If", "if", "y", then_branch=branch, else_branch=other)], 256, lambda x: x @ (TABLE @ W)),
    "many": ([*(node("MatMul", f"m{n} w", f"p{n}") for n in range(9)), *(node("MatMul", f"x p{n}", f"z{n}") for n in range(9)),
              node("Sum", " ".join(f"z{n}" for n in range(9)), "y")], 192, lambda x: sum(x @ m @ W for m in MANY)),
    # Bodies and what takes long or much memory stay.
    "long": ([node("ConstantOfShape", "s1", "a"), node("ConstantOfShape", "s2", "b"), node("MatMul", "a b", "p"), node("ReduceMax", "p", "max", keepdims=0),
              node("Mul", "x max", "y")], 64, None),
    # Near misses: quick, and larger than what it is made of.
    "small": ([node("MatMul", "small small", "p"), node("MatMul", "x p", "y")], 64, lambda x: x @ (SMALL @ SMALL)),
    "outer": ([node("MatMul", "thin wide", "p"), node("MatMul", "x p", "y")], 512, lambda x: x @ (THIN @ THIN.T)),
    # What is repeated for each row of the input is stored once; its sum is quick.
    "stretched": ([*KEYS[:3], node("Unsqueeze", "r front", "r3"), node("Shape", "x", "rows", end=1), node("Concat", "rows ones", "sizes", axis=0),
                   node("Expand", "r3 sizes", "e"), node("ReduceSum", "e middle", "f", keepdims=0), node("Mul", "f x", "y")], 192,
                  lambda x: keys.sum(0) * x),
}


def build(name):
    nodes, width, _, *dtype = MODELS[name]
    dtype = dtype[0] if dtype else TensorProto.FLOAT
    numpy_type = helper.tensor_dtype_to_np_dtype(dtype)
    tables = [numpy_helper.from_array(value.astype(numpy_type), key) for key, value in WEIGHTS.items()]
    tables += [numpy_helper.from_array(np.array(value, np.int64), key) for key, value in
               (("front", [0]), ("middle", [1]), ("ones", [1, 1]))]
    tables.append(numpy_helper.from_array(np.array(0, numpy_type), "zero"))
    tables += [numpy_helper.from_array(np.array(value, np.int64), key) for key, value in
               (("s1", [16384, 32768]), ("s2", [32768, 256]))]
    rows = 256 if name == "output" else "n"
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", dtype, [rows, width])],
                              [helper.make_tensor_value_info("y", dtype, None)], tables)
    path = FOLDER / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path, numpy_type, 256 if name == "output" else 5, width


def count(number, what):
    return f"{number} {what}{'' if number == 1 else 's'}"


agree = 0
for name in MODELS:
    path, numpy_type, rows, width = build(name)
    text = subprocess.run([ATTNC, path, "--emit=linalg", "-o", "-"], check=True, capture_output=True, text=True).stdout
    weights = set(re.findall(r"(%\w+) = attn\.weight", text))
    products = [line for line in text.splitlines() if re.search(r"linalg\.(contract|matmul)|= linalg.generic.*reduction", line)]
    left = sum(1 for line in products if not re.search(r"ins\((%arg|%expanded|%collapsed)", line)
               and all(value in weights for value in re.search(r"ins\(([^:]*):", line).group(1).replace(" ", "").split(",")))
    made = text.count("= #attn.initializer<\"the constant of node")
    print(f"{name}: {count(made, 'weight')}, {count(left, 'constant product')}")
    x = rng.standard_normal((rows, width)).astype(numpy_type)
    np.save(FOLDER / "x.npy", x)
    if MODELS[name][2] is None:
        continue
    want = MODELS[name][2](x.astype(np.float64))
    for flags, bound in ([], 1e-5), (["-O0"], 1e-5), (["--weights=bf16"], 1e-2):
        subprocess.run([RUN, path, f"--input=x=@{FOLDER}/x.npy", f"--output=y=@{FOLDER}/y.npy", *flags], check=True,
                       stdout=subprocess.DEVNULL)
        y = np.load(FOLDER / "y.npy").astype(np.float64)
        bound = max(bound, 4e-3) if numpy_type == np.float16 else bound
        assert y.shape == want.shape and np.abs(y - want).max() <= bound * np.abs(want).max(), (name, flags)
        agree += 1
print(agree, "results agree")
