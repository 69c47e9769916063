#!/usr/bin/env python3
"""Models in f16 beside ONNX Runtime, both against float64: half_models.py BIN FOLDER"""
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

WIDTH, HEADS, VOCABULARY = 64, 4, 100
TARGETS = {"native": [], "avx2": ["--mcpu=x86-64-v3"], "portable": ["--mcpu=x86-64"], "unfused": ["-O0"]}


class Graph:
    """A graph in one float type; its weights are numbers of f16 in each."""

    def __init__(self, kind, seed):
        self.kind, self.rng = np.dtype(kind), np.random.default_rng(seed)
        self.nodes, self.weights, self.count = [], [], 0

    def add(self, operator, *inputs, outputs=1, **attributes):
        self.count += 1
        names = [f"v{self.count}_{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, name=f"{operator}_{self.count}", **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value, kind=None):
        self.count += 1
        self.weights.append(numpy_helper.from_array(np.asarray(value).astype(kind or self.kind), f"w{self.count}"))
        return f"w{self.count}"

    def weight(self, *shape, scale=0.2):
        return self.constant((scale * self.rng.standard_normal(shape)).astype(np.float16))

    def ints(self, *values):
        return self.constant(values, np.int64)

    def linear(self, x, rows, columns):
        return self.add("Add", self.add("MatMul", x, self.weight(rows, columns)), self.weight(columns))

    def norm(self, x):
        scale, shift = self.weight(WIDTH), self.weight(WIDTH)
        return self.add("LayerNormalization", x, scale, shift, axis=-1)

    def heads(self, x):
        return self.add("Transpose", self.add("Reshape", x, self.ints(0, 0, HEADS, WIDTH // HEADS)), perm=[0, 2, 1, 3])

    def attention(self, q, k, v, mask=None):
        scores = self.add("MatMul", q, self.add("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.add("Mul", scores, self.constant(0.25))
        if mask:
            scores = self.add("Add", scores, mask)
        context = self.add("MatMul", self.add("Softmax", scores, axis=-1), v)
        return self.add("Reshape", self.add("Transpose", context, perm=[0, 2, 1, 3]), self.ints(0, 0, WIDTH))

    def gelu(self, x):
        erf = self.add("Erf", self.add("Div", x, self.constant(2**0.5)))
        return self.add("Mul", self.add("Mul", x, self.add("Add", erf, self.constant(1))), self.constant(0.5))

    def mlp(self, x):
        return self.linear(self.gelu(self.linear(x, WIDTH, 4 * WIDTH)), 4 * WIDTH, WIDTH)


def encoder(g):
    """Token and position tables, a mask of -65504, two layers."""
    x = g.add("Add", g.add("Gather", g.weight(VOCABULARY, WIDTH), "ids"), g.weight(9, WIDTH))
    hidden = g.add("Sub", g.constant(1), g.add("Cast", "mask", to=helper.np_dtype_to_tensor_dtype(g.kind)))
    mask = g.add("Mul", g.add("Unsqueeze", hidden, g.ints(1, 2)), g.constant(-65504))
    for _ in range(2):
        q, k, v = (g.heads(g.linear(x, WIDTH, WIDTH)) for _ in range(3))
        x = g.norm(g.add("Add", x, g.linear(g.attention(q, k, v, mask), WIDTH, WIDTH)))
        x = g.norm(g.add("Add", x, g.mlp(x)))
    ids = g.rng.integers(0, VOCABULARY, (2, 9))
    return {"ids": ids, "mask": np.repeat([[1] * 9, [1] * 5 + [0] * 4], [1, 1], 0)}, [x]


def prefill(g):
    """A causal mask that is a stored table, and a logit for each position."""
    hidden = np.triu(np.full((1, 1, 80, 80), -65504.0), 1)
    x = g.add("Add", g.add("Gather", g.weight(VOCABULARY, WIDTH), "ids"), g.weight(80, WIDTH))
    q, k, v = (g.heads(g.linear(x, WIDTH, WIDTH)) for _ in range(3))
    x = g.norm(g.add("Add", x, g.linear(g.attention(q, k, v, g.constant(hidden)), WIDTH, WIDTH)))
    return {"ids": g.rng.integers(0, VOCABULARY, (1, 80))}, [g.linear(x, WIDTH, VOCABULARY)]


def decoder(g):
    """One token by a cache, which is an output; weights of the head tied to the table."""
    table = g.weight(VOCABULARY, WIDTH)
    x = g.add("Gather", table, "ids")
    q, k, v = (g.heads(g.linear(x, WIDTH, WIDTH)) for _ in range(3))
    keys, values = g.add("Concat", "past_k", k, axis=2), g.add("Concat", "past_v", v, axis=2)
    x = g.add("Add", x, g.linear(g.attention(q, keys, values), WIDTH, WIDTH))
    logits = g.add("MatMul", g.norm(g.add("Add", x, g.mlp(x))), g.add("Transpose", table, perm=[1, 0]))
    past = lambda: g.rng.standard_normal((2, HEADS, 21, WIDTH // HEADS)).astype(np.float16)  # noqa: E731
    return {"ids": g.rng.integers(0, VOCABULARY, (2, 1)), "past_k": past(), "past_v": past()}, [logits, keys, values]


def recurrent(g):
    """An LSTM and a GRU, one behind the other."""
    lstm, _, _ = g.add("LSTM", "x", g.weight(1, 4 * WIDTH, WIDTH), g.weight(1, 4 * WIDTH, WIDTH), g.weight(1, 8 * WIDTH),
                       outputs=3, hidden_size=WIDTH)
    middle = g.add("Squeeze", lstm, g.ints(1))
    gru, last = g.add("GRU", middle, g.weight(1, 3 * 40, WIDTH), g.weight(1, 3 * 40, 40), g.weight(1, 6 * 40), outputs=2,
                      hidden_size=40, linear_before_reset=1)
    return {"x": g.rng.standard_normal((7, 3, WIDTH)).astype(np.float16)}, [gru, last]


def overflow(g):
    """What is between two ops may be beyond f16; what is stored may not."""
    huge = g.add("MatMul", "x", g.constant(np.full((WIDTH, WIDTH), 900)))
    small = g.add("Mul", huge, g.constant(0.001))
    moved = g.add("Mul", g.add("Transpose", g.add("Reshape", huge, g.ints(-1, 4, 16)), perm=[0, 2, 1]), g.constant(0.001))
    there = g.add("Cast", g.add("Cast", huge, to=TensorProto.FLOAT), to=helper.np_dtype_to_tensor_dtype(g.kind))
    back = g.add("Mul", there, g.constant(-0.0005))
    return {"x": np.full((5, WIDTH), 100, np.float16)}, [small, moved, back, g.add("Identity", huge)]


def save(path, build, kind, seed):
    g = Graph(kind, seed)
    inputs, outputs = build(g)
    element = lambda array: helper.np_dtype_to_tensor_dtype(g.kind if array.dtype == np.float16 else array.dtype)  # noqa: E731
    graph = helper.make_graph(g.nodes, build.__name__,
                              [helper.make_tensor_value_info(n, element(a), a.shape) for n, a in inputs.items()],
                              [helper.make_tensor_value_info(n, element(np.zeros(0, np.float16)), None) for n in outputs],
                              g.weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return inputs, outputs


def run(bin, folder, model, options, inputs, outputs):
    library = folder / "model.so"
    subprocess.run([f"{bin}/attnc", model, "-o", library, *options], check=True)
    command = [f"{bin}/attn-run", library]
    for name, value in inputs.items():
        np.save(folder / f"{name}.npy", value)
        command.append(f"--input={name}=@{folder / name}.npy")
    command += [f"--output={name}=@{folder / f'out{n}'}.npy" for n, name in enumerate(outputs)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [np.load(folder / f"out{n}.npy") for n in range(len(outputs))]


def error(value, exact):
    """Beside the rounding that no result in f16 can do without."""
    return np.abs(value.astype(np.float64) - exact) - np.abs(exact.astype(np.float16).astype(np.float64) - exact)


def compare(name, target, ours, theirs, exact):
    """Infinite is what is beyond f16 as it is stored, and nothing that is finite in ONNX Runtime."""
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(np.isfinite(ours), np.isfinite(exact.astype(np.float16)), f"{name} {target}")
    both = np.isfinite(ours) & np.isfinite(theirs)
    assert np.array_equal(both, np.isfinite(theirs)), f"{name} {target}: finite in ONNX Runtime alone"
    if not both.any():
        return
    exact = exact[both]
    mine, other = error(ours[both], exact), error(theirs[both], exact)
    step = np.spacing(np.abs(exact).max().astype(np.float16)).astype(np.float64)
    for point, factor in ((50, 1.0), (99, 1.5)):
        a, b = np.percentile(mine, point), np.percentile(other, point)
        assert a <= factor * b + 0.02 * step, f"{name} {target}: error {a:.3g} at {point} %, ONNX Runtime's is {b:.3g}"


def check_casts(bin, folder):
    """A Cast to 16 bits rounds numbers of f32 and of integers, as in ONNX Runtime; models that split numbers need it."""
    kinds = {"f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
    nodes, outputs = [], []
    for name, kind in kinds.items():
        nodes += [helper.make_node("Cast", ["x"], [f"{name}_half"], to=kind),
                  helper.make_node("Cast", [f"{name}_half"], [f"{name}_high"], to=TensorProto.FLOAT),
                  helper.make_node("Sub", ["x", f"{name}_high"], [f"{name}_low"]),
                  helper.make_node("Cast", [f"{name}_half"], [f"{name}_double"], to=TensorProto.DOUBLE),
                  helper.make_node("Equal", ["x", f"{name}_high"], [f"{name}_equal"])]
        outputs += [(f"{name}_high", TensorProto.FLOAT), (f"{name}_low", TensorProto.FLOAT),
                    (f"{name}_double", TensorProto.DOUBLE), (f"{name}_equal", TensorProto.BOOL)]
    graph = helper.make_graph(nodes, "casts", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
                              [helper.make_tensor_value_info(n, kind, ["n"]) for n, kind in outputs])
    model = folder / "casts.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), model)
    inputs = {"x": np.array([0.1, 1, 2049, 4.9999, 7e4, -1e9, 3e-8, 1 / 3], np.float32)}
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    theirs = onnxruntime.InferenceSession(str(model), settings, ["CPUExecutionProvider"]).run(None, inputs)
    for target, options in TARGETS.items():
        ours = run(bin, folder, model, options, inputs, [n for n, _ in outputs])
        for (name, _), mine, other in zip(outputs, ours, theirs):
            np.testing.assert_array_equal(mine, other, f"{name} {target}")


def main(bin, folder):
    folder = pathlib.Path(folder)
    check_casts(bin, folder)
    for build in (encoder, prefill, decoder, recurrent, overflow):
        model, wide = folder / f"{build.__name__}.onnx", folder / f"{build.__name__}64.onnx"
        inputs, outputs = save(model, build, np.float16, 1)
        save(wide, build, np.float64, 1)
        doubles = {n: a.astype(np.float64) if a.dtype == np.float16 else a for n, a in inputs.items()}
        exact = ReferenceEvaluator(str(wide)).run(None, doubles)
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        theirs = onnxruntime.InferenceSession(str(model), settings, ["CPUExecutionProvider"]).run(None, inputs)
        for target, options in TARGETS.items():
            for n, ours in enumerate(run(bin, folder, model, options, inputs, outputs)):
                compare(f"{build.__name__} {n}", target, ours, theirs[n], exact[n])
    print("models in f16 agree")


main(*sys.argv[1:])
