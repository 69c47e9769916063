"""The whole models of ./dev bench models: real sizes, random weights from fixed seeds, written as exporters spell them.
MiniLM, with its real weights, is in tools/demo."""
import dataclasses
import math
import typing

import numpy as np

OPSET = 17


class Net:
    """A graph under construction; weights are drawn as they are asked for."""

    def __init__(self, seed=7):
        from minilm import Graph  # tools/demo
        self.g, self.rng, self.count = Graph(), np.random.default_rng(seed), 0
        self.inputs, self.outputs, self.feeds = [], [], {}
        self.caches = []  # (input, output): a decoder's keys and values

    def op(self, kind, *inputs, **attributes):
        return self.g.node(kind, *inputs, **attributes)

    def ints(self, *values):
        return self.g.constant(list(values))

    def number(self, value):
        return self.g.constant(value, np.float32)

    def parameter(self, *shape, scale=0.02, offset=0.0):
        self.count += 1
        value = offset + scale * self.rng.standard_normal(shape, np.float32)
        return self.g.weight(f"w{self.count}", value.astype(np.float32))

    def feed(self, name, value):
        import onnx
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        self.inputs.append(onnx.helper.make_tensor_value_info(name, kind, value.shape))
        self.feeds[name] = value
        return name

    def ids(self, batch, length, vocabulary):
        return self.feed("input_ids", self.rng.integers(1, vocabulary, (batch, length)))

    def output(self, value):
        import onnx
        self.outputs.append(onnx.helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, None))

    def linear(self, x, rows, columns, bias=True):
        y = self.op("MatMul", x, self.parameter(rows, columns, scale=rows**-0.5))
        return self.op("Add", self.parameter(columns), y) if bias else y

    def norm(self, x, width):
        return self.op("LayerNormalization", x, self.parameter(width, offset=1.0), self.parameter(width), axis=-1, epsilon=1e-12)

    def rms_norm(self, x, width):
        mean = self.op("ReduceMean", self.op("Pow", x, self.number(2.0)), axes=[-1])
        root = self.op("Sqrt", self.op("Add", mean, self.number(1e-5)))
        return self.op("Mul", self.parameter(width, offset=1.0), self.op("Div", x, root))

    def split(self, x, batch, length, heads, size):
        return self.op("Transpose", self.op("Reshape", x, self.ints(batch, length, heads, size)), perm=[0, 2, 1, 3])

    def merge(self, x, batch, length, width):
        return self.op("Reshape", self.op("Transpose", x, perm=[0, 2, 1, 3]), self.ints(batch, length, width))

    def attend(self, q, k, v, size, mask=None):
        scores = self.op("Div", self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2])), self.number(math.sqrt(size)))
        scores = self.op("Add", scores, mask) if mask else scores
        return self.op("MatMul", self.op("Softmax", scores, axis=-1), v)

    def gelu(self, x):
        erf = self.op("Erf", self.op("Div", x, self.number(math.sqrt(2))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", erf, self.number(1.0))), self.number(0.5))

    def gelu_tanh(self, x):
        cube = self.op("Mul", self.op("Pow", x, self.number(3.0)), self.number(0.044715))
        inner = self.op("Tanh", self.op("Mul", self.op("Add", x, cube), self.number(math.sqrt(2 / math.pi))))
        return self.op("Mul", self.op("Mul", x, self.number(0.5)), self.op("Add", inner, self.number(1.0)))

    def append(self, name, x, batch, heads, past, size):
        """`past` earlier keys or values, an input, and the new ones: the cache, an output."""
        old = self.feed(name, 0.5 * self.rng.standard_normal((batch, heads, past, size), np.float32))
        new = self.op("Concat", old, x, axis=2)
        self.output(new)
        self.caches.append((old, new))
        return new

    def open_caches(self):
        """Caches of any length, so that a library can own them."""
        grown = dict(self.caches)
        for value in self.inputs:
            if value.name in grown:
                value.type.tensor_type.shape.dim[2].dim_param = "past"

    def save(self, path):
        import onnx
        graph = onnx.helper.make_graph(self.g.nodes, path.parent.name, self.inputs, self.outputs, self.g.initializers)
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=8), str(path))


def encoder_block(n, x, batch, length, width, heads, hidden, mask=None, pre=False, act=None):
    size, act = width // heads, act or n.gelu
    y = n.norm(x, width) if pre else x
    q, k, v = (n.split(n.linear(y, width, width), batch, length, heads, size) for _ in range(3))
    y = n.op("Add", x, n.linear(n.merge(n.attend(q, k, v, size, mask), batch, length, width), width, width))
    x = y if pre else n.norm(y, width)
    y = n.norm(x, width) if pre else x
    x = n.op("Add", x, n.linear(act(n.linear(y, width, hidden)), hidden, width))
    return x if pre else n.norm(x, width)


