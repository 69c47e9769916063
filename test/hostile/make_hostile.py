#!/usr/bin/env python3
"""Writes model files that must be refused, and what must be said of each.

    make_hostile.py FOLDER

writes FOLDER/NAME.onnx (and what stands beside it) and FOLDER/expected.json:
name -> [exit status, text that the one error message contains]. A file that is
exactly at a limit expects status 0, or 2 where only an operator is missing.
Messages are written by hand from what is wrong with the file.
"""
import json
import os
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper

CASES = {}


def case(status, message):
    """Registers a function that writes FOLDER/<its name>.onnx from the bytes it returns."""
    def register(make):
        CASES[make.__name__] = (make, status, message)
        return make
    return register


# ---------------------------------------------------------------------------
# Pieces
# ---------------------------------------------------------------------------

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


# ---------------------------------------------------------------------------
# Files that are no model
# ---------------------------------------------------------------------------

@case(3, "is empty")
def empty_file(_):
    return b""


@case(3, "is not an ONNX model")
def text_file(_):
    return b"this is not a model\n" * 20


@case(3, "is not an ONNX model, or is cut off or damaged")
def truncated(_):
    data = with_weight(weight("w", [64], raw=bytes(256))).SerializeToString()
    return data[: len(data) // 2]


@case(3, "is not an ONNX model, or is cut off or damaged")
def random_bytes(_):
    return np.random.default_rng(7).integers(0, 256, 4096, dtype=np.uint8).tobytes()


@case(3, "has no graph")
def no_graph(_):
    return b"\x08\x08"  # ir_version: 8


@case(1, "has no model (*.onnx)")
def folder(at):
    os.makedirs(f"{at}/folder.onnx")


@case(1, "is not a regular file")
def fifo(at):
    os.mkfifo(f"{at}/fifo.onnx")


@case(1, "is not a regular file")
def device(at):
    os.symlink("/dev/zero", f"{at}/device.onnx")


@case(3, "limit is 2147483647")
def huge_file(at):
    with open(f"{at}/huge_file.onnx", "wb") as f:
        f.truncate(1 << 31)


@case(1, "no such file")
def missing_file(at):
    return None


# ---------------------------------------------------------------------------
# Versions
# ---------------------------------------------------------------------------

@case(3, "imports version 0 of domain ''")
def old_opset(_):
    return model([identity()], opset=0)


@case(2, "opset 999 is not supported; known are 1 to 28")
def new_opset(_):
    return model([identity()], opset=999)


@case(2, "IR version 99 is not supported; known are 3 to 14")
def new_ir(_):
    return model([identity()], ir=99)


@case(3, "imports domain '' twice, as version 17 and 13")
def two_opsets(_):
    m = model([identity()])
    m.opset_import.add(domain="ai.onnx", version=13)
    return m


@case(3, "is of the default domain, of which the model imports no version")
def no_opset(_):
    m = model([identity()])
    del m.opset_import[:]
    return m


# ---------------------------------------------------------------------------
# Shapes and payloads
# ---------------------------------------------------------------------------

@case(3, "initialiser 'w' of shape 4294967296x4294967296 is larger than the limit of 1099511627776 bytes")
def overflowing_shape(_):
    return with_weight(weight("w", [1 << 32, 1 << 32], raw=bytes(16)))


@case(3, "initialiser 'w' has a dimension of size -4")
def negative_dimension(_):
    return with_weight(weight("w", [-4], raw=bytes(16)))


@case(3, "initialiser 'w' has 15 bytes, but its shape 4 of float32 needs 16")
def short_payload(_):
    return with_weight(weight("w", [4], raw=bytes(15)))


@case(3, "initialiser 'w' has 0 bytes, but its shape 4 of float32 needs 16")
def no_payload(_):
    return with_weight(weight("w", [4]))


@case(3, "initialiser 'w' has 9 dimensions, the limit is 8")
def rank_9(_):
    return with_weight(weight("w", [1] * 9, raw=bytes(4)))


@case(0, "")
def rank_8(_):
    return with_weight(weight("w", [1] * 8, raw=bytes(4)))


@case(3, "output 0 has 9 dimensions, the limit is 8")
def rank_9_at_import(_):
    return model([helper.make_node("Expand", ["x", "s"], ["y"], "wide")], initializers=[constant("s", [1] * 9)])


@case(3, "initialiser 'w' has the unknown element type 77")
def unknown_dtype(_):
    return with_weight(weight("w", [4], data_type=77, raw=bytes(16)))


@case(2, "initialiser 'w' has element type STRING, which is not supported")
def string_used(_):
    return with_weight(helper.make_tensor("w", TensorProto.STRING, [1], [b"text"]))


@case(0, "")
def string_unused(_):
    return model([identity()], initializers=[helper.make_tensor("w", TensorProto.STRING, [1], [b"text"])])


@case(3, "a result of shape 1152921504606846976 is larger than the limit of 1099511627776 bytes")
def constant_of_shape_2_60(_):
    return model([helper.make_node("ConstantOfShape", ["s"], ["y"], "big")], initializers=[constant("s", [1 << 60])])


@case(3, "has a dimension of size -5")
def constant_of_shape_negative(_):
    return model([helper.make_node("ConstantOfShape", ["s"], ["y"], "bad")], initializers=[constant("s", [-5])])


@case(3, "cannot reshape 12 elements into 15")
def reshape_mismatch(_):
    return model([helper.make_node("Reshape", ["x", "s"], ["y"], "bad")], [info("x", (3, 4))],
                 initializers=[constant("s", [3, 5])])


@case(3, "the number of elements is beyond 64 bits")
def reshape_overflow(_):
    return model([helper.make_node("Reshape", ["x", "s"], ["y"], "bad")], [info("x", (3, 4))],
                 initializers=[constant("s", [1 << 40, 1 << 40])])


@case(3, "index 7 is outside a dimension of size 4")
def gather_constant_out_of_range(_):
    return model([helper.make_node("Gather", ["x", "i"], ["y"], "bad", axis=1)], initializers=[constant("i", 7)])


@case(3, "axis 5 is outside [-2, 2)")
def axis_out_of_range(_):
    return model([helper.make_node("Gather", ["x", "i"], ["y"], "bad", axis=5)], initializers=[constant("i", 0)])


@case(3, "has a delta of 0")
def range_without_end(_):
    return model([helper.make_node("Range", ["a", "b", "c"], ["y"], "bad")],
                 initializers=[constant("a", 0), constant("b", 9), constant("c", 0)])


@case(3, "perm is not an order of the 2 dimensions of the input")
def bad_permutation(_):
    return model([helper.make_node("Transpose", ["x"], ["y"], "bad", perm=[0, 7])])


@case(3, "attribute 'axis' is STRING, expected INT")
def wrong_attribute_type(_):
    return model([helper.make_node("Flatten", ["x"], ["y"], "bad", axis="one")])


@case(3, "attribute 'axis' does not hold the type that it declares (INT)")
def lying_attribute(_):
    node = helper.make_node("Flatten", ["x"], ["y"], "bad", axis="one")
    node.attribute[0].type = 2
    return model([node])


@case(3, "node 'bad' (Reshape): has 1 input, Reshape-14 takes 2")
def too_few_inputs(_):
    return model([helper.make_node("Reshape", ["x"], ["y"], "bad")])


# ---------------------------------------------------------------------------
# Structure
# ---------------------------------------------------------------------------

@case(3, "uses 'b', which cannot be made: nodes on the way to it form a cycle")
def cycle(_):
    return model([identity("b", "a", "one"), identity("a", "b", "two"), identity("b", "y", "three")])


@case(3, "uses 'nowhere', which no input, initialiser or node provides")
def undefined_value(_):
    return model([identity("nowhere")])


@case(3, "makes 'y', which node 'first' makes already")
def made_twice(_):
    return model([identity(name="first"), identity(name="second")])


@case(3, "has two inputs 'x'")
def duplicate_input(_):
    return model([identity()], [info("x"), info("x")])


@case(3, "has two initialisers 'w'")
def duplicate_initializer(_):
    return model([identity("w")], initializers=[weight("w", [1], raw=bytes(4))] * 2)


@case(3, "output 'y' is made by no node, and is no input or initialiser")
def undefined_output(_):
    return model([identity(target="z")])


@case(3, "has no outputs")
def no_outputs(_):
    return model([identity()], outputs=[])


@case(3, "has no operator")
def no_operator(_):
    node = identity()
    node.op_type = ""
    return model([node])


@case(3, "a name of 4097 bytes, the limit is 4096")
def huge_name(_):
    return model([identity(name="n" * 4097)])


@case(0, "")
def longest_name(_):
    return model([identity(name="n" * 4096)])


@case(3, "node '?[31mred??' (Identity): uses")
def control_characters_in_name(_):
    return model([identity("nowhere", name="\x1b[31mred\x07\n")])


@case(3, "input 'x' has no shape in the model; give one with --shape=x:...")
def input_without_shape(_):
    return model([identity()], [info("x", None)])


@case(3, "input 'x' has a dimension of size -3")
def negative_input_dimension(_):
    return model([identity()], [info("x", (-3, 4))])


@case(3, "input 'x' of shape 1073741824x1073741824 is larger than the limit")
def huge_input(_):
    return model([identity()], [info("x", (1 << 30, 1 << 30))])


@case(2, "input 'x' has element type COMPLEX64, which is not supported")
def complex_input(_):
    return model([identity()], [info("x", (4,), TensorProto.COMPLEX64)])


@case(2, "input 'x' is not a tensor")
def sequence_input(_):
    sequence = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)
    return model([identity()], [sequence])


