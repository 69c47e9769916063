#!/usr/bin/env python3
"""Counts ops in the body of the first scf.while or scf.for of a function: count_in_loop.py FILE OP...

Prints "OP: N" a line. Nested loops and branches count once.
"""
import re
import sys


def body(lines):
    for start, line in enumerate(lines):
        if re.search(r"= scf\.(while|for) |^\s*scf\.(while|for) ", line):
            indent = len(line) - len(line.lstrip())
            end = next(n for n in range(start + 1, len(lines))
                       if lines[n].startswith(" " * indent + "}") and not lines[n].strip().startswith("} do"))
            return lines[start:end]
    sys.exit("no loop")


def main(path, ops):
    text = "\n".join(body(open(path).read().splitlines()))
    for op in ops:
        found = re.findall(r"(?<![\w.])" + re.escape(op) + r"(?![\w.])", text)
        print(f"{op}: {len(found)}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
