#!/usr/bin/env python3
"""Beam search over steps with caches of several layouts, compared with reference.py around ONNX Runtime.

check_caches.py ATTNC ATTN_RUN WORK [LAYOUT...]: the step is one attention of few positions whose weights make the best
tokens depend on what lies in the caches. Batches of 1 and 4, searches longer than the first room of a cache.
"""
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

import reference

D, VOCABULARY, WIDTH, STEPS, EOS, BOS = 20, 40, 4, 40, 3, 1

# Dimensions of a cache; B: rows, P: positions. `each`: positions that a step adds, 0: as many as an input has, and one.
# `batch`: a step that says of how many rows it is, one a hypothesis.
LAYOUTS = {
    "rows-first": dict(dims="BPD"),
    "heads": dict(dims="BHPD"),
    "pairs": dict(dims="2BHPD"),
    "time-major": dict(dims="PBD", token=TensorProto.INT32),
    "two-a-step": dict(dims="BPD", each=2),
    "open-count": dict(dims="BPD", each=0),
    "init": dict(dims="BHPD", init=True),
    "init-two": dict(dims="BPD", each=2, init=True),
    "one-row": dict(dims="BHPD", batch=1),
    "half": dict(dims="BHPD", type=TensorProto.FLOAT16),
}


class Step:
    """An ONNX step with caches in the layout, and with `init` the entry that makes the first of them."""

    def __init__(self, dims, each=1, init=False, type=TensorProto.FLOAT, batch="batch",
                 token=TensorProto.INT64):
        self.dims, self.each, self.init, self.type, self.batch, self.token = dims, each, init, type, batch, token
        self.width, self.n_best = (WIDTH, 3) if batch == "batch" else (1, 1)
        self.rows, self.grow = dims.index("B"), dims.index("P")
        rng = np.random.default_rng(5)
        self.weights = {"E": rng.normal(size=(VOCABULARY, D)), "Wk": rng.normal(size=(D, D)), "Wv": rng.normal(size=(D, D)),
                        "Wo": 0.6 * rng.normal(size=(D, VOCABULARY))}

    def shape(self, positions, rows=None):
        rows = rows or self.batch
        return [{"B": rows, "P": positions, "D": D, "H": 1, "2": 2}[d] for d in self.dims]

    def model(self, is_init):
        nodes, count = [], [0]
        constants = {n: w.astype(np.float32) for n, w in self.weights.items()}

        def op(kind, *inputs, to=None, **attributes):
            inputs = [i if isinstance(i, str) else constant(np.asarray(i)) for i in inputs]
            count[0] += 1
            to = to or f"t{count[0]}"
            nodes.append(helper.make_node(kind, inputs, [to], **attributes))
            return to

        def constant(value):
            constants[f"c{len(constants)}"] = value
            return f"c{len(constants) - 1}"

        def rows_of(x):
            """[rows, n, D] as new positions of the layout."""
            if "H" in self.dims:
                x = op("Unsqueeze", x, [1])
            elif self.dims == "PBD":
                x = op("Transpose", x, perm=[1, 0, 2])
            return x

        def plain(x):
            """A cache as [rows, positions, D]."""
            if self.type != TensorProto.FLOAT:
                x = cast(x, TensorProto.FLOAT)
            if "H" in self.dims:
                x = op("Squeeze", x, [1])
            elif self.dims == "PBD":
                x = op("Transpose", x, perm=[1, 0, 2])
            return x

        def cast(x, type):
            count[0] += 1
            nodes.append(helper.make_node("Cast", [x], [f"t{count[0]}"], to=type))
            return f"t{count[0]}"

        tokens = "source" if is_init else op("Unsqueeze", "token", [1])
        x = op("Gather", "E", tokens)  # [rows, n, D]
        new = []
        for weight in ("Wk", "Wv"):
            y = op("MatMul", x, weight)
            if not is_init and self.each == 2:
                y = op("Concat", y, op("Mul", y, np.float32(0.5)), axis=1)
            if not is_init and self.each == 0:
                y = op("Concat", y, "more", axis=1)
            y = rows_of(y)
            new.append(cast(y, self.type) if self.type != TensorProto.FLOAT else y)
        if "2" in self.dims:
            new = [op("Concat", *[op("Unsqueeze", y, [0]) for y in new], axis=0)]
        names = [f"past_{n}" for n in range(len(new))]
        all_ = [op("Identity", y, to=n.replace("past", "present")) if is_init else
                op("Concat", n, y, to=n.replace("past", "present"), axis=self.grow) for n, y in zip(names, new)]
        keys, values = (op("Gather", all_[0], n, axis=0) for n in (np.int64(0), np.int64(1))) if "2" in self.dims else all_
        keys, values = plain(keys), plain(values)
        query = op("Slice", x, [-1], [2**31], [1])
        scores = op("Softmax", op("Mul", op("MatMul", query, op("Transpose", keys, perm=[0, 2, 1])), np.float32(0.1)), axis=-1)
        context = op("Squeeze", op("Add", op("MatMul", scores, values), query), [1])
        op("MatMul", context, "Wo", to="logits")
        info = helper.make_tensor_value_info
        if is_init:
            inputs = [info("source", TensorProto.INT64, ["batch", "past"])]
        else:
            inputs = [info("token", self.token, [self.batch])] + [info(n, self.type, self.shape("past")) for n in names]
            if self.each == 0:
                inputs.append(info("more", TensorProto.FLOAT, ["batch", "extra", D]))
        after = "past" if is_init else "total"
        outputs = [info("logits", TensorProto.FLOAT, [self.batch, VOCABULARY])]
        outputs += [info(n.replace("past", "present"), self.type, self.shape(after)) for n in names]
        graph = helper.make_graph(nodes, "step", inputs, outputs,
                                  [onnx.numpy_helper.from_array(v, n) for n, v in constants.items()])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(case, attnc, attn_run, work):
    target, _, name = case.rpartition(":")
    step = Step(**LAYOUTS[name])
    models = {"step": step.model(False)} | ({"init": step.model(True)} if step.init else {})
    for entry, model in models.items():
        onnx.save(model, work / f"{entry}.onnx")
    session = ort.InferenceSession(work / "step.onnx")
    library = work / "m.so"
    command = [attnc, *(f"{e}={work / e}.onnx" for e in models), "-o", library, f"--generate=beam:{step.width}",
               f"--n-best={step.n_best}", f"--eos={EOS}", f"--max-length={STEPS}"] + ([f"--target={target}"] if target else [])
    subprocess.run(command + (["--init=init"] if step.init else [f"--bos={BOS}"]), check=True)
    caches = [i.name for i in session.get_inputs() if i.name.startswith("past")]
    element = helper.tensor_dtype_to_np_dtype(step.type)
    for batch in (1, 4) if step.batch == "batch" else (step.batch,):
        rng = np.random.default_rng(batch)
        given = {n: rng.normal(size=step.shape(3, batch)).astype(element) for n in caches}
        if step.each == 0:
            given["more"] = rng.normal(size=(batch, 2, D)).astype(np.float32)
        first = np.full(batch, BOS, np.int64)
        states = dict(given)
        if step.init:
            given = {"source": rng.integers(4, VOCABULARY, (batch, 3))}
            first, *made = ort.InferenceSession(work / "init.onnx").run(None, given)
            states = dict(zip(caches, made))

        def run(tokens, rows_first):
            feed = {n: np.moveaxis(s, 0, step.rows if n in caches else 0) for n, s in zip(states, rows_first)}
            token = tokens.astype(helper.tensor_dtype_to_np_dtype(step.token))
            logits, *after = session.run(None, {"token": token, **feed})
            after = [np.moveaxis(s, step.rows, 0) for s in after]
            return logits, after + ([feed["more"]] if step.each == 0 else []), None

        wanted = reference.beam(run, [np.moveaxis(s, step.rows if n in caches else 0, 0) for n, s in states.items()], first,
                                (EOS,), STEPS, step.width, n_best=step.n_best)
        for n, value in given.items():
            np.save(work / f"{n}.npy", value)
        outputs = ("tokens", "lengths", "scores")
        subprocess.run([attn_run, library, "--entry=generate", *(f"--input={n}=@{work / n}.npy" for n in given),
                        *(f"--output={o}=@{work / o}.out.npy" for o in outputs)], check=True, stdout=subprocess.DEVNULL)
        tokens, lengths, scores = (np.load(work / f"{o}.out.npy") for o in outputs)
        for item in range(batch):
            for rank, (score, sequence, _) in enumerate(wanted[item]):
                found = tokens[item, rank, : lengths[item, rank]].tolist()
                assert found == sequence, (name, item, rank, found, sequence, scores[item, rank], score)
                assert abs(scores[item, rank] - score) <= 1e-4 * max(1, abs(score)), (name, scores[item, rank], score)
    print(f"{case}: equal")


if __name__ == "__main__":
    work = pathlib.Path(sys.argv[3])
    work.mkdir(parents=True, exist_ok=True)
    for each in sys.argv[4:] or LAYOUTS:
        check(each, sys.argv[1], sys.argv[2], work)
