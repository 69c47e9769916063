"""Functions of a model: a run, with a deadline, from asyncio, or ended by another thread."""

from __future__ import annotations

import collections.abc
import functools
import numbers
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

from . import _core, _errors
from ._state import State
from ._tensor import TensorInfo

OnToken = Callable[[int, int, int], Optional[bool]]


#: In place of inputs that a run was to have.
NOT_GIVEN: Any = object()


def _nanoseconds(timeout: Optional[float]) -> int:
    if timeout is None:
        return 0
    if not isinstance(timeout, numbers.Real) or not timeout > 0:
        raise _errors.InvalidArgument(f"timeout expects seconds above 0, not {timeout!r}")
    return max(int(min(float(timeout), 9e9) * 1e9), 1)


def _arrays(what: str, given: Mapping[str, Any]) -> Dict[str, Any]:
    if not isinstance(given, collections.abc.Mapping):
        raise _errors.InvalidArgument(f"{what} expects a mapping of names to arrays, not {type(given).__name__}")
    return dict(given)


class Cancel:
    """Stops runs, from any thread. The runs that it was given to end with Cancelled, and later ones end at once."""

    def __init__(self) -> None:
        self._native = _core.Cancel()

    def request(self) -> None:
        self._native.request()


class Entry:
    """A function of the model. Call it with arrays by position or by name; see Model.__call__."""

    def __init__(self, engine: _core.Engine, index: int, row: Tuple[Any, ...]) -> None:
        self._engine = engine
        self._index = index
        self._function = engine.entry_function(index)
        self.name: str = row[0]
        self.inputs: Tuple[TensorInfo, ...] = tuple(TensorInfo(*tensor) for tensor in row[1])
        self.outputs: Tuple[TensorInfo, ...] = tuple(TensorInfo(*tensor) for tensor in row[2])
        self.states: Tuple[Tuple[str, str], ...] = row[3]

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self._function(*inputs, **named)

    def _by_name(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> Dict[str, Any]:
        """What a call gives by position and by name, by name."""
        names = [info.name for info in self.inputs]
        if len(inputs) > len(names):
            raise _errors.InvalidArgument(f"takes {len(names)} inputs, not {len(inputs)}: {', '.join(names)}")
        twice = [name for name in names[: len(inputs)] if name in named]
        if twice:
            raise _errors.InvalidArgument(f"input '{twice[0]}' is given by position and by name")
        return {**dict(zip(names, inputs)), **named}

    def run(
        self,
        inputs: Mapping[str, Any] = NOT_GIVEN,
        *others: Any,
        out: Optional[Mapping[str, Any]] = None,
        timeout: Optional[float] = None,
        cancel: Optional[Cancel] = None,
        state: Optional[State] = None,
        on_token: Optional[OnToken] = None,
        **named: Any,
    ) -> Dict[str, Any]:
        """Runs with ``inputs`` by name and returns all outputs by name; see Model.run."""
        if named:
            name = next(iter(named))
            raise _errors.InvalidArgument(
                f"run has no option '{name}', and takes the inputs as one mapping: run({{'{name}': ...}}); a call takes them "
                f"by name: model({name}=...)"
            )
        if inputs is NOT_GIVEN:
            raise _errors.InvalidArgument("run expects the inputs, as one mapping of names to arrays")
        if others and isinstance(inputs, Mapping):
            raise _errors.InvalidArgument("run expects the inputs alone, and all else by keyword")
        if others:
            raise _errors.InvalidArgument(
                "run expects the inputs alone, by name, and returns all outputs by name: of ONNX Runtime's "
                "run(names, feeds) write run(feeds)"
            )
        for name, value, kind in (("cancel", cancel, Cancel), ("state", state, State)):
            if value is not None and not isinstance(value, kind):
                raise _errors.InvalidArgument(f"{name} expects an attnc.{kind.__name__}, not {type(value).__name__}")
        if on_token is not None and not callable(on_token):
            raise _errors.InvalidArgument(f"on_token expects a function of row, step and token, not {on_token!r}")
        native = None if cancel is None else cancel._native
        kept = None if state is None else state._native
        if kept is not None and state is not None and state._engine is not self._engine:
            raise _errors.InvalidArgument("the state belongs to another model")
        given, buffers = _arrays("inputs", inputs), None if out is None else _arrays("out", out)
        result = self._engine.run(self._index, given, buffers, _nanoseconds(timeout), native, kept, on_token, True)
        return dict(result)

    async def arun(self, inputs: Mapping[str, Any], **options: Any) -> Dict[str, Any]:
        """``run`` for asyncio; see Model.arun."""
        import asyncio  # a seventh of what a process takes to start, most of which never await

        cancel = options.pop("cancel", None) or Cancel()
        call = functools.partial(self.run, inputs, cancel=cancel, **options)
        running = asyncio.get_running_loop().run_in_executor(None, call)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            cancel.request()
            # The arrays are the caller's again once the run has ended.
            while not running.done():
                await asyncio.wait([running])
            running.exception() if not running.cancelled() else None
            raise

    def __repr__(self) -> str:
        return f"<Entry {self.name}({', '.join(map(str, self.inputs))}) -> {', '.join(map(str, self.outputs))}>"
