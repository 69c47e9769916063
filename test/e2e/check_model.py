#!/usr/bin/env python3
"""Compiles one model of test/e2e/models and runs all its cases.

    check_model.py FOLDER [--tools=build/bin]

One library with dynamic dimensions serves every case; a second one is compiled
for the shapes of case 0, unless --dynamic-only says that another export's was. Outputs are compared with the stored float64 reference
(rtol and atol of meta.json) and, for the dynamic library, with ONNX Runtime.
Exactly as many attentions as meta.json says are fused, in both, and no frame
is large (frames.py). With --verify-fusion the fused form is compared with the
unfused one, too.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

import frames


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600, errors="replace")
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nexit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def complaint(got, want, rtol, atol):
    """What is wrong with `got`, or None."""
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    if got.dtype != want.dtype:
        return f"dtype {got.dtype}, expected {want.dtype}"
    if want.dtype.kind not in "fc":
        return None if np.array_equal(got, want) else f"{(got != want).sum()} of {want.size} integers differ"
    got, want = got.astype(np.float64), want.astype(np.float64)
    if not np.array_equal(np.isnan(got), np.isnan(want)):
        return f"{np.isnan(got).sum()} NaN, expected {np.isnan(want).sum()}"
    infinite = np.isinf(got) | np.isinf(want)
    if not np.array_equal(got[infinite], want[infinite]):
        return "infinities in other places"
    finite = ~(infinite | np.isnan(want))
    error = np.abs(got[finite] - want[finite])
    over = error > atol + rtol * np.abs(want[finite])
    return f"{over.sum()} of {want.size} elements beyond rtol {rtol:g}, atol {atol:g} (largest {error.max():.2e})" if over.any() else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tools", type=pathlib.Path, default=pathlib.Path("build/bin"))
    parser.add_argument("--target", default="cpu", help="cuda: with build/test/gpu/lib on LD_LIBRARY_PATH")
    parser.add_argument("--dynamic-only", action="store_true", help="no library for fixed shapes")
    parser.add_argument("--verify-fusion", action="store_true", help="no difference between fused and unfused")
    args = parser.parse_args()
    meta = json.loads((args.folder / "meta.json").read_text())
    model = args.folder / "model.onnx"
    cases = sorted(args.folder.glob("inputs_*.npz"), key=lambda p: int(p.stem.split("_")[1]))
    session = None
    if meta.get("runs_on_onnxruntime", True):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    problems = []
    with tempfile.TemporaryDirectory() as temporary:
        temporary = pathlib.Path(temporary)

        def check_case(library, path, label, with_ort):
            feeds = dict(np.load(path))
            want = dict(np.load(path.with_name(path.name.replace("inputs", "outputs"))))
            command = [args.tools / "attn-run", library]
            for i, (name, value) in enumerate(feeds.items()):
                np.save(temporary / f"in{i}.npy", value)
                command.append(f"--input={name}=@{temporary / f'in{i}.npy'}")
            command += [f"--output={name}=@{temporary / f'out{i}.npy'}" for i, name in enumerate(want)]
            run(command)
            ort = dict(zip(want, session.run(list(want), feeds))) if with_ort and session else {}
            for i, name in enumerate(want):
                got = np.load(temporary / f"out{i}.npy")
                for other, reference in (("the reference", want[name]), ("ONNX Runtime", ort.get(name))):
                    if reference is not None and (text := complaint(got, reference, meta["rtol"], meta["atol"])):
                        problems.append(f"{label}, {path.stem}, output {name}, against {other}: {text}")

        dynamic, static = temporary / "dynamic.so", temporary / "static.so"
        def build(library, *options):
            report = temporary / "report.json"
            run([args.tools / "attnc", model, "-o", library, f"--target={args.target}", *options, f"--require-fused={meta['attention']}", f"--fusion-report={report}"])
            fused = sum(verdict["fused"] for verdict in json.loads(report.read_text()))
            if fused != meta["attention"]:
                problems.append(f"{library.stem}: {fused} attentions are fused, expected {meta['attention']}")
            if args.target == "cpu" and (size := frames.stack_size(library)) > frames.MOST:
                problems.append(f"{library.stem}: frames of {size} bytes, more than {frames.MOST}")

        # Exit status 5 where the two differ; what is declared is a note.
        build(dynamic, *(["--verify-fusion"] if args.verify_fusion else []))
        for path in cases:
            check_case(dynamic, path, "dynamic", with_ort=True)
        if not args.dynamic_only:
            shapes = [f"--shape={name}:{'x'.join(map(str, value.shape))}" for name, value in np.load(cases[0]).items()]
            build(static, *shapes)
            check_case(static, cases[0], "static", with_ort=False)
    for problem in problems:
        print(problem)
    print(f"{args.folder.name}: {'failed' if problems else 'passed'}, {len(cases)} cases")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
