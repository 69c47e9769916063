#!/usr/bin/env python3
"""Random models of several layers: attnc beside a float64 evaluation, ONNX Runtime and, where they differ, attnc -O0.

    models.py [--seed=1] [--count=200] [--jobs=2]
    models.py --replay FOLDER          a failure that an earlier run kept
    models.py --reduce FOLDER          makes it smaller with attn-reduce: reduced.onnx
    models.py --still wrong MODEL --inputs=FILE.npz    status 0 if the model fails in this way

Seed n is always the same model (model_graphs.py), spelled for an opset from 7 to 28 (model_versions.py), and run at two
assignments of its open sizes. What it must compute is its float64 evaluation (float64.py); how far an answer may lie
off is what rounding each value at random does to that evaluation. It and ONNX Runtime run in a child of their own, as
some models end it. Where attnc differs from float64 the others are asked:

    wrong      one of them agrees with float64
    split      none agrees with it, nor with attnc
    reference  all three agree with each other, and not with float64: a fault of the evaluation

Left open is what cannot be compared: open, a size that the model leaves open has to be known; void, a value is no
number in float64, or nothing else can run the model.

LLVM optimises the code of every eighth model: that is most of a compile, and what our passes and kernels get wrong
seldom comes right without it. A failure of the others is looked for in optimised code, too, and reduced there.

Every tenth model is compiled with --verify-fusion, too. A failure is kept in a folder: model.onnx, inputs.npz, what was
found.
"""
import argparse
import collections
import multiprocessing
import os
import pathlib
import pickle
import random
import select
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import onnx

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "onnx_backend")]
import backend  # noqa: E402
import float64  # noqa: E402
import model_graphs  # noqa: E402
import model_versions  # noqa: E402
import operators  # noqa: E402
import seeds  # noqa: E402

FAILURES = ("wrong", "split", "reference", "refused", "crash", "unfused", "generator")
# The last opset that ONNX Runtime knows.
NEWEST_OF_ONNXRUNTIME = 25
SECONDS = 600


#===----------------------------------------------------------------------===#
# What a model must compute
#===----------------------------------------------------------------------===#


class Expected:
    """Float64's outputs of a run, and how far off each element may be."""

    def __init__(self, evaluator, feeds, noise, samples):
        self.values = evaluator.run(feeds)
        moved = [evaluator.run(feeds, None), *(evaluator.run(feeds, noise, seed) for seed in range(1, samples + 1))]
        if evaluator.rounds_to_codes():  # of which a rounding seldom makes another one
            moved.append(evaluator.run(feeds, 4096))
        self.bounds, self.open = [], []
        for n, exact in enumerate(self.values):
            others = [m[n] for m in moved if m[n].shape == exact.shape]
            if exact.dtype != np.float64:
                self.bounds.append(0)
                self.open.append(np.any([o != exact for o in others], axis=0) if others else np.True_)
                continue
            with np.errstate(invalid="ignore"):
                spread = max((np.nanmax(np.abs(np.where(np.isfinite(o) & np.isfinite(exact), o - exact, 0)), initial=0)
                              for o in others), default=0)
                largest = np.max(np.abs(exact[np.isfinite(exact)]), initial=0)
            self.bounds.append(4 * spread + 2e-6 * largest + 1e-30)
            self.open.append(np.any([np.isfinite(o) != np.isfinite(exact) for o in others], axis=0))

    def complaint(self, got, others=None):
        """What is wrong with outputs, or None; beside `others` instead of these values."""
        for n, (g, exact, bound) in enumerate(zip(got, others or self.values, self.bounds)):
            if g.shape != exact.shape:
                return f"output {n}: shape {list(g.shape)}, expected {list(exact.shape)}"
            if exact.dtype.kind not in "fV" and self.values[n].dtype != np.float64:
                bad = (g != exact) & ~self.open[n]
            else:
                g, exact = g.astype(np.float64), exact.astype(np.float64)
                with np.errstate(invalid="ignore"):
                    bad = ~((g == exact) | (np.abs(g - exact) <= bound) | np.isnan(g) & np.isnan(exact)) & ~self.open[n]
            if bad.any():
                at = tuple(map(int, np.argwhere(bad)[0]))
                return (f"output {n}: {bad.sum()} of {bad.size} elements differ, at {at} {g[at]:.8g}, "
                        f"expected {exact[at]:.8g} (within {bound:.2g})")
        return None


