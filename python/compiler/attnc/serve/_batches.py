"""Requests that wait become batches: which of them share a run, and how each gets its own answer."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Hashable, List, Optional, Sequence

from attnc_runtime import Cancel, Cancelled, DeadlineExceeded, Error
from ray.util import metrics

from . import _timeline
from ._settings import Settings


@dataclass
class Item:
    """A request that waits. ``rows`` of ``length`` tokens (1 where nothing is padded); only items with equal ``key``
    share a run. ``deadline`` is in seconds of time.monotonic()."""

    value: Any
    deadline: float
    rows: int = 1
    length: int = 1
    key: Hashable = None
    arrived: float = field(default_factory=time.monotonic)
    answer: "asyncio.Future[Any]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


def padded(items: Sequence[Item]) -> int:
    """Tokens of a batch, padding included."""
    return sum(item.rows for item in items) * max(item.length for item in items)


def divide(items: Sequence[Item], max_tokens: int, max_rows: int, max_padding: int) -> List[List[Item]]:
    """Batches of equal keys and similar lengths, the shortest first: at most ``max_tokens``, padding included, and
    ``max_rows``, unless one item has more, and at most ``max_padding`` tokens of a batch are padding.

    A number and no share: what padding has to save is a run, whose cost beside its tokens does not grow with them. Of
    lengths 1, 2, 3... batches of four or five cost least where a run costs as much as 8 tokens, however long they are."""
    batches: List[List[Item]] = []
    order = sorted(range(len(items)), key=lambda i: (items[i].length, i))
    open_batches: dict[Hashable, List[Item]] = {}
    for item in (items[i] for i in order):
        batch = open_batches.get(item.key)
        if batch is not None:
            grown = [*batch, item]
            real = sum(each.rows * each.length for each in grown)
            fits = padded(grown) <= max_tokens and sum(each.rows for each in grown) <= max_rows
            if fits and padded(grown) - real <= max_padding:
                batch.append(item)
                continue
        open_batches[item.key] = [item]
        batches.append(open_batches[item.key])
    return batches


class Meters:
    """What Ray's Prometheus endpoint shows, beside its own metrics."""

    def __init__(self, model: str) -> None:
        self.model = model
        tags = {"tag_keys": ("model",)}
        milliseconds = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000]
        self._all: dict[str, Any] = {
            "requests": metrics.Counter("attnc_requests", "requests answered", **tags),
            "errors": metrics.Counter("attnc_errors", "requests answered by an error, late ones among them", **tags),
            "tokens": metrics.Counter("attnc_tokens", "tokens computed, padding included", **tags),
            "queue_ms": metrics.Histogram("attnc_queue_ms", "from arrival to run", milliseconds, **tags),
            "run_ms": metrics.Histogram("attnc_run_ms", "of a run", milliseconds, **tags),
            "rows": metrics.Histogram("attnc_batch_rows", "rows of a run", [1, 2, 4, 8, 16, 32, 64, 128], **tags),
            "fill": metrics.Histogram("attnc_batch_fill", "share of a run that is not padding", [0.25, 0.5, 0.75, 0.9, 1], **tags),
        }
        for metric in self._all.values():
            metric.set_default_tags({"model": model})

    def count(self, name: str, value: float = 1) -> None:
        if value > 0:
            self._all[name].inc(value)

    def observe(self, name: str, value: float) -> None:
        self._all[name].observe(value)


Run = Callable[..., List[Any]]


