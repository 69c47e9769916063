"""Where the time of requests went: runs of models on Ray's timeline."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import time
from typing import Any, Deque, Dict, List, Union

import ray

# Of this process, the latest ones: (name, seconds since 1970, seconds, what more is known).
_runs: Deque[Any] = collections.deque(maxlen=10000)


def note(name: str, began: float, **about: float) -> None:
    """Remembers a run that began at ``began`` of time.monotonic() and ends now."""
    seconds = time.monotonic() - began
    _runs.append((name, time.time() - seconds, seconds, about))


def noted() -> List[Dict[str, Any]]:
    """As events of Chrome's trace format, in the row that Ray gives this process's tasks."""
    row = {"pid": ray.util.get_node_ip_address(), "tid": f"worker:{ray.get_runtime_context().get_worker_id()}"}
    return [
        {"cat": "attnc", "name": name, "ph": "X", "ts": 1e6 * start, "dur": 1e6 * seconds, "args": about, **row}
        for name, start, seconds, about in list(_runs)
    ]


def timeline(handle: Any, path: Union[str, "os.PathLike[str]"]) -> int:
    """Writes the latest runs of all replicas behind ``handle`` and Ray's own timeline into one file, which
    https://ui.perfetto.dev and chrome://tracing open. Returns how many runs it has. Ray notes its tasks where
    RAY_PROFILING=1 and RAY_SERVE_ENABLE_TASK_EVENTS=1 were set before it started."""
    runs = [event for events in handle.broadcast("runs").results() for event in events]
    pathlib.Path(path).write_text(json.dumps([*ray.timeline(), *runs]))
    return len(runs)
