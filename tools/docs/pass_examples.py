#!/usr/bin/env python3
"""Puts into the reference of the passes an example of each: the first case of its lit test, and what becomes of it.

    pass_examples.py PAGE...     behind each pass's description in pages that mlir-tblgen -gen-pass-doc wrote
    pass_examples.py --check     every pass has an example

attn-opt must be on the PATH (or --tools=FOLDER).
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PASS = re.compile(r'^def \w+Pass : Pass<"(attn-[a-z0-9-]+)"', re.M)
SEPARATOR = "// -----\n"


def tests():
    """{flag: test} of the passes."""
    found = {}
    for table in sorted((ROOT / "passes").rglob("*.td")):
        room = ROOT / "test" / table.parent.relative_to(ROOT)
        for flag in PASS.findall(table.read_text()):
            found[flag] = next(iter(sorted(room.rglob(flag.replace("attn-", "", 1) + ".mlir"))), None)
    return found


def command_of(test):
    """The first RUN line, without the comparison; in the way lit joins lines."""
    lines = re.sub(r"\\\n//\s*RUN:", "", test.read_text())
    first = re.search(r"RUN:\s*(.*?)\s*(?:\|\s*FileCheck|$)", lines, re.M)[1]
    return re.sub(r"\s+--?(?:verify-diagnostics|split-input-file)\b", "", first)


def functions(text):
    """{name: text} of the functions of a module, from the left margin or below a module."""
    found = {}
    for match in re.finditer(r"^( *)(?:func|gpu|llvm)\.func (?:private )?@([\w.]+)\(.*?^\1}[^\n]*\n", text, re.S | re.M):
        found[match[2]] = re.sub(rf"^{match[1]}", "", match[0], flags=re.M)
    return found


def example(test):
    """(command, before, after): the first case, and the functions of the same names in what the command prints."""
    case = test.read_text().split(SEPARATOR)[0]
    # What comments check, and where they end, is no part of the example.
    case = re.sub(r"^//\s*(?:RUN|[A-Z0-9_]+(?:-[A-Z0-9_]+)*):.*\n", "", case, flags=re.M)
    command = command_of(test)
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(case)
        file.flush()
        line = command.replace("%python", sys.executable).replace("%S", str(test.parent)).replace("%s", file.name)
        done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{test}: {line}\n{done.stderr}")
    before, after = functions(case), functions(done.stdout)
    shown = "\n".join(text for name, text in after.items() if name in before)
    aliases = [line for line in re.findall(r"^#\w+ = .*\n", done.stdout, re.M)
               if re.search(rf"{line.split()[0]}\b", shown)]
    return command, case.strip() + "\n", "".join(aliases) + shown


def insert(page, examples):
    page = re.sub(r"^#### Example\n\nFrom its test.*?(?=^###? |\Z)", "", page, flags=re.S | re.M)
    for flag, (command, before, after) in examples.items():
        block = (f"#### Example\n\nFrom its test; `{command}`:\n\n```mlir\n{before}```\n\nbecomes\n\n```mlir\n{after}```\n\n")
        page = re.sub(rf"(^### `-{flag}`$.*?)(?=^###? |\Z)", lambda m: m[1].rstrip() + "\n\n" + block, page, flags=re.S | re.M)
    return page


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--tools", default="")
    parser.add_argument("pages", nargs="*")
    args = parser.parse_args()
    os.environ["PATH"] = os.path.abspath(args.tools) + os.pathsep + os.environ["PATH"] if args.tools else os.environ["PATH"]
    problems = [f"{flag} has no test of its name" for flag, test in tests().items() if test is None]
    examples = {flag: example(test) for flag, test in tests().items() if test}
    for flag, (_, before, after) in examples.items():
        if not after.strip():
            problems.append(f"{flag}: no function of its first case is left")
    for name in args.pages:
        page = pathlib.Path(name)
        page.write_text(insert(page.read_text(), examples))
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
