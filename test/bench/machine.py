"""What stands beside figures: the machine, the commit, the versions of the peers."""
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import time

HERE = pathlib.Path(__file__).parent


def machine():
    with open("/proc/cpuinfo") as f:
        facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in f)}
    model = facts.get("model name", platform.processor())
    if "flags" in facts and "avx512f" not in facts["flags"].split():  # a virtual machine may name no more than a vendor
        model += " without AVX-512"
    with open("/proc/meminfo") as f:
        memory = int(f.readline().split()[1]) // 2**20
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return {"cpu": model, "cores": os.cpu_count(), "memory_gb": memory, "system": platform.platform(terse=True),
            "load_before": os.getloadavg()[0], "commit": commit, "versions": versions()}


def versions():
    found = {}
    for package in ("onnxruntime", "openvino", "torch", "numpy", "ray"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def store(kind, facts, results, path=None):
    """Writes results where tools/docs/performance.py finds them, with what ``machine`` said before they were measured."""
    path = path or HERE / "results" / f"{time.strftime('%Y-%m-%d-%H%M')}-{kind}.json"
    path.write_text(json.dumps({"machine": facts, "results": results}, indent=1) + "\n")
    print(f"stored in {path}")
