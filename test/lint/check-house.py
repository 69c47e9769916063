#!/usr/bin/env python3
"""Rules of the house that a script can see.

- every room has a README of at most 40 lines;
- every lit file has a RUN line;
- long flags in the tools' option tables are kebab-case;
- no file of ours names a folder of one machine;
- no function of the importer has more than 80 lines.
"""
import pathlib
import re
import subprocess
import sys

ROOMS = ["compiler", "dialects", "frontends", "passes/graph", "passes/kernels", "passes/lowering", "runtime", "test", "tools"]
root = pathlib.Path(sys.argv[1])
problems = []

for room in ROOMS:
    readme = root / room / "README.md"
    if not readme.exists():
        problems.append(f"{room}: no README.md")
    elif (lines := len(readme.read_text().splitlines())) > 40:
        problems.append(f"{readme.relative_to(root)}: {lines} lines, more than 40")

listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
files = [root / f for f in listed.stdout.splitlines()] if listed.returncode == 0 else [p for p in root.rglob("*") if p.is_file()]
machine_path = re.compile(r"(?<![\w.])/(?:wor" r"k|hom" r"e/\w+|src/att" r"nc)/")
for file in files:
    name = str(file.relative_to(root))
    if not file.exists() or "/models/" in name or name.startswith(("build/", ".")):
        continue
    if file.suffix in {".mlir", ".test"} and name.startswith("test/") and "/Inputs/" not in name and "RUN:" not in file.read_text(errors="replace"):
        problems.append(f"{name}: no RUN line")
    if file.suffix in {".h", ".c", ".cpp", ".td", ".py", ".md", ".txt", ".cmake", ".test", ".mlir", ".json"} or file.name == "dev":
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            if machine_path.search(line):
                problems.append(f"{name}:{number}: names a folder of one machine")
    if file.name.endswith("Options.td") or file.name == "Opts.td":
        for flag in re.findall(r'"([A-Za-z0-9_-]{3,})', " ".join(re.findall(r"def \w+\s*:\s*\w+<[^>]*", file.read_text()))):
            if re.search(r"[A-Z_]", flag) and not re.search(r"\s", flag) and re.fullmatch(r"-*[\w-]+=?", flag) and "_" in flag:
                problems.append(f"{name}: flag {flag} is not kebab-case")


def functions(text):
    """(name, line, lines) of each function at a file's outer level."""
    begin = None
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"[\w:<].*\($|[\w:<][^=;]*\w\(", line) and begin is None and not line.endswith(";"):
            begin = number, re.search(r"(\w+)\(", line).group(1)
        elif line.startswith("}") and begin:
            yield begin[1], begin[0], number - begin[0] + 1
            begin = None
        elif begin and re.match(r"\S", line) and not line.rstrip().endswith(("{", ",")) and "(" not in line:
            begin = None


for file in sorted((root / "frontends/onnx").rglob("*.cpp")):
    for function, line, lines in functions(file.read_text()):
        if lines > 80:
            problems.append(f"{file.relative_to(root)}:{line}: {function} has {lines} lines, more than 80")

for problem in problems:
    print(problem)
sys.exit(bool(problems))
