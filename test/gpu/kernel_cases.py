"""What the cases of check_kernels.py are made of: models of one kernel each, their inputs, weights and outputs in float64.

A family's cases stand in a file of their own, such as row_cases.py."""
import numpy as np
import onnx
from onnx import TensorProto, helper

CASES = {}


def case(family, *sizes, **options):
    def register(function):
        for size in sizes:
            CASES.setdefault(family, []).append((function, size, options))
        return function
    return register


def model(nodes, inputs, outputs, weights=None, opset=18, free=None):
    """`inputs`: name to array; a dimension of `outputs` is free, and those of `inputs` in `free`: (name, axis) to name."""
    types = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16, "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
             "bool": TensorProto.BOOL, "int8": TensorProto.INT8, "uint8": TensorProto.UINT8}
    def value(name, array, isOutput):
        shape = [f"{name}{n}" if isOutput else (free or {}).get((name, n), size) for n, size in enumerate(array.shape)]
        return helper.make_tensor_value_info(name, types[str(array.dtype)], shape)
    graph = helper.make_graph(
        nodes, "g", [value(n, a, False) for n, a in inputs.items()], [value(n, a, True) for n, a in outputs.items()],
        [onnx.numpy_helper.from_array(a, n) for n, a in (weights or {}).items()])
    domains = {"": opset} | {node.domain: 1 for node in nodes if node.domain}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*domain) for domain in domains.items()], ir_version=10)


rng = np.random.default_rng(7)


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


PRECISION, ARCH, BUFFERS = "f32", "sm_80", "f32"


def rounded(x):
    """An operand of a product in float64, as the kernels round it."""
    x = np.asarray(x, np.float32)
    if PRECISION == "f16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(float)
    bits = x.view(np.uint32)
    if PRECISION == "bf16":  # to nearest, ties to even
        bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000
    if PRECISION == "tf32":  # ties away from zero
        bits = (bits + 0x1000) & 0xffffe000
    return bits.astype(np.uint32).view(np.float32).astype(float)


def factor(rows, columns):
    """How an operand of such a product is rounded: not at all where one side has few."""
    return rounded if min(rows, columns) > 8 else lambda x: x.astype(float)


def stored(w):
    """A weight as the library has it: rounded where products alone read it, and a small one not (it is in the code)."""
    return rounded(w) if PRECISION in ("bf16", "f16") and w.nbytes >= 1024 and w.shape[-1] % 8 == 0 else w.astype(float)


class Bounded:
    """Numbers of a type, and how far off they may be beyond the errors of f32."""

    def __init__(self, want, slack, dtype=np.float32):
        self.want, self.slack, self.dtype = want, slack, dtype
