#!/usr/bin/env python3
"""What the models of the gallery attend to, drawn from compiled models: pictures.py ATTNC ATTN_RUN FOLDER [PICTURES].

Files go into FOLDER, pictures into PICTURES (docs/gallery if it is left out). Needs numpy and matplotlib.
"""
import pathlib
import subprocess
import sys

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HERE = pathlib.Path(__file__).resolve().parent
ATTNC, RUN = sys.argv[1:3]
FOLDER = pathlib.Path(sys.argv[3])
PICTURES = pathlib.Path(sys.argv[4]) if len(sys.argv) > 4 else HERE.parents[1] / "docs" / "gallery"


def run(file, inputs, outputs, entry=()):
    """Outputs of a compiled model."""
    library = FOLDER / "model.so"
    subprocess.run([ATTNC, HERE / file, "-o", library], check=True, stderr=subprocess.DEVNULL)
    for name, value in inputs.items():
        np.save(FOLDER / f"{name}.npy", value)
    subprocess.run([RUN, library, *entry, *(f"--input={name}=@{FOLDER}/{name}.npy" for name in inputs),
                    *(f"--output={name}=@{FOLDER}/out{n}.npy" for n, name in enumerate(outputs))], check=True, stdout=subprocess.DEVNULL)
    return [np.load(FOLDER / f"out{n}.npy") for n, _ in enumerate(outputs)]


def attentions(file, inputs):
    """The weights of each attention of one item, in the order of the model."""
    for name, value in inputs.items():
        np.save(FOLDER / f"{name}.npy", value)
    maps = FOLDER / f"{pathlib.Path(file).stem}-maps"
    subprocess.run([RUN, HERE / file, *(f"--input={name}=@{FOLDER}/{name}.npy" for name in inputs), f"--attention-maps={maps}"],
                   check=True, capture_output=True)
    return [np.load(path) for path in sorted(maps.glob("*.npy"))]


def stored(name):
    return np.load(HERE / f"{name}.npz")


def save(figure, name):
    PICTURES.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURES / f"{name}.png", metadata={"Software": None}, bbox_inches="tight")
    plt.close(figure)


def tiles(rows, columns, width, height):
    figure, axes = plt.subplots(rows, columns, figsize=(width, height), dpi=90, squeeze=False)
    for each in axes.flat:
        each.set_xticks([])
        each.set_yticks([])
    return figure, axes


def words_of(ids):
    names = (HERE / "words.txt").read_text().split("\n")
    return [names[i].replace("<other>", "…") for i in ids]


def shaded(axes, words, weights):
    """Words in a line, as dark as their weights, of which 1 is the greatest."""
    place = 0.0
    for word, weight in zip(words, weights):
        axes.text(place, 0.5, f" {word} ", family="monospace", fontsize=8, va="center",
                  bbox=dict(facecolor=plt.cm.Blues(0.75 * weight), edgecolor="none", pad=2),
                  color="white" if weight > 0.75 else "black")
        place += len(word) + 2
    axes.set_xlim(0, 100)
    axes.axis("off")


def bert():
    """The class token's row in the second layer, over heads."""
    data = stored("bert")
    right = np.flatnonzero((data["logits"].argmax(1) == data["labels"]) & ((data["words"] != 0).sum(1) == 48))
    ids = data["words"][right[2]].astype(np.int64)
    weights = attentions("bert.onnx", dict(words=ids[None]))[-1].reshape(-1, 49, 49)[:, 0, 1:].mean(0)
    words = words_of(ids)
    figure, axes = tiles(6, 1, 10, 1.7)
    for row in range(6):
        shaded(axes[row, 0], words[8 * row: 8 * row + 8], weights[8 * row: 8 * row + 8] / weights.max())
    save(figure, "bert")


def hierarchical():
    """Each sentence of a docstring behind its own weight."""
    data = stored("hierarchical")
    right = np.flatnonzero((data["logits"].argmax(1) == data["labels"]) & (data["words"][:, :, 5] != 0).all(1))
    ids = data["words"][right[1]].astype(np.int64)
    of_words, of_sentences = (each.reshape(-1, each.shape[-1]) for each in attentions("hierarchical.onnx", dict(words=ids[None])))
    figure, axes = tiles(6, 2, 9, 1.7)
    for row in range(6):
        count = (ids[row] != 0).sum()
        axes[row, 0].barh(0, of_sentences[0, row], color="#c44e52")
        axes[row, 0].set_xlim(1, 0)
        axes[row, 0].axis("off")
        shaded(axes[row, 1], words_of(ids[row][:count]), of_words[row, :count] / of_words[row].max())
    for each, (left, width) in zip(axes.T, ((0.0, 0.08), (0.09, 0.91))):
        for one in each:
            place = one.get_position()
            one.set_position([left, place.y0, width, place.height])
    save(figure, "hierarchical")


