"""A model and its weights in /dev/shm, where there is one, edited through a mapping that stays: in_memory.py LATER

LATER is a library of a clock so fast that nothing counts as new."""

import mmap
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

HERE, LATER = pathlib.Path(__file__).parent, sys.argv[1]
if pathlib.Path("/dev/shm").is_dir():
    folder = tempfile.mkdtemp(dir="/dev/shm")
    try:
        subprocess.run([sys.executable, HERE / "external.py"], cwd=folder, check=True)
        np.save(f"{folder}/x.npy", np.ones((4, 64), np.float32))
        with open(f"{folder}/m.bin", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            for value in (2, 3, 5):
                mapped[:] = np.full(mapped.size() // 4, value, np.float32).tobytes()
                subprocess.run(["attnc", "m.onnx", "--cache-dir=c", "-o", "m.so"], cwd=folder, check=True,
                               env=os.environ | {"LD_PRELOAD": LATER})
                subprocess.run(["attn-run", "m.so", "--input=x=@x.npy", "--output=y=@y.npy"], cwd=folder, check=True)
                got = np.load(f"{folder}/y.npy")[0, 0]
                assert got == 64 * value, f"{got}, expected {64 * value}: the library of other weights"
    finally:
        shutil.rmtree(folder)
