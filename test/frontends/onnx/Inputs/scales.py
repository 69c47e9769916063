"""Nodes with scales that are good, and that are not."""
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto as T, helper as h, numpy_helper

FOLDER = pathlib.Path(sys.argv[1])


def save(name, op, scale):
    scale = np.asarray(scale)
    real, code = onnx.helper.np_dtype_to_tensor_dtype(scale.dtype), T.INT8
    zero = numpy_helper.from_array(np.zeros(scale.shape, np.int8), "z")
    taken, given = (real, code) if op == "QuantizeLinear" else (code, real)
    node = h.make_node(op, ["x", "s", "z"], ["y"], name="n", axis=1)
    graph = h.make_graph([node], "g", [h.make_tensor_value_info("x", taken, ["n", 3])],
                         [h.make_tensor_value_info("y", given, ["n", 3])], [numpy_helper.from_array(scale, "s"), zero])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10), FOLDER / f"{name}.onnx")


save("inf", "QuantizeLinear", np.float32(np.inf))
save("zero", "QuantizeLinear", np.float32(0))
save("good", "QuantizeLinear", np.float32(0.5))
save("nan", "DequantizeLinear", np.array([1, np.nan, 2], np.float32))
save("half", "DequantizeLinear", np.float16(-np.inf))
save("zeros", "DequantizeLinear", np.array([0.5, 0, 2], np.float32))