def speech():
    """The sound, the alignment of what a search spelled, and what CTC says of each frame."""
    data = stored("speech")
    item = int(np.argmax(data["frames"]))
    frames = int(data["frames"][item])
    sound = data["sound"][item: item + 1, : 2 * frames].astype(np.float32) / 32
    inputs = dict(sound=sound.reshape(1, frames, 24), frames=np.array([frames]))
    tokens, alignment = run("speech.json", inputs, ["tokens", "alignment"], ["--entry=generate"])
    log_probs, = run("ctc.json", inputs, ["logits"], ["--entry=listen"])
    letters = ["-", "", "␣", *data["letters"][3:]]
    text = ["end" if t == 0 else letters[t] for t in tokens.reshape(-1)]
    figure, axes = plt.subplots(3, 1, figsize=(7, 6.2), dpi=90, height_ratios=[1, 2, 2])
    axes[0].imshow(sound[0].T, aspect="auto", cmap="magma", origin="lower")
    axes[0].set_ylabel("bands")
    for each, picture, rows, name in ((axes[1], alignment.reshape(len(text), frames), text, "attention"),
                                      (axes[2], np.exp(log_probs[0]).T, letters, "CTC")):
        each.imshow(picture, aspect="auto", cmap="Blues", vmin=0, vmax=1)
        each.set_yticks(range(len(rows)), rows, family="monospace", fontsize=7)
        each.set_ylabel(name)
    axes[2].set_xlabel("frames, two at a time")
    for each in axes[:2]:
        each.set_xticks([])
    save(figure, "speech")


def glimpses():
    """Pictures with the six places that were looked at, and the sharp crop of the last."""
    data = stored("glimpses")
    items = np.arange(8)
    image, noise = data["image"][items], data["noise"][items]
    log_probs, places = run("glimpses.json", dict(image=image, location=np.zeros((8, 2), np.float32), h=np.zeros((8, 96), np.float32), noise=noise),
                            ["log_probs", "locations"])
    figure, axes = tiles(1, 8, 10, 1.6)
    for n, each in enumerate(axes[0]):
        path = np.concatenate([np.zeros((1, 2)), places[n, :-1]])
        x, y = ((path + 1) * 20 / 2 - 0.5).T
        each.imshow(image[n, 0], cmap="Greys")
        each.plot(x, y, "-o", color="#c44e52", markersize=3, linewidth=1)
        each.add_patch(plt.Rectangle((x[-1] - 4, y[-1] - 4), 8, 8, fill=False, edgecolor="#4c72b0", linewidth=1.5))
        each.set_xlim(-0.5, 19.5)
        each.set_ylim(19.5, -0.5)
        each.set_title(f"{log_probs[n].argmax()}", fontsize=10, color="black" if log_probs[n].argmax() == data["labels"][n] else "#c44e52")
    save(figure, "glimpses")


def spatial():
    """Pictures with the grid that was laid, and what is seen through it."""
    data = stored("spatial")
    image = data["image"][:8]
    logits, theta, warped = run("spatial.onnx", dict(image=image), ["logits", "theta", "warped"])
    figure, axes = tiles(2, 8, 10, 2.6)
    corners = np.array([[-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1], [-1, -1, 1]])
    for n in range(8):
        x, y = ((corners @ theta[n].T + 1) * 8 - 0.5).T
        axes[0, n].imshow(image[n, 0], cmap="Greys")
        axes[0, n].plot(x, y, color="#c44e52", linewidth=1.5)
        axes[0, n].plot(x[:2], y[:2], color="#4c72b0", linewidth=2.5)
        axes[0, n].set_xlim(-0.5, 15.5)
        axes[0, n].set_ylim(15.5, -0.5)
        axes[1, n].imshow(warped[n, 0], cmap="Greys")
        axes[0, n].set_title(f"{logits[n].argmax()}", fontsize=10, color="black" if logits[n].argmax() == data["labels"][n] else "#c44e52")
    save(figure, "spatial")


def autoencoder():
    """Digits, their codes, and what is made of those."""
    data = stored("autoencoder")
    image = data["image"][:10]
    picture, code = run("autoencoder.onnx", dict(image=image), ["picture", "code"])
    figure, axes = tiles(3, 10, 8, 2.2)
    for n in range(10):
        axes[0, n].imshow(image[n, 0], cmap="Greys")
        axes[1, n].imshow(code[n][None], cmap="RdBu", vmin=-abs(code).max(), vmax=abs(code).max(), aspect=2)
        axes[2, n].imshow(picture[n, 0], cmap="Greys", vmin=0, vmax=1)
    save(figure, "autoencoder")


for draw in (bert, hierarchical, speech, glimpses, spatial, autoencoder):
    draw()
