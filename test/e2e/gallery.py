"""Runs each model of the gallery on its stored test split: gallery.py ATTNC ATTN_RUN GALLERY FOLDER.

NAME.npz beside NAME.onnx has the input, the labels, and what PyTorch computed in float32.
"""
import json
import pathlib
import subprocess
import sys

import numpy as np

ATTNC, RUN = sys.argv[1:3]
GALLERY, FOLDER = map(pathlib.Path, sys.argv[3:])


def check(model):
    name, stored = model.stem, np.load(model.with_suffix(".npz"))
    given, = set(stored.files) - {"labels", "logits"}
    x = stored[given]
    np.save(FOLDER / "x.npy", x if x.dtype.kind == "f" else x.astype(np.int64))
    library, y = FOLDER / f"{name}.so", FOLDER / "y.npy"
    subprocess.run([ATTNC, model, "-o", library, "--verify-fusion", f"--fusion-report={FOLDER}/report.json"], check=True)
    subprocess.run([RUN, library, f"--input={given}=@{FOLDER}/x.npy", f"--output=logits=@{y}"], check=True,
                   stdout=subprocess.DEVNULL)
    logits, want, labels = np.load(y), stored["logits"], stored["labels"]
    np.testing.assert_allclose(logits, want, rtol=1e-4, atol=1e-4)
    right, in_torch = (int((z.argmax(1) == labels).sum()) for z in (logits, want))
    assert right == in_torch, (right, in_torch)
    # A guess is right one time in `classes`.
    assert right > 2 * len(labels) / want.shape[1], f"{name} has learnt little: {right} of {len(labels)}"
    verdicts = json.loads((FOLDER / "report.json").read_text())
    assert verdicts and all(v["verdict"] == "fused" and v["kernel"] for v in verdicts), verdicts
    print(f"{name}: {len(verdicts)} attentions, {right} of {len(labels)} right, as in PyTorch")


for path in sorted(GALLERY.glob("*.onnx")):
    check(path)
