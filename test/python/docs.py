"""Runs every Python block of docs/python.md, in order, beside small models of the names that it uses."""
import os
import pathlib
import re
import shutil
import sys
import tempfile

import models

sys.path.insert(0, str(models.ROOT / "tools/demo"))
from minilm import write_minilm  # noqa: E402
from text_encoder import write_folder  # noqa: E402

page = models.ROOT / "docs/python.md"
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name) / "all-MiniLM-L6-v2"
    folder.mkdir()
    write_folder(folder, max_position_embeddings=512)
    write_minilm(folder, f"{name}/model.onnx")
    shutil.copy(models.ROOT / "test/e2e/models/gpt2_decode_ts17/model.onnx", f"{name}/decoder.onnx")
    for entry in ("encode", "step"):
        shutil.copy(models.DATES / f"{entry}.onnx", name)
    os.chdir(name)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    scope = {"__name__": "docs"}
    for block in blocks:
        line = page.read_text()[: page.read_text().index(block)].count("\n")
        exec(compile("\n" * line + block, str(page), "exec"), scope)
    os.chdir("/")
print(f"{len(blocks)} blocks ran")
