#!/usr/bin/env python3
"""Compiles every source file of ours without the precompiled header (syntax only).

    check-includes.py BUILD [NAME...]     only files whose path contains a NAME

The precompiled header hides a forgotten include; this finds it. Files are taken
from compile_commands.json in the build folder. A file that compiled is not
compiled again until its command or a file that it includes has changed: what
was seen is kept in BUILD/includes/, one record a source file.
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

if len(sys.argv) < 2 or sys.argv[1].startswith("-") or not pathlib.Path(sys.argv[1], "compile_commands.json").exists():
    sys.exit(__doc__ + "\nBUILD is a folder with a compile_commands.json.")
build = pathlib.Path(sys.argv[1]).resolve()
only = sys.argv[2:]
records = build / "includes"
records.mkdir(exist_ok=True)
root = pathlib.Path(__file__).resolve().parents[1]


def syntax_command(entry):
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
    return [*arguments, "-fsyntax-only", "-w"]


@functools.lru_cache(maxsize=None)
def fingerprint(path):
    """Of ours the content, as a checkout touches every file; of others size and time."""
    try:
        if pathlib.Path(path).is_relative_to(root):
            return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
        status = os.stat(path)
        return f"{status.st_size} {status.st_mtime_ns}"
    except OSError:
        return "absent"


def is_known(record, command):
    try:
        seen = json.loads(record.read_text())
    except (OSError, ValueError):
        return False
    return seen["command"] == command and all(fingerprint(path) == value for path, value in seen["files"].items())


def dependencies(path, directory):
    """The files that a makefile rule names behind its target."""
    text = path.read_text().replace("\\\n", " ").split(": ", 1)[1]
    return [os.path.normpath(os.path.join(directory, name.replace("\0", " ")))
            for name in text.replace("\\ ", "\0").split()]


def check(entry):
    command, file, directory = syntax_command(entry), entry["file"], entry["directory"]
    record = records / (hashlib.sha256(file.encode()).hexdigest()[:24] + ".json")
    if is_known(record, command):
        return file, 0, "", True
    rule = record.with_suffix(".d")
    done = subprocess.run([*command, "-MD", "-MF", str(rule)], cwd=directory, capture_output=True, text=True)
    if done.returncode == 0:
        files = {path: fingerprint(path) for path in dependencies(rule, directory)}
        record.write_text(json.dumps({"command": command, "files": files}))
    rule.unlink(missing_ok=True)
    return file, done.returncode, done.stderr, False


def parts(entry):
    """A unity file stands for those that it includes, each of which is compiled by itself."""
    path = pathlib.Path(entry["file"])
    if path.parent.name != "Unity":
        return [entry]
    files = re.findall(r'^#include "(.*)"', path.read_text(), re.M)
    return [{**entry, "file": file, "command": entry["command"].replace(entry["file"], file)} for file in files]


entries = [e for each in json.loads((build / "compile_commands.json").read_text()) for e in parts(each)
           if "-include-pch" in e["command"] and (not only or any(name in e["file"] for name in only))]
failed = known = 0
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    for file, code, text, seen in pool.map(check, entries):
        known += seen
        if code:
            failed += 1
            print(f"{file} does not compile without the precompiled header:\n{text[:1500]}")
print(f"{len(entries) - failed} of {len(entries)} files compile without the precompiled header, {known} unchanged")
sys.exit(bool(failed))