def bert(batch, length, layers=12, width=768, heads=12, vocabulary=30522, net=Net):
    n = net()
    x = n.op("Gather", n.parameter(vocabulary, width), n.ids(batch, length, vocabulary), axis=0)
    x = n.norm(n.op("Add", x, n.parameter(1, length, width)), width)
    shown = n.op("Cast", n.feed("attention_mask", np.ones((batch, length), np.int64)), to=1)
    hidden = n.op("Sub", n.number(1.0), n.op("Unsqueeze", shown, n.ints(1, 2)))
    mask = n.op("Mul", hidden, n.number(-10000.0))
    for _ in range(layers):
        x = encoder_block(n, x, batch, length, width, heads, 4 * width, mask)
    n.output(x)
    return n


def vit(batch, layers=12, width=768, heads=12, net=Net):
    n = net()
    image = n.feed("image", n.rng.standard_normal((batch, 3, 224, 224), np.float32))
    x = n.op("Conv", image, n.parameter(width, 3, 16, 16), n.parameter(width), kernel_shape=[16, 16], strides=[16, 16])
    x = n.op("Transpose", n.op("Reshape", x, n.ints(batch, width, 196)), perm=[0, 2, 1])
    first = n.op("Expand", n.parameter(1, 1, width), n.ints(batch, 1, width))
    x = n.op("Add", n.op("Concat", first, x, axis=1), n.parameter(1, 197, width))
    for _ in range(layers):
        x = encoder_block(n, x, batch, 197, width, heads, 4 * width, pre=True)
    x = n.op("Gather", n.norm(x, width), n.g.constant(0), axis=1)
    n.output(n.linear(x, width, 1000))
    return n


def gpt2(length, past, layers=12, width=768, heads=12, vocabulary=50257, net=Net):
    n, size = net(), width // heads
    table = n.parameter(vocabulary, width)
    x = n.op("Add", n.op("Gather", table, n.ids(1, length, vocabulary), axis=0), n.parameter(1, length, width))
    mask = None
    if length > 1:
        hidden = np.triu(np.full((length, past + length), -10000.0, np.float32), 1 + past)
        mask = n.g.constant(hidden, np.float32)
    for layer in range(layers):
        y = n.linear(n.norm(x, width), width, 3 * width)
        q, k, v = (n.split(part, 1, length, heads, size) for part in split_in_three(n, y, layer, width))
        if past:
            k, v = (n.append(f"{what}_{layer}", t, 1, heads, past, size) for what, t in (("key", k), ("value", v)))
        else:
            n.output(k)
            n.output(v)
        x = n.op("Add", x, n.linear(n.merge(n.attend(q, k, v, size, mask), 1, length, width), width, width))
        x = n.op("Add", x, n.linear(n.gelu_tanh(n.linear(n.norm(x, width), width, 4 * width)), 4 * width, width))
    last = n.op("Gather", n.norm(x, width), n.g.constant(-1), axis=1)
    n.output(n.op("MatMul", last, n.op("Transpose", table, perm=[1, 0])))
    return n


def split_in_three(n, y, layer, width):
    """Slices, as exporters write what they split in equal parts."""
    return [n.op("Slice", y, n.ints(i * width), n.ints((i + 1) * width), n.ints(2)) for i in range(3)]


