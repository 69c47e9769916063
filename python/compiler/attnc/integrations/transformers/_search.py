"""Which compiled search gives the tokens that a generation of transformers asks for."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from transformers.generation import (
    EosTokenCriteria,
    GenerationConfig,
    LogitsProcessorList,
    MaxLengthCriteria,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    StoppingCriteriaList,
)

from ..._search import Beam, Greedy, Search


class Unmapped(Exception):
    """Why no compiled search does it."""


def search_of(
    settings: GenerationConfig,
    processors: LogitsProcessorList,
    criteria: StoppingCriteriaList,
    prompt: int,
    init: Optional[str],
) -> Search:
    """The search for settings that transformers has completed, around the entry "step", behind a prompt of ``prompt``
    tokens that ``init`` looks at. What it is made of is all that it is told by: a processor or criterion that is not
    known here raises Unmapped."""
    _check_outputs(settings)
    if settings.do_sample:
        raise Unmapped("sampling by torch's generator")
    eos: Tuple[int, ...] = ()
    for criterion in criteria:
        if type(criterion) is EosTokenCriteria:
            eos = tuple(int(token) for token in criterion.eos_token_id)
        elif type(criterion) is not MaxLengthCriteria:
            raise Unmapped(type(criterion).__name__)
    least = 0
    for processor in processors:
        if type(processor) is MinLengthLogitsProcessor:
            least = max(least, processor.min_length - prompt)
        elif type(processor) is MinNewTokensLengthLogitsProcessor:
            least = max(least, processor.min_new_tokens + processor.prompt_length_to_skip - prompt)
        else:
            raise Unmapped(type(processor).__name__)
    common: Any = dict(
        init=init,
        step="step",
        tokens="input_ids",
        logits="logits",
        eos=eos or None,
        max_length="input",
        min_length=least or None,
    )
    if settings.num_beams == 1:
        return Greedy(**common)
    if settings.early_stopping == "never" and settings.length_penalty > 0:
        raise Unmapped("early_stopping='never' with a length penalty above 0")
    return Beam(
        settings.num_beams,
        length_penalty=settings.length_penalty or None,
        early_stop=settings.early_stopping is True,
        n_best=settings.num_return_sequences,
        **common,
    )


def _check_outputs(settings: GenerationConfig) -> None:
    outputs = [f"output_{what}" for what in ("scores", "logits", "attentions", "hidden_states")]
    for name in ("return_dict_in_generate", *outputs):
        if getattr(settings, name):
            raise Unmapped(f"{name}=True")
    if settings.use_cache is False:
        raise Unmapped("use_cache=False")


def padded(tokens: torch.Tensor, lengths: torch.Tensor, fill: int) -> torch.Tensor:
    """[rows, length] up to the longest row, ``fill`` behind the end of each."""
    longest = int(lengths.max())
    tokens = tokens[:, :longest]
    behind = torch.arange(longest) >= lengths[:, None]
    return tokens.masked_fill(behind, fill)
