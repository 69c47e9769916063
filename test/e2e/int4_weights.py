#!/usr/bin/env python3
"""Models in f32 whose weights the compiler stores in 4 bits, beside float64 on what it is said to store: int4_weights.py BIN FOLDER"""
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from block_products import Run, half_steps, save

K, N = 80, 200


def stored(matrix, block):
    """A K x N matrix as --weights=int4:BLOCK says that it is kept: of two scales the nearer one."""
    k, n = matrix.shape
    blocks = np.pad(matrix, ((0, -k % block), (0, 0))).reshape(-1, block, n).transpose(0, 2, 1)
    extreme = np.take_along_axis(blocks, np.abs(blocks).argmax(2)[..., None], 2)
    kept = []
    for scale in (np.abs(extreme) / np.float32(7), extreme / np.float32(-8)):
        codes = np.round(np.clip(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale != 0), -8, 7))
        kept.append(codes.astype(np.float64) * scale)
    even, full = (((each - blocks) ** 2).sum(2, keepdims=True) for each in kept)
    return np.where(full < even, kept[1], kept[0]).transpose(0, 2, 1).reshape(-1, n)[:k]


def main(bin, folder):
    run, rng = Run(bin, folder), np.random.default_rng(5)
    store = lambda name, value: numpy_helper.from_array(value, name)  # noqa: E731
    w, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((K, N), (N, K)))
    w[:32, 3] = 0  # a block of nothing
    w[40, 5], w[41, 6] = 9, -9  # one that is far from the others, on either side
    bias = rng.standard_normal(N).astype(np.float32)
    one, many = rng.standard_normal((1, K)).astype(np.float32), rng.standard_normal((2, 50, K)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["xs", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["q"]), helper.make_node("Relu", ["q"], ["z"]),
             helper.make_node("Gemm", ["x", "v", "b"], ["y"], transB=1, alpha=0.5)]
    linear = run.folder / "linear.onnx"
    save(linear, nodes, [("x", 1, [1, K]), ("xs", 1, [2, "length", K])], [("y", 1, [1, N]), ("z", 1, [2, "length", N])],
         [store("w", w), store("v", v), store("b", bias)])
    for block in (16, 32, 256):
        kept, other = stored(w, block), stored(v.T.copy(), block)
        want = {"y": 0.5 * (one @ other) + bias, "z": np.maximum(many @ kept + bias, 0)}
        flags = [f"--weights=int4:{block}"]
        run.check(linear, 2, {"x": one, "xs": many}, want, 5e-5, flags)
        run.check(linear, 2, {"x": one, "xs": many[:, :0]}, {"y": want["y"], "z": np.zeros((2, 0, N))}, 5e-5, flags)
        rounding = {"y": 0.5 * half_steps(one, block) @ np.abs(other) + 5e-5, "z": half_steps(many, block) @ np.abs(kept) + 5e-5}
        run.check(linear, 2, {"x": one, "xs": many}, want, rounding, [*flags, "--precision=int8"])

    # One column of weights; three rows of them, few enough to be constants of the code, which stay; a depth that no block divides, in f16, and an embedding that is tied to a product.
    deep = rng.standard_normal((2051, 1)).astype(np.float32)
    flat = rng.standard_normal((3, 70)).astype(np.float32)
    halves = rng.standard_normal((K, 30)).astype(np.float16)
    table = rng.standard_normal((50, K)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["d", "deep"], ["a"]), helper.make_node("MatMul", ["f", "flat"], ["c"]),
             helper.make_node("MatMul", ["h", "halves"], ["e"]), helper.make_node("Gather", ["table", "ids"], ["g"]),
             helper.make_node("Transpose", ["table"], ["t"], perm=[1, 0]), helper.make_node("MatMul", ["g", "t"], ["l"])]
    odd = run.folder / "odd.onnx"
    half = TensorProto.FLOAT16
    save(odd, nodes, [("d", 1, ["n", 2051]), ("f", 1, ["n", 3]), ("h", half, ["n", K]), ("ids", 7, ["n"])],
         [("a", 1, ["n", 1]), ("c", 1, ["n", 70]), ("e", half, ["n", 30]), ("g", 1, ["n", K]), ("l", 1, ["n", 50])],
         [store("deep", deep), store("flat", flat), store("halves", halves), store("table", table)])
    d, f = rng.standard_normal((5, 2051)).astype(np.float32), rng.standard_normal((5, 3)).astype(np.float32)
    h, ids = rng.standard_normal((5, K)).astype(np.float16), np.array([0, 49, 7, 7, 20], np.int64)
    want = {"a": d @ stored(deep, 32), "c": f.astype(np.float64) @ flat, "e": h.astype(np.float64) @ stored(halves.astype(np.float32), 32),
            "g": table[ids], "l": table[ids] @ stored(table.T.copy(), 32)}
    bound = {"a": 1e-3, "c": 1e-5, "e": np.abs(want["e"]) * 2.0**-10 + 1e-4, "g": 0, "l": 1e-4}
    run.check(odd, 3, {"d": d, "f": f, "h": h, "ids": ids}, want, bound, ["--weights=int4:32"])

    # 5 bits for each number: 4 and a share of a scale.
    big = run.folder / "big.onnx"
    save(big, [helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", 1, ["n", 1024])], [("y", 1, ["n", 1024])],
         [store("w", rng.standard_normal((1024, 1024)).astype(np.float32))])
    library = run.library(big, 1, ["--weights=int4:32"])
    assert library.stat().st_size <= 1024 * 1024 * 5 / 8 + 150_000, library.stat().st_size

    # What 4 bits cannot hold.
    w[0, 0] = np.inf
    save(run.folder / "infinite.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], [("x", 1, ["n", K])], [("y", 1, ["n", N])], [store("w", w)])
    done = subprocess.run([f"{bin}/attnc", run.folder / "infinite.onnx", "-o", run.folder / "i.so", "--weights=int4:32"], capture_output=True, text=True)
    assert done.returncode == 2 and "not finite, which codes of 4 bits cannot hold" in done.stderr, (done.returncode, done.stderr)
    assert not (run.folder / "i.so").exists()
    print("weights in 4 bits agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
