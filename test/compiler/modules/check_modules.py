"""Compiles each module of cases.py for several CPUs and levels, runs it, compares with NumPy.

usage: check_modules.py --bin=build/bin --lib=build/lib/libattnrt.so [--case=NAME] [--cpu=...] [--level=...]
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import CASES, f8  # noqa: E402
from library import Runtime  # noqa: E402
import text  # noqa: E402

DTYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "i64": np.int64, "i32": np.int32, "i8": np.bool_}


def make_inputs(inputs, sizes, random):
    if "inputs" in sizes:
        return sizes["inputs"](random)
    arrays = []
    for shape, dtype in inputs.values():
        shape = [sizes[d] if isinstance(d, str) else d for d in shape]
        kind = DTYPES[dtype]
        if kind is np.bool_:
            arrays.append(random.random(shape) < 0.5)
        elif np.issubdtype(kind, np.integer):
            arrays.append(random.integers(0 if len(inputs) == 2 and "table" in inputs else -9, 10, shape).astype(kind))
        else:
            arrays.append(random.standard_normal(shape).astype(kind))
    return arrays


def compare(got, want):
    want = np.asarray(want)
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    if got.dtype.kind in "iub":
        return None if np.array_equal(got, want) else f"{np.sum(got != want)} of {got.size} integers differ"
    rtol = {2: 2e-3, 4: 2e-6, 8: 1e-13}[got.itemsize]
    same = (got == want) | (np.isnan(got) & np.isnan(want))  # infinities and NaN in the same places
    got, want = np.where(same, 0, got), np.where(same, 0, want)
    scale = np.maximum(np.abs(f8(want)), 1.0)
    error = np.abs(f8(got) - want) / scale
    # Sums: the terms' rounding errors, not the result's, decide.
    bound = 8 * rtol
    return None if not error.size or not error.max() > bound and not np.isnan(error).any() else f"relative error {error.max():.2e}, allowed {bound:.1e}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--lib", required=True)
    parser.add_argument("--case", default="")
    parser.add_argument("--cpu", default="native,x86-64-v3,x86-64")
    parser.add_argument("--level", default="0,3")
    args = parser.parse_args()
    runtime = Runtime(args.lib)
    failures = runs = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, make in CASES.items():
            if args.case and args.case != name:
                continue
            created = []
            original = text.Module.__init__

            def spy(self, *a, **k):
                created.append(self)
                original(self, *a, **k)

            text.Module.__init__ = spy
            source, reference, variants = make()
            text.Module.__init__ = original
            path = os.path.join(folder, name + ".mlir")
            with open(path, "w") as f:
                f.write(source)
            for cpu in args.cpu.split(","):
                for level in args.level.split(","):
                    what = f"{name} --mcpu={cpu} -O{level}"
                    library = os.path.join(folder, f"{name}-{cpu}-{level}.so")
                    done = subprocess.run([os.path.join(args.bin, "attnc"), path, "-o", library, "--mcpu=" + cpu, "-O" + level],
                                          capture_output=True, text=True)
                    if done.returncode:
                        print(f"FAIL {what}: {done.stderr.strip()[:2000]}")
                        failures += 1
                        continue
                    model = runtime.load(library)
                    for sizes in variants:
                        inputs = make_inputs(created[0].inputs, sizes, np.random.default_rng(7))
                        want = reference(*inputs)
                        got = model.run(inputs, len(want))
                        for i, (g, w) in enumerate(zip(got, want)):
                            runs += 1
                            problem = compare(g, w)
                            if problem:
                                shown = {k: v for k, v in sizes.items() if k != "inputs"}
                                print(f"FAIL {what} {shown} output {i}: {problem}")
                                failures += 1
                    model.close()
    print(f"{runs} outputs, {failures} failures")
    sys.exit(failures != 0)


if __name__ == "__main__":
    main()
