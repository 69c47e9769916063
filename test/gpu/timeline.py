"""timeline.py FILE RUNS NAME...: a timeline of runs on a GPU. Each run has the kernels and copies of the one before, none
before the one before it has ended; NAME: of what must be among them."""
import json
import sys

events = json.load(open(sys.argv[1]))["traceEvents"]
rows = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
assert list(rows.values()) == ["runs", "stream of the GPU"], rows
of_runs, of_stream = rows
runs = []  # each with what is written behind it: the stand-in's clock is not that of its runs, which seem to overlap
for event in events:
    if event["ph"] == "X" and event["tid"] == of_runs:
        runs.append((event, []))
    elif event["ph"] == "X" and event["tid"] == of_stream:
        runs[-1][1].append(event)
assert len(runs) in (int(sys.argv[2]), int(sys.argv[2]) + 1), len(runs)
names = []
for run, inside in runs:
    names.append([e["name"] for e in inside])
    assert all(run["ts"] <= e["ts"] <= run["ts"] + run["dur"] + 1 for e in inside), (run, inside)
    for before, after in zip(inside, inside[1:]):
        assert before["dur"] >= 0 and before["ts"] + before["dur"] <= after["ts"] + 1, (before, after)
    assert any(e["dur"] > 0 for e in inside), "kernels take time"
assert all(each == names[0] for each in names), [len(n) for n in names]
for name in sys.argv[3:]:
    assert any(name in each for each in names[0]), (name, names[0])
print(len(names[0]), "pieces of work")
