"""Cases of check_kernels.py without a product: softmax, layer norm, elementwise ops and copies."""
import numpy as np
from onnx import helper

import kernel_cases
from kernel_cases import Bounded, case, normal


@case("rows", (2, 3, 5, 1), (4, 130, 66, 2), (4, 140, 64, 3), (4, 140, 64, 4))
@case("rows", (2, 3, 5, 1), (1, 9, 64, 4), free={("x", 0): "b", ("x", 1): "n", ("row", 0): "b", ("more", 0): "b", ("more", 1): "n"})
def side_by_side(size):
    """Ops that do not need each other are one launch; parts of a result are written by 16 bytes where they begin and end so."""
    b, n, d, few = size
    x, row, more, y = normal(b, n, d), normal(b, 1, d), normal(b, n, few), normal(37)
    nodes = [helper.make_node("Concat", ["x", "row"], ["behind"], axis=1), helper.make_node("Concat", ["row", "x"], ["front"], axis=1),
             helper.make_node("Concat", ["x", "more"], ["beside"], axis=2), helper.make_node("Neg", ["y"], ["minus"])]
    want = {"behind": np.concatenate([x, row], 1), "front": np.concatenate([row, x], 1), "beside": np.concatenate([x, more], 2), "minus": -y}
    return nodes, {"x": x, "row": row, "more": more, "y": y}, {}, {name: array.astype(float) for name, array in want.items()}


# Of a warp, of a block; in accesses of 16 bytes, 8 and 4; whole, with idle threads, too long for registers.
ROWS = [(3, 1), (9, 31), (4, 33), (6, 256), (2, 257), (5, 1024), (3, 1025), (2, 1026), (1, 1280), (2, 3000), (1, 16384), (1, 16388), (2, 16385)]
# The last one is misaligned, the one before it too long for registers.
OPEN_ROWS = [(2, 1), (5, 32), (2, 520), (1, 4096), (1, 4104), (2, 4097), (2, 0)]


@case("rows", *ROWS)
@case("rows", *OPEN_ROWS, free={("x", 0): "rows", ("x", 1): "columns"})
def softmax(size):
    x = 3 * normal(*size)
    e = np.exp(x.astype(float) - x.max(-1, keepdims=True, initial=-np.inf))
    want = e / e.sum(-1, keepdims=True)
    nodes = [helper.make_node("Softmax", ["x"], ["y"]), helper.make_node("LogSoftmax", ["x"], ["z"])]
    return nodes, {"x": x}, {}, {"y": want, "z": np.log(want)}


# Every size is open: what a kernel takes of all these buffers must have room in its parameters.
@case("rows", (49, 2, 3, 1, 5), (70, 1, 2, 3, 4), free={(f"x{n}", axis): f"d{axis}" for n in range(70) for axis in range(4)})
def sum_of_many(size):
    count, *shape = size
    inputs = {f"x{n}": normal(*shape) for n in range(count)}
    want = sum(x.astype(float) for x in inputs.values())
    return [helper.make_node("Sum", list(inputs), ["y"])], inputs, {}, {"y": want}


@case("rows", (3, 1), (6, 5), (5, 768), (3, 1500), *ROWS[-4:])
@case("rows", *OPEN_ROWS[:-1], free={("x", 0): "rows", ("x", 1): "columns", ("s", 0): "columns", ("b", 0): "columns"})
def layer_norm(size):
    x, scale, bias = normal(*size) + 10, normal(size[1]), normal(size[1])
    nodes = [helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"], epsilon=1e-3)]
    wide = x.astype(float)
    want = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-3) * scale + bias
    given, weights = {"x": x}, {"s": scale, "b": bias}
    return [(nodes, given, weights, {"y": want}), (nodes, given | weights, {}, {"y": want})]


@case("rows", (64, 512, "float32"), (65, 504, "float32"), (64, 520, "float16"), (33, 1000, "float16"), (70, 513, "float32"), (3, 8, "float32"),
      free={("x", 0): "rows"})
def wide_elements(size):
    """So many elements that a thread takes 16 bytes, or too few; operands by rows, columns, turned round; bytes and words."""
    m, n, kind = size
    x, t, row, column = (kernel_cases.rng.standard_normal(shape).astype(kind) for shape in ((m, n), (n, m), (m, 1), (n,)))
    nodes = [helper.make_node("Transpose", ["t"], ["u"], perm=[1, 0]), helper.make_node("Max", ["x", "u"], ["a"]),
             helper.make_node("Max", ["a", "row"], ["b"]), helper.make_node("Max", ["b", "column"], ["y"]),
             helper.make_node("Less", ["x", "row"], ["l"]), helper.make_node("Where", ["l", "row", "x"], ["z"])]
    want = {"y": np.maximum.reduce([x, t.T, np.broadcast_to(row, (m, n)), np.broadcast_to(column, (m, n))]),
            "z": np.where(x < row, row, x)}
    return nodes, {"x": x, "t": t, "row": row}, {"column": column}, {k: Bounded(v.astype(float), 0, x.dtype) for k, v in want.items()}
