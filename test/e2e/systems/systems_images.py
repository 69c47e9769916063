"""Memories, images and glimpses."""
import numpy as np
from layers import convolve, log_softmax, relu, sample_grid, sigmoid, softmax, softplus
from registry import embedding, floats, linear, recurrent, system, words

H, E, V, D = 24, 16, 40, 20


@system("content_based", 1, linear("key", 24, H) | linear("strength", 2, H),
        lambda rng: [("", dict(state=floats(rng, b, H), memory=floats(rng, b, n, 12))) for b, n in ((2, 8), (1, 5), (3, 14))])
def content_based(net, _, state, memory):
    k = net.linear("key", state).reshape(-1, 2, 12)
    beta = 3 * softplus(net.linear("strength", state))[..., None]
    unit = lambda x: x / (np.linalg.norm(x, axis=-1, keepdims=True) + 1e-6)
    w = softmax(beta * (unit(k) @ unit(memory.astype(np.float64)).swapaxes(1, 2)))
    return dict(read=w @ memory, weights=w)


def show_attend_tell(name, hard):
    weights = (linear("look.query", H, H, bias=False) | linear("look.key", H, D, bias=False) | {"look.bias": (H, 0.5), "look.score.weight": (H, 3.0)} |
               linear("gate", D, H) | embedding("words", V, E) | recurrent("cell", "lstm", H, E + D, cell=True) |
               linear("from_state", E, H) | linear("from_image", E, D) | linear("output", V, E))

    @system(name, 0 if hard else 1, weights,
            lambda rng: [("", dict(token=words(rng, b), h=np.tanh(floats(rng, b, H)), c=floats(rng, b, H), features=floats(rng, b, D, 4, 4)))
                         for b in (2, 1, 3)])
    def step(net, _, token, h, c, features):
        f = features.reshape(len(features), D, 16).swapaxes(1, 2)
        e = relu(net.linear("look.key", f) + net.linear("look.query", h)[:, None] + net["look.bias"]) @ net["look.score.weight"]
        a = np.eye(16)[e.argmax(1)] if hard else softmax(e)
        z = sigmoid(net.linear("gate", h)) * np.einsum("bi,bid->bd", a, f)
        y = net.embed("words", token)
        h, c = net.lstm_cell("cell", np.concatenate([y, z], 1), h, c)
        logits = net.linear("output", y + net.linear("from_state", h) + net.linear("from_image", z))
        return dict(logits=logits, next_h=h, next_c=c, alpha=a)


show_attend_tell("show_attend_tell_soft", False)
show_attend_tell("show_attend_tell_hard", True)


@system("recurrent_attention", 0, {"base": (6, 6, 2, 2.0)} | linear("look.what", H, 72) | linear("look.where_", H, 2) |
        linear("look.glimpse", H, 2 * H) | linear("look.into", H, H) | linear("look.kept", H, H) |
        linear("look.next_place", 2, H) | linear("act", 10, H),
        lambda rng: [("", dict(image=floats(rng, b, 1, 20, 20), location=0.9 * np.tanh(floats(rng, b, 2)), h=floats(rng, b, H), noise=scale * floats(rng, b, g, 2)))
                     for b, g, scale in ((2, 6, 0), (1, 1, 0), (3, 8, 1))])
def recurrent_attention(net, _, image, location, h, noise):
    l, places = location, []
    for t in range(noise.shape[1]):
        patches = [sample_grid(image, l[:, None, None] + net["base"] * s).reshape(len(h), -1) for s in (0.3, 0.6)]
        both = [net.linear("look.what", np.concatenate(patches, 1)), net.linear("look.where_", l)]
        g = relu(net.linear("look.glimpse", relu(np.concatenate(both, 1))))
        h = relu(net.linear("look.into", g) + net.linear("look.kept", h))
        l = np.clip(np.tanh(net.linear("look.next_place", h)) + 0.1 * noise[:, t], -1, 1)
        places.append(l)
    return dict(log_probs=log_softmax(net.linear("act", h)), locations=np.stack(places, 1), next_h=h)


