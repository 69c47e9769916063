#!/usr/bin/env python3
"""Random attention graphs: compiled, run, and compared with float64 within a bound per element.

    attention_graphs.py [--seed=1] [--count=200] [--jobs=2] [--require-fused=99]
    attention_graphs.py --replay FOLDER         a failure that an earlier run kept
    attention_graphs.py --seed=7 --count=1 --keep=FOLDER   writes the model and its data, too

Seed n is always the same graph. A graph fails when the compile or a run dies or refuses, when an
element lies outside its bound, or when the number of fused attentions is not the number in the graph.
A failure is made smaller and kept in a folder: model.onnx, inputs_N.npz, expected_N.npz (each output
with its bound), spec.json and command.txt. Exit status 1 on any wrong result or crash, or when fewer
attentions than --require-fused percent were fused.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import ml_dtypes
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import graph_data  # noqa: E402
import graph_onnx  # noqa: E402
import graph_reference  # noqa: E402
import graph_spec  # noqa: E402

BROKEN = ("wrong", "crash", "refused")


class Failure(Exception):
    def __init__(self, kind, text):
        super().__init__(text)
        self.kind, self.text = kind, text


def write_case(spec, folder):
    """model.onnx, and the inputs, expected outputs and bounds of each run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.json").write_text(json.dumps(spec, indent=1) + "\n")
    constants = graph_data.weights(spec)
    for run, d in enumerate(graph_spec.run_dims(spec)):
        feeds = graph_data.feeds(spec, d, run)
        if run == 0:
            model = graph_onnx.build(spec, feeds)
            (folder / "model.onnx").write_bytes(model.SerializeToString())
            names = {i.name for i in model.graph.input}
        with np.errstate(all="ignore"):
            expected = graph_reference.reference(spec, d, feeds, constants)
        np.savez(folder / f"inputs_{run}.npz", **{n: v for n, v in feeds.items() if n in names})
        np.savez(folder / f"expected_{run}.npz", **{n: x.v for n, x in expected.items()},
                 **{n + ".bound": x.e for n, x in expected.items()})
    (folder / "expected.json").write_text(
        json.dumps({"fused": graph_spec.expected_fused(spec), "kinds": graph_spec.expected_kinds(spec)}) + "\n")


def call(command, log, seconds=120):
    """Runs a tool; a signal, an internal error or a hang is a crash, another failure a refusal."""
    text = " ".join(str(c) for c in command)
    log.append(text)
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace", timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Failure("crash", f"no answer within {seconds} s: {text}") from None
    if done.returncode:
        message = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-300:]).strip()
        crashed = done.returncode < 0 or done.returncode not in (1, 2, 3, 5) or "internal error" in done.stderr
        raise Failure("crash" if crashed else "refused", f"exit {done.returncode}: {message}")
    return done.stdout


def compare(got, want, bound):
    """What is wrong with an output, or None."""
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    if got.dtype.kind == "V":
        got = got.view(ml_dtypes.bfloat16)
    got = got.astype(np.float64)
    got = np.where(np.isinf(bound) | np.isnan(bound) & ~np.isnan(want), want, got)  # anything goes there
    if not np.array_equal(np.isnan(got), np.isnan(want)):
        return f"{np.isnan(got).sum()} NaN, expected {np.isnan(want).sum()} of {want.size}"
    with np.errstate(invalid="ignore"):
        error = np.where(got == want, 0, np.abs(got - want))
        over = error > bound
        worst = np.nanmax(np.where(over, error / np.maximum(bound, 1e-300), 0), initial=0)
    at = np.unravel_index(np.nanargmax(np.where(over, error, -1)), got.shape) if over.any() else ()
    return (f"{over.sum()} of {got.size} elements outside the bound, up to {worst:.3g} times; "
            f"at {tuple(map(int, at))} {got[at]:.7g}, expected {want[at]:.7g}") if over.any() else None


