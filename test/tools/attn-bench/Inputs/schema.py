"""schema.py FILE RUNS THREADS [REGION]: checks what attn-bench --json (--breakdown) wrote. RUNS is a number, or one and '+'."""
import json
import statistics
import sys

result = json.load(open(sys.argv[1]))
runs, threads, region = sys.argv[2], int(sys.argv[3]), sys.argv[4:]
times = result["times_ms"]
breakdown = result.pop("breakdown") if region else None
assert set(result) == {"min_ms", "median_ms", "p95_ms", "times_ms", "load_ms", "session_ms", "first_run_ms", "peak_rss_mb", "threads", "runs", "inputs", "left_out"}, result
assert len(times) == result["runs"] and (len(times) >= int(runs[:-1]) if runs[-1] == "+" else len(times) == int(runs))
assert result["threads"] == threads
assert all(set(each) == {"name", "dtype", "shape"} for each in result["inputs"]) and result["inputs"] and not result["left_out"], result
assert all(t > 0 for t in times)
assert result["min_ms"] == min(times)
assert abs(result["median_ms"] - statistics.median(times)) < 2e-6
assert sorted(times)[-1 - len(times) // 20] <= result["p95_ms"] <= max(times)
assert result["load_ms"] > 0 and 1 < result["peak_rss_mb"] < 1000
# What starting a session of a loaded model costs: making it, and what its first run takes beyond the others.
assert 0 <= result["session_ms"] < result["load_ms"] and result["first_run_ms"] > 0
assert result["session_ms"] < 50
if region:
    rows = breakdown["regions"]
    assert any(region[0] in row["region"] for row in rows) and all(row.get("flops", 1) > 0 for row in rows), rows
    assert abs(sum(row["ms"] for row in rows) - breakdown["ms"]) < 1e-6 and breakdown["ms"] <= max(times), breakdown
    assert [row["ms"] for row in rows] == sorted((row["ms"] for row in rows), reverse=True)
    assert all(row["times"] > 0 and row["bytes"] >= 0 for row in rows)