@system("spatial_transformer", 0, {"edges.weight": (4, 1, 5, 5, 1.0), "edges.bias": (4, 0.5), "shapes.weight": (4, 1, 3, 3, 1.0), "shapes.bias": (4, 0.5),
                                   "identity": (2, 3, 1.0)} | linear("hidden", 16, 36) | linear("change", 6, 16) | linear("output", 10, 4),
        lambda rng: [("", dict(image=floats(rng, b, 1, 16, 16))) for b in (2, 1)])
def spatial_transformer(net, _, image):
    x = relu(convolve(image, net["edges.weight"], net["edges.bias"], stride=2))
    x = x.reshape(len(x), 4, 3, 2, 3, 2).max((3, 5)).reshape(len(x), 36)
    theta = 0.3 * np.tanh(net.linear("change", np.tanh(net.linear("hidden", x)))).reshape(-1, 2, 3) + net["identity"]
    at = (np.arange(12) * 2 + 1) / 12 - 1
    grid = np.stack([*np.meshgrid(at, at), np.ones((12, 12))], -1)
    warped = sample_grid(image, np.einsum("bij,yxj->byxi", theta, grid))
    y = relu(convolve(warped, net["shapes.weight"], net["shapes.bias"]))
    return dict(logits=net.linear("output", y.mean((2, 3))), warped=warped)


@system("driving", 0, linear("from_slice", 16, 8, bias=False) | linear("from_state", 16, 16) | linear("score", 1, 16, bias=False, gain=3) |
        recurrent("cell", "lstm", 16, 96, cell=True) | linear("steering", 1, 16),
        lambda rng: [("", dict(cube=floats(rng, b, 8, 3, 4), h=floats(rng, b, 16), c=floats(rng, b, 16))) for b in (1, 3)])
def driving(net, _, cube, h, c):
    x = cube.reshape(len(cube), 8, 12).swapaxes(1, 2)
    a = softmax(net.linear("score", np.tanh(net.linear("from_slice", x) + net.linear("from_state", h)[:, None])), 1)
    h, c = net.lstm_cell("cell", (a * x).reshape(len(x), -1), h, c)
    return dict(steering=net.linear("steering", h), next_h=h, next_c=c, alpha=a)


@system("feature_wise", 0, linear("query", 128, 128),
        lambda rng: [("", dict(state=floats(rng, b, 128), encoded=floats(rng, s, b, 128))) for b, s in ((1, 10), (2, 7))])
def feature_wise(net, _, state, encoded):
    e = np.tanh(net.linear("query", state)[:, None] + encoded.swapaxes(0, 1))
    return dict(probability=softmax(e, 1), energy=e)


def address(net, name, h, memory, before):
    """Where a head of the Turing machine is: by content, kept or not, shifted, sharpened."""
    unit = lambda x: x / (np.linalg.norm(x, axis=-1, keepdims=True) + 1e-6)
    similar = np.einsum("bw,bnw->bn", unit(net.linear(name + "_key", h)), unit(memory))
    content = softmax(softplus(net.linear(name + "_beta", h)) * similar)
    gate = sigmoid(net.linear(name + "_gate", h))
    w = gate * content + (1 - gate) * before
    shift = softmax(net.linear(name + "_moves", h))
    w = sum(shift[:, n: n + 1] * np.roll(w, 1 - n, 1) for n in range(3))
    w = w ** (1 + softplus(net.linear(name + "_gamma", h)))
    return w / w.sum(1, keepdims=True)


def tapes(rng):
    cases = []
    for b, t, n in ((2, 4, 7), (1, 1, 12), (3, 6, 2)):
        at = softmax(floats(rng, 2, b, n)).astype(np.float32)
        cases.append(("", dict(x=floats(rng, b, t, 8), memory=floats(rng, b, n, 12), read_start=at[0], write_start=at[1],
                               h=np.tanh(floats(rng, b, H)), c=floats(rng, b, H))))
    return cases


