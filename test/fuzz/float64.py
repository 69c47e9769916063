"""A model in float64, node by node: what it means, and how far roundings move it.

Every float of the model becomes a float64 that overflows where its type does. Bodies of control flow and recurrent
layers are computed here, all else by the operators of onnx.reference. With `noise` each result of a node is moved at
random by so many units in the last place of the type that it has in the model; such runs show what rounding can make
of the outputs.
"""
import collections

import ml_dtypes
import numpy as np
import onnx
import onnx.reference.ops  # noqa: F401  once, not in each child of models.py: 200 modules
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

# The unit roundoff of a type, and where it overflows.
FLOATS = {TensorProto.FLOAT: (2.0**-24, (2 - 2.0**-24) * 2.0**127), TensorProto.FLOAT16: (2.0**-11, 65520.0),
          TensorProto.BFLOAT16: (2.0**-8, (2 - 2.0**-8) * 2.0**127)}
OWN = {}


def own(function):
    OWN[function.__name__.lstrip("_")] = function
    return function


def array_of(tensor):
    value = numpy_helper.to_array(tensor)
    return value.astype(np.float64) if tensor.data_type in FLOATS else value


def widened_attribute(a):
    if a.type == onnx.AttributeProto.TENSOR and a.t.data_type in FLOATS:
        a.t.CopyFrom(numpy_helper.from_array(array_of(a.t), a.t.name))
    elif a.name in ("to", "dtype", "output_dtype") and a.i in FLOATS:
        a.i = TensorProto.DOUBLE


class Float64:
    def __init__(self, model, overflows=True):
        """Without `overflows` f16 does so no earlier than f32."""
        self.overflows = overflows
        self.opsets = list(model.opset_import)
        self.types, self.prepared = {}, {}
        self.graph = model.graph
        self.note_types(model.graph)
        self.noise, self.rng = 0, None

    def note_types(self, graph):
        for info in [*graph.value_info, *graph.input, *graph.output]:
            self.types[info.name] = info.type.tensor_type.elem_type
        for node in graph.node:
            for a in node.attribute:
                if a.type == onnx.AttributeProto.GRAPH:
                    self.note_types(a.g)

    def rounds_to_codes(self):
        return any(n.op_type in ("QuantizeLinear", "DynamicQuantizeLinear") for n in self.graph.node)

    def run(self, feeds, noise=0, seed=0):
        """The outputs for `feeds`, in order. `noise` None rounds each result to its type."""
        self.noise, self.rng = noise, np.random.default_rng(seed)
        narrow = (np.float32, np.float16, ml_dtypes.bfloat16)
        widened = {n: v.astype(np.float64) if v.dtype in narrow else v for n, v in feeds.items()}
        with np.errstate(all="ignore"):
            return self.run_graph(self.graph, collections.ChainMap({}), widened)

    def run_graph(self, graph, outer, given):
        values = outer.new_child(dict(given))
        for tensor in graph.initializer:
            key = id(tensor)
            if key not in self.prepared:
                self.prepared[key] = (tensor, array_of(tensor))
            values[tensor.name] = self.prepared[key][1]
        for node in graph.node:
            results = self.run_node(node, values)
            for name, value in zip(node.output, results):
                if name:
                    values[name] = self.rounded(name, value)
        return [values[o.name] for o in graph.output]

    def rounded(self, name, value):
        if not isinstance(value, np.ndarray) or value.dtype != np.float64:
            return value
        kind = self.types.get(name)
        kind = kind if kind in FLOATS else TensorProto.FLOAT
        if self.noise is None:
            return value.astype(helper.tensor_dtype_to_np_dtype(kind)).astype(np.float64)
        unit, largest = FLOATS[kind]
        if not self.overflows:
            _, largest = FLOATS[TensorProto.FLOAT]
        if self.noise:
            value = value * (1 + unit * self.noise * self.rng.uniform(-1, 1, value.shape))
        return np.where(np.abs(value) >= largest, np.copysign(np.inf, value), value)

    def run_node(self, node, values):
        if node.op_type in OWN:
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            return OWN[node.op_type](self, node, values, [values[i] if i else None for i in node.input], attributes)
        key = id(node)
        if key not in self.prepared:
            self.prepared[key] = (node, self.operator_of(node))
        return self.prepared[key][1].run(*(values[i] if i else None for i in node.input))

    def operator_of(self, node):
        """onnx.reference's implementation of a node; half of the time of its evaluator is the evaluator's."""
        alone = onnx.NodeProto()
        alone.CopyFrom(node)
        for a in alone.attribute:
            widened_attribute(a)
        infos = [[onnx.ValueInfoProto(name=n) for n in dict.fromkeys(names) if n] for names in (node.input, node.output)]
        graph = helper.make_graph([alone], "node", *infos)
        return ReferenceEvaluator(graph, opsets={o.domain: o.version for o in self.opsets}).rt_nodes_[0]


#===----------------------------------------------------------------------===#
# Control flow
#===----------------------------------------------------------------------===#


@own
def _If(self, node, values, inputs, attributes):
    return self.run_graph(attributes["then_branch" if inputs[0].reshape(-1)[0] else "else_branch"], values, {})


