#!/usr/bin/env python3
"""Runs the tests of a package made by `./dev package-gpu-tests` on the NVIDIA GPU of this machine.

    python3 run.py [--bench-seconds=60] [--out=results]

Needs the NVIDIA driver, Python and numpy; no compiler and no CUDA toolkit. Each
library is run on its inputs and compared with its references, then the larger
ones are timed. Writes results.json and results.md; exit status 1 if a test fails.
"""
import argparse
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent


def card():
    """What the machine says of its GPU, or None without a driver."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    query = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit"
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True)
        return dict(zip(query.split(","), done.stdout.strip().splitlines()[0].split(", ")))
    except (OSError, IndexError):
        return {"name": "unknown (no nvidia-smi)"}


def run(program, *arguments, limit=120):
    environment = dict(os.environ)
    environment["LD_LIBRARY_PATH"] = f"{HERE / 'lib'}:{environment.get('LD_LIBRARY_PATH', '')}"
    try:
        done = subprocess.run([str(HERE / "bin" / program), *map(str, arguments)], capture_output=True, text=True,
                              timeout=limit, env=environment, errors="replace")
    except subprocess.TimeoutExpired:
        return 124, f"longer than {limit} s"
    return done.returncode, done.stdout + done.stderr


def widened(array):
    """NumPy has no bf16, but reads its bytes."""
    return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if array.dtype.kind == "V" else array.astype(float)


def check(folder, description):
    """What is wrong, or "". """
    with tempfile.TemporaryDirectory() as temporary:
        command = [folder / "model.so"] + ([f"--entry={description['entry']}"] if "entry" in description else [])
        command += [f"--input={name}=@{folder / file}" for name, file in description["inputs"].items()]
        outputs = list(description["outputs"].items())
        command += [f"--output={name}=@{temporary}/{n}.npy" for n, (name, _) in enumerate(outputs)]
        status, text = run("attn-run", *command)
        if status:
            return text.strip()[-500:]
        for n, (name, file) in enumerate(outputs):
            got, want = np.load(f"{temporary}/{n}.npy"), np.load(folder / file)
            if got.shape != want.shape:
                return f"{name}: shape {got.shape}, expected {want.shape}"
            got, want = widened(got), widened(want)
            if not np.allclose(got, want, rtol=description["rtol"], atol=description["atol"], equal_nan=True):
                return f"{name}: off by {np.nanmax(np.abs(got - want)):.2e}"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench-seconds", type=float, default=60)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results"))
    args = parser.parse_args()
    device = card()
    if device is None:
        print("no NVIDIA driver here: libcuda.so.1 cannot be loaded")
        return 2
    results = {"device": device, "started": time.strftime("%Y-%m-%d %H:%M:%S"), "tests": {}, "times": {}}
    descriptions = {path.parent.name: json.loads(path.read_text()) for path in sorted(HERE.glob("cases/*/case.json"))}
    for name, description in descriptions.items():
        if description["inputs"]:
            results["tests"][name] = check(HERE / "cases" / name, description)
            print(f"{name}: {results['tests'][name] or 'ok'}", flush=True)
    end = time.monotonic() + args.bench_seconds
    for name, description in descriptions.items():
        if "bench" not in description or time.monotonic() > end:
            continue
        status, text = run("attn-bench", HERE / "cases" / name / "model.so", *description["bench"], "--min-time=1")
        results["times"][name] = {"status": status, "flops": description["flops"], "text": text.strip()}
        print(f"{name} ({description['flops'] / 1e9:.1f} GF): {text.strip()}", flush=True)
    failed = [name for name, text in results["tests"].items() if text]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "results.json").write_text(json.dumps(results, indent=1))
    lines = [f"# GPU tests on {device.get('name')}", "", f"{device}", "",
             f"{len(results['tests']) - len(failed)} of {len(results['tests'])} tests pass.", ""]
    lines += [f"- {name}: {results['tests'][name]}" for name in failed]
    lines += [f"\n## {name}, {entry['flops'] / 1e9:.1f} GF\n```\n{entry['text']}\n```" for name, entry in results["times"].items()]
    (args.out / "results.md").write_text("\n".join(lines) + "\n")
    print(f"{len(failed)} of {len(results['tests'])} tests failed; see {args.out}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
