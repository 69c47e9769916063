"""The sequence models of ./dev bench sequence: Luong's and Bahdanau's encoders and decoder steps at their usual size, a
greedy decode written out step by step, and a beam search that is compiled here and a loop in Python beside it."""
import numpy as np

from models import Model, Net

D, VOCABULARY, SOURCE, BEAM, STEPS = 512, 8000, 50, 5, 20


class SequenceNet(Net):
    """Recurrent layers as exporters write them: time first inside, batch first outside."""

    def weights(self, gates, columns, directions):
        return [self.parameter(directions, gates * D, n, scale=n**-0.5) for n in (columns, D)] + [self.parameter(directions, 2 * gates * D)]

    def rnn(self, kind, weights, x, directions, *states):
        """x [batch, time, columns]; (y [batch, time, directions * D], last states [directions, batch, D])."""
        x = self.op("Transpose", x, perm=[1, 0, 2])
        extra = {"linear_before_reset": 1} if kind == "GRU" else {}
        outputs = [f"rnn{len(self.g.nodes)}_{i}" for i in range(3 if kind == "LSTM" else 2)]
        import onnx
        inputs = [x, *weights, *(["", *states] if states else [])]
        self.g.nodes.append(onnx.helper.make_node(kind, inputs, outputs, hidden_size=D,
                                                  direction="bidirectional" if directions == 2 else "forward", **extra))
        y = self.op("Transpose", outputs[0], perm=[2, 0, 1, 3])
        return self.op("Reshape", y, self.ints(0, 0, -1)), outputs[1:]

    def normal(self, name, *shape):
        return self.feed(name, 0.3 * self.rng.standard_normal(shape, np.float32))


class Luong:
    def __init__(self, n):
        self.n, self.table = n, n.parameter(VOCABULARY, D)
        self.cells = [n.weights(4, 2 * D if layer == 0 else D, 1) for layer in range(2)]
        self.score, self.join = n.parameter(D, 2 * D, scale=D**-0.5), n.parameter(3 * D, D, scale=(3 * D)**-0.5)
        self.out, self.bias = n.parameter(D, VOCABULARY, scale=D**-0.5), n.parameter(VOCABULARY)

    def layers_of(self, state):
        return [self.n.op("Slice", state, self.n.ints(i), self.n.ints(i + 1), self.n.ints(0)) for i in range(2)]

    def step(self, ids, feed, h, c, memory):
        n = self.n
        y = n.op("Concat", n.op("Gather", self.table, ids, axis=0), feed, axis=-1)
        last = [[], []]
        for weights, *states in zip(self.cells, self.layers_of(h), self.layers_of(c)):
            y, ends = n.rnn("LSTM", weights, y, 1, *states)
            for kept, end in zip(last, ends):
                kept.append(end)
        scores = n.op("MatMul", n.op("MatMul", y, self.score), n.op("Transpose", memory, perm=[0, 2, 1]))
        context = n.op("MatMul", n.op("Softmax", scores, axis=-1), memory)
        feed = n.op("Tanh", n.op("MatMul", n.op("Concat", context, y, axis=-1), self.join))
        logits = n.op("Add", n.op("MatMul", feed, self.out), self.bias)
        return logits, feed, *(n.op("Concat", *kept, axis=0) for kept in last)


def encode(n, kind, layers, batch):
    ids = n.feed("input_ids", n.rng.integers(1, VOCABULARY, (batch, SOURCE)))
    x = n.op("Gather", n.parameter(VOCABULARY, D), ids, axis=0)
    for layer in range(layers):
        x, _ = n.rnn(kind, n.weights(4 if kind == "LSTM" else 3, 2 * D if layer else D, 2), x, 2)
    return x


def luong_encoder():
    n = SequenceNet()
    n.output(encode(n, "LSTM", 2, 1))
    return n


def luong_step():
    n = SequenceNet()
    ids = n.feed("token", n.rng.integers(1, VOCABULARY, (1, 1)))
    states = [n.normal("feed", 1, 1, D), n.normal("h", 2, 1, D), n.normal("c", 2, 1, D), n.normal("memory", 1, SOURCE, 2 * D)]
    for value in Luong(n).step(ids, *states):
        n.output(value)
    return n


def luong_greedy():
    n = SequenceNet()
    memory = encode(n, "LSTM", 2, 1)
    luong = Luong(n)
    feed, h = (n.g.constant(np.zeros(shape).tolist(), np.float32) for shape in ((1, 1, D), (2, 1, D)))
    c, ids = h, n.ints([0])
    for _ in range(STEPS):
        logits, feed, h, c = luong.step(ids, feed, h, c, memory)
        ids = n.op("ArgMax", logits, axis=-1, keepdims=0)
    n.output(logits)
    return n


