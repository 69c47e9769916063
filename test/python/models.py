"""Models that the tests of the Python package share."""
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
BERT = ROOT / "test/e2e/models/bert_sdpa_ts17/model.onnx"
DATES = ROOT / "test/e2e/dates"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def info(name, shape, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, initializers=(), opset=17):
    graph = helper.make_graph(nodes, "test", inputs, outputs, [numpy_helper.from_array(a, n) for n, a in initializers])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def scaled(factor=2.0, name="y"):
    """y = factor * a + b, over any [n, 4]."""
    nodes = [helper.make_node("Mul", ["a", "factor"], ["scaled"], name="scale"),
             helper.make_node("Add", ["scaled", "b"], [name], name="add")]
    return model(nodes, [info("a", ["n", 4]), info("b", ["n", 4])], [info(name, ["n", 4])],
                 [("factor", np.array(factor, np.float32))])


def shapeless(is_sequence, name):
    """An input, a sequence perhaps, of no declared shape."""
    kind = helper.make_tensor_type_proto(FLOAT, None)
    if is_sequence:
        kind = helper.make_sequence_type_proto(kind)
        nodes = [helper.make_node("SequenceAt", [name, "zero"], ["y"], name="first")]
    else:
        nodes = [helper.make_node("Neg", [name], ["y"], name="first")]
    return model(nodes, [helper.make_value_info(name, kind)], [info("y", None)], [("zero", np.array(0, np.int64))])


def optional():
    """y = s where it is given, or else x."""
    given = helper.make_graph([helper.make_node("OptionalGetElement", ["s"], ["t"])], "given", [], [info("t", ["n"])])
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["e"])], "other", [], [info("e", ["n"])])
    nodes = [helper.make_node("OptionalHasElement", ["s"], ["is"]),
             helper.make_node("If", ["is"], ["y"], then_branch=given, else_branch=other)]
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, ["n"]))
    return model(nodes, [info("x", ["n"]), helper.make_value_info("s", kind)], [info("y", ["n"])])


def noisy():
    """y = a + u, u uniform in [0, 1)."""
    nodes = [helper.make_node("RandomUniformLike", ["a"], ["u"]), helper.make_node("Add", ["a", "u"], ["y"])]
    return model(nodes, [info("a", ["n"])], [info("y", ["n"])])


def scalars():
    """y = a * f + i, f and i one number each."""
    nodes = [helper.make_node("Mul", ["a", "f"], ["scaled"]), helper.make_node("Cast", ["i"], ["number"], to=FLOAT),
             helper.make_node("Add", ["scaled", "number"], ["y"])]
    return model(nodes, [info("a", ["n"]), info("f", []), info("i", [1], TensorProto.INT8)], [info("y", ["n"])])


def pair():
    """y = 2 * s[1]: of a sequence of matrices."""
    nodes = [helper.make_node("SequenceAt", ["s", "one"], ["t"]), helper.make_node("Add", ["t", "t"], ["y"])]
    return model(nodes, [helper.make_tensor_sequence_value_info("s", FLOAT, None)], [info("y", ["a", "b"])],
                 [("one", np.array(1, np.int64))])


def two_outputs():
    nodes = [helper.make_node("Add", ["a", "a"], ["twice"]), helper.make_node("Neg", ["a"], ["minus"])]
    return model(nodes, [info("a", ["n"])], [info("twice", ["n"]), info("minus", ["n"])])


def typed(dtype):
    """The input as it is, twice: for each type that has no arithmetic, too."""
    nodes = [helper.make_node("Concat", ["x", "x"], ["y"], axis=0)]
    return model(nodes, [info("x", ["n"], dtype)], [info("y", ["m"], dtype)], opset=23)


def endless():
    """Runs `count` products of matrices: as long as a test wants."""
    body = helper.make_graph(
        [helper.make_node("MatMul", ["x_in", "w"], ["product"]), helper.make_node("Tanh", ["product"], ["x_out"]),
         helper.make_node("Identity", ["go_in"], ["go_out"])], "body",
        [info("i", [], INT64), info("go_in", [], TensorProto.BOOL), info("x_in", [64, 64])],
        [info("go_out", [], TensorProto.BOOL), info("x_out", [64, 64])])
    nodes = [helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)]
    weight = np.eye(64, dtype=np.float32)
    return model(nodes, [info("count", [], INT64), info("x", [64, 64])], [info("y", [64, 64])], [("w", weight)])


def loop():
    """y = as many turns as `count` says."""
    body = helper.make_graph(
        [helper.make_node("Add", ["n_in", "one"], ["n_out"]), helper.make_node("Identity", ["go_in"], ["go_out"])], "body",
        [info("i", [], INT64), info("go_in", [], TensorProto.BOOL), info("n_in", [], INT64)],
        [info("go_out", [], TensorProto.BOOL), info("n_out", [], INT64)])
    nodes = [helper.make_node("Loop", ["count", "", "zero"], ["y"], body=body)]
    return model(nodes, [info("count", [], INT64)], [info("y", [], INT64)],
                 [("zero", np.array(0, np.int64)), ("one", np.array(1, np.int64))])


def growing():
    """d = c, turned, and x behind it: a state that no run can append to."""
    nodes = [helper.make_node("Neg", ["c"], ["turned"]), helper.make_node("Concat", ["turned", "x"], ["d"], axis=0)]
    return model(nodes, [info("c", ["n", 4]), info("x", [1, 4])], [info("d", ["m", 4])])


def unsupported():
    nodes = [helper.make_node("NoSuchOperator", ["x"], ["t"], name="first"),
             helper.make_node("NorThisOne", ["t"], ["y"], name="second")]
    return model(nodes, [info("x", ["n"])], [info("y", ["n"])])


def external(path, factor):
    """A model with its weight in a file beside it, which onnx would append to."""
    path.with_name("w.bin").unlink(missing_ok=True)
    proto = model([helper.make_node("Mul", ["x", "w"], ["y"])], [info("x", [1024])], [info("y", [1024])],
                  [("w", np.full(1024, factor, np.float32))])
    onnx.save_model(proto, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
