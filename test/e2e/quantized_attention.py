#!/usr/bin/env python3
"""Attentions of bytes beside float64: quantized_attention.py BIN FOLDER"""
import json
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

HEADS, WIDTH = 2, 20
SCALES = {"q": 0.02, "k": 0.02, "s": 0.05, "p": 1 / 255, "v": 0.03, "y": 0.03}


def save(path, kind, zeros, masked):
    node = helper.make_node
    of = lambda name: [f"{name}_scale", f"{name}_zero"]  # noqa: E731
    nodes = [node("QLinearMatMul", ["q", *of("q"), "k", *of("k"), *of("s")], ["scores"], "scores"),
             node("DequantizeLinear", ["scores", *of("s")], ["s"]),
             *([node("Add", ["s", "mask"], ["shown"])] if masked else []),
             node("Softmax", ["shown" if masked else "s"], ["p"], "weights", axis=-1),
             node("QuantizeLinear", ["p", *of("p")], ["bytes"]),
             node("QLinearMatMul", ["bytes", *of("p"), "v", *of("v"), *of("y")], ["y"], "values")]
    value = lambda name, kind, *shape: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape)  # noqa: E731
    inputs = [value("q", kind, "b", HEADS, "m", WIDTH), value("k", kind, "b", HEADS, WIDTH, "n"),
              value("v", kind, "b", HEADS, "n", WIDTH), *([value("mask", "f4", "b", 1, 1, "n")] if masked else [])]
    constants = {f"{name}_scale": np.float32(scale) for name, scale in SCALES.items()}
    constants |= {f"{name}_zero": np.array(zero, np.uint8 if name == "p" else kind) for name, zero in zeros.items()}
    graph = helper.make_graph(nodes, "g", inputs, [value("y", kind, "b", HEADS, "m", WIDTH)],
                              [numpy_helper.from_array(v, n) for n, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def quantised(x, name, kind, zeros):
    """The bytes of x, and where x lies so close to the middle of two steps that either is right."""
    steps = x / np.float64(np.float32(SCALES[name]))
    limits = np.iinfo(kind)
    near = np.abs(steps - np.floor(steps) - 0.5) < (1e-3 if name == "p" else 1e-4)
    return np.clip(np.rint(steps) + zeros[name], limits.min, limits.max).astype(np.int64) - zeros[name], near


def check(library, run, rng, kind, zeros, masked, batch, queries, keys):
    low = np.iinfo(kind).min
    draw = lambda *shape: rng.integers(low, low + 256, shape).astype(kind)  # noqa: E731
    feeds = {"q": draw(batch, HEADS, queries, WIDTH), "k": draw(batch, HEADS, WIDTH, keys), "v": draw(batch, HEADS, keys, WIDTH)}
    mask = np.zeros((batch, 1, 1, keys), np.float32)
    if masked:
        mask[1:, :, :, keys // 2 + 1:] = -10000
        feeds["mask"] = mask
    numbers = {n: feeds[n].astype(np.int64) - zeros[n] for n in "qkv"}
    scale = {n: np.float64(np.float32(s)) for n, s in SCALES.items()}
    s, doubt = quantised(numbers["q"] @ numbers["k"] * (scale["q"] * scale["k"]), "s", kind, zeros)
    # What a score one step off may change, at most.
    score = np.exp(np.minimum(scale["s"] * doubt.any(-1, keepdims=True), 1)) - 1
    e = s * scale["s"] + mask
    e = np.exp(e - e.max(-1, keepdims=True, initial=-np.inf))
    p = e / e.sum(-1, keepdims=True)
    bytes_, near = quantised(p, "p", np.uint8, zeros)
    size = np.abs(numbers["v"]).max(initial=0) * scale["v"]
    bound = 0.51 * scale["y"] + near.sum(-1, keepdims=True) * scale["p"] * size + 3 * score * size
    want = bytes_ * scale["p"] @ (numbers["v"] * scale["v"])
    limits = np.iinfo(kind)
    want = np.clip(want, (limits.min - zeros["y"]) * scale["y"], (limits.max - zeros["y"]) * scale["y"])
    got = (run(library, feeds).astype(np.int64) - zeros["y"]) * scale["y"]
    assert got.shape == want.shape and (np.abs(got - want) <= bound).all(), \
        f"{kind} {zeros} masked={masked} {batch}x{queries}x{keys}: {np.abs(got - want).max()} off"


def integer_sums(bin, folder, run, rng, dynamic):
    """Weights that a sum of integers reads (MatMulInteger): an attention that is not fused, for that reason."""
    path, library, report = folder / "sums.onnx", folder / "sums.so", folder / "sums.json"
    text = f"""<ir_version: 9, opset_import: ["": 17]> g (float[2,m,8] q, float[2,8,n] k, uint8[2,n,5] v) => (float[2,m,5] y)
      <float fixed = {{0.00392157}}, uint8 zero = {{0}}, uint8 middle = {{128}}, float size = {{0.03}}> {{
        s = MatMul(q, k)
        [weights] w = Softmax<axis = -1>(s)
        [bytes] {"b, scale, low = DynamicQuantizeLinear(w)" if dynamic else "b = QuantizeLinear(w, fixed, zero)"}
        [values] p = MatMulInteger(b, v, {"low" if dynamic else "zero"}, middle)
        f = Cast<to = 1>(p)
        both = Mul({"scale" if dynamic else "fixed"}, size)
        y = Mul(f, both) }}"""
    onnx.save(onnx.parser.parse_model(text), path)
    for options in ([], ["-O0"]):
        subprocess.run([f"{bin}/attnc", path, "-o", library, f"--fusion-report={report}", *options], check=True)
        verdicts = json.loads(report.read_text())
        if not options:
            found = [(row["verdict"], row["node"], row["reason"], row["reason_node"]) for row in verdicts]
            reason = "its weights are rounded to integers before the weighted sum, which is one of integers"
            operator = "DynamicQuantizeLinear" if dynamic else "QuantizeLinear"
            assert found == [("missed", "node 'weights' (Softmax)", reason, f"node 'bytes' ({operator})")], found
        for queries, keys in ((1, 1), (5, 7), (16, 65)):
            feeds = {"q": rng.normal(size=(2, queries, 8)).astype(np.float32),
                     "k": rng.normal(size=(2, 8, keys)).astype(np.float32),
                     "v": rng.integers(0, 256, (2, keys, 5)).astype(np.uint8)}
            scores = feeds["q"].astype(np.float64) @ feeds["k"]
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            scale = weights.max() / 255 if dynamic else np.float64(np.float32(0.00392157))
            steps = weights / scale
            near = np.abs(steps - np.floor(steps) - 0.5) < 1e-3  # either byte is right
            values = feeds["v"].astype(np.int64) - 128
            want = np.clip(np.rint(steps), 0, 255) @ values * scale * np.float64(np.float32(0.03))
            bound = 1e-5 + near.sum(-1, keepdims=True) * scale * 0.03 * np.abs(values).max()
            assert (np.abs(run(library, feeds) - want) <= bound).all(), (dynamic, options, queries, keys)


def main(bin, folder):
    folder, rng = pathlib.Path(folder), np.random.default_rng(11)

    def run(library, feeds):
        command = [f"{bin}/attn-run", library, f"--output=y=@{folder}/y.npy", "--threads=2"]
        for name, value in feeds.items():
            np.save(folder / f"{name}.npy", value)
            command.append(f"--input={name}=@{folder}/{name}.npy")
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return np.load(folder / "y.npy")

    for number, (kind, zeros, masked) in enumerate([
            (np.uint8, {"q": 128, "k": 120, "s": 130, "p": 0, "v": 127, "y": 128}, False),
            (np.int8, {"q": 0, "k": -3, "s": 2, "p": 0, "v": 5, "y": 0}, True)]):
        path, library = folder / f"{number}.onnx", folder / f"{number}.so"
        save(path, kind, zeros, masked)
        for options in ([], ["--mcpu=x86-64-v3"], ["-O0"]):
            fused = [] if "-O0" in options else ["--require-fused=1"]
            subprocess.run([f"{bin}/attnc", path, "-o", library, *fused, *options], check=True)
            for queries, keys in ((1, 1), (5, 7), (16, 64), (33, 65), (3, 300)):
                check(library, run, rng, kind, zeros, masked, 2, queries, keys)
    for dynamic in (False, True):
        integer_sums(bin, folder, run, rng, dynamic)
    print("quantised attentions agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
