#!/usr/bin/env python3
"""Recurrent cells spelled out as exporters do, with ONNX Runtime as the judge: cells.py ATTNC ATTN_RUN FOLDER

Each graph must become the recurrent layers that it says (none for a near miss) and give what
ONNX Runtime gives.
"""
import re
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

I, H = 20, 24
B = 3


class Graph:
    def __init__(self, seed):
        self.r = np.random.default_rng(seed)
        self.nodes, self.inits, self.count = [], [], 0
        self.inputs, self.outputs, self.types = {}, {}, {}

    def op(self, kind, *inputs, n=1, **attributes):
        names = [f"{kind.lower()}_{self.count}_{i}" for i in range(n)]
        self.count += 1
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if n == 1 else names

    def const(self, value):
        value = np.asarray(value)
        if value.dtype == np.float64:
            value = value.astype(np.float32)
        name = f"c{len(self.inits)}"
        self.inits.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, *shape):
        return self.const(self.r.standard_normal(shape) * 0.4)

    def input(self, name, *dims):
        self.inputs[name] = list(dims)
        return name

    def output(self, value, *dims):
        name = f"out{len(self.outputs)}"
        self.nodes.append(helper.make_node("Identity", [value], [name]))
        self.outputs[name] = list(dims)

    def body(self, name="graph"):
        def infos(side):
            return [helper.make_tensor_value_info(n, self.types.get(n, TensorProto.FLOAT), dims)
                    for n, dims in side.items()]
        return helper.make_graph(self.nodes, name, infos(self.inputs), infos(self.outputs), self.inits)

    def gemm(self, x, rows, cols, bias=True, transposed=True):
        w = self.weight(*((cols, rows) if transposed else (rows, cols)))
        return self.op("Gemm", x, w, *([self.weight(cols)] if bias else []), transB=int(transposed))

    def split(self, x, parts, axis=-1):
        return self.op("Split", x, n=parts, axis=axis, num_outputs=parts)

    def add(self, *values):
        total = values[0]
        for v in values[1:]:
            total = self.op("Add", *((total, v) if self.count % 2 else (v, total)))
        return total

    def mul(self, a, b):
        return self.op("Mul", *((a, b) if self.count % 2 else (b, a)))


# ----- LSTM: the new h and c -----

def lstm_out(g, i, f, n, o, c, gate="Sigmoid", squash="Tanh", **a):
    c1 = g.add(g.mul(g.op(gate, f, **a), c), g.mul(g.op(gate, i, **a), g.op(squash, n)))
    return g.mul(g.op(gate, o, **a), g.op(squash, c1)), c1


def gates_of(g, x, h):
    """The sums of the four gates of an LSTM, one product an input."""
    return g.split(g.add(g.gemm(x, I, 4 * H), g.gemm(h, H, 4 * H)), 4)


def lstm_torch(g, x, h, c):
    i, f, n, o = gates_of(g, x, h)
    return lstm_out(g, i, f, n, o, c)


def lstm_keras(g, x, h, c, **a):
    z = g.add(g.add(g.op("MatMul", x, g.weight(I, 4 * H)), g.op("MatMul", h, g.weight(H, 4 * H))), g.weight(4 * H))
    i, f, n, o = g.split(z, 4)
    return lstm_out(g, i, f, n, o, c, **a)


def lstm_joined(g, x, h, c):
    """One product of [x, h], gates i j f o, and 1 added to the forget gate, as in TensorFlow's BasicLSTMCell."""
    z = g.add(g.op("MatMul", g.op("Concat", x, h, axis=1), g.weight(I + H, 4 * H)), g.weight(4 * H))
    i, n, f, o = g.split(z, 4)
    return lstm_out(g, i, g.add(f, g.const(1.0)), n, o, c)


def lstm_separate(g, x, h, c):
    gates = [g.add(g.gemm(x, I, H, bias=False, transposed=False), g.gemm(h, H, H, bias=False)) for _ in range(4)]
    return lstm_out(g, *gates, c)


