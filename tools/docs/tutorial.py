#!/usr/bin/env python3
"""Keeps the listings of docs/tutorial-attention.md equal to what a compile makes.

    tutorial.py --check             compiles the model of the tutorial and compares; exit status 1 where a listing differs
    tutorial.py --update            writes the listings
    tutorial.py --model=FILE.onnx   writes the model, to compile it yourself

In front of a listing stands <!-- listing STAGE "text of the first line" "text of the last line" -->. STAGE is a pass (the
IR after it, of attnc --dump-ir), model, import (attnc --emit=attn) or report (--fusion-report). Of several lines with a
text the first one counts, and of "a >> b" the first with b from the one with a on. Without a last one the listing is a
line, "+2" ends it two lines further down, and "}" as in quotes.py. attnc must be on the PATH (or --tools=FOLDER).
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE, MODEL = ROOT / "docs/tutorial-attention.md", ROOT / "docs/tutorial-attention.onnxtxt"
LISTING = re.compile(r'^(<!-- listing (\S+) "([^"]+)"(?: "([^"]+)")? -->\n)(```.*?^```\n)?', re.S | re.M)
# A processor that says nothing of this machine, and whose registers keep listings short.
OPTIONS = ["--mcpu=x86-64-v3"]


def compiled():
    """{stage: text}."""
    stages = {"model": MODEL.read_text()}
    with tempfile.TemporaryDirectory() as folder:
        model, dump = f"{folder}/attention.onnx", pathlib.Path(folder, "dump")
        write_model(model)
        run = lambda *options: subprocess.run(["attnc", model, *OPTIONS, *options], check=True, capture_output=True,
                                              text=True).stdout
        stages["import"] = run("--emit=attn", "-o", "-")
        stages["report"] = run("-o", f"{folder}/attention.so", f"--dump-ir={dump}", "--fusion-report=-")
        for file in sorted(dump.iterdir()):
            stages.setdefault(file.stem.partition("-")[2], file.read_text())
    return stages


def write_model(path):
    import onnx
    import onnx.parser
    onnx.save(onnx.parser.parse_model(MODEL.read_text()), path)


def cut(text, first, last):
    """The lines of `text` from `first` to `last`, moved to the left margin."""
    lines, start = text.splitlines(), 0
    for part in first.split(" >> "):
        start = next((n for n in range(start, len(lines)) if part in lines[n]), None)
        if start is None:
            sys.exit(f"no line of the listing has '{first}'")
    indent, ends = re.match(" *", lines[start])[0], [start]
    if last and last.startswith("+"):
        ends = [start + int(last)]
    elif last:
        ends = [n for n in range(start, len(lines))
                if (n > start and lines[n].startswith(indent + "}") if last == "}" else last in lines[n])]
        if not ends:
            sys.exit(f"no line of the listing behind '{first}' has '{last}'")
    return textwrap.dedent("\n".join(line.rstrip() for line in lines[start:ends[0] + 1])) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="")
    parser.add_argument("--model")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    if args.model:
        return write_model(args.model)
    if args.tools:
        os.environ["PATH"] = os.path.abspath(args.tools) + os.pathsep + os.environ["PATH"]
    stages, page = compiled(), PAGE.read_text()

    def listing(match):
        mark, stage, first, last, _ = match.groups()
        language = "" if stage in ("model", "report") else "mlir"
        return f"{mark}```{language}\n{cut(stages[stage], first, last)}```\n"

    new = LISTING.sub(listing, page)
    if args.update:
        PAGE.write_text(new)
    elif new != page:
        import difflib
        sys.stdout.writelines(difflib.unified_diff(page.splitlines(True), new.splitlines(True), "the page", "the compile"))
        sys.exit("docs/tutorial-attention.md differs from the compile; python3 tools/docs/tutorial.py --update writes it")


if __name__ == "__main__":
    main()
