#!/usr/bin/env python3
"""Rules of the house that a script can see.

- every room has a README; none has more than 400 words (but the one at the top), or a line of more than 120 columns;
- every lit file has a RUN line;
- long flags in the tools' option tables are kebab-case;
- no file of ours names a folder of one machine.
"""
import pathlib
import re
import sys

from sources import settle, tracked

ROOMS = ["compiler", "dialects", "frontends", "passes/graph", "passes/kernels", "passes/lowering", "runtime", "test", "tools"]
root = pathlib.Path(sys.argv[1])
problems = {}
for room in ROOMS:
    if not (root / room / "README.md").exists():
        problems[room] = "no README.md"
for name in tracked(root, r"(?:^|/)README\.md$"):
    lines = (root / name).read_text().splitlines()
    if (words := sum(len(line.split()) for line in lines)) > 400 and name != "README.md":
        problems[name] = f"{words} words, more than 400"
    if (wide := max(map(len, lines))) > 120:
        problems[name] = f"a line of {wide} columns, more than 120"

machine_path = re.compile(r"(?<![\w.])/(?:wor" r"k|hom" r"e/\w+|src/att" r"nc)/")
for name in tracked(root):
    file = root / name
    if "/models/" in name or name.startswith("."):
        continue
    if file.suffix in {".mlir", ".test"} and name.startswith("test/") and "/Inputs/" not in name and "RUN:" not in file.read_text(errors="replace"):
        problems[name] = "no RUN line"
    if file.suffix in {".h", ".c", ".cpp", ".td", ".py", ".md", ".txt", ".cmake", ".test", ".mlir", ".json"} or file.name == "dev":
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            if machine_path.search(line):
                problems[f"{name}:{number}"] = "names a folder of one machine"
    if file.name.endswith("Options.td") or file.name == "Opts.td":
        for flag in re.findall(r'"([A-Za-z0-9_-]{3,})', " ".join(re.findall(r"def \w+\s*:\s*\w+<[^>]*", file.read_text()))):
            if re.search(r"[A-Z_]", flag) and not re.search(r"\s", flag) and re.fullmatch(r"-*[\w-]+=?", flag) and "_" in flag:
                problems[name] = f"flag {flag} is not kebab-case"

sys.exit(settle(problems))