def check_case(folder, tools, flags=()):
    """Compiles and runs a case folder. Returns (fused, verdicts); raises Failure."""
    log = []
    try:
        library, verdicts_file = folder / "model.so", folder / "fusion.json"
        call([tools / "attnc", folder / "model.onnx", "-o", library, f"--fusion-report={verdicts_file}",
              f"--reproducer={folder / 'reproducer.mlir'}", *flags], log)
        verdicts = json.loads(verdicts_file.read_text())
        for path in sorted(folder.glob("inputs_*.npz")):
            run = path.stem.split("_")[1]
            expected = dict(np.load(folder / f"expected_{run}.npz"))
            command = [tools / "attn-run", library]
            for name, value in np.load(path).items():
                np.save(folder / f"in_{name}.npy", value)
                command.append(f"--input={name}=@{folder / f'in_{name}.npy'}")
            outputs = [n for n in expected if not n.endswith(".bound")]
            results = []
            for threads in (2, 1, 8) if run == "0" else (2,):
                call(command + [f"--threads={threads}"] + [f"--output={n}=@{folder / f'out_{n}.npy'}" for n in outputs], log)
                results.append({n: np.load(folder / f"out_{n}.npy") for n in outputs})
            for name in outputs:
                text = compare(results[0][name], expected[name], expected[name + ".bound"])
                if text:
                    raise Failure("wrong", f"run {run}, output {name}: {text}")
                if any(r[name].tobytes() != results[0][name].tobytes() for r in results):
                    raise Failure("wrong", f"run {run}, output {name}: other bits with 1 or 8 threads than with 2")
        return sum(bool(v["fused"]) for v in verdicts), verdicts
    finally:
        (folder / "command.txt").write_text("\n".join(log) + "\n")


