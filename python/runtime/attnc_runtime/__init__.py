"""Runs model libraries that attnc compiled. The package ``attnc`` has this and the compiler."""

from . import _interface  # isort: skip  # before what uses the module that it checks
from ._attention import AttentionMaps
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
from ._model import Cancel, Entry, Model, State, TensorInfo, WeightInfo
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
