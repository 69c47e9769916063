"""How a compiled search looks for sequences. Names and numbers mean what they do in ``attnc --generate``."""

from __future__ import annotations

import dataclasses
import numbers
from dataclasses import dataclass, field
from typing import Any, List, Mapping, Optional, Sequence, Union

from attnc_runtime import InvalidArgument


@dataclass(frozen=True, kw_only=True)
class Search:
    """The fields that every search has. None stands for the compiler's default.

    step, init        the entry that is one step; the entry that runs before it and makes its states and constants
    bos, eos          the first token, an id or "input" (one per row); the tokens that end a sequence
    max_length        the most tokens of a result: a number, "dim:NAME", "dim:NAME+N", or "input"
    min_length        the fewest tokens of a result
    tokens, logits    the step's input that takes the last token; its output that scores the next token
    alignment         an output of the step to return for each token
    states            which inputs of a step are which outputs of the previous step (default: by their names)
    """

    step: Optional[str] = None
    init: Optional[str] = None
    bos: Union[int, str, None] = None
    eos: Union[int, Sequence[int], None] = None
    max_length: Union[int, str, None] = None
    min_length: Optional[int] = None
    tokens: Optional[str] = None
    logits: Optional[str] = None
    alignment: Optional[str] = None
    states: Optional[Mapping[str, str]] = None

    def _kind(self) -> str:
        raise NotImplementedError

    def flags(self) -> List[str]:
        """For the command line of attnc. InvalidArgument where True or False stands for a number, or the reverse."""
        result = [f"--generate={self._kind()}"]
        for each in dataclasses.fields(self):
            value: Any = getattr(self, each.name)
            if value is not None and isinstance(value, bool) != isinstance(each.default, bool):
                expected = "True or False" if isinstance(each.default, bool) else "a number or a name"
                raise InvalidArgument(f"{each.name} expects {expected}, not {value!r}")
            if each.name in ("width", "gnmt") or value is None or value is False:
                continue
            name = {"states": "state", "seed": "sample-seed"}.get(each.name, each.name.replace("_", "-"))
            if value is True:
                result.append(f"--{name}")
                continue
            if each.name == "eos" and not isinstance(value, numbers.Integral):
                value = ",".join(str(token) for token in value)
            if each.name == "states":
                value = ",".join(f"{input}:{output}" for input, output in value.items())
            if each.name == "length_penalty" and getattr(self, "gnmt", False):
                value = f"gnmt:{value}"
            result.append(f"--{name}={value}")
        return result

    def completed_by(self, other: "Search") -> "Search":
        """This search, with the fields of ``Search`` that it leaves out taken from ``other``."""
        common = {each.name for each in dataclasses.fields(Search)}
        taken = {name: getattr(other, name) for name in common if getattr(self, name) is None}
        return dataclasses.replace(self, **taken)


@dataclass(frozen=True, kw_only=True)
class Greedy(Search):
    """The most probable token at each step."""

    def _kind(self) -> str:
        return "greedy"


@dataclass(frozen=True)
class Beam(Search):
    """The ``width`` most probable beginnings at each step.

    length_penalty    divides scores of complete sequences of n tokens by n^A, or with gnmt by ((5+n)/6)^A
    n_best            how many sequences to return
    ended             "refill" or "shrink": whether the beam stays as wide when sequences end
    early_stop        stops as soon as there are as many complete sequences as the beam is wide
    coverage_penalty  of Wu et al. 2016; needs ``alignment``
    """

    width: int = 5
    length_penalty: Optional[float] = field(default=None, kw_only=True)
    gnmt: bool = field(default=False, kw_only=True)
    n_best: Optional[int] = field(default=None, kw_only=True)
    ended: Optional[str] = field(default=None, kw_only=True)
    early_stop: bool = field(default=False, kw_only=True)
    coverage_penalty: Optional[float] = field(default=None, kw_only=True)

    def _kind(self) -> str:
        return f"beam:{self.width}"


@dataclass(frozen=True, kw_only=True)
class Sample(Search):
    """A token drawn at each step, from the ``top_k`` most probable and those that together have probability ``top_p``.

    Each run may give a field that is "input" under its name, as an array of one number (int64 for seed and top_k,
    float32 for the others).
    """

    seed: Union[int, str, None] = None
    temperature: Union[float, str, None] = None
    top_k: Union[int, str, None] = None
    top_p: Union[float, str, None] = None

    def _kind(self) -> str:
        return "sample"
