#!/usr/bin/env python3
"""No file of C++ has more than 500 lines, no function more than 80.

A function counts from its first line to its closing brace, with the lambdas in it.
"""
import pathlib
import sys

from sources import functions, settle, tracked

MAX_FILE, MAX_FUNCTION = 500, 80


def too_long(root):
    """{name: what is wrong} of each file and function."""
    problems = {}
    for name in tracked(root, r"\.(c|cpp|h)$"):
        text = (root / name).read_text()
        if (lines := text.count("\n")) > MAX_FILE:
            problems[name] = f"{lines} lines, more than {MAX_FILE}"
        for function, first, lines in functions(text):
            if lines > MAX_FUNCTION:
                problems[f"{name} {function}"] = f"{lines} lines from line {first} on, more than {MAX_FUNCTION}"
    return problems


if __name__ == "__main__":
    sys.exit(settle(too_long(pathlib.Path(sys.argv[1]))))
