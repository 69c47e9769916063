#!/usr/bin/env python3
"""Runs a command on each hostile file and compares with what must happen.

    check_hostile.py FOLDER COMMAND...

COMMAND gets the file's name appended. Each file: the expected exit status, one
line of error that begins with "error: FILE: " and contains the expected text,
no word of MLIR's, at most 10 seconds.
"""
import json
import re
import subprocess
import sys

# What only an internal diagnostic or a crash would say.
RAW = re.compile(r"loc\(|'[a-z_]+\.[a-z_]+' op |see current operation|PLEASE submit|Stack dump|Assertion|\bLLVM ERROR")


def check(folder, name, status, text, command):
    path = f"{folder}/{name}.onnx"
    try:
        done = subprocess.run([*command, path], capture_output=True, timeout=10, text=True, errors="replace")
    except subprocess.TimeoutExpired:
        return "took more than 10 s"
    lines = done.stderr.splitlines()
    if done.returncode != status:
        return f"exit status {done.returncode}, expected {status}"
    if RAW.search(done.stderr):
        return "an internal message"
    if status == 0:
        return "messages though nothing is wrong" if lines else None
    errors = [line for line in lines if line.startswith("error: ")]
    if len(errors) != 1:
        return f"{len(errors)} errors, expected one"
    if not errors[0].startswith(f"error: {path}: "):
        return "the error does not name the file"
    if text not in errors[0]:
        return f"the error does not say: {text}"
    return None


def main(folder, command):
    with open(f"{folder}/expected.json") as f:
        cases = json.load(f)
    failed = 0
    for name, (status, text) in cases.items():
        problem = check(folder, name, status, text, command)
        if problem:
            failed += 1
            print(f"{name}: {problem}")
            done = subprocess.run([*command, f"{folder}/{name}.onnx"], capture_output=True, timeout=20, text=True,
                                  errors="replace")
            print("  " + done.stderr.strip()[:600].replace("\n", "\n  "))
    print(f"{len(cases) - failed} of {len(cases)} hostile files behave")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
