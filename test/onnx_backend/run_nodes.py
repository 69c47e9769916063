#!/usr/bin/env python3
"""Run the node cases of onnx.backend.test through attn-run.

    run_nodes.py                                  every case of every operator
    run_nodes.py --ops Add,MatMul                 cases whose model uses one of these operators
    run_nodes.py --only reduce_,softmax           cases whose name contains one of these
    run_nodes.py --shard 0/4                      every fourth case, for parallel runs
    run_nodes.py --variant dynamic                all dimensions of the inputs open
    run_nodes.py --variant frozen                 integer inputs of rank 0 and 1 as initialisers

A case passes when its outputs agree, or when expected.txt names it and it is
refused with the message given there. A case that expected.txt names and that
passes is a failure, too: the list may not rot. Where a model takes as input what
the compiler must know (axes, say), the static variant makes that input an
initialiser. The last line is "N passed, N failed"; exit status 1 when one failed.
"""
import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np

# (relative, absolute) by dtype; the suite's own 1e-3, 1e-7 leaves f32 no rounding near 0.
TOLERANCE = {"float16": (2e-3, 2e-3), "bfloat16": (1e-2, 1e-2), "float32": (1e-3, 1e-5), "float64": (1e-3, 1e-7)}
NEEDS_CONSTANT = "not known at import"


def load_cases():
    warnings.simplefilter("ignore")
    from onnx.backend.test.case.node import collect_testcases
    return [c for c in collect_testcases(None) if c.model is not None and c.data_sets]


def read_expected(path):
    """Lines "pattern: part of the message", '#' starts a comment."""
    rules = []
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            pattern, _, message = line.partition(":")
            rules.append((pattern.strip(), message.strip()))
    return rules


def freeze(model, names, feeds):
    """`model` with the named inputs as initialisers, and the feeds that are left."""
    import onnx
    from onnx import numpy_helper
    frozen = onnx.ModelProto()
    frozen.CopyFrom(model)
    for name in names:
        frozen.graph.initializer.append(numpy_helper.from_array(feeds[name], name))
    kept = [i for i in frozen.graph.input if i.name not in names]
    del frozen.graph.input[:]
    frozen.graph.input.extend(kept)
    return frozen, {k: v for k, v in feeds.items() if k not in names}


def small_integers(feeds):
    return [n for n, v in feeds.items()
            if isinstance(v, np.ndarray) and v.dtype.kind in "iu" and v.ndim <= 1 and v.size <= 64]


def open_dims(model):
    import onnx
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    for value in opened.graph.input:
        for n, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"{value.name}_{n}"
    for value in opened.graph.output:
        value.type.tensor_type.ClearField("shape")
    del opened.graph.value_info[:]
    return opened


def to_array(value):
    """Some cases hold NumPy scalars, some TensorProto."""
    from onnx import TensorProto, numpy_helper
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.generic, int, float)) else value


def is_bfloat16(value):
    return isinstance(value, np.ndarray) and value.dtype.name == "bfloat16"


