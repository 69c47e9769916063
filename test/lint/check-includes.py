#!/usr/bin/env python3
"""Compiles every source file of ours without the precompiled header (syntax only).

The precompiled header hides a forgotten include; this finds it. Files are taken
from compile_commands.json in the build folder.
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

build = pathlib.Path(sys.argv[1])
only = sys.argv[2] if len(sys.argv) > 2 else ""


def check(entry):
    words = shlex.split(entry["command"])
    while words and not words[0].endswith(("clang", "clang++")):  # launchers
        words.pop(0)
    arguments, i = [], 0
    while i < len(words):
        pair = words[i:i + 4]
        if pair[:1] == ["-Xclang"] and len(pair) == 4 and pair[1] in ("-include-pch", "-include"):
            i += 4
        elif words[i] in ("-o", "-MF", "-MT"):
            i += 2
        elif words[i] in ("-MD", "-c", "-Winvalid-pch"):
            i += 1
        else:
            arguments.append(words[i])
            i += 1
    done = subprocess.run([*arguments, "-fsyntax-only", "-w"], cwd=entry["directory"], capture_output=True, text=True)
    return entry["file"], done.returncode, done.stderr


entries = [e for e in json.loads((build / "compile_commands.json").read_text())
           if "-include-pch" in e["command"] and only in e["file"]]
failed = 0
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for file, code, text in pool.map(check, entries):
        if code:
            failed += 1
            print(f"{file} does not compile without the precompiled header:\n{text[:1500]}")
print(f"{len(entries) - failed} of {len(entries)} files compile without the precompiled header")
sys.exit(bool(failed))
