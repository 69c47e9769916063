#!/usr/bin/env python3
"""TopK of all types and directions beside a stable sort: top_k.py BIN FOLDER"""
import itertools
import subprocess
import sys

import numpy as np
import onnx
from onnx import parser


def reference(x, k, axis, largest):
    rows = np.moveaxis(x, axis, -1)
    flat = rows.reshape(-1, rows.shape[-1]) if rows.size else rows.reshape(0, rows.shape[-1])
    order = np.zeros((len(flat), k), np.int64)
    for n, row in enumerate(flat):
        # NaN is the greatest; sorting keeps equal ones in their order.
        numbers = [(True, 0) if x != x else (False, x.item()) for x in row]
        key = (lambda i: (not numbers[i][0], -numbers[i][1])) if largest else (lambda i: numbers[i])
        order[n] = sorted(range(len(row)), key=key)[:k]
    found = np.take_along_axis(flat, order, -1)
    back = lambda a: np.moveaxis(a.reshape(*rows.shape[:-1], k), -1, axis)
    return back(found), back(order)


def check_thresholds(bin, folder):
    """Attentions in f16 that keep the keys whose scores are not below the fifth one's, which TopK finds in f32."""
    path = f"{folder}/threshold.onnx"
    onnx.save(parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
g (float16[b,q,32] x, float16[b,32,k] y) => (float16[b,q,k] w) <int64[1] five = {5}, int64[1] four = {4}, int64[1] end = {9},
   int64[1] last = {-1}, float[1] hidden = {-1e9}> {
  s = MatMul(x, y)  wide = Cast<to = 1>(s)  top, places = TopK<axis = -1>(wide, five)
  fifth = Slice(top, four, end, last)  threshold = Cast<to = 10>(fifth)
  none = Cast<to = 10>(hidden)  isBelow = Less(s, threshold)  kept = Where(isBelow, none, s)
  w = Softmax<axis = -1>(kept)
}"""), path)
    rng = np.random.default_rng(5)
    x, y = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 70, 32), (2, 32, 65)))
    scores = x.astype(float) @ y.astype(float)
    kept = scores >= np.sort(scores, -1)[..., -5:-4]
    weights = np.where(kept, np.exp(scores - scores.max(-1, keepdims=True)), 0)
    weights /= weights.sum(-1, keepdims=True)
    np.save(f"{folder}/x.npy", x)
    np.save(f"{folder}/y.npy", y)
    for options in ([], ["-O0"], ["--mcpu=x86-64-v3"]):
        subprocess.run([f"{bin}/attnc", path, "-o", f"{folder}/threshold.so", *options], check=True)
        subprocess.run([f"{bin}/attn-run", f"{folder}/threshold.so", f"--input=x=@{folder}/x.npy",
                        f"--input=y=@{folder}/y.npy", f"--output=w=@{folder}/w.npy"], check=True, stdout=subprocess.DEVNULL)
        np.testing.assert_allclose(np.load(f"{folder}/w.npy").astype(float), weights, rtol=2e-3, atol=1e-7, err_msg=str(options))


def check_greatest(bin, folder):
    """What is chosen in f32 between two Casts is one of the numbers in f16 that it is chosen from; 0.1 is none of them."""
    path = f"{folder}/greatest.onnx"
    onnx.save(parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
g (float16[4,n] x) => (bool[4,n] y, bool[4,n] z) <float tenth = {0.1}> {
  a = Exp(x)  wide = Cast<to = 1>(a)  b = Exp(a)  other = Cast<to = 1>(b)  both = Concat<axis = 1>(wide, other)
  least = ReduceMin<keepdims = 1>(both)  most = ReduceMax<keepdims = 1>(wide)  lowest = Cast<to = 10>(least)
  highest = Cast<to = 10>(most)  isLowest = Equal(a, lowest)  isHighest = Equal(a, highest)  y = Or(isLowest, isHighest)
  above = Max(wide, tenth)  clipped = Cast<to = 10>(above)  z = Greater(clipped, a)
}"""), path)
    x = np.linspace(-4, 2, 36).reshape(4, 9).astype(np.float16)
    np.save(f"{folder}/x.npy", x)
    for options in ([], ["-O0"]):
        subprocess.run([f"{bin}/attnc", path, "-o", f"{folder}/greatest.so", *options], check=True)
        subprocess.run([f"{bin}/attn-run", f"{folder}/greatest.so", f"--input=x=@{folder}/x.npy", f"--output=y=@{folder}/y.npy",
                        f"--output=z=@{folder}/z.npy"], check=True, stdout=subprocess.DEVNULL)
        isEnd = np.zeros(x.shape, bool)
        isEnd.flat[[0, -1]] = True
        np.testing.assert_array_equal(np.load(f"{folder}/y.npy").astype(bool), isEnd, str(options))
        isBelow = np.exp(x.astype(float)) < 0.1
        assert (np.load(f"{folder}/z.npy").astype(bool) >= isBelow).all() and isBelow.any(), options


