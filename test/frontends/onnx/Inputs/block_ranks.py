"""Models of one node on codes in blocks of 16: block_ranks.py FOLDER."""
import pathlib
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper

CODES = np.arange(4 * 32).reshape(4, 32).astype(np.int8)
SCALES, ZEROS = np.full((4, 2), 0.5, np.float32), np.zeros((4, 2), np.int8)


def save(name, op, inputs, given=None, domain="", **attributes):
    """`inputs` are initialisers; `given` is the type and shape of an input of the run."""
    names = [f"c{i}" for i in range(len(inputs))]
    declared = [] if given is None else [helper.make_tensor_value_info("x", *given)]
    node = helper.make_node(op, names, ["y"], "n", domain=domain, **attributes)
    if declared:  # indices stand between codes and scales
        node.input.insert(1 if domain else 0, "x")
    kind = onnx.TensorProto.INT8 if op == "QuantizeLinear" else onnx.TensorProto.FLOAT
    graph = helper.make_graph([node], "g", declared, [helper.make_tensor_value_info("y", kind, None)],
                              [numpy_helper.from_array(value, n) for value, n in zip(inputs, names)])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), folder / f"{name}.onnx")


folder = pathlib.Path(sys.argv[1])
scalar = np.array(0.5, np.float32)
save("good", "DequantizeLinear", [CODES, SCALES, ZEROS], axis=1, block_size=16)
save("scalar", "DequantizeLinear", [CODES, scalar], axis=1, block_size=16)
save("zero", "DequantizeLinear", [CODES, SCALES, ZEROS[:, 0]], axis=1, block_size=16)
save("negative", "DequantizeLinear", [CODES, scalar], axis=1, block_size=-1)
save("quantize", "QuantizeLinear", [scalar, np.array(0, np.int8)], given=(1, [4, 32]), axis=1, block_size=16)
bytes_ = CODES.view(np.uint8)
for name, axis in (("gathered", 0), ("along", 1)):
    save(name, "GatherBlockQuantized", [bytes_, np.full((4, 4), 0.5, np.float32)], given=(7, ["n"]), domain="com.microsoft",
         gather_axis=axis, quantize_axis=1, block_size=16)
