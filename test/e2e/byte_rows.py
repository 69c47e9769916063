#!/usr/bin/env python3
"""Models in f32 under --precision=int8 beside float64, within what rounding rows and columns to 8 bits makes of them: byte_rows.py BIN FOLDER"""
import pathlib
import subprocess
import sys

import numpy as np
from onnx import helper, numpy_helper

from block_products import half_steps, save

K, N = 80, 200


def by_column(matrix):
    """A K x N matrix as the compiler says that it stores it."""
    scales = np.abs(matrix).max(0) / np.float32(127)
    return np.round(np.divide(matrix, scales, out=np.zeros_like(matrix), where=scales != 0)).astype(np.float64) * scales


def run(bin, folder, path, inputs, names):
    """The outputs on the machine at hand, which may or may not multiply bytes."""
    command = [f"{bin}/attn-run", path, "--precision=int8"]
    for name, value in inputs.items():
        np.save(folder / f"{name}.npy", value)
        command.append(f"--input={name}=@{folder / name}.npy")
    subprocess.run(command + [f"--output={n}=@{folder / n}_out.npy" for n in names], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {name: np.load(folder / f"{name}_out.npy") for name in names}


def main(bin, folder):
    folder, rng = pathlib.Path(folder), np.random.default_rng(7)
    w, v, u = (rng.standard_normal(shape).astype(np.float32) for shape in ((K, N), (N, K), (N, K)))
    w[:, 3], w[40, 5] = 0, -9
    bias = rng.standard_normal(N).astype(np.float32)
    store = lambda name, value: numpy_helper.from_array(value, name)  # noqa: E731
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["q"]), helper.make_node("Relu", ["q"], ["y"]),
             helper.make_node("Gemm", ["one", "v", "b"], ["z"], transB=1, alpha=0.5), helper.make_node("MatMul", ["y", "t"], ["r"]),
             helper.make_node("Add", ["r", "x"], ["s"]), helper.make_node("MatMul", ["x", "w"], ["raw"])]
    model = folder / "model.onnx"
    save(model, nodes, [("x", 1, [2, "length", K]), ("one", 1, [1, K])],
         [("y", 1, [2, "length", N]), ("z", 1, [1, N]), ("s", 1, [2, "length", K]), ("raw", 1, [2, "length", N])],
         [store("w", w), store("v", v), store("t", u), store("b", bias)])

    def slack(rows, matrix, columns):
        """Of rows by a matrix, where both are rounded: each part by half a step of its own."""
        weight_steps = np.abs(columns).max(0) / 254
        return half_steps(rows, rows.shape[-1]) @ np.abs(matrix) + (np.abs(rows).sum(-1)[..., None]) * weight_steps + 1e-4

    one = rng.standard_normal((1, K)).astype(np.float32)
    empty = run(bin, folder, model, {"x": np.zeros((2, 0, K), np.float32), "one": one}, ["y", "s"])
    assert empty["y"].shape == (2, 0, N) and empty["s"].shape == (2, 0, K)
    for length in (1, 5, 50):
        x = rng.standard_normal((2, length, K)).astype(np.float32)
        x[:, : length // 5] = 0  # rows of nothing
        got = run(bin, folder, model, {"x": x, "one": one}, ["y", "z", "s", "raw"])
        raw = x.astype(np.float64) @ w
        y = np.maximum(raw + bias, 0)
        z = 0.5 * (one.astype(np.float64) @ v.T) + bias
        assert got["y"].shape == y.shape and (np.abs(got["y"] - y) <= slack(x, by_column(w), w)).all()
        assert (np.abs(got["raw"] - raw) <= slack(x, by_column(w), w)).all()
        assert (np.abs(got["z"] - z) <= 0.5 * slack(one, by_column(v.T), v.T) + 1e-4).all()
        mid = got["y"]
        assert (np.abs(got["s"] - (mid.astype(np.float64) @ u + x)) <= slack(mid, by_column(u), u)).all()

    # Of a row with an infinity or a NaN nothing is a number afterwards, and no other row knows of it.
    report = subprocess.run([f"{bin}/attnc", model, "-o", folder / "m.so", "--precision=int8", "--fusion-report=-"],
                            check=True, capture_output=True, text=True).stdout
    isRounded = "s8 rows in s32" in report
    x = rng.standard_normal((2, 4, K)).astype(np.float32)
    clean = run(bin, folder, model, {"x": x, "one": one}, ["raw"])["raw"]
    x[0, 1, 7], x[1, 2, 0], x[1, 3, 5] = np.nan, np.inf, -np.inf
    got = run(bin, folder, model, {"x": x, "one": one}, ["raw"])["raw"]
    assert np.isnan(got[0, 1]).all()
    for row, at in ((2, 0), (3, 5)):
        assert (np.isnan(got[1, row]) if isRounded else ~np.isfinite(got[1, row]) | (w[at] == 0)).all()
    same = np.ones((2, 4), bool)
    same[0, 1] = same[1, 2] = same[1, 3] = False
    assert (got[same] == clean[same]).all()
    print("rows of bytes agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
