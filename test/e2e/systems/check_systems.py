#!/usr/bin/env python3
"""Compiles the systems of the literature from their graphs and compares each run with NumPy.

    check_systems.py [--tools=build/bin] [--twins=test/e2e/models] [--no-twins] [--list] [NAME...]
    check_systems.py --write=DIR [NAME...]      only writes graphs and weights to DIR, to be compiled by hand

NAME.json beside this file is a graph; its part in systems_*.py says its weights,
its cases and, in float64 from the formulas, what comes out. Weights are drawn
from a seed. One library with open dimensions serves all cases. Exactly as many
attentions are fused as the system has. A system with an ONNX twin runs on the
twin's weights and cases, too, and gives what is stored there and what the
compiled twin gives.
"""
import argparse
import importlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zlib

import numpy as np
from safetensors.numpy import save_file

import registry
import twins

HERE = pathlib.Path(__file__).parent
for part in sorted(HERE.glob("systems_*.py")):
    importlib.import_module(part.stem)


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600, errors="replace")
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\nexit status {done.returncode}\n{done.stdout}{done.stderr}")


def draw(system):
    """Weights of the system's shapes, scaled so that activations keep their size."""
    rng = np.random.default_rng(zlib.crc32(system.name.encode()))
    weights = {}
    for name, (*shape, gain) in system.weights.items():
        width = int(np.prod(shape[1:])) if len(shape) > 1 else 4
        weights[name] = (rng.standard_normal(shape) * gain / np.sqrt(max(width, 1))).astype(np.float32)
    return weights


class Library:
    def __init__(self, folder, tools, model, attentions=None, flags=()):
        self.folder, self.tools, self.path = folder, tools, folder / (model.name + ".so")
        report = folder / "report.json"
        run([tools / "attnc", model, "-o", self.path, f"--fusion-report={report}", *flags])
        self.fused = sum(verdict["fused"] for verdict in json.loads(report.read_text()))

    def __call__(self, entry, feeds, names):
        command = [self.tools / "attn-run", self.path] + ([f"--entry={entry}"] if entry else [])
        for i, (name, value) in enumerate(feeds.items()):
            np.save(self.folder / f"in{i}.npy", np.ascontiguousarray(value))
            command.append(f"--input={name}=@{self.folder / f'in{i}.npy'}")
        command += [f"--output={name}=@{self.folder / f'out{i}.npy'}" for i, name in enumerate(names)]
        run(command)
        return {name: np.load(self.folder / f"out{i}.npy") for i, name in enumerate(names)}


def rounded(system, weights, entry, feeds):
    """What the reference makes of weights that are off by a rounding: a loop whose steps look where the one before says
    carries that far, on any machine."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        moved = {k: v * (1 + 2.0**-24 * rng.choice([-1, 1], v.shape)) for k, v in weights.items()}
        yield system.reference(registry.net(moved), entry, **feeds)


def compare(label, got, want, rtol=2e-4, atol=2e-5, others=()):
    """What of `got` is not `want`; an output may be off as far again as one of `others` is."""
    for name, expected in want.items():
        expected, actual = np.asarray(expected), got[name]
        allowed = atol
        if expected.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                allowed += max((np.nanmax(np.abs(np.asarray(o[name]) - expected), initial=0) for o in others), default=0)
        if actual.shape != expected.shape:
            yield f"{label}, {name}: shape {actual.shape}, expected {expected.shape}"
        elif expected.dtype.kind in "iub":
            if not np.array_equal(actual, expected):
                yield f"{label}, {name}: {(actual != expected).sum()} of {expected.size} integers differ"
        else:
            both_out = np.isinf(expected) & (actual == expected)
            error = np.where(both_out, 0, np.abs(np.where(both_out, 0, actual) - np.where(both_out, 0, expected)))
            over = ~(error <= allowed + rtol * np.abs(np.where(both_out, 0, expected)))
            if over.any():
                yield f"{label}, {name}: {over.sum()} of {over.size} elements differ, at most by {np.nanmax(error):.2e}"


def write(system, folder):
    """The graph and its weights, side by side."""
    graph = folder / f"{system.name}.json"
    shutil.copy(HERE / graph.name, graph)
    weights = draw(system)
    save_file(weights, folder / f"{system.name}.safetensors")
    return graph, weights


def check(system, args, folder):
    graph, weights = write(system, folder)
    library = Library(folder, args.tools, graph)
    problems = []
    if library.fused != system.attentions:
        problems.append(f"{library.fused} attentions are fused, expected {system.attentions}")
    for n, (entry, feeds) in enumerate(system.cases(np.random.default_rng(7))):
        want = system.reference(registry.net(weights), entry, **feeds)
        others = list(rounded(system, weights, entry, feeds))
        problems += compare(f"case {n}", library(entry, feeds, want), want, others=others)
    for twin, convert, more in twins.TWINS.get(system.name, []):
        problems += check_twin(system, args, folder, graph, args.twins / twin, convert, more)
    return problems


def check_twin(system, args, folder, graph, twin, convert, more):
    """The graph with the weights of an ONNX model, on its cases."""
    save_file({k: np.ascontiguousarray(v) for k, v in convert(twins.Initialisers(twin / "model.onnx")).items()},
              folder / f"{system.name}.safetensors")
    ours, theirs = Library(folder, args.tools, graph), Library(folder, args.tools, twin / "model.onnx")
    problems = []
    if ours.fused != theirs.fused:
        problems.append(f"{ours.fused} attentions are fused, {theirs.fused} of the twin")
    meta = json.loads((twin / "meta.json").read_text())
    for case in sorted(twin.glob("inputs_*.npz")):
        feeds, stored = dict(np.load(case)), dict(np.load(case.with_name(case.name.replace("in", "out", 1))))
        entry = system.twin_entry
        got = ours(entry, feeds | {name: make(feeds) for name, make in more.items()}, stored)
        problems += compare(f"{twin.name} {case.stem}, stored", got, stored, meta["rtol"], meta["atol"])
        problems += compare(f"{twin.name} {case.stem}, compiled", got, theirs("", feeds, stored), meta["rtol"], meta["atol"])
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tools", type=pathlib.Path, default=pathlib.Path("build/bin"))
    parser.add_argument("--twins", type=pathlib.Path, default=HERE.parent / "models")
    parser.add_argument("--no-twins", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--write", type=pathlib.Path, metavar="DIR")
    args = parser.parse_args()
    if args.no_twins:
        twins.TWINS.clear()
    if args.list:
        print(*registry.SYSTEMS, sep="\n")
        return 0
    failed = 0
    names = args.names or list(registry.SYSTEMS)
    for name in names if args.write else []:
        args.write.mkdir(parents=True, exist_ok=True)
        write(registry.SYSTEMS[name], args.write)
    if args.write:
        return 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                problems = check(registry.SYSTEMS[name], args, pathlib.Path(folder))
            except RuntimeError as error:
                problems = [str(error)]
        failed += bool(problems)
        print(f"{name}: {'failed' if problems else 'passed'}, {len(twins.TWINS.get(name, []))} twins", *problems, sep="\n  ")
    missing = {path.stem for path in HERE.glob("*.json")} - set(registry.SYSTEMS)
    print(f"{len(names)} systems, {failed} failed, {len(missing)} graphs without a reference")
    return bool(failed or missing)


if __name__ == "__main__":
    sys.exit(main())
