"""Compiles attention models and runs them.

    import attnc
    model = attnc.load("model.onnx")
    y = model(input_ids=ids, attention_mask=mask)
"""

from attnc_runtime import (
    AttentionMaps,
    Cancel,
    Cancelled,
    CorruptFile,
    DeadlineExceeded,
    DeviceError,
    Entry,
    Error,
    FileError,
    FusionReport,
    Incompatible,
    Internal,
    InvalidArgument,
    NoSuchFile,
    NotFound,
    OutOfMemory,
    OutOfRange,
    Profile,
    Region,
    State,
    TensorInfo,
    Unsupported,
    Verdict,
    WeightInfo,
    __version__,
)

from ._cache import Cache, CacheWarning
from ._compile import Compiled, compile
from ._load import Model, load
from ._search import Beam, Greedy, Sample, Search
from .integrations import accelerate
from .text_encoder import TextEncoder

__all__ = [
    "AttentionMaps",
    "Beam",
    "Cache",
    "CacheWarning",
    "Cancel",
    "Cancelled",
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