def check_with_onnxruntime(folder):
    """The expected outputs against ONNX Runtime's, without its optimisations. Raises Failure."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        results = {path: session.run(None, dict(np.load(path))) for path in sorted(folder.glob("inputs_*.npz"))}
    except Exception as error:  # noqa: BLE001: its own type hierarchy is not public
        raise Failure("refused", str(error)[:200]) from None
    for path, result in results.items():
        run = path.stem.split("_")[1]
        expected = dict(np.load(folder / f"expected_{run}.npz"))
        for name, got in zip((o.name for o in session.get_outputs()), result):
            text = compare(got, expected[name], expected[name + ".bound"])
            if text:
                raise Failure("wrong", f"run {run}, output {name}: {text}")


def missed(fused, verdicts, expected, kinds):
    """The reason of a miss, or None. Scores stored for all pairs where they need not be are a miss, too."""
    if fused == expected:
        other = [v for v in verdicts if v["fused"] and v["kind"] not in kinds]
        return "; ".join(f"kind {v['kind']}, not {kinds[0]}: {v['reason']}" for v in other) or None
    if fused > expected:
        return f"{fused} fused, but the graph has {expected}"
    reasons = [v.get("reason", "") for v in verdicts if not v["fused"]]
    return "; ".join(reasons) or "no softmax seen"


def examine(spec, tools, folder=None, flags=()):
    """(kind, text, fused, expected) of one spec; kind 'ok', 'missed' or one of BROKEN."""
    temporary = tempfile.TemporaryDirectory() if folder is None else None
    place = pathlib.Path(temporary.name) if temporary else folder
    expected = graph_spec.expected_fused(spec)
    try:
        write_case(spec, place)
        if tools is None:
            # It has no bfloat16, and lets what hidden keys hold into the sum.
            if spec["dtype"] != "bf16" and spec["data"] != "special":
                check_with_onnxruntime(place)
            return "ok", "", expected, expected
        fused, verdicts = check_case(place, tools, flags)
        reason = missed(fused, verdicts, expected, graph_spec.expected_kinds(spec))
        return ("missed", reason, min(fused, expected - 1), expected) if reason else ("ok", "", fused, expected)
    except Failure as failure:
        return failure.kind, failure.text, 0, expected
    finally:
        if temporary:
            temporary.cleanup()


def shrink(spec, kind, text, tools, flags, tries=80):
    """A simpler spec that fails in the same way."""
    best, key = spec, text if kind == "missed" else None
    progress = True
    while progress and tries > 0:
        progress = False
        for other in graph_spec.simpler(best):
            if other == best:
                continue
            tries -= 1
            try:
                found, what, _, _ = examine(other, tools, flags=flags)
            except (ValueError, KeyError, IndexError, TypeError):  # a spec that the generator cannot spell
                continue
            if found == kind and (key is None or what == key):
                best, text, progress = other, what, True
                break
            if tries <= 0:
                break
    return best, text


def keep(spec, kind, text, args, flags):
    folder = args.failures / f"{kind}-{spec['seed']}"
    shutil.rmtree(folder, ignore_errors=True)
    if args.shrink and (kind in BROKEN or args.shrink_misses):
        spec, text = shrink(spec, kind, text, args.tools, flags)
    found, again, _, _ = examine(spec, args.tools, folder, flags)
    text = again if found == kind else f"{text} (once: {found} when run again)"
    (folder / "failure.txt").write_text(f"{kind}: {text}\n")
    return folder, text


def replay(folder, tools, flags):
    expected = json.loads((folder / "expected.json").read_text())
    try:
        fused, verdicts = check_case(folder, tools, flags)
    except Failure as failure:
        print(f"{folder.name}: {failure.kind}: {failure.text}")
        return 1
    reason = missed(fused, verdicts, expected["fused"], expected["kinds"])
    print(f"{folder.name}: " + (f"not fused: {reason}" if reason else f"passed, {fused} fused"))
    return int(bool(reason))


def coverage(seen):
    """Pairs of axis values seen, of those that 20,000 specs have."""
    possible = set()
    for seed in range(20000):
        possible |= graph_spec.pairs(graph_spec.sample(seed))
    return len(seen & possible), len(possible)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="the first graph")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tools", type=pathlib.Path, default=pathlib.Path("build/bin"))
    parser.add_argument("--with-onnxruntime", action="store_true", help="check the generator: run the models there, compile nothing")
    parser.add_argument("--flags", default="", help="more options of attnc")
    parser.add_argument("--replay", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--require-fused", type=float, default=0, metavar="PERCENT")
    parser.add_argument("--failures", type=pathlib.Path, default=pathlib.Path("fuzz-failures"))
    parser.add_argument("--keep", type=pathlib.Path, help="write the one graph of --count=1 here and keep it")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    parser.add_argument("--shrink-misses", action="store_true", help="attentions that are not fused, too")
    parser.add_argument("--most", type=int, default=20, help="failures to keep a kind")
    parser.add_argument("--coverage", action="store_true", help="count the pairs of axis values")
    args = parser.parse_args()
    flags = args.flags.split()
    if args.with_onnxruntime:
        args.tools = None
    if args.replay:
        return replay(args.replay, args.tools, flags)
    if args.keep:
        print(*examine(graph_spec.sample(args.seed), args.tools, args.keep, flags))
        return 0
    return run_all(args, flags)


def run_all(args, flags):
    start, seen = time.monotonic(), set()
    counts, reasons, kept = collections.Counter(), collections.Counter(), collections.Counter()
    fused = attentions = 0
    specs = [graph_spec.sample(args.seed + i) for i in range(args.count)]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for spec, (kind, text, found, expected) in zip(specs, pool.map(lambda s: examine(s, args.tools, flags=flags), specs)):
            seen |= graph_spec.pairs(spec)
            counts[kind] += 1
            fused, attentions = fused + found, attentions + expected
            if kind == "ok":
                continue
            label = text if kind == "missed" else kind
            reasons[label] += 1
            if kept[label] < (args.most if kind in BROKEN else 1):
                kept[label] += 1
                folder, text = keep(spec, kind, text, args, flags)
                print(f"seed {spec['seed']}: {kind}: {text} ({folder})", flush=True)
    broken = sum(counts[k] for k in BROKEN)
    percent = 100 * fused / max(attentions, 1)
    for text, n in reasons.most_common():
        print(f"{n:6d} {text}")
    print(f"{args.count} graphs in {time.monotonic() - start:.0f} s: {counts['wrong']} wrong, {counts['crash']} crashed, "
          f"{counts['refused']} refused; {fused} of {attentions} attentions fused ({percent:.1f} %)")
    if args.coverage:
        print("{} of {} pairs of axis values".format(*coverage(seen)))
    return int(broken > 0 or percent < args.require_fused)


if __name__ == "__main__":
    sys.exit(main())
