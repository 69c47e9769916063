#!/usr/bin/env python3
"""Makes a folder, and a tar of it, with all GPU tests compiled: for a machine with a card and no compiler.

    package.py [--out=build/gpu-tests] [--archs=sm_90a] [--filter=PATTERN] [--call=quick|bench|ncu]

Machine code goes in where ptxas is at hand. Inputs are drawn again there, and of large outputs some rows are stored.
Brings along attn-run, attn-bench, libattnrt, attnc (but with --without-attnc, because packing it takes a minute), and the
libraries that they need beside libc; and graphs without weights, which are compiled on that machine (card_graphs.py). With
--call only what that call of run.py uses, which is half as large.
"""
import argparse
import itertools
import json
import lzma
import math
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
PRECISIONS = {"warpgroups": ("bf16", "f16"), "ir_warpgroups": ("bf16",), "gemm": ("f32", "bf16"), "attention": ("f32", "bf16")}
# Of these cuBLASLt makes products, too, and does not round what it need not.
PRODUCTS = ("gemm", "gemv", "half", "warpgroups")
# What is run first: what has most that no interpreter can check. The first that is found in a case's name.
RISKS = ("warpgroups_.*(weights|matmul|gemm|large)", "warpgroups", "gemm_bf16", "attention_bf16", "half", "gemv", "recurrent", "search",
         "loop", "model")
# What runs first on a card: each instruction by itself.
INSTRUCTION_TESTS = {"PtxInstructionTest": "bin/ptx-instructions", "PtxTileTest": "bin/ptx-tiles", "PtxWarpgroupTest": "bin/ptx-warpgroups"}
BOUNDS = {"f32": 5e-5, "bf16": 2e-2, "f16": 5e-3}
# Of an output, beyond which some rows are stored; of what else a case may store. Many tiles in one are compared with PyTorch.
SAMPLED, MAX_BYTES = 6 << 10, 640 << 10
TOGETHER = 12  # entries of a library
SMALL = 1e7  # floating-point operations, of what is timed in a rehearsal alone


def bench_models():
    """Name, nodes, inputs, outputs, opset, number of floating-point operations; of each kind a small one, for a rehearsal."""
    for n in (128, 1024, 4096):
        a = np.zeros((n, n), np.float32)
        yield f"gemm_{n}", [onnx.helper.make_node("MatMul", ["a", "b"], ["y"])], {"a": a, "b": a}, {"y": a}, 18, 2 * n**3
    for tokens, width, heads in ((64, 128, 2), (1024, 64, 32), (4096, 64, 32), (2048, 128, 16)):
        q = np.zeros((1, heads, tokens, width), np.float32)
        for causal in (0, 1):
            nodes = [onnx.helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=causal)]
            flops = 4 * heads * width * tokens**2 // (1 + causal)
            yield (f"attention_{tokens}_d{width}" + "_causal" * causal, nodes, {"q": q, "k": q, "v": q}, {"y": q}, 23, flops)
    for n in (256, 4096):
        x, w, c = np.zeros((1, n), np.float32), np.zeros((n, n), np.float32), np.zeros(n, np.float32)
        yield f"gemv_{n}", [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x, "w": w}, {"y": x}, 18, 2 * n**2
        nodes = [onnx.helper.make_node("LayerNormalization", ["x", "s", "b"], ["y"])]
        yield f"layer_norm_{n}", nodes, {"x": w, "s": c, "b": c}, {"y": w}, 18, 8 * n**2


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
        if not re.search(only, f"search_{name}"):
            continue
        step, given, flags, lengths = make(folder)
        command = [tools / "attnc", f"step={step}", "--max-length=input", *flags]
        search = check_searches.Search(folder, tools, given, flags)
        subprocess.run([*command, "--target=cpu", "-o", folder / "cpu.so"], check=True, capture_output=True)
        status, _, want = search.run("cpu", lengths[-1])
        if not status:
            yield f"search_{name}", step, flags, given | {"max_length": np.array(lengths[-1])}, want


