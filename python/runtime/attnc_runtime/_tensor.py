"""What is known of an input, an output or a weight, and arrays of types that NumPy lacks."""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple, Union

from . import _errors


class TensorInfo(NamedTuple):
    """An input or output. In ``shape`` an int is a fixed size. A name is a size that each run chooses, and "" is such a
    size without a name. Equal names have the same size in a run. An ``optional`` input may be left out."""

    name: str
    dtype: str
    shape: Tuple[Union[int, str], ...]
    optional: bool = False

    def __str__(self) -> str:
        shape = ", ".join(str(size) or "?" for size in self.shape)
        return f"{self.name}: {self.dtype} [{shape}]{' optional' if self.optional else ''}"


class WeightInfo(NamedTuple):
    """A weight as the library stores it; ``layout`` says how."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    layout: str


def view_as(bits: Any, name: str) -> Any:
    """An array of integers as the floats that ml_dtypes gives NumPy; called by the binding."""
    try:
        import ml_dtypes
    except ImportError:
        raise _errors.Unsupported(
            f"the result is of type {name}, which NumPy has by the package ml_dtypes alone: pip install ml_dtypes, "
            "or give torch tensors"
        ) from None
    return bits.view(getattr(ml_dtypes, name))
