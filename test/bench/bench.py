#!/usr/bin/env python3
"""attnc beside its peers, alternating in one run, on the same inputs and threads.

    bench.py [CASE...] [--rounds=12] [--threads=2] [--sides=attnc,onnxruntime]
    bench.py attention          the attention cases, with PyTorch if it is installed
    bench.py sequence           recurrent encoders, decoder steps and their search, against the targets of verdict.py
    bench.py models             whole models, in bf16 and with narrow weights too, against the targets of verdict.py
    bench.py stored             the same models as int8, fp16 and int4 files, against the targets of stored.py
    bench.py llamacpp           decoders in blocks of 8 and 4 bits beside llama.cpp, against the targets of llamacpp.py
    bench.py layers             deformable, outlook and Longformer attention and scans, with PyTorch
    bench.py exposed            what it costs that attention weights are outputs, as head means and whole

A round lets every side run the case for a while, one after the other; each
round gives one ratio (the peer's median over ours). The median of the ratios
and their quartiles count: above 1, attnc is faster. Every side's outputs are
first compared with a reference (rows in float64; ONNX Runtime's for whole
models). Results go to test/bench/results, with the machine. Exit status 1 when
attnc's outputs differ.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import attention
import layers
import llamacpp
import models
import sequence
import sides
import stored
import verdict
from machine import machine

models.MODELS |= sequence.MODELS
ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "build" / "bin"
sys.path.insert(0, str(ROOT / "tools" / "demo"))
CACHE = ROOT / ".cache" / "bench"


def minilm(batch, length, folder):
    """all-MiniLM-L6-v2 as the demo writes it, on `batch` x `length` tokens without padding."""
    from demo import fetch_model
    from minilm import write_minilm
    path = CACHE / "minilm.onnx"
    if not path.exists():
        write_minilm(fetch_model(ROOT / ".cache" / "minilm"), path)
    (folder / "model.onnx").unlink(missing_ok=True)
    (folder / "model.onnx").symlink_to(path)
    ids = np.random.default_rng(1).integers(1000, 30000, (batch, length))
    return [{"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}]


def one_attention(case, folder):
    attention.write_model(case, folder / "model.onnx")
    attention.write_operator(case, folder / "operator.onnx")
    return [case.inputs(n) for n in range(case.rotate)]


def whole_model(model, folder):
    net = model.make()
    (folder / "model.onnx").unlink(missing_ok=True)
    net.save(folder / "model.onnx")
    (folder / "caches.json").write_text(json.dumps(net.caches))
    if net.caches:
        net.open_caches()
        net.save(folder / "open.onnx")
    return [net.feeds]


def one_layer(name, folder):
    (folder / "model.onnx").unlink(missing_ok=True)
    return [layers.write(name, folder)]


def stored_model(name, folder):
    """f32.onnx, and what people make of it: model.onnx."""
    source, variant = name.rsplit(".", 1)
    for old in ("model.onnx", "f32.onnx"):
        (folder / old).unlink(missing_ok=True)
    [feeds] = CASES[source](folder)
    (folder / "model.onnx").rename(folder / "f32.onnx")
    stored.write(folder / "f32.onnx", variant, feeds, folder / "model.onnx")
    return [feeds]


EXPOSED = ["minilm-b1-s128", "bert-base-b1-s128"]
CASES = {
    "minilm-b1-s32": lambda folder: minilm(1, 32, folder),
    "minilm-b1-s128": lambda folder: minilm(1, 128, folder),
    "minilm-b8-s16": lambda folder: minilm(8, 16, folder),
    "minilm-b16-s128": lambda folder: minilm(16, 128, folder),
    **{name: lambda folder, model=model: whole_model(model, folder) for name, model in models.MODELS.items() if model.make},
    **{name: lambda folder, case=case: one_attention(case, folder) for name, case in attention.CASES.items()},
    **{name: lambda folder, name=name: one_layer(name, folder) for name in layers.NAMES},
    **{name: lambda folder, name=name: stored_model(name, folder) for name in stored.TARGETS},
    **{name: lambda folder, name=name: llamacpp.write(folder, name) for name in llamacpp.TARGETS},
}


def prepare(name):
    folder = CACHE / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.npy"):
        old.unlink()
    sets = CASES[name](folder)
    for number, feeds in enumerate(sets):
        for tensor, value in feeds.items():
            np.save(folder / f"in_{number}_{tensor}.npy", value)
    return folder, sets


def our_sides(name, folder, sets, args):
    """attnc, and for the targets of a whole model its forms in fewer bits."""
    case, model = attention.CASES.get(name), models.MODELS.get(name)
    forms = {"attnc": []}
    if model and args.forms:
        forms |= {"attnc-bf16": ["--precision=bf16"]} if model.bf16 else {}
        forms |= {"attnc-weights-bf16": ["--weights=bf16"], "attnc-weights-int8": ["--weights=int8"]} if model.narrow else {}
    if args.exposes:
        forms |= {f"attnc-{form}": ["--expose-attention", f"--expose-attention-as={form}"] for form in ("head-mean", "weights")}
    if name in stored.TARGETS and name.endswith(".int4"):  # rows rounded, too, as accuracy_level 4 lets a file's products
        forms |= {"attnc-int8": ["--precision=int8"]}
    if name in llamacpp.TARGETS:
        forms = {"attnc": ["--precision=int8"], "attnc-rows": []}
    has_caches = name in llamacpp.TARGETS or (model and model.narrow and not model.search)
    caches = json.loads((folder / "caches.json").read_text()) if has_caches else []
    is_fixed = model or args.exposes or name in stored.TARGETS or name in llamacpp.TARGETS
    fixed = list(model.search) if model and model.search else [f"--shape={n}:{'x'.join(map(str, v.shape))}" for n, v in sets[0].items()] if is_fixed else []
    state = ["--state=" + ",".join(f"{past}:{present}" for past, present in caches), "--own-state"]
    if caches and name in llamacpp.TARGETS:
        return [sides.AttncState(TOOLS, folder, args.threads, 1, form, state + options) for form, options in forms.items()]
    opened = [sides.Attnc(TOOLS, folder, args.threads, case.rotate if case else 1, form, fixed + options)
              for form, options in forms.items()]
    if name in stored.TARGETS:
        opened.append(sides.AttncF32(TOOLS, folder, args.threads, 1, "attnc-f32", fixed))
    if caches and args.forms:
        opened += [sides.AttncState(TOOLS, folder, args.threads, 1, f"attnc-state-{width}", [*state, f"--weights={width}"])
                   for width in ("bf16", "int8")]
    return opened


def open_sides(name, folder, sets, args):
    opened = our_sides(name, folder, sets, args)
    for peer in sides.PEERS:
        if args.sides and peer not in args.sides.split(","):
            continue
        search = name in models.MODELS and models.MODELS[name].search
        if bool(search) != (peer == "onnxruntime-beam"):
            continue
        if peer == "openvino-bf16" and not (name in models.MODELS and models.MODELS[name].bf16 and args.forms):
            continue
        try:
            opened.append(sides.Peer(peer, folder, args.threads, name))
        except sides.NotAvailable as reason:
            print(f"  {peer} left out: {reason}", flush=True)
    return opened


def check_outputs(name, sets, opened, result):
    """Each side's largest difference from the reference."""
    case = attention.CASES.get(name)
    if case:
        rows = attention.reference_rows(case, sets[0])
        for side in opened:
            result["sides"][side.name]["largest_difference"] = attention.difference(rows, side.outputs(["out"])[0])
        return
    if models.MODELS.get(name) and models.MODELS[name].search:
        outputs = [side.outputs(["tokens", "scores"]) for side in opened]
        for side, (tokens, scores) in zip(opened, outputs):
            same = np.array_equal(tokens, outputs[-1][0])
            result["sides"][side.name]["largest_difference"] = float(np.abs(scores - outputs[-1][1]).max()) if same else math.inf
        return
    import onnxruntime
    options = onnxruntime.SessionOptions()
    if name in stored.TARGETS or name in llamacpp.TARGETS:  # what the file says, without what its optimiser rounds otherwise
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = onnxruntime.InferenceSession(str(CACHE / name / "model.onnx"), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in model.get_outputs()]
    want = model.run(None, sets[0])
    for side in opened:
        result["sides"][side.name]["largest_difference"] = max(
            (float(np.abs(g.astype(np.float64) - w).max()) for g, w in zip(side.outputs(names), want) if g.size == w.size), default=math.nan)


