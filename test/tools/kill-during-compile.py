#!/usr/bin/env python3
"""Kills attnc, or its worker, at random instants of a compile, and looks at what is left.

    kill-during-compile.py MODEL FOLDER [--kills=200] [--seed=0]

Every second time there is an older output. Afterwards the output must be the
older one byte for byte, or absent where there was none, or a new one that the
runtime's digest accepts. attnc and attn-run are taken from PATH.
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model")
parser.add_argument("folder")
parser.add_argument("--kills", type=int, default=200)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
output = os.path.join(args.folder, "model.so")
command = ["attnc", args.model, "-o", output]
chance = random.Random(args.seed)


def compile_time():
    began = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - began


whole = min(compile_time() for _ in range(3))
old = b"the older output"
counts = {"none": 0, "old": 0, "new": 0}
for n in range(args.kills):
    for name in os.listdir(args.folder):
        path = os.path.join(args.folder, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    if n % 2:
        with open(output, "wb") as f:
            f.write(old)
    driver = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    time.sleep(chance.uniform(0, 1.2 * whole))
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
        counts["none"] += 1
        assert n % 2 == 0, "the older output is gone"
        continue
    if n % 2 and open(output, "rb").read() == old:
        counts["old"] += 1
        continue
    checked = subprocess.run(["attn-run", "--info", output], capture_output=True, text=True)
    if checked.returncode:
        sys.exit(f"kill {n}: the output is partial: {checked.stderr}")
    counts["new"] += 1
print(f"{args.kills} kills within {1.2 * whole:.2f} s: " + ", ".join(f"{v} {k}" for k, v in counts.items()))
sys.exit(not (counts["none"] and counts["old"] and counts["new"]))
