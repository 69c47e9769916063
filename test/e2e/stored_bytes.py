"""Weights that a model keeps in bytes, beside rows of floats: stored_bytes.py BIN FOLDER

Each product is compared with float64 on the dequantised weight, by the bound of a sum of K products in f32, and has to
have a kernel that reads the bytes.
"""
import itertools
import json
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

BIN, FOLDER = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
node = helper.make_node


def call(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def run(name, nodes, constants, x, shape, products=1):
    """y of the model for x, and what the compiler says of its products."""
    path = FOLDER / f"{name}.onnx"
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, ["m", x.shape[1]])],
                              [helper.make_tensor_value_info("y", 1, shape)],
                              [numpy_helper.from_array(v, n) for n, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    said = json.loads(call(BIN / "attnc", path, "-o", FOLDER / "m.so", "--json"))["products"]
    np.save(FOLDER / "x.npy", x)
    call(BIN / "attn-run", FOLDER / "m.so", f"--input=x=@{FOLDER}/x.npy", f"--output=y=@{FOLDER}/y.npy")
    assert len(said) == products and all(p.get("kernel") for p in said), (name, said)
    return np.load(FOLDER / "y.npy"), said


def check(name, y, x, w):
    """Against float64, with a bound for each element."""
    want = x.astype(np.float64) @ w
    bound = (w.shape[0] + 8) * 2**-24 * (np.abs(x).astype(np.float64) @ np.abs(w))
    assert y.shape == want.shape and (np.abs(y - want) <= bound + 1e-30).all(), (name, np.abs(y - want).max())


rng = np.random.default_rng(1)
cases = 0
# Signed and unsigned codes, one scale or one a column, with and without zero points, K x N or N x K, tails of blocks (256
# rows), of panels and of rows.
for kind, by_column, has_zero, transposed, (k, n) in itertools.product(
        ("i1", "u1"), (False, True), (False, True), (False, True), ((256, 33), (300, 17), (1100, 2), (513, 64))):
    m = 1 + cases % 5
    limits = np.iinfo(kind)
    codes = rng.integers(limits.min, limits.max + 1, (n, k) if transposed else (k, n)).astype(kind)
    count = n if by_column else 1
    scale = rng.uniform(0.001, 0.02, count).astype(np.float32)
    zero = rng.integers(limits.min, limits.max + 1, count).astype(kind)
    shaped = lambda v: v if by_column else v[0]  # noqa: E731
    constants = {"codes": codes, "scale": np.array(shaped(scale))} | ({"zero": np.array(shaped(zero))} if has_zero else {})
    dequantize = node("DequantizeLinear", list(constants), ["w"], axis=0 if transposed else 1)
    nodes = [dequantize, *([node("Transpose", ["w"], ["t"], perm=[1, 0])] if transposed else []),
             node("MatMul", ["x", "t" if transposed else "w"], ["y"], "product")]
    x = rng.standard_normal((m, k)).astype(np.float32)
    y, [said] = run("rows", nodes, constants, x, ["m", n])
    w = codes.astype(np.float64).T if transposed else codes.astype(np.float64)
    check((kind, by_column, has_zero, transposed, k, n), y, x, (w - (zero if has_zero else 0)) * scale.astype(np.float64))
    assert said["storage"] == f"{kind[0].replace('i', 's')}8 blocks of 256", said
    cases += 1
print(f"{cases} weights of bytes by rows of floats")

# The weight is a float one that the model quantises, behind a transpose too: that is done once, and not in the run.
for kind, by_column, transposed in itertools.product(("i1", "u1"), (False, True), (False, True)):
    k, n, limits = 70, 19, np.iinfo(kind)
    stored = rng.standard_normal((n, k) if transposed else (k, n)).astype(np.float32)
    stored[0, 0] = np.nan  # which becomes the least code
    count = n if by_column else 1
    scale = rng.uniform(0.01, 0.02, count).astype(np.float32)
    zero = rng.integers(limits.min // 2, limits.max // 2, count).astype(kind)
    shaped = lambda v: np.array(v if by_column else v[0])  # noqa: E731
    constants = {"stored": stored, "scale": shaped(scale), "zero": shaped(zero)}
    nodes = [*([node("Transpose", ["stored"], ["turned"], perm=[1, 0])] if transposed else []),
             node("QuantizeLinear", ["turned" if transposed else "stored", "scale", "zero"], ["codes"], axis=1),
             node("DequantizeLinear", ["codes", "scale", "zero"], ["w"], axis=1),
             node("MatMul", ["x", "w"], ["y"], "product")]
    x = rng.standard_normal((3, k)).astype(np.float32)
    y, _ = run("quantised", nodes, constants, x, ["m", n])
    steps = np.rint((stored.T if transposed else stored) / scale) + zero.astype(np.float32)
    codes = np.clip(np.where(np.isnan(steps), limits.min, steps), limits.min, limits.max).astype(np.float64)
    check((kind, by_column, transposed), y, x, (codes - zero) * scale.astype(np.float64))
print("8 weights quantised in the model")