def print_table(result, rounds):
    ours = result["sides"]["attnc"]["medians_ms"]
    print(f"\n{result['case']}, {result['threads']} threads, {rounds} rounds")
    print(f"  {'':22s}{'min ms':>9s}{'median ms':>11s}{'ratio':>8s}{'quartiles':>16s}{'max diff':>11s}{'peak MB':>9s}")
    for name, row in result["sides"].items():
        ratios = [t / o for t, o in zip(row["medians_ms"], ours)]
        row["ratio"] = statistics.median(ratios)
        row["quartiles"] = [statistics.quantiles(ratios, n=4, method="inclusive")[i] for i in (0, 2)] if len(ratios) > 1 else ratios * 2
        low, high = row["quartiles"]
        print(f"  {name:22s}{row['min_ms']:9.2f}{statistics.median(row['medians_ms']):11.2f}{row['ratio']:8.2f}"
              f"{low:9.2f} –{high:5.2f}{row['largest_difference']:11.1e}{row['peak_mb']:9.0f}", flush=True)


def measure(name, args):
    case = attention.CASES.get(name)
    folder, sets = prepare(name)
    opened = open_sides(name, folder, sets, args)
    result = {"case": name, "threads": args.threads,
              "sides": {s.name: {"medians_ms": [], "min_ms": math.inf} for s in opened}}
    check_outputs(name, sets, opened, result)
    del sets
    for _ in range(args.rounds):
        for side in opened:
            times = side.times(args.seconds)
            row = result["sides"][side.name]
            row["medians_ms"].append(statistics.median(times))
            row["min_ms"] = min(row["min_ms"], min(times))
    for side in opened:
        result["sides"][side.name].update(side.facts)
    print_table(result, args.rounds)
    if name in models.MODELS:
        verdict.judge(result)
    if name in stored.TARGETS:
        stored.judge(result)
    if name in llamacpp.TARGETS:
        llamacpp.judge(result)
    if case:
        more_about(case, opened[0], result, args)
    for side in opened:
        side.close()
    for path in folder.glob("*.npy"):
        path.unlink()
    return result


