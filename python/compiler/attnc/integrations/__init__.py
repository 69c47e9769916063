"""attnc inside other libraries: each module here needs the library of its name."""

from __future__ import annotations

from typing import Any, TypeVar

from attnc_runtime import InvalidArgument

_T = TypeVar("_T")


def accelerate(model: _T, **options: Any) -> _T:
    """Compiles the encoder of ``model``, a SentenceTransformer (or another model of sentence-transformers 6). The
    result is used like ``model`` and has the same tokenizer, pooling, prompts and normalisation. ``model`` itself is
    not changed. The result runs on the CPU and cannot be trained or saved.

    The weights are those that ``model`` has now. BERT encoders are compiled directly. Others go through the ONNX
    exporter of transformers, which needs the packages onnx and onnxscript. ``options`` are those of ``load``: threads,
    weights="int8", precision="bf16", ...

    Unsupported       the exporter or attnc does not support the model, or the model takes more than texts
    InvalidArgument   ``model`` is not a model of sentence-transformers, or an option is wrong
    """
    if not any(kind.__module__.startswith("sentence_transformers.") for kind in type(model).__mro__):
        raise InvalidArgument(f"expected a SentenceTransformer, not an object of type {type(model).__name__}")
    from .sentence_transformers import accelerate as accelerate_sentences

    result: _T = accelerate_sentences(model, **options)
    return result
