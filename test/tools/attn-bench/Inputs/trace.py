"""Checks a timeline of --profile=FILE.  trace.py FILE RUNS THREADS PREFIX...: the first RUNS runs and the fastest, whose
regions follow each other without a gap, a row for each thread, counters; PREFIX: of regions that must occur."""
import json
import sys

events = json.load(open(sys.argv[1]))["traceEvents"]
number, threads = int(sys.argv[2]), int(sys.argv[3])
rows = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
assert list(rows.values()) == ["runs", "thread 0, of the run", *(f"thread {n}" for n in range(1, threads))], rows
spans = {tid: [e for e in events if e["ph"] == "X" and e["tid"] == tid] for tid in rows}

runs = spans[0]
assert len(runs) in (number, number + 1), [e["name"] for e in runs]
assert [e["name"] for e in runs if "fastest" not in e["name"]] == [
    f"run {n + 1}" for n in range(number) if runs[n]["name"] == f"run {n + 1}"], runs
fastest, = [e for e in runs if "fastest" in e["name"]]
assert fastest["dur"] == min(e["dur"] for e in runs)
for before, after in zip(runs, runs[1:]):
    assert before["ts"] + before["dur"] <= after["ts"] + 1e-3, (before, after)

regions = [e for e in spans[1] if e["name"] != "at work"]
for run in runs:
    end = run["ts"]
    for event in regions:
        if run["ts"] - 1e-4 <= event["ts"] < run["ts"] + run["dur"] - 1e-4:
            assert abs(event["ts"] - end) < 1e-3, (event, end)
            end = event["ts"] + event["dur"]
    assert abs(end - run["ts"] - run["dur"]) < 1e-3, (run, end)
for event in regions:
    assert event["dur"] >= 0 and isinstance(event["args"]["nodes"], str), event
    assert event["args"]["bytes"] >= 0 and event["args"].get("flops", 1) > 0, event
for prefix in sys.argv[4:]:
    assert any(event["name"].startswith(prefix) for event in regions), prefix

# Threads work within regions of the same names; those of a run take turns with nothing.
for tid in rows:
    if tid < 1:
        continue
    pieces = [e for e in spans[tid] if tid > 1 or e["name"] == "at work"]
    assert pieces or tid > 1, rows[tid]  # the run's own thread takes what others come too late for
    for before, after in zip(pieces, pieces[1:]):
        assert before["ts"] + before["dur"] <= after["ts"] + 1e-3, (before, after)
    for piece in pieces:
        around = [e for e in regions if e["ts"] - 1e-3 <= piece["ts"] and piece["ts"] + piece["dur"] <= e["ts"] + e["dur"] + 1e-3]
        assert around and (tid == 1 or piece["name"] in {e["name"] for e in around}), piece

counters = {e["name"] for e in events if e["ph"] == "C"}
assert counters == {"GFLOP/s", "GB/s", "threads at work"}, counters
busy = [e["args"]["value"] for e in events if e["name"] == "threads at work"]
assert min(busy) == 0 and 1 <= max(busy) <= threads, (min(busy), max(busy))
