"""Rows of operator_graphs.OPERATORS that hold several nodes: If, Loop and Scan with small bodies, chains over sequences."""
import numpy as np
from onnx import TensorProto, helper

from operator_graphs import ints, operator

FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64


def value(name, kind=FLOAT, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def step(d, a, b, to):
    """`to`, of the shape of `a`, from `a` and what broadcasts to it."""
    return d.r.choice([[node("Add", f"{a} {b}", to)], [node("Sub", f"{a} {b}", to)], [node("Mul", f"{a} {b}", to)],
                       [node("Tanh", a, f"{to}_t"), node("Add", f"{to}_t {b}", to)],
                       [node("Max", f"{a} {b}", f"{to}_m"), node("Sub", f"{to}_m {a}", to)]])


#===----------------------------------------------------------------------===#
# Bodies. ONNX Runtime answers: the reference joins what a loop gathers in its own way
#===----------------------------------------------------------------------===#


@operator("If", since=13, until=21)
def branches(d):
    shape = d.shape(0, 3, 1, 60)
    graphs = {}
    for name in ("then_branch", "else_branch"):
        # Both outputs, of one shape or, at times, transposed.
        nodes = step(d, "i1", "i2", f"{name}_a") + d.r.choice([[node("Transpose", "i1", f"{name}_b")], [node("Neg", "i1", f"{name}_b")]])
        graphs[name] = helper.make_graph(nodes, name, [], [value(f"{name}_a"), value(f"{name}_b")])
    d.form.captured, d.form.oracle = 2, "onnxruntime"
    condition = np.asarray(d.maybe(), bool)
    return graphs, [condition.reshape([1]) if d.maybe(0.2) else condition, d.array(shape), d.array(d.broadcast(shape))], 2, [0]


@operator("Loop", since=13, until=21)
def loop(d):
    shape, states = d.shape(0, 3, 0, 60), d.r.randint(1, 2)
    scans, ends = d.r.randint(0, 2), d.maybe(0.4)
    nodes = []
    for s in range(states):  # the second one takes the first one's old value, at times
        nodes += step(d, f"s{s}", "x" if s == 0 or d.maybe() else "s0", f"t{s}")
    names = [f"t{s}" for s in range(states)]
    if states == 2 and d.maybe(0.3):
        names.reverse()
    for k in range(scans):
        nodes += [node("Neg", d.r.choice(["s0", "t0"]), f"k{k}")]
    if ends:
        nodes += [helper.make_node("Constant", [], ["last"], value_int=d.r.randint(0, 3)), node("Less", "at last", "more")]
    else:
        nodes += [node("Identity", "go", "more")]
    for n in nodes:  # the captured input, whatever its place
        n.input[:] = [f"i{2 + states}" if i == "x" else i for i in n.input]
    body = helper.make_graph(
        nodes, "body", [value("at", INT64, []), value("go", BOOL, []), *(value(f"s{s}", FLOAT, shape) for s in range(states))],
        [value("more", BOOL, []), *(value(n, FLOAT, shape) for n in names), *(value(f"k{k}", FLOAT, shape) for k in range(scans))])
    d.form.captured, d.form.oracle = 1, "onnxruntime"
    inputs = [np.asarray(d.r.choice([0, 1, 2, 5, -1]), np.int64), np.asarray(d.maybe(0.8), bool) if d.maybe() else None]
    return {"body": body}, [*inputs, *(d.array(shape) for _ in range(states)), d.array(d.broadcast(shape))], states + scans, [0, 1]


@operator("Scan", since=13, until=21)
def scan(d):
    shape, steps, scanned = d.shape(0, 2, 1, 30), d.r.choice([1, 2, 5]), d.r.randint(1, 2)
    rank = len(shape) + 1
    axes, directions = [d.r.randrange(rank) for _ in range(scanned)], [d.r.randint(0, 1) for _ in range(scanned)]
    nodes = step(d, "s0", "r0", "t0") + step(d, "t0", f"r{scanned - 1}", "k0")
    body = helper.make_graph(nodes, "body", [value("s0", FLOAT, shape), *(value(f"r{k}", FLOAT, shape) for k in range(scanned))],
                             [value("t0", FLOAT, shape), value("k0", FLOAT, shape)])
    attributes = {"body": body, "num_scan_inputs": scanned, "scan_input_axes": axes, "scan_input_directions": directions,
                  "scan_output_axes": [d.r.randrange(rank)], "scan_output_directions": [d.r.randint(0, 1)]}
    d.form.oracle = "onnxruntime"
    rows = [d.array([*shape[:a], steps, *shape[a:]]) for a in axes]
    return attributes, [d.array(shape), *rows], 2


#===----------------------------------------------------------------------===#
# Sequences
#===----------------------------------------------------------------------===#


def constant(name, number):
    return helper.make_node("Constant", [], [name], value_int=number)


def used(d, sequence, count):
    """What is made of a sequence of `count` tensors, as o0."""
    kind = d.r.choice(["at", "concat", "length", "stack"] if count else ["length"])
    if kind == "at":
        return [constant("where", d.r.randint(-count, count - 1)), node("SequenceAt", f"{sequence} where", "o0")]
    if kind == "length":
        return [node("SequenceLength", sequence, "o0")]
    return [node("ConcatFromSequence", sequence, "o0", axis=0, new_axis=int(kind == "stack"))]


@operator("SplitToSequence", since=13)
def split_to_sequence(d):
    x = d.array(d.shape(1, 3, 1, 200), d.dtype(among=["float32", "int64"]))
    axis = d.axis(x.ndim)
    n, inputs, attributes = x.shape[axis], [x], {"axis": axis}
    if d.maybe(0.4):
        attributes["keepdims"] = d.r.randint(0, 1)
        count = n
    elif d.maybe():
        inputs.append(np.asarray(d.r.randint(1, n), np.int64))
        count = -(-n // int(inputs[1]))
    else:
        first = d.r.randint(0, n)
        inputs.append(ints([first, n - first]))
        count = 2
    d.form.fixed = (1,)
    # Pieces of several sizes are joined on their own axis only, and not stacked.
    even = len(inputs) == 1 or len({*np.atleast_1d(inputs[1])}) == 1 and n % np.atleast_1d(inputs[1])[0] == 0
    split = node("SplitToSequence", "i0 i1"[:3 * len(inputs) - (len(inputs) == 1)].strip(), "pieces", **attributes)
    if even:
        d.form.nodes = [split, *used(d, "pieces", count)]
    else:
        d.form.nodes = [split, d.r.choice([node("SequenceLength", "pieces", "o0"),
                                           node("ConcatFromSequence", "pieces", "o0", axis=axis)])]
    return {}, inputs


@operator("SequenceConstruct", since=13)
def sequence_edits(d):
    dtype, shape = d.dtype(among=["float32", "int64", "bool"]), d.shape(1, 3, 0, 200)
    inputs = [d.array(shape, dtype) for _ in range(d.r.randint(1, 4))]
    nodes, count, last = [node("SequenceConstruct", " ".join(f"i{n}" for n in range(len(inputs))), "q0")], len(inputs), "q0"
    for n in range(d.r.randint(0, 3)):
        new = f"q{n + 1}"
        nodes.append(constant(f"p{n}", d.r.randint(-count, count - 1) if count else 0))
        place = f" p{n}" if d.maybe() else ""
        if count and d.maybe():
            nodes.append(node("SequenceErase", last + place, new))
            count -= 1
        else:
            nodes.append(node("SequenceInsert", f"{last} i0{place}", new))
            count += 1
        last = new
    d.form.nodes = nodes + used(d, last, count)
    return {}, inputs
