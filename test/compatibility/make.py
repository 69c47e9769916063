#!/usr/bin/env python3
"""Compiles the libraries of a new ABI version: make.py ATTNC FOLDER (once per version, see README.md)

Outputs are what NumPy computes in f64.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

TOKENS, WIDTH = 11, 32


def weights(seed, **shapes):
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape).astype(np.float32) / 4 for name, shape in shapes.items()}


def model(nodes, inputs, outputs, constants):
    value = {"i": T.INT64, "f": T.FLOAT}
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info(n, value[k], s) for n, k, s in inputs],
                         [h.make_tensor_value_info(n, value[k], s) for n, k, s in outputs],
                         [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)


def attend(query, key, value):
    scores = query @ np.swapaxes(key, -1, -2) / np.sqrt(query.shape[-1])
    weight = np.exp(scores - scores.max(-1, keepdims=True))
    return weight / weight.sum(-1, keepdims=True) @ value


ATTEND = [h.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), h.make_node("MatMul", ["q", "kt"], ["dot"]),
          h.make_node("Div", ["dot", "root"], ["score"]), h.make_node("Softmax", ["score"], ["weight"], axis=-1),
          h.make_node("MatMul", ["weight", "v"], ["y"])]
ROOT = {"root": np.float32(np.sqrt(WIDTH))}


def attention():
    w = weights(1, table=(TOKENS, WIDTH), wq=(WIDTH, WIDTH), wk=(WIDTH, WIDTH), wv=(WIDTH, WIDTH))
    nodes = [h.make_node("Gather", ["table", "ids"], ["x"])]
    nodes += [h.make_node("MatMul", ["x", "w" + name], [name]) for name in "qkv"]
    runs = []
    for batch, length in ((1, 3), (2, 7)):
        ids = np.arange(batch * length).reshape(batch, length) * 3 % TOKENS
        x = w["table"].astype(float)[ids]
        runs.append(([ids], [attend(x @ w["wq"], x @ w["wk"], x @ w["wv"])]))
    made = model(nodes + ATTEND, [("ids", "i", ["batch", "length"])], [("y", "f", ["batch", "length", WIDTH])], w | ROOT)
    return made, runs


def step():
    w = weights(2, wk=(WIDTH, WIDTH), wv=(WIDTH, WIDTH))
    nodes = [h.make_node("MatMul", ["q", "wk"], ["newk"]), h.make_node("MatMul", ["q", "wv"], ["newv"]),
             h.make_node("Concat", ["past_k", "newk"], ["k"], axis=1),
             h.make_node("Concat", ["past_v", "newv"], ["v"], axis=1)] + ATTEND
    nodes += [h.make_node("Identity", ["k"], ["present_k"]), h.make_node("Identity", ["v"], ["present_v"])]
    past, present = [1, "past", WIDTH], [1, "total", WIDTH]
    queries = np.random.default_rng(3).standard_normal((5, 1, 1, WIDTH)).astype(np.float32)
    runs = []
    for n, query in enumerate(queries):
        seen = queries[:n + 1, 0].reshape(1, n + 1, WIDTH).astype(float)
        runs.append(([query], [attend(query.astype(float), seen @ w["wk"], seen @ w["wv"])]))
    made = model(nodes, [("q", "f", [1, 1, WIDTH]), ("past_k", "f", past), ("past_v", "f", past)],
                 [("y", "f", [1, 1, WIDTH]), ("present_k", "f", present), ("present_v", "f", present)], w | ROOT)
    return made, runs


def translate():
    w = weights(4, table=(TOKENS, WIDTH), head=(WIDTH, TOKENS))
    one = {"one": np.array([1])}
    encoder = model([h.make_node("Gather", ["table", "ids"], ["memory"])], [("ids", "i", ["batch", "source"])],
                    [("memory", "f", ["batch", "source", WIDTH])], {"table": w["table"]})
    nodes = [h.make_node("Unsqueeze", ["token", "one"], ["row"]),
             h.make_node("Gather", ["table", "row"], ["embedded"]),
             h.make_node("Add", ["embedded", "state"], ["q"]), h.make_node("Identity", ["memory"], ["k"]),
             h.make_node("Identity", ["memory"], ["v"])] + ATTEND
    nodes += [h.make_node("Add", ["y", "embedded"], ["new_state"]),
              h.make_node("MatMul", ["new_state", "head"], ["all"]),
              h.make_node("Squeeze", ["all", "one"], ["logits"])]
    stepper = model(nodes, [("token", "i", ["batch"]), ("state", "f", ["batch", 1, WIDTH]),
                            ("memory", "f", ["batch", "source", WIDTH])],
                    [("logits", "f", ["batch", TOKENS]), ("new_state", "f", ["batch", 1, WIDTH])], w | one | ROOT)
    ids = np.array([[3, 1, 4, 1, 5]])
    memory = w["table"].astype(float)[ids]
    token, state, tokens, score = 1, np.zeros((1, 1, WIDTH)), [], 0.0
    for _ in range(6):
        embedded = w["table"].astype(float)[[[token]]]
        state = attend(embedded + state, memory, memory) + embedded
        logits = (state @ w["head"])[0, 0]
        token = int(logits.argmax())
        score += logits[token] - np.log(np.exp(logits).sum())
        tokens.append(token)
        if token == 2:
            break
    return encoder, stepper, ids, memory, [[tokens], [len(tokens)], np.array([score])]


def plain(array):
    array = np.asarray(array)
    dtype = np.int64 if array.dtype.kind == "i" else np.float32
    return {"dtype": dtype.__name__, "shape": list(array.shape), "data": array.astype(dtype).ravel().tolist()}


def main(attnc, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    cases = []

    def compile_model(name, models, *options):
        with tempfile.TemporaryDirectory() as temporary:
            arguments = []
            for entry, made in models.items():
                path = pathlib.Path(temporary) / f"{entry or 'model'}.onnx"
                onnx.save(made, path)
                arguments.append(f"{entry}={path}" if entry else str(path))
            subprocess.run([attnc, *arguments, "--mcpu=x86-64", *options, "-o", folder / f"{name}.so"], check=True)

    def add(library, entry, runs, state=False):
        cases.append({"library": library, "entry": entry, "state": state,
                      "runs": [{"inputs": [plain(x) for x in inputs], "outputs": [plain(y) for y in outputs]}
                               for inputs, outputs in runs]})

    made, runs = attention()
    compile_model("attention", {"": made})
    add("attention", None, runs)
    made, runs = step()
    compile_model("step", {"": made}, "--own-state", "--state=past_k:present_k,past_v:present_v")
    add("step", None, runs, state=True)
    encoder, stepper, ids, memory, found = translate()
    compile_model("translate", {"encode": encoder, "step": stepper}, "--generate=greedy", "--init=encode",
                  "--state=state:new_state", "--bos=1", "--eos=2", "--max-length=6")
    add("translate", "encode", [([ids], [memory])])
    add("translate", "generate", [([ids, np.zeros((1, 1, WIDTH))], found)])
    (folder / "cases.json").write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
