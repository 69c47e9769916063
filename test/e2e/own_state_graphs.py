#!/usr/bin/env python3
"""States of small graphs, with ONNX Runtime as the judge: own_state_graphs.py ATTNC LIBATTNRT FOLDER

Each begins with an empty state; caches that grow in place are cut back now and then, one of them to nothing. "in place"
is what attnc says of each state.
"""
import ctypes
import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import own_state

F32 = TensorProto.FLOAT
ROWS, CACHE, PRESENT = ["b", "new", 4], ["b", "past", 4], ["b", "total", 4]


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


CONCAT = node("Concat", "past_k x", "present_k", axis=1)
# Name: nodes, inputs and outputs with their dimensions, pairs of states, options, what is in place.
GRAPHS = {
    "twice": ([CONCAT, node("Identity", "present_k", "z")], {"x": ROWS, "past_k": CACHE},
              {"z": PRESENT, "present_k": PRESENT}, {"past_k": "present_k"}, [], [True]),
    "unoptimised": ([CONCAT, node("ReduceSum", "present_k", "z", keepdims=0)], {"x": ROWS, "past_k": CACHE},
                    {"z": [], "present_k": PRESENT}, {"past_k": "present_k"}, ["-O0"], [True]),
    "read": ([CONCAT, node("Relu", "past_k", "r"), node("ReduceSum", "r", "z", keepdims=0)],
             {"x": ROWS, "past_k": CACHE}, {"z": [], "present_k": PRESENT}, {"past_k": "present_k"}, [], [True]),
    "before": ([node("Relu", "past_k", "r"), node("ReduceSum", "r", "s", keepdims=0), CONCAT,
                node("ReduceMax", "present_k", "m", keepdims=0), node("Sub", "m s", "z")],
               {"x": ROWS, "past_k": CACHE}, {"z": [], "present_k": PRESENT}, {"past_k": "present_k"}, [], [True]),
    "made": ([node("ReduceL1", "past_k", "s", axes=[1], keepdims=1), node("Tanh", "s", "t"), node("Add", "x t", "y"),
              node("Concat", "past_k y", "present_k", axis=1), node("ReduceSum", "present_k", "z", keepdims=0)],
             {"x": ROWS, "past_k": CACHE}, {"z": [], "present_k": PRESENT}, {"past_k": "present_k"}, [], [False]),
    "colon": ([node("Add", "h:0 x:1", "g:0"), node("Relu", "g:0", "z")], {"x:1": ["b", 4], "h:0": ["b", 4]},
              {"z": ["b", 4], "g:0": ["b", 4]}, {"h:0": "g:0"}, ["--state=h:0:g:0"], [False]),
    "comma": ([node("Add", "h,0 x,1", "g,0"), node("Relu", "g,0", "z")], {"x,1": ["b", 4], "h,0": ["b", 4]},
              {"z": ["b", 4], "g,0": ["b", 4]}, {"h,0": "g,0"}, ["--state=h,0:g,0"], [False]),
    "given": ([node("Add", "h x", "g"), node("Relu", "x", "x_out")], {"x": ["b", 4], "h": ["b", 4]},
              {"x_out": ["b", 4], "g": ["b", 4]}, {"h": "g"}, ["--state=h:g"], [False]),
}


def build(name, folder, attnc):
    nodes, inputs, outputs, _, options, in_place = GRAPHS[name]
    infos = [[helper.make_tensor_value_info(n, F32, dims) for n, dims in side.items()] for side in (inputs, outputs)]
    model = helper.make_model(helper.make_graph(nodes, name, *infos), opset_imports=[helper.make_opsetid("", 17)],
                              ir_version=9)
    path, library = f"{folder}/{name}.onnx", f"{folder}/{name}.so"
    onnx.save(model, path)
    made = subprocess.run([attnc, path, "--own-state", "-o", library, "--json", *options], capture_output=True, text=True,
                          check=True)
    states = json.loads(made.stdout)["states"]
    assert [s["in_place"] for s in states] == in_place, (name, states)
    assert all(s["in_place"] or s["reason"] for s in states), (name, states)
    return path, library


def main(attnc, runtime, folder):
    rng = np.random.default_rng(1)
    cuts = 0
    for name, (_, inputs, outputs, pairs, _, in_place) in GRAPHS.items():
        path, library = build(name, folder, attnc)
        reference = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        rt = own_state.Runtime(runtime, library)
        state = ctypes.c_void_p()
        rt.call("attnrt_state_create", rt.session, None, ctypes.byref(state))
        sizes = {"b": 2, "past": 0}
        kept = {n: np.zeros([sizes.get(d, d) for d in inputs[n]], np.float32) for n in pairs}
        for step in range(20):
            sizes["new"] = step % 3 + 1
            given = {n: rng.standard_normal([sizes.get(d, d) for d in dims]).astype(np.float32)
                     for n, dims in inputs.items() if n not in pairs}
            want = dict(zip(outputs, reference.run(None, {**given, **kept})))
            kept = {n: want[o] for n, o in pairs.items()}
            length = kept.get("past_k", np.empty((0, 0))).shape[1] * (step % 10) // 12
            got = {o: np.empty_like(want[o]) for o in outputs if o not in pairs.values()}
            rt.run(list(given.values()), list(got.values()), state)
            for o, value in got.items():
                np.testing.assert_allclose(value, want[o], rtol=1e-4, atol=1e-5, err_msg=f"{name} step {step} {o}")
            if step % 5 == 0 and "past_k" in pairs and in_place == [True]:
                rt.call("attnrt_state_truncate", state, ctypes.c_int64(length))
                kept = {"past_k": kept["past_k"][:, :length]}
                cuts += 1
        rt.lib.attnrt_state_destroy(state)
    print(len(GRAPHS), "graphs agree,", cuts, "cuts")


if __name__ == "__main__":
    main(*sys.argv[1:])
