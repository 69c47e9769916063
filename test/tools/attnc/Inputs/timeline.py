"""timeline.py TRACE: the stages of a compile in their order, and a pass inside of one."""
import json
import sys

events = [e for e in json.load(open(sys.argv[1]))["traceEvents"] if e.get("ph") == "X" and not e["name"].startswith("Total")]
by_name = {e["name"]: e for e in reversed(events)}
stages = ("importing", "graph", "kernels", "linking")
found = sorted((by_name[name]["ts"], name) for name in stages if name in by_name)
print("in order: " + ", ".join(name for _, name in found))
graph, inner = by_name["graph"], by_name["attn-recognize-attention"]
assert graph["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= graph["ts"] + graph["dur"], (graph, inner)
print("inside of graph: attn-recognize-attention")
