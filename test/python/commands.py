"""Runs the commands of pages, block by block and as they are written, beside small models of the names that they use:
commands.py PAGE...

A block is run if each of its commands starts a tool of ours or Python. Of other blocks nothing is run, nor of scripts.
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import models
import numpy as np
import onnx

sys.path[:0] = [str(models.ROOT / "tools/demo"), str(models.ROOT / "test/e2e/hub")]
import folders  # noqa: E402
from minilm import write_minilm  # noqa: E402
from text_encoder import write_folder  # noqa: E402

PROGRAMS = {"attnc", "attn-run", "attn-bench", "attn-reduce", "python3", "PYTHONPATH=build/python"}
BLOCK = re.compile(r"^```sh\n((?:(?!```).*\n)*)```|(?<=\n\n)((?: {4}.*\n)+)", re.M)
GRAPH = """{"format": 1, "dimensions": {"n": {}}, "inputs": {"x": {"shape": ["n", 8]}},
 "layers": [{"layer": "softmax", "name": "y", "input": "x"}], "outputs": ["y"]}"""


def commands_of(block):
    """As bash reads them; None where one is of a program that is not run here."""
    text = re.sub(r"<<END.*?^END$", "", block.replace("\\\n", " "), flags=re.M | re.S)
    if text.startswith("#!"):
        return None
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    first = [line.split()[0] for line in lines]
    return lines if lines and PROGRAMS.issuperset(first) else None


def blocks_of(text):
    for found in BLOCK.finditer(text):
        block = found[1] or "".join(line[4:] for line in found[2].splitlines(keepends=True))
        if commands := commands_of(block):
            yield text.count("\n", 0, found.start()) + 1, block, commands


def put_models(folder, page):
    encoder = folder / "all-MiniLM-L6-v2"
    encoder.mkdir()
    write_folder(encoder, max_position_embeddings=512)
    write_minilm(encoder, f"{folder}/model.onnx")
    shutil.copy(models.BERT, folder / "bert.onnx")
    shutil.copy(models.ROOT / "test/e2e/models/gpt2_decode_ts17/model.onnx", folder / "decoder.onnx")
    for name in ("encode", "step"):
        shutil.copy(models.DATES / f"{name}.onnx", folder)
    folders.write(folder / "pair", "past", True)
    if page.name == "reports.md":
        (folder / "FOLDER").symlink_to(encoder)
    else:
        shutil.copytree(folder / "pair", folder / "FOLDER")
    # The same under names of one's own.
    encode = onnx.load(folder / "pair/encoder_model.onnx")
    encode.graph.output[0].name = encode.graph.node[-1].output[0] = "memory"
    onnx.save(encode, folder / "enc.onnx")
    shutil.copy(folder / "pair/decoder_model.onnx", folder / "dec.onnx")
    shutil.copy(folder / "pair/decoder_with_past_model.onnx", folder / "dec_past.onnx")
    for suffix in ("json", "safetensors"):
        shutil.copy(models.ROOT / f"examples/gallery/glimpses.{suffix}", folder)
    (folder / "glimpses.json").rename(folder / "graph.json")
    (folder / "model.json").write_text(GRAPH)


def put_files(folder):
    for name in ("examples", "test", "tools", "frontends", "build", ".venv"):
        (folder / name).symlink_to(models.ROOT / name)
    ids = np.random.default_rng(1).integers(3, 20, (2, 16))
    np.save(folder / "ids.npy", ids)
    np.save(folder / "mask.npy", np.ones_like(ids))
    np.savez(folder / "in.npz", input_ids=ids, attention_mask=np.ones_like(ids), token_type_ids=np.zeros_like(ids))
    (folder / "tokens.txt").write_text("".join(f"token {n}\n" for n in range(16)))
    (folder / "still-fails.sh").write_text('#!/bin/sh\ngrep -q Softmax "$1"\n')
    (folder / "still-fails.sh").chmod(0o755)
    (folder / "my_program.py").write_text("import attnc\n")
    np.save(folder / "x.npy", np.zeros((2, 8), np.float32))


def run(page, folder):
    count = 0
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    for line, block, commands in blocks_of(page.read_text()):
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=folder, capture_output=True, text=True,
                              env={**os.environ, "PATH": path, "ATTNC_CACHE": f"{folder}/cache"}, timeout=600)  # fmt: skip
        if done.returncode:
            sys.exit(f"{page}:{line}: exit status {done.returncode} of\n{block}{done.stdout[-2000:]}{done.stderr[-2000:]}")
        count += len(commands)
    print(f"{count} commands of {page.name} ran")


for argument in sys.argv[1:]:
    with tempfile.TemporaryDirectory() as name:
        page, folder = models.ROOT / argument, pathlib.Path(name)
        put_models(folder, page)
        put_files(folder)
        run(page, folder)