def head(name):
    return (linear(name + "_key", 12, H) | linear(name + "_beta", 1, H, gain=3) | linear(name + "_gate", 1, H) | linear(name + "_moves", 3, H, gain=2) |
            linear(name + "_gamma", 1, H, gain=2))


@system("ntm", 0, {f"run.{k}": v for k, v in (recurrent("cell", "lstm", H, 20, cell=True) | head("read") | head("write") | linear("erase", 12, H) |
                                              linear("add", 12, H) | linear("said", 6, 36)).items()}, tapes)
def ntm(net, _, x, memory, read_start, write_start, h, c):
    m, read_at, write_at, said, places = memory.astype(np.float64), read_start, write_start, [], []
    for t in range(x.shape[1]):
        heard = np.concatenate([x[:, t], np.einsum("bn,bnw->bw", read_at, m)], 1)
        h, c = net.lstm_cell("run.cell", heard, h, c)
        read_at, write_at = address(net, "run.read", h, m, read_at), address(net, "run.write", h, m, write_at)
        erase, add = sigmoid(net.linear("run.erase", h)), net.linear("run.add", h)
        m = m * (1 - write_at[..., None] * erase[:, None]) + write_at[..., None] * add[:, None]
        read = np.einsum("bn,bnw->bw", read_at, m)
        said.append(sigmoid(net.linear("run.said", np.concatenate([h, read], 1))))
        places.append(read_at)
    return dict(said=np.stack(said, 1), places=np.stack(places, 1), next_memory=m)


@system("autoencoder", 0, linear("squeezed", 32, 64) | linear("code", 6, 32) | linear("widened", 32, 6) | linear("painted", 64, 32),
        lambda rng: [("", dict(image=floats(rng, b, 1, 8, 8))) for b in (2, 1, 5)])
def autoencoder(net, _, image):
    code = net.linear("code", relu(net.linear("squeezed", image.reshape(len(image), 64))))
    picture = sigmoid(net.linear("painted", relu(net.linear("widened", code))))
    return dict(picture=picture.reshape(-1, 1, 8, 8), code=code)


@system("implicit_attention", 0, {"edges.weight": (6, 1, 5, 5, 1.0), "edges.bias": (6, 0.5), "parts.weight": (8, 6, 3, 3, 1.0), "parts.bias": (8, 0.5)} |
        linear("feature", 24, 72) | linear("order", 2, 72), lambda rng: [("", dict(frames=floats(rng, b, 3, 1, 24, 24))) for b in (2, 1)])
def implicit_attention(net, _, frames):
    def pool(x):
        return x.reshape(*x.shape[:2], x.shape[2] // 2, 2, x.shape[3] // 2, 2).max((3, 5))

    x = frames.reshape(-1, 1, 24, 24)
    x = pool(relu(convolve(x, net["edges.weight"], net["edges.bias"], stride=2, padding=2)))
    x = relu(convolve(x, net["parts.weight"], net["parts.bias"], padding=1))
    f = relu(net.linear("feature", pool(x).reshape(len(x), 72))).reshape(-1, 72)
    return dict(log_probs=log_softmax(net.linear("order", f)), preferred=x.sum(1).reshape(-1, 3, 6, 6))


@system("foveal_glimpses", 0, linear("filtered", 16, 20, bias=False) | embedding("where_", 9, 16) | linear("total", H, 16) |
        {"agreement": (5, H, 3.0), "prior": (5, 0.5)},
        lambda rng: [("", dict(retina=floats(rng, b, k, 20), places=rng.integers(0, 9, (b, k)))) for b, k in ((2, 4), (1, 1), (3, 7))])
def foveal_glimpses(net, _, retina, places):
    total = net.linear("total", (net.linear("filtered", retina) * sigmoid(net.embed("where_", places))).sum(1))
    energy = softplus(total[:, None] + net["agreement"]).sum(2) + net["prior"]
    return dict(log_probs=log_softmax(energy), hidden_units=sigmoid(total))
