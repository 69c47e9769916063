"""Random models of one operator: shapes with 0, 1 and primes, broadcasting, axes from either end, opsets 7 to 28.

`make(seed)` is a Graph. An operator is a row of OPERATORS: a function that draws attributes and inputs. Element types are
drawn from the schema of the operator at the graph's opset. What onnx.reference computes wrongly is not drawn; each such
place says why.
"""
import math
import random

import numpy as np
import onnx
import onnx.defs
from onnx import helper

SIZES = (0, 1, 1, 2, 3, 5, 7, 11, 13, 17, 31)
# bfloat16 is left out: the reference evaluator rounds in other places.
DTYPES = {"float": "float32", "double": "float64", "float16": "float16", "int8": "int8", "int16": "int16",
          "int32": "int32", "int64": "int64", "uint8": "uint8", "uint16": "uint16", "uint32": "uint32",
          "uint64": "uint64", "bool": "bool"}


def split_name(op):
    """(domain, operator) of a row's name: "com.microsoft.Gelu"."""
    return op.rpartition(".")[::2]


class Graph:
    """A model, what it is fed (name to array, constants among them), and which inputs are which."""

    def __init__(self, seed, op, opset, attributes, inputs, outputs, constants, open_dims, form):
        self.seed, self.op, self.opset, self.attributes, self.outputs = seed, op, opset, attributes, outputs
        self.inputs = inputs  # [array or None]
        self.constants = set(constants)  # positions
        self.open_dims = open_dims  # whether dimensions that are not 1 are open
        self.form = form

    def replaced(self, **changes):
        fields = {k: getattr(self, k) for k in
                  ("seed", "op", "opset", "attributes", "inputs", "outputs", "constants", "open_dims", "form")}
        return Graph(**{**fields, **changes})

    def feeds(self):
        return {f"i{n}": v for n, v in enumerate(self.inputs) if v is not None and n not in self.constants}

    def model(self):
        names = ["" if v is None else f"i{n}" for n, v in enumerate(self.inputs)]
        outputs = [f"o{n}" for n in range(self.outputs)]
        domain, name = split_name(self.op)
        nodes = self.form.nodes or [helper.make_node(name, names[:len(names) - self.form.captured], outputs, name="node",
                                                     domain=domain, **self.attributes)]
        declared, constants = [], []
        for n, v in enumerate(self.inputs):
            if v is None:
                continue
            if n in self.constants:
                constants.append(onnx.numpy_helper.from_array(v, f"i{n}"))
                continue
            shape = [f"i{n}_{d}" if self.open_dims and size != 1 else size for d, size in enumerate(v.shape)]
            declared.append(helper.make_tensor_value_info(f"i{n}", helper.np_dtype_to_tensor_dtype(v.dtype), shape))
        kinds = self.form.kinds or [onnx.TensorProto.FLOAT] * self.outputs
        made = [helper.make_tensor_value_info(o, k, None) if domain else onnx.ValueInfoProto(name=o)
                for o, k in zip(outputs, kinds)]
        graph = helper.make_graph(nodes, name, declared, made, constants)
        imports = [helper.make_opsetid("", self.opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        if domain:
            return model
        inferred = onnx.shape_inference.infer_shapes(model)
        for mine, theirs in zip(model.graph.output, inferred.graph.output):
            elem = theirs.type.tensor_type.elem_type
            mine.CopyFrom(helper.make_tensor_value_info(mine.name, elem, None))
        return model


class Form:
    """What a row may say of its model beside the operands of one node."""
    nodes = None  # the nodes instead of one, over i0, i1, ... and o0, o1, ...
    captured = 0  # the last inputs, of which only the bodies know
    fixed = ()  # positions of inputs that are always constants
    kinds = None  # element types of the results, in a domain that ONNX infers nothing of
    oracle = "reference"  # or "onnxruntime"


class Draw:
    """Chance, and the operator that it draws for."""

    def __init__(self, seed, op, opset):
        self.r = random.Random(seed)
        self.data = np.random.default_rng(seed)
        self.op, self.opset, self.form = op, opset, Form()
        domain, name = split_name(op)
        if domain == "com.microsoft":
            self.form.oracle = "onnxruntime"
            return
        self.schema = onnx.defs.get_schema(name, 1 if domain else opset, domain)
        self.version = self.schema.since_version

    def size(self, least=0):
        return self.r.choice([s for s in SIZES if s >= least])

    def shape(self, least=0, most=4, size=0, elements=3000):
        shape = [self.size(size) for _ in range(self.r.randint(least, most))]
        while math.prod(shape) > elements:
            shape[shape.index(max(shape))] = self.r.choice((1, 2, 3))
        return shape

    def maybe(self, chance=0.5):
        return self.r.random() < chance

    def axis(self, rank):
        return self.r.randint(-rank, rank - 1)

    def axes(self, rank, least=0):
        chosen = self.r.sample(range(rank), self.r.randint(min(least, rank), rank))
        return [a - rank if self.negative() else a for a in chosen]

    def negative(self):
        return self.maybe()

    def dtype(self, position=0, among=None):
        """An element type of input `position`; floats twice as often."""
        kind = self.schema.inputs[min(position, len(self.schema.inputs) - 1)]
        allowed = [k.allowed_type_strs for k in self.schema.type_constraints if k.type_param_str == kind.type_str]
        names = [DTYPES[t[7:-1]] for t in (allowed[0] if allowed else [kind.type_str]) if t[7:-1] in DTYPES]
        names = [n for n in names if not among or n in among]
        return self.r.choice(names + [n for n in names if n == "float32"] * len(names))

    def array(self, shape, dtype="float32", low=-4, high=4):
        dtype = np.dtype(dtype)
        if dtype.kind == "b":
            return self.data.integers(0, 2, shape).astype(bool)
        if dtype.kind == "u":
            return self.data.integers(max(low, 0), high + 1, shape).astype(dtype)
        if dtype.kind == "i":
            return self.data.integers(low, high + 1, shape).astype(dtype)
        return np.asarray(self.data.uniform(low, high, shape)).astype(dtype)

    def broadcast(self, shape):
        """A shape that broadcasts with `shape`."""
        tail = list(shape)[self.r.randint(0, len(shape)) if self.maybe(0.4) else 0:]
        return [1 if self.maybe(0.25) else s for s in tail]

    def pair(self, dtype, **bounds):
        shape = self.shape()
        arrays = [self.array(shape, dtype, **bounds), self.array(self.broadcast(shape), dtype, **bounds)]
        if self.maybe() and self.opset >= 7:
            arrays.reverse()
        return arrays


OPERATORS = {}  # name -> (draw, least opset, greatest)


def operator(*names, since=7, until=28):
    def add(function):
        for name in names:
            OPERATORS[name] = (function, since, until)
        return function
    return add


def ints(values):
    return np.asarray(values, dtype=np.int64)


#===----------------------------------------------------------------------===#
# Elementwise. A row returns (attributes, inputs[, outputs[, positions that may be constants]])
#===----------------------------------------------------------------------===#


@operator("Abs", "Neg", "Exp", "Floor", "Ceil", "Sin", "Cos", "Tan", "Atan", "Erf", "Tanh", "Sigmoid", "Relu", "Selu",
          "HardSwish", "Softplus", "Softsign", "Sign", "Mish", "Not", "Identity", "BitwiseNot", "Round", "Sinh", "Cosh",
          "Asinh", "IsNaN", "IsInf")
def unary(d):
    x = d.array(d.shape(), d.dtype())
    if d.op in ("IsNaN", "IsInf") and x.size:
        x.ravel()[:: 3] = np.nan
        x.ravel()[:: 4] = np.inf
    return {}, [x]


@operator("Sqrt", "Log", "Reciprocal")
def positive(d):
    return {}, [d.array(d.shape(), d.dtype(), 1, 9)]


@operator("Asin", "Acos", "Atanh")
def inside_one(d):
    return {}, [d.array(d.shape(), d.dtype(), -0.9, 0.9)]


@operator("Acosh")
def above_one(d):
    return {}, [d.array(d.shape(), d.dtype(), 1.1, 9)]


@operator("LeakyRelu", "Elu", "Celu", "ThresholdedRelu")
def with_alpha(d):
    return ({"alpha": d.r.uniform(0.1, 2)} if d.maybe() else {}), [d.array(d.shape(), d.dtype())]


@operator("HardSigmoid")
def hard_sigmoid(d):
    return {"alpha": 0.3, "beta": 0.4} if d.maybe() else {}, [d.array(d.shape(), d.dtype())]


@operator("Gelu")
def gelu(d):
    return {"approximate": d.r.choice(["none", "tanh"])}, [d.array(d.shape(), d.dtype())]


@operator("Shrink")
def shrink(d):
    return {"bias": d.r.uniform(0, 2), "lambd": d.r.uniform(0, 2)}, [d.array(d.shape(), d.dtype(among=["float32", "float64"]))]


@operator("Add", "Sub", "Mul", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor",
          "BitwiseAnd", "BitwiseOr", "BitwiseXor")
def binary(d):
    return {}, d.pair(d.dtype())


@operator("Div", "Mod")
def division(d):
    dtype = d.dtype()
    fmod = int(np.dtype(dtype).kind == "f" or d.maybe(0.3)) if d.op == "Mod" else 0
    x, y = d.pair(dtype, low=-9, high=9)
    y = np.where(y == 0, np.asarray(3, y.dtype), y)
    if d.op == "Div" and np.dtype(dtype).kind in "iu":
        # The reference divides as Python does (floor); ONNX says C, so operands have one sign.
        x, y = np.asarray(abs(x)), np.asarray(abs(y))
    return ({"fmod": fmod} if d.op == "Mod" else {}), [x, y]


@operator("Pow")
def power(d):
    base = d.dtype(among=["float32", "float64", "int32", "int64"])
    exponent = base if d.version < 12 else d.r.choice(["float32", "int32", "int64"])
    x, y = d.pair("float64", low=1, high=3)
    if np.dtype(base).kind == "i":
        y = np.round(y)
    return {}, [x.astype(base), y.astype(exponent)]


@operator("BitShift")
def bit_shift(d):
    dtype = d.dtype(among=["uint8", "uint16", "uint32", "uint64"])
    return {"direction": d.r.choice(["LEFT", "RIGHT"])}, d.pair(dtype, low=0, high=7)


@operator("Min", "Max", "Sum", "Mean")
def variadic(d):
    dtype, shape = d.dtype(), d.shape()
    inputs = [d.array(shape, dtype)] + [d.array(d.broadcast(shape), dtype) for _ in range(d.r.randint(0, 3))]
    d.r.shuffle(inputs)
    return {}, inputs


@operator("PRelu")
def prelu(d):
    dtype, shape = d.dtype(), d.shape(1)
    return {}, [d.array(shape, dtype), d.array(d.broadcast(shape), dtype)]


@operator("Where")
def where(d):
    dtype, shape = d.dtype(1), d.shape()
    return {}, [d.array(d.broadcast(shape), "bool"), d.array(shape, dtype), d.array(d.broadcast(shape), dtype)]


@operator("Clip", since=11)
def clip(d):
    dtype = d.dtype()
    low, high = d.array([], dtype, 0, 1), d.array([], dtype, 2, 3)
    return {}, [d.array(d.shape(), dtype), low if d.maybe(0.7) else None, high if d.maybe(0.7) else None]


@operator("Cast")
def cast(d):
    to = d.r.choice([t for t in DTYPES.values()])
    low = 0 if to.startswith("u") else -100
    return {"to": int(helper.np_dtype_to_tensor_dtype(np.dtype(to)))}, [d.array(d.shape(), d.dtype(), low, 100)]


#===----------------------------------------------------------------------===#
# Reductions, softmax, normalisation
#===----------------------------------------------------------------------===#


@operator("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
          "ReduceLogSum", "ReduceLogSumExp")
def reduction(d):
    # ReduceMean of integers: the reference gives floats' mean cast, ONNX says nothing of rounding.
    among = ["float32", "float64"] if d.op in ("ReduceMean", "ReduceLogSum", "ReduceLogSumExp", "ReduceL2") else None
    low = 1 if d.op == "ReduceLogSum" else 0 if d.op == "ReduceProd" else -3
    x = d.array(d.shape(0, 5), d.dtype(among=among or ["float32", "float64", "int32", "int64", "uint32", "uint64"]), low, 3)
    if d.op == "ReduceSumSquare" and x.dtype.kind in "iu":
        x = x.astype(np.int64)  # the sum of no int32 is an int64 to the reference
    axes, attributes = d.axes(x.ndim, 1), {"keepdims": d.r.randint(0, 1)}
    if d.op in ("ReduceMax", "ReduceMin", "ReduceLogSum") and 0 in x.shape:
        x = d.array([max(s, 1) for s in x.shape], x.dtype, low, 3)
    inputs = [x]
    as_input = d.version >= (13 if d.op == "ReduceSum" else 18)
    if axes and d.maybe(0.8):
        if as_input:
            inputs.append(ints(axes))
        else:
            if d.opset < 11:
                axes = [a % x.ndim for a in axes]
            attributes["axes"] = axes
    elif as_input and d.maybe():
        attributes["noop_with_empty_axes"] = 1
    return attributes, inputs, 1, [1]


@operator("ArgMax", "ArgMin")
def arg_reduction(d):
    x = d.array(d.shape(1, 4, 1), d.dtype(among=["float32", "float64", "int32", "int64", "uint8"]), -3, 3)
    axis = d.axis(x.ndim) if d.opset >= 11 else d.r.randrange(x.ndim)
    attributes = {"axis": axis, "keepdims": d.r.randint(0, 1)}
    if d.opset >= 12:
        attributes["select_last_index"] = d.r.randint(0, 1)
    return attributes, [x]


@operator("CumSum")
def cum_sum(d):
    x = d.array(d.shape(1), d.dtype(among=["float32", "float64", "int32", "int64"]))
    axis = np.asarray(d.axis(x.ndim), d.r.choice(["int32", "int64"]))
    return {"exclusive": d.r.randint(0, 1), "reverse": d.r.randint(0, 1)}, [x, axis], 1, [1]


@operator("Softmax", "LogSoftmax", "Hardmax", since=13)
def softmax(d):
    x = d.array(d.shape(1, 4, 1), d.dtype(among=["float32", "float64"]))
    return {"axis": d.axis(x.ndim)}, [x]


@operator("LayerNormalization", "RMSNormalization")
def layer_norm(d):
    x = d.array(d.shape(1, 4, 1), d.dtype(among=["float32", "float64"]))
    axis = d.axis(x.ndim)
    tail = x.shape[axis % x.ndim:]
    inputs = [x, d.array(tail, x.dtype)]
    if d.op == "LayerNormalization" and d.maybe():
        inputs.append(d.array(tail, x.dtype))
    attributes = {"axis": axis, "epsilon": d.r.choice([1e-5, 1e-2])}
    # stash_type is float32: float64 is rounded on its way, by the reference not.
    return attributes, [i.astype("float32") for i in inputs]


@operator("InstanceNormalization", "BatchNormalization", since=14)
def channel_norm(d):
    shape = d.shape(3, 5, 1)
    x = d.array(shape)
    per_channel = [d.array([shape[1]], "float32", 0.5, 2) for _ in range(2 if d.op[0] == "I" else 4)]
    return {"epsilon": 1e-3}, [x, *per_channel]


@operator("GroupNormalization", since=21)
def group_norm(d):
    groups, per = d.r.choice([1, 2, 3]), d.r.choice([1, 2, 5])
    x = d.array([d.size(1), groups * per, *d.shape(1, 2, 1, 100)])
    return {"num_groups": groups, "epsilon": 1e-3}, [x, d.array([groups * per]), d.array([groups * per])]


@operator("LpNormalization")
def lp_norm(d):
    x = d.array(d.shape(1, 4, 1), "float32", 1, 4)
    return {"axis": d.axis(x.ndim), "p": d.r.choice([1, 2])}, [x]


@operator("LRN")
def lrn(d):
    # The reference computes as many channels as there are images.
    n, c, h, w = d.shape(4, 4, 1)
    return {"size": d.r.choice([1, 3, 5])}, [d.array([c, c, h, w])]
