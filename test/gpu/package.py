#!/usr/bin/env python3
"""Makes a folder, and a tar of it, with all GPU tests compiled: for a machine with a card and no compiler.

    package.py [--out=build/gpu-tests] [--archs=sm_90a,sm_80] [--filter=TEXT]

Brings along attn-run, attn-bench, libattnrt, build/bin/attnc-static (as bin/attnc) if it has been built, and the libraries
that they need beside libc; and graphs without weights, which are compiled on that machine (card_graphs.py).
"""
import argparse
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import numpy as np
import onnx

import onnxruntime

import card_draws
import card_graphs
import check_kernels
import check_loops
import check_searches
import kernel_cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUNDLED = re.compile(r"(libstdc\+\+|libgcc_s)\S* => (\S+)")


# Of a family; all others run in f32. Errors of rounding lie below the bounds, those of places far above.
PRECISIONS = {"warpgroups": ("bf16", "f16"), "gemm": ("f32", "bf16"), "attention": ("f32", "bf16")}
# What runs first on a card: each instruction by itself.
INSTRUCTION_TESTS = {"PtxInstructionTest": "bin/ptx-instructions", "PtxWarpgroupTest": "bin/ptx-warpgroups"}
BOUNDS = {"f32": 5e-5, "bf16": 2e-2, "f16": 5e-3}
MAX_BYTES = 128 << 10  # of what a case stores: many tiles in one are compared with PyTorch


