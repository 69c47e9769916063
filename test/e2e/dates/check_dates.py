#!/usr/bin/env python3
"""Compares `generate` of a compiled library with what PyTorch's beam search found, and its alignments with those of the
model's steps in ONNX Runtime: check_dates.py ATTN_RUN LIBRARY WORK [PICTURE].

PICTURE: also draws the alignment of one sentence, for the README.
"""
import pathlib
import subprocess
import sys

import numpy as np
import onnxruntime

HERE = pathlib.Path(__file__).parent
SOURCE = " " + "abcdefghijklmnopqrstuvwxyz0123456789,./-'"
TARGET = "<>0123456789-"


def attended(source, lengths, tokens):
    """What each step attended to, by ONNX Runtime, which is given the tokens [sentence, time] that were written."""
    encode, step = (onnxruntime.InferenceSession(HERE / f"{name}.onnx", providers=["CPUExecutionProvider"]) for name in ("encode", "step"))
    memory, keys, state, mask = encode.run(["memory", "keys", "state", "mask"], {"source": source, "lengths": lengths})
    given = dict(memory=memory, keys=keys, mask=mask)
    rows, token = [], np.zeros(len(tokens), np.int64)
    for following in tokens.T:
        _, state, weights = step.run(["log_probs", "next_state", "alignment"], dict(given, token=token, state=state))
        rows.append(weights)
        token = following
    return np.stack(rows, 1)


def main(attn_run, library, work, picture=None):
    want = np.load(HERE / "expected.npz")
    work = pathlib.Path(work)
    work.mkdir(parents=True, exist_ok=True)
    for name in ("source", "lengths"):
        np.save(work / f"{name}.npy", want[name].astype(np.int64))
    outputs = ("tokens", "lengths", "scores", "alignment")
    subprocess.run([attn_run, library, "--entry=generate"] + [f"--input={n}=@{work / n}.npy" for n in ("source", "lengths")] +
                   [f"--output={n}=@{work / n}.out.npy" for n in outputs], check=True, stdout=subprocess.DEVNULL)
    tokens, lengths, scores, alignment = (np.load(work / f"{n}.out.npy")[:, 0] for n in outputs)
    assert (tokens == want["tokens"][:, : tokens.shape[1]]).all(), np.flatnonzero((tokens != want["tokens"][:, : tokens.shape[1]]).any(1))
    assert (want["tokens"][:, tokens.shape[1] :] == 1).all()
    np.testing.assert_allclose(scores, want["scores"], atol=1e-4, rtol=0)
    eager = attended(want["source"].astype(np.int64), want["lengths"].astype(np.int64), tokens)
    for n, weights in enumerate(alignment):
        np.testing.assert_allclose(weights[: lengths[n]], eager[n, : lengths[n]], rtol=0, atol=1e-5)
        assert (weights[:, want["lengths"][n] :] == 0).all() and (weights[lengths[n] :] == 0).all()
    worst = np.abs(scores - want["scores"]).max()
    print(f"{len(tokens)} sentences equal, {int(want['right'])} right, scores within {worst:.1e}, alignments as each step has them")
    if picture:
        draw(want, tokens, lengths, alignment, picture)


def draw(want, tokens, lengths, alignment, picture):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    n = int(np.argmax(want["lengths"]))
    source = [SOURCE[i] for i in want["source"][n][: want["lengths"][n]]]
    target = ["end" if t == 1 else TARGET[t] for t in tokens[n][: lengths[n]]]
    figure, axes = plt.subplots(figsize=(8, 3.8), dpi=100)
    image = axes.imshow(alignment[n][: lengths[n], : len(source)], cmap="Greys", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(source)), source, family="monospace")
    axes.set_yticks(range(len(target)), target, family="monospace")
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.set_title(f"\u201c{''.join(source).strip()}\u201d becomes {''.join(target[:-1])}", fontsize=10)
    figure.colorbar(image, fraction=0.046, pad=0.02, label="weight of the letter")
    figure.tight_layout()
    figure.savefig(picture, metadata={"Software": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
