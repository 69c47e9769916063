"""Translation with recurrent networks."""
import numpy as np
from layers import log_softmax, masked_softmax, sigmoid, softmax
from registry import embedding, floats, linear, recurrent, system, words

H, E, V = 24, 16, 40
SIZES = ((2, 7, 5), (1, 10, 3), (3, 1, 1))


def pairs(rng):
    return [("", dict(source=words(rng, b, s), target=words(rng, b, t))) for b, s, t in SIZES]


@system("cho", 0, embedding("source_words", V, E) | recurrent("encoder", "gru", H, E) | linear("start", H, H) |
        embedding("target_words", V, E) | recurrent("decoder.cell", "gru", H, E + H, cell=True) |
        linear("decoder.maxout", 2 * H, 2 * H + E) | linear("decoder.output", V, H), pairs)
def cho(net, _, source, target):
    h = net.run("gru", "encoder", net.embed("source_words", source))[1][0][0]
    c = np.tanh(h)
    s, y, out = np.tanh(net.linear("start", c)), net.embed("target_words", target), []
    for t in range(target.shape[1]):
        s = net.gru_cell("decoder.cell", np.concatenate([y[:, t], c], 1), s)
        z = net.linear("decoder.maxout", np.concatenate([s, c, y[:, t]], 1)).reshape(len(s), H, 2).max(-1)
        out.append(net.linear("decoder.output", z))
    return dict(logits=np.stack(out, 1))


@system("sutskever", 0, embedding("source_words", V, E) | recurrent("encoder", "lstm", H, E, 2) |
        embedding("target_words", V, E) | recurrent("decoder", "lstm", H, E, 2) | linear("output", V, H), pairs)
def sutskever(net, _, source, target):
    x, y = net.embed("source_words", source[:, ::-1]), net.embed("target_words", target)
    states = []
    for layer in (0, 1):
        x, last = net.run("lstm", "encoder", x, layer)
        states.append(last[0])
    for layer in (0, 1):
        y, _ = net.run("lstm", "decoder", y, layer, state=states[layer])
    return dict(log_probs=log_softmax(net.linear("output", y)))


def bahdanau_cases(rng):
    cases = []
    for b, s, _ in SIZES:
        lengths = np.array([max(s - 2 * i, 1) for i in range(b)])
        cases.append(("encode", dict(source=words(rng, b, s), lengths=lengths)))
        cases.append(("step", dict(token=words(rng, b), state=np.tanh(floats(rng, b, H)), memory=floats(rng, b, s, 2 * H),
                                   keys=1.5 * floats(rng, b, s, H), mask=(np.arange(s) < lengths[:, None]).astype(np.int64))))
    return cases


@system("bahdanau", 1, embedding("source_words", V, E) | recurrent("encoder", "gru", H, E, bidirectional=True) |
        linear("attend.key", H, 2 * H, bias=False) | linear("start", H, H) | linear("attend.query", H, H, bias=False) |
        {"attend.bias": (H, 1.0), "attend.score.weight": (H, 3.0)} | embedding("words", V, E) |
        recurrent("cell", "gru", H, E + 2 * H, cell=True) | linear("maxout", 2 * H, 3 * H + E) | linear("output", V, H),
        bahdanau_cases, twin_entry="step")
def bahdanau(net, entry, **x):
    if entry == "encode":
        y, last = net.run("gru", "encoder", net.embed("source_words", x["source"]), bidirectional=True, lengths=x["lengths"])
        return dict(memory=y, keys=net.linear("attend.key", y), state=np.tanh(net.linear("start", last[1][0])))
    e = np.tanh(net.linear("attend.query", x["state"])[:, None] + x["keys"] + net["attend.bias"]) @ net["attend.score.weight"]
    a = masked_softmax(e, x["mask"] != 0)
    c, y = np.einsum("bs,bsh->bh", a, x["memory"]), net.embed("words", x["token"])
    s = net.gru_cell("cell", np.concatenate([y, c], 1), x["state"])
    z = net.linear("maxout", np.concatenate([s, c, y], 1)).reshape(len(s), H, 2).max(-1)
    return dict(log_probs=log_softmax(net.linear("output", z)), next_state=s, alignment=a)


LUONG = (embedding("words", V, E) | recurrent("lower", "lstm", H, E + H, cell=True) | recurrent("upper", "lstm", H, H, cell=True) |
         linear("attentional", H, 2 * H, bias=False) | linear("output", V, H, bias=False))


def luong(name, extra, score, local=None):
    def cases(rng):
        result = []
        for b, s in ((2, 7), (1, 10), (3, 6)):
            lengths = np.array([s - 2 * i for i in range(b)])
            feeds = dict(token=words(rng, b), **{k: np.tanh(floats(rng, b, H)) for k in ("feed", "h1", "c1", "h2", "c2")},
                         memory=2 * floats(rng, b, s, H), mask=(np.arange(s) < lengths[:, None]).astype(np.int64))
            if local == "m":
                feeds["position"] = rng.integers(0, 4, b)
            result.append(("", feeds))
        return result

    @system(name, 1, LUONG | extra, cases)
    def step(net, _, token, feed, h1, c1, h2, c2, memory, mask, position=None):
        h1, c1 = net.lstm_cell("lower", np.concatenate([net.embed("words", token), feed], 1), h1, c1)
        h2, c2 = net.lstm_cell("upper", h1, h2, c2)
        e, seen, j = score(net, h2, memory), mask != 0, np.arange(memory.shape[1])
        p = position
        if local == "p":
            p = mask.sum(1) * sigmoid(np.tanh(net.linear("attend.position", h2)) @ net["attend.position_score.weight"])
        if local:
            seen = seen & (np.abs(j - p[:, None]) <= 2)
        a = masked_softmax(e, seen)
        if local == "p":
            a = a * np.exp(-((j - p[:, None]) ** 2) / 2)
        feed = np.tanh(net.linear("attentional", np.concatenate([np.einsum("bs,bsh->bh", a, memory), h2], 1)))
        return dict(logits=net.linear("output", feed), next_feed=feed, next_h1=h1, next_c1=c1, next_h2=h2, next_c2=c2, alignment=a)


def dot(net, h, memory):
    return np.einsum("bh,bsh->bs", h, memory)


def general(net, h, memory):
    return np.einsum("bh,hk,bsk->bs", h, net["attend.weight"], memory)


def concat(net, h, memory):
    both = np.concatenate([np.broadcast_to(h[:, None], memory.shape), memory], 2)
    return np.tanh(both @ net["attend.weight"].T) @ net["attend.score.weight"]


def location(net, h, memory):
    return (h @ net["attend.weight"].T)[:, :memory.shape[1]]


GENERAL = {"attend.weight": (H, H, 1.5)}
luong("luong_dot", {}, dot)
luong("luong_general", GENERAL, general)
luong("luong_concat", {"attend.weight": (H, 2 * H, 1.5), "attend.score.weight": (H, 3.0)}, concat)
luong("luong_location", {"attend.weight": (12, H, 6.0)}, location)
luong("luong_local_m", {}, dot, "m")
luong("luong_local_p", GENERAL | {"attend.position.weight": (H, H, 1.0), "attend.position_score.weight": (H, 2.0)}, general, "p")
