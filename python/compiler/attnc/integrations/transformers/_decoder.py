"""A compiled decoder that is called token by token, with its caches in a state of the library."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Dict, Optional

import numpy as np
import torch
from attnc_runtime import Entry, InvalidArgument, State
from transformers.modeling_outputs import CausalLMOutputWithPast

from ..._load import Model
from ._runner import as_input

# What transformers calls a cache, as argument and in outputs: "cache" from 5.24 on, "past_key_values" before.
CACHE = "cache" if any(field.name == "cache" for field in fields(CausalLMOutputWithPast)) else "past_key_values"


class StepCache:
    """What ``generate`` hands from one look to the next: a state of the library, where rows change places."""

    is_compileable = False
    is_croppable = True
    is_linear = (False,)  # of layers: whether it keeps a state other than keys and values

    def __init__(self, decoder: "Decoder", width: int = 1) -> None:
        self._decoder = decoder
        self._width = width
        self.state: State = decoder.model.state("step")
        self.constants: Dict[str, torch.Tensor] = {}

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return len(self.state)

    def reorder_cache(self, rows: torch.Tensor) -> None:
        """Row n becomes what row ``rows[n]`` was."""
        order = rows.cpu().numpy().astype(np.int64)
        self.state.gather(order)
        # What an encoder made is equal in all rows of a beam.
        if not np.array_equal(order // self._width, np.arange(len(order)) // self._width):
            self.constants = {name: value.index_select(0, rows.long()) for name, value in self.constants.items()}

    def batch_select_indices(self, rows: torch.Tensor) -> None:
        self._width = 1
        self.reorder_cache(rows)

    def batch_repeat_interleave(self, repeats: int) -> None:
        count = self._decoder.rows(self)
        self.batch_select_indices(torch.arange(count).repeat_interleave(repeats))

    def crop(self, tokens: int) -> None:
        """Forgets the last ``-tokens`` positions."""
        if tokens:
            self.state.truncate(max(len(self.state) - abs(tokens), 0))

    def reset(self) -> None:
        self.state.reset()
        self.constants = {}


class Decoder:
    """The entry ``step`` of a library, which keeps a state, and ``first`` if that ``begins``: a look without caches."""

    def __init__(self, model: Model, *, begins: bool) -> None:
        self.model = model
        self.step = model.entries["step"]
        self.first: Optional[Entry] = model.entries["first"] if begins else None
        if not self.step.states:
            raise InvalidArgument(
                f"{model.path}: the step hands no caches on; its inputs are "
                f"{', '.join(info.name for info in self.step.inputs)}"
            )
        self._kept = dict(self.step.states)
        self._rows = 0

    def rows(self, cache: StepCache) -> int:
        return self._rows

    def look(self, cache: StepCache, given: Dict[str, Optional[torch.Tensor]]) -> torch.Tensor:
        """Scores [rows, tokens, vocabulary] of ``given["input_ids"]`` behind what the cache holds, which then holds
        them, too."""
        empty = len(cache.state) == 0
        tokens = given["input_ids"]
        assert tokens is not None
        self._rows = tokens.shape[0]
        if empty and self.first is not None:
            outputs = self.first.run(_feeds(self.first, given, cache))
            for name, output in self._kept.items():
                cache.state[name] = outputs[output].numpy()
            # What the step takes of the first look and does not change: keys and values of an encoder.
            for info in self.step.inputs:
                made = info.name.replace("past_key_values", "present", 1)
                if info.name not in self._kept and made in outputs:
                    cache.constants[info.name] = outputs[made]
        else:
            outputs = self.step.run(_feeds(self.step, given, cache, self._kept), state=cache.state)
        logits: torch.Tensor = outputs["logits"]
        return logits


def _feeds(
    entry: Entry, given: Dict[str, Optional[torch.Tensor]], cache: StepCache, kept: Any = ()
) -> Dict[str, torch.Tensor]:
    """Inputs that the cache does not keep, those that can be told from others where they are not given."""
    feeds = {}
    tokens = given["input_ids"]
    assert tokens is not None
    for info in entry.inputs:
        if info.name in kept:
            continue
        value = given.get(info.name)
        if value is None:
            value = cache.constants.get(info.name)
        if value is None:
            value = _default(info.name, tokens, len(cache.state), given)
        if value is None:
            raise InvalidArgument(f"the model has an input '{info.name}', which is not given")
        feeds[info.name] = as_input(value.to(getattr(torch, info.dtype)))
    return feeds


def _default(
    name: str, tokens: torch.Tensor, past: int, given: Dict[str, Optional[torch.Tensor]]
) -> Optional[torch.Tensor]:
    rows, count = tokens.shape
    if name in ("attention_mask", "decoder_attention_mask"):
        return torch.ones(rows, past + count, dtype=torch.int64)
    if name == "encoder_attention_mask" and (states := given.get("encoder_hidden_states")) is not None:
        return torch.ones(states.shape[:2], dtype=torch.int64)
    if name == "position_ids":
        return torch.arange(past, past + count).expand(rows, count)
    if name == "cache_position":
        return torch.arange(past, past + count)
    return None