def main(bin, folder):
    check_greatest(bin, folder)
    check_thresholds(bin, folder)
    rng = np.random.default_rng(12)
    kinds = {"float": np.float32, "double": np.float64, "int64": np.int64, "uint8": np.uint8, "int32": np.int32,
             "float16": np.float16, "uint64": np.uint64}
    cases = [(*case, []) for case in itertools.product(kinds, (1, 0), (0, 1), (0, 1)) if case[0] == "float" or
             (case[1] and case[3])]
    cases += [("float", 1, 1, 1, ["-O0"]), ("int64", 1, 0, 1, ["--mcpu=x86-64"]), ("float", 1, 0, 1, ["--mcpu=x86-64-v3"])]
    for number, (kind, axis, largest, order, options) in enumerate(cases):
        path = f"{folder}/{number}.onnx"
        onnx.save(parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 18]>
g ({kind}[a,b] x, int64[1] k) => ({kind}[c,d] v, int64[e,f] i) {{
  v, i = TopK<axis = {axis}, largest = {largest}, sorted = {order}>(x, k)
}}"""), path)
        subprocess.run([f"{bin}/attnc", path, "-o", path.replace(".onnx", ".so"), *options], check=True)
        for rows, n, k in ((3, 40, 3), (2, 100, 100), (1, 37, 0), (5, 1, 1), (4, 1000, 1), (2, 700, 65), (0, 5, 2),
                           (3, 16, 5)):
            dtype = kinds[kind]
            x = rng.integers(-9, 9, (rows, n)).astype(dtype) if n < 300 else \
                (rng.permutation(rows * n).reshape(rows, n) - (0 if dtype().dtype.kind == "u" else 50)).astype(dtype)
            if dtype().dtype.kind == "f" and x.size > 30:
                x.flat[[3, 9, 20]], x.flat[7], x.flat[8], x.flat[11] = np.nan, np.inf, -np.inf, -0.0
            if dtype is np.uint64 and x.size > 9:
                x.flat[5] = 2**64 - 1
            x = np.ascontiguousarray(x if axis == 1 else x.T)
            np.save(f"{folder}/x.npy", x)
            np.save(f"{folder}/k.npy", np.array([k]))
            command = [f"{bin}/attn-run", path.replace(".onnx", ".so"), f"--input=x=@{folder}/x.npy",
                       f"--input=k=@{folder}/k.npy", f"--output=v=@{folder}/v.npy", f"--output=i=@{folder}/i.npy"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            values, places = reference(x, k, axis, largest)
            np.testing.assert_array_equal(np.load(f"{folder}/i.npy"), places, f"{kind} {axis} {largest} {options} {rows, n, k}")
            np.testing.assert_array_equal(np.load(f"{folder}/v.npy"), values)
    print("top-k agrees")


if __name__ == "__main__":
    main(*sys.argv[1:])
