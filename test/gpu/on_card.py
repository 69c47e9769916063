#!/usr/bin/env python3
"""Runs the tests of a package made by `./dev package-gpu-tests` on the NVIDIA GPU of this machine.

    python3 run.py [--quick | --bench | --ncu] [--out=results] [--seconds=N] [--filter=PATTERN] [--attnc=PATH]
    python3 run.py --device=cpu --small        a rehearsal: the stand-in for libcuda, PyTorch on the CPU, tiny sizes

Needs the NVIDIA driver, Python and numpy; no compiler and no CUDA toolkit.
--quick (300 s): the tests of bin/ptx-*, then each compiled case on its inputs against its references, riskiest first, each
in a process of its own. --bench (540 s), with PyTorch: attentions and whole models are compiled here, compared with it in
float64 and timed beside it, in turns. --ncu (300 s): profiles. Without any: the first two, in 520 s.
Writes results.json and results.md as results come; what no time was left for is said there. Exit status 1 if a test fails,
2 without a driver.
"""
import argparse
import concurrent.futures
import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import on_card_beside
import on_card_check
import on_card_ncu
from on_card_compile import HERE, run
from on_card_report import Results

QUERY = ("name", "compute_cap", "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit", "temperature.gpu")
TESTS_AT_ONCE = max(1, min(8, (os.cpu_count() or 1) // 2))
# Of the time, until which a part may begin something; what a mode lacks is not done.
ENDS = {"quick": {"tests": 1.0}, "bench": {"attention": 0.5, "models": 0.93, "kernels": 1.0}, "ncu": {"profiles": 1.0},
        "all": {"tests": 0.3, "attention": 0.65, "models": 0.94, "kernels": 1.0}}
SECONDS = {"quick": 300, "bench": 540, "ncu": 300, "all": 520}


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


def run_programs(results, only, end):
    """Tests that bring their own judgement, each in its process: of single instructions of sm_90a."""
    if results["device"].get("compute_cap", "9.0") != "9.0":
        return results.left_out("ptx-*", "for compute capability 9.0")
    for name, command in on_card_check.programs():
        if re.search(only, name) and time.monotonic() < end:
            status, text = run(*command, limit=on_card_check.LIMIT)
            results.test(name, f"exit status {status}: {on_card_check.shortened(text)}" if status else "")


def run_tests(results, descriptions, end):
    failures = on_card_check.Failures(end)

    def one(test):
        _, case, own = test
        if time.monotonic() > end:
            return None
        folder = HERE / "cases" / case
        _, text = on_card_check.check(folder, descriptions[case], own=own)
        return text and failures.look_into(folder, descriptions[case], own, text)

    with concurrent.futures.ThreadPoolExecutor(TESTS_AT_ONCE) as pool:
        tests = on_card_check.tests_of(descriptions)
        for (name, _, _), text in zip(tests, pool.map(one, tests)):
            results.left_out(name, "left out for time") if text is None else results.test(name, text)


def time_kernels(results, descriptions, end):
    """By attn-bench, which counts copies of inputs and outputs, too."""
    for name, description in descriptions.items():
        if time.monotonic() > end:
            results.left_out(name, "left out for time")
            continue
        library = HERE / "cases" / name / description.get("library", "model.so")
        status, text = run(HERE / "bin/attn-bench", library, *description["bench"], "--min-time=0.5", limit=30)
        results["times"][name] = {"status": status, "flops": description["flops"], "text": text.strip()}
        print(f"{name} ({description['flops'] / 1e9:.1f} GF): {text.strip()}", flush=True)
        results.save()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_mutually_exclusive_group()
    for mode, what in (("quick", "tests alone"), ("bench", "comparison with PyTorch alone"), ("ncu", "profiles alone")):
        modes.add_argument(f"--{mode}", dest="mode", action="store_const", const=mode, default="all", help=what)
    parser.add_argument("--seconds", type=float, help="in all")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results"))
    parser.add_argument("--filter", default="", help="a regular expression: only what has it in its name")
    parser.add_argument("--attnc", type=pathlib.Path, default=HERE / "bin/attnc")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="of PyTorch")
    parser.add_argument("--small", action="store_true", help="tiny sizes of what is timed or profiled")
    args = parser.parse_args()
    args.seconds = SECONDS[args.mode] if args.seconds is None else args.seconds
    return args


def main():
    args, start = arguments(), time.monotonic()
    before = card()
    if before is None:
        print("no NVIDIA driver here: libcuda.so.1 cannot be loaded")
        return 2
    ends = {part: start + share * args.seconds for part, share in ENDS[args.mode].items()}
    results = Results(args.out, before)
    descriptions = {path.parent.name: json.loads(path.read_text()) for path in sorted(HERE.glob("cases/*/case.json"))
                    if re.search(args.filter, path.parent.name)}
    timed = {name: each for name, each in descriptions.items() if "bench" in each and each["small"] == args.small}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        compiler = on_card_beside.begin_compiling(args, pathlib.Path(work), before, ends["models"]) if "models" in ends else None
        if "tests" in ends:
            run_programs(results, args.filter, ends["tests"])
            run_tests(results, descriptions, ends["tests"])
        for group in on_card_beside.GROUPS:
            if group in ends:
                on_card_beside.run_group(group, results, args, pathlib.Path(work), ends[group])
        if compiler:
            compiler.pool.shutdown(cancel_futures=True)
    if "kernels" in ends:
        time_kernels(results, timed, ends["kernels"])
    if "profiles" in ends:
        on_card_ncu.profile(results, timed, ends["profiles"])
    results["clocks_after"] = card()
    results.save()
    print(f"{len(results.failed())} of {len(results['tests'])} tests failed; see {args.out}")
    return bool(results.failed())


if __name__ == "__main__":
    sys.exit(main())
