"""What an entry keeps between runs."""

from __future__ import annotations

import numbers
from typing import Any, Optional

from . import _core, _errors


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, numbers.Integral):
        raise _errors.InvalidArgument(f"{name} expects a whole number, not {value!r}")
    if not -(1 << 63) <= int(value) < 1 << 63:
        raise _errors.InvalidArgument(f"{name} expects a number of 64 bits, not {value!r}")
    return int(value)


class State:
    """What an entry keeps from one run to the next: key/value caches, which grow in place, and other inputs that are
    outputs of the previous run. A state serves one run at a time."""

    def __init__(self, engine: _core.Engine, native: _core.State) -> None:
        self._engine = engine
        self._native = native

    def __len__(self) -> int:
        """How many rows the longest cache has."""
        return self._native.length()

    def truncate(self, length: int) -> None:
        """Forgets all rows of the caches after the first ``length`` rows, without a copy."""
        self._native.truncate(_whole("length", length))

    def gather(self, rows: Any, dim: Optional[str] = None) -> None:
        """Row n becomes what row ``rows[n]`` was, in every kept input along the dimension ``dim`` (default: the first,
        such as a batch). Rows can change places, be repeated (a beam that goes on twice) or be left out (a sequence
        that has ended). -1 gives a row of zeros. ``rows`` are integers; the dimension has as many rows afterwards."""
        import numpy

        found = numpy.asarray(rows)
        if found.size == 0 and found.ndim == 1:
            found = found.astype(numpy.int64)
        if found.ndim != 1 or found.dtype.kind not in "iu" or found.max(initial=0) > (1 << 63) - 1:
            raise _errors.InvalidArgument(f"rows expects whole numbers of 64 bits, one per row, not {rows!r}")
        self._native.gather(numpy.ascontiguousarray(found, numpy.int64), dim)

    def reset(self) -> None:
        """Empties the state, and keeps its memory."""
        self._native.reset()

    def clone(self) -> "State":
        """Returns another state with a copy of the contents."""
        return State(self._engine, self._native.clone())

    def limit(self, rows: int) -> None:
        """Makes room for ``rows`` rows in each cache. A run that needs more fails. 0 (default): no limit."""
        self._native.set_limit(_whole("rows", rows))

    def __setitem__(self, input: str, value: Any) -> None:
        """Replaces the contents of an input by a copy of an array on the CPU."""
        self._native.set(input, value)

    def __getitem__(self, input: str) -> Any:
        """A copy of the contents of an input, as a NumPy array."""
        return self._native.get(input)
