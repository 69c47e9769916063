#!/usr/bin/env python3
"""Operators that are one long loop end at a deadline: cancel_operators.py LIBATTNRT ATTNC FOLDER [CASE...]

Each is a model of one node over millions of elements. Its run is given a deadline long before its end.
"""
import ctypes as c
import pathlib
import subprocess
import sys
import time

import numpy as np
import onnx
from onnx import TensorProto as T, helper as h

sys.path.insert(0, str(pathlib.Path(__file__).parent / "search"))
from check_interrupt import LATE, Options, Output, tensor

N = 8_000_000
F, I, B = T.FLOAT, T.INT64, T.BOOL
ROW = ("x", F, [1, "n"])
FLAT = ("x", F, ["n"])
PLACES = ("i", I, ["n"])

# name: node, inputs
CASES = {
    "TopK": (h.make_node("TopK", ["x", "k"], ["y", "z"]), [FLAT, ("k", I, [1])]),
    "CumSum": (h.make_node("CumSum", ["x", "a"], ["y"]), [FLAT, ("a", I, [])]),
    "NonZero": (h.make_node("NonZero", ["x"], ["y"]), [FLAT]),
    "Unique": (h.make_node("Unique", ["x"], ["y"]), [FLAT]),
    "ReduceLogSumExp": (h.make_node("ReduceLogSumExp", ["x"], ["y"]), [ROW]),
    "ArgMax": (h.make_node("ArgMax", ["x"], ["y"], axis=1), [ROW]),
    "Softmax": (h.make_node("Softmax", ["x"], ["y"]), [ROW]),
    "ScatterElements": (h.make_node("ScatterElements", ["x", "i", "x"], ["y"]), [FLAT, PLACES]),
    "ScatterND": (h.make_node("ScatterND", ["x", "i", "x"], ["y"]), [FLAT, ("i", I, ["n", 1])]),
    "Compress": (h.make_node("Compress", ["x", "b"], ["y"]), [FLAT, ("b", B, ["n"])]),
}
SMALL = {"k": lambda n: np.array([n // 2]), "a": lambda n: np.array(0), "i": lambda n: np.arange(n)[::-1],
         "b": lambda n: np.arange(n) % 3 == 0}


def values(inputs, n):
    """Of the inputs of a case."""
    rng = np.random.default_rng(3)
    made = {}
    for name, dtype, shape in inputs:
        value = SMALL[name](n) if name in SMALL else rng.standard_normal(n).astype(np.float32)
        made[name] = np.ascontiguousarray(value.reshape([n if d == "n" else d for d in shape]))
    return list(made.values())


def check(rt, attnc, folder, name):
    node, inputs = CASES[name]
    graph = h.make_graph([node], "g", [h.make_tensor_value_info(*i) for i in inputs],
                         [h.make_tensor_value_info(o, I if o == "z" or name in ("NonZero", "ArgMax") else F, None)
                          for o in node.output])
    path = f"{folder}/{name}.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=9), path)
    subprocess.run([attnc, path, "-o", path + ".so"], check=True)
    model, session = c.c_void_p(), c.c_void_p()
    assert rt.attnrt_model_load((path + ".so").encode(), None, c.byref(model)) == 0
    assert rt.attnrt_session_create(model, None, c.byref(session)) == 0

    def run(arrays, timeout):
        given = [tensor(value) for value in arrays]
        for one, value in zip(given, arrays):
            one.dtype.code = 6 if value.dtype == bool else one.dtype.code
        pointers = (c.POINTER(type(given[0])) * len(given))(*map(c.pointer, given))
        options = Options(c.sizeof(Options), None, None, timeout, None, None, 0)
        start = time.monotonic()
        status = rt.attnrt_session_run(session, c.byref(options), pointers, len(given), (Output * 2)(),
                                       len(node.output))
        return status, time.monotonic() - start

    few, many = values(inputs, 1000), values(inputs, N)
    assert run(few, 0)[0] == 0, (name, rt.attnrt_last_error())
    status, seconds = run(many, 1_000_000)
    assert status == LATE and seconds < 10, (name, status, seconds)
    print(f"{name}: {seconds * 1000:.0f} ms")
    assert run(few, 0)[0] == 0
    rt.attnrt_session_destroy(session)
    rt.attnrt_model_release(model)


def main(runtime, attnc, folder, *names):
    rt = c.CDLL(runtime)
    rt.attnrt_last_error.restype = c.c_char_p
    rt.attnrt_session_destroy.argtypes = rt.attnrt_model_release.argtypes = [c.c_void_p]
    for name in names or CASES:
        check(rt, attnc, folder, name)
    print("all ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
