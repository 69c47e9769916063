#!/usr/bin/env python3
"""Caches of fixed size whose rows a run replaces: replaced_rows.py ATTNC LIBATTNRT FOLDER

Each step must give what NumPy gives by the text of TensorScatter-24, with a state that the
library writes in place and, in the same bits, with a cache that the caller passes on.
replaced_rows.py count IR: what the code of `step` (IR after attn-outline-parallel) allocates
and copies that has the size of a cache.
"""
import ctypes
import json
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

import own_state

F32, I64 = TensorProto.FLOAT, TensorProto.INT64
BATCH, HEADS, ROOM, WIDTH = 2, 3, 11, 8
CACHE = ["batch", HEADS, ROOM, WIDTH]


def scatter(cache, rows, begins, axis, mode):
    """TensorScatter-24, from its text."""
    result = cache.copy()
    for b in range(cache.shape[0]):
        for n in range(rows.shape[axis]):
            at = (begins[b] if begins is not None else 0) + n
            at = at % cache.shape[axis] if mode == "circular" else at
            to, source = [b] + [slice(None)] * (cache.ndim - 1), [b] + [slice(None)] * (cache.ndim - 1)
            to[axis], source[axis] = at, n
            result[tuple(to)] = rows[tuple(source)]
    return result


def attention(q, k, v, lengths):
    scores = np.einsum("bhid,bhjd->bhij", q.astype(np.float64), k) / np.sqrt(q.shape[-1])
    scores[np.broadcast_to(np.arange(k.shape[2]) >= lengths[:, None, None, None], scores.shape)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", weights / weights.sum(-1, keepdims=True), v)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def make(name, nodes, inputs, outputs):
    def infos(side):
        return [helper.make_tensor_value_info(n, I64 if n in ("at", "length", "places") else F32, dims)
                for n, dims in side.items()]
    graph = helper.make_graph(nodes, name, infos(inputs), infos(outputs))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)


def tensor_scatter(axis, mode, with_indices, dims=CACHE, new="new"):
    rows = list(dims)
    rows[axis] = new
    inputs = {"x": rows, **({"at": ["batch"]} if with_indices else {}), "past_k": dims}
    write = node("TensorScatter", "past_k x" + (" at" if with_indices else ""), "present_k", axis=axis, mode=mode)
    return [write, node("ReduceSum", "present_k", "y", keepdims=0)], inputs, {"y": [], "present_k": dims}


# Name: nodes, inputs, outputs, whether the cache is written in place.
GRAPHS = {
    "linear": (*tensor_scatter(-2, "linear", True), True),
    "circular": (*tensor_scatter(2, "circular", True), True),
    "first": (*tensor_scatter(-2, "linear", False), True),
    "rank3": (*tensor_scatter(1, "circular", True, ["batch", ROOM, WIDTH]), True),
    "last": (*tensor_scatter(2, "linear", True, ["batch", WIDTH, ROOM], 1), True),
    # What is read of the cache is what it was before the run.
    "old": ([node("TensorScatter", "past_k x at", "present_k"), node("ReduceSum", "past_k", "y", keepdims=0)],
            {"x": ["batch", HEADS, "new", WIDTH], "at": ["batch"], "past_k": CACHE}, {"y": [], "present_k": CACHE}, True),
    # All of it is new.
    "whole": ([node("TensorScatter", "past_k x at", "z"), node("Neg", "z", "present_k"),
               node("ReduceSum", "z", "y", keepdims=0)],
              {"x": ["batch", HEADS, "new", WIDTH], "at": ["batch"], "past_k": CACHE}, {"y": [], "present_k": CACHE},
              False),
    "step": ([node("TensorScatter", "past_k k at", "present_k", mode="circular"),
              node("TensorScatter", "past_v v at", "present_v", mode="circular"),
              node("Attention", "q present_k present_v    length", "y")],
             {"q": ["batch", HEADS, 1, WIDTH], "k": ["batch", HEADS, 1, WIDTH], "v": ["batch", HEADS, 1, WIDTH],
              "at": ["batch"], "length": ["batch"], "past_k": CACHE, "past_v": CACHE},
             {"y": ["batch", HEADS, 1, WIDTH], "present_k": CACHE, "present_v": CACHE}, True),
}
GRAPHS["step"][0][2].input[:] = ["q", "present_k", "present_v", "", "", "", "length"]