def sampled(array):
    """Rows of the last dimension that stand for an output: those at its ends and others, as many as may be stored, and one
    that is not finite where there is one: without it none would be expected in the output."""
    rows = array.size // array.shape[-1]
    count = min(rows, max(8, SAMPLED // max(1, array.shape[-1] * array.itemsize)))
    others = np.random.default_rng(rows).choice(rows, count, replace=False)
    notFinite = np.flatnonzero(~np.isfinite(array.astype(float).reshape(rows, -1)).all(axis=1))[:1]
    return np.unique(np.concatenate([others, np.arange(rows)[:2], np.arange(rows)[-2:], notFinite]))


def shortened(array, bound):
    """Numbers of f32 without the bits that lie far below the bound, so that they take less: off by a 256th of it."""
    cut = min(20, 23 - math.ceil(-math.log2(bound / 256)) + 1) if bound and array.dtype == np.float32 else 0
    if cut <= 0:
        return array
    bits = np.ascontiguousarray(array).view(np.uint32)
    rounded = ((bits + (1 << (cut - 1))) >> cut << cut).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(array) & np.isfinite(rounded), rounded, array)


def rounded_up(array):
    """To the next f32 whose low half is zero, so that it takes less."""
    return (np.ascontiguousarray(np.nan_to_num(array, posinf=0), np.float32).view(np.uint32) + 0xFFFF & 0xFFFF0000).view(np.float32)


class Package:
    def __init__(self, folder, tools, archs):
        self.folder, self.tools, self.archs, self.refused, self.libraries = folder, tools, archs, [], 0
        self.exact = {}  # of cases with products: outputs of factors that nobody rounds
        self.draws = card_draws.install()

    def is_small(self, inputs):
        """What cannot be drawn again is stored."""
        recipes = {name: self.draws.recipe(a) for name, a in inputs.items()}
        return sum(recipes[name][1].nbytes if recipes[name] else a.nbytes for name, a in inputs.items()) <= MAX_BYTES

    def compile(self, sources, library, precision, flags):
        """What attnc says when it refuses, or None."""
        library.parent.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([self.tools / "attnc", *sources, "--target=cuda", f"--gpu-arch={self.archs}", f"--precision={precision}",
                               "--mcpu=x86-64-v3", *flags, "-o", library], capture_output=True, text=True, errors="replace")
        return done.stderr.strip()[:300] if done.returncode else None

    def describe(self, name, description, inputs, outputs, exact=None, slack=None):
        """`exact`, `slack`: of outputs, as Package.exact and as Bounded has it."""
        case = self.folder / "cases" / name
        case.mkdir(parents=True, exist_ok=True)
        risk = next((n for n, pattern in enumerate(RISKS) if re.search(pattern, name)), len(RISKS))
        description |= {"risk": risk, "inputs": {}, "outputs": {}}
        for n, (key, array) in enumerate((inputs or {}).items()):
            file = f"inputs{n}.npy"
            recipe, stored = self.draws.recipe(array) or (file, array)
            if stored.size or recipe == file:
                np.save(case / file, stored)
            if stored is not array and stored.size:
                recipe["changed"] = file
            description["inputs"][key] = recipe
        for n, (key, array) in enumerate((outputs or {}).items()):
            stored = {"file": f"outputs{n}.npy"}
            if array.nbytes > SAMPLED and array.ndim > 1:
                rows = sampled(array)
                stored["rows"], array = rows.tolist(), array.reshape(-1, array.shape[-1])[rows]
            bound = min(description["rtol"], description["atol"])
            np.save(case / stored["file"], shortened(array, bound))
            if exact and not np.allclose(exact[key].reshape(-1), outputs[key].reshape(-1), rtol=0, atol=bound / 16):
                stored["exact"] = f"exact{n}.npy"
                wide = exact[key].reshape(-1, exact[key].shape[-1])[stored["rows"]] if "rows" in stored else exact[key]
                np.save(case / stored["exact"], shortened(wide, bound))
            if slack and np.any(slack[key]):
                stored["slack"] = f"slack{n}.npy"
                wide = slack[key].reshape(-1, slack[key].shape[-1])[stored["rows"]] if "rows" in stored else slack[key]
                np.save(case / stored["slack"], rounded_up(wide))
            description["outputs"][key] = stored
        (case / "case.json").write_text(json.dumps(description))

    def add(self, name, path, description, inputs=None, outputs=None, precision="f32", flags=()):
        """One library of its own; refused models are left out and named."""
        case = self.folder / "cases" / name
        if text := self.compile([path], case / "model.so", precision, flags):
            self.refused.append(f"{name}: {text}")
            return shutil.rmtree(case)
        self.describe(name, description, inputs, outputs)

    def add_together(self, cases, precision, description):
        """Cases of check_kernels.py as entries of one library; one that is refused is found alone."""
        self.libraries += 1
        library = self.folder / "libraries" / f"{self.libraries}.so"
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            sources = [check_kernels.source(folder, f"e{n}", built, options) for n, (_, built, options) in enumerate(cases)]
            if isinstance(cases[0][1][0], str):
                (folder / "m.mlir").write_text("\n".join(sources))
                sources = [folder / "m.mlir"]
            text = self.compile(sources, library, precision, cases[0][2].get("flags", ()))
        if text and len(cases) == 1:
            return self.refused.append(f"{cases[0][0]}: {text}")
        if text:
            for case in cases:
                self.add_together([case], precision, description)
            return None
        for n, (name, (_, inputs, _, outputs), _) in enumerate(cases):
            entry = {"library": f"../../libraries/{library.name}", "entry": f"e{n}"}
            slack = {key: check_kernels.slack_of(each) for key, each in outputs.items()}
            outputs, exact = (check_kernels.outputs_as_declared(inputs, each) for each in (outputs, self.exact.get(name, outputs)))
            self.describe(name, description | entry, inputs, outputs, exact, slack)

    def add_family(self, family, precision, wanted):
        cases, called = [], lambda label: f"{family}_{precision}_" + re.sub(r"[^\w.-]+", "_", label)
        if precision != "f32" and family in PRODUCTS:
            with self.draws.again():
                kernel_cases.PRECISION = "f32"
                for label, built, _ in check_kernels.cases_of(family, lambda label: re.search(wanted, called(label))):
                    self.exact[called(label)] = built[3]
        kernel_cases.PRECISION = precision
        for label, built, options in check_kernels.cases_of(family, lambda label: re.search(wanted, called(label))):
            outputs = check_kernels.outputs_as_declared(built[1], built[3])
            if self.is_small(built[1]) and not any(a.size == 0 for a in (*built[1].values(), *outputs.values())):
                cases.append((called(label), built, options))
        bound = BOUNDS["bf16" if "half" in family else precision]
        description = {"rtol": bound, "atol": bound, "products": family in PRODUCTS}
        alike = lambda case: (case[2].get("flags", []), isinstance(case[1][0], str))
        for _, group in itertools.groupby(sorted(cases, key=alike), alike):
            group = list(group)
            for first in range(0, len(group), TOGETHER):
                self.add_together(group[first:first + TOGETHER], precision, description)


def add_tests(package, wanted):
    for family in kernel_cases.CASES:
        for precision in PRECISIONS.get(family, ("f32",)):
            package.add_family(family, precision, wanted)
    # Of a model that several exporters have written the last one, and every other of these: kernels have cases of their own.
    models = {folder.name.rpartition("_")[0]: folder for folder in sorted((ROOT / "test/e2e/models").iterdir())}
    for folder in list(models.values())[::2]:
        first = folder / "inputs_0.npz"
        if not re.search(wanted, f"model_{folder.name}") or not first.exists():
            continue
        meta = json.loads((folder / "meta.json").read_text())
        package.add(f"model_{folder.name}", folder / "model.onnx", {"rtol": meta["rtol"], "atol": meta["atol"], "products": True},
                    dict(np.load(first)), dict(np.load(folder / "outputs_0.npz")))
    with tempfile.TemporaryDirectory() as temporary:
        model = pathlib.Path(temporary) / "m.onnx"
        for name, built, inputs, outputs in loops():
            if re.search(wanted, name):
                onnx.save(built, model)
                package.add(name, model, {"rtol": 1e-5, "atol": 1e-5}, inputs, outputs, flags=["--max-loop-iterations=99"])
        for name, step, flags, inputs, outputs in searches(pathlib.Path(temporary), package.tools, wanted):
            package.add(name, f"step={step}", {"rtol": 1e-4, "atol": 1e-5, "entry": "generate"}, inputs, outputs,
                        flags=["--max-length=input", *flags])


def copy_programs(out, tools, with_attnc, calls):
    (out / "bin").mkdir(parents=True)
    (out / "lib").mkdir()
    runtime = tools.parent / "lib/libattnrt.so.0"
    copies = {tools / "attn-run": "bin/attn-run", tools / "attn-bench": "bin/attn-bench", runtime: "lib/libattnrt.so.0"}
    if "bench" in calls and with_attnc:
        copies[tools / "attnc"] = "bin/attnc"
    for name, target in INSTRUCTION_TESTS.items() if "quick" in calls else ():
        copies[tools.parent / "test/unit" / name] = target
    for source, target in copies.items():
        shutil.copy2(source, out / target)
        needed = subprocess.run(["ldd", source], capture_output=True, text=True).stdout
        for _, path in BUNDLED.findall(needed):
            shutil.copy2(path, out / "lib" / pathlib.Path(path).name)
    for source in (ROOT / "test/gpu").glob("on_card*.py"):
        shutil.copy2(source, out / ("run.py" if source.stem == "on_card" else source.name))


def pack(folder, archive):
    """A tar whose parts are compressed as what they hold wants it: code of the CPU, libraries, which are text and machine code
    of GPUs and have much in common, and numbers of four bytes."""
    best = {"id": lzma.FILTER_LZMA2, "preset": 9}
    parts = {"programs": [{"id": lzma.FILTER_X86}, best], "libraries": [best], "numbers": [best | {"lc": 2, "lp": 2}]}
    part_of = lambda path: "programs" if path.parent.name == "bin" else "numbers" if path.suffix == ".npy" else "libraries"
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    with tempfile.TemporaryFile() as plain, open(archive, "wb") as packed:
        ends = [0]
        with tarfile.open(fileobj=plain, mode="w") as tar:
            for part in parts:
                for path in files:
                    if part_of(path) == part:
                        tar.add(path, arcname=path.relative_to(folder.parent))
                ends.append(plain.tell())
        ends[-1] = plain.seek(0, 2)  # and what ends a tar
        plain.seek(0)
        for filters, begin, end in zip(parts.values(), ends, ends[1:]):
            packed.write(lzma.compress(plain.read(end - begin), filters=filters))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/gpu-tests")
    parser.add_argument("--tools", type=pathlib.Path, default=ROOT / "build/bin")
    parser.add_argument("--archs", default="sm_90a")
    parser.add_argument("--filter", default="", help="a regular expression: only what has it in its name")
    parser.add_argument("--without-attnc", action="store_true", help="without the compiler: what it would compile on the card is left out")
    parser.add_argument("--call", choices=("quick", "bench", "ncu"), help="of run.py: only what it uses")
    args = parser.parse_args()
    if args.out.exists():
        if not (args.out / "run.py").exists():
            sys.exit(f"'{args.out}' exists and is no such package")
        shutil.rmtree(args.out)
    calls = {args.call} if args.call else {"quick", "bench", "ncu"}
    copy_programs(args.out, args.tools, not args.without_attnc, calls)
    package = Package(args.out, args.tools, args.archs)
    if "quick" in calls:
        add_tests(package, args.filter)
    model = args.out / "m.onnx"
    for name, nodes, inputs, outputs, opset, flops in bench_models():
        if re.search(args.filter, f"bench_{name}") and calls & {"bench", "ncu"}:
            onnx.save(kernel_cases.model(nodes, inputs, outputs, opset=opset), model)
            for precision in ("f32", "bf16"):
                package.add(f"bench_{name}_{precision}", model, {"bench": [], "flops": flops, "small": flops < SMALL, "rtol": 0, "atol": 0},
                            precision=precision)
    model.unlink(missing_ok=True)
    beside = card_graphs.write(args.out / "card", args.filter) if "bench" in calls else []
    archive = args.out.with_suffix(".tar.xz")
    pack(args.out, archive)
    cases = len(list(args.out.glob("cases/*/case.json")))
    print(f"{archive}: {archive.stat().st_size / 2**20:.1f} MiB, {cases} cases, {len(beside)} graphs; unpack it and run python3 {args.out.name}/run.py")
    for text in package.refused:
        print(f"refused: {text}")


if __name__ == "__main__":
    sys.exit(main())