def run(runner, model, feeds, names, folder, timeout):
    """Outputs by name, or the exit status and first line of the message."""
    import onnx
    path = os.path.join(folder, "model.onnx")
    onnx.save(model, path)
    command = [runner, path]
    for i, (name, value) in enumerate(feeds.items()):
        # Strings, sequences and narrow floats cannot be given: the compile must say so.
        if not is_bfloat16(value) and (not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf"):
            continue
        np.save(os.path.join(folder, f"in{i}.npy"), value.view("V2") if is_bfloat16(value) else value)
        command.append(f"--input={name}=@{folder}/in{i}.npy")
    command += [f"--output={name}=@{folder}/out{i}.npy" for i, name in enumerate(names)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, cwd=folder)
    except subprocess.TimeoutExpired:
        return None, f"no answer within {timeout:g} s"
    if done.returncode:
        lines = (done.stderr + done.stdout).strip().splitlines() or ["no message"]
        return None, f"exit status {done.returncode}: " + lines[0]
    return [np.load(f"{folder}/out{i}.npy") for i in range(len(names))], None


def complaint(got, want):
    """What is wrong with `got`, or None."""
    want = to_array(want)
    if is_bfloat16(want):
        got = got.view(want.dtype)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if want.dtype.name not in TOLERANCE:
        wrong = int((got != want).sum())
        return f"{wrong} of {want.size} elements differ" if wrong else None
    rtol, atol = TOLERANCE[want.dtype.name]
    g, w = got.astype(np.float64), want.astype(np.float64)
    wrong = int((~np.isclose(g, w, rtol=rtol, atol=atol, equal_nan=True)).sum())
    if not wrong:
        return None
    with np.errstate(invalid="ignore"):
        return f"{wrong} of {want.size} elements differ, by up to {np.nanmax(np.abs(g - w)):.3g}"


def check(case, args):
    """None when the case passes, else what is wrong."""
    inputs, outputs = case.data_sets[0]
    names = [o.name for o in case.model.graph.output]
    graph_inputs = [i.name for i in case.model.graph.input]
    feeds = {n: to_array(v) for n, v in zip(graph_inputs, inputs)}
    model = case.model
    if args.variant == "frozen":
        model, feeds = freeze(model, small_integers(feeds), feeds)
    elif args.variant == "dynamic":
        model = open_dims(model)
    with tempfile.TemporaryDirectory() as folder:
        got, error = run(args.runner, model, feeds, names, folder, args.timeout)
        if error and NEEDS_CONSTANT in error and small_integers(feeds):
            model, feeds = freeze(model, small_integers(feeds), feeds)
            got, error = run(args.runner, model, feeds, names, folder, args.timeout)
    if error:
        return error
    for name, g, w in zip(names, got, outputs):
        wrong = complaint(g, w)
        if wrong:
            return f"output {name}: {wrong}"
    return None


def verdict(case, rules, args):
    """(passed, message)."""
    wrong = check(case, args)
    rule = next((message for pattern, message in rules if fnmatch.fnmatch(case.name, pattern)), None)
    if rule is None:
        return wrong is None, wrong
    if wrong is None:
        return False, "passes, but expected.txt names it"
    return rule in wrong, None if rule in wrong else f"{wrong} (expected: {rule})"


def selected(cases, args):
    if args.ops:
        ops = set(args.ops.split(","))
        cases = [c for c in cases if ops & {n.op_type for n in c.model.graph.node}]
    if args.only:
        cases = [c for c in cases if any(o in c.name for o in args.only.split(","))]
    n, of = map(int, args.shard.split("/"))
    return sorted(cases, key=lambda c: c.name)[n::of]


def main():
    here = pathlib.Path(__file__).resolve().parent
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--runner", default=str(here.parent.parent / "build/bin/attn-run"))
    p.add_argument("--ops", default="")
    p.add_argument("--only", default="")
    p.add_argument("--shard", default="0/1")
    p.add_argument("--variant", choices=("static", "dynamic", "frozen"), default="static")
    p.add_argument("--expected", type=pathlib.Path, default=here / "expected.txt")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--timeout", type=float, default=60)
    p.add_argument("-q", "--quiet", action="store_true", help="print failures only")
    args = p.parse_args()
    args.runner = os.path.abspath(args.runner)
    cases, rules = selected(load_cases(), args), read_expected(args.expected)
    passed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for case, (ok, message) in zip(cases, pool.map(lambda c: verdict(c, rules, args), cases)):
            passed += ok
            if not ok or not args.quiet:
                print(f"{'pass' if ok else 'FAIL'}  {case.name}" + (f"  {message}" if message else ""), flush=True)
    print(f"{passed} passed, {len(cases) - passed} failed")
    return 1 if passed < len(cases) or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
