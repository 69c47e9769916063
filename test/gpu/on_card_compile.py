"""Compiles the graphs of a package on the machine with the card, with weights drawn there from a seed.

Graphs refer to weights_f32.bin or weights_bf16.bin beside them. Both hold the same values, rounded to bf16, so that all
variants and PyTorch compute with equal weights.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
SEED = 20
READY = "ready"  # a file: the weights are there


def environment(blocking):
    """With the libraries that the programs of the package need, and the device for the tests of instructions."""
    paths = [str(HERE / "lib"), os.environ.get("LD_LIBRARY_PATH")]
    return os.environ | {"LD_LIBRARY_PATH": ":".join(filter(None, paths)), "PTX_ON_CARD": "1"} | (
        {"CUDA_LAUNCH_BLOCKING": "1"} if blocking else {})


def run(program, *arguments, limit, blocking=False):
    """Exit status and all that it writes; 124 after `limit` seconds, 127 if it cannot be started."""
    try:
        done = subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True, timeout=limit,
                              env=environment(blocking), errors="replace")
    except subprocess.TimeoutExpired:
        return 124, f"longer than {limit:.0f} s"
    except OSError as error:
        return 127, f"{error}"
    return done.returncode, done.stdout + done.stderr


def rounded(values):
    """The upper halves of f32 after rounding to the nearest bf16."""
    return ((np.ascontiguousarray(values).view(np.uint32) + 0x8000) >> 16).astype(np.uint16)


def widened(halves):
    return (halves.astype(np.uint32) << 16).view(np.float32)


def draw_weights(case, folder):
    rng = np.random.default_rng(SEED)
    with open(folder / "weights_bf16.bin", "wb") as narrow, open(folder / "weights_f32.bin", "wb") as wide:
        for weight in case["weights"]:
            halves = rounded(weight["offset"] + np.float32(weight["scale"]) * rng.standard_normal(weight["shape"], np.float32))
            halves.tofile(narrow)
            widened(halves).tofile(wide)


def weights_of(case, folder):
    """f32 arrays, in their order."""
    flat, start = widened(np.fromfile(folder / "weights_bf16.bin", np.uint16)), 0
    for weight in case["weights"]:
        size = int(np.prod(weight["shape"]))
        yield flat[start:start + size].reshape(weight["shape"])
        start += size


class Compiler:
    """Libraries for this card, below `work`, some at a time, each case with a copy of its graphs: external data must lie
    beside them."""

    def __init__(self, attnc, work, arch, end):
        self.attnc, self.work, self.arch, self.end, self.drawing = attnc, work, arch, end, threading.Lock()
        self.pool = concurrent.futures.ThreadPoolExecutor(max(1, min(6, (os.cpu_count() or 1) // 2)))

    def place(self, case):
        folder = self.work / case["name"]
        with self.drawing:
            if not (folder / READY).exists():
                shutil.copytree(HERE / "card" / case["name"], folder)
                if "weights" in case:
                    draw_weights(case, folder)
                (folder / READY).touch()
        return folder

    def compile(self, case, graph, precision):
        folder = self.place(case)
        library = folder / f"{graph}_{precision}.so"
        source = f"step={folder / graph}.onnx" if "flags" in case else folder / f"{graph}.onnx"
        status, text = run(self.attnc, source, "--target=cuda", f"--gpu-arch={self.arch}", f"--precision={precision}",
                           *case.get("flags", []), "-o", library, limit=max(1, self.end - time.monotonic()))
        if status:
            library.with_suffix(".error").write_text(f"attnc: exit status {status}: {text.strip()[-300:]}")

    def ask(self, case, graph, precision):
        self.pool.submit(self.compile, case, graph, precision)


class Compiled:
    """What a Compiler of another process makes; waits for it."""

    def __init__(self, work, end):
        self.work, self.end = work, end

    def wait_for(self, *paths):
        while not any(path.exists() for path in paths):
            if time.monotonic() > self.end:
                raise RuntimeError(f"no time left to wait for {paths[0].name}")
            time.sleep(0.05)

    def folder(self, case):
        """With the weights."""
        self.wait_for(self.work / case["name"] / READY)
        return self.work / case["name"]

    def library(self, case, graph, precision):
        """Its path; RuntimeError with the compiler's message."""
        library = self.work / case["name"] / f"{graph}_{precision}.so"
        error = library.with_suffix(".error")
        self.wait_for(library, error)
        if not library.exists():
            raise RuntimeError(error.read_text())
        return library


def load_cases(small, only):
    """Of the package, in their order: those whose names match `only`."""
    order = HERE / "card/order.json"
    names = json.loads(order.read_text()) if order.exists() else []
    cases = [json.loads((HERE / "card" / name / "case.json").read_text()) for name in names]
    return [case for case in cases if case["small"] == small and re.search(only, case["name"])]
