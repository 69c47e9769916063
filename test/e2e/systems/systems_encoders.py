"""Encoders of text and of pictures: BERT and what came of it, XLNet, the vision transformer."""
import math

import numpy as np
from layers import convolve, gelu_tanh, masked_softmax, relu
from registry import embedding, floats, heads, linear, norm, system

D, F, V, E = 32, 48, 40, 16
gelu = np.vectorize(lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))))


def texts(parts):
    """Words behind and in front of padding, which is word 1."""
    def cases(rng):
        result = []
        for b, t in ((2, 7), (1, 12), (3, 5), (1, 1)):
            mask = np.ones((b, t), np.int64)
            mask[1:2, t - 2:] = mask[2:, :2] = 0
            feeds = dict(input_ids=np.where(mask, rng.integers(2, V, (b, t)), 1), attention_mask=mask)
            result.append(("", feeds | (dict(token_type_ids=rng.integers(0, 2, (b, t))) if parts else {})))
        return result
    return cases


def normed(net, name, x):
    return net.layer_norm(name, x, 1e-12)


def layer(name):
    return (heads(name + "self", D) | norm(name + "norm_self", D) | linear(name + "wide", F, D) | linear(name + "narrow", D, F) |
            norm(name + "normed", D))


def behind(net, name, x, seen, activation=gelu):
    """A layer of an encoder, normalisation behind each sum."""
    x = normed(net, name + "norm_self", x + net.multi_head(name + "self", x, x, x, 4, seen)[0])
    return normed(net, name + "normed", x + net.linear(name + "narrow", activation(net.linear(name + "wide", x))))


@system("bert", 2, embedding("word", V, D) | embedding("part", 2, D) | embedding("place", 64, D) | norm("placed", D) | layer("encoder.0.") |
        layer("encoder.1.") | linear("pooled", D, D) | linear("output", 3, D), texts(True))
def bert(net, _, input_ids, attention_mask, token_type_ids):
    x = net.embed("word", input_ids) + net.embed("part", token_type_ids) + net.embed("place", np.arange(input_ids.shape[1]))
    x = normed(net, "placed", x)
    for n in ("encoder.0.", "encoder.1."):
        x = behind(net, n, x, attention_mask[:, None, None] != 0)
    return dict(last_hidden_state=x, logits=net.linear("output", np.tanh(net.linear("pooled", x[:, 0]))))


@system("distilbert", 2, embedding("word", V, D) | embedding("place", 64, D) | norm("placed", D) | layer("encoder.0.") | layer("encoder.1.") |
        linear("pooled", D, D) | linear("output", 3, D), texts(False))
def distilbert(net, _, input_ids, attention_mask):
    x = normed(net, "placed", net.embed("word", input_ids) + net.embed("place", np.arange(input_ids.shape[1])))
    for n in ("encoder.0.", "encoder.1."):
        x = behind(net, n, x, attention_mask[:, None, None] != 0)
    return dict(last_hidden_state=x, logits=net.linear("output", relu(net.linear("pooled", x[:, 0]))))


@system("roberta", 2, embedding("word", V, D) | embedding("place", 64, D) | norm("placed", D) | layer("encoder.0.") | layer("encoder.1.") |
        linear("dense", D, D) | linear("output", 3, D), texts(False))
def roberta(net, _, input_ids, attention_mask):
    is_word = input_ids != 1
    x = net.embed("word", input_ids) + net.embed("place", 1 + is_word * is_word.cumsum(1))
    x = normed(net, "placed", x)
    for n in ("encoder.0.", "encoder.1."):
        x = behind(net, n, x, attention_mask[:, None, None] != 0)
    return dict(last_hidden_state=x, logits=net.linear("output", np.tanh(net.linear("dense", x[:, 0]))))


@system("albert", 2, embedding("word", V, E) | embedding("part", 2, E) | embedding("place", 64, E) | norm("narrow_normed", E) |
        linear("placed", D, E) | layer("layer.") | linear("pooled", D, D) | linear("output", 3, D), texts(True))
