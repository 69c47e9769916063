"""What an operator means in the opset of its model, where onnx.reference knows one meaning: float64.py beside ONNX Runtime."""
import numpy as np
from onnx import TensorProto, helper

import float64
import operators

x = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
for name in ("Softmax", "LogSoftmax"):
    for opset in (11, 13):
        for axis in ({}, {"axis": 0}, {"axis": 1}, {"axis": 2}):
            infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n in ("x", "y")]
            graph = helper.make_graph([helper.make_node(name, ["x"], ["y"], **axis)], "g", infos[:1], infos[1:])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)
            found, = float64.Float64(model).run({"x": x})
            wanted, = operators.by_onnxruntime(model, {"x": x})
            print(name, opset, axis, "equal" if np.allclose(found, wanted, rtol=1e-5, atol=1e-6) else "DIFFERENT")
