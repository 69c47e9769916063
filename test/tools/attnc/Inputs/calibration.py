"""python calibration.py FOLDER: a model of one product, and files of inputs for it, right ones and wrong ones."""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

folder = pathlib.Path(sys.argv[1])
K, N = 67, 53
rng = np.random.default_rng(7)
weight = rng.standard_normal((K, N)).astype(np.float32)
nodes = [
    helper.make_node("Cast", ["keep"], ["kept"], to=TensorProto.FLOAT),
    helper.make_node("Mul", ["x", "kept"], ["shown"]),
    helper.make_node("MatMul", ["shown", "w"], ["y"]),
]
inputs = [
    helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", K]),
    helper.make_tensor_value_info("keep", TensorProto.INT64, ["n", 1]),
]
outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", N])]
graph = helper.make_graph(nodes, "product", inputs, outputs, [numpy_helper.from_array(weight, "w")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.save(model, folder / "product.onnx")

x = rng.standard_normal((19, K)).astype(np.float32)
keep = rng.integers(0, 2, (19, 1))
# More arrays than the model has inputs are no fault, and are told.
np.savez(folder / "good.npz", x=x, keep=keep, label=np.arange(3))
np.savez_compressed(folder / "packed.npz", x=np.asfortranarray(x), keep=keep)
np.savez(folder / "none.npz", x=x[:0], keep=keep[:0])
np.savez(folder / "missing.npz", x=x, kept=keep)
np.savez(folder / "empty.npz")
np.savez(folder / "dtype.npz", x=x.astype(np.float64), keep=keep)
np.savez(folder / "shape.npz", x=x[:, 1:], keep=keep)
np.savez(folder / "sizes.npz", x=x, keep=keep[1:])
np.savez(folder / "object.npz", x=np.array([None, x], dtype=object), keep=keep)
np.save(folder / "alone.npy", x)

good = (folder / "good.npz").read_bytes()
data = good.index(x.tobytes())
(folder / "short.npz").write_bytes(good[: len(good) // 2])
(folder / "flipped.npz").write_bytes(good[: data + 5] + bytes([good[data + 5] ^ 1]) + good[data + 6 :])
packed = bytearray((folder / "packed.npz").read_bytes())
listed = packed.index(b"PK\1\2")
packed[listed + 24 : listed + 28] = (0x7FFFFFFF).to_bytes(4, "little")
(folder / "bomb.npz").write_bytes(packed)
listed = good.index(b"PK\1\2")
(folder / "place.npz").write_bytes(good[: listed + 42] + b"\xf0\xff\xff\xff" + good[listed + 46 :])

# What weights of int8, a scale a column, make of the outputs.
scale = np.abs(weight).max(0) / 127.0
rounded = np.rint(weight / scale) * scale
shown = x.astype(np.float64) * keep
want = shown @ weight.astype(np.float64)
error = shown @ (rounded - weight)
np.savez(folder / "want.npz", relative=np.linalg.norm(error) / np.linalg.norm(want), most=np.abs(error).max())