def nested_if(depth):
    """`If` inside `If`, written as bytes: the onnx package stops before that."""
    graph = field(2, b"g") + field(12, field(1, b"o"))
    for level in range(depth):
        attribute = field(1, b"then_branch") + field(6, graph) + varint(20 << 3) + varint(5)
        node = field(1, b"c") + field(2, b"o") + field(3, b"if%d" % level) + field(4, b"If") + field(5, attribute)
        graph = field(1, node) + field(2, b"g")
    graph += field(12, field(1, b"o"))
    return varint(1 << 3) + varint(8) + field(7, graph) + field(8, varint(2 << 3) + varint(17))


@case(3, "functions and subgraphs nest deeper than the limit of 64")
def nested_if_65(_):
    return nested_if(65)


@case(3, "uses 'c', which no input, initialiser or node provides")
def nested_if_64(_):
    return nested_if(64)


@case(3, "is not an ONNX model, or is cut off or damaged")
def nested_if_5000(_):
    return nested_if(5000)


# ---------------------------------------------------------------------------
# Functions
# ---------------------------------------------------------------------------

def function(name, nodes, domain="local", overload=""):
    f = helper.make_function(domain, name, ["x"], ["y"], nodes,
                             [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)])
    return f


def call(name, source="x", target="y", node=""):
    return helper.make_node(name, [source], [target], node or f"call_{name}", domain="local")