def lstm_fed(g, x, h, c):
    """Input feeding: the context is one more input."""
    y = g.input("context", "B", 7)
    z = g.add(g.op("MatMul", x, g.weight(I, 4 * H)), g.op("MatMul", y, g.weight(7, 4 * H)), g.gemm(h, H, 4 * H))
    n, i, o, f = g.split(z, 4)
    return lstm_out(g, i, f, n, o, c)


def lstm_sliced(g, x, h, c):
    """The three gates under one function, and slices of it."""
    z = g.add(g.gemm(x, I, 4 * H), g.gemm(h, H, 4 * H))
    def cut(v, a, b):
        return g.op("Slice", v, g.const(np.array([a])), g.const(np.array([b])), g.const(np.array([1])))
    s, n = g.op("Sigmoid", cut(z, 0, 3 * H)), g.op("Tanh", cut(z, 3 * H, 4 * H))
    i, f, o = cut(s, 0, H), cut(s, H, 2 * H), cut(s, 2 * H, 3 * H)
    c1 = g.add(g.mul(i, n), g.mul(f, c))
    return g.mul(g.op("Tanh", c1), o), c1


def lstm_hard(g, x, h, c):
    return lstm_keras(g, x, h, c, gate="HardSigmoid", squash="Relu", alpha=0.2, beta=0.5)


# Near misses.

def lstm_two_sigmoids(g, x, h, c):
    i, f, n, o = gates_of(g, x, h)
    c1 = g.add(g.mul(g.op("Sigmoid", f), c), g.mul(g.op("Sigmoid", i), g.op("Sigmoid", n)))
    return g.mul(g.op("Sigmoid", o), g.op("Tanh", c1)), c1


def lstm_no_tanh(g, x, h, c):
    i, f, n, o = gates_of(g, x, h)
    c1 = g.add(g.mul(g.op("Sigmoid", f), c), g.mul(g.op("Sigmoid", i), g.op("Tanh", n)))
    return g.mul(g.op("Sigmoid", o), c1), c1


def lstm_wrong_product(g, x, h, c):
    i, f, n, o = gates_of(g, x, h)
    c1 = g.add(g.mul(g.op("Sigmoid", f), g.op("Tanh", n)), g.mul(g.op("Sigmoid", i), g.op("Sigmoid", f)))
    return g.mul(g.op("Sigmoid", o), g.op("Tanh", c1)), c1


def lstm_gate_used(g, x, h, c):
    i, f, n, o = gates_of(g, x, h)
    g.output(g.op("Sigmoid", f), "B", H)
    return lstm_out(g, i, f, n, o, c)


def lstm_peephole(g, x, h, c):
    """The gate that goes out sees the new cell."""
    i, f, n, o = gates_of(g, x, h)
    c1 = g.add(g.mul(g.op("Sigmoid", f), c), g.mul(g.op("Sigmoid", i), g.op("Tanh", n)))
    o = g.add(o, g.op("MatMul", c1, g.weight(H, H)))
    return g.mul(g.op("Sigmoid", o), g.op("Tanh", c1)), c1


def lstm_normalised(g, x, h, c):
    """The gate that goes out sees the new cell through an op that is no product."""
    i, f, n, o = gates_of(g, x, h)
    c1 = g.add(g.mul(g.op("Sigmoid", f), c), g.mul(g.op("Sigmoid", i), g.op("Tanh", n)))
    return g.mul(g.op("Sigmoid", g.add(o, g.op("Softmax", c1, axis=1))), g.op("Tanh", c1)), c1


def lstm_uneven(g, x, h, c):
    """A gate has two products with the input, another one none."""
    p, x = g.input("p", "B", 4 * H), g.op("Identity", x)
    i, f, n, o = g.split(g.add(p, g.gemm(h, H, 4 * H)), 4)
    i, f, n = g.add(i, g.gemm(x, I, H), g.gemm(x, I, H)), g.add(f, g.gemm(x, I, H)), g.add(n, g.gemm(x, I, H))
    return lstm_out(g, i, f, n, o, c)


