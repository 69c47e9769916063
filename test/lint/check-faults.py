#!/usr/bin/env python3
"""Each fault of test/faults.md has a test that exists: cells C1 to C15, L1 to L15 and R1 to R18 at least, each once."""
import collections
import pathlib
import re
import sys

from sources import settle

WANTED = [f"{kind}{n}" for kind, last in (("C", 15), ("L", 15), ("R", 18)) for n in range(1, last + 1)]


def untested(root):
    """{cell: what is wrong}."""
    page, problems, seen = root / "test/faults.md", {}, collections.Counter()
    for cell, tests in re.findall(r"^\| ([CLR]\d+) \|[^|]*\|([^|]*)\|$", page.read_text(), re.M):
        seen[cell] += 1
        named = re.findall(r"`([^`:]+)(?:: ([^`]+))?`", tests)
        if not named:
            problems[cell] = "names no test"
        for file, part in named:
            if not (root / "test" / file).is_file():
                problems[cell] = f"names {file}, and there is no such file"
            elif part and not re.search(rf"(?<!\w){re.escape(part)}(?!\w)", (root / "test" / file).read_text()):
                problems[cell] = f"names '{part}', which {file} does not have"
    problems |= {cell: "has no row" for cell in WANTED if not seen[cell]}
    problems |= {cell: "has two rows" for cell, count in seen.items() if count > 1}
    return problems


if __name__ == "__main__":
    sys.exit(settle(untested(pathlib.Path(sys.argv[1]).resolve())))
