"""Runs model libraries that attnc compiled. The package ``attnc`` includes this package and the compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

from . import _interface  # isort: skip  # before what uses the module that it checks
from ._core import version as __version__
from ._errors import (
    Cancelled,
    CorruptFile,
    DeadlineExceeded,
    DeviceError,
    Error,
    FileError,
    Incompatible,
    Internal,
    InvalidArgument,
    NoSuchFile,
    NotFound,
    OutOfMemory,
    OutOfRange,
    Unsupported,
)
from ._entry import Cancel, Entry
from ._model import Model
from ._state import State
from ._tensor import TensorInfo, WeightInfo

if TYPE_CHECKING:
    from ._attention import AttentionMaps
    from ._report import FusionReport, Profile, Region, Verdict

__all__ = [
    "AttentionMaps",
    "Cancel",
    "Cancelled",
    "CorruptFile",
    "DeadlineExceeded",
    "DeviceError",
    "Entry",
    "Error",
    "FileError",
    "FusionReport",
    "Incompatible",
    "Internal",
    "InvalidArgument",
    "Model",
    "NoSuchFile",
    "NotFound",
    "OutOfMemory",
    "OutOfRange",
    "Profile",
    "Region",
    "State",
    "TensorInfo",
    "Unsupported",
    "Verdict",
    "WeightInfo",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """What shows a model to people: most processes run it, and start sooner without."""
    if name not in ("AttentionMaps", "FusionReport", "Profile", "Region", "Verdict"):
        raise AttributeError(f"module 'attnc_runtime' has no attribute '{name}'")
    from . import _attention, _report

    value = globals()[name] = getattr(_attention if name == "AttentionMaps" else _report, name)
    return value


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})
