"""Pointers, tapes, graphs, health, ratings, deep decoders."""
import numpy as np
from layers import convolve, elu, log_softmax, masked_softmax, sigmoid, softmax
from registry import embedding, floats, linear, recurrent, system, words

H, E, V = 24, 16, 40


def points(rng):
    cases = []
    for b, s in ((2, 6), (1, 10), (3, 5)):
        visited = rng.random((b, s)) > 0.6
        visited[:, 1] = False
        cases.append(("", dict(point=floats(rng, b, 2), h=np.tanh(floats(rng, b, H)), c=floats(rng, b, H), memory=floats(rng, b, s, H), visited=visited)))
    return cases


@system("pointer_network", 0, recurrent("cell", "lstm", H, 2, cell=True) | linear("point_at.query", H, H, bias=False) |
        linear("point_at.key", H, H, bias=False) | {"point_at.score.weight": (H, 2.0)}, points)
def pointer_network(net, _, point, h, c, memory, visited):
    h, c = net.lstm_cell("cell", point, h, c)
    u = 4 * np.tanh(net.linear("point_at.query", h)[:, None] + net.linear("point_at.key", memory)) @ net["point_at.score.weight"]
    u = np.where(visited, np.float64(np.float32(-1e30)), u)
    return dict(log_probs=log_softmax(u), choice=u.argmax(-1), next_h=h, next_c=c)


@system("lstmn", 1, linear("remember.query", H, E + H, bias=False) | linear("remember.key", H, H, bias=False) | {"remember.score.weight": (H, 2.0)} |
        linear("gates", 4 * H, H + E),
        lambda rng: [("", dict(x=floats(rng, b, E), tape_h=np.tanh(floats(rng, b, t, H)), tape_c=floats(rng, b, t, H), last_h=np.tanh(floats(rng, b, H))))
                     for b, t in ((2, 5), (1, 9), (3, 3))])
