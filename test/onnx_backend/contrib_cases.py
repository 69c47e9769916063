"""What a case of contrib.py is, and the model of it."""
import numpy as np
import onnx
from onnx import TensorProto, helper

RNG = np.random.default_rng(7)
MS = "com.microsoft"
CASES = []


def floats(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def case(name, op, inputs, outputs=1, rtol=1e-3, atol=1e-4, domain=MS, check=None, oracle=None, **attributes):
    """`inputs`: arrays, None for a missing one, ("const", array) for an initialiser, or ("open", array) for one whose
    sizes only the run knows. `oracle`: the same in
    another layout, with attributes where they differ, or its results by NumPy, where ONNX Runtime's CPU lacks this one."""
    CASES.append((name, op, inputs, outputs, rtol, atol, domain, check, oracle, attributes))


def build(op, inputs, outputs, domain, attributes):
    names, declared, initializers, feeds = [], [], [], {}
    for i, value in enumerate(inputs):
        if value is None:
            names.append("")
            continue
        names.append(f"i{i}")
        shape = value[1].shape if isinstance(value, tuple) else value.shape
        if isinstance(value, tuple) and value[0] == "open":
            value, shape = value[1], [f"{names[-1]}_{d}" for d in range(len(shape))]
        if isinstance(value, tuple):
            initializers.append(onnx.numpy_helper.from_array(value[1], names[-1]))
            continue
        feeds[names[-1]] = value
        declared.append(helper.make_tensor_value_info(names[-1], helper.np_dtype_to_tensor_dtype(value.dtype),
                                                      shape))
    made = [f"o{i}" if outputs >> i & 1 else "" for i in range(outputs.bit_length())]
    node = helper.make_node(op, names, made, "node", domain=domain, **attributes)
    kinds = [TensorProto.INT32 if op.endswith("EmbedLayerNormalization") and i == 1 else
             helper.np_dtype_to_tensor_dtype(inputs[-1][1].dtype) if op == "QuantizeLinear" else
             attributes.get("dtype", TensorProto.FLOAT) if op == "GemmFloat8" else
             TensorProto.UINT8 if op == "QGemm" and len(inputs) > 7 else
             helper.np_dtype_to_tensor_dtype(next(v for v in feeds.values() if v.dtype.kind != "b").dtype)
             if op.startswith(("QLinear", "NhwcMaxPool")) else
             helper.np_dtype_to_tensor_dtype(next(v for v in feeds.values() if v.dtype.kind == "f").dtype)
             if any(v.dtype.kind == "f" for v in feeds.values()) else TensorProto.FLOAT for i in range(len(made))]
    graph = helper.make_graph([node], "g", declared, [helper.make_tensor_value_info(n, k, None)
                                                      for n, k in zip(made, kinds) if n], initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1), helper.make_opsetid("ai.onnx.ml", 5)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return model, feeds, [n for n in made if n]
