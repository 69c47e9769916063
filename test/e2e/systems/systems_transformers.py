"""Transformers."""
import numpy as np
from layers import gelu_tanh, log_softmax, relu, sinusoids
from registry import embedding, floats, heads, linear, norm, system, words

D, F, V = 32, 48, 40


def merge(parts):
    return {k: v for part in parts for k, v in part.items()}


TRANSFORMER = merge(
    [heads(f"encoder.{n}.self", D) | norm(f"encoder.{n}.norm_self", D) | linear(f"encoder.{n}.wide", F, D) | linear(f"encoder.{n}.narrow", D, F) |
     norm(f"encoder.{n}.normed", D) for n in (0, 1)] +
    [heads(f"decoder.{n}.self", D) | norm(f"decoder.{n}.norm_self", D) | heads(f"decoder.{n}.cross", D) | norm(f"decoder.{n}.norm_cross", D) |
     linear(f"decoder.{n}.wide", F, D) | linear(f"decoder.{n}.narrow", D, F) | norm(f"decoder.{n}.normed", D) for n in (0, 1)])


@system("transformer", 6, TRANSFORMER | embedding("source_words", V, D) | embedding("target_words", V, D) | linear("output", V, D),
        lambda rng: [("", dict(source=words(rng, b, s), lengths=np.array([max(1, s - 2 * i) for i in range(b)]), target=words(rng, b, t)))
                     for b, s, t in ((2, 7, 5), (1, 10, 1), (3, 5, 8))])
def transformer(net, _, source, lengths, target):
    def feed_forward(name, x):
        return net.layer_norm(name + ".normed", x + net.linear(name + ".narrow", relu(net.linear(name + ".wide", x))))

    seen = (np.arange(source.shape[1]) < lengths[:, None])[:, None, None]
    x = net.embed("source_words", source) + sinusoids(source.shape[1], D)
    for n in ("encoder.0", "encoder.1"):
        x = net.layer_norm(n + ".norm_self", x + net.multi_head(n + ".self", x, x, x, 4, seen)[0])
        x = feed_forward(n, x)
    y = net.embed("target_words", target) + sinusoids(target.shape[1], D)
    causal = np.tri(target.shape[1], dtype=bool)
    for n in ("decoder.0", "decoder.1"):
        y = net.layer_norm(n + ".norm_self", y + net.multi_head(n + ".self", y, y, y, 4, causal)[0])
        y = net.layer_norm(n + ".norm_cross", y + net.multi_head(n + ".cross", y, x, x, 4, seen)[0])
        y = feed_forward(n, y)
    return dict(log_probs=log_softmax(net.linear("output", y)))


@system("gpt", 2, merge([heads(f"stack.{n}.self", D) | norm(f"stack.{n}.norm_self", D) | linear(f"stack.{n}.wide", F, D) | linear(f"stack.{n}.narrow", D, F) |
                         norm(f"stack.{n}.normed", D) for n in (0, 1)]) | embedding("words", V, D) | embedding("places", 64, D),
        lambda rng: [("", dict(tokens=words(rng, b, t))) for b, t in ((2, 7), (1, 1), (3, 12))])
def gpt(net, _, tokens):
    x = net.embed("words", tokens) + net.embed("places", np.arange(tokens.shape[1]))
    for n in ("stack.0", "stack.1"):
        x = net.layer_norm(n + ".norm_self", x + net.multi_head(n + ".self", x, x, x, 4, np.tri(tokens.shape[1], dtype=bool))[0])
        x = net.layer_norm(n + ".normed", x + net.linear(n + ".narrow", gelu_tanh(net.linear(n + ".wide", x))))
    return dict(logits=x @ net["words.weight"].T)


@system("gpt2", 2, merge([heads(f"stack.{n}.self", D) | norm(f"stack.{n}.norm_self", D) | norm(f"stack.{n}.norm_wide", D) | linear(f"stack.{n}.wide", F, D) |
                          linear(f"stack.{n}.narrow", D, F) for n in (0, 1)]) | embedding("words", V, D) | embedding("places", 64, D) | norm("norm", D),
        lambda rng: [("", dict(tokens=words(rng, b, t), positions=np.arange(p, p + t),
                               **{f"past_{n}_{k}": floats(rng, b, 4, p, 8) for n in (0, 1) for k in ("keys", "values")}))
                     for b, t, p in ((2, 1, 5), (1, 6, 0), (3, 4, 3))])
def gpt2(net, _, tokens, positions, **past):
    x, present = net.embed("words", tokens) + net.embed("places", positions), {}
    p, t = past["past_0_keys"].shape[2], tokens.shape[1]
    causal = np.tri(t, p + t, p, dtype=bool)
    for n in (0, 1):
        name = f"stack.{n}"
        y = net.layer_norm(name + ".norm_self", x)
        y, k, v = net.multi_head(name + ".self", y, y, y, 4, causal, cache=(past[f"past_{n}_keys"], past[f"past_{n}_values"]))
        present |= {f"present_{n}_keys": k, f"present_{n}_values": v}
        x = x + y
        y = net.layer_norm(name + ".norm_wide", x)
        x = x + net.linear(name + ".narrow", gelu_tanh(net.linear(name + ".wide", y)))
    return dict(logits=net.layer_norm("norm", x) @ net["words.weight"].T) | present