def more_about(case, attnc, result, args):
    """What only some cases show: bandwidth of the decoder, memory, time by length."""
    ours = result["sides"]["attnc"]
    if case.kind == "decode":
        result["bandwidth_gbs"] = bandwidth(args.threads)
        result["read_gbs"] = case.key_bytes() / min(ours["medians_ms"]) / 1e6
        print(f"  reads {result['read_gbs']:.1f} GB/s, {100 * result['read_gbs'] / result['bandwidth_gbs']:.0f} % of the "
              f"{result['bandwidth_gbs']:.1f} GB/s that {args.threads} threads read")
    if case.kind == "additive":
        tensors = sum(4 * math.prod(s) for s in case.shapes().values()) / 2**20
        result["intermediate_mb"] = case.intermediate_bytes() / 2**20
        result["workspace_mb"] = workspace(attnc.library)
        print(f"  tanh's argument for all pairs: {result['intermediate_mb']:.0f} MiB; attnc's peak {ours['peak_mb']:.0f} MiB, "
              f"of it {tensors:.1f} MiB inputs")
    if case.sweep:
        sweep(case, attnc, result, args)


def workspace(library):
    done = subprocess.run([TOOLS / "attn-run", "--info", "--json", library], capture_output=True, text=True)
    try:
        return json.loads(done.stdout).get("workspace_bytes", 0) / 2**20
    except ValueError:
        return None


