#!/usr/bin/env python3
"""Kills attnc, or its worker, at random instants of a compile, and looks at what is left.

    kill-during-compile.py MODEL FOLDER [--kills=200] [--seed=0]

Every second time there is an older output. Afterwards the output must be the
older one byte for byte, or absent where there was none, or a new one that the
runtime's digest accepts; and what killed compiles leave beside it must not pile
up. Two victims at a time, each in a folder of its own. attnc and attn-run are
taken from PATH.
"""
import argparse
import collections
import concurrent.futures
import os
import random
import signal
import subprocess
import sys
import time

LANES = 2
OLD = b"the older output"

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model")
parser.add_argument("folder")
parser.add_argument("--kills", type=int, default=200)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()


def compile_time(output):
    began = time.monotonic()
    subprocess.run(["attnc", args.model, "-o", output], check=True)
    return time.monotonic() - began


def leftovers(folder):
    return [name for name in os.listdir(folder) if name.startswith(".")]


def kill_once(n, output, instant):
    """What the output is after one kill."""
    if os.path.exists(output):
        os.remove(output)
    if n % 2:
        with open(output, "wb") as f:
            f.write(OLD)
    driver = subprocess.Popen(["attnc", args.model, "-o", output, "--reproducer=/dev/null"], stderr=subprocess.DEVNULL)
    time.sleep(instant)
    victim = driver.pid
    if n % 4 >= 2:
        try:
            victim = int(open(f"/proc/{driver.pid}/task/{driver.pid}/children").read())
        except (OSError, ValueError):
            pass  # no worker yet, or no more
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        pass
    driver.wait()
    if not os.path.exists(output):
        assert n % 2 == 0, "the older output is gone"
        return "none"
    if n % 2 and open(output, "rb").read() == OLD:
        return "old"
    checked = subprocess.run(["attn-run", "--info", output], capture_output=True, text=True)
    assert checked.returncode == 0, f"kill {n}: the output is partial: {checked.stderr}"
    return "new"


def lane(number, whole):
    folder = os.path.join(args.folder, str(number))
    output = os.path.join(folder, "model.so")
    chance = random.Random(args.seed + number)
    counts = collections.Counter()
    for n in range(args.kills // LANES):
        counts[kill_once(n, output, chance.uniform(0, 1.2 * whole))] += 1
        # One of the compile just killed, and one whose worker was still dying when the next began.
        assert len(leftovers(folder)) <= 2, f"killed compiles pile up: {leftovers(folder)}"
    compile_time(output)
    deadline = time.monotonic() + 10
    while leftovers(folder) and time.monotonic() < deadline:
        compile_time(output)
    assert not leftovers(folder), f"left behind: {leftovers(folder)}"
    return counts


folders = [os.path.join(args.folder, str(number)) for number in range(LANES)]
for folder in folders:
    os.makedirs(folder)
with concurrent.futures.ThreadPoolExecutor(LANES) as pool:
    outputs = [os.path.join(folder, "model.so") for folder in folders]
    whole = min(max(pool.map(compile_time, outputs)) for _ in range(3))
    results = list(pool.map(lane, range(LANES), [whole] * LANES))
counts = sum(results, collections.Counter())
print(f"{args.kills} kills within {1.2 * whole:.2f} s: " + ", ".join(f"{v} {k}" for k, v in counts.items()))
sys.exit(not (counts["none"] and counts["old"] and counts["new"]))
