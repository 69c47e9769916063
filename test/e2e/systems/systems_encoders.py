"""Encoders of text and of pictures: BERT and what came of it, XLNet, the vision transformer."""
import math

import numpy as np
from layers import convolve, gelu_tanh, masked_softmax
from registry import embedding, floats, heads, linear, norm, system, words

D, F, V, E = 32, 48, 40, 12
gelu = np.vectorize(lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))))


def texts(parts):
    def cases(rng):
        result = []
        for b, t in ((2, 7), (1, 12), (3, 1)):
            feeds = dict(words=words(rng, b, t), lengths=np.array([max(1, t - 3 * i) for i in range(b)]))
            result.append(("", feeds | (dict(parts=rng.integers(0, 2, (b, t))) if parts else {})))
        return result
    return cases


def layer(name):
    return (heads(name + "self", D) | norm(name + "norm_self", D) | linear(name + "wide", F, D) | linear(name + "narrow", D, F) |
            norm(name + "normed", D))


def seen_keys(words, lengths):
    return (np.arange(words.shape[1]) < lengths[:, None])[:, None, None]


def behind(net, name, x, seen, activation=gelu):
    """A layer of an encoder, normalisation behind each sum."""
    x = net.layer_norm(name + "norm_self", x + net.multi_head(name + "self", x, x, x, 4, seen)[0])
    return net.layer_norm(name + "normed", x + net.linear(name + "narrow", activation(net.linear(name + "wide", x))))


@system("bert", 2, embedding("word", V, D) | embedding("part", 2, D) | embedding("place", 64, D) | norm("placed", D) | layer("encoder.0.") |
        layer("encoder.1.") | linear("pooled", D, D) | linear("output", 3, D), texts(True))
def bert(net, _, words, lengths, parts):
    x = net.embed("word", words) + net.embed("part", parts) + net.embed("place", np.arange(words.shape[1]))
    x = net.layer_norm("placed", x)
    for n in ("encoder.0.", "encoder.1."):
        x = behind(net, n, x, seen_keys(words, lengths))
    return dict(states=x, logits=net.linear("output", np.tanh(net.linear("pooled", x[:, 0]))))


@system("roberta", 2, embedding("word", V, D) | embedding("place", 64, D) | norm("placed", D) | layer("encoder.0.") | layer("encoder.1.") |
        linear("dense", D, D) | linear("output", 3, D), texts(False))
def roberta(net, _, words, lengths):
    places = np.arange(words.shape[1])
    x = net.embed("word", words) + net.embed("place", np.where(places < lengths[:, None], places + 2, 1))
    x = net.layer_norm("placed", x)
    for n in ("encoder.0.", "encoder.1."):
        x = behind(net, n, x, seen_keys(words, lengths))
    return dict(states=x, logits=net.linear("output", np.tanh(net.linear("dense", x[:, 0]))))


@system("albert", 3, embedding("word", V, E) | embedding("part", 2, E) | embedding("place", 64, E) | norm("narrow_normed", E) |
        linear("placed", D, E) | layer("layer.") | linear("pooled", D, D) | linear("output", 3, D), texts(True))
def albert(net, _, words, lengths, parts):
    x = net.embed("word", words) + net.embed("part", parts) + net.embed("place", np.arange(words.shape[1]))
    x = net.linear("placed", net.layer_norm("narrow_normed", x))
    for _ in range(3):
        x = behind(net, "layer.", x, seen_keys(words, lengths), gelu_tanh)
    return dict(states=x, logits=net.linear("output", np.tanh(net.linear("pooled", x[:, 0]))))


def xlnet_layer(name):
    biases = {f"{name}{part}": (4, 8, 2.0) for part in "uvs"} | {name + "segment": (2, 4, 8, 6.0)}
    projections = [linear(name + part, D, D, bias=False, gain=1.5) for part in ("query", "key", "distant", "value", "output")]
    rest = norm(name + "norm_self", D) | linear(name + "wide", F, D) | linear(name + "narrow", D, F) | norm(name + "normed", D)
    return biases | rest | {k: v for part in projections for k, v in part.items()}


@system("xlnet", 2, embedding("word", V, D) | {"rates": (16, 1.0)} | xlnet_layer("stack.0.") | xlnet_layer("stack.1.") | linear("logits", V, D),
        texts(True))
def xlnet(net, _, words, lengths, parts):
    b, t = words.shape
    x, at = net.embed("word", words), np.arange(t)
    apart = at[:, None] - at  # i - j
    turned = apart[..., None] * net["rates"]
    distances = np.concatenate([np.sin(turned), np.cos(turned)], -1)
    for n in ("stack.0.", "stack.1."):
        q, k, v = (net.linear(n + part, x).reshape(b, t, 4, 8) for part in ("query", "key", "value"))
        r = net.linear(n + "distant", distances).reshape(t, t, 4, 8)
        e = np.einsum("bihd,bjhd->bhij", q + net[n + "u"], k) + np.einsum("bihd,ijhd->bhij", q + net[n + "v"], r)
        of_part = np.einsum("bihd,phd->bhip", q + net[n + "s"], net[n + "segment"])
        is_other = (parts[:, :, None] != parts[:, None, :])[:, None]
        e = (e + np.where(is_other, of_part[..., 1:], of_part[..., :1])) / np.sqrt(8)
        y = np.einsum("bhij,bjhd->bihd", masked_softmax(e, seen_keys(words, lengths)), v).reshape(b, t, D)
        x = net.layer_norm(n + "norm_self", x + net.linear(n + "output", y))
        x = net.layer_norm(n + "normed", x + net.linear(n + "narrow", gelu(net.linear(n + "wide", x))))
    return dict(states=x, logits=net.linear("logits", x))


def vit_layer(name):
    return heads(name + "self", D) | norm(name + "norm_self", D) | norm(name + "norm_wide", D) | linear(name + "wide", F, D) | linear(name + "narrow", D, F)


@system("vit", 2, {"patches.weight": (D, 3, 4, 4, 1.0), "patches.bias": (D, 0.5), "token_row": (1, 1, D, 5.0), "places": (1, 37, D, 3.0)} |
        vit_layer("encoder.0.") | vit_layer("encoder.1.") | norm("norm", D) | linear("output", 10, D),
        lambda rng: [("", dict(image=floats(rng, b, 3, 24, 24))) for b in (2, 1)])
def vit(net, _, image):
    x = convolve(image, net["patches.weight"], net["patches.bias"], stride=4).reshape(len(image), D, 36).swapaxes(1, 2)
    x = np.concatenate([np.broadcast_to(net["token_row"], (len(x), 1, D)), x], 1) + net["places"]
    for n in ("encoder.0.", "encoder.1."):
        y = net.layer_norm(n + "norm_self", x)
        x = x + net.multi_head(n + "self", y, y, y, 4)[0]
        x = x + net.linear(n + "narrow", gelu(net.linear(n + "wide", net.layer_norm(n + "norm_wide", x))))
    return dict(logits=net.linear("output", net.layer_norm("norm", x)[:, 0]))