def by_onnxruntime(model, feeds):
    """ONNX Runtime's outputs, None where it has no kernels; bfloat16, which it lacks, as float32."""
    opset = model.opset_import[0].version
    if opset > NEWEST_OF_ONNXRUNTIME:
        model = next(filter(None, (model_versions.spelled(model, o) for o in range(NEWEST_OF_ONNXRUNTIME, 20, -1))), None)
    try:
        return model and operators.by_onnxruntime(model, feeds)
    except Exception:  # of no common class
        return None


def expected(model, runs, noise, samples, overflows=True):
    evaluator = float64.Float64(model, overflows)
    return [Expected(evaluator, feeds, noise, samples) for feeds in runs]


def in_child(function, *arguments):
    """What the function returns in a forked process; None if that dies or hangs. Its exceptions are raised here."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            try:
                answer = ("ok", function(*arguments))
            except BaseException as error:
                answer = ("error", f"{type(error).__name__}: {error}"[:500])
            with os.fdopen(write, "wb") as file:
                pickle.dump(answer, file)
        finally:
            os._exit(0)
    os.close(write)
    parts, end = [], time.monotonic() + SECONDS
    with os.fdopen(read, "rb") as file:
        while select.select([file], [], [], max(0, end - time.monotonic()))[0]:
            part = os.read(file.fileno(), 1 << 20)
            if not part:
                break
            parts.append(part)
        else:
            os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    try:
        kind, value = pickle.loads(b"".join(parts))
    except (EOFError, pickle.UnpicklingError):
        return None
    if kind == "error":
        raise ValueError(value)
    return value


#===----------------------------------------------------------------------===#
# Verdicts
#===----------------------------------------------------------------------===#


def agree(expected, one, other):
    return one is not None and other is not None and not expected.complaint(one, other)


def position(expected, got, other):
    if other is None:
        return "has no answer"
    if not expected.complaint(other):
        return "agrees with float64"
    return "agrees with attnc" if agree(expected, got, other) else "differs from both"


def vote(server, model, feeds, got, names):
    """(kind, message) of outputs that differ from float64."""
    exact = in_child(expected, model, [feeds], 16, 8)
    if exact is None:
        return "void", ""
    text = exact[0].complaint(got)
    if not text:
        return "pass", ""
    theirs = in_child(by_onnxruntime, model, feeds)
    try:
        plain, _ = server.run(model, feeds, names, level=0)
    except backend.Refused as refusal:
        plain, text = None, f"{text}; -O0: {refusal}"
    voices = [f"{who} {position(exact[0], got, x)}" for who, x in (("ONNX Runtime", theirs), ("-O0", plain))]
    text = f"{text}; {', '.join(voices)}"
    if any(x is not None and not exact[0].complaint(x) for x in (theirs, plain)):
        return "wrong", text
    if not agree(exact[0], got, theirs) or not agree(exact[0], got, plain):
        return "split", text
    # What an op gives to another one is not rounded to f16 (docs/reports.md, Models in 16 bits).
    wide = in_child(expected, model, [feeds], 16, 8, False)
    return ("reference", text) if wide is None or wide[0].complaint(got) else ("pass", "")


def verdict(server, model, runs, quick=False):
    """(kind, message, the run) of a model and its inputs: the first that does not pass. Of code that LLVM does not
    optimise where it shall be `quick`."""
    names = [o.name for o in model.graph.output]
    try:
        exact = in_child(expected, model, runs, 8, 1)
    except ValueError as error:
        return "generator", str(error), 0
    for n, feeds in enumerate(runs):
        try:
            got, _ = server.run(model, feeds, names, compiled=n > 0, keep=n + 1 < len(runs), quick=quick)
        except backend.Refused as refusal:
            text = f"[{refusal.code}] {refusal.message}"
            if refusal.code == backend.UNSUPPORTED:
                return ("open" if operators.OPEN.search(refusal.message) else "refused"), text, n
            return ("crash" if refusal.code == backend.INTERNAL else "wrong"), text, n
        if exact is None or any(np.isnan(v).any() for v in exact[n].values if v.dtype == np.float64):
            return "void", "the reference died" if exact is None else "NaN", n
        if exact[n].complaint(got):
            kind, text = vote(server, model, feeds, got, names)
            if kind != "pass":
                return kind, text, n
            if n + 1 < len(runs):  # -O0 took the library's place
                server.run(model, feeds, names, keep=True, quick=quick)
    return "pass", "", 0


def verified(attnc, model, folder):
    """What --verify-fusion says against a model, or None."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "verify.onnx"
    path.write_bytes(model.SerializeToString())
    try:
        done = subprocess.run([attnc, path, "-o", folder / "verify.so", "--verify-fusion"], capture_output=True, text=True,
                              errors="replace", timeout=5 * SECONDS)
    except subprocess.TimeoutExpired:
        return "no answer from --verify-fusion"
    for name in ("verify.onnx", "verify.so"):
        (folder / name).unlink(missing_ok=True)
    return None if done.returncode in (0, 2) else f"--verify-fusion ends with {done.returncode}: {done.stderr[-400:]}"


