#!/usr/bin/env python3
"""Kernels for the GPU on small models against numpy in float64.

    check_kernels.py FAMILY [--tools=build/bin]     with build/test/gpu/lib on LD_LIBRARY_PATH

Each case is an ONNX model that is compiled for CUDA and run. Sizes lie on both
sides of every tile. Says how many multiply-adds the loops of the PTX have for
each access of shared memory. With a precision below f32 the reference rounds the
operands of products as the kernels are to, so that the bound stays that of f32.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx

import half_cases  # noqa: F401  its cases are among those
import kernel_cases
from kernel_cases import CASES, SIZES, TURNED, Bounded, model


def run(command, environment=None, log=None):
    """What a failing command says, or None; `log` gets what it tells in any case."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, errors="replace",
                          env=environment)
    if log is not None:
        log.append(done.stderr)
    return done.stdout + done.stderr if done.returncode else None


def spilled(ptx, folder):
    """What ptxas complains of."""
    for arch in ("sm_80", "sm_90a", "sm_100") if kernel_cases.ARCH == "sm_80" else ("sm_90a",):
        done = subprocess.run(["ptxas", "-v", f"-arch={arch}", ptx, "-o", folder / "m.cubin"], capture_output=True, text=True)
        if done.returncode or "warning" in done.stderr or re.search(r"[1-9]\d* bytes spill", done.stderr):
            return f"ptxas for {arch}: {done.stderr}"
    return None


def check(tools, folder, name, built, options, ptxas=False):
    nodes, inputs, weights, outputs = built
    source = folder / ("m.mlir" if isinstance(nodes, str) else "m.onnx")
    if isinstance(nodes, str):
        source.write_text(nodes)
    else:
        onnx.save(model(nodes, inputs, outputs_as_declared(inputs, outputs), weights, options.get("opset", 18), options.get("free")), source)
    library, ptx, log = folder / "m.so", folder / "m.ptx", []
    for path, emit in ((library, "lib"), (ptx, "ptx")):
        if text := run([tools / "attnc", source, "--target=cuda", f"--gpu-arch={kernel_cases.ARCH}",
                        f"--precision={kernel_cases.PRECISION}", f"--emit={emit}", *options.get("flags", []), "-o", path], log=log):
            return f"{name}: {text}"
    command = [tools / "attn-run", library]
    for key, array in inputs.items():
        isBf16 = kernel_cases.BUFFERS == "bf16" and array.dtype == np.float16
        np.save(folder / f"{key}.npy", array.astype(ml_dtypes.bfloat16) if isBf16 else array)
        command.append(f"--input={key}=@{folder / key}.npy")
    command += [f"--output={key}=@{folder / key}.out.npy" for key in outputs]
    fake = ",".join(filter(None, (os.environ.get("ATTN_FAKE_CUDA"), options.get("fake"))))
    if text := run(command, os.environ | {"ATTN_FAKE_CUDA": fake}, log):
        return f"{name}: {text}"
    text = ptx.read_text()
    shared = len(re.findall(r"\sld\.shared", text))
    for key, want in outputs.items():
        got = np.load(folder / f"{key}.out.npy")
        got = (got.view(ml_dtypes.bfloat16) if got.dtype.kind == "V" else got).astype(float)  # NumPy knows no bf16
        want, slack = (want.want, want.slack) if isinstance(want, Bounded) else (want, 0)
        # The bound of a sum in f32 by its terms would be wider.
        if got.shape != want.shape:
            return f"{name}: output {key} has the shape {got.shape}, not {want.shape}"
        with np.errstate(invalid="ignore"):
            isNear = np.abs(got - want) - slack <= 2e-5 + 2e-5 * np.abs(want)
        if not (isNear | (got == want) | (np.isnan(got) & np.isnan(want))).all():
            return f"{name}: output {key} is off by {np.nanmax(np.abs(got - want)):.2e}"
    if spills := ptxas and spilled(ptx, folder):
        return f"{name}: {spills}"
    uses = "the CPU" if "runs on the CPU" in log[0] else "the library of 16 bits" if re.search("types (2 x 2|14 x 14) ", log[2]) else "the library" if "fake cublasLt:" in log[2] else "a grid" if "ld.acquire.gpu" in text else "a warpgroup" if "wgmma" in text else "a matrix" if "mma.sync" in text else "a tile" if "cp.async" in text else "a line" if "shfl" in text and "fma" in text and "ld.global.v" in text else "a row" if "shfl" in text else "no kernel"
    print(f"{name}: ok, {uses}, {len(re.findall('fma.rn.f32', text))} fma, {shared} shared loads")
    return None


def outputs_as_declared(inputs, outputs):
    """In the types of the model: of one on f64 that, else f32, unless a case says."""
    isDouble = any(array.dtype == np.float64 for array in inputs.values())
    declared = lambda array: array if isDouble else array.astype(np.float32)
    return {name: array.want.astype(array.dtype) if isinstance(array, Bounded) else declared(array)
            for name, array in outputs.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=sorted(CASES))
    parser.add_argument("--tools", type=pathlib.Path, default=pathlib.Path("build/bin"))
    parser.add_argument("--filter", default="")
    parser.add_argument("--part", default="1/1", help="N/M: each M-th case, from the N-th on")
    parser.add_argument("--precision", default="f32", choices=("f32", "tf32", "bf16", "f16"))
    parser.add_argument("--buffers", default="f32", choices=("f32", "bf16", "f16"), help="of attentions in IR")
    parser.add_argument("--ptxas", action="store_true", help="let ptxas look for spills, too")
    parser.add_argument("--arch", default="sm_80", help="as attnc's --gpu-arch")
    args = parser.parse_args()
    kernel_cases.PRECISION, kernel_cases.ARCH, kernel_cases.BUFFERS = args.precision, args.arch, args.buffers
    problems = 0
    with tempfile.TemporaryDirectory() as temporary:
        part, parts = map(int, args.part.split("/"))
        for function, size, options in CASES[args.family][part - 1::parts]:
            if args.filter not in f"{function.__name__} {'x'.join(map(str, size))}":
                continue
            built = function(size)
            if "d" in str(size[-1]):
                options = options | {"free": TURNED if "t" in size[-1] else SIZES}
            for n, one in enumerate(built if isinstance(built, list) else [built]):
                name = f"{function.__name__} {'x'.join(map(str, size))}" + (f" #{n}" if n else "")
                if text := check(args.tools, pathlib.Path(temporary), name, one, options, args.ptxas):
                    problems += 1
                    print(f"FAILED {text}")
    print(f"{args.family}: {problems} problems")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