class Batcher:
    """``submit`` waits for the answer of one request. ``run(values, timeout=, cancel=)`` computes a batch in a thread
    and returns an answer per value; an exception in place of an answer is that request's alone.

    A batch is formed when the model is free for it, of all that wait by then, around the one that waits longest.
    (``ray.serve.batch`` forms the next batch while the last one runs: it would hold what came first, mostly one.)"""

    def __init__(self, settings: Settings, run: Run, meters: Meters) -> None:
        self._settings = settings
        self._run = run
        self._meters = meters
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="attnc-run")
        self._waiting: List[Item] = []
        self._work: Optional["asyncio.Task[None]"] = None

    async def submit(self, item: Item) -> Any:
        """DeadlineExceeded where the answer comes too late. Cancelling leaves the batch; nobody left in it ends its run."""
        self._waiting.append(item)
        if self._work is None or self._work.done():
            self._work = asyncio.ensure_future(self._serve())
        try:
            async with asyncio.timeout(max(item.deadline - time.monotonic(), 0)):
                return await item.answer
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._meters.count("errors")
            if isinstance(error, TimeoutError) and not isinstance(error, Error):
                waited = time.monotonic() - item.arrived
                raise DeadlineExceeded(f"the deadline passed after {waited:.3f} s, {len(self._waiting)} more waiting") from None
            raise
        finally:
            item.answer.cancel()  # nobody waits for it any more
            self._meters.count("requests")

    async def _serve(self) -> None:
        s = self._settings
        if s.wait:
            await asyncio.sleep(s.wait)
        while True:
            self._waiting = [item for item in self._waiting if not item.answer.done()]
            if not self._waiting:
                return
            batches = divide(self._waiting, s.max_tokens, s.max_rows, s.max_padding)
            batch = next(each for each in batches if any(item is self._waiting[0] for item in each))
            chosen = {id(item) for item in batch}
            self._waiting = [item for item in self._waiting if id(item) not in chosen]
            await self._serve_batch(batch)

    async def _serve_batch(self, batch: List[Item]) -> None:
        start = time.monotonic()
        for item in batch:
            self._meters.observe("queue_ms", 1e3 * (start - item.arrived))
        cancel = Cancel()

        def left(_: Any) -> None:
            if all(item.answer.cancelled() for item in batch):
                cancel.request()

        for item in batch:
            item.answer.add_done_callback(left)
        # The run goes on as long as one of its callers may still wait.
        timeout = max(item.deadline for item in batch) - start
        call = functools.partial(self._traced_run, batch, timeout=timeout, cancel=cancel)
        answers: Sequence[Any]
        try:
            answers = await asyncio.get_running_loop().run_in_executor(self._thread, call)
        except Exception as error:
            answers = await self._one_by_one(batch, error)
        real = sum(item.rows * item.length for item in batch)
        self._meters.observe("run_ms", 1e3 * (time.monotonic() - start))
        self._meters.observe("rows", sum(item.rows for item in batch))
        self._meters.observe("fill", real / padded(batch))
        self._meters.count("tokens", padded(batch))
        for item, answer in zip(batch, answers):
            if item.answer.done():
                continue
            if isinstance(answer, BaseException):
                item.answer.set_exception(answer)
            else:
                item.answer.set_result(answer)

    def _traced_run(self, batch: List[Item], **options: Any) -> List[Any]:
        began = time.monotonic()
        try:
            return self._run([item.value for item in batch], **options)
        finally:
            waited = 1e3 * (began - min(item.arrived for item in batch))
            rows = sum(item.rows for item in batch)
            _timeline.note(self._meters.model, began, requests=len(batch), rows=rows, tokens=padded(batch), queue_ms=waited)

    async def _one_by_one(self, batch: List[Item], error: Exception) -> Sequence[Any]:
        """One request's data (a token out of range, say) must not fail its neighbours."""
        if len(batch) == 1 or isinstance(error, (Cancelled, DeadlineExceeded)):
            return [error] * len(batch)
        answers: List[Any] = []
        for item in batch:
            call = functools.partial(self._traced_run, [item], timeout=max(item.deadline - time.monotonic(), 1e-3), cancel=None)
            try:
                answers += await asyncio.get_running_loop().run_in_executor(self._thread, call)
            except Exception as alone:
                answers.append(alone)
        return answers

