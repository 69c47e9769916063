#!/usr/bin/env python3
"""Compares CTC decoding of compiled libraries with ctc_reference.py.

check_ctc.py ATTNC ATTN_RUN WORK [NAME...]: cases of CASES, with "cuda:" in front for a GPU.
"""
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto as P
from onnx import helper as h

import ctc_reference as reference


def write_model(path, labels, time_major, narrow):
    """Scores as they are given, and the numbers of frames less one as an output."""
    dims = ["time", "batch", labels] if time_major else ["batch", "time", labels]
    kind = P.INT32 if narrow else P.INT64
    one = h.make_tensor("one", kind, [], [1])
    graph = h.make_graph([h.make_node("Identity", ["x"], ["log_probs"]), h.make_node("Sub", ["given", "one"], ["count"])], "g",
                         [h.make_tensor_value_info("x", P.FLOAT, dims), h.make_tensor_value_info("given", kind, ["batch"])],
                         [h.make_tensor_value_info("log_probs", P.FLOAT, dims), h.make_tensor_value_info("count", kind, ["batch"])],
                         [one])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), path)


class Case:
    def __init__(self, name, labels, width=0, best=1, blank=0, time_major=False, frames="", narrow=False):
        self.__dict__.update(locals())
        self.flags = [f"--generate=ctc-beam:{width}", f"--n-best={best}"] if width else ["--generate=ctc-greedy"]
        self.flags += [f"--blank={blank}"] if blank else []
        self.flags += ["--time-major"] if time_major else []
        self.flags += [f"--frames={frames}"] if frames else []


CASES = [
    Case("greedy", 5), Case("greedy-last", 33, blank=32, time_major=True, frames="given"),
    Case("beam", 5, 4, 2), Case("beam-one", 5, 1), Case("beam-wide", 3, 200, 20, blank=1),
    Case("beam-time", 17, 8, 8, blank=16, time_major=True, frames="given"),
    Case("beam-output", 40, 10, 3, frames="count", narrow=True),
]


def check(case, target, attnc, attn_run, work):
    write_model(work / f"{case.name}.onnx", case.labels, case.time_major, case.narrow)
    library = work / f"{case.name}.so"
    subprocess.run([attnc, f"listen={work / case.name}.onnx", "-o", library, *case.flags, *target], check=True)
    rng = np.random.default_rng(len(case.name))
    labels = 0
    for batch, time, spread in ((1, 1, 1), (3, 4, 1), (2, 40, 4), (5, 23, 0.3), (2, 5, "sparse"), (2, 6, "equal")):
        scores = rng.standard_normal((batch, time, case.labels)).astype(np.float32)
        if spread == "sparse":  # labels that cannot be
            scores[rng.random(scores.shape) < 0.6] = -np.inf
            scores[..., -1] = 0
        elif spread == "equal":
            scores[:] = 0
        else:
            scores *= spread
            scores[:, 1::2] = np.where(rng.random((batch, time, 1))[:, 1::2] < 0.5, scores[:, : time - 1 : 2][:, : time // 2], scores[:, 1::2])
        count = np.array([max(1, time - 2 * b) for b in range(batch)])
        given = dict(x=np.swapaxes(scores, 0, 1) if case.time_major else scores, given=count.astype(np.int32 if case.narrow else np.int64))
        command = [attn_run, library, "--entry=generate"]
        for name, value in given.items():
            np.save(work / f"{name}.npy", np.ascontiguousarray(value))
            command.append(f"--input={name}=@{work / name}.npy")
        outputs = ("tokens", "lengths", "scores")
        subprocess.run(command + [f"--output={o}=@{work / o}.out.npy" for o in outputs], check=True, stdout=subprocess.DEVNULL)
        tokens, lengths, totals = (np.load(work / f"{o}.out.npy") for o in outputs)
        if not case.width:
            tokens, lengths, totals = tokens[:, None], lengths[:, None], totals[:, None]
        assert tokens.shape == (batch, case.best, lengths.max()), (case.name, tokens.shape)
        used = {"": [time] * batch, "given": count, "count": count - 1}[case.frames]
        for b in range(batch):
            rows = scores[b, : used[b]]
            want = reference.beam(rows, case.blank, case.width) if case.width else [reference.greedy(rows, case.blank)]
            exact = reference.all_paths(rows, case.blank) if case.width > 100 and case.labels ** len(rows) < 1000 else None
            for n in range(case.best):
                found, score = tuple(tokens[b, n, : lengths[b, n]]), totals[b, n]
                assert (tokens[b, n, lengths[b, n]:] == case.blank).all()
                if n >= len(want):
                    assert found == () and score == -np.inf, (case.name, found, score)
                    continue
                where = (case.name, spread, b, n, found, score, want[n])
                assert abs(score - want[n][1]) < 1e-5 * (1 + abs(score)), where
                if found != want[n][0]:  # equal but for the last digits
                    near = dict((p, s) for p, s in want)
                    assert found in near and abs(near[found] - score) < 1e-5, where
                if exact:
                    assert abs(exact[found] - score) < 1e-5, where
                labels += len(found)
    print(f"{case.name}: equal, {labels} labels")


if __name__ == "__main__":
    attnc, attn_run, work = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    work.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[4:] or [case.name for case in CASES]:
        target, _, plain = name.rpartition(":")
        case = next(each for each in CASES if each.name == plain)
        check(case, [f"--target={target}"] if target else [], attnc, attn_run, work)