def lstm_two_functions(g, x, h, c):
    i, f, n, o = gates_of(g, x, h)
    c1 = g.add(g.mul(g.op("HardSigmoid", f), c), g.mul(g.op("Sigmoid", i), g.op("Tanh", n)))
    return g.mul(g.op("Sigmoid", o), g.op("Tanh", c1)), c1


def lstm_scaled(g, x, h, c):
    """A gate's sum has a factor."""
    i, f, n, o = gates_of(g, x, h)
    return lstm_out(g, i, g.mul(f, g.const(2.0)), n, o, c)


# ----- GRU: the new h -----

def gru_torch(g, x, h):
    xr, xz, xn = g.split(g.gemm(x, I, 3 * H), 3)
    hr, hz, hn = g.split(g.gemm(h, H, 3 * H), 3)
    r, z = g.op("Sigmoid", g.add(xr, hr)), g.op("Sigmoid", g.add(xz, hz))
    n = g.op("Tanh", g.add(xn, g.mul(r, hn)))
    return g.add(g.mul(g.op("Sub", h, n), z), n)


def blend(g, z, n, h):
    return g.add(g.mul(z, h), g.mul(g.op("Sub", g.const(1.0), z), n))


def gru_keras(g, x, h):
    xz, xr, xn = g.split(g.gemm(x, I, 3 * H, transposed=False), 3)
    hz, hr, hn = g.split(g.gemm(h, H, 3 * H, transposed=False), 3)
    z, r = g.op("Sigmoid", g.add(xz, hz)), g.op("Sigmoid", g.add(xr, hr))
    return blend(g, z, g.op("Tanh", g.add(xn, g.mul(r, hn))), h)


def gru_before(g, x, h):
    """The reset gate before the product."""
    xz, xr, xn = g.split(g.gemm(x, I, 3 * H, transposed=False), 3)
    hz, hr = g.split(g.op("MatMul", h, g.weight(H, 2 * H)), 2)
    z, r = g.op("Sigmoid", g.add(xz, hz)), g.op("Sigmoid", g.add(xr, hr))
    return blend(g, z, g.op("Tanh", g.add(xn, g.op("MatMul", g.mul(r, h), g.weight(H, H)))), h)


def gru_separate(g, x, h):
    def gate(of):
        return g.op("Sigmoid", g.add(g.gemm(x, I, H), g.gemm(of, H, H, bias=False)))
    z, r = gate(h), gate(h)
    n = g.op("Tanh", g.add(g.gemm(x, I, H), g.gemm(g.mul(h, r), H, H, bias=False)))
    return g.op("Sub", n, g.mul(z, g.op("Sub", n, h)))


def gru_lerp(g, x, h):
    xz, xr, xn = g.split(g.gemm(x, I, 3 * H), 3)
    hz, hr, hn = g.split(g.gemm(h, H, 3 * H), 3)
    r, z = g.op("Sigmoid", g.add(xr, hr)), g.op("Sigmoid", g.add(xz, hz))
    n = g.op("Tanh", g.add(xn, g.mul(r, hn)))
    return g.add(h, g.mul(g.op("Sub", g.const(1.0), z), g.op("Sub", n, h)))


def gru_mirrored(g, x, h):
    """The update gate lets the candidate in."""
    xz, xr, xn = g.split(g.gemm(x, I, 3 * H), 3)
    hz, hr, hn = g.split(g.gemm(h, H, 3 * H), 3)
    r, z = g.op("Sigmoid", g.add(xr, hr)), g.op("Sigmoid", g.add(xz, hz))
    return blend(g, z, h, g.op("Tanh", g.add(xn, g.mul(r, hn))))


