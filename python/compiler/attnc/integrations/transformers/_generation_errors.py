"""What an export for generation cannot serve, said before or instead of what torch's exporter says."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import logging
import sys
import traceback
from typing import Any, Iterator, Mapping, Set

import torch
from attnc_runtime import InvalidArgument
from transformers import PreTrainedModel
from transformers.cache_utils import Cache


@contextlib.contextmanager
def quiet_failure(model: PreTrainedModel) -> Iterator[None]:
    """Makes one InvalidArgument of any error. What torch's exporter prints is printed where it succeeds, without its
    log: before it fails, that is a thousand lines of its graph."""
    out, err = io.StringIO(), io.StringIO()
    level = logging.root.manager.disable
    logging.disable(max(level, logging.ERROR))
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            yield
    except Exception as error:
        reason = _cannot_cache(model)
        if not reason and isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(
            f"{type(model).__name__} cannot be exported with its caches: {reason or _first_line(error)}; "
            "AttncExporter().export(model, inputs) exports it without them"
        ) from None
    finally:
        logging.disable(level)
    sys.stdout.write(out.getvalue())
    sys.stderr.write(err.getvalue())


def _cannot_cache(model: PreTrainedModel) -> str:
    """Why torch's exporter fails at the caches of ``model``, if that is known."""
    kinds = set(getattr(model.config.get_text_config(decoder=True), "layer_types", None) or ())
    others = sorted(kinds - {"full_attention", "sliding_attention", "chunked_attention"})
    if others:
        return f"it has layers that keep a state other than keys and values ({', '.join(others)})"
    if getattr(model, "_is_stateful", False):
        return "it keeps a state other than keys and values"
    return ""


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    if not text:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{frame.line} ({frame.filename}:{frame.lineno})"
    return f"{type(error).__name__}: {text}"


def check_call(model: PreTrainedModel, given: Set[str]) -> None:
    """Raises InvalidArgument where ``model`` cannot be called with inputs of those names alone."""
    parameters = inspect.signature(model.forward).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    missing = [name for name in needed if name not in given]
    if not missing:
        return
    parts = [f"model.{name}" for name, part in model.named_children() if isinstance(part, PreTrainedModel)]
    raise InvalidArgument(
        f"{type(model).__name__} cannot write tokens from tokens alone: each call needs {' and '.join(missing)}, which an "
        "export for generation does not give. AttncExporter().export(model, inputs) exports one look at all inputs"
        + (f"; so it does with parts of the model, {' and '.join(parts)}, and their inputs" if parts else "")
    )


def check_inputs(model: PreTrainedModel, sample: Mapping[str, Any], components: Mapping[str, Any]) -> None:
    """Raises InvalidArgument for an input of the example that ``model`` reads and no exported graph does: without it
    the graphs give other tokens."""
    seq2seq = "encoder_model" in components
    read = _read(components["encoder_model" if seq2seq else "model"])
    if seq2seq:
        # The decoder takes these by names of its own. An encoder that shortens its input has a mask that it does not.
        read = (read - {"attention_mask"}) | {"decoder_input_ids"}
        if "encoder_attention_mask" in _read(components["decoder_model"]):
            read.add("attention_mask")
    for name, value in sample.items():
        if name in read or value is None or isinstance(value, (bool, str, Cache)) or _ignores(model, sample, name):
            continue
        raise InvalidArgument(
            f"{type(model).__name__} reads the input '{name}' of the example, and its export for generation does not: "
            f"that reads {', '.join(sorted(read))}. AttncExporter().export(model, inputs) exports one look at all "
            f"inputs; an example without '{name}' exports a model that writes without it"
        )


def _read(component: Any) -> Set[str]:
    graph = component.program.graph
    return {value.name for value in graph.inputs if value.uses() and not value.name.startswith("past_key_values.")}


def _ignores(model: PreTrainedModel, sample: Mapping[str, Any], name: str) -> bool:
    """Whether ``model`` gives the same without that input, as Whisper does without a mask."""
    given = dict(sample)
    if model.config.is_encoder_decoder and "decoder_input_ids" not in given:
        rows = next(len(value) for value in sample.values() if isinstance(value, torch.Tensor))
        given["decoder_input_ids"] = torch.ones(rows, 2, dtype=torch.int64)
    rest = {key: value for key, value in given.items() if key != name}
    if name.endswith("attention_mask"):  # an example's hides nothing, often, and is as good as none
        rest[name] = given[name].clone()
        rest[name][..., given[name].shape[-1] // 2 :] = 0
    try:
        with torch.no_grad():
            whole, part = (model(**copy.deepcopy(inputs)).logits for inputs in (given, rest))
    except Exception:  # what the model cannot do without, it reads
        return False
    return bool(torch.equal(whole, part))
