#!/usr/bin/env python3
"""The GEMM kernel beside oneDNN (in OpenVINO) and OpenBLAS (in NumPy), one thread each.

    kernels.py [M...] [--types=f32,bf16,int8,bytes]

Cold figures rotate over more weights than the caches hold, as a network does. Shares are of the peak of fp32 FMAs
measured beside each shape; bf16 products have twice that on a processor with vdpbf16ps at full rate. Shares of bytes
by bytes, for processors that have tdpbusd (AMX) or vpdpbusd, are of what that makes in registers. Results go to
test/bench/results as JSON.
"""
import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

import argparse  # noqa: E402
import json  # noqa: E402
import pathlib  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402

import numpy as np  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = [1, 4, 16, 50, 128, 197, 1024]
COLD_BYTES = 256 << 20
# Least share of the peak, cold, in fp32.
TARGETS = [(128, 0.90), (50, 0.80)]


def best_time(call, seconds=0.25):
    call()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def openblas(m, n, k):
    rng = np.random.default_rng(1)
    a = rng.standard_normal((m, k), np.float32)
    weights = [rng.standard_normal((k, n), np.float32) for _ in range(max(2, COLD_BYTES // (4 * n * k)))]
    c = np.empty((m, n), np.float32)
    hot = best_time(lambda: np.matmul(a, weights[0], out=c))

    def rotate():
        for w in weights:
            np.matmul(a, w, out=c)
    return hot, best_time(rotate) / len(weights)


def onednn(m, n, k, kind):
    """One MatMul a weight, all on one input; a run of them all is cold, of a model with one hot."""
    try:
        import openvino as ov
    except ImportError:
        return None
    from onnx import TensorProto, helper, numpy_helper, save
    rng = np.random.default_rng(1)
    found = []
    for count in (1, max(2, min(64, COLD_BYTES // (4 * n * k)))):
        weights = [numpy_helper.from_array(rng.standard_normal((k, n), np.float32), f"w{i}") for i in range(count)]
        nodes = [helper.make_node("MatMul", ["a", f"w{i}"], [f"c{i}"]) for i in range(count)]
        graph = helper.make_graph(nodes, "gemm", [helper.make_tensor_value_info("a", TensorProto.FLOAT, [m, k])],
                                  [helper.make_tensor_value_info(f"c{i}", TensorProto.FLOAT, [m, n]) for i in range(count)], weights)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "gemm.onnx"
            save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
            compiled = ov.Core().compile_model(str(path), "CPU", {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": kind})
        request, a = compiled.create_infer_request(), rng.standard_normal((m, k), np.float32)
        found.append(best_time(lambda: request.infer({"a": a}, share_inputs=True, share_outputs=True)) / count)
    return found


def ours(kind, rows):
    call = ["bench-integer-gemm"] if kind == "bytes" else ["bench-gemm", kind]
    done = subprocess.run([ROOT / "build" / "bin" / call[0], *call[1:], "--json", *map(str, rows)], check=True, capture_output=True, text=True)
    seen = {}
    for line in done.stdout.splitlines():
        row = json.loads(line)
        seen.setdefault((row["m"], row["n"], row["k"]), row)  # the first of a shape is without an epilogue
    peak = statistics.median(row["peak_gf"] for row in seen.values())
    return [row | {"peak_gf": peak} for row in seen.values()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", type=int, metavar="M")
    parser.add_argument("--types", default="f32,bf16,int8")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    from machine import machine
    facts, results = machine(), []
    print(f"{'type':5s}{'M':>6s}{'N':>6s}{'K':>6s} |{'ours hot':>9s}{'cold':>7s}{'share':>7s}{'GB/s':>7s} |{'oneDNN':>8s}{'cold':>7s} |{'OpenBLAS':>9s}{'cold':>7s}")
    for kind in args.types.split(","):
        for row in ours(kind, args.rows or ROWS):
            m, n, k = row["m"], row["n"], row["k"]
            flops = 2e-9 * m * n * k
            peers = {}
            if not args.no_peers and kind in ("f32", "bf16"):
                peers["onednn"] = onednn(m, n, k, kind)
            if not args.no_peers and kind == "f32":
                peers["openblas"] = openblas(m, n, k)
            row |= {name: [flops / t for t in times] for name, times in peers.items() if times}
            row["share"] = row["cold_gf"] / row["peak_gf"]
            target = next((share for least, share in TARGETS if m >= least), None) if kind == "f32" else None
            row["met"] = None if target is None else row["share"] >= target
            shown = " |".join("".join(f"{g:8.0f}" for g in row.get(name, [])) or " " * 15 for name in ("onednn", "openblas"))
            print(f"{kind:5s}{m:6d}{n:6d}{k:6d} |{row['hot_gf']:9.0f}{row['cold_gf']:7.0f}{100 * row['share']:6.0f}%{row['cold_gbs']:7.1f} |{shown}"
                  f"  {'' if row['met'] is None else 'met' if row['met'] else 'missed'}", flush=True)
            results.append(row)
    path = args.json or ROOT / "test" / "bench" / "results" / f"{time.strftime('%Y-%m-%d-%H%M')}-kernels.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": facts, "results": results}, indent=1) + "\n")
    print(f"\nwritten to {path}")


if __name__ == "__main__":
    main()
