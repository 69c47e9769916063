"""m.onnx, a product with a weight in m.bin, all of whose elements are the argument (default 2)."""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

value = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
weight = numpy_helper.from_array(np.full((64, 64), value, np.float32), "w")
tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 64]) for name in "xy"]
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", tensors[:1], tensors[1:], [weight])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
pathlib.Path("m.bin").unlink(missing_ok=True)
onnx.save(model, "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