def gru_mirrored_lerp(g, x, h):
    """The same as h + z (n - h), with the reset gate before the product."""
    def gate(of):
        return g.op("Sigmoid", g.add(g.gemm(x, I, H), g.gemm(of, H, H, bias=False)))
    z, r = gate(h), gate(h)
    n = g.op("Tanh", g.add(g.gemm(x, I, H), g.gemm(g.mul(h, r), H, H, bias=False)))
    return g.add(h, g.mul(z, g.op("Sub", n, h)))


def gru_two_gates(g, x, h):
    """Near miss: the two weights of the sum are not those of one gate."""
    xz, xr, xn = g.split(g.gemm(x, I, 3 * H), 3)
    hz, hr, hn = g.split(g.gemm(h, H, 3 * H), 3)
    r, z = g.op("Sigmoid", g.add(xr, hr)), g.op("Sigmoid", g.add(xz, hz))
    n = g.op("Tanh", g.add(xn, g.mul(r, hn)))
    return g.add(g.mul(z, h), g.mul(g.op("Sub", g.const(1.0), r), n))


def gru_no_reset(g, x, h):
    """Near miss: a minimal gated unit, whose candidate sees all of the state."""
    z = g.op("Sigmoid", g.add(g.gemm(x, I, H), g.gemm(h, H, H)))
    return blend(g, z, g.op("Tanh", g.add(g.gemm(x, I, H), g.gemm(h, H, H))), h)


def gru_other_state(g, x, h):
    """Near miss: what is blended in is not the state that the gates see."""
    y = g.input("other", "B", H)
    xz, xr, xn = g.split(g.gemm(x, I, 3 * H), 3)
    hz, hr, hn = g.split(g.gemm(h, H, 3 * H), 3)
    r, z = g.op("Sigmoid", g.add(xr, hr)), g.op("Sigmoid", g.add(xz, hz))
    return blend(g, z, g.op("Tanh", g.add(xn, g.mul(r, hn))), y)


# ----- graphs -----

def one_lstm(cell):
    def build(g):
        h1, c1 = cell(g, g.input("x", "B", I), g.input("h", "B", H), g.input("c", "B", H))
        g.output(h1, "B", H)
        g.output(c1, "B", H)
    return build


def one_gru(cell):
    def build(g):
        g.output(cell(g, g.input("x", "B", I), g.input("h", "B", H)), "B", H)
    return build


def batched(g):
    """With a dimension of one step, as Keras' loops have."""
    x, h, c = g.input("x", "B", 1, I), g.input("h", "B", H), g.input("c", "B", 1, H)
    z = g.add(g.op("MatMul", x, g.weight(I, 4 * H)),
              g.op("Unsqueeze", g.op("MatMul", h, g.weight(H, 4 * H)), g.const(np.array([1]))))
    h1, c1 = lstm_out(g, *g.split(z, 4), c)
    g.output(h1, "B", 1, H)
    g.output(g.op("Squeeze", c1, g.const(np.array([1]))), "B", H)


def step_of(g, kind, gx, gh, h, c):
    if kind == "lstm":
        return lstm_out(g, *g.split(g.add(gx, gh), 4), c)
    if kind == "rnn":
        return g.op("Tanh", g.add(gx, gh)), None
    (xr, xz, xn), (hr, hz, hn) = g.split(gx, 3), g.split(gh, 3)
    z, s = g.op("Sigmoid", g.add(xz, hz)), g.op("Sigmoid", g.add(xr, hr))
    return blend(g, z, g.op("Tanh", g.add(xn, g.mul(s, hn))), h), None


GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def unroll(kind, steps, hoisted=False):
    """Shared weights, a slice of the sequence each, or of what is projected of all of it."""
    def build(g):
        x, h = g.input("x", "B", steps, I), g.input("h", "B", H)
        c = g.input("c", "B", H) if kind == "lstm" else None
        gates = GATES[kind]
        w, r, b, d = g.weight(gates * H, I), g.weight(gates * H, H), g.weight(gates * H), g.weight(gates * H)
        if hoisted:
            x = g.add(g.op("MatMul", x, g.weight(I, gates * H)), b)
        for t in range(steps):
            xt = g.op("Gather", x, g.const(np.array(t)), axis=1)
            gx = xt if hoisted else g.op("Gemm", xt, w, b, transB=1)
            h, c = step_of(g, kind, gx, g.op("Gemm", h, r, d, transB=1), h, c)
            if t % 2 or t == steps - 1:
                g.output(h, "B", H)
        if c:
            g.output(c, "B", H)
    return build