def make(seed):
    """(model, inputs of its runs) of a seed."""
    drawn = model_graphs.make(seed)
    model, r = drawn.proto(), random.Random(~seeds.first(seed))
    written = model.opset_import[0].version
    wanted = r.randint(7, 16) if drawn.old else r.choice([written, r.randint(17, 28)])
    versions = range(wanted, written + 1) if wanted <= written else [wanted]
    model = next(filter(None, (model_versions.spelled(model, v) for v in versions if v != written)), model)
    names = {i.name for i in model.graph.input}
    runs = [{n: v for n, v in drawn.feeds(k).items() if n in names} for k in range(1 + bool(drawn.dynamic))]
    return model, runs


#===----------------------------------------------------------------------===#
# Failures
#===----------------------------------------------------------------------===#


def folder_of(failures, kind, seed):
    """Of a failure: no two seeds of a run end with the same number."""
    return failures / f"{kind}-{seeds.last(seed)}"


def keep(folder, model, feeds, kind, text):
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "inputs.npz", **feeds)
    (folder / "failure.txt").write_text(f"{kind}: {text}\n")


def fails(server, path, inputs, attnc=None):
    """(kind, message) of a kept model, with the inputs that it still has and zeros for others."""
    model, stored = onnx.load(path), dict(np.load(inputs))
    feeds = {}
    for info in model.graph.input:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        dims = [d.dim_value or 2 for d in info.type.tensor_type.shape.dim]
        value = stored.get(info.name, np.random.default_rng(len(info.name)).standard_normal(dims))
        feeds[info.name] = value.view(dtype) if value.dtype.kind == "V" else value.astype(dtype)
    if attnc:
        text = verified(attnc, model, pathlib.Path(server.folder)) or ""
        # With 3 it is not a model any more.
        return ("unfused", text) if text.startswith("--verify-fusion ends with 5") else ("pass", "")
    return verdict(server, model, [feeds])[:2]


def reduce(folder, tools):
    """Makes a kept failure smaller; what attn-reduce says, and its exit code."""
    kind = (folder / "failure.txt").read_text().partition(":")[0]
    model = onnx.load(folder / "model.onnx")
    typed = folder / "typed.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model), typed)  # what has a type can be cut
    test = [__file__, f"--tools={tools.resolve()}", f"--still={kind}", f"--inputs={folder.resolve() / 'inputs.npz'}"]
    done = subprocess.run([tools / "attn-reduce", typed, "-o", folder / "reduced.onnx", f"--test={sys.executable}",
                           *(f"--test-arg={argument}" for argument in test)], capture_output=True, text=True)
    typed.unlink()
    return (done.stdout + done.stderr).strip(), done.returncode


