#!/usr/bin/env python3
"""Generated functions have small frames: frames.py ATTNC FOLDER [MODEL...]

Each model is compiled for CPUs with AVX2, with AVX-512 and with AMX. A library says how much stack its code takes along
its deepest calls, which is as much as its largest frame at least: 16 KiB at most. Without a MODEL it is all of them, each for
one of the two kinds that this machine is not: check_model.py looks at what it compiles for this one.
"""
import pathlib
import subprocess
import sys

MOST = 16 << 10
# By a flag of each kind, the newest first.
CPUS = {"amx_tile": "sapphirerapids", "avx512f": "skylake-avx512", "avx2": "haswell"}
MODELS = pathlib.Path(__file__).parent / "models"


def stack_size(library):
    """attnrt_footer.stack_size of abi.h."""
    data = pathlib.Path(library).read_bytes()
    footer = data[-int.from_bytes(data[-16:-8], "little"):]
    size = int.from_bytes(footer[48:56], "little")
    assert size, library
    return size


def this_cpu():
    flags = pathlib.Path("/proc/cpuinfo").read_text().split("flags", 1)[1].split("\n", 1)[0].split()
    return next((cpu for flag, cpu in CPUS.items() if flag in flags), None)


def main(attnc, folder, *names):
    too_large, worst = 0, (0, "")
    cpus = [cpu for cpu in CPUS.values() if names or cpu != this_cpu()]
    for number, model in enumerate(sorted(MODELS / n for n in names) if names else sorted(MODELS.iterdir())):
        for cpu in cpus if names else [cpus[number % len(cpus)]]:
            library = f"{folder}/{model.name}.so"
            subprocess.run([attnc, model / "model.onnx", "-o", library, f"--mcpu={cpu}"], check=True)
            size = stack_size(library)
            pathlib.Path(library).unlink()
            worst = max(worst, (size, f"{model.name} for {cpu}"))
            if size > MOST:
                too_large += 1
                print(f"{model.name} for {cpu}: {size} bytes, more than {MOST}", flush=True)
    print(f"largest: {worst[0]} bytes ({worst[1]})")
    print(f"{too_large} too large")


if __name__ == "__main__":
    main(*sys.argv[1:])
