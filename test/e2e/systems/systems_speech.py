"""Documents and speech."""
import numpy as np
from layers import convolve, log_softmax, masked_softmax, relu, sigmoid
from registry import embedding, floats, linear, recurrent, system, words

H, E, V = 24, 16, 40


def documents(rng):
    cases = []
    for b, s, w in ((2, 4, 6), (1, 3, 8), (3, 5, 5)):
        text = words(rng, b, s, w)
        for i in range(b):
            for j in range(s):
                text[i, j, max(1, w - (i + j) % 3):] = 0
            if i:
                text[i, s - i:] = 0  # sentences without a word
        cases.append(("", dict(words=text)))
    return cases


@system("hierarchical", 2, embedding("embedded", V, E) | recurrent("word_encoder", "gru", 12, E, bidirectional=True) |
        recurrent("sentence_encoder", "gru", 12, 24, bidirectional=True) | linear("word_pool.key", 24, 24, bias=False) |
        linear("sentence_pool.key", 24, 24, bias=False) | {f"{n}_pool.bias": (24, 0.5) for n in ("word", "sentence")} |
        {f"{n}_pool.score.weight": (24, 4.0) for n in ("word", "sentence")} | linear("output", 5, 24), documents)
def hierarchical(net, _, words):
    def pool(name, x, seen):
        e = np.tanh(net.linear(name + ".key", x) + net[name + ".bias"]) @ net[name + ".score.weight"]
        a = masked_softmax(e, seen)
        return np.einsum("bn,bnd->bd", a, x), a

    b, s, w = words.shape
    x, _ = net.run("gru", "word_encoder", net.embed("embedded", words.reshape(b * s, w)), bidirectional=True)
    x, word_weights = pool("word_pool", x, words.reshape(b * s, w) != 0)
    y, _ = net.run("gru", "sentence_encoder", x.reshape(b, s, 24), bidirectional=True)
    y, sentence_weights = pool("sentence_pool", y, (words != 0).any(2))
    return dict(log_probs=log_softmax(net.linear("output", y)), word_weights=word_weights.reshape(b, s, w), sentence_weights=sentence_weights)


def chorowski(name, attentions, smoothing):
    def cases(rng):
        result = []
        for b, s in ((2, 9), (1, 14), (3, 6)):
            before = np.abs(floats(rng, b, s))
            lengths = np.array([s - 2 * i for i in range(b)])
            result.append(("", dict(token=words(rng, b), state=floats(rng, b, H), alignment=before / before.sum(1, keepdims=True),
                                    memory=floats(rng, b, s, 20), mask=(np.arange(s) < lengths[:, None]).astype(np.int64))))
        return result

    @system(name, attentions, linear("attend.query", H, H, bias=False) | linear("attend.key", H, 20, bias=False) |
            {"attend.bias": (H, 0.5), "attend.score.weight": (H, 2.0), "attend.location.weight": (4, 1, 5, 2.0)} |
            linear("attend.location_projection", H, 4, bias=False) | embedding("words", V, E) | recurrent("cell", "gru", H, 20 + E, cell=True) |
            linear("output", V, H + 20), cases)
    def step(net, _, token, state, alignment, memory, mask):
        f = convolve(alignment[:, None], net["attend.location.weight"], padding=2).swapaxes(1, 2)
        u = net.linear("attend.query", state)[:, None] + net.linear("attend.key", memory) + net.linear("attend.location_projection", f)
        e = np.tanh(u + net["attend.bias"]) @ net["attend.score.weight"]
        if smoothing:
            a = np.where(mask != 0, sigmoid(e), 0)
            a = a / a.sum(1, keepdims=True)
        else:
            a = masked_softmax(3 * e, mask != 0)
        g = np.einsum("bs,bsd->bd", a, memory)
        s = net.gru_cell("cell", np.concatenate([g, net.embed("words", token)], 1), state)
        return dict(logits=net.linear("output", np.concatenate([s, g], 1)), next_state=s, next_alignment=a)


chorowski("chorowski", 1, False)
chorowski("chorowski_smoothing", 1, True)


def las_cases(rng):
    cases = [("listen", dict(frames=floats(rng, b, t, 8))) for b, t in ((2, 16), (1, 24), (3, 8))]
    for b, s in ((2, 7), (1, 11), (3, 5)):
        cases.append(("spell", dict(token=words(rng, b), **{k: np.tanh(floats(rng, b, H)) for k in ("context", "h1", "c1", "h2", "c2")},
                                    memory=floats(rng, b, s, H), lengths=np.array([s - 2 * i for i in range(b)]))))
    return cases


@system("listen_attend_spell", 1, recurrent("first", "lstm", 12, 8, bidirectional=True) | recurrent("second", "lstm", 12, 48, bidirectional=True) |
        recurrent("third", "lstm", 12, 48, bidirectional=True) | linear("ctc", 20, 24) | embedding("words", V, E) |
        recurrent("lower", "lstm", H, E + H, cell=True) | recurrent("upper", "lstm", H, H, cell=True) | linear("phi", 16, H) | linear("psi", 16, H) |
        linear("output", V, 2 * H), las_cases, twin_entry="spell")
def listen_attend_spell(net, entry, **x):
    if entry == "listen":
        y = x["frames"]
        for name in ("first", "second", "third"):
            if name != "first":
                y = y.reshape(len(y), y.shape[1] // 2, 48)
            y, _ = net.run("lstm", name, y, bidirectional=True)
        logits = net.linear("ctc", y)
        return dict(states=y, ctc=log_softmax(logits), best=logits.argmax(-1))
    h1, c1 = net.lstm_cell("lower", np.concatenate([net.embed("words", x["token"]), x["context"]], 1), x["h1"], x["c1"])
    h2, c2 = net.lstm_cell("upper", h1, x["h2"], x["c2"])
    e = 3 * np.einsum("bh,bsh->bs", relu(net.linear("phi", h2)), relu(net.linear("psi", x["memory"])))
    a = masked_softmax(e, np.arange(e.shape[1]) < x["lengths"][:, None])
    c = np.einsum("bs,bsh->bh", a, x["memory"])
    log_probs = log_softmax(net.linear("output", np.concatenate([h2, c], 1)))
    return dict(log_probs=log_probs, next_context=c, next_h1=h1, next_c1=c1, next_h2=h2, next_c2=c2, alignment=a)