def albert(net, _, input_ids, attention_mask, token_type_ids):
    x = net.embed("word", input_ids) + net.embed("part", token_type_ids) + net.embed("place", np.arange(input_ids.shape[1]))
    x = net.linear("placed", normed(net, "narrow_normed", x))
    for _ in range(2):
        x = behind(net, "layer.", x, attention_mask[:, None, None] != 0, gelu_tanh)
    return dict(last_hidden_state=x, logits=net.linear("output", np.tanh(net.linear("pooled", x[:, 0]))))


def xlnet_layer(name):
    biases = {f"{name}{part}": (4, 8, 2.0) for part in "uvs"} | {name + "segment": (2, 4, 8, 6.0)}
    projections = [linear(name + part, D, D, bias=False, gain=1.5) for part in ("query", "key", "distant", "value", "output")]
    rest = norm(name + "norm_self", D) | linear(name + "wide", F, D) | linear(name + "narrow", D, F) | norm(name + "normed", D)
    return biases | rest | {k: v for part in projections for k, v in part.items()}


@system("xlnet", 2, embedding("word", V, D) | {"rates": (16, 1.0)} | xlnet_layer("stack.0.") | xlnet_layer("stack.1.") | linear("logits", V, D),
        texts(True))
def xlnet(net, _, input_ids, attention_mask, token_type_ids):
    b, t = input_ids.shape
    x, at = net.embed("word", input_ids), np.arange(t)
    apart = at[:, None] - at  # i - j
    turned = apart[..., None] * net["rates"]
    distances = np.concatenate([np.sin(turned), np.cos(turned)], -1)
    for n in ("stack.0.", "stack.1."):
        q, k, v = (net.linear(n + part, x).reshape(b, t, 4, 8) for part in ("query", "key", "value"))
        r = net.linear(n + "distant", distances).reshape(t, t, 4, 8)
        e = np.einsum("bihd,bjhd->bhij", q + net[n + "u"], k) + np.einsum("bihd,ijhd->bhij", q + net[n + "v"], r)
        of_part = np.einsum("bihd,phd->bhip", q + net[n + "s"], net[n + "segment"])
        is_other = (token_type_ids[:, :, None] != token_type_ids[:, None, :])[:, None]
        seen = (attention_mask != 0)[:, None, None] | np.eye(t, dtype=bool)
        e = (e + np.where(is_other, of_part[..., 1:], of_part[..., :1])) / np.sqrt(8)
        y = np.einsum("bhij,bjhd->bihd", masked_softmax(e, seen), v).reshape(b, t, D)
        x = normed(net, n + "norm_self", x + net.linear(n + "output", y))
        x = normed(net, n + "normed", x + net.linear(n + "narrow", gelu(net.linear(n + "wide", x))))
    return dict(last_hidden_state=x, logits=net.linear("logits", x))


def vit_layer(name):
    return heads(name + "self", D) | norm(name + "norm_self", D) | norm(name + "norm_wide", D) | linear(name + "wide", F, D) | linear(name + "narrow", D, F)


@system("vit", 2, {"patches.weight": (D, 3, 4, 4, 1.0), "patches.bias": (D, 0.5), "token_row": (1, 1, D, 5.0), "places": (1, 17, D, 3.0)} |
        vit_layer("encoder.0.") | vit_layer("encoder.1.") | norm("norm", D) | linear("output", 10, D),
        lambda rng: [("", dict(pixel_values=floats(rng, b, 3, 16, 16))) for b in (2, 1)])
def vit(net, _, pixel_values):
    x = convolve(pixel_values, net["patches.weight"], net["patches.bias"], stride=4).reshape(len(pixel_values), D, 16).swapaxes(1, 2)
    x = np.concatenate([np.broadcast_to(net["token_row"], (len(x), 1, D)), x], 1) + net["places"]
    for n in ("encoder.0.", "encoder.1."):
        y = normed(net, n + "norm_self", x)
        x = x + net.multi_head(n + "self", y, y, y, 4)[0]
        x = x + net.linear(n + "narrow", gelu(net.linear(n + "wide", normed(net, n + "norm_wide", x))))
    x = normed(net, "norm", x)
    return dict(last_hidden_state=x, logits=net.linear("output", x[:, 0]))
