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


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    return None if done.returncode == 0 else done.stderr.strip() or f"exit status {done.returncode}"


def widened(values):
    """bf16, which NumPy takes for two bytes, as f32."""
    if values.dtype.kind != "V":
        return values
    return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def difference(got, want, tolerance):
    """In units of the tolerance."""
    if want.shape != got.shape or (np.isnan(want) != np.isnan(got)).any():
        return np.inf
    got, want = got.astype(np.float64), want.astype(np.float64)
    bound = tolerance * np.abs(want).max(initial=0) + tolerance * np.abs(want)
    return float(np.max(np.abs(got - want) / np.maximum(bound, 1e-30), initial=0))


def run(about, arrays, at, scratch):
    """The largest difference from ONNX Runtime's results, and a message where there is none."""
    outputs = about.get("outputs", ["y"])
    command = ["attn-run", f"{scratch}/model.so", *(f"--output={o}=@{scratch}/{o}.npy" for o in outputs)]
    for one in about["inputs"]:
        np.save(f"{scratch}/{one}.npy", arrays[f"{at}.{one}"])
        command.append(f"--input={one}=@{scratch}/{one}.npy")
    if message := call(*command):
        return None, message
    tolerance = about.get("tolerance", 1e-4)
    return max(difference(widened(np.load(f"{scratch}/{o}.npy")), arrays[f"{at}.{o}"], tolerance) for o in outputs), ""


def check(folder, name, sums):
    about = json.loads((folder / f"{name}.json").read_text())
    arrays = np.load(folder / f"{name}.npz")
    with tempfile.TemporaryDirectory() as scratch:
        message = call("attnc", f"{folder}/{name}.onnx", "-o", f"{scratch}/model.so",
                       f"--fusion-report={scratch}/report.json")
        for at in range(0 if message else about["sizes"]):
            off, message = run(about, arrays, at, scratch)
            if message:
                break
            if not off <= 1:
                sums["wrong"] += 1
                return f"wrong    {name} at size {at}: {off:.3g} times the tolerance"
        if message:
            sums["refused"] += 1
            return f"refused  {name}: {message[:600]}"
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
