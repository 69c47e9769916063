#!/usr/bin/env python3
"""Rehearses what is done on a card where there is none: unpacks the package of each call elsewhere and makes it at small
sizes, on the stand-in for libcuda, with no compiler on the path.

    rehearse.py [--packages=build] [--call=quick ...] [--filter=PATTERN]     of gpu-tests-CALL.tar.xz

Wrong is: a package larger than 40 MiB, a call that takes longer than it may or does nothing, a test that fails. What stands
in for ncu runs the program that it is given.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LARGEST = 40  # MiB
SECONDS = {"quick": 300, "bench": 540, "ncu": 300}
GRACE = 30  # seconds behind the end, in which a call finishes what it has begun
NCU = """#!/bin/sh
while [ "${1##*/}" != attn-run ]; do shift; done
exec "$@"
"""


def make_call(call, run, work, only):
    """What is wrong, or ""."""
    tools, results = work / "tools", work / call
    command = [sys.executable, run, f"--{call}", "--small", "--device=cpu", f"--filter={only}", f"--out={results}"]
    environment = {"PATH": str(tools), "HOME": str(work), "LD_LIBRARY_PATH": str(ROOT / "build/test/gpu/lib"), "ATTN_FAKE_CUDA": "cc=90"}
    begun = time.monotonic()
    try:
        done = subprocess.run(command, env=environment, cwd=work, timeout=SECONDS[call] + GRACE)
    except subprocess.TimeoutExpired:
        return f"longer than {SECONDS[call]} s"
    found = json.loads((results / "results.json").read_text())
    slow = [name for name, each in found["times"].items() if each["status"]]
    print(f"--{call}: {time.monotonic() - begun:.0f} s, {len(found['tests'])} tests, {len(found['times'])} timed, "
          f"{len(found['left_out'])} left out", flush=True)
    if done.returncode or slow:
        return f"exit status {done.returncode}" + "".join(f", attn-bench fails on {name}" for name in slow)
    return "" if found["tests"] or found["times"] else "nothing was done"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--call", choices=SECONDS, action="append")
    parser.add_argument("--filter", default="", help="a regular expression: only what has it in its name")
    args = parser.parse_args()
    problems = []
    for call in args.call or SECONDS:
        package = args.packages / f"gpu-tests-{call}.tar.xz"
        if (size := package.stat().st_size / 2**20) > LARGEST:
            problems.append(f"{package}: {size:.1f} MiB, at most {LARGEST} are wanted")
        with tempfile.TemporaryDirectory() as temporary:
            work = pathlib.Path(temporary)
            with tarfile.open(package) as tar:
                tar.extractall(work)
            (work / "tools").mkdir()
            (work / "tools/ncu").write_text(NCU)
            os.chmod(work / "tools/ncu", 0o755)
            if wrong := make_call(call, next(work.glob("*/run.py")), work, args.filter):
                problems.append(f"--{call}: {wrong}")
    print(*problems, f"{len(problems)} problems", sep="\n")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
