"""What a graph is made of: nodes, names, inputs and outputs, subgraphs, functions."""
from onnx import TensorProto, helper

from hostile_pieces import case, field, identity, info, model, varint, weight


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


@case(3, "input 'x' has no shape in the model; give one, as in --shape=x:2x3")
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


@case(2, "input 'x' is a sequence of tensors without a shape")
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
