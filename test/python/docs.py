"""Runs every Python block of pages of docs/, in order, beside small models of the names that they use."""
import os
import pathlib
import re
import shutil
import sys
import tempfile

import models
import onnx

sys.path.insert(0, str(models.ROOT / "tools/demo"))
from minilm import write_minilm  # noqa: E402
from text_encoder import write_folder  # noqa: E402


def run(page):
    """The page's blocks share their names."""
    text = page.read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    scope, begin = {"__name__": "docs"}, 0
    for block in blocks:
        begin = text.index(block, begin)
        exec(compile("\n" * text[:begin].count("\n") + block, str(page), "exec"), scope)
    print(f"{len(blocks)} blocks of {page.name} ran")


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name) / "all-MiniLM-L6-v2"
    folder.mkdir()
    write_folder(folder, max_position_embeddings=512)
    write_minilm(folder, f"{name}/model.onnx")
    onnx.save(models.unsupported(), f"{name}/unsupported.onnx")
    shutil.copy(models.ROOT / "test/e2e/models/gpt2_decode_ts17/model.onnx", f"{name}/decoder.onnx")
    for entry in ("encode", "step"):
        shutil.copy(models.DATES / f"{entry}.onnx", name)
    shutil.copytree(folder, f"{name}/text-encoder")
    (pathlib.Path(name) / "texts").mkdir()
    (pathlib.Path(name) / "texts/a.jsonl").write_text('{"text": "the rain"}\n{"text": "bread"}\n')
    os.chdir(name)
    for page in sys.argv[1:]:
        run(models.ROOT / "docs" / page)
    os.chdir("/")
