#!/usr/bin/env python3
"""Writes docs/performance.md from the results that ./dev bench stored, and from test/bench/notes.json.

    performance.py [--check]     with --check nothing is written; exit status 1 when the page is not up to date

For each kind of results and each machine the latest file is used. The notes have the figures that no command of
./dev bench measures.
"""
import json
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE, BENCH = ROOT / "docs/performance.md", ROOT / "test/bench"
TITLES = {"models": "Models", "sequence": "Sequence models", "attention": "Attention alone",
          "layers": "Layers unlike a Transformer's", "stored": "Files in fewer bits",
          "llamacpp": "Decoders beside llama.cpp",
          "exposed": "Attention weights as outputs", "card": "On a GPU"}
PEERS = {"onnxruntime": "ONNX Runtime", "onnxruntime-operator": "its operator", "onnxruntime-beam": "its beam search",
         "openvino": "OpenVINO", "torch": "PyTorch", "torch-compiled": "compiled", "torch-flex": "FlexAttention",
         "llama-cpp": "llama.cpp"}
HEAD = """# Performance

Written by `tools/docs/performance.py` from `test/bench/results` and `test/bench/notes.json`; do not edit.

`./dev bench` runs all sides in one process, alternating, on the same inputs. The column `attnc` has times in
milliseconds: the median of the medians of all rounds. The other columns have factors. A factor is the time of a side
divided by the time of attnc in the same round, and the table has the median of all rounds. More than 1 means that
attnc is faster. attnc with narrower weights or products (`--weights`, `--precision`) has a factor, too: less than 1
means that it is faster than attnc in f32. To compare OpenVINO in bf16 with attnc in bf16, divide one factor by the
other. With files in fewer bits, all sides run the same file. There, `f32` is attnc on the model that the file was made
of, and `int8` is attnc on the file with `--precision=int8`.

Speed is measured here and never asserted in a test.
"""


def latest():
    """{(kind, processor): results} of the latest files."""
    found = {}
    for file in sorted((BENCH / "results").glob("*.json")):
        kind = re.fullmatch(r"[\d-]+-(.+)", file.stem)[1]
        if kind not in TITLES:  # docs/serving.md has what was measured of servers, and some cases alone are no table
            continue
        results = json.loads(file.read_text())
        found[kind, results["device"]["name"] if kind == "card" else results["machine"]["cpu"]] = file.name, results
    return dict(sorted(found.items(), key=lambda item: (list(TITLES).index(item[0][0]), item[0][1])))


def milliseconds(side):
    median = statistics.median(side["medians_ms"])
    return f"{median:.3g}" if median < 1000 else f"{median:.0f}"


def table(results):
    """One row per case, one column per side that some case has."""
    sides = [s for s in dict.fromkeys(s for r in results["results"] for s in r["sides"]) if s != "attnc"]
    ours, peers = [s for s in sides if s.startswith("attnc-")], [s for s in sides if not s.startswith("attnc-")]
    head = ["case", "attnc", *(s.replace("attnc-", "") for s in ours),
            *(PEERS.get(s) or s.replace("openvino", "OpenVINO").replace("-", " ") for s in peers)]
    rows = [head, ["-"] * len(head)]
    for result in results["results"]:
        cells = result["sides"]
        ratios = [f"{cells[s]['ratio']:.2f}" if "ratio" in cells.get(s, {}) else "" for s in ours + peers]
        rows.append([result["case"], milliseconds(cells["attnc"]), *ratios])
    return "\n".join("|" + "|".join(f" {cell} " if cell != "-" else "-" for cell in row) + "|" for row in rows)


def card_table(cases):
    """As `table`, of what a package of GPU tests stored: per case its turns, each with its sides. A search for a token."""
    sides = [s for s in dict.fromkeys(t["side"] for turns in cases.values() for turn in turns for t in turn["times"] if "ms" in t)]
    ours = [s for s in sides if s.startswith("attnc")]
    others = ours[1:] + [s for s in sides if s not in ours]
    rows = [["case", ours[0], "TFLOP/s", *others], ["-"] * (len(sides) + 2)]
    for case, turns in cases.items():
        times = {}
        for turn in turns:
            for t in turn["times"]:
                times[t["side"]] = min(t.get("ms", float("inf")), times.get(t["side"], float("inf")))
        steps, flops = turns[0].get("steps", 1), turns[0].get("flops")
        factors = [f"{times[s] / times[ours[0]]:.2f}" if times.get(s, float("inf")) < float("inf") else "" for s in others]
        speed = f"{flops / times[ours[0]] * 1e-9:.0f}" if flops else ""
        rows.append([case + f", a token of {steps}" * (steps > 1), f"{times[ours[0]] / steps:.3g}", speed, *factors])
    return "\n".join("|" + "|".join(f" {cell} " if cell != "-" else "-" for cell in row) + "|" for row in rows) + "\n"


def card_section(name, results):
    device, torch, timed = results["device"], results["torch"], {}
    for case, turns in results["beside"].items():
        if turns := [turn for turn in turns if turn.get("times")]:
            timed.setdefault("attention" if case.startswith("attention") else "models", {})[case] = turns
    text = (f"\n## On a GPU: {device['name']}\n\nDriver {device['driver_version']}, PyTorch {torch['torch']}, CUDA {torch['cuda']}. "
            f"Times are taken {torch['how']}; those of searches are taken on the host's clock. Commit {results['commit']} (`{name}`).\n")
    return text + "".join(f"\n{card_table(cases)}" for cases in timed.values())


def section(kind, name, results):
    if kind == "card":
        return card_section(name, results)
    machine = results["machine"]
    versions = ", ".join(f"{peer} {version}" for peer, version in machine["versions"].items())
    threads = sorted({r["threads"] for r in results["results"]})
    return (f"\n## {TITLES[kind]}: {machine['cpu']}\n\n{machine['cores']} cores, {machine['memory_gb']} GB, "
            f"{'/'.join(map(str, threads))} threads; {versions}. Commit {machine['commit']} (`{name}`).\n\n{table(results)}\n")


def notes(entries):
    lines = []
    for entry in entries:
        what, figure = entry.get("of") or entry.get("tried"), entry.get("figure") or entry["result"]
        where = f" ({entry['machine']})" if "machine" in entry else ""
        lines.append(f"- {what[0].upper()}{what[1:]}{where}: {figure}.")
    return "\n".join(lines) + "\n"


def write():
    text = HEAD
    for (kind, _), (name, results) in latest().items():
        text += section(kind, name, results)
    entries = json.loads((BENCH / "notes.json").read_text())
    text += "\n## Single figures\n\n" + notes(entries["figures"])
    text += "\n## Kernels for GPUs, counted in PTX or measured\n\n" + notes(entries["gpu"])
    text += "\n## Tried and kept\n\n" + notes(entries["kept"])
    text += "\n## Tried and dropped\n\n" + notes(entries["lost"])
    return text


if __name__ == "__main__":
    new = write()
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text() != new:
            sys.exit("docs/performance.md is not what its script writes; python3 tools/docs/performance.py writes it")
    else:
        PAGE.write_text(new)
