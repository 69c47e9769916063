#!/usr/bin/env python3
"""Keeps what pages quote equal to its source.

    quotes.py [--check] [PAGE...]        without pages: all of the repository

A page has, in front of a block of code,

    <!-- quote FILE "text of the first line" -->
    <!-- quote FILE "text of the first line" "text of the last line" -->

FILE is a path or, where only one file ends so, the end of one. Without a last line the quote ends before an empty one; "}" is the next brace that
stands as far left as the first line.
In front of a table, <!-- table of SCRIPT --> stands for what SCRIPT --table prints. With --check nothing is written;
exit status 1 when a page is not up to date.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
QUOTE = re.compile(r"""^(?P<indent>[ ]*)(?P<mark><!--\ quote\ (?P<file>\S+)\ "(?P<first>(?:\\.|[^"\\])+)"
                       (?:\ "(?P<last>(?:\\.|[^"\\])+)")?\ -->\n)
                       (?P<block>[ ]*```.*?^[ ]*```\n)?""", re.S | re.M | re.X)
TABLE = re.compile(r"^(?P<mark><!-- table of (?P<script>\S+) -->\n)(?P<body>(?:\|.*\n)*)", re.M)
LANGUAGES = {".h": "cpp", ".cpp": "cpp", ".td": "tablegen", ".py": "python", ".mlir": "mlir", ".c": "c"}


class Stale(Exception):
    pass


def find_file(name, files):
    found = [file for file in files if f"/{file}".endswith(f"/{name}")]
    if len(found) != 1:
        raise Stale(f"{name} is the end of {len(found)} files")
    return found[0]


def quote(text, first, last):
    """The lines of `text` from the one that has `first` to the one that has `last`, or to an empty one."""
    lines = text.splitlines()
    starts = [n for n, line in enumerate(lines) if first in line]
    if len(starts) != 1:
        raise Stale(f"'{first}' stands in {len(starts)} lines")
    indent = re.match(" *", lines[starts[0]])[0]
    behind = list(enumerate(lines + [""]))[starts[0]:]
    if last == "}":
        ends = [n for n, line in behind if line.startswith(indent + "}")]
    else:
        ends = [n for n, line in behind if (last in line if last else not line.strip())]
    if not ends:
        raise Stale(f"no '{last}' follows '{first}'")
    return textwrap.dedent("\n".join(lines[starts[0]:ends[0] + bool(last)])) + "\n"


def update(page, files, read, table):
    """`page` with its quotes as they are in the sources."""
    def quoted(match):
        file = find_file(match["file"], files)
        first, last = (text and re.sub(r"\\(.)", r"\1", text) for text in (match["first"], match["last"]))
        body = quote(read(file), first, last)
        block = f"```{LANGUAGES.get(pathlib.PurePath(file).suffix, '')}\n{body}```\n"
        return match["indent"] + match["mark"] + textwrap.indent(block, match["indent"])

    page = TABLE.sub(lambda m: m["mark"] + table(find_file(m["script"], files)), page)
    return QUOTE.sub(quoted, page)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("pages", nargs="*")
    args = parser.parse_args()
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True)
    files = [f for f in listed.stdout.splitlines() if (ROOT / f).is_file()] or \
        [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if p.is_file()]
    read = lambda file: (ROOT / file).read_text()
    table = lambda script: subprocess.run([sys.executable, ROOT / script, "--table"], capture_output=True, text=True,
                                          check=True).stdout
    is_wrong = False
    for name in args.pages or [f for f in files if f.endswith(".md")]:
        page = pathlib.Path(name) if args.pages else ROOT / name
        text = page.read_text()
        try:
            new = update(text, files, read, table)
        except Stale as stale:
            print(f"{name}: {stale}")
            is_wrong = True
            continue
        if new != text and args.check:
            print(f"{name}: differs from what it quotes; python3 tools/docs/quotes.py writes it")
            is_wrong = True
        elif new != text:
            page.write_text(new)
    sys.exit(is_wrong)


if __name__ == "__main__":
    main()