def expected(name, given, kept):
    nodes = GRAPHS[name][0]
    values = {**given, **kept}
    for n in nodes:
        a = {x.name: helper.get_attribute_value(x) for x in n.attribute}
        i = [values.get(x) for x in n.input]
        if n.op_type == "TensorScatter":
            axis = a.get("axis", -2) % i[0].ndim
            out = scatter(i[0], i[1], i[2] if len(i) > 2 else None, axis, a.get("mode", b"linear").decode())
        elif n.op_type == "ReduceSum":
            out = i[0].sum(dtype=np.float64)
        elif n.op_type == "Neg":
            out = -i[0]
        else:
            out = attention(i[0], i[1], i[2], i[6])
        values[n.output[0]] = out
    return values


def build(name, folder, attnc, *options):
    nodes, inputs, outputs, in_place = GRAPHS[name]
    path, library = f"{folder}/{name}.onnx", f"{folder}/{name}.so"
    onnx.save(make(name, nodes, inputs, outputs), path)
    made = subprocess.run([attnc, path, "--own-state", "-o", library, "--json", *options], capture_output=True, text=True,
                          check=True)
    states = json.loads(made.stdout)["states"]
    assert all(s["in_place"] == in_place for s in states) and states, (name, states)
    return library


def inputs_of(name, rng, step):
    given = {}
    sizes = {"batch": BATCH, "new": step % 3 + 1}
    for n, dims in GRAPHS[name][1].items():
        shape = [sizes.get(d, d) for d in dims]
        if n == "at":
            rows = sizes["new"] if "new" in GRAPHS[name][1].get("x", []) else 1
            wraps = any(helper.get_attribute_value(a) == b"circular" for x in GRAPHS[name][0] for a in x.attribute)
            given[n] = rng.integers(0, 50 if wraps else ROOM - rows + 1, shape)
        elif n == "length":
            given[n] = rng.integers(1, ROOM + 1, shape)
        elif not n.startswith("past"):
            given[n] = rng.standard_normal(shape).astype(np.float32)
    return given


def decode(name, library, runtime):
    rng = np.random.default_rng(3)
    _, inputs, outputs, _ = GRAPHS[name]
    caches = [n for n in inputs if n.startswith("past")]
    rt = own_state.Runtime(runtime, library)
    state = ctypes.c_void_p()
    rt.call("attnrt_state_create", rt.session, None, ctypes.byref(state))
    kept = {n: np.zeros([BATCH if d == "batch" else d for d in inputs[n]], np.float32) for n in caches}
    for step in range(30):
        given = inputs_of(name, rng, step)
        want = expected(name, given, kept)
        y = [np.empty(np.shape(want["y"]), np.float32) for _ in range(2)]
        present = [np.empty_like(kept[n]) for n in caches]
        rt.run(list(given.values()), y[:1], state)
        rt.run([*given.values(), *kept.values()], [y[1], *present])
        np.testing.assert_allclose(y[0], want["y"], rtol=1e-4, atol=1e-4, err_msg=f"{name} step {step}")
        assert np.array_equal(*y), f"{name} step {step}: not the bits of a run without a state"
        for n, p in zip(caches, present):
            kept[n] = want[n.replace("past", "present")].astype(np.float32)
            assert np.array_equal(p, kept[n]), f"{name} step {step}"
            view = ctypes.POINTER(own_state.DLTensor)()
            rt.call("attnrt_state_get", state, n.encode(), ctypes.byref(view))
            data = ctypes.cast(view.contents.data, ctypes.POINTER(ctypes.c_float))
            assert np.array_equal(np.ctypeslib.as_array(data, kept[n].shape), kept[n]), f"{name} step {step}: state"
    return rt, state


def fail(rt, state):
    """A row out of range: the state is refused until it is filled or reset."""
    x, y = np.ones((BATCH, HEADS, 1, WIDTH), np.float32), np.empty((), np.float32)

    def run(at):
        try:
            rt.run([x, np.array(at)], [y], state)
            return "done"
        except SystemExit as error:
            return str(error)
    for bad in ([0, ROOM], [-1, 0]):
        print("out of range:", run(bad))
        print("after it:", run([0, 0]))
        rt.call("attnrt_state_reset", state)
        assert run([0, 0]) == "done" and y == x.sum(), y
    rt.lib.attnrt_state_destroy(state)


def main(attnc, runtime, folder):
    for name in GRAPHS:
        rt, state = decode(name, build(name, folder, attnc, *[f"--dump-ir={folder}/ir"] * (name == "step")), runtime)
        if name == "linear":
            fail(rt, state)
    print(len(GRAPHS), "graphs agree")


if __name__ == "__main__":
    own_state.count(sys.argv[2], rf"memref<\?x{HEADS}x{ROOM}x{WIDTH}xf32") if sys.argv[1] == "count" else main(*sys.argv[1:])
