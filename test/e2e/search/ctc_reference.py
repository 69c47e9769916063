"""CTC decoding in NumPy, written from the description of attn.ctc_search (dialects/attn/SearchOp.td). One item:
scores [time, labels] of the frames that count."""
import itertools

import numpy as np

from reference import log_softmax


def collapse(path, blank):
    return tuple(k for k, _ in itertools.groupby(path) if k != blank)


def greedy(scores, blank):
    if not len(scores):
        return (), 0.0
    path = scores.argmax(-1)
    return collapse(path.tolist(), blank), float(log_softmax(scores)[np.arange(len(scores)), path].sum())


def beam(scores, blank, width):
    """[(labels, score)] of at most `width` prefixes, best first."""
    live = {(): (0.0, -np.inf)}  # ends in a blank, in a label; in order
    for row in log_softmax(scores) if len(scores) else ():
        stay = {}
        longer = {}
        for prefix, (blanks, labels) in live.items():
            both = np.logaddexp(blanks, labels)
            stay[prefix] = [both + row[blank], labels + row[prefix[-1]] if prefix else -np.inf]
        for place, (prefix, (blanks, labels)) in enumerate(live.items()):
            for label, p in enumerate(row):
                if label == blank:
                    continue
                new = prefix + (label,)
                s = (blanks if prefix and prefix[-1] == label else np.logaddexp(blanks, labels)) + p
                if new in stay:
                    stay[new][1] = np.logaddexp(stay[new][1], s)
                else:
                    longer[new] = (s, place, label)
        order = [(np.logaddexp(*p), place, -1, prefix, tuple(p)) for place, (prefix, p) in enumerate(stay.items())]
        order += [(s, place, label, prefix, (-np.inf, s)) for prefix, (s, place, label) in longer.items()]
        order.sort(key=lambda c: (-c[0], c[1], c[2]))
        live = {prefix: p for s, _, _, prefix, p in order[:width] if s > -np.inf}
    return [(prefix, np.logaddexp(*p)) for prefix, p in live.items()]


def all_paths(scores, blank):
    """{labels: log of the probability of all paths that spell them}, by listing them."""
    logp, result = log_softmax(scores), {}
    for path in itertools.product(range(scores.shape[1]), repeat=len(scores)):
        spelled = collapse(path, blank)
        p = sum(logp[t, k] for t, k in enumerate(path))
        result[spelled] = np.logaddexp(result.get(spelled, -np.inf), p)
    return result
