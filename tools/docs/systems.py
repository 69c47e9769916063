#!/usr/bin/env python3
"""Writes docs/systems.md and docs/systems: a page for each system of the literature, from its graph and from a compile of it.

    systems.py [--tools=build/bin] [--check] [PAGE...]

Graphs are those of test/e2e/systems, with weights from a seed; docs/systems/systems.toml has what they do not say. With
--check nothing is written; exit status 1 where a page or a drawing is not what a compile makes. The list of pages is
always written or checked. Needs numpy and safetensors.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

import diagram

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS, GRAPHS = ROOT / "docs", ROOT / "test/e2e/systems"
sys.path.insert(0, str(GRAPHS))
import check_systems  # noqa: E402, beside the graphs
import registry  # noqa: E402

# Verdicts are the same for every processor, formulas nearly so.
OPTIONS = ["--mcpu=x86-64-v3"]
MARK = "<!-- written by tools/docs/systems.py -->\n\n"


def compiled(name, tools):
    """The graph, and a verdict for each softmax of it."""
    with tempfile.TemporaryDirectory() as folder:
        graph, _ = check_systems.write(registry.SYSTEMS[name], pathlib.Path(folder))
        report = pathlib.Path(folder, "report.json")
        subprocess.run([tools / "attnc", graph, "-o", f"{folder}/model.so", f"--fusion-report={report}", *OPTIONS], check=True,
                       capture_output=True)
        return json.loads(graph.read_text()), json.loads(report.read_text())


def layer_of(verdict):
    return re.fullmatch(r"layer '(.*)' \(\w+\)", verdict["node"])[1]


def tone(verdict):
    return verdict["verdict"] if verdict["verdict"] in ("fused", "missed") else "other"


def verdicts_table(verdicts):
    """A row for each softmax; those of equal layers, repeated or not, share one."""
    rows, formulas = {}, {}
    for verdict in verdicts:
        name = layer_of(verdict)
        reason, kind = verdict["reason"].removeprefix(verdict["verdict"] + ": "), verdict["kind"] if verdict["fused"] else ""
        rows.setdefault((verdict.get("entry", ""), name, verdict["verdict"], kind, verdict["mask"], reason), []).append(name)
        if verdict["fused"]:
            formulas.setdefault(tuple(verdict["formula"]), []).append(name)
    lines = ["| softmax | verdict | kind | mask | reason |", "|-|-|-|-|-|"]
    for (entry, name, word, kind, mask, reason), found in rows.items():
        times = f" × {len(found)}" if len(found) > 1 else ""
        where = f"{entry}: " if entry else ""
        lines.append(f"| {where}{name}{times} | {word} | {kind} | {mask} | {reason} |".replace("|  |", "| |"))
    text = "\n".join(lines) + "\n"
    if formulas:
        text += "\nWhat the compiler recognised:\n\n```\n"
        text += "\n\n".join("\n".join([", ".join(dict.fromkeys(names)), *(f"  {line}" for line in formula)]) for formula, names in formulas.items())
        text += "\n```\n"
    return text


def graph_part(name, graph, verdicts, alone):
    comment = graph.get("comment", "")
    title = graph["name"].partition(": ")[2]
    text = "" if alone else f"### {title[0].upper()}{title[1:]}\n\n"
    text += f"[{name}.json](../../test/e2e/systems/{name}.json)" + (f". {comment}" if comment else "") + "\n\n"
    text += f"![the layers of {name}]({name}.svg)\n\n"
    if not verdicts:
        return text + "This graph has no softmax.\n"
    return text + verdicts_table(verdicts)


def page(name, entry, tools):
    """{file: text} of a page and its drawings."""
    graphs = entry.get("graphs", [name])
    made = {graph: compiled(graph, tools) for graph in graphs}
    files = {f"systems/{graph}.svg": diagram.draw(found, {(v.get("entry", ""), layer_of(v)): tone(v) for v in verdicts})
             for graph, (found, verdicts) in made.items()}
    text = f"{MARK}# {entry['title']}\n\n{entry['paper']}. Attention: {entry['attends']}.\n\n```\n{entry['formula'].strip()}\n```\n\n"
    if "trained" in entry:
        section, picture, words = entry["trained"]
        picture = picture.removeprefix("../") if picture.startswith("../") else f"gallery/{picture}"
        text += f"![{words}](../{picture})\n\nA [trained model](../gallery.md#{section.lower()}) drew this picture.\n\n"
    text += f"## As {'a graph' if len(graphs) == 1 else 'graphs'}\n\n"
    text += "Boxes are layers. A green softmax is fused, a red one is missed, and a violet one is no attention. Yellow layers are recurrent.\n\n"
    text += "\n".join(graph_part(graph, *made[graph], len(graphs) == 1) for graph in graphs)
    text += "\nA test compares the results with NumPy in float64. To compile the graph with random weights from a seed:\n\n```sh\n"
    text += f"python3 test/e2e/systems/check_systems.py --write=systems {graphs[0]}\n"
    text += f"attnc systems/{graphs[0]}.json -o {graphs[0]}.so --fusion-report=-\n```\n"
    return files | {f"systems/{name}.md": text}


def index(entries):
    text = (f"{MARK}# Systems of the literature\n\nEach page has a system's formulas, its graph as [a file](graphs.md), and what the compiler "
            "makes of it. Sizes are small and weights are random; the [gallery](gallery.md) has trained models.\n")
    for group in dict.fromkeys(entry["group"] for entry in entries.values()):
        text += f"\n## {group}\n\n| system | paper | attention |\n|-|-|-|\n"
        for name, entry in entries.items():
            if entry["group"] == group:
                text += f"| [{entry['title']}](systems/{name}.md) | {entry['paper']} | {entry['attends']} |\n"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=pathlib.Path, default=ROOT / "build/bin")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("pages", nargs="*")
    args = parser.parse_args()
    entries = tomllib.loads((DOCS / "systems/systems.toml").read_text())
    without = set(registry.SYSTEMS) - {graph for name, entry in entries.items() for graph in entry.get("graphs", [name])}
    if without:
        sys.exit(f"docs/systems/systems.toml has no page for {', '.join(sorted(without))}")
    files = {"systems.md": index(entries)}
    for name in args.pages or entries:
        files |= page(name, entries[name], args.tools)
    if not args.pages:
        stale = {f"systems/{path.name}" for path in (DOCS / "systems").iterdir()} - set(files) - {"systems/systems.toml"}
        if stale:
            sys.exit(f"docs has {', '.join(sorted(stale))}, which belong to no page")
    different = [name for name, text in files.items() if not (DOCS / name).exists() or (DOCS / name).read_text() != text]
    if args.check and different:
        sys.exit(f"docs: {', '.join(different)} differ from a compile; python3 tools/docs/systems.py writes them")
    for name in [] if args.check else files:
        (DOCS / name).write_text(files[name])
    print(f"{len(files)} files" + (" are as a compile makes them" if args.check else ""))


if __name__ == "__main__":
    main()
