"""Continuous batching: sequences join and leave a batch between two steps of a decoder, whose caches the library keeps
(``own_state``). A new one starts in columns of the cache of its own; what lies before them is hidden by its mask."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
from attnc_runtime import Cancelled, DeadlineExceeded, InvalidArgument, Unsupported

from . import _timeline


@dataclasses.dataclass
class Request:
    """A sequence to generate. ``temperature`` 0 takes the likeliest token; otherwise tokens are drawn, by ``seed``, from
    the ``top_k`` likeliest (0: all) of which the likeliest together have ``top_p``."""

    tokens: Sequence[int]
    max_new_tokens: int = 256
    end_tokens: Sequence[int] = ()
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    deadline: float = float("inf")  #: of time.monotonic()

    def check(self, vocabulary: Optional[int], places: Optional[int]) -> None:
        for holds, text in (
            (len(self.tokens) > 0, "a prompt has at least one token"),
            (all(isinstance(t, (int, np.integer)) and t >= 0 for t in self.tokens), "tokens are numbers from 0 on"),
            (self.max_new_tokens >= 1, f"max_new_tokens expects a number above 0, not {self.max_new_tokens}"),
            (
                self.temperature == 0 or 1e-6 <= self.temperature <= 1e6,
                f"temperature expects 0, or a number from 1e-6 to 1e6, not {self.temperature}",
            ),
            (self.top_k >= 0, f"top_k expects a number from 0 on, not {self.top_k}"),
            (0 < self.top_p <= 1, f"top_p expects a number above 0 and at most 1, not {self.top_p}"),
            (self.seed >= 0, f"seed expects a number from 0 on, not {self.seed}"),
        ):
            if not holds:
                raise InvalidArgument(text)
        if vocabulary and max(self.tokens) >= vocabulary:
            raise InvalidArgument(f"token {max(self.tokens)} is beyond the vocabulary of {vocabulary}")
        if places and len(self.tokens) + self.max_new_tokens - 1 > places:
            raise InvalidArgument(
                f"{len(self.tokens)} tokens and {self.max_new_tokens} new ones are more than the model's {places} positions"
            )


#: Called on the decoder's thread with each token; with None at the end, and the error if there is one.
OnToken = Callable[[Optional[int], Optional[BaseException]], None]


class _Row:
    """A sequence in the batch."""

    def __init__(self, request: Request, on_token: OnToken) -> None:
        self.request = request
        self.on_token = on_token
        self.pending = [int(t) for t in request.tokens]  # to be fed
        self.visible = np.zeros(0, np.int64)  # of the cache's columns
        self.position = 0
        self.made = 0
        self.left = False  # the caller has gone
        self.done = False  # and told so
        self._random = np.random.default_rng(request.seed)

    def choose(self, logits: "np.ndarray[Any, Any]") -> int:
        r = self.request
        scores = np.asarray(logits, np.float64)
        if not np.isfinite(scores.max()):
            raise ValueError(f"the model gives scores of tokens that are not finite, after {self.made} tokens")
        if not r.temperature:
            return int(scores.argmax())
        scores = scores / r.temperature
        if r.top_k:
            scores = np.where(scores >= np.sort(scores)[-min(r.top_k, len(scores))], scores, -np.inf)
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        if r.top_p < 1:
            order = np.argsort(-weights, kind="stable")
            kept = order[: int(np.searchsorted(np.cumsum(weights[order]), r.top_p)) + 1]
            weights = np.where(np.isin(np.arange(len(weights)), kept), weights, 0)
            weights /= weights.sum()
        return int(self._random.choice(len(weights), p=weights))


class Decoder:
    """Generates up to ``slots`` sequences at a time with ``model``, a decoder step compiled with ``own_state=True``.

    The step takes ``input_ids`` [batch, sequence], ``attention_mask`` [batch, cache + sequence] and ``position_ids``
    [batch, sequence]. Without an ``attention_mask`` or ``position_ids`` sequences cannot begin at different times, and
    ``slots`` is 1. ``chunk`` tokens of a new prompt go into one step, one where the step takes no more. One thread runs
    the steps; ``submit`` is thread-safe.

    Unsupported: the step has other inputs, or no state.
    """

    def __init__(self, model: Any, *, slots: int = 8, chunk: int = 16, places: Optional[int] = None) -> None:
        self._model = model
        entry = next(iter(model.entries.values()))
        kept = {name for name, _ in entry.states}
        if not kept:
            raise Unsupported(f"{model.path}: the decoder keeps no cache: compile it with own_state=True")
        self._kept = [tensor for tensor in entry.inputs if tensor.name in kept]
        self._inputs = {tensor.name: tensor for tensor in entry.inputs if tensor.name not in kept}
        unknown = set(self._inputs) - {"input_ids", "attention_mask", "position_ids"}
        if unknown or "input_ids" not in self._inputs:
            raise Unsupported(
                f"{model.path}: a step with the inputs {', '.join(self._inputs)} is not served; it may have input_ids, "
                "attention_mask and position_ids beside its cache"
            )
        self._batch_dim = str(self._inputs["input_ids"].shape[0])
        independent = {"attention_mask", "position_ids"} <= set(self._inputs) and not self._batch_dim.isdigit()
        self.slots = slots if independent else 1
        tokens = self._inputs["input_ids"].shape[1]
        self._chunk = chunk if isinstance(tokens, str) else 1
        logits = next((t for t in entry.outputs if t.name == "logits"), entry.outputs[0])
        self._logits = logits.name
        self._vocabulary = logits.shape[-1] if isinstance(logits.shape[-1], int) else None
        self._places = places
        self._rows: List[_Row] = []
        self._columns = 0
        self._state = model.state()
        self._arrivals: "queue.SimpleQueue[Optional[_Row]]" = queue.SimpleQueue()
        self.steps = self.fed = 0
        self._thread = threading.Thread(target=self._work, name="attnc-decoder", daemon=True)
        self._thread.start()

    def check(self, request: Request) -> None:
        """InvalidArgument: the request is none that this model serves."""
        request.check(self._vocabulary, self._places)

    def submit(self, request: Request, on_token: OnToken) -> Callable[[], None]:
        """Starts a sequence as soon as there is room. Returns what ends it early. InvalidArgument: see ``check``."""
        self.check(request)
        row = _Row(request, on_token)
        self._arrivals.put(row)

        def leave() -> None:
            row.left = True

        return leave

    def generate(self, request: Request) -> List[int]:
        """The new tokens, once all are there."""
        tokens: List[int] = []
        done: "queue.SimpleQueue[Optional[BaseException]]" = queue.SimpleQueue()

        def on_token(token: Optional[int], error: Optional[BaseException]) -> None:
            done.put(error) if token is None else tokens.append(token)

        self.submit(request, on_token)
        error = done.get()
        if error:
            raise error
        return tokens

    @property
    def active(self) -> int:
        return len(self._rows)

    def close(self) -> None:
        """Ends all sequences with Cancelled, and the thread."""
        self._arrivals.put(None)
        self._thread.join()

    # On the decoder's thread.

    def _work(self) -> None:
        waiting: List[_Row] = []
        while True:
            try:
                while not (self._rows or waiting) or not self._arrivals.empty():
                    row = self._arrivals.get()
                    if row is None:
                        return self._end_all(waiting + self._rows, Cancelled("the server is going down"))
                    waiting.append(row)
                waiting = self._admit(waiting)
                if self._rows:
                    self._step()
            except Exception as error:  # of the model: every sequence in the batch hears of it
                self._end_all(self._rows, error)
                self._rows, self._columns = [], 0
                self._state.reset()

    def _end_all(self, rows: Sequence[_Row], error: Exception) -> None:
        for row in rows:
            row.on_token(None, error)

    def _expired(self, row: _Row) -> bool:
        if row.left:
            row.on_token(None, Cancelled("the caller has gone"))
        elif time.monotonic() > row.request.deadline:
            row.on_token(None, DeadlineExceeded(f"the deadline passed after {row.made} tokens"))
        else:
            return False
        return True

    def _admit(self, waiting: List[_Row]) -> List[_Row]:
        """Lets rows out whose time is over and new ones in; returns those for whom there is no room."""
        kept = [i for i, row in enumerate(self._rows) if not self._expired(row)]
        waiting = [row for row in waiting if not self._expired(row)]
        room = self.slots - len(kept)
        new, rest = waiting[:room], waiting[room:]
        if len(kept) < len(self._rows) or new:
            self._gather(kept, new)
        return rest

    def _gather(self, kept: List[int], new: List[_Row]) -> None:
        if not kept:
            self._state.reset()
            self._columns = 0
        elif self._columns:
            self._state.gather(kept + [-1] * len(new), self._batch_dim)
        for row in new:
            row.visible = np.zeros(self._columns, np.int64)
        self._rows = [self._rows[i] for i in kept] + new
        self._forget()

    def _forget(self) -> None:
        """Drops columns that no row sees any more, once they are half of all: a copy that pays for itself."""
        if not self._rows or not self._columns:
            return
        dead = min(int(row.visible.argmax()) if row.visible.any() else self._columns for row in self._rows)
        if dead < 64 or 2 * dead < self._columns:
            return
        for tensor in self._kept:
            axis = self._cache_axis(tensor)
            if axis is not None:
                contents = self._state[tensor.name]
                place = [slice(None)] * contents.ndim
                place[axis] = slice(dead, None)
                self._state[tensor.name] = np.ascontiguousarray(contents[tuple(place)])
        self._columns -= dead
        for row in self._rows:
            row.visible = row.visible[dead:]

    def _cache_axis(self, tensor: Any) -> Optional[int]:
        open_axes = [i for i, size in enumerate(tensor.shape) if isinstance(size, str) and size != self._batch_dim]
        return open_axes[0] if open_axes else None

    def _take_tokens(self) -> Tuple[int, List[List[int]]]:
        """How many columns the next step has, and each row's tokens in the last of them. A row that sees nothing yet
        fills its columns: a query that sees nothing has no softmax."""
        limits = [len(row.pending) for row in self._rows if not row.visible.any()]
        count = min([self._chunk, *limits, max(len(row.pending) for row in self._rows)])
        return count, [row.pending[:count] for row in self._rows]

    def _step(self) -> None:
        count, tokens = self._take_tokens()
        ids = np.zeros((len(self._rows), count), np.int64)
        positions = np.zeros_like(ids)
        for n, (row, taken) in enumerate(zip(self._rows, tokens)):
            place = slice(count - len(taken), count)
            ids[n, place] = taken
            positions[n, place] = np.arange(row.position, row.position + len(taken))
            shown = np.zeros(count, np.int64)
            shown[place] = 1
            row.visible = np.concatenate([row.visible, shown])
        feeds: Dict[str, Any] = {
            "input_ids": ids,
            "attention_mask": np.stack([row.visible for row in self._rows]),
            "position_ids": positions,
        }
        feeds = {name: feeds[name].astype(self._inputs[name].dtype, copy=False) for name in self._inputs}
        began = time.monotonic()
        logits = np.asarray(self._model.run(feeds, state=self._state)[self._logits])
        _timeline.note("step", began, rows=len(self._rows), tokens=sum(map(len, tokens)), columns=self._columns)
        self._columns += count
        self.steps += 1
        self.fed += sum(map(len, tokens))
        for n, (row, taken) in enumerate(zip(self._rows, tokens)):
            row.position += len(taken)
            row.pending = row.pending[len(taken) :]
            if not row.pending:
                self._continue(row, logits[n, -1])
        if any(row.done for row in self._rows):
            self._gather([i for i, row in enumerate(self._rows) if not row.done], [])

    def _continue(self, row: _Row, logits: "np.ndarray[Any, Any]") -> None:
        """By its next token, or to its end where there is none: its neighbours go on."""
        try:
            token = row.choose(logits)
        except Exception as error:
            row.done = True
            row.on_token(None, error)
        else:
            self._hand_out(row, token)

    def _hand_out(self, row: _Row, token: int) -> None:
        row.made += 1
        row.pending = [token]
        try:
            row.on_token(token, None)
        except Exception:  # of the caller's callback: nobody listens
            row.left = True
            return
        if token in row.request.end_tokens or row.made >= row.request.max_new_tokens:
            row.done = True
            row.on_token(None, None)

