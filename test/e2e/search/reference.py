"""A search in NumPy, written from the description of attn.search (dialects/attn/SearchOp.td).

`step(tokens [rows], states) -> (scores [rows, vocabulary], states, extra [rows, ...] or None)`; every state has
its rows first.
"""
import numpy as np


def log_softmax(x):
    x = x.astype(np.float64)
    m = x.max(-1, keepdims=True)
    return x - m - np.log(np.exp(x - m).sum(-1, keepdims=True))


def greedy(step, states, first, eos, max_length, min_length=0, choose=None):
    """first: tokens [batch], or scores [batch, vocabulary]."""
    batch = len(first)
    tokens, scores, lengths = [[] for _ in range(batch)], np.zeros(batch), np.zeros(batch, np.int64)
    extras = [[] for _ in range(batch)]
    is_open = np.ones(batch, bool)
    given = first
    for t in range(1, max_length + 1):
        if t == 1 and np.ndim(first) == 2:
            x, extra = first, None
        else:
            x, states, extra = step(given, states)
        logp = log_softmax(x)
        given = np.full(batch, eos[0] if eos else 0, np.int64)
        for r in np.flatnonzero(is_open):
            row = logp[r].copy()
            if t <= min_length:
                row[list(eos)] = -np.inf
            k = int(row.argmax()) if choose is None else choose(x[r], r, t, t <= min_length)
            tokens[r].append(k)
            extras[r].append(None if extra is None else extra[r])
            scores[r] += logp[r, k]
            lengths[r] = t
            given[r] = k
            is_open[r] = not (k in eos or t == max_length)
        if not is_open.any():
            break
    return tokens, lengths, scores, extras


def mix(z):
    m = (1 << 64) - 1
    z = (z + 0x9E3779B97F4A7C15) & m
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & m
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & m
    return z ^ z >> 31


def sampler(seed, eos, temperature=1.0, top_k=0, top_p=1.0):
    def choose(x, row, step, no_end):
        w = np.exp((x - x.max()) / np.float32(temperature), dtype=np.float32)
        if no_end:
            w[list(eos)] = 0
        least = np.sort(w)[-top_k] if 0 < top_k <= len(w) else np.float32(0)
        if top_p < 1:
            mass = w[w >= least].sum(dtype=np.float64)
            order = np.sort(w[w >= least])[::-1]
            reached = np.cumsum(order.astype(np.float64)) >= top_p * mass
            least = max(least, order[int(reached.argmax())])
        kept = np.where(w >= least, w, 0).astype(np.float64)
        u = (mix((mix((mix(seed) + int(row)) & (1 << 64) - 1) + step) & (1 << 64) - 1) >> 11) / 2.0**53
        return int((np.cumsum(kept) > u * kept.sum()).argmax())
    return choose


def beam(step, states, first, eos, max_length, width, n_best=1, min_length=0, alpha=0.0, gnmt=False, shrink=False,
         early_stop=False, coverage=0.0):
    """states: [batch, ...] each. Returns for each item a list of n_best (score, tokens, extras)."""
    batch = len(first)

    def covered(extras):
        """What the weights of the tokens add to a score (Wu et al. 2016); positions without any do not count."""
        if not coverage:
            return 0.0
        seen = sum(e.astype(np.float64) for e in extras)
        return coverage * np.log(np.minimum(seen[seen > 0], 1)).sum()

    def penalty(n):
        return ((5 + n) / 6) ** alpha if gnmt else n ** alpha

    states = [np.repeat(s, width, 0) for s in states]
    first = np.repeat(first, width, 0)
    live = [[(0.0, [], [])] + [None] * (width - 1) for _ in range(batch)]
    done = [[] for _ in range(batch)]
    is_open = [True] * batch
    given = first
    pad = eos[0] if eos else 0
    for t in range(1, max_length + 1):
        if t == 1 and np.ndim(first) == 2:
            x, extra = first, None
        else:
            x, states, extra = step(given, states)
        logp = log_softmax(x)
        if t <= min_length:
            logp[:, list(eos)] = -np.inf
        parents = np.arange(batch * width)
        given = np.full(batch * width, pad, np.int64)
        for b in range(batch):
            candidates = []
            for k, hypothesis in enumerate(live[b]):
                if hypothesis is not None:
                    row = b * width + k
                    candidates += [(hypothesis[0] + p, row, v, hypothesis) for v, p in enumerate(logp[row])
                                   if p > -np.inf]
            candidates.sort(key=lambda c: (-c[0], c[1], c[2]))
            alive, room = [], width - len(done[b])
            for place, (s, row, v, hypothesis) in enumerate(candidates):
                if shrink and place >= room:
                    break
                new = (s, hypothesis[1] + [v], hypothesis[2] + [None if extra is None else extra[row]])
                if v in eos or t == max_length:
                    if (shrink or place < width) and is_open[b]:
                        done[b].append((s / penalty(t) + covered(new[2]),) + new[1:])
                elif len(alive) < width:
                    parents[b * width + len(alive)] = row
                    given[b * width + len(alive)] = v
                    alive.append(new)
            done[b].sort(key=lambda d: -d[0])
            done[b] = done[b][:width]
            live[b] = alive + [None] * (width - len(alive))
            full = len(done[b]) == width
            if shrink:
                go = bool(alive) and not full
            else:
                go = bool(alive) and not (full and alive[0][0] / penalty(t) <= done[b][-1][0])
                go = go and not (full and early_stop)
            is_open[b] = is_open[b] and go
        if t == max_length or not any(is_open):
            break
        states = [s[parents] for s in states]
    return [d[:n_best] for d in done]
