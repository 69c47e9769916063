"""two.onnx, whose weight names one.bin and then, in the same entry, two.bin: the last one counts."""

import numpy as np
import onnx
from onnx import TensorProto, helper

for name, value in (("one.bin", 1), ("two.bin", 2)):
    np.full((64, 64), value, np.float32).tofile(name)
weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[64, 64], data_location=TensorProto.EXTERNAL)
# Both values have as many bytes as this one.
weight.external_data.add(key="location", value="one.bin" + "_" * 9)
tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 64]) for name in "xy"]
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", tensors[:1], tensors[1:], [weight])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
one, both = b"\x12\x10one.bin" + b"_" * 9, b"\x12\x07one.bin\x12\x07two.bin"
assert len(one) == len(both) and model.count(one) == 1
with open("two.onnx", "wb") as file:
    file.write(model.replace(one, both))
assert onnx.load("two.onnx", load_external_data=False).graph.initializer[0].external_data[0].value == "two.bin"