@case(3, "function 'f' calls itself")
def function_recursion(_):
    return model([call("f")], functions=[function("f", [call("f")])], domains=["local"])


@case(3, "calls itself")
def function_mutual_recursion(_):
    return model([call("f")], functions=[function("f", [call("g")]), function("g", [call("f")])], domains=["local"])


@case(3, "calls itself")
def function_recursion_in_subgraph(_):
    branch = helper.make_graph([call("f")], "b", [], [info("y", None)])
    node = helper.make_node("If", ["x"], ["y"], "if", then_branch=branch, else_branch=branch)
    return model([call("f")], functions=[function("f", [node])], domains=["local"])


@case(3, "has more than 100000 nodes with its functions inlined")
def function_bomb(_):
    functions = []
    for level in range(24):  # 2^24 nodes
        inner = f"f{level + 1}" if level < 23 else None
        nodes = ([call(inner, "x", "m", "a"), call(inner, "m", "y", "b")] if inner
                 else [identity("x", "m"), identity("m", "y")])
        functions.append(function(f"f{level}", nodes))
    return model([call("f0")], functions=functions, domains=["local"])


def function_chain(depth):
    functions = [function(f"f{i}", [call(f"f{i + 1}")] if i + 1 < depth else [identity()]) for i in range(depth)]
    return model([call("f0")], functions=functions, domains=["local"])


