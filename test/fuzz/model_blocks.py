"""The blocks of random models: each takes a hidden state [B, S, E] of model_graphs.Model and gives another."""
import numpy as np
from onnx import TensorProto

import graph_data
import model_bodies
from graph_masks import ELEMENT

WORDS = 19


#===----------------------------------------------------------------------===#
# Where a model begins and ends
#===----------------------------------------------------------------------===#


def states(m, name, length):
    """An input [B, length, E]."""
    return m.input(name, ["B", length, m.width],
                   lambda d, rng, run: rng.standard_normal((d["B"], d[length], m.width)).astype(graph_data.NUMPY[m.kind]))


def beginning(m):
    """Features, or words and their places."""
    if m.r.random() < 0.5:
        return states(m, "x", "Sq")
    ids = m.input("ids", ["B", "Sq"], lambda d, rng, run: rng.integers(0, WORDS, (d["B"], d["Sq"])), np.int64)
    m.table = m.const(m.normal(WORDS, m.width))
    x = m.op("Gather", m.table, ids, axis=0)
    if m.r.random() < 0.6:
        length = m.op("Gather", m.op("Shape", ids), m.const(1, np.int64), axis=0)
        at = m.op("Range", m.const(0, np.int64), length, m.const(1, np.int64))
        if m.r.random() < 0.5:
            at = m.unsqueeze(at, 0)
        x = m.commute("Add", x, m.op("Gather", m.const(m.normal(64, m.width, scale=0.3)), at, axis=0))
    return norm(m, x) if m.r.random() < 0.3 else x


def memory(m):
    """What the layers attend to besides: an encoder's states."""
    y = states(m, "memory", "Sk")
    return norm(m, y) if m.r.random() < 0.3 else y


def ending(m, x):
    if m.r.random() < 0.4:
        x = norm(m, x)
    kind = m.r.choice(["hidden", "hidden", "logits", "tied", "pooled", "first", "words", "best", "search"])
    if kind == "pooled":
        x = m.linear(m.reduce("ReduceMean", x, 1, 0), m.width, 5)
        x = m.op("Softmax", x, axis=-1)
    elif kind == "first":
        x = m.op("Gemm", m.op("Gather", x, m.const(0, np.int64), axis=1), m.weight(m.width, 6), m.const(m.normal(6)))
        x = m.op("Tanh", x)
    elif kind != "hidden":
        rows = m.table if kind == "tied" and hasattr(m, "table") else m.const(m.normal(WORDS, m.width, scale=m.width**-0.5))
        x = m.op("MatMul", x, m.op("Transpose", rows, perm=[1, 0]))
        if kind == "logits":
            x = m.op("LogSoftmax", x, axis=-1)
    if kind == "search" and m.kind == "f32":
        x = model_bodies.greedy(m, m.op("Gather", x, m.const(-1, np.int64), axis=1), WORDS)
        return m.output(x, "out", np.int64)
    if kind == "words":
        x = m.op("ArgMax", x, axis=-1, keepdims=m.r.randint(0, 1))
        return m.output(x, "out", np.int64)
    if kind == "best":
        x, places = m.op("TopK", x, m.ints(m.r.choice([1, 3])), n=2, axis=-1)
        m.output(places, "places", np.int64)
    m.output(x, "out")


#===----------------------------------------------------------------------===#
# Layers
#===----------------------------------------------------------------------===#


def layer(m, x, memory, nested=True):
    """An attention and what stands behind it, with norms and residuals in their places."""
    place = m.r.choice(["before", "before", "after", "both", "none", "deep"])
    if m.shared is None and m.r.random() < 0.15:
        m.shared = m.r.randrange(1 << 20)
    parts = [lambda y: m.attention(y)]
    if memory is not None and m.r.random() < 0.8:
        parts.append(lambda y: m.attention(y, memory))
    others = [feed_forward, feed_forward, feed_forward, gated, gated, experts, quantized, narrow, recurrent, convolved,
              model_bodies.pieces]
    if nested:
        others += [model_bodies.branches, model_bodies.repeated, model_bodies.stacked, model_bodies.cell]
    parts += [lambda y, f=f: f(m, y) for f in m.r.sample(others, m.r.choice([0, 1, 1, 1, 2]))]
    m.r.shuffle(parts)
    for part in parts:
        y = norm(m, x) if place in ("before", "both") else x
        y = part(y)
        m.blocks.append(part)
        if place == "both":
            y = norm(m, y)
        kept = m.op("Mul", x, m.scalar(1.5)) if place == "deep" else x
        x = m.commute("Add", kept, y)
        if place in ("after", "deep"):
            x = norm(m, x)
    return x


