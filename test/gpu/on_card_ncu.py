"""Profiles of a package's kernels by Nsight Compute, at the clocks that the card has: what limits each of them."""
import re
import shutil
import time

from on_card_check import shortened
from on_card_compile import HERE, run

# Of the cases bench_*, in this order; those of a rehearsal are small.
WANTED = (r"attention_\d+_d128_bf16", "gemm_(128|4096)_bf16", "gemv", "layer_norm")
SECONDS, LAUNCHES = 75, 4


def profile(results, descriptions, end):
    tool = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    names = [name for wanted in WANTED for name in descriptions if re.search(wanted, name)]
    if not tool:
        return results.left_out("profiles", "no ncu here: neither on the path nor in /usr/local/cuda/bin")
    for name in names:
        if time.monotonic() > end:
            results.left_out(f"profile of {name}", "left out for time")
            continue
        folder = HERE / "cases" / name
        status, text = run(tool, "--clock-control", "none", "--set", "detailed", "--launch-count", LAUNCHES, HERE / "bin/attn-run",
                           folder / descriptions[name].get("library", "model.so"), "--own-products",
                           limit=min(SECONDS, max(1, end - time.monotonic())))
        (results.folder / f"ncu_{name}.txt").write_text(text)
        results.test(f"profile of {name}", f"exit status {status}: {shortened(text)}" if status else "")
