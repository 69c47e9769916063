#!/usr/bin/env python3
"""attnc beside its peers, alternating in one run, on the same inputs and threads.

    bench.py [CASE...] [--rounds=12] [--threads=2]

A round lets every side run the case for a while, one after the other; each
round gives one ratio (the peer's median over ours). The median of the ratios
and their quartiles count: above 1, attnc is faster. Every side's outputs are
first compared with ONNX Runtime's. Exit status 1 when outputs differ.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "build" / "bin"
sys.path.insert(0, str(ROOT / "tools" / "demo"))
CACHE = ROOT / ".cache" / "bench"


def minilm(batch, length):
    """all-MiniLM-L6-v2 as the demo writes it, on `batch` x `length` tokens without padding."""
    from demo import fetch_model
    from minilm import write_minilm
    path = CACHE / "minilm.onnx"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        write_minilm(fetch_model(ROOT / ".cache" / "minilm"), path)
    ids = np.random.default_rng(1).integers(1000, 30000, (batch, length))
    return path, {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


CASES = {
    "minilm-b1-s32": lambda: minilm(1, 32),
    "minilm-b1-s128": lambda: minilm(1, 128),
    "minilm-b8-s16": lambda: minilm(8, 16),
    "minilm-b16-s128": lambda: minilm(16, 128),
}


class Attnc:
    name = "attnc"

    def __init__(self, model, feeds, threads, folder):
        self.library = folder / "model.so"
        start = time.perf_counter()
        subprocess.run([TOOLS / "attnc", model, "-o", self.library], check=True)
        self.load_seconds = time.perf_counter() - start
        self.flags = [f"--threads={threads}"]
        for name, value in feeds.items():
            np.save(folder / f"{name}.npy", value)
            self.flags.append(f"--input={name}=@{folder / name}.npy")
        self.folder = folder

    def outputs(self, names):
        subprocess.run([TOOLS / "attn-run", self.library, *self.flags,
                        *(f"--output={n}=@{self.folder / n}.npy" for n in names)], check=True, stdout=subprocess.DEVNULL)
        return [np.load(self.folder / f"{n}.npy") for n in names]

    def times(self, seconds):
        done = subprocess.run([TOOLS / "attn-bench", self.library, *self.flags, f"--min-time={seconds}", "--json"],
                              check=True, capture_output=True, text=True)
        return json.loads(done.stdout)["times_ms"]


class InProcess:
    def times(self, seconds):
        for _ in range(3):
            self.call()
        times, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 3:
            start = time.perf_counter()
            self.call()
            times.append((time.perf_counter() - start) * 1e3)
        return times


class OnnxRuntime(InProcess):
    name = "onnxruntime"

    def __init__(self, model, feeds, threads, folder):
        import onnxruntime as ort
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Its workers would spin into the other sides' turns.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        start = time.perf_counter()
        self.session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.load_seconds = time.perf_counter() - start
        self.feeds = feeds

    def names(self):
        return [o.name for o in self.session.get_outputs()]

    def call(self):
        return self.session.run(None, self.feeds)

    def outputs(self, names):
        return self.call()


class OpenVino(InProcess):
    name = "openvino"

    def __init__(self, model, feeds, threads, folder):
        import openvino as ov
        core = ov.Core()
        start = time.perf_counter()
        graph = core.read_model(str(model))
        graph.reshape({name: ov.PartialShape(list(value.shape)) for name, value in feeds.items()})
        compiled = core.compile_model(graph, "CPU", {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1,
                                                     "INFERENCE_PRECISION_HINT": "f32"})
        self.load_seconds = time.perf_counter() - start
        self.request, self.feeds = compiled.create_infer_request(), feeds

    def call(self):
        return self.request.infer(self.feeds, share_inputs=True, share_outputs=True)

    def outputs(self, names):
        result = self.call()
        return [np.array(result[n]) for n in names]


def measure(case, args):
    model, feeds = CASES[case]()
    folder = CACHE / case
    folder.mkdir(parents=True, exist_ok=True)
    sides = []
    for side in (Attnc, OnnxRuntime, OpenVino):
        try:
            sides.append(side(model, feeds, args.threads, folder))
        except ImportError:
            print(f"  {side.name} is not installed, left out", flush=True)
    peer = next(s for s in sides if s.name == "onnxruntime")
    names = peer.names()
    want = peer.outputs(names)
    result = {"case": case, "threads": args.threads, "sides": {}}
    for side in sides:
        worst = max(float(np.abs(g.astype(np.float64) - w).max()) for g, w in zip(side.outputs(names), want))
        result["sides"][side.name] = {"largest_difference": worst, "load_seconds": side.load_seconds, "medians_ms": [], "min_ms": float("inf")}
    for _ in range(args.rounds):
        for side in sides:
            times = side.times(args.seconds)
            row = result["sides"][side.name]
            row["medians_ms"].append(statistics.median(times))
            row["min_ms"] = min(row["min_ms"], min(times))
    ours = result["sides"]["attnc"]["medians_ms"]
    print(f"\n{case}, {args.threads} threads, {args.rounds} rounds")
    print(f"  {'':14s}{'min ms':>9s}{'median ms':>11s}{'ratio':>8s}{'quartiles':>16s}{'max diff':>11s}")
    for name, row in result["sides"].items():
        ratios = [t / o for t, o in zip(row["medians_ms"], ours)]
        row["ratio"] = statistics.median(ratios)
        low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
        print(f"  {name:14s}{row['min_ms']:9.2f}{statistics.median(row['medians_ms']):11.2f}{row['ratio']:8.2f}"
              f"{low:9.2f} –{high:5.2f}{row['largest_difference']:11.1e}", flush=True)
    return result


def machine():
    with open("/proc/cpuinfo") as f:
        model = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), platform.processor())
    return {"cpu": model, "cores": os.cpu_count(), "system": platform.platform(terse=True)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="part of a case's name (default: all): " + ", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.5, help="a side's turn in a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    args = parser.parse_args()
    chosen = [c for c in CASES if not args.cases or any(part in c for part in args.cases)]
    if not chosen:
        parser.error(f"no case is called like {args.cases}; there are {', '.join(CASES)}")
    results = [measure(case, args) for case in chosen]
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n")
    return any(row["largest_difference"] > 1e-3 for r in results for row in r["sides"].values())


if __name__ == "__main__":
    sys.exit(main())