class SearchNet(SequenceNet):
    """A step whose batch is open and whose states have names; `feeds` are those of one item."""

    def save(self, path):
        import onnx
        names = {"feed": ["batch", 1, D], "h": [2, "batch", D], "c": [2, "batch", D], "memory": ["batch", SOURCE, 2 * D], "token": ["batch", 1]}
        self.inputs = [onnx.helper.make_tensor_value_info(v.name, v.type.tensor_type.elem_type, names[v.name]) for v in self.inputs]
        self.outputs = [onnx.helper.make_tensor_value_info(v.name, 1, None) for v in self.outputs]
        super().save(path)
        self.feeds.pop("token")


def luong_beam():
    n = SearchNet()
    ids = n.feed("token", np.ones((1, 1), np.int64))
    states = [n.normal("feed", 1, 1, D), n.normal("h", 2, 1, D), n.normal("c", 2, 1, D), n.normal("memory", 1, SOURCE, 2 * D)]
    for name, value in zip(("logits", "next_feed", "next_h", "next_c"), Luong(n).step(ids, *states)):
        n.g.nodes.append(__import__("onnx").helper.make_node("Identity", [value], [name]))
        n.output(name)
    return n


def bahdanau_encoder():
    n = SequenceNet()
    y = encode(n, "GRU", 1, 16)
    n.output(y)
    n.output(n.op("MatMul", y, n.parameter(2 * D, D, scale=(2 * D)**-0.5)))
    return n


def bahdanau_step():
    n = SequenceNet()
    ids = n.feed("token", n.rng.integers(1, VOCABULARY, (16, 1)))
    h, memory, keys = n.normal("h", 1, 16, D), n.normal("memory", 16, SOURCE, 2 * D), n.normal("keys", 16, SOURCE, D)
    query = n.linear(n.op("Squeeze", h, n.ints(0)), D, D)
    e = n.op("Tanh", n.op("Add", n.op("Unsqueeze", query, n.ints(1)), keys))
    e = n.op("Squeeze", n.op("MatMul", e, n.parameter(D, 1, scale=D**-0.5)), n.ints(-1))
    context = n.op("MatMul", n.op("Unsqueeze", n.op("Softmax", e, axis=-1), n.ints(1)), memory)
    x = n.op("Concat", n.op("Gather", n.parameter(VOCABULARY, D), ids, axis=0), context, axis=-1)
    y, (last,) = n.rnn("GRU", n.weights(3, 3 * D, 1), x, 1, h)
    n.output(n.linear(y, D, VOCABULARY))
    n.output(last)
    return n


MODELS = {
    "luong-enc-s50": Model(luong_encoder, 1.05, 1.35),
    "luong-step": Model(luong_step, 0.02, 1.2),
    "luong-greedy20": Model(luong_greedy, 1.42, 1.4, narrow=True, weights={"attnc-weights-bf16": 2.5, "attnc-weights-int8": 2.5}),
    "luong-beam5": Model(luong_beam, 0.36, 3.0, narrow=True, weights={"attnc-weights-bf16": 3.0, "attnc-weights-int8": 3.0},
                         search=(f"--generate=beam:{BEAM}", "--bos=1", f"--max-length={STEPS}")),
    "bahdanau-enc-b16-s50": Model(bahdanau_encoder, 5.9, 1.05),
    "bahdanau-step-b16": Model(bahdanau_step, 0.23, 1.5),
}


def search_in_python(session, feeds):
    """What luong-beam5 is compared with: a loop over steps, as it is written around a session."""
    rows = {"feed": 0, "h": 1, "c": 1, "memory": 0}
    states = {name: np.repeat(value, BEAM, rows[name]) for name, value in feeds.items()}
    tokens, live = np.ones((BEAM, 1), np.int64), np.array([0] + [-np.inf] * (BEAM - 1), np.float32)
    history = np.zeros((BEAM, 0), np.int64)
    for _ in range(STEPS):
        logits, *after = session.run(["logits", "next_feed", "next_h", "next_c"], {"token": tokens, **states})
        x = logits[:, 0]
        top = x.max(-1, keepdims=True)
        scores = (live[:, None] + x - (top + np.log(np.exp(x - top).sum(-1, keepdims=True)))).ravel()
        best = np.argpartition(-scores, BEAM)[:BEAM]
        best = best[np.argsort(-scores[best], kind="stable")]
        parents, tokens, live = best // VOCABULARY, (best % VOCABULARY)[:, None], scores[best]
        history = np.concatenate([history[parents], tokens], 1)
        for name, value in zip(("feed", "h", "c"), after):
            states[name] = np.take(value, parents, rows[name])
    return [history[:1][None], live[:1][None]]