def norm(m, x):
    kind = m.r.choice(["layer", "layer", "spelled", "rms", "rms", "rms_op", "batch"])
    if kind == "layer" and m.old:
        kind = "spelled"
    scale = m.const((1 + 0.2 * m.rng.standard_normal(m.width)).astype(m.dtype))
    if kind == "batch" and m.kind == "f32":
        turned = m.op("Transpose", x, perm=[0, 2, 1])
        numbers = [scale, *(m.const(m.normal(m.width, scale=0.3)) for _ in range(2)), m.const(m.rng.uniform(0.5, 2, m.width))]
        return m.op("Transpose", m.op("BatchNormalization", turned, *numbers), perm=[0, 2, 1])
    if kind == "rms_op" and m.opset >= 23:
        return m.op("RMSNormalization", x, scale, axis=-1)
    if kind in ("rms", "rms_op"):
        square = m.op("Pow", x, m.scalar(2)) if m.r.random() < 0.5 else m.op("Mul", x, x)
        root = m.op("Sqrt", m.op("Add", m.reduce("ReduceMean", square, -1, 1), m.scalar(1e-3)))
        x = m.op("Div", x, root) if m.r.random() < 0.5 else m.op("Mul", x, m.op("Reciprocal", root))
        return m.commute("Mul", x, scale)
    shift = m.const(m.normal(m.width, scale=0.2))
    if kind == "layer":
        return m.op("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-3)
    centred = m.op("Sub", x, m.reduce("ReduceMean", x, -1, 1))
    variance = m.reduce("ReduceMean", m.op("Mul", centred, centred), -1, 1)
    x = m.op("Div", centred, m.op("Sqrt", m.op("Add", variance, m.scalar(1e-3))))
    return m.op("Add", m.op("Mul", x, scale), shift)


def activation(m, x):
    kind = m.r.choice(["relu", "erf", "tanh", "silu", "quick", "op", "mish", "square"])
    if kind == "relu":
        return m.op("Relu", x)
    if kind == "erf":
        x2 = m.op("Add", m.op("Erf", m.op("Div", x, m.scalar(2**0.5))), m.scalar(1))
        if m.r.random() < 0.5:
            return m.op("Mul", m.op("Mul", x, x2), m.scalar(0.5))
        return m.op("Mul", m.op("Mul", x, m.scalar(0.5)), x2)
    if kind == "tanh":
        cube = m.op("Mul", m.op("Mul", m.op("Mul", x, x), x), m.scalar(0.044715))
        t = m.op("Tanh", m.op("Mul", m.op("Add", x, cube), m.scalar(0.7978845608)))
        return m.op("Mul", m.op("Mul", x, m.scalar(0.5)), m.op("Add", t, m.scalar(1)))
    if kind == "silu":
        return m.commute("Mul", x, m.op("Sigmoid", x))
    if kind == "quick":
        return m.op("Mul", x, m.op("Sigmoid", m.op("Mul", x, m.scalar(1.702))))
    if kind == "op" and m.opset >= 20:
        return m.op("Gelu", x, approximate=m.r.choice(["none", "tanh"]))
    if kind == "mish":
        return m.op("Mul", x, m.op("Tanh", m.op("Softplus", x)))
    x = m.op("Relu", x)
    return m.op("Mul", x, x)


def feed_forward(m, x):
    wide = m.r.choice([8, 16, 33])
    if m.r.random() < 0.25 and m.kind == "f32":  # rows of a matrix
        shape = m.op("Shape", x)
        rows = m.op("Reshape", x, m.ints(-1, m.width))
        rows = m.op("Gemm", rows, m.const(m.normal(wide, m.width, scale=m.width**-0.5)), m.const(m.normal(wide)), transB=1)
        rows = m.op("Gemm", activation(m, rows), m.weight(wide, m.width), m.const(m.normal(m.width)))
        return m.op("Reshape", rows, shape)
    return m.linear(activation(m, m.linear(x, m.width, wide)), wide, m.width)


def gated(m, x):
    wide = m.r.choice([8, 16, 24])
    if m.r.random() < 0.5:
        gate, up = m.linear(x, m.width, wide, bias=False), m.linear(x, m.width, wide, bias=False)
    else:
        gate, up = m.op("Split", m.linear(x, m.width, 2 * wide, bias=False), m.ints(wide, wide), n=2, axis=-1)
    return m.linear(m.commute("Mul", activation(m, gate), up), wide, m.width, bias=False)


def experts(m, x):
    """A softmax over experts, all of them computed; at times only the best counts."""
    count = m.r.choice([2, 3])
    gates = m.op("Softmax", m.linear(x, m.width, count, bias=False), axis=-1)
    if m.r.random() < 0.4:
        best, _ = m.op("TopK", gates, m.ints(1), n=2, axis=-1)
        gates = m.op("Where", m.op("GreaterOrEqual", gates, best), gates, m.scalar(0))
    total = None
    for n in range(count):
        gate = m.op("Slice", gates, m.ints(n), m.ints(n + 1), m.ints(2))
        part = m.op("Mul", gate, m.linear(x, m.width, m.width))
        total = part if total is None else m.op("Add", total, part)
    return total


def quantized(m, x):
    """A product of bytes: with quantised and dequantised operands, or in whole numbers."""
    if m.kind != "f32":
        return feed_forward(m, x)
    # In 7 bits: on processors without VNNI ONNX Runtime adds pairs of products in 16 bits, which saturate.
    codes = m.rng.integers(-64, 64, (m.width, m.width)).astype(np.int8)
    if m.r.random() < 0.5:
        perColumn = m.r.random() < 0.5
        scale = m.rng.uniform(0.002, 0.01, m.width if perColumn else ()).astype(np.float32)
        zero = m.const(np.zeros_like(scale, np.int8), np.int8)
        w = m.op("DequantizeLinear", m.const(codes, np.int8), m.const(scale), zero, **({"axis": 1} if perColumn else {}))
        if m.r.random() < 0.7:
            kind = m.r.choice([np.int8, np.uint8])
            step, middle = m.const(0.03125), m.const(128 if kind == np.uint8 else 0, kind)
            x = m.op("DequantizeLinear", m.op("QuantizeLinear", x, step, middle), step, middle)
        return m.op("MatMul", x, w)
    bytes, scale, zero = m.op("DynamicQuantizeLinear", x, n=3)
    product = m.op("Cast", m.op("MatMulInteger", bytes, m.const(codes, np.int8), zero), to=TensorProto.FLOAT)
    return m.op("Mul", product, m.op("Mul", scale, m.const(0.005)))


def narrow(m, x):
    """A layer in half precision within the model."""
    outer = m.dtype
    m.dtype = np.dtype(np.float16 if m.kind == "f32" else np.float32).type
    x = m.op("Cast", x, to=ELEMENT[np.dtype(m.dtype)])
    x = m.linear(x, m.width, 8)
    x = m.op("Relu", x) if m.r.random() < 0.5 else m.op("Softmax", x, axis=-1)
    x = m.linear(x, 8, m.width)
    m.dtype = outer
    return m.op("Cast", x, to=ELEMENT[np.dtype(outer)])


def recurrent(m, x):
    if m.kind != "f32":
        return feed_forward(m, x)
    op, gates = m.r.choice([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    size, way = m.r.choice([3, 4, 8]), m.r.choice(["forward", "reverse", "bidirectional"])
    ways = 1 + (way == "bidirectional")
    x = m.op("Transpose", x, perm=[1, 0, 2])
    w = m.const(m.normal(ways, gates * size, m.width, scale=m.width**-0.5))
    u = m.const(m.normal(ways, gates * size, size, scale=size**-0.5))
    b = m.const(m.normal(ways, 2 * gates * size, scale=0.3)) if m.r.random() < 0.7 else ""
    attributes = {"linear_before_reset": m.r.randint(0, 1)} if op == "GRU" else {}
    y, *_ = m.op(op, x, w, u, b, n=2, hidden_size=size, direction=way, **attributes)
    y = m.op("Transpose", y, perm=[2, 0, 1, 3])  # [B, S, ways, size]
    return m.linear(m.op("Reshape", y, m.ints(0, 0, ways * size)), ways * size, m.width)


def convolved(m, x):
    """A convolution along the sequence, each feature by itself or all of them."""
    if m.kind == "bf16":
        return feed_forward(m, x)
    size = m.r.choice([1, 3, 5])
    groups = m.r.choice([1, m.width])
    pads = m.r.choice([[size // 2, size // 2], [size - 1, 0]])
    y = m.op("Conv", m.op("Transpose", x, perm=[0, 2, 1]), m.const(m.normal(m.width, m.width // groups, size, scale=0.3)),
             m.const(m.normal(m.width)), pads=pads, group=groups, kernel_shape=[size])
    return m.op("Transpose", activation(m, y), perm=[0, 2, 1])