def scan(cell, lstm):
    """The cell is the body of a Scan over the steps."""
    def build(g):
        body = Graph(5)
        h, c = body.input("h_in", "B", H), (body.input("c_in", "B", H) if lstm else None)
        x = body.input("x_in", "B", I)
        new = cell(body, x, h, c) if lstm else (cell(body, x, h),)
        for v in new:
            body.output(v, "B", H)
        body.output(new[0], "B", H)
        states = [g.input(n, "B", H) for n in ("h", "c")[:len(new)]]
        xs = g.input("x", "S", "B", I)
        got = g.op("Scan", *states, xs, n=len(new) + 1, body=body.body("body"), num_scan_inputs=1)
        for v in got[:-1]:
            g.output(v, "B", H)
        g.output(got[-1], "S", "B", H)
    return build


def loop(kind, hoisted):
    """The cell is the body of a Loop that takes its step of the sequence, or of what is projected of all of it."""
    def build(g):
        gates = GATES[kind]
        x, states = g.input("x", "S", "B", I), [g.input(n, "B", H) for n in ("h", "c")[:1 + (kind == "lstm")]]
        if hoisted:
            x = g.op("MatMul", x, g.weight(I, gates * H))
        body = Graph(5)
        number, go = body.input("number"), body.input("go")
        body.types = {number: TensorProto.INT64, go: TensorProto.BOOL, "out0": TensorProto.BOOL}
        h, c = body.input("h_in", "B", H), (body.input("c_in", "B", H) if kind == "lstm" else None)
        xt = body.op("Gather", x, number, axis=0)
        gx = xt if hoisted else body.gemm(xt, I, gates * H)
        h, c = step_of(body, kind, gx, body.gemm(h, H, gates * H), h, c)
        body.output(go)
        for v in [h, c, h] if c else [h, h]:
            body.output(v, "B", H)
        steps = g.op("Gather", g.op("Shape", "x"), g.const(np.array(0)))
        got = g.op("Loop", steps, "", *states, n=len(states) + 1, body=body.body("body"))
        for v in got[:-1]:
            g.output(v, "B", H)
        g.output(got[-1], "S", "B", H)
    return build


def projected(g, x, h, c):
    """What the input gives to the gates in another order, in two parts, and with a product of its own."""
    p, q = g.input("p", "B", 4 * H), g.input("q", "B", 4 * H)
    o, f, n, i = g.split(g.add(p, q, g.op("MatMul", x, g.weight(I, 4 * H)), g.gemm(h, H, 4 * H)), 4)
    return lstm_out(g, i, f, n, o, c)


def small(build):
    """Of few units: the recurrent weights have less than 1 KiB."""
    def run(g):
        global I, H
        kept = I, H
        I, H = 3, 5
        build(g)
        I, H = kept
    return run


def rnn_cell(g, x, h):
    return g.op("Tanh", g.add(g.gemm(x, I, H), g.gemm(h, H, H)))


def perceptron(g):
    """Near miss: a product of two inputs under tanh is no step without a state."""
    g.output(rnn_cell(g, g.input("x", "B", I), g.input("h", "B", H)), "B", H)


def stack(g):
    """Near miss: each layer has weights of its own."""
    x, h = g.input("x", "B", I), g.input("h", "B", H)
    for _ in range(3):
        h = rnn_cell(g, x, h)
    g.output(h, "B", H)


