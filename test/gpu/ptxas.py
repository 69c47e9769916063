"""What ptxas makes of the kernels of models: registers and shared memory; spills and warnings are errors.

    ptxas.py MODEL.onnx ... --tools=build/bin [--precision=f32,bf16] [--json=FILE]

Each model is compiled for sm_80, whose PTX is assembled for sm_80 and sm_100 (a newer GPU takes it), and for sm_90a.
Prints a line a model and target; --json writes each kernel's figures. Exit status: 1 with a spill, a warning or PTX
that ptxas refuses; 2 for a model that attnc refuses.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

TARGETS = (("sm_80", "sm_80"), ("sm_80", "sm_100"), ("sm_90a", "sm_90a"))
KERNEL = re.compile(r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads"
                    r".*?Used (\d+) registers[^\n]*", re.S)


def assemble(ptx, target, folder):
    """(kernels, complaints)"""
    done = subprocess.run(["ptxas", "-v", f"-arch={target}", ptx, "-o", folder / "m.cubin"], capture_output=True,
                          text=True)
    if done.returncode:
        return [], [done.stderr]
    complaints = [line for line in done.stderr.splitlines() if "warning" in line]
    kernels = []
    for part in re.split(r"(?=ptxas info\s+: Compiling entry)", done.stderr)[1:]:
        name, stores, loads, registers = KERNEL.search(part).groups()
        shared = re.search(r"(\d+) bytes smem", part)
        kernels.append({"kernel": name, "registers": int(registers), "shared": int(shared[1]) if shared else 0,
                        "spill_stores": int(stores), "spill_loads": int(loads)})
        if int(stores) or int(loads):
            complaints.append(f"{name}: {stores} bytes of spill stores, {loads} of loads")
    return kernels, complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--tools", required=True, type=pathlib.Path, help="folder of attnc")
    parser.add_argument("--precision", default="f32,bf16", help="precisions, with commas between them")
    parser.add_argument("--json", type=pathlib.Path, help="write each kernel's figures there")
    args = parser.parse_args()
    results, status, wrong = [], 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for model in args.models:
            for precision in args.precision.split(","):
                for arch, target in TARGETS:
                    ptx = folder / f"{arch}.ptx"
                    if target != "sm_100":
                        ptx.unlink(missing_ok=True)
                        command = [args.tools / "attnc", model, "--target=cuda", f"--gpu-arch={arch}", "--emit=ptx",
                                   f"--precision={precision}", "-o", ptx]
                        done = subprocess.run(command, capture_output=True, text=True)
                    if done.returncode:
                        print(f"{model.parent.name} {arch} {precision}: {done.stderr}", file=sys.stderr)
                        status = 2
                        continue
                    kernels, complaints = assemble(ptx, target, folder)
                    most = max(kernels, key=lambda k: k["registers"], default={"registers": 0, "kernel": "none"})
                    print(f"{model.parent.name} {precision} {arch} for {target}: {len(kernels)} kernels, at most "
                          f"{most['registers']} registers ({most['kernel']}), {len(complaints)} complaints", flush=True)
                    for text in complaints:
                        print(f"  {text}")
                    wrong += len(complaints)
                    results.append({"model": model.parent.name, "precision": precision, "ptx": arch, "target": target,
                                    "kernels": kernels})
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{wrong} complaints")
    return status or int(wrong > 0)


sys.exit(main())
