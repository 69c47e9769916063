"""Shapes, payloads and attributes."""
from onnx import TensorProto, helper

from hostile_pieces import case, constant, identity, info, model, weight, with_weight


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