# Name: graph, the recurrent layers in it.
GRAPHS = {
    **{cell.__name__: (one_lstm(cell), ["lstm"]) for cell in (
        lstm_torch, lstm_keras, lstm_joined, lstm_separate, lstm_fed, lstm_sliced, lstm_hard, projected)},
    **{cell.__name__: (one_lstm(cell), []) for cell in (
        lstm_two_sigmoids, lstm_no_tanh, lstm_wrong_product, lstm_gate_used, lstm_peephole, lstm_two_functions,
        lstm_scaled, lstm_normalised, lstm_uneven)},
    **{cell.__name__: (one_gru(cell), ["gru"]) for cell in (
        gru_torch, gru_keras, gru_before, gru_separate, gru_lerp, gru_mirrored, gru_mirrored_lerp)},
    **{cell.__name__: (one_gru(cell), []) for cell in (gru_two_gates, gru_no_reset, gru_other_state)},
    "lstm_step": (batched, ["lstm"]),
    "lstm_unrolled": (unroll("lstm", 4), ["lstm"]),
    "gru_unrolled": (unroll("gru", 3), ["gru"]),
    "rnn_unrolled": (unroll("rnn", 3), ["rnn"]),
    "lstm_scan": (scan(lstm_torch, True), ["lstm"]),
    "gru_scan": (scan(gru_before, False), ["gru"]),
    "rnn_scan": (scan(rnn_cell, False), ["rnn"]),
    **{f"{kind}_hoisted": (unroll(kind, 4, hoisted=True), [kind]) for kind in GATES},
    **{f"{kind}_loop": (loop(kind, hoisted=False), [kind]) for kind in GATES},
    **{f"{kind}_loop_hoisted": (loop(kind, hoisted=True), [kind]) for kind in GATES},
    "gru_mirrored_scan": (scan(gru_mirrored, False), ["gru"]),
    "lstm_small": (small(one_lstm(lstm_torch)), ["lstm"]),
    "lstm_joined_small": (small(one_lstm(lstm_joined)), ["lstm"]),
    "gru_before_small": (small(one_gru(gru_before)), ["gru"]),
    "gru_mirrored_small": (small(one_gru(gru_mirrored)), ["gru"]),
    **{f"{kind}_unrolled_small": (small(unroll(kind, 3)), [kind]) for kind in GATES},
    "lstm_loop_small": (small(loop("lstm", hoisted=True)), ["lstm"]),
    "lstm_small_miss": (small(one_lstm(lstm_two_sigmoids)), []),
    "perceptron": (perceptron, []),
    "stack": (stack, []),
}


def main(attnc, attn_run, folder):
    for seed, (name, (build, layers)) in enumerate(GRAPHS.items()):
        g = Graph(seed)
        build(g)
        path = f"{folder}/{name}.onnx"
        onnx.save(helper.make_model(g.body(), opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
        subprocess.run([attnc, path, "--emit=linalg", "-o", f"{folder}/{name}.mlir"], check=True)
        found = re.findall(r"= attn\.(lstm|gru|rnn)\b", open(f"{folder}/{name}.mlir").read())
        assert found == layers, (name, found)
        subprocess.run([attnc, path, "-o", f"{folder}/{name}.so"], check=True)
        feeds = {n: g.r.standard_normal([{"B": B, "S": 5}.get(d, d) for d in dims]).astype(np.float32)
                 for n, dims in g.inputs.items()}
        want = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
        arguments = []
        for n, value in feeds.items():
            np.save(f"{folder}/{name}.{n}.npy", value)
            arguments.append(f"--input={n}=@{folder}/{name}.{n}.npy")
        for n in g.outputs:
            arguments.append(f"--output={n}=@{folder}/{name}.{n}.npy")
        subprocess.run([attn_run, f"{folder}/{name}.so", *arguments], check=True, stdout=subprocess.DEVNULL)
        for n, value in zip(g.outputs, want):
            got = np.load(f"{folder}/{name}.{n}.npy")
            assert got.shape == value.shape, (name, n, got.shape)
            np.testing.assert_allclose(got, value, rtol=1e-3, atol=1e-5, err_msg=f"{name} {n}")
    print(len(GRAPHS), "graphs agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
