"""Blocks of random models that hold bodies: branches, loops, scans, sequences, a search."""
import numpy as np
from onnx import helper

from graph_masks import ELEMENT


def value(m, name, dims, dtype=None):
    return helper.make_tensor_value_info(name, ELEMENT[np.dtype(dtype or m.dtype)], dims)


def any_block(m, x):
    import model_blocks
    f = m.r.choice([model_blocks.feed_forward, model_blocks.gated, model_blocks.norm, model_blocks.experts,
                    lambda m, x: m.attention(x), lambda m, x: m.attention(x)])
    return f(m, x)


def body_name(m, what):
    m.count += 1
    return f"{what}_{m.count}"


def branches(m, x):
    """One of two blocks, by a number that the run gives or by a size."""
    if m.r.random() < 0.6:
        flag = m.input(body_name(m, "flag"), [], lambda d, rng, run: np.asarray(rng.random() < 0.5), bool)
    else:
        flag = m.op("Less", m.op("Gather", m.op("Shape", x), m.const(1, np.int64), axis=0), m.const(6, np.int64))
    graphs = {}
    for name in ("then_branch", "else_branch"):
        with m.body() as nodes:
            y = any_block(m, x) if m.r.random() < 0.8 else x
            y = m.op("Identity", y)
        graphs[name] = helper.make_graph(nodes, body_name(m, name), [], [value(m, y, [None, None, m.width])])
    return m.op("If", flag, **graphs)


def repeated(m, x):
    """A block that runs several times, with its weights, until a count or a condition ends it."""
    ends = m.r.random() < 0.3
    at, go, state = (body_name(m, n) for n in ("at", "go", "state"))
    with m.body() as nodes:
        y = m.op("Tanh", m.commute("Add", state, any_block(m, state)))
        more = m.op("Less", at, m.const(1, np.int64)) if ends else m.op("Identity", go)
    outputs = [value(m, more, [], bool), value(m, y, [None, None, m.width])]
    collects = m.r.random() < 0.3
    if collects:
        with m.body() as last:
            kept = m.reduce("ReduceMax", y, -1, 0)
        nodes += last
        outputs.append(value(m, kept, [None, None]))
    body = helper.make_graph(nodes, body_name(m, "body"),
                             [value(m, at, [], np.int64), value(m, go, [], bool), value(m, state, [None, None, m.width])], outputs)
    count = m.const(m.r.choice([1, 2, 3]), np.int64)
    if not collects:
        return m.op("Loop", count, m.const(True, bool), x, body=body)
    y, kept = m.op("Loop", count, m.const(True, bool), x, n=2, body=body)
    return m.op("Add", y, m.unsqueeze(m.reduce("ReduceMean", kept, 0, 0), -1))


def stacked(m, x):
    """Layers whose weights are slices of one tensor: a Scan over it."""
    state, matrix = (body_name(m, n) for n in ("state", "matrix"))
    with m.body() as nodes:
        y = m.op("Tanh", m.op("MatMul", state, matrix))
        if m.r.random() < 0.5:
            y = m.commute("Add", y, state)
        y = m.op("Identity", y)
    body = helper.make_graph(nodes, body_name(m, "body"), [value(m, state, [None, None, m.width]), value(m, matrix, [m.width, m.width])],
                             [value(m, y, [None, None, m.width])])
    return m.op("Scan", x, m.const(m.normal(m.r.choice([1, 2, 3]), m.width, m.width, scale=m.width**-0.5)), body=body, num_scan_inputs=1)


def cell(m, x):
    """A recurrent cell that is spelled out: a Scan over the steps of the sequence."""
    size = m.r.choice([3, 8])
    steps = m.op("Transpose", x, perm=[1, 0, 2])
    batch = m.op("Slice", m.op("Shape", x), m.ints(0), m.ints(1), m.ints(0))
    zero = helper.make_tensor("zero", ELEMENT[np.dtype(m.dtype)], [1], np.zeros(1, m.dtype).tobytes(), raw=True)
    first = m.op("ConstantOfShape", m.op("Concat", batch, m.ints(size), axis=0), value=zero)
    state, row = (body_name(m, n) for n in ("state", "row"))
    with m.body() as nodes:
        mixed = m.op("Add", m.linear(row, m.width, size), m.op("MatMul", state, m.weight(size, size)))
        new = m.op("Tanh", mixed)
        if m.r.random() < 0.5:
            gate = m.op("Sigmoid", m.linear(row, m.width, size))
            new = m.op("Add", m.op("Mul", gate, state), m.op("Mul", m.op("Sub", m.scalar(1), gate), new))
        kept = m.op("Identity", new)
    body = helper.make_graph(nodes, body_name(m, "body"), [value(m, state, [None, size]), value(m, row, [None, m.width])],
                             [value(m, new, [None, size]), value(m, kept, [None, size])])
    _, y = m.op("Scan", first, steps, n=2, body=body, num_scan_inputs=1)
    return m.linear(m.op("Transpose", y, perm=[1, 0, 2]), size, m.width)


def pieces(m, x):
    """A sequence of tensors: cut, read, and put together again."""
    if m.kind == "bf16":
        return m.op("Neg", x)
    if m.r.random() < 0.5:
        parts = m.op("SplitToSequence", x, m.const(m.width // 2, np.int64), axis=2)
        other = m.op("SequenceAt", parts, m.const(m.r.choice([0, 1, -1]), np.int64))
        parts = m.op("SequenceInsert", m.op("SequenceErase", parts, m.const(0, np.int64)), m.op("Neg", other))
    else:
        parts = m.op("SequenceConstruct", x, m.op("Neg", x), m.op("Tanh", x))
        parts = m.op("SequenceErase", parts, m.const(m.r.choice([0, 1, -2]), np.int64))
        y = m.op("ConcatFromSequence", parts, axis=0, new_axis=1)
        return m.reduce("ReduceMean", y, 0, 0)
    return m.op("ConcatFromSequence", parts, axis=2)


def greedy(m, scores, words):
    """Words one after the other: each is the best after the one before, [B, steps]."""
    at, go, last, ids = (body_name(m, n) for n in ("at", "go", "last", "ids"))
    first = m.op("ArgMax", scores, axis=-1, keepdims=1)
    table, out = m.const(m.normal(words, m.width)), m.const(m.normal(m.width, words))
    with m.body() as nodes:
        x = m.op("Tanh", m.op("Gather", table, last, axis=0))
        x = m.linear(x, m.width, m.width)
        best = m.op("ArgMax", m.op("MatMul", x, out), axis=-1, keepdims=0)
        grown = m.op("Concat", ids, best, axis=1)
        more = m.op("Identity", go)
    body = helper.make_graph(nodes, body_name(m, "body"),
                             [value(m, at, [], np.int64), value(m, go, [], bool), value(m, last, [None, 1], np.int64),
                              value(m, ids, [None, None], np.int64)],
                             [value(m, more, [], bool), value(m, best, [None, 1], np.int64), value(m, grown, [None, None], np.int64)])
    _, ids = m.op("Loop", m.const(m.r.choice([2, 4]), np.int64), m.const(True, bool), first, first, n=2, body=body)
    return ids
