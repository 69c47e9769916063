"""Models whose node's constant is one number over and over, or nearly, and an input: uniform_constants.py FOLDER"""
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def save(name, constant, dtype):
    shape, is_mask = constant.shape, dtype == TensorProto.BOOL
    value = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(constant, "c"))
    use = helper.make_node("Where", ["c", "x", "x"], ["y"]) if is_mask else helper.make_node("Add", ["x", "c"], ["y"])
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT if is_mask else dtype, shape) for n in "xy")
    model = helper.make_model(helper.make_graph([value, use], "g", [x], [y]),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, f"{sys.argv[1]}/{name}.onnx")


np.save(f"{sys.argv[1]}/x.npy", np.arange(20000, dtype=np.float32).reshape(200, 100))
halves = np.full((200, 100), 0.5, np.float32)
save("floats", halves, TensorProto.FLOAT)
last = halves.copy()
last[-1, -1] = 1
save("last", last, TensorProto.FLOAT)
# Of equal value, and not of equal bytes.
zeros = np.zeros((200, 100), np.float32)
zeros[7, 3] = -0.0
save("signs", zeros, TensorProto.FLOAT)
save("small", np.full((20, 100), 0.5, np.float32), TensorProto.FLOAT)
save("halves", np.full((300, 200), 1.5, np.float16), TensorProto.FLOAT16)
save("bools", np.full((300, 300), True), TensorProto.BOOL)
save("alternating", np.tile(np.array([1, 0], np.int32), 20000).reshape(200, 200), TensorProto.INT32)
for name, numbers in ("shape", [2**64 - 1]), ("two", [1, 2]):
    filled = helper.make_node("ConstantOfShape", ["s"], ["y"], value=numpy_helper.from_array(np.array(numbers, np.uint64)))
    y, size = helper.make_tensor_value_info("y", TensorProto.UINT64, [2]), numpy_helper.from_array(np.array([2]), "s")
    onnx.save(helper.make_model(helper.make_graph([filled], "g", [], [y], [size]),
                                opset_imports=[helper.make_opsetid("", 17)], ir_version=8), f"{sys.argv[1]}/{name}.onnx")