def lstmn(net, _, x, tape_h, tape_c, last_h):
    e = np.tanh(net.linear("remember.key", tape_h) + net.linear("remember.query", np.concatenate([x, last_h], 1))[:, None])
    s = softmax(4 * e @ net["remember.score.weight"])
    h, c = np.einsum("bt,bth->bh", s, tape_h), np.einsum("bt,bth->bh", s, tape_c)
    i, f, o, g = np.split(net.linear("gates", np.concatenate([h, x], 1)), 4, 1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    y = sigmoid(o) * np.tanh(c)
    return dict(next_tape_h=np.concatenate([tape_h, y[:, None]], 1), next_tape_c=np.concatenate([tape_c, c[:, None]], 1), next_h=h)


@system("retain", 1, linear("embedded", 16, 30, bias=False) | recurrent("for_alpha", "gru", 16, 16) | recurrent("for_beta", "gru", 16, 16) |
        linear("visit_score", 1, 16) | linear("beta", 16, 16) | linear("output", 3, 16),
        lambda rng: [("", dict(visits=(rng.random((b, t, 30)) > 0.7).astype(np.float32))) for b, t in ((2, 6), (1, 9), (3, 5))])
def retain(net, _, visits):
    v = net.linear("embedded", visits)
    g, h = (net.run("gru", name, v[:, ::-1])[0][:, ::-1] for name in ("for_alpha", "for_beta"))
    a, b = softmax(4 * net.linear("visit_score", g)[..., 0]), np.tanh(net.linear("beta", h))
    return dict(logits=net.linear("output", np.einsum("bt,btd->bd", a, b * v)), alpha=a, beta=b)


def nodes(rng):
    cases = []
    for n in (9, 14, 5):
        a = rng.random((n, n)) > 0.6
        cases.append(("", dict(nodes=floats(rng, n, 10), adjacency=(a | a.T | np.eye(n, dtype=bool)).astype(np.float32))))
    return cases


@system("graph_attention", 2, {"w1": (3, 10, 8, 1.0), "to1": (3, 8, 2.0), "from1": (3, 8, 2.0), "w2": (1, 24, 4, 1.0), "to2": (1, 4, 3.0), "from2": (1, 4, 3.0)}, nodes)
def graph_attention(net, _, nodes, adjacency):
    def layer(x, k):
        h = np.einsum("ni,hio->hno", x, net["w" + k])
        e = np.einsum("hno,ho->hn", h, net["to" + k])[:, :, None] + np.einsum("hno,ho->hn", h, net["from" + k])[:, None]
        return masked_softmax(np.where(e > 0, e, 0.2 * e), adjacency > 0) @ h

    y = elu(layer(nodes, "1")).swapaxes(0, 1).reshape(len(nodes), 24)
    return dict(log_probs=log_softmax(layer(y, "2")[0]))


@system("d_attn", 0, embedding("embedded", V, 16) | {"local_gate.weight": (1, 16, 5, 2.0), "local_gate.bias": (1, 0.5), "local.weight": (20, 16, 1, 1.0),
        "local.bias": (20, 0.5), "three.weight": (10, 16, 3, 1.0), "three.bias": (10, 0.5)} | linear("topic", 16, 16, bias=False) | linear("taste", 12, 30),
        lambda rng: [("", dict(user=words(rng, b, n), item=floats(rng, b, 12))) for b, n in ((2, 9), (1, 4), (3, 17))])
def d_attn(net, _, user, item):
    embedded = net.embed("embedded", user)
    x = embedded.swapaxes(1, 2)
    gate = sigmoid(convolve(x, net["local_gate.weight"], net["local_gate.bias"], padding=2))
    local = np.tanh(convolve(x * gate, net["local.weight"], net["local.bias"])).max(2)
    whole = sigmoid(np.einsum("bd,bnd->bn", net.linear("topic", embedded.mean(1)), embedded))
    three = np.tanh(convolve(x * whole[:, None], net["three.weight"], net["three.bias"])).max(2)
    return dict(rating=(net.linear("taste", np.concatenate([local, three], 1)) * item).sum(1), gates=gate)


@system("mpcn", 4, embedding("words", V, 16) | linear("gate", 16, 16) | linear("value", 16, 16) | {f"{k}{n}": (16, 16, 1.0) for k in "mw" for n in "01"} |
        linear("output", 1, 64),
        lambda rng: [("", dict(user=words(rng, b, u, 5), item=words(rng, b, i, 6))) for b, u, i in ((2, 4, 5), (1, 6, 3), (3, 5, 4))])
def mpcn(net, _, user, item):
    u, i, n, out = net.embed("words", user), net.embed("words", item), np.arange(len(user)), []
    reviews = [sigmoid(net.linear("gate", x.sum(2))) * np.tanh(net.linear("value", x.sum(2))) for x in (u, i)]
    for k in "01":
        s = np.einsum("bid,de,bje->bij", reviews[0], net["m" + k], reviews[1])
        a, b = u[n, s.max(2).argmax(1)], i[n, s.max(1).argmax(1)]
        t = np.einsum("bid,de,bje->bij", a, net["w" + k], b)
        out += [np.einsum("bi,bid->bd", softmax(6 * t.mean(2)), a), np.einsum("bi,bid->bd", softmax(6 * t.mean(1)), b)]
    return dict(rating=net.linear("output", np.concatenate(out, 1)))


@system("britz", 1, embedding("source_words", V, E) | recurrent("encoder", "lstm", 12, E, 2, bidirectional=True) | embedding("target_words", V, E) |
        linear("decoder.attend.query", H, H, bias=False) | linear("decoder.attend.key", H, 24, bias=False) | {"decoder.attend.score.weight": (H, 3.0)} |
        recurrent("decoder.bottom", "lstm", H, E + 24, cell=True) | recurrent("decoder.middle", "lstm", H, H, cell=True) |
        recurrent("decoder.top", "lstm", H, H, cell=True) | linear("decoder.output", V, 2 * H),
        lambda rng: [("", dict(source=words(rng, b, s), target=words(rng, b, t))) for b, s, t in ((2, 7, 5), (1, 10, 3), (3, 1, 1))])
def britz(net, _, source, target):
    m = net.embed("source_words", source)
    for layer in (0, 1):
        m, _ = net.run("lstm", "encoder", m, layer, bidirectional=True)
    h, c = [np.zeros((len(source), H))] * 3, [np.zeros((len(source), H))] * 3
    h, c, logits, alignment = list(h), list(c), [], []
    for t in range(target.shape[1]):
        e = np.tanh(net.linear("decoder.attend.query", h[0])[:, None] + net.linear("decoder.attend.key", m)) @ net["decoder.attend.score.weight"]
        a = softmax(e)
        context = np.einsum("bs,bsd->bd", a, m)
        h[0], c[0] = net.lstm_cell("decoder.bottom", np.concatenate([net.embed("target_words", target[:, t]), context], 1), h[0], c[0])
        h[1], c[1] = net.lstm_cell("decoder.middle", h[0], h[1], c[1])
        h[2], c[2] = net.lstm_cell("decoder.top", h[1] + h[0], h[2], c[2])
        logits.append(net.linear("decoder.output", np.concatenate([h[2] + h[1] + h[0], context], 1)))
        alignment.append(a)
    return dict(logits=np.stack(logits, 1), alignment=np.stack(alignment, 1))
