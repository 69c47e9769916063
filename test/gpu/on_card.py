#!/usr/bin/env python3
"""Runs the tests of a package made by `./dev package-gpu-tests` on the NVIDIA GPU of this machine.

    python3 run.py [--out=results] [--seconds=520] [--filter=TEXT] [--attnc=PATH]
    python3 run.py --device=cpu --small        a rehearsal: the stand-in for libcuda, PyTorch on the CPU, tiny sizes

Needs the NVIDIA driver, Python and numpy; no compiler and no CUDA toolkit. First come the programs bin/ptx-*, then each
compiled case is run on its inputs and compared with its references. With PyTorch, attentions and whole models are
compiled here, compared with it in float64 and timed beside it, in turns. Writes results.json and results.md; what no time
was left for is said there. Exit status 1 if a test fails, 2 without a driver.
"""
import argparse
import concurrent.futures
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

import on_card_beside
import on_card_report
from on_card_compile import HERE, run
from on_card_inputs import input_files

QUERY = ("name", "compute_cap", "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit", "temperature.gpu")
TESTS_AT_ONCE = max(1, min(8, (os.cpu_count() or 1) // 2))
# Of the time, until which a part may begin something.
ENDS = {"tests": 0.3, "attention": 0.65, "models": 0.94, "kernels": 1.0}


def card():
    """What the machine says of its GPU, or None without a driver."""
    try:
        driver, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    except OSError:
        return None
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader"], capture_output=True, text=True)
        facts = dict(zip(QUERY, done.stdout.strip().splitlines()[0].split(", ")))
    except (OSError, IndexError):
        facts = {"name": "unknown (no nvidia-smi)"}
    if not driver.cuDriverGetVersion(ctypes.byref(version)):
        facts["driver_cuda"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
    return facts


def widened(array):
    """NumPy has no bf16, but reads its bytes."""
    return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if array.dtype.kind == "V" else array.astype(float)


def check(name, description):
    """What is wrong, or "". """
    folder = HERE / "cases" / name
    with tempfile.TemporaryDirectory() as temporary:
        command = [folder / "model.so"] + ([f"--entry={description['entry']}"] if "entry" in description else [])
        try:
            command += [f"--input={name}=@{path}" for name, path in input_files(folder, description["inputs"], temporary)]
        except ValueError as error:
            return str(error)
        outputs = list(description["outputs"].items())
        command += [f"--output={name}=@{temporary}/{n}.npy" for n, (name, _) in enumerate(outputs)]
        status, text = run(HERE / "bin/attn-run", *command)
        if status:
            return text.strip()[-500:] or f"exit status {status}"
        for n, (name, file) in enumerate(outputs):
            got, want = np.load(f"{temporary}/{n}.npy"), np.load(folder / file)
            if got.shape != want.shape:
                return f"{name}: shape {got.shape}, expected {want.shape}"
            got, want = widened(got), widened(want)
            if not np.allclose(got, want, rtol=description["rtol"], atol=description["atol"], equal_nan=True):
                return f"{name}: off by {np.nanmax(np.abs(got - want)):.2e}"
    return ""


class Results(dict):
    """What is written; tests are kept as name to what is wrong, "" where nothing is."""

    def test(self, name, text):
        self["tests"][name] = text
        print(f"{name}: {text or 'ok'}", flush=True)

    def left_out(self, name, text):
        self["left_out"][name] = text
        print(f"{name}: {text}", flush=True)


def run_programs(results, only):
    """Tests that bring their own judgement: of single instructions of sm_90a."""
    if results["device"].get("compute_cap", "9.0") != "9.0":
        return results.left_out("ptx-*", "for compute capability 9.0")
    for program in sorted((HERE / "bin").glob("ptx-*")):
        if only in program.name:
            status, text = run(program, "--gtest_brief=1")
            results.test(program.name, f"exit status {status}: {text.strip()[-600:]}" if status else "")


def run_tests(results, descriptions, end):
    def one(name):
        return None if time.monotonic() > end else check(name, descriptions[name])

    with concurrent.futures.ThreadPoolExecutor(TESTS_AT_ONCE) as pool:
        names = [name for name, description in descriptions.items() if description["inputs"]]
        for name, text in zip(names, pool.map(one, names)):
            results.left_out(name, "left out for time") if text is None else results.test(name, text)


def time_kernels(results, descriptions, end):
    """By attn-bench, which counts copies of inputs and outputs, too."""
    for name, description in descriptions.items():
        if "bench" not in description:
            continue
        if time.monotonic() > end:
            results.left_out(name, "left out for time")
            continue
        status, text = run(HERE / "bin/attn-bench", HERE / "cases" / name / "model.so", *description["bench"], "--min-time=0.5")
        results["times"][name] = {"status": status, "flops": description["flops"], "text": text.strip()}
        print(f"{name} ({description['flops'] / 1e9:.1f} GF): {text.strip()}", flush=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=520, help="in all")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results"))
    parser.add_argument("--filter", default="", help="only what has this in its name")
    parser.add_argument("--attnc", type=pathlib.Path, default=HERE / "bin/attnc")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="of PyTorch")
    parser.add_argument("--small", action="store_true", help="tiny sizes beside PyTorch")
    return parser.parse_args()


def main():
    args, start = arguments(), time.monotonic()
    before = card()
    if before is None:
        print("no NVIDIA driver here: libcuda.so.1 cannot be loaded")
        return 2
    end = lambda part: start + ENDS[part] * args.seconds
    results = Results(device=before, started=time.strftime("%Y-%m-%d %H:%M:%S"), tests={}, times={}, left_out={}, beside={})
    descriptions = {path.parent.name: json.loads(path.read_text()) for path in sorted(HERE.glob("cases/*/case.json"))
                    if args.filter in path.parent.name}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        compiler = on_card_beside.begin_compiling(args, pathlib.Path(work), before, end("models"))
        run_programs(results, args.filter)
        run_tests(results, descriptions, end("tests"))
        for group in on_card_beside.GROUPS:
            on_card_beside.run_group(group, results, args, pathlib.Path(work), end(group))
        compiler.pool.shutdown(cancel_futures=True)
    time_kernels(results, descriptions, end("kernels"))
    results["clocks_after"] = card()
    results["seconds"] = round(time.monotonic() - start, 1)
    failed = [name for name, text in results["tests"].items() if text]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "results.json").write_text(json.dumps(results, indent=1))
    (args.out / "results.md").write_text(on_card_report.markdown(results))
    print(f"{len(failed)} of {len(results['tests'])} tests failed; see {args.out}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
