#!/usr/bin/env python3
"""Models of test/e2e/models as exporters write them in half precision, compiled for CUDA.

    half_models.py FOLDER... [--tools=build/bin] [--arch=sm_80]     with build/test/gpu/lib on LD_LIBRARY_PATH

What is f32 in a model becomes f16. It has as many kernels of attentions as in f32, and no more products or rows are
plain loops. The results lie within twice the error of ONNX Runtime, which rounds behind each op, of the numbers that
the same weights give in f32.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper


def half(array):
    """The nearest f16 that is finite, or the infinity that is there."""
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float16)
    return np.where(np.isinf(narrow) & np.isfinite(array), np.copysign(np.float16(65504), array), narrow).astype(np.float16)


def in_half(model, wide):
    """`model` with f16 for f32; `wide`: in f32 on the numbers of f16."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    kind, dtype = (TensorProto.FLOAT, np.float32) if wide else (TensorProto.FLOAT16, np.float16)

    def tensor(t):
        if t.data_type == TensorProto.FLOAT:
            t.CopyFrom(numpy_helper.from_array(half(numpy_helper.to_array(t)).astype(dtype), t.name))

    def graph(g):
        del g.value_info[:]
        for value in [*g.input, *g.output]:
            if value.type.tensor_type.elem_type == TensorProto.FLOAT:
                value.type.tensor_type.elem_type = kind
        for t in g.initializer:
            tensor(t)
        for node in g.node:
            for a in node.attribute:
                if a.type == onnx.AttributeProto.TENSOR:
                    tensor(a.t)
                elif a.type == onnx.AttributeProto.GRAPH:
                    graph(a.g)
                elif node.op_type == "Cast" and a.name == "to" and a.i == TensorProto.FLOAT:
                    a.i = kind
                elif node.op_type == "Constant" and a.name == "value_float":
                    a.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(half(np.float32(a.f)).astype(dtype))))

    graph(model.graph)
    return model


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600, errors="replace")
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nexit status {done.returncode}\n{done.stdout}{done.stderr}")


def session(model):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def check(folder, tools, arch, temporary):
    meta = json.loads((folder / "meta.json").read_text())
    model = onnx.load(folder / "model.onnx")
    narrow, wide = in_half(model, False), in_half(model, True)
    onnx.save(narrow, temporary / "m.onnx")
    for emit, path in (("lib", "m.so"), ("ptx", "m.ptx")):
        run([tools / "attnc", temporary / "m.onnx", "-o", temporary / path, "--target=cuda", f"--gpu-arch={arch}", f"--emit={emit}",
             f"--require-fused={meta['attention']}"])
    run([tools / "attnc", folder / "model.onnx", "-o", temporary / "wide.ptx", "--target=cuda", f"--gpu-arch={arch}", "--emit=ptx"])
    ptx = (temporary / "m.ptx").read_text()
    count = lambda name: [len(re.findall(rf"\.entry {name}", text)) for text in (ptx, (temporary / "wide.ptx").read_text())]
    (kernels, expected), (loops, most) = count("attention"), count("reduction")
    problems = [] if kernels == expected > 0 else [f"{kernels} kernels of attentions, {expected} in f32"]
    if loops > most:
        problems.append(f"{loops} reductions by plain loops, {most} in f32")
    feeds = {name: half(x) if x.dtype == np.float32 else x for name, x in np.load(folder / "inputs_0.npz").items()}
    command = [tools / "attn-run", temporary / "m.so"]
    for n, (name, x) in enumerate(feeds.items()):
        np.save(temporary / f"in{n}.npy", x)
        command.append(f"--input={name}=@{temporary / f'in{n}.npy'}")
    names = [value.name for value in narrow.graph.output]
    run(command + [f"--output={name}=@{temporary / f'out{n}.npy'}" for n, name in enumerate(names)])
    exact = session(wide).run(names, {name: x.astype(np.float32) if x.dtype == np.float16 else x for name, x in feeds.items()})
    rounded = session(narrow).run(names, feeds)
    for n, (name, want, other) in enumerate(zip(names, exact, rounded)):
        got = np.load(temporary / f"out{n}.npy")
        if want.dtype.kind != "f":
            continue
        if got.dtype != np.float16 or got.shape != want.shape:
            problems.append(f"output {name}: {got.dtype} {got.shape}")
            continue
        unit = 2.0 ** -11 * np.abs(want).max()
        error, allowed = np.abs(got - want).max(), 2 * np.abs(other - want).max() + unit
        if not error <= allowed:
            problems.append(f"output {name} is off by {error:.2e}, beyond {allowed:.2e}")
    for problem in problems:
        print(f"{folder.name}: {problem}")
    form = "matrices" if "mma.sync" in ptx else "warpgroups" if "wgmma" in ptx else "threads"
    print(f"{folder.name}: {'failed' if problems else 'passed'}, {kernels} kernels of attentions, {form}")
    return bool(problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=pathlib.Path, nargs="+")
    parser.add_argument("--tools", type=pathlib.Path, default=pathlib.Path("build/bin"))
    parser.add_argument("--arch", default="sm_80")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        return int(any([check(folder, args.tools, args.arch, pathlib.Path(temporary)) for folder in args.folders]))


if __name__ == "__main__":
    sys.exit(main())
