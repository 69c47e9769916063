#!/usr/bin/env python3
"""What a compile costs: attnc beside OpenVINO's compile_model, alternating, in seconds of processor (user and system).

    compile.py [MODEL...] [--rounds=5] [--tool=build/bin/attnc] [--before=ANOTHER/attnc] [--json=FILE]

A model is a folder of test/e2e/models (default: all) or an .onnx file. attnc is measured as its users start it, from
the file to the library; with a cache that another compile has filled, too. OpenVINO is measured in a process that has
imported it already. With --before another attnc takes part.
"""
import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "test/e2e/models"
OPENVINO = """
import resource, sys, openvino
core = openvino.Core()
before = resource.getrusage(resource.RUSAGE_SELF)
core.compile_model(sys.argv[1], "CPU")
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
"""


def attnc(tool, model, folder, *flags):
    """Seconds of processor, or None where the tool refuses the model."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([tool, model, "-o", folder / "model.so", *flags], capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime if done.returncode == 0 else None


def openvino(model):
    done = subprocess.run([sys.executable, "-c", OPENVINO, model], capture_output=True, text=True)
    return float(done.stdout) if done.returncode == 0 else None


def measure(model, args):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        sides = {"attnc": lambda: attnc(args.tool, model, folder), "openvino": lambda: openvino(model)}
        if args.before:
            sides["before"] = lambda: attnc(args.before, model, folder)
        cache = f"--cache-dir={folder / 'cache'}"
        if attnc(args.tool, model, folder, cache) is not None:
            sides["attnc-cached"] = lambda: attnc(args.tool, model, folder, cache)
        seconds = {side: [] for side in sides}
        for _ in range(args.rounds):
            for side, run in sides.items():
                seconds[side].append(run())
    return {side: min(times) for side, times in seconds.items() if None not in times}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tool", type=pathlib.Path, default=ROOT / "build/bin/attnc")
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    files = [pathlib.Path(m) if m.endswith(".onnx") else CORPUS / m / "model.onnx" for m in args.models]
    results = {}
    for file in files or sorted(CORPUS.glob("*/model.onnx")):
        found = results[file.parent.name] = measure(file, args)
        print(f"{file.parent.name:44s}" + "  ".join(f"{side} {value:.2f}" for side, value in found.items()), flush=True)
    ours = [r for r in results.values() if "attnc" in r]
    if ours:
        print(f"\nattnc: median {statistics.median(r['attnc'] for r in ours):.2f} s, at most {max(r['attnc'] for r in ours):.2f} s")
    for side in ("before", "openvino", "attnc-cached"):
        ratios = [r["attnc"] / r[side] for r in ours if r.get(side)]
        if ratios:
            print(f"attnc to {side}: median of {len(ratios)} ratios {statistics.median(ratios):.2f}")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
