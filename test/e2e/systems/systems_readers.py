"""Memories that are read in hops, two inputs that read each other, a sentence that is read in several ways."""
import numpy as np
from layers import softmax
from registry import embedding, floats, linear, recurrent, system, words

V = 40


@system("memory_network", 3, {f"words{k}.weight": (V, 16, 1.2) for k in range(4)} | {f"age{k}.weight": (12, 16, 1.0) for k in range(4)} |
        {"order": (5, 16, 4.0)},
        lambda rng: [("", dict(story=words(rng, b, n, 5), query=words(rng, b, 5))) for b, n in ((2, 6), (1, 12), (3, 4), (1, 1))])
def memory_network(net, _, story, query):
    facts = [(net.embed(f"words{k}", story) * net["order"]).sum(2) + net[f"age{k}.weight"][:story.shape[1]] for k in range(4)]
    u, seen = (net.embed("words0", query) * net["order"]).sum(1), {}
    for k, name in enumerate(("first", "second", "third")):
        seen[name] = softmax(np.einsum("bnd,bd->bn", facts[k], u))
        u = u + np.einsum("bn,bnd->bd", seen[name], facts[k + 1])
    return dict(logits=u @ net["words3.weight"].T) | seen


@system("co_attention", 2, embedding("text", V, 20) | linear("across", 20, 20, bias=False) | linear("of_image", 12, 20, bias=False) |
        linear("of_text", 12, 20, bias=False) | linear("image_score", 1, 12, bias=False) | linear("text_score", 1, 12, bias=False),
        lambda rng: [("", dict(image=floats(rng, b, r, 20), question=words(rng, b, w))) for b, r, w in ((2, 9, 5), (1, 6, 8), (3, 12, 4), (1, 1, 1))])
def co_attention(net, _, image, question):
    text = net.embed("text", question)
    c = np.tanh(net.linear("across", text) @ image.swapaxes(1, 2))
    v, q = net.linear("of_image", image), net.linear("of_text", text)
    see = softmax(4 * net.linear("image_score", np.tanh(v + c.swapaxes(1, 2) @ q))[..., 0])
    read = softmax(4 * net.linear("text_score", np.tanh(q + c @ v))[..., 0])
    return dict(image_vector=np.einsum("br,brd->bd", see, image), question_vector=np.einsum("bw,bwd->bd", read, text), regions=see, words=read)


@system("self_attentive", 1, embedding("words", V, 16) | recurrent("encoder", "lstm", 12, 16, bidirectional=True) | linear("hidden", 16, 24, bias=False) |
        linear("hops", 4, 16, bias=False) | {"identity": (4, 4, 1.0)} | linear("output", 5, 96),
        lambda rng: [("", dict(source=words(rng, b, s))) for b, s in ((2, 7), (1, 11), (3, 4), (1, 1))])
def self_attentive(net, _, source):
    x = net.run("lstm", "encoder", net.embed("words", source), bidirectional=True)[0]
    a = softmax(12 * net.linear("hops", np.tanh(net.linear("hidden", x))), 1).swapaxes(1, 2)
    penalty = ((a @ a.swapaxes(1, 2) - net["identity"]) ** 2).sum((1, 2))
    return dict(logits=net.linear("output", (a @ x).reshape(len(x), -1)), penalty=penalty, weights=a)
