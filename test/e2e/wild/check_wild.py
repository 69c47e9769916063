#!/usr/bin/env python3
"""Runs what wild_models.py wrote and prints a line for each model and their sums: check_wild.py FOLDER [NAME...]

A line has a verdict (`right`, `wrong`, `refused`), how many of the true attentions are fused, and for each softmax
that is missed the reason. It exits with 1 where a model is wrong.
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np


def run(folder, name, about, arrays, at, scratch):
    """The difference from ONNX Runtime's result in units of its tolerance, and the report."""
    command = ["attn-run", f"{folder}/{name}.onnx", f"--fusion-report={scratch}/report.json",
               f"--output=y=@{scratch}/y.npy"]
    for one in about["inputs"]:
        np.save(f"{scratch}/{one}.npy", arrays[f"{at}.{one}"])
        command.append(f"--input={one}=@{scratch}/{one}.npy")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        return None, done.stderr.strip()
    want, got = arrays[f"{at}.y"], np.load(f"{scratch}/y.npy")
    if want.shape != got.shape or (np.isnan(want) != np.isnan(got)).any():
        return np.inf, ""
    return float(np.max(np.abs(got - want) / (1e-4 * np.abs(want).max() + 1e-4 * np.abs(want)), initial=0)), ""


def check(folder, name, sums):
    about = json.loads((folder / f"{name}.json").read_text())
    arrays = np.load(folder / f"{name}.npz")
    with tempfile.TemporaryDirectory() as scratch:
        for at in range(about["sizes"]):
            difference, message = run(folder, name, about, arrays, at, scratch)
            if difference is None:
                sums["refused"] += 1
                return f"refused  {name} at size {at}: {message[:600]}"
            if not difference <= 1:
                sums["wrong"] += 1
                return f"wrong    {name} at size {at}: {difference:.3g} times the tolerance"
        report = json.loads(pathlib.Path(f"{scratch}/report.json").read_text())
    report = report if isinstance(report, list) else report["softmaxes"]
    fused = [r for r in report if r["fused"]]
    sums["right"] += 1
    sums["fused"] += min(len(fused), about["attentions"])
    sums["attentions"] += about["attentions"]
    lines = [f"right    {name}: {len(fused)} of {about['attentions']} fused"]
    lines += [f"         {r['verdict']}: {r['node']}: {r['reason']}" +
              (f" ({r['reason_node']})" if r["reason_node"] != r["node"] else "") for r in report if not r["fused"]]
    return "\n".join(lines)


def main():
    folder = pathlib.Path(sys.argv[1])
    sums = collections.Counter()
    for name in sys.argv[2:] or sorted(p.stem for p in folder.glob("*.json")):
        print(check(folder, name, sums), flush=True)
    print(f"{sums['right']} right, {sums['wrong']} wrong, {sums['refused']} refused; {sums['fused']} of "
          f"{sums['attentions']} attentions fused")
    sys.exit(1 if sums["wrong"] else 0)


if __name__ == "__main__":
    main()