def bench_models():
    """Name to nodes, inputs, outputs, opset, number of floating-point operations."""
    for n in (1024, 4096):
        a = np.zeros((n, n), np.float32)
        yield f"gemm_{n}", [onnx.helper.make_node("MatMul", ["a", "b"], ["y"])], {"a": a, "b": a}, {"y": a}, 18, 2 * n**3
    for tokens, width in ((1024, 64), (4096, 64), (2048, 128)):
        q = np.zeros((1, 2048 // width, tokens, width), np.float32)
        for causal in (0, 1):
            nodes = [onnx.helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=causal)]
            flops = 4 * 2048 * tokens**2 // (1 + causal)
            yield (f"attention_{tokens}_d{width}" + "_causal" * causal, nodes, {"q": q, "k": q, "v": q}, {"y": q}, 23, flops)


def loops():
    """Of check_loops.py every third case: name, model, its inputs, ONNX Runtime's outputs."""
    for name, (text, cases, _) in check_loops.MODELS.items():
        model = onnx.parser.parse_model(check_loops.HEADER + text)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        outputs = [each.name for each in model.graph.output]
        for number, feeds in enumerate(cases[::3]):
            want = dict(zip(outputs, session.run(outputs, feeds)))
            if all(each.size for each in want.values()):  # of no steps ONNX Runtime does not know the shape
                yield f"loop_{name}_{number}", model, feeds, want


def searches(folder, tools, only):
    """Of check_searches.py each case at its greatest length: name, step, flags, inputs, what a library for the CPU gives."""
    for name, make in check_searches.CASES.items():
        if only not in f"search_{name}":
            continue
        step, given, flags, lengths = make(folder)
        command = [tools / "attnc", f"step={step}", "--max-length=input", *flags]
        search = check_searches.Search(folder, tools, given, flags)
        subprocess.run([*command, "--target=cpu", "-o", folder / "cpu.so"], check=True, capture_output=True)
        status, _, want = search.run("cpu", lengths[-1])
        if not status:
            yield f"search_{name}", step, flags, given | {"max_length": np.array(lengths[-1])}, want


class Package:
    def __init__(self, folder, tools, archs):
        self.folder, self.tools, self.archs, self.refused = folder, tools, archs, []
        self.draws = card_draws.install()
        self.environment = os.environ | {"CUDA_ROOT": str(folder)}  # PTX alone: machine code would double the package

    def stored(self, inputs, outputs):
        """What a case would hold."""
        return sum(a.nbytes for a in (*inputs.values(), *outputs.values()) if not self.draws.recipe(a))

    def add(self, name, path, description, inputs=None, outputs=None, precision="f32", flags=()):
        """One library; refused models are left out and named."""
        case = self.folder / "cases" / name
        case.mkdir(parents=True)
        done = subprocess.run([self.tools / "attnc", path, "--target=cuda", f"--gpu-arch={self.archs}",
                               f"--precision={precision}", "--mcpu=x86-64-v3", *flags, "-o", case / "model.so"], capture_output=True, text=True, errors="replace",
                              env=self.environment)
        if done.returncode:
            self.refused.append(f"{name}: {done.stderr.strip()[:300]}")
            return shutil.rmtree(case)
        for kind, arrays in (("inputs", inputs or {}), ("outputs", outputs or {})):
            description[kind] = {}
            for n, (key, array) in enumerate(arrays.items()):
                recipe = self.draws.recipe(array) if kind == "inputs" else None
                if not recipe:
                    np.save(case / f"{kind}{n}.npy", array)
                description[kind][key] = recipe or f"{kind}{n}.npy"
        (case / "case.json").write_text(json.dumps(description))


def copy_programs(out, tools):
    (out / "bin").mkdir(parents=True)
    (out / "lib").mkdir()
    runtime = tools.parent / "lib/libattnrt.so.0"
    copies = {tools / "attn-run": "bin/attn-run", tools / "attn-bench": "bin/attn-bench", runtime: "lib/libattnrt.so.0"}
    if (tools / "attnc-static").exists():
        copies[tools / "attnc-static"] = "bin/attnc"
    for name, target in INSTRUCTION_TESTS.items():
        copies[tools.parent / "test/unit" / name] = target
    for source, target in copies.items():
        shutil.copy2(source, out / target)
        needed = subprocess.run(["ldd", source], capture_output=True, text=True).stdout
        for _, path in BUNDLED.findall(needed):
            shutil.copy2(path, out / "lib" / pathlib.Path(path).name)
    for source in (ROOT / "test/gpu").glob("on_card*.py"):
        shutil.copy2(source, out / ("run.py" if source.stem == "on_card" else source.name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/gpu-tests")
    parser.add_argument("--tools", type=pathlib.Path, default=ROOT / "build/bin")
    parser.add_argument("--archs", default="sm_90a,sm_80")
    parser.add_argument("--filter", default="")
    args = parser.parse_args()
    if args.out.exists():
        if not (args.out / "run.py").exists():
            sys.exit(f"'{args.out}' exists and is no such package")
        shutil.rmtree(args.out)
    copy_programs(args.out, args.tools)
    package = Package(args.out, args.tools, args.archs)
    model = args.out / "m.onnx"
    for family, cases in kernel_cases.CASES.items():
        for (function, size, options), precision in itertools.product(cases, PRECISIONS.get(family, ("f32",))):
            kernel_cases.PRECISION = precision
            built = function(size)
            for n, (nodes, inputs, weights, outputs) in enumerate(built if isinstance(built, list) else [built]):
                name = f"{family}_{precision}_{function.__name__}_{'x'.join(map(str, size))}_{n}"
                outputs = check_kernels.outputs_as_declared(inputs, outputs)
                if args.filter not in name or package.stored(inputs, outputs) > MAX_BYTES:
                    continue
                source = model
                if isinstance(nodes, str):
                    source = model.with_suffix(".mlir")
                    source.write_text(nodes)
                else:
                    onnx.save(kernel_cases.model(nodes, inputs, outputs, weights, options.get("opset", 18)), model)
                bound = BOUNDS["bf16" if "half" in family else precision]
                bounds = {"rtol": bound, "atol": bound}
                package.add(name, source, bounds, inputs, outputs, precision, options.get("flags", ()))
    for folder in sorted((ROOT / "test/e2e/models").iterdir()):
        first = folder / "inputs_0.npz"
        if args.filter not in folder.name or not first.exists():
            continue
        meta = json.loads((folder / "meta.json").read_text())
        package.add(f"model_{folder.name}", folder / "model.onnx", {"rtol": meta["rtol"], "atol": meta["atol"]},
                    dict(np.load(first)), dict(np.load(folder / "outputs_0.npz")))
    for name, built, inputs, outputs in loops():
        if args.filter in name:
            onnx.save(built, model)
            package.add(name, model, {"rtol": 1e-5, "atol": 1e-5}, inputs, outputs, flags=["--max-loop-iterations=99"])
    with tempfile.TemporaryDirectory() as temporary:
        for name, step, flags, inputs, outputs in searches(pathlib.Path(temporary), args.tools, args.filter):
            package.add(name, f"step={step}", {"rtol": 1e-4, "atol": 1e-5, "entry": "generate"}, inputs, outputs,
                        flags=["--max-length=input", *flags])
    for name, nodes, inputs, outputs, opset, flops in bench_models():
        if args.filter in name:
            onnx.save(kernel_cases.model(nodes, inputs, outputs, opset=opset), model)
            for precision in ("f32", "bf16"):
                package.add(f"bench_{name}_{precision}", model, {"bench": [], "flops": flops, "rtol": 0, "atol": 0},
                            precision=precision)
    beside = card_graphs.write(args.out / "card", args.filter)
    for path in (model, model.with_suffix(".mlir")):
        path.unlink(missing_ok=True)
    archive = args.out.with_suffix(".tar.xz")
    with tarfile.open(archive, "w:xz") as tar:
        tar.add(args.out, arcname=args.out.name)
    cases = len(list(args.out.glob("cases/*/case.json")))
    print(f"{archive}: {archive.stat().st_size / 2**20:.1f} MiB, {cases} cases, {len(beside)} graphs; unpack it and run python3 {args.out.name}/run.py")
    for text in package.refused:
        print(f"refused: {text}")


if __name__ == "__main__":
    sys.exit(main())
