"""What hostile models are made of, and the list of them. Each module of cases registers its own."""
import json
import os

import numpy as np
from onnx import TensorProto, helper, numpy_helper

CASES = {}


def case(status, message):
    """Registers a function that writes FOLDER/<its name>.onnx from the bytes it returns."""
    def register(make):
        CASES[make.__name__] = (make, status, message)
        return make
    return register


def varint(n):
    out = bytearray()
    while True:
        out.append((n & 0x7f) | (0x80 if n > 0x7f else 0))
        n >>= 7
        if not n:
            return bytes(out)


def field(number, payload):
    """A length-delimited protobuf field, for what the onnx package refuses to write."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def info(name, shape=("n", 4), dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs=None, outputs=None, initializers=(), opset=17, functions=(), ir=8, domains=()):
    graph = helper.make_graph(nodes, "g", inputs if inputs is not None else [info("x")],
                              outputs if outputs is not None else [info("y", None)], list(initializers))
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(d, 1) for d in domains]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, functions=list(functions))


def identity(source="x", target="y", name="copy"):
    return helper.make_node("Identity", [source], [target], name)


def weight(name, dims, data_type=TensorProto.FLOAT, raw=b""):
    tensor = TensorProto(name=name, data_type=data_type)
    tensor.dims.extend(dims)
    tensor.raw_data = raw
    return tensor


def constant(name, values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def with_weight(tensor):
    return model([identity(tensor.name)], initializers=[tensor])


def external(**entries):
    tensor = weight("w", [4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return with_weight(tensor)


def write(folder):
    """Writes all registered cases and expected.json."""
    os.makedirs(folder, exist_ok=True)
    expected = {}
    for name, (make, status, message) in CASES.items():
        data = make(folder)
        if data is not None:
            with open(f"{folder}/{name}.onnx", "wb") as f:
                f.write(data if isinstance(data, bytes) else data.SerializeToString())
        expected[name] = [status, message]
    with open(f"{folder}/expected.json", "w") as f:
        json.dump(expected, f, indent=1)