class Worker:
    """A process that judges seeds, with a compiler that it asks."""
    server = None

    @classmethod
    def judge(cls, task):
        seed, tools, failures, counting = task
        warnings.simplefilter("ignore")
        try:
            model, runs = make(seed)
        except Exception as error:  # a generator's own fault
            return seed, "generator", f"{type(error).__name__}: {error}", "", None
        if cls.server is None:
            cls.server = backend.Server(str(counting or tools / "onnx-case-server"), timeout=SECONDS)
        number = seeds.last(seed)
        quick = number % 8 != 0
        kind, text, run = verdict(cls.server, model, runs, quick)
        if quick and kind in FAILURES:
            optimised = verdict(cls.server, model, runs)
            kind, text, run = optimised if optimised[0] in FAILURES else (kind, f"{text}; not in optimised code", run)
        # In 16 bits the unfused form rounds where the fused one does not; a choice among NaN differs from form to form, and
        # so does the code of a value halfway between two (56.500004 and 56.499996 of one model).
        if kind == "pass" and number % 10 == 0 and not is_narrow(model) and not chooses(model):
            text = verified(tools / "attnc", model, pathlib.Path(cls.server.folder))
            kind, text = ("unfused", text) if text else (kind, "")
        if kind in FAILURES:
            keep(folder_of(failures, kind, seed), model, runs[run], kind, text)
        return seed, kind, text, operator_names(model), cls.server.branches() if counting else None


def is_narrow(model):
    return any(i.type.tensor_type.elem_type in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
               for i in [*model.graph.value_info, *model.graph.input])


def chooses(model):
    return any(name in ("ArgMax", "ArgMin", "TopK", "QuantizeLinear", "DynamicQuantizeLinear")
               for name in operator_names(model).split())


def operator_names(model):
    return " ".join(sorted({n.op_type for n in model.graph.node}))


def judged(drawn, args, counting=None):
    """(seed, kind, message, operators, branches) of each seed that was drawn, in order. `counting` is a case server that
    counts the branches of our passes."""
    import onnxruntime  # noqa: F401: once, for all children
    tasks = [(seed, args.tools.resolve(), args.failures.resolve(), counting) for seed in drawn]
    with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
        yield from pool.imap(Worker.judge, tasks)


def commit():
    """The commit that is checked out, as hexadecimal digits; zeros outside a repository."""
    done = subprocess.run(["git", "-C", HERE, "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "0" * 40


def seed_of(text):
    if "@" in text:
        return seeds.checked(text)
    return int(commit()[:7], 16) * 1000 if text == "commit" else int(text)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=seed_of, default=1,
                   help="the first model; commit: a number that each commit has; 5@20:7: this model alone (seeds.py)")
    p.add_argument("--count", type=int, default=200)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--tools", type=pathlib.Path, default=pathlib.Path("build/bin"))
    p.add_argument("--failures", type=pathlib.Path, default=pathlib.Path("model-failures"))
    p.add_argument("--replay", type=pathlib.Path)
    p.add_argument("--reduce", type=pathlib.Path)
    p.add_argument("--still", metavar="KIND")
    p.add_argument("--inputs", type=pathlib.Path)
    p.add_argument("model", nargs="?", type=pathlib.Path)
    args = p.parse_args()
    warnings.simplefilter("ignore")
    if args.reduce:
        text, code = reduce(args.reduce, args.tools)
        print(text)
        return code
    if args.replay or args.still:
        server = backend.Server(str(args.tools / "onnx-case-server"), timeout=SECONDS)
        path = args.model or args.replay / "model.onnx"
        inputs = args.inputs or args.replay / "inputs.npz"
        try:
            kind, text = fails(server, path, inputs, args.tools / "attnc" if args.still == "unfused" else None)
        except Exception as error:  # of no common class: not a model any more
            kind, text = "void", f"{type(error).__name__}: {error}"
        print(f"{kind}: {text}")
        return int(kind != args.still) if args.still else int(kind in FAILURES)
    counts, start = collections.Counter(), time.monotonic()
    drawn = [args.seed] if isinstance(args.seed, str) else range(args.seed, args.seed + args.count)
    for seed, kind, text, *_ in judged(drawn, args):
        counts[kind] += 1
        if kind in FAILURES:
            print(f"FAIL seed {seed}: {kind}: {text[:600]}", flush=True)
    failed = sum(counts[k] for k in FAILURES)
    print(", ".join(f"{kind} {n}" for kind, n in sorted(counts.items())) + f" in {time.monotonic() - start:.0f} s")
    print(f"{counts['pass']} of {len(drawn)} agree, {len(drawn) - failed - counts['pass']} left open, {failed} fail")
    return 1 if failed or counts["pass"] < len(drawn) // 2 else 0


if __name__ == "__main__":
    sys.exit(main())
