"""Compiles attention models and runs them.

    import attnc
    model = attnc.load("model.onnx")
    y = model(input_ids=ids, attention_mask=mask)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, List

from attnc_runtime import (
    Cancel,
    Cancelled,
    CorruptFile,
    DeadlineExceeded,
    DeviceError,
    Entry,
    Error,
    FileError,
    Incompatible,
    Internal,
    InvalidArgument,
    NoSuchFile,
    NotFound,
    OutOfMemory,
    OutOfRange,
    State,
    TensorInfo,
    Unsupported,
    WeightInfo,
    __version__,
)

from ._load import Model, load

if TYPE_CHECKING:
    from attnc_runtime import AttentionMaps, FusionReport, Profile, Region, Verdict

    from ._cache import Cache, CacheWarning
    from ._compile import Compiled, CompileWarning, compile
    from ._search import Beam, Greedy, Sample, Search
    from .integrations import accelerate
    from .text_encoder import TextEncoder

# A process that loads a library and runs it needs none of these, and starts in half the time without them.
_LATER = {
    "attnc_runtime": ("AttentionMaps", "FusionReport", "Profile", "Region", "Verdict"),
    "attnc._cache": ("Cache", "CacheWarning"),
    "attnc._compile": ("Compiled", "CompileWarning", "compile"),
    "attnc._search": ("Beam", "Greedy", "Sample", "Search"),
    "attnc.integrations": ("accelerate",),
    "attnc.text_encoder": ("TextEncoder",),
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module 'attnc' has no attribute '{name}'")


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "AttentionMaps",
    "Beam",
    "Cache",
    "CacheWarning",
    "Cancel",
    "Cancelled",
    "CompileWarning",
    "Compiled",
    "CorruptFile",
    "DeadlineExceeded",
    "DeviceError",
    "Entry",
    "Error",
    "FileError",
    "FusionReport",
    "Greedy",
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
    "Sample",
    "Search",
    "State",
    "TensorInfo",
    "TextEncoder",
    "Unsupported",
    "Verdict",
    "WeightInfo",
    "__version__",
    "accelerate",
    "compile",
    "load",
]
