"""Checks a timeline of --profile=FILE: spans that follow each other, and names that must occur.  trace.py FILE PREFIX..."""
import json
import sys

events = json.load(open(sys.argv[1]))["traceEvents"]
end = 0.0
for event in events:
    assert event["ph"] == "X" and event["dur"] >= 0 and isinstance(event["args"]["nodes"], str), event
    assert abs(event["ts"] - end) < 1e-3, (event, end)
    end = event["ts"] + event["dur"]
    assert event["args"]["bytes"] >= 0 and event["args"].get("flops", 1) > 0, event
for prefix in sys.argv[2:]:
    assert any(event["name"].startswith(prefix) for event in events), prefix
