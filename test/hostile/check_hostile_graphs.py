#!/usr/bin/env python3
"""Runs a command on each hostile graph: the expected status, one error with the place and the text, within 10 s.

    check_hostile_graphs.py FOLDER COMMAND...
"""
import json
import re
import subprocess
import sys

from check_hostile import RAW

folder, command = sys.argv[1], sys.argv[2:]
with open(f"{folder}/expected.json") as f:
    cases = json.load(f)
failed = 0
for name, (status, text, at) in cases.items():
    path = f"{folder}/{name}.json"
    done = subprocess.run([*command, path], capture_output=True, timeout=10, text=True, errors="replace")
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    problem = (f"exit status {done.returncode}, expected {status}" if done.returncode != status else
               "an internal message" if RAW.search(done.stderr) else
               None if status == 0 else
               f"{len(errors)} errors" if len(errors) != 1 else
               "no place" if not re.match(re.escape(f"error: {path}") + (re.escape(at) if at else r"(:\d+:\d+)") + ": ", errors[0]) else
               f"does not say: {text}" if text not in errors[0] else None)
    if problem:
        failed += 1
        print(f"{name}: {problem}\n  {done.stderr.strip()[:400]}")
print(f"{len(cases) - failed} of {len(cases)} hostile graphs behave")
sys.exit(bool(failed))