def sweep(case, attnc, result, args):
    """Time and memory of longer sequences, and the slope of log time over log length."""
    points = []
    for length in case.sweep:
        shape = f"{case.batch}x{case.heads}x{length}x{case.size}xf32"
        inputs = [f"--input={n}={shape}=seed:{i}" for i, n in enumerate("qkv")]
        attnc.facts["peak_mb"] = 0
        times = attnc.times(args.seconds, inputs)
        points.append({"length": length, "median_ms": statistics.median(times), "min_ms": min(times), "peak_mb": attnc.facts["peak_mb"],
                       "tensors_mb": 4 * 4 * case.batch * case.heads * length * case.size / 2**20})
        p = points[-1]
        print(f"  {length:7d} tokens {p['min_ms']:10.2f} ms, peak {p['peak_mb']:7.0f} MiB, of it tensors {p['tensors_mb']:6.0f} MiB", flush=True)
    x, y = ([math.log(p[k]) for p in points] for k in ("length", "min_ms"))
    result["sweep"], result["slope"] = points, float(np.polyfit(x, y, 1)[0])
    print(f"  slope of log time over log length: {result['slope']:.3f}")


def bandwidth(threads):
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "bandwidth"
        subprocess.run([os.environ.get("CC", "clang-22"), "-O3", "-march=native", "-pthread",
                        pathlib.Path(__file__).with_name("bandwidth.c"), "-o", program], check=True)
        return float(subprocess.run([program, str(threads)], check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="part of a case's name (default: all): " + ", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.5, help="a side's turn in a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sides", help="these peers only: " + ", ".join(sides.PEERS))
    parser.add_argument("--json", type=pathlib.Path, help="write the results here (default: test/bench/results/DATE-CASES.json)")
    args = parser.parse_args()
    args.forms = "models" in args.cases or "sequence" in args.cases
    args.exposes = "exposed" in args.cases
    asked = [part for part in args.cases if part not in ("models", "sequence", "stored", "llamacpp", "layers", "exposed")]
    pool = list(CASES) if asked else [name for name in CASES if name not in stored.TARGETS | llamacpp.TARGETS and name not in layers.NAMES]
    if args.forms:
        pool = [name for name in models.MODELS if (name in sequence.MODELS) == ("sequence" in args.cases)]
    if "stored" in args.cases:
        pool = list(stored.TARGETS)
    if "llamacpp" in args.cases:
        pool = list(llamacpp.TARGETS)
    if "layers" in args.cases:
        pool = list(layers.NAMES)
    if args.exposes:
        pool, args.sides = EXPOSED, "none"
    chosen = [c for c in pool if not asked or any(part in c for part in asked)]
    if not chosen:
        parser.error(f"no case is called like {args.cases}; there are {', '.join(CASES)}")
    CACHE.mkdir(parents=True, exist_ok=True)
    facts = machine()
    if facts["load_before"] > 0.5:
        print(f"warning: the machine is busy (load {facts['load_before']:.1f}); these figures will not count", file=sys.stderr)
    path = args.json or ROOT / "test" / "bench" / "results" / f"{time.strftime('%Y-%m-%d-%H%M')}-{'-'.join(args.cases) or 'all'}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    results = []
    for case in chosen:  # what was measured stays, whatever becomes of the rest
        results.append(measure(case, args))
        path.write_text(json.dumps({"machine": facts, "results": results}, indent=1) + "\n")
    verdict.print_targets(results)
    if any(r.get("targets") for r in results):
        verdict.draw(results, path.with_suffix(".png"))
    print(f"\nwritten to {path}")
    # Of a file in fewer bits each side rounds in its own places: the difference is reported and judged by the reader.
    return any(r["sides"]["attnc"]["largest_difference"] > 1e-3 for r in results if r["case"] not in stored.TARGETS | llamacpp.TARGETS)


if __name__ == "__main__":
    sys.exit(main())
