#!/usr/bin/env python3
"""Writes models with nodes that the standard does not allow: make_hostile_nodes.py FOLDER, as make_hostile.py does."""
import sys

from onnx import TensorProto as T, helper as h

from hostile_pieces import case, constant, external, field, identity, info, model, varint, write

X = [info("x")]
QKV = [info(name, (1, 2, 3, 8)) for name in "qkv"]


def one(op, inputs="x", outputs="y", given=X, opset=17, initializers=(), **attributes):
    return model([h.make_node(op, inputs.split(" "), outputs.split(" "), "bad", **attributes)], given,
                 [info("y", None)], initializers, opset=opset)


def attention(more="", given=(), **attributes):
    return one("Attention", "q k v" + more, given=[*QKV, *given], opset=24, **attributes)


def refused(name, message, make):
    """A file of one node 'bad'."""
    make.__name__ = name
    case(3, message)(make)


for name, message, make in [
    ("few_inputs", "node 'bad' (Add): has 1 input, Add-14 takes 2", lambda _: one("Add")),
    ("many_inputs", "node 'bad' (Relu): has 2 inputs, Relu-14 takes 1", lambda _: one("Relu", "x x")),
    ("no_inputs", "node 'bad' (Concat): has 0 inputs, Concat-13 takes 1 or more", lambda _: one("Concat", "", axis=0)),
    ("inputs_of_another_version", "node 'bad' (Attention): has 7 inputs, Attention-23 takes 3 to 6",
     lambda _: one("Attention", "q k v    n", given=[*QKV, info("n", (1,), T.INT64)], opset=23)),
    ("missing_in_between", "leaves out input 0 ('A'), without which Gemm-13 is not", lambda _: one("Gemm", " x x")),
    ("many_outputs", "node 'bad' (Relu): has 2 outputs, Relu-14 takes 1", lambda _: one("Relu", "x", "y z")),
    ("no_such_attribute", "node 'bad' (LeakyRelu): has an attribute 'beta', LeakyRelu-16 has 'alpha'",
     lambda _: one("LeakyRelu", beta=1.0)),
    ("attribute_of_another_version", "node 'bad' (Cast): has an attribute 'saturate', Cast-13 has 'to'",
     lambda _: one("Cast", to=1, saturate=1)),
    ("attribute_type", "node 'bad' (LeakyRelu): attribute 'alpha' is INT, expected FLOAT",
     lambda _: one("LeakyRelu", alpha=1)),
    ("no_attribute", "node 'bad' (Cast): has no attribute 'to', without which Cast-13 is not", lambda _: one("Cast")),
    ("input_type", "input 0 ('X') is float32, Not-1 takes bool", lambda _: one("Not")),
    ("two_types", "input 1 ('B') is int64, but input 0, of the same type in Add-14, is float32",
     lambda _: one("Add", "x i", given=[*X, info("i", dtype=T.INT64)])),
    ("no_sequence", "input 0 ('input_sequence') is float32, SequenceLength-11 takes a sequence of float32",
     lambda _: one("SequenceLength")),
    ("length_type", "input 6 ('nonpad_kv_seqlen') is float32, Attention-24 takes int64",
     lambda _: attention("    n", [info("n", (1,))])),
    ("causal", "expects is_causal 0 or 1, has 2", lambda _: attention(is_causal=2)),
    ("precision", "softmax_precision 99 is no float type", lambda _: attention(softmax_precision=99)),
    ("precision_of_integers", "softmax_precision 7 is no float type", lambda _: attention(softmax_precision=7)),
    ("softcap_nan", "expects a softcap of at least 0, has nan", lambda _: attention(softcap=float("nan"))),
    ("least_index", "index -9223372036854775808 is outside a dimension of size",
     lambda _: one("Gather", "x i", initializers=[constant("i", -2**63)])),
]:
    refused(name, message, make)


@case(3, "attribute 'scan_input_directions' has 2, expected 0 or 1")
def scan_direction(_):
    body = h.make_graph([identity("a", "b")], "body", [info("a", (4,))], [info("b", (4,))])
    return one("Scan", body=body, num_scan_inputs=1, scan_input_directions=[2])


def branches(then, other):
    return one("If", "c", given=[*X, info("c", (), T.BOOL)], then_branch=then, else_branch=other)


def branch(*outputs):
    """A branch that gives x, or (a type) a cast of it, for each output."""
    nodes = [h.make_node("Cast", ["x"], [name], to=dtype) for name, dtype in outputs]
    return h.make_graph(nodes, "branch", [], [info(name, None, dtype) for name, dtype in outputs])


@case(3, "has 2 outputs in one branch, 1 in the other")
def branch_outputs(_):
    return branches(branch(("a", T.FLOAT)), branch(("b", T.FLOAT), ("d", T.FLOAT)))


@case(3, "output 'b' of one branch declares element type 7, 'a' of the other 1")
def branch_types(_):
    return branches(branch(("a", T.FLOAT)), branch(("b", T.INT64)))


@case(3, "input 'i' has an initialiser of another type or shape than it declares")
def default_shape(_):
    return model([identity("i")], [*X, info("i", (3,), T.INT64)], initializers=[constant("i", [1, 2])])


@case(3, "input 'i' has an initialiser of another type or shape than it declares")
def default_type(_):
    return model([identity("i")], [*X, info("i", (2,), T.FLOAT)], initializers=[constant("i", [1, 2])])


@case(0, "")
def default_that_fits(_):
    return model([identity("i")], [*X, info("i", ("n",), T.INT64)], initializers=[constant("i", [1, 2])])


@case(3, "input 'x' has the unknown element type 4294967297")
def wide_element_type(_):
    whole = model([identity()])
    graph = whole.graph.SerializeToString()
    given = whole.graph.input[0]
    shape = given.type.tensor_type.shape.SerializeToString()
    tensor = b"\x08" + varint(2**32 + 1) + field(2, shape)
    wide = field(1, given.name.encode()) + field(2, field(1, tensor))
    assert field(11, given.SerializeToString()) in graph
    graph = graph.replace(field(11, given.SerializeToString()), field(11, wide))
    whole.ClearField("graph")
    return whole.SerializeToString() + field(7, graph)


@case(3, "has an operand whose name is not UTF-8: 'x?'")
def name_bytes(_):
    return model([identity("xq")], [info("xq")]).SerializeToString().replace(b"xq", b"x\xff")


@case(3, "has a name that is not UTF-8: 'cop?'")
def node_name_bytes(_):
    return model([identity()]).SerializeToString().replace(b"copy", b"cop\xff")


@case(3, "has a dimension whose name is not UTF-8: 'size?'")
def dimension_bytes(_):
    return model([identity()], [info("x", ("sizes", 4))]).SerializeToString().replace(b"sizes", b"size\xff")


def overlapping(at, name, offsets):
    """Tensors of half of a file each, at these offsets."""
    with open(f"{at}/{name}.bin", "wb") as f:
        f.write(bytes(64))
    tensors = []
    for n, offset in enumerate(offsets):
        tensor = external(location=f"{name}.bin", offset=str(offset)).graph.initializer[0]
        tensor.name, tensor.dims[0] = f"w{n}", 8
        tensors.append(tensor)
    nodes = [h.make_node("Sum", [t.name for t in tensors], ["y"])]
    return model(nodes, initializers=tensors)


@case(3, "its tensors overlap: they read more than 4 times its 64 bytes")
def overlapping_tensors(at):
    return overlapping(at, "overlap", range(9))


@case(0, "")
def shared_tensors(at):
    return overlapping(at, "shared", [32] * 2000)


if __name__ == "__main__":
    write(sys.argv[1])
