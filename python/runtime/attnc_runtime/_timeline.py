"""Profiled runs as a timeline that Perfetto and Chrome open."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

_RUNS, _FIRST_THREAD = 0, 1  # rows


class Run(NamedTuple):
    """What a run did, in nanoseconds of one clock."""

    total: int  # with what the binding does around it
    begin: int
    marks: Sequence[Tuple[int, int, int, int, int]]  # region, begin, end, flops, bytes
    pieces: Sequence[Sequence[Tuple[int, int]]]  # of loops: begin and end, by thread


def _span(row: int, name: str, begin: int, end: int, **facts: Any) -> Dict[str, Any]:
    return {"ph": "X", "pid": 1, "tid": row, "name": name, "ts": begin / 1e3, "dur": (end - begin) / 1e3, "args": facts}


def _counter(name: str, time: int, value: float) -> Dict[str, Any]:
    return {"ph": "C", "pid": 1, "name": name, "ts": time / 1e3, "args": {"value": value}}


def _regions(run: Run, names: Sequence[str], nodes: Sequence[str]) -> List[Dict[str, Any]]:
    events = []
    for region, begin, end, flops, size in run.marks:
        events.append(_span(_FIRST_THREAD, names[region], begin, end, nodes=nodes[region], flops=flops, bytes=size))
        events.append(_counter("GFLOP/s", begin, flops / max(end - begin, 1)))
        events.append(_counter("GB/s", begin, size / max(end - begin, 1)))
    return events


def _threads(run: Run, names: Sequence[str], end: int) -> List[Dict[str, Any]]:
    events, changes = [], [(run.begin, 1), (end, -1)]
    for thread, pieces in enumerate(run.pieces):
        place = 0
        for first, last in pieces:
            while place < len(run.marks) and run.marks[place][2] <= first:
                place += 1
            name = names[run.marks[place][0]] if place < len(run.marks) else "after the last region"
            events.append(_span(_FIRST_THREAD + thread, name if thread else "at work", first, last))
            if thread:
                changes += [(min(first, end), 1), (min(last, end), -1)]
    at_work = 0
    for time, change in sorted(changes):
        at_work += change
        events.append(_counter("threads at work", time, at_work))
    return events


def events_of(runs: Sequence[Run], names: Sequence[str], nodes: Sequence[str]) -> List[Dict[str, Any]]:
    """A row of runs, a row per thread with the regions that it worked on, and counters of FLOP/s, bytes/s and threads
    at work."""
    threads = max(len(run.pieces) for run in runs)
    rows = ["runs", "thread 0, of the run", *(f"thread {thread}" for thread in range(1, threads))]
    events: List[Dict[str, Any]] = []
    for row, name in enumerate(rows):
        events.append({"ph": "M", "pid": 1, "tid": row, "name": "thread_name", "args": {"name": name}})
        events.append({"ph": "M", "pid": 1, "tid": row, "name": "thread_sort_index", "args": {"sort_index": row}})
    ends = [run.marks[-1][2] if run.marks else run.begin for run in runs]
    fastest = min(range(len(runs)), key=lambda n: ends[n] - runs[n].begin)
    for n, (run, end) in enumerate(zip(runs, ends)):
        events.append(_span(_RUNS, f"run {n + 1}{', the fastest' if n == fastest else ''}", run.begin, end))
        events += _regions(run, names, nodes) + _threads(run, names, end)
        events += [_counter("GFLOP/s", end, 0), _counter("GB/s", end, 0)]
    return events
