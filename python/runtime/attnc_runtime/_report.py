"""What a model reports about itself: verdicts on attentions, and times of regions. A notebook shows both."""

from __future__ import annotations

import html
import json
import pathlib
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple, Union

from . import _page, _timeline

_STYLE = "text-align:left;padding:1px 10px 1px 0;font-family:monospace;vertical-align:top"


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table that needs no other files."""
    parts = [f"<b>{html.escape(title)}</b><table><tr>"]
    parts += [f'<th style="{_STYLE}">{html.escape(text)}</th>' for text in header]
    parts.append("</tr>")
    for row in rows:
        parts.append("<tr>" + "".join(f'<td style="{_STYLE}">{html.escape(cell)}</td>' for cell in row) + "</tr>")
    return "".join(parts) + "</table>"


def table_lines(header: Sequence[str], rows: Sequence[Sequence[str]]) -> List[str]:
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [header, *rows]]


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(table_lines(header, rows))


@dataclass(frozen=True)
class Verdict:
    """What became of one softmax. ``fields`` holds every key that docs/reports.md lists."""

    node: str
    entry: str
    fused: bool
    verdict: str
    kind: str
    mask: str
    reason: str
    fields: Mapping[str, Any] = field(repr=False)

    @property
    def assumes(self) -> Tuple[str, ...]:
        """What must hold of the scores so that the mask hides what it hides."""
        return tuple(self.fields.get("assumes", ()))


def _notes(verdict: Verdict) -> Iterator[str]:
    """What stands below a verdict."""
    fields = verdict.fields
    if verdict.reason:
        prefix, place = f"{verdict.verdict}: ", str(fields.get("reason_node", ""))
        reason = verdict.reason[len(prefix) :] if verdict.reason.startswith(prefix) else verdict.reason
        yield reason + (f", at {place}" if place not in ("", verdict.node) else "")
    for key in ("assumes", "copies"):
        if fields.get(key):
            yield f"{key} {', '.join(fields[key])}"
    if fields.get("exposed"):
        yield f"exposed as {', '.join(fields['exposed'])}"
    if fields.get("weights"):
        yield f"weights {fields['weights']}"
    if not fields.get("kernel", True):
        yield f"computed without a kernel: {fields.get('kernel_reason', '')}"


class FusionReport(Sequence[Verdict]):
    """A verdict for each softmax of the model: whether it was fused, and why. A notebook shows the report as a page;
    ``save`` writes that page."""

    def __init__(
        self, verdicts: Sequence[Mapping[str, Any]], model: str = "", products: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self.model = model
        self.products = list(products)
        self._verdicts = [
            Verdict(v.get("node", ""), v.get("entry", ""), bool(v.get("fused")), v.get("verdict", ""),
                    v.get("kind", ""), v.get("mask", ""), v.get("reason", ""), v)
            for v in verdicts
        ]  # fmt: skip

    def __getitem__(self, index: Any) -> Any:
        return self._verdicts[index]

    def __len__(self) -> int:
        return len(self._verdicts)

    def __iter__(self) -> Iterator[Verdict]:
        return iter(self._verdicts)

    @property
    def fused(self) -> int:
        """How many softmaxes are fused."""
        return sum(v.fused for v in self._verdicts)

    @property
    def missed(self) -> int:
        """How many softmaxes belong to attentions that stay as the graph has them."""
        return sum(v.verdict == "missed" for v in self._verdicts)

    def _count(self) -> str:
        softmaxes = "softmax" if len(self) == 1 else "softmaxes"
        return f"{self.fused} of {len(self)} {softmaxes} fused, {self.missed} missed"

    def __str__(self) -> str:
        """The table that ``attnc --fusion-report=-`` prints."""
        header = ("softmax", "verdict", "kind", "mask")
        # What it is not, the verdict says already.
        rows = [((v.entry and v.entry + ": ") + (v.node or "(unnamed)"), v.verdict, v.kind if v.fused else "", v.mask)
                for v in self]  # fmt: skip
        first, *shown = table_lines(header, rows)
        parts = [first] if rows else []
        for line, verdict in zip(shown, self):
            parts += [line, *(f"    {note}" for note in _notes(verdict))]
        text = "\n".join([*parts, self._count()])
        if not self.products:
            return text
        keys = ("node", "storage", "arithmetic", "kernel", "reason")
        lines = [[str(product.get(key, "")) for key in keys] for product in self.products]
        kernels = sum(bool(kernel) for *_, kernel, _ in lines)
        table = text_table(
            ("product", "weight", "arithmetic", "kernel"),
            [(*line[:3], line[3] or f"none, slower than f32: {line[4]}") for line in lines],
        )
        what = "product" if len(lines) == 1 else "products"
        return f"{text}\n{table}\n{kernels} of {len(lines)} {what} of operands in fewer bits than f32 by a kernel"

    def __repr__(self) -> str:
        return f"<FusionReport: {self._count()}>"

    def page(self) -> str:
        """The page as HTML. It needs no network."""
        verdicts = [dict(v.fields) for v in self]
        data = {"model": self.model, "verdicts": verdicts, "products": self.products}
        return _page.fill("fusion.html", "@FUSION_DATA@", data)

    def save(self, path: Union[str, "pathlib.Path"]) -> None:
        """Writes the page into a file."""
        _page.save(self.page(), path)

    def _repr_html_(self) -> str:
        return _page.frame("Fusion report", self.page())


@dataclass(frozen=True)
class Region:
    """A fused part of a model, with the time that it took in the fastest run."""

    name: str
    nodes: Tuple[str, ...]
    seconds: float
    times: int  # it may be run several times, in a loop
    flops: int  # 0: not known
    bytes: int  # touched at most; 0: not known


class Profile(Sequence[Region]):
    """The regions of the fastest of ``runs`` runs, in the order in which they first ran."""

    def __init__(
        self, regions: Sequence[Region], seconds: float, runs: int, timeline: Callable[[], List[Dict[str, Any]]]
    ) -> None:
        self._regions = list(regions)
        self.seconds = seconds
        self.runs = runs
        self._timeline = timeline

    def __getitem__(self, index: Any) -> Any:
        return self._regions[index]

    def __len__(self) -> int:
        return len(self._regions)

    def __iter__(self) -> Iterator[Region]:
        return iter(self._regions)

    def write_timeline(self, path: Union[str, "pathlib.Path"]) -> None:
        """Writes all runs for https://ui.perfetto.dev or chrome://tracing: one row per thread, and counters."""
        _page.save(json.dumps({"traceEvents": self._timeline(), "displayTimeUnit": "ns"}), path)

    def _rows(self) -> Tuple[Sequence[str], List[Sequence[str]]]:
        header = ("region", "nodes", "us", "share", "times", "GFLOP/s")
        rows: List[Sequence[str]] = []
        for r in sorted(self._regions, key=lambda r: -r.seconds):
            rate = f"{r.flops / r.seconds / 1e9:.1f}" if r.flops and r.seconds else ""
            nodes = ", ".join(r.nodes[:3]) + (f" and {len(r.nodes) - 3} more" if len(r.nodes) > 3 else "")
            share = f"{100 * r.seconds / self.seconds:.1f} %" if self.seconds else ""
            rows.append((r.name, nodes, f"{r.seconds * 1e6:.1f}", share, str(r.times), rate))
        return header, rows

    def __str__(self) -> str:
        header, rows = self._rows()
        return text_table(header, rows) + f"\n{self.seconds * 1e3:.3f} ms, the fastest of {self.runs} runs"

    def __repr__(self) -> str:
        return f"<Profile: {self.seconds * 1e3:.3f} ms in {len(self)} regions>"

    def _repr_html_(self) -> str:
        header, rows = self._rows()
        return table(f"{self.seconds * 1e3:.3f} ms, the fastest of {self.runs} runs", header, rows)


def profile_of(manifest: Mapping[str, Any], runs: Sequence[_timeline.Run]) -> Profile:
    """From what the binding's ``profile`` answered for each run."""
    fastest = min(runs, key=lambda run: run.total)
    listed = [one if isinstance(one, dict) else {"name": str(one)} for one in manifest.get("regions", [])]
    names = [str(one.get("name", f"region {number}")) for number, one in enumerate(listed)]
    nodes = [tuple(one.get("nodes", ())) for one in listed]
    sums: Dict[int, List[int]] = {}
    for number, begin, end, flops, size in fastest.marks:
        sum_ = sums.setdefault(number, [0, 0, 0, 0])
        for place, value in enumerate((end - begin, 1, flops, size)):
            sum_[place] += value
    regions = [
        Region(names[number], nodes[number], ns / 1e9, times, flops, size)
        for number, (ns, times, flops, size) in sums.items()
    ]
    return Profile(
        regions,
        fastest.total / 1e9,
        len(runs),
        lambda: _timeline.events_of(runs, names, [", ".join(of) for of in nodes]),
    )
