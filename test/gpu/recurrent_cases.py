"""Cases of check_kernels.py with a recurrent layer each."""
import pathlib
import sys

import numpy as np
from onnx import helper

import kernel_cases
from kernel_cases import case, normal

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e" / "recurrent"))
from reference import recurrent  # noqa: E402


# The number of items, and of steps.
SIZES = {("x", 0): "steps", ("x", 1): "items", ("lens", 0): "items", ("h", 1): "items", ("c", 1): "items"}
TURNED = {("x", 0): "items", ("x", 1): "steps", ("lens", 0): "items", ("h", 0): "items", ("c", 0): "items"}


def layers(*sizes, **options):
    """Cases, of open sizes where their letters say so."""
    def register(function):
        for size in sizes:
            free = {"free": TURNED if "t" in size[-1] else SIZES} if "d" in size[-1] else {}
            case("recurrent", size, **options, **free)(function)
        return function
    return register


# Operator, direction, steps, items, inputs, units; options: b(ias), l(engths), s(tates), p(eepholes), c(lip), t(ime is
# the second dimension), r(eset after the product), f(orget gate is 1 - i), a(ctivations of its own), d(ynamic sizes).
# Few processors, little shared memory: several units, or no weights, a block.
@layers(("LSTM", "forward", 7, 1, 5, 20, "b"), ("GRU", "forward", 5, 3, 4, 33, "bs"),
        ("RNN", "reverse", 6, 2, 3, 70, "ba"), ("LSTM", "bidirectional", 6, 3, 5, 33, "blspcd"),
        ("GRU", "bidirectional", 5, 3, 4, 17, "blsdt"), ("GRU", "reverse", 4, 5, 3, 9, "blsr"),
        ("LSTM", "reverse", 5, 6, 3, 12, "blsftca"), ("GRU", "forward", 1, 2, 4, 10, "bs"),
        ("LSTM", "forward", 1, 1, 4, 65, "bs"), ("GRU", "forward", 1, 5, 4, 36, "bsrd"), ("RNN", "forward", 3, 4, 2, 1, ""),
        ("LSTM", "forward", 0, 2, 3, 8, "bs"), ("LSTM", "forward", 0, 2, 3, 8, "bsd"), ("GRU", "bidirectional", 3, 0, 3, 8, "bsd"),
        ("GRU", "forward", 2, 1, 3, 256, ""), ("LSTM", "forward", 2, 1, 3, 192, ""))  # 48 KiB of weights a block, no more
@layers(("LSTM", "forward", 4, 2, 3, 150, "bs"), ("GRU", "bidirectional", 3, 2, 3, 130, "bsl"), fake="processors=3")
@layers(("LSTM", "forward", 4, 13, 3, 24, "bsl"), ("GRU", "bidirectional", 4, 9, 3, 18, "bs"), fake="processors=9,seed=4")
@layers(("LSTM", "bidirectional", 3, 2, 3, 66, "bs"), ("GRU", "forward", 4, 5, 3, 40, "bs"), fake="shared=4000,seed=9")
@layers(("LSTM", "forward", 3, 2, 3, 260, "bs"), fake="processors=40,seed=2")
def layer(size):
    op, direction, steps, batch, inputs, hidden, options = size
    gates, directions = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], 1 + (direction == "bidirectional")
    functions = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}[op]
    if "a" in options:
        functions = {"RNN": ["Relu"], "LSTM": ["HardSigmoid", "Softsign", "Tanh"]}[op]
    how = dict(op=op, direction=direction, layout=int("t" in options), clip=0.7 if "c" in options else None,
               linear_before_reset=int("r" in options), input_forget=int("f" in options),
               activations=[(name, 0.2, 0.5) for name in functions] * directions)
    state = (batch, directions, hidden) if "t" in options else (directions, batch, hidden)
    x = normal(*((batch, steps, inputs) if "t" in options else (steps, batch, inputs)))
    w, r = normal(directions, gates * hidden, inputs), normal(directions, gates * hidden, hidden) / np.float32(hidden ** 0.5)
    operands = {"x": x, "w": w, "r": r, "b": normal(directions, 2 * gates * hidden) if "b" in options else None,
                "lens": kernel_cases.rng.integers(1, steps + 1, batch).astype(np.int32) if "l" in options else None,
                "h": normal(*state) if "s" in options else None,
                "c": normal(*state) if "s" in options and op == "LSTM" else None,
                "p": normal(directions, 3 * hidden) if "p" in options else None}
    attributes = dict(hidden_size=hidden, direction=direction, activations=functions * directions, layout=how["layout"])
    attributes |= {"clip": 0.7} if "c" in options else {}
    attributes |= {"linear_before_reset": 1} if "r" in options else {}
    attributes |= {"input_forget": 1} if "f" in options else {}
    names = ["y", "last_h", "last_c"][:2 + (op == "LSTM")]
    given = [name if array is not None else "" for name, array in operands.items()][:8 if op == "LSTM" else 6]
    nodes = [helper.make_node(op, given, names, **attributes)]
    arrays = {name: array for name, array in operands.items() if array is not None}
    want = recurrent(how, *operands.values())
    weights = {name: arrays.pop(name) for name in ("w", "r", "b", "p") if name in arrays}
    return nodes, arrays, weights, dict(zip(names, want))
