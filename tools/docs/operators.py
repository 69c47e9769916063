#!/usr/bin/env python3
"""Writes docs/operators.md from what the importer registers and what the
backend suite says (test/onnx_backend/status.txt).

    operators.py --list 'build/bin/onnx-import --list-operators' [--check]

With --check nothing is written; exit status 1 when the file is not up to date.
"""
import argparse
import collections
import pathlib
import subprocess
import sys
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEAD = """# Operators

Written by tools/docs/operators.py; do not edit. Versions are the since_versions of the operator
that are implemented. Cases are those of the onnx package's backend suite whose model uses the
operator, passing of all, with shapes as declared, with open dimensions and with inputs as
constants. Element types are those that ONNX allows, but strings, complex numbers and floats of 6 bits, where no
note says other; integers below 8 bits and floats up to 8 are moved and converted. A sequence that a model takes or returns is
its tensors, inputs or outputs of their own (name.0, name.1, ...); where only the run knows their number, one has them all,
as rows. How many an input has says `--shape=name.0:2x3 --shape=name.1:4x?`. An optional input has its value, or none by
`--absent=name`: the compile decides, and one library does not take both. An input with an initializer of its name is a
constant. Sparse initializers and constants are the dense tensors that they stand for, up to 2 GiB for all of a model.
Integers wrap; x / 0 and x mod 0 of integers are 0. An index out of range ends the run with the name of the node, the index and the size;
an operator whose result nothing needs (no output, or only what a constant condition leaves out) is not computed, and reports nothing.
Cases of the suite that expect NumPy's random numbers are not counted.

## Random numbers

Bernoulli, Dropout in training mode, Multinomial, RandomNormal, RandomUniform and their Like forms draw other numbers for
each seed, node, iteration and element, and for the same ones the same again, on any processor and with any number of
threads. (Normal numbers may differ in their last bits.) A library in which something is drawn has an optional input `seed`
(int64, 1 element; 0 where it is left out), called `random_seed` where the model has a `seed` of its own.

- Element n of a node is number n + 1 of splitmix64 from the state `key`. With mix(x) the number of splitmix64 after the
  state x, `key` is mix(mix(seed) + node), and then mix(key + iteration) for each loop around the node, the outermost first.
- The attribute `seed` stands in place of the node, so that nodes with equal ones draw equal numbers: `key` begins as
  mix(mix(mix(seed) - 1) + bits), bits those of the attribute as a float64, or the integer that it is for Dropout.
- A uniform number is made of the first 53, 24, 11 or 8 bits for float64, float32, float16 and bfloat16, and a normal one by
  the formula of Box and Muller. Bernoulli is 1 where a uniform number is below the probability. Dropout keeps what has one
  that is not below the ratio. For Multinomial it says at which part of the sum of all weights the class lies; the run ends
  where a row has NaN, +inf, or nothing but -inf.
- A search around a step that draws has such an input, too. Its step t, from 0 on, runs with the seed mix(mix(seed)) + t, the
  call n, from 1 on, of an entry before it with mix(mix(seed) + n).
"""


def registered(command):
    table = collections.defaultdict(list)
    for line in subprocess.run(command.split(), capture_output=True, text=True, check=True).stdout.splitlines():
        domain, op, version = line.split()
        table[domain, op].append(int(version))
    return table


def case_counts(status):
    """{(domain, operator): {variant: [passing, all]}} and the reasons for what is refused."""
    warnings.simplefilter("ignore")
    import numpy as np
    np.seterr(all="ignore")
    from onnx.backend.test.loader import load_model_tests
    verdicts = {}
    for line in status.read_text().splitlines():
        if line and not line.startswith("#"):
            name, letters, verdict = line.split(" ", 2)
            for letter in letters:
                verdicts[name, letter] = verdict
    counts = collections.defaultdict(lambda: {v: [0, 0] for v in "sdc"})
    for case in load_model_tests(kind="node"):
        if not case.model:
            continue
        for domain, op in {(n.domain or "ai.onnx", n.op_type) for n in case.model.graph.node}:
            for variant in "sdc":
                verdict = verdicts.get((case.name, variant), "")
                counts[domain, op][variant][0] += verdict == "pass"
                counts[domain, op][variant][1] += verdict != "draws"
    return counts


def page(table, counts):
    lines = [HEAD]
    for domain in sorted({d for d, _ in table}):
        lines += [f"## {domain}", "", "| operator | versions | static | dynamic | constant |", "|-|-|-|-|-|"]
        for (own, op), versions in sorted(table.items()):
            if own != domain:
                continue
            cells = []
            for variant in "sdc":
                passing, total = counts[own, op][variant] if (own, op) in counts else (0, 0)
                cells.append(f"{passing}/{total}" if total else "")
            lines.append(f"| {op} | {', '.join(map(str, sorted(versions)))} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--list", default=str(ROOT / "build/bin/onnx-import") + " --list-operators")
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    text = page(registered(args.list), case_counts(ROOT / "test/onnx_backend/status.txt"))
    path = ROOT / "docs/operators.md"
    if not args.check:
        path.write_text(text)
        return 0
    if not path.exists() or path.read_text() != text:
        print("docs/operators.md is not up to date: python3 tools/docs/operators.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
