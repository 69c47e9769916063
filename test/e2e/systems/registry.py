"""The systems that check_systems.py compiles."""
from dataclasses import dataclass, field

import numpy as np
from layers import Net

SYSTEMS = {}
net = Net


@dataclass
class System:
    name: str
    attentions: int
    weights: dict  # name: (*shape, gain)
    cases: object  # rng -> [(entry or "", feeds)]
    reference: object  # (net, entry, **feeds) -> outputs
    twin_entry: str = ""  # the entry that is the twin's graph


def system(name, attentions, weights, cases, twin_entry=""):
    """Registers the function below it as the reference of NAME.json."""
    def register(reference):
        SYSTEMS[name] = System(name, attentions, weights, cases, reference, twin_entry)
        return reference
    return register


def linear(name, units, width, bias=True, gain=1.0):
    return {f"{name}.weight": (units, width, gain), **({f"{name}.bias": (units, 0.5)} if bias else {})}


def embedding(name, words, width):
    return {f"{name}.weight": (words, width, np.sqrt(width) * 0.8)}


def norm(name, width):
    return {f"{name}.weight": (width, 2.0), f"{name}.bias": (width, 0.5)}


def recurrent(name, kind, units, width, layers=1, bidirectional=False, cell=False):
    """PyTorch's weights of an LSTM, a GRU or one step of them."""
    gates, result = {"lstm": 4, "gru": 3}[kind] * units, {}
    for layer in range(layers):
        for end in ([""] if cell else [f"_l{layer}", f"_l{layer}_reverse"][:2 if bidirectional else 1]):
            inner = width if layer == 0 else units * (2 if bidirectional else 1)
            result |= {f"{name}.weight_ih{end}": (gates, inner, 1.0), f"{name}.weight_hh{end}": (gates, units, 1.0),
                       f"{name}.bias_ih{end}": (gates, 0.3), f"{name}.bias_hh{end}": (gates, 0.3)}
    return result


def heads(name, width, source=None):
    """The projections of a multi-head attention."""
    source = source or width
    return (linear(name + ".query", width, width, gain=1.5) | linear(name + ".key", width, source, gain=1.5)
            | linear(name + ".value", width, source) | linear(name + ".output", width, width))


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def words(rng, *shape, count=40):
    return rng.integers(1, count, shape)
