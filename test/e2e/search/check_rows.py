#!/usr/bin/env python3
"""Searches in rows of scores that are hard to choose from, against reference.py.

check_rows.py ATTNC ATTN_RUN WORK [FLAG...]: FLAGs are for ATTNC. Every step scores alike: equal scores (the lower token
comes first, also where far apart), -inf but for few tokens or for one, rows that end at different times; and what is an
error: a NaN, +inf or nothing but -inf, of which the first item is named.
"""
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnx.parser

import reference

VOCABULARY, EOS, LENGTH = 9001, (7, 290), 4  # more than a block's threads ask for at once, and no multiple of anything
STEP = """<ir_version: 8, opset_import: ["": 17]>
agraph (int64[b] token, float[b,9001] given) => (float[b,9001] logits) {
  zero = Constant<value = float[1,1] {0}>()
  axis = Constant<value = int64[1] {1}>()
  number = Cast<to = 1>(token)
  column = Unsqueeze(number, axis)
  none = Mul(column, zero)
  logits = Add(given, none)
}"""


def rows():
    scores = np.random.default_rng(3).normal(size=(6, VOCABULARY)).astype(np.float32)
    scores[0, [9000, 8195, 44, 43, 21]] = 6  # by five threads, and by two of one warp
    scores[1] = 0.5                   # all of them
    scores[2, :] = -np.inf
    scores[2, [5, 290, 292]] = 2, 1, 2
    scores[3, :] = -np.inf
    scores[3, 17] = -1e30             # the only one
    scores[4, [7, 1031]] = 9          # the end, and one that thread 7 sees as well
    scores[5, [290, 1, 0]] = 8, 8, -0.0
    return scores


def check(kind, flags, attnc, attn_run, work):
    library = work / "rows.so"
    width = int(kind.partition(":")[2] or 1)
    best = [f"--n-best={width}"] if kind != "greedy" else []
    subprocess.run([attnc, f"step={work / 'step.onnx'}", "-o", library, f"--generate={kind}", "--bos=1",
                    f"--max-length={LENGTH}", "--eos=" + ",".join(map(str, EOS)), *best, *flags], check=True)

    def generate(scores):
        np.save(work / "given.npy", scores)
        outputs = ("tokens", "lengths", "scores")
        run = subprocess.run([attn_run, library, "--entry=generate", f"--input=given=@{work / 'given.npy'}",
                              *(f"--output={o}=@{work / o}.out.npy" for o in outputs)], capture_output=True, text=True)
        return run, [np.load(work / f"{o}.out.npy") for o in outputs] if run.returncode == 0 else None

    scores = rows()
    step = lambda tokens, states: (states[0], states, None)
    first = np.ones(len(scores), np.int64)
    run, found = generate(scores)
    assert run.returncode == 0, run.stderr
    if kind == "greedy":
        tokens, lengths, totals, _ = reference.greedy(step, [scores], first, EOS, LENGTH)
        wanted = [[(total, row)] for total, row in zip(totals, tokens)]
        found = [f[:, None] for f in found]
    else:
        with np.errstate(invalid="ignore"):
            wanted = reference.beam(step, [scores], first, EOS, LENGTH, width, n_best=width)
    for item, hypotheses in enumerate(wanted):
        for rank, (total, sequence, *_) in enumerate(hypotheses):
            count = found[1][item, rank]
            got = found[0][item, rank, :count].tolist()
            assert got == sequence, (kind, item, rank, got, sequence)
            assert abs(found[2][item, rank] - total) <= 1e-4 * max(1, abs(total)), (kind, item, rank)
    for value, where in ((np.nan, (4, 100)), (np.inf, (2, 5)), (-np.inf, (3, 17))):
        bad = rows()
        bad[where] = value
        bad[5, 256] = np.nan  # a later item is not named
        run, _ = generate(bad)
        message = f"in step 1 the scores of item {where[0]} have a NaN or +inf, or nothing but -inf"
        assert run.returncode != 0 and message in run.stderr, (kind, value, run.stderr)
    print(f"{kind}: equal")


if __name__ == "__main__":
    attnc, attn_run, work = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    work.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.parser.parse_model(STEP), work / "step.onnx")
    for kind in ("greedy", "beam:1", "beam:3"):
        check(kind, sys.argv[4:], attnc, attn_run, work)
