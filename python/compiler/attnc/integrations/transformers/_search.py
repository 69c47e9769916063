"""Which compiled search gives the tokens that a generation of transformers asks for."""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Tuple

import torch
from transformers.generation import (
    EosTokenCriteria,
    GenerationConfig,
    LogitsProcessorList,
    MaxLengthCriteria,
    MinLengthLogitsProcessor,
    MinNewTokensLengthLogitsProcessor,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from ..._search import Beam, Greedy, Sample, Search


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
    if settings.do_sample and settings.num_beams > 1:
        raise Unmapped("sampling of beams")
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
        elif not (settings.do_sample and _draws(processor)):
            raise Unmapped(type(processor).__name__)
    drawn = [_DRAWN.index(type(processor)) for processor in processors if type(processor) in _DRAWN]
    if drawn != sorted(set(drawn)):
        raise Unmapped("other order of temperature, top_k and top_p")
    common: Any = dict(
        init=init,
        step="step",
        tokens="input_ids",
        logits="logits",
        eos=eos or None,
        max_length="input",
        min_length=least or None,
    )
    if settings.do_sample:
        return Sample(seed="input", temperature="input", top_k="input", top_p="input", **common)
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


# In the order in which a compiled sampling has them.
_DRAWN = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)


def _draws(processor: Any) -> bool:
    """Whether it is one that a compiled sampling has as well."""
    least = getattr(processor, "min_tokens_to_keep", 1)
    return type(processor) in _DRAWN and least == 1 and getattr(processor, "filter_value", -math.inf) == -math.inf


def drawing(processors: LogitsProcessorList) -> Dict[str, torch.Tensor]:
    """What a run of ``Sample`` is given. Torch's generator makes the seed, so that ``torch.manual_seed`` determines the
    tokens; they are others than torch draws, of the same distribution."""
    given = {"seed": torch.randint(1 << 62, (1,))}
    for processor in processors:
        if type(processor) is TemperatureLogitsWarper:
            given["temperature"] = torch.tensor([processor.temperature], dtype=torch.float32)
        elif type(processor) is TopKLogitsWarper:
            given["top_k"] = torch.tensor([processor.top_k])
        elif type(processor) is TopPLogitsWarper:
            given["top_p"] = torch.tensor([processor.top_p], dtype=torch.float32)
    return given


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