@own
def _Loop(self, node, values, inputs, attributes):
    body, states = attributes["body"], inputs[2:]
    count, go, at, kept = inputs[0], inputs[1], 0, []
    go = True if go is None else bool(go)
    while go and (count is None or at < int(count)):
        names = [i.name for i in body.input]
        given = dict(zip(names, [np.asarray(at, np.int64), np.asarray(go), *states]))
        results = self.run_graph(body, values, given)
        go, states = bool(results[0]), results[1:1 + len(states)]
        kept.append(results[1 + len(states):])
        at += 1
    return [*states, *(np.stack(column) for column in zip(*kept))]


@own
def _Scan(self, node, values, inputs, attributes):
    body, scanned = attributes["body"], attributes["num_scan_inputs"]
    states, rows, kept = inputs[:len(inputs) - scanned], inputs[len(inputs) - scanned:], []
    for at in range(len(rows[0])):
        names = [i.name for i in body.input]
        results = self.run_graph(body, values, dict(zip(names, [*states, *(r[at] for r in rows)])))
        states = results[:len(states)]
        kept.append(results[len(states):])
    return [*states, *(np.stack(column) for column in zip(*kept))]


#===----------------------------------------------------------------------===#
# What onnx.reference has for late opsets alone
#===----------------------------------------------------------------------===#


def below_maximum(self, x, attributes):
    """`x` less its maximum along the axis, and that axis. Before opset 13 all dimensions from the axis on are one."""
    version = next(o.version for o in self.opsets if not o.domain)
    axis = attributes.get("axis", 1 if version < 13 else -1)
    axes = tuple(range(axis % x.ndim, x.ndim)) if version < 13 else axis
    return x - x.max(axis=axes, keepdims=True, initial=-np.inf), axes


@own
def _Softmax(self, node, values, inputs, attributes):
    x, axes = below_maximum(self, inputs[0], attributes)
    weights = np.exp(x)
    return [weights / weights.sum(axis=axes, keepdims=True)]


@own
def _LogSoftmax(self, node, values, inputs, attributes):
    x, axes = below_maximum(self, inputs[0], attributes)
    return [x - np.log(np.exp(x).sum(axis=axes, keepdims=True))]


def along(values, x, attributes):
    """A scale or zero point a column, in the rank of `x`."""
    if values is None or values.ndim != 1:
        return 0 if values is None else values
    return np.moveaxis(values.reshape(-1, *[1] * (x.ndim - 1)), 0, attributes.get("axis", 1))


@own
def _DequantizeLinear(self, node, values, inputs, attributes):
    x, scale, zero = (*inputs, None)[:3]
    return [(x.astype(np.float64) - along(zero, x, attributes)) * along(scale, x, attributes)]


@own
def _BatchNormalization(self, node, values, inputs, attributes):
    x, *numbers = inputs
    scale, shift, mean, variance = (n.reshape(-1, *[1] * (x.ndim - 2)) for n in numbers)
    return [scale * (x - mean) / np.sqrt(variance + attributes.get("epsilon", 1e-5)) + shift]


@own
def _QuantizeLinear(self, node, values, inputs, attributes):
    x, scale, zero = (*inputs, np.zeros((), np.uint8))[:3]
    limits = np.iinfo(zero.dtype)
    codes = np.rint(x / along(scale, x, attributes)) + along(zero, x, attributes)
    return [np.clip(codes, limits.min, limits.max).astype(zero.dtype)]


#===----------------------------------------------------------------------===#
# Recurrent layers, without lengths, peepholes, clips or first states
#===----------------------------------------------------------------------===#


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def directions(node, inputs, attributes, gates, step):
    """(all states [S, ways, B, H], the last ones [ways, B, H]) of a cell `step(x, state, w, u, wb, ub)`."""
    x, w, u, b = (*inputs, None)[:4]
    size, way = attributes["hidden_size"], attributes.get("direction", b"forward")
    every, last = [], []
    for n in range(len(w)):
        turned = way == b"reverse" or n == 1
        wb, ub = np.split(b[n], 2) if b is not None else np.zeros((2, gates * size))
        state, rows = (np.zeros((x.shape[1], size)),) * 2, []
        for row in x[::-1] if turned else x:
            state = step(row, state, w[n], u[n], wb, ub)
            rows.append(state[0])
        every.append(np.stack(rows[::-1] if turned else rows))
        last.append(state)
    return [np.stack(every, 1), *(np.stack(s) for s in zip(*last))][:len(node.output)]


@own
def _LSTM(self, node, values, inputs, attributes):
    def step(x, state, w, u, wb, ub):
        i, o, f, c = np.split(x @ w.T + state[0] @ u.T + wb + ub, 4, axis=-1)
        new = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(c)
        return sigmoid(o) * np.tanh(new), new

    return directions(node, inputs, attributes, 4, step)


@own
def _GRU(self, node, values, inputs, attributes):
    def step(x, state, w, u, wb, ub):
        h = state[0]
        (xz, xr, xh), (hz, hr, hh) = np.split(x @ w.T + wb, 3, axis=-1), np.split(h @ u.T + ub, 3, axis=-1)
        z, r = sigmoid(xz + hz), sigmoid(xr + hr)
        if not attributes.get("linear_before_reset"):
            size = h.shape[-1]
            new = np.tanh(xh + (r * h) @ u[2 * size:].T + ub[2 * size:])
        else:
            new = np.tanh(xh + r * hh)
        return ((1 - z) * new + z * h,) * 2

    return directions(node, inputs, attributes, 3, step)


@own
def _RNN(self, node, values, inputs, attributes):
    return directions(node, inputs, attributes, 1,
                      lambda x, state, w, u, wb, ub: (np.tanh(x @ w.T + state[0] @ u.T + wb + ub),) * 2)
