"""One hierarchy of errors: what a run, a load or a compile raises when it cannot do what was requested."""

from __future__ import annotations

import re
from typing import Dict, Sequence, Tuple, Type

_NODE = re.compile(r"(?:node|layer) '(?P<name>[^']*)' \((?P<operator>[^)]*)\)")
_OPERATOR = re.compile(r"(?P<operator>\S+) \((?:node|layer) '(?P<name>[^']*)'\)")


class Error(Exception):
    """The base of all errors. Its ``str()`` is the message, with names and the expected and the given value.

    status    a word for the kind: "invalid argument", "unsupported", ...
    node      the model's node that the message names, or None
    operator  that node's operator, or None
    more      further errors of the same compile, as of other options (unsupported operators are one error)
    notes     notes and warnings that came with them
    """

    status = "error"

    def __init__(self, message: str, more: Sequence[str] = (), notes: Sequence[str] = ()) -> None:
        super().__init__(message)
        found = _NODE.search(message) or _OPERATOR.search(message)
        self.node: "str | None" = found["name"] if found else None
        self.operator: "str | None" = found["operator"] if found else None
        self.more: Tuple[str, ...] = tuple(more)
        self.notes: Tuple[str, ...] = tuple(notes)

    def __str__(self) -> str:
        lines = [str(self.args[0])] + [f"  {text}" for text in self.more + self.notes]
        return "\n".join(lines)

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return type(self), (self.args[0], self.more, self.notes)


class InvalidArgument(Error, ValueError):
    """The caller passed something wrong: a name, a dtype, a shape, an option, a damaged model."""

    status = "invalid argument"


class OutOfRange(Error, IndexError):
    """An index in the data, such as a token, is outside of its axis."""

    status = "out of range"


class NotFound(Error, LookupError):
    """No such entry, weight or state."""

    status = "not found"


class NoSuchFile(NotFound, FileNotFoundError):
    """No such file."""


class CorruptFile(Error):
    """Not a model library, or a damaged one."""

    status = "corrupt file"


class Incompatible(Error):
    """Made for another version, architecture or processor."""

    status = "incompatible"


class OutOfMemory(Error, MemoryError):
    """There is no more memory, or a limit on memory was reached."""

    status = "out of memory"


class Cancelled(Error):
    """Somebody asked the run to stop."""

    status = "cancelled"


class DeadlineExceeded(Error, TimeoutError):
    """The timeout passed."""

    status = "deadline exceeded"


class Internal(Error):
    """A fault of attnc's own."""

    status = "internal error"


class Unsupported(Error, NotImplementedError):
    """A valid request that this version does not support."""

    status = "unsupported"


class FileError(Error, OSError):
    """The operating system refused an operation on a file."""

    status = "i/o error"


class DeviceError(Error):
    """No usable GPU, or the GPU or its driver failed."""

    status = "device error"


# By attnrt_status.
_CLASSES: Dict[int, Type[Error]] = {
    1: InvalidArgument,
    2: OutOfRange,
    3: NotFound,
    4: CorruptFile,
    5: Incompatible,
    6: OutOfMemory,
    7: Cancelled,
    8: DeadlineExceeded,
    9: Internal,
    10: Unsupported,
    11: FileError,
    12: DeviceError,
}


def from_status(status: int, name: str, message: str) -> Error:
    """The exception for an attnrt_status; called by the binding."""
    error = _CLASSES.get(status, Error)(message)
    error.status = name
    return error
