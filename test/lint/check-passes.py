#!/usr/bin/env python3
"""Of one name the others follow: attn-fold-scale, FoldScalePass, FoldScale.cpp, fold-scale.mlir.

- A pass declared in passes/ROOM/*.td is defined in passes/ROOM/**/FoldScale.cpp;
- its test, test/passes/ROOM/**/fold-scale.mlir (or .test), runs it;
- every other test there is named fold-scale-WHAT after a pass of the room, and runs that one.
"""
import pathlib
import re
import sys

from sources import settle, tracked

PASS = re.compile(r'^def (\w+)Pass : Pass<"attn-([a-z0-9-]+)"', re.M)


def run_lines(text):
    return " ".join(re.findall(r"RUN:(.*)", text))


def runs(text, flag):
    return bool(re.search(rf"attn-{flag}(?![\w-])", run_lines(text)))


def misnamed(root):
    """{name: what is wrong} of passes, their files and their tests."""
    problems, passes = {}, {}
    sources = tracked(root, r"^passes/.*\.cpp$")
    tests = tracked(root, r"^test/passes/.*\.(mlir|test)$")
    tests = [name for name in tests if "/Inputs/" not in name]
    for table in tracked(root, r"^passes/.*\.td$"):
        room = str(pathlib.Path(table).parent)
        for name, flag in PASS.findall((root / table).read_text()):
            passes.setdefault(room, []).append(flag)
            file = [s for s in sources if s.startswith(room + "/") and s.endswith(f"/{name}.cpp")]
            if not file or f"struct {name}Pass" not in (root / file[0]).read_text():
                problems[f"attn-{flag}"] = f"{room} has no {name}.cpp that defines {name}Pass"
            if not any(re.fullmatch(rf"test/{room}/(?:.+/)?{flag}\.(?:mlir|test)", test) for test in tests):
                problems[f"attn-{flag} "] = f"test/{room} has no {flag}.mlir"
    for test in tests:
        room = max((room for room in passes if test.startswith(f"test/{room}/")), key=len, default=None)
        stem = pathlib.Path(test).stem
        flag = max((f for f in passes.get(room, []) if stem == f or stem.startswith(f + "-")), key=len, default=None)
        if flag is None:
            problems[test] = "is not named after a pass of the folder that it mirrors"
        elif not runs((root / test).read_text(), flag):
            problems[test] = f"does not run attn-{flag}"
    return problems


if __name__ == "__main__":
    sys.exit(settle(misnamed(pathlib.Path(sys.argv[1]))))