def llama(past, layers=4, width=1024, heads=16, groups=4, hidden=2816, vocabulary=32000):
    n, size = Net(), width // heads
    x = n.op("Gather", n.parameter(vocabulary, width), n.ids(1, 1, vocabulary), axis=0)
    angle = past * 10000.0 ** (-np.arange(0, size, 2) / size)
    cos, sin = (n.g.constant(np.tile(f(angle), 2)[None], np.float32) for f in (np.cos, np.sin))

    def rotate(t):
        a = n.op("Slice", t, n.ints(0), n.ints(size // 2), n.ints(3))
        b = n.op("Slice", t, n.ints(size // 2), n.ints(size), n.ints(3))
        return n.op("Add", n.op("Mul", t, cos), n.op("Mul", n.op("Concat", n.op("Neg", b), a, axis=-1), sin))

    def repeat(t):
        wide = n.op("Expand", n.op("Unsqueeze", t, n.ints(2)), n.ints(1, groups, heads // groups, 1, size))
        return n.op("Reshape", wide, n.ints(1, heads, -1, size))

    for layer in range(layers):
        y = n.rms_norm(x, width)
        q = rotate(n.split(n.linear(y, width, width, bias=False), 1, 1, heads, size))
        k, v = (n.split(n.linear(y, width, groups * size, bias=False), 1, 1, groups, size) for _ in range(2))
        k = n.append(f"key_{layer}", rotate(k), 1, groups, past, size)
        v = n.append(f"value_{layer}", v, 1, groups, past, size)
        context = n.merge(n.attend(q, repeat(k), repeat(v), size), 1, 1, width)
        x = n.op("Add", x, n.linear(context, width, width, bias=False))
        y = n.rms_norm(x, width)
        gate = n.linear(y, width, hidden, bias=False)
        gate = n.op("Mul", gate, n.op("Sigmoid", gate))
        x = n.op("Add", x, n.linear(n.op("Mul", gate, n.linear(y, width, hidden, bias=False)), hidden, width, bias=False))
    last = n.op("Gather", n.rms_norm(x, width), n.g.constant(-1), axis=1)
    n.output(n.linear(last, width, vocabulary, bias=False))
    return n


def transformer_encoder(length, layers=6, width=512, heads=8, vocabulary=32000):
    n = Net()
    x = n.op("Gather", n.parameter(vocabulary, width), n.ids(1, length, vocabulary), axis=0)
    x = n.op("Add", n.op("Mul", x, n.number(math.sqrt(width))), n.parameter(1, length, width, scale=0.5))
    for _ in range(layers):
        x = encoder_block(n, x, 1, length, width, heads, 4 * width, act=lambda t: n.op("Relu", t))
    n.output(x)
    return n


def transformer_step(batch, past=32, source=64, layers=6, width=512, heads=8, vocabulary=32000):
    n, size = Net(), width // heads
    table = n.parameter(vocabulary, width, scale=width**-0.5)
    x = n.op("Gather", table, n.ids(batch, 1, vocabulary), axis=0)
    x = n.op("Add", n.op("Mul", x, n.number(math.sqrt(width))), n.parameter(1, 1, width, scale=0.5))

    def heads_of(y):
        return n.split(n.linear(y, width, width), batch, 1, heads, size)

    def joined(t):
        return n.linear(n.merge(t, batch, 1, width), width, width)

    for layer in range(layers):
        k = n.append(f"key_{layer}", heads_of(x), batch, heads, past, size)
        v = n.append(f"value_{layer}", heads_of(x), batch, heads, past, size)
        x = n.norm(n.op("Add", x, joined(n.attend(heads_of(x), k, v, size))), width)
        shape = (batch, heads, source, size)
        k, v = (n.feed(f"{what}_{layer}", 0.5 * n.rng.standard_normal(shape, np.float32)) for what in ("memory_key", "memory_value"))
        x = n.norm(n.op("Add", x, joined(n.attend(heads_of(x), k, v, size))), width)
        y = n.linear(n.op("Relu", n.linear(x, width, 4 * width)), 4 * width, width)
        x = n.norm(n.op("Add", x, y), width)
    last = n.op("Reshape", x, n.ints(batch, width))
    n.output(n.op("MatMul", last, n.op("Transpose", table, perm=[1, 0])))
    return n


@dataclasses.dataclass
class Model:
    make: typing.Callable  # () -> Net; None: bench.py makes it
    gflop: float
    fp32: float = None     # least ratio to the fastest fp32 peer
    bf16: float = None     # of --precision=bf16 to OpenVINO in bf16
    narrow: bool = False   # decoding: --weights=bf16 and int8 count, too
    weights: dict = None   # what counts then, instead of WEIGHTS
    search: tuple = ()     # the model is a step: options of the search around it


#: The least that counts; met from 0.98 of it on.
WEIGHTS = {"attnc-weights-bf16": 1.6, "attnc-weights-int8": 2.5, "attnc-state-bf16": 1.8, "attnc-state-int8": 3.0}
TOLERANCE = 0.98

MODELS = {
    "minilm-b1-s32": Model(None, 0.69, 1.25, 1.15),
    "minilm-b1-s128": Model(None, 2.87, 1.15, 1.15),
    "minilm-b16-s128": Model(None, 45.90, 1.07, 1.0),
    "bert-base-b1-s128": Model(lambda: bert(1, 128), 22.35, 1.07, 1.15),
    "bert-base-b1-s512": Model(lambda: bert(1, 512), 96.64, 1.02, 1.15),
    "bert-base-b8-s128": Model(lambda: bert(8, 128), 178.78, 0.98, 1.0),
    "vit-base-16-b1": Model(lambda: vit(1), 35.13, 1.05, 1.15),
    "vit-base-16-b8": Model(lambda: vit(8), 281.02, 0.98, 1.0),
    "gpt2-prefill-s256": Model(lambda: gpt2(256, 0), 45.98, 1.07, 1.15),
    "gpt2-decode-past512": Model(lambda: gpt2(1, 512), 0.27, 1.0, narrow=True),
    "llama4l-decode-past1024": Model(lambda: llama(1024), 0.17, 1.0, narrow=True),
    "transformer-base-enc-s64": Model(lambda: transformer_encoder(64), 2.47, 1.15, 1.15),
    "transformer-base-step-b1": Model(lambda: transformer_step(1), 0.08, 1.0, narrow=True),
    "transformer-base-step-beam4": Model(lambda: transformer_step(4), 0.31, 1.0, narrow=True),
}
