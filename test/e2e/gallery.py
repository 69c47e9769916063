"""Runs each model of the gallery on its stored test split: gallery.py ATTNC ATTN_RUN GALLERY FOLDER.

The .npz beside a model has its inputs, the right answers, and what PyTorch computed in float32. docs/gallery.md has the counts.
"""
import json
import pathlib
import subprocess
import sys

import numpy as np

ATTNC, RUN = sys.argv[1:3]
GALLERY, FOLDER = map(pathlib.Path, sys.argv[3:])
PAGE = (GALLERY.parents[1] / "docs/gallery.md").read_text().splitlines()


def classes(name):
    """How many rows of an output have their greatest number at the label."""
    return lambda outputs, stored: int((outputs[name].argmax(1) == stored["labels"]).sum())


def nearest(outputs, stored):
    """How many pictures are nearest to the one that was given, of all."""
    made, given = (each.reshape(len(each), -1).astype(np.float64) for each in (outputs["picture"], stored["image"]))
    distances = ((made[:, None] - given) ** 2).sum(2)
    return int((distances.argmin(1) == np.arange(len(given))).sum())


def texts(name):
    """How many texts are as they were spoken, to the last letter."""
    return lambda outputs, stored: int((outputs[name] == stored["target"]).all(1).sum())


def sounds(stored):
    """Two frames a row, in 32ths."""
    sound = stored["sound"].astype(np.float32) / 32
    return dict(sound=sound.reshape(len(sound), -1, 24), frames=stored["frames"].astype(np.int64))


def only(name, dtype):
    return lambda stored: {name: stored[name].astype(dtype)}


def episode(stored):
    """From the middle of the picture on; the noise makes the places those that were drawn."""
    count = len(stored["image"])
    return dict(image=stored["image"], location=np.zeros((count, 2), np.float32), h=np.zeros((count, 96), np.float32), noise=stored["noise"])


# File, attentions, inputs, outputs, what is right.
MODELS = {
    "autoencoder": ("autoencoder.onnx", 0, only("image", np.float32), ["picture", "code"], nearest),
    "bert": ("bert.onnx", 2, only("words", np.int64), ["logits"], classes("logits")),
    "ctc": ("ctc.json", 0, sounds, ["labels"], texts("labels")),
    "digits": ("digits.onnx", 3, only("image", np.float32), ["logits"], classes("logits")),
    "glimpses": ("glimpses.json", 0, episode, ["log_probs", "locations"], classes("log_probs")),
    "hierarchical": ("hierarchical.onnx", 2, only("words", np.int64), ["logits"], classes("logits")),
    "spatial": ("spatial.onnx", 0, only("image", np.float32), ["logits", "theta", "warped"], classes("logits")),
    "speech": ("speech.json", 2, sounds, ["tokens"], texts("tokens")),
}
# Each glimpse depends on where the last one looked, so rounding grows: PyTorch in float32 is 0.006 from itself in float64.
TOLERANCES = {"glimpses": 0.02}


def run(library, inputs, outputs, entry):
    for name, value in inputs.items():
        np.save(FOLDER / f"{name}.npy", value)
    # A search calls what it wrote `tokens`, [batch, best, token].
    asked = {name: "tokens" if entry else name for name in outputs}
    subprocess.run([RUN, library, *entry, *(f"--input={name}=@{FOLDER}/{name}.npy" for name in inputs),
                    *(f"--output={theirs}=@{FOLDER}/{name}.out.npy" for name, theirs in asked.items())],
                   check=True, stdout=subprocess.DEVNULL)
    return {name: np.load(FOLDER / f"{name}.out.npy") for name in outputs}


def tokens_like(tokens, want):
    """The first hypotheses, as long as those that are stored; behind the end stands 0."""
    tokens = tokens.reshape(len(want), -1)
    return np.pad(tokens, ((0, 0), (0, max(0, want.shape[1] - tokens.shape[1]))))[:, : want.shape[1]]


def check(name):
    file, attentions, inputs, names, right = MODELS[name]
    searched = names[0] in ("tokens", "labels")
    stored = np.load(GALLERY / ("speech.npz" if searched else f"{name}.npz"))
    library, report = FOLDER / f"{name}.so", FOLDER / "report.json"
    subprocess.run([ATTNC, GALLERY / file, "-o", library, "--verify-fusion", f"--fusion-report={report}"], check=True)
    outputs = run(library, inputs(stored), names, ["--entry=generate"] if searched else [])
    for output in names:
        if searched:
            outputs[output] = tokens_like(outputs[output], stored[output])
            np.testing.assert_array_equal(outputs[output], stored[output])
        else:
            np.testing.assert_allclose(outputs[output], stored[output], rtol=1e-4, atol=TOLERANCES.get(name, 1e-4))
    ours, torch = right(outputs, stored), right({output: stored[output] for output in names}, stored)
    count = len(stored[names[0]])
    assert ours == torch and ours > count / 2, f"{name}: {ours} of {count} right, {torch} in PyTorch"
    assert any(f"[`{name}`]" in line and line.endswith(f"{ours} of {count} |") for line in PAGE), "docs/gallery.md has another count"
    verdicts = json.loads(report.read_text())
    fused = [v for v in verdicts if v["verdict"] == "fused"]
    assert len(fused) == attentions and all(v["kernel"] for v in fused), verdicts
    assert all(v["verdict"] in ("fused", "not an attention") for v in verdicts), verdicts
    print(f"{name}: {attentions} attentions, {ours} of {count} right, as in PyTorch")


for each in MODELS:
    check(each)