@case(3, "functions and subgraphs nest deeper than the limit of 64")
def function_chain_65(_):
    return function_chain(65)


@case(0, "")
def function_chain_64(_):
    return function_chain(64)


@case(3, "refers to the attribute 'axis' of a function, but is in none")
def reference_outside_function(_):
    node = helper.make_node("Flatten", ["x"], ["y"], "bad")
    node.attribute.add(name="axis", type=2, ref_attr_name="axis")
    return model([node])


def chain(nodes):
    return model([identity("x" if i == 0 else f"v{i - 1}", "y" if i == nodes - 1 else f"v{i}", f"n{i}")
                  for i in range(nodes)])


@case(3, "has more than 100000 nodes")
def nodes_100001(_):
    return chain(100_001)


@case(0, "")
def nodes_100000(_):
    return chain(100_000)


# ---------------------------------------------------------------------------
# Operators
# ---------------------------------------------------------------------------

@case(2, "uses 3 operators that are not supported: StringNormalizer (node 'sn'); "
         "TfIdfVectorizer (nodes 'nz1', 'nz2'); com.example.Magic (node 'm')")
def unsupported_operators(_):
    nodes = [helper.make_node("TfIdfVectorizer", ["x"], ["a"], "nz1"), helper.make_node("TfIdfVectorizer", ["x"], ["b"], "nz2"),
             helper.make_node("StringNormalizer", ["x"], ["c"], "sn"),
             helper.make_node("Magic", ["x"], ["y"], "m", domain="com.example")]
    return model(nodes, domains=["com.example"])


# ---------------------------------------------------------------------------
# External data (the ways out of the folder are tried in PayloadTest too)
# ---------------------------------------------------------------------------

@case(3, "external data '../secret.bin': the location leaves the model's folder")
def external_parent(at):
    with open(f"{at}/../secret.bin", "wb") as f:
        f.write(bytes(16))
    return external(location="../secret.bin")


@case(3, "external data '/etc/passwd': the location is an absolute path")
def external_absolute(_):
    return external(location="/etc/passwd", length="16")


@case(3, "the location is or passes through a symbolic link")
def external_symlink(at):
    os.symlink("/etc/passwd", f"{at}/link.bin")
    return external(location="link.bin", length="16")


@case(3, "the file has 2 names (hard links), and must have one")
def external_hard_link(at):
    with open(f"{at}/original.bin", "wb") as f:
        f.write(bytes(16))
    os.link(f"{at}/original.bin", f"{at}/hard.bin")
    return external(location="hard.bin")


@case(3, "are not within its 8 bytes")
def external_short(at):
    with open(f"{at}/short.bin", "wb") as f:
        f.write(bytes(8))
    return external(location="short.bin")


@case(3, "has length 99999999999, but the tensor needs 16 bytes")
def external_length(_):
    return external(location="short.bin", length="99999999999")


@case(3, "the offset of its external data, '-16', is not a number in [0, 2^63)")
def external_negative_offset(_):
    return external(location="short.bin", offset="-16")


def main(folder):
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


if __name__ == "__main__":
    main(sys.argv[1])
