"""The graphs that a package brings along to be compiled and timed on the card, beside PyTorch.

One folder a case: graphs without their weights, which on_card_compile.py draws there, and case.json, which says how. The
full sizes are those that papers report: 16k tokens of width 2048 an attention, BERT-base, ViT-B/16, GPT-2.
Each case has a twin of tiny sizes, `small`, for a machine without a card.
"""
import functools
import itertools
import json
import pathlib
import re
import sys

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(ROOT / "test/bench"), str(ROOT / "tools/demo")]
import models  # noqa: E402

TYPES = {"f32": TensorProto.FLOAT, "bf16": TensorProto.BFLOAT16, "f16": TensorProto.FLOAT16}
WIDTHS = {"f32": 4, "bf16": 2}  # bytes of a weight
TOKENS, WIDTH = 16384, 2048


def describe(folder, **case):
    folder.mkdir(parents=True)
    (folder / "case.json").write_text(json.dumps({"name": folder.name, **case}))


# -- attention


def attention(folder, size, length, causal, batch, heads, key_heads=None, dtype="bf16", timed=True, small=False):
    shapes = {"q": [batch, heads, length, size]} | dict.fromkeys("kv", [batch, key_heads or heads, length, size])
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=int(causal))
    values = [helper.make_tensor_value_info(n, TYPES[dtype], s) for n, s in (*shapes.items(), ("y", shapes["q"]))]
    graph = helper.make_graph([node], "attention", values[:3], values[3:])
    describe(folder, group="attention", dtype=dtype, causal=causal, shapes=shapes, timed=timed, small=small,
             flops=4 * batch * heads * length**2 * size // (1 + causal))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), folder / "model.onnx")


def attentions(out):
    """In the order in which they matter where time ends."""
    # Tails of tiles and grouped heads: compared alone.
    for dtype in ("bf16", "f16", "f32"):
        for size, length, causal in ((64, 1, False), (64, 127, True), (80, 257, True), (128, 513, False), (256, 129, True)):
            name = f"attention_check_{dtype}_d{size}_{length}" + "_causal" * causal
            yield name, functools.partial(attention, out / name, size, length, causal, 2, 4, 2, dtype, timed=False)
    for lengths, sizes in (((512, 4096, 16384), (128,)), ((512, 4096, 16384), (64, 256)), ((2048, 8192, 1024), (128, 64, 256))):
        for length, size in itertools.product(lengths, sizes):
            for causal in (True, False):
                name = f"attention_d{size}_{length}" + "_causal" * causal
                yield name, functools.partial(attention, out / name, size, length, causal, TOKENS // length, WIDTH // size)
    for causal in (True, False):
        name = "attention_small" + "_causal" * causal
        yield name, functools.partial(attention, out / name, 64, 40, causal, 1, 2, small=True)
        yield name + "_f32", functools.partial(attention, out / (name + "_f32"), 32, 17, causal, 1, 2, 1, "f32", timed=False, small=True)


# -- models


class CardNet(models.Net):
    """Weights are described and not drawn."""

    def __init__(self):
        super().__init__()
        self.weights, self.limits = [], {}

    def parameter(self, *shape, scale=0.02, offset=0.0):
        self.count += 1
        tensor = TensorProto(name=f"w{self.count}", data_type=TensorProto.FLOAT, dims=shape)
        self.g.initializers.append(tensor)
        self.weights.append({"shape": shape, "scale": float(scale), "offset": offset})
        return tensor.name

    def ids(self, batch, length, vocabulary):
        self.limits["input_ids"] = vocabulary
        return super().ids(batch, length, vocabulary)


class StepNet(CardNet):
    """A step of a search: takes a token a row and gives scores a row, of any number of rows."""

    def ids(self, batch, length, vocabulary):
        return self.op("Unsqueeze", self.feed("token", np.ones(batch, np.int64)), self.ints(1))

    def split(self, x, batch, *sizes):
        return super().split(x, 0, *sizes)  # 0: as x has

    def merge(self, x, batch, *sizes):
        return super().merge(x, 0, *sizes)

    def finish(self):
        """Opens rows and caches; scores are f32 in any precision."""
        self.open_caches()
        for value in self.inputs:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
        scores = self.outputs[-1]
        self.outputs[-1] = helper.make_tensor_value_info("scores", TensorProto.FLOAT, None)
        self.op("Cast", scores.name, name="scores", to=TensorProto.FLOAT)


def place_weights(net, kind):
    """Behind each other in weights_KIND.bin."""
    offset = 0
    for tensor, weight in zip(net.g.initializers, net.weights):
        tensor.data_type, tensor.data_location = TYPES[kind], TensorProto.EXTERNAL
        length = int(np.prod(weight["shape"])) * WIDTHS[kind]
        for key, value in (("location", f"weights_{kind}.bin"), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        offset += length


def narrow(net):
    """All f32 of the graph in bf16, but for what Conv takes and gives: it knows no bf16 before opset 22."""
    nodes = []
    for node in net.g.nodes:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.BFLOAT16
            if attribute.name == "value" and attribute.t.data_type == TensorProto.FLOAT:
                attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(ml_dtypes.bfloat16)))
        if node.op_type != "Conv":
            nodes.append(node)
            continue
        wide = helper.make_node("Conv", [f"{name}_wide" for name in node.input], [f"{node.output[0]}_wide"])
        wide.attribute.extend(node.attribute)
        nodes += [helper.make_node("Cast", [n], [f"{n}_wide"], to=TensorProto.FLOAT) for n in node.input]
        nodes += [wide, helper.make_node("Cast", [wide.output[0]], [node.output[0]], to=TensorProto.BFLOAT16)]
    net.g.nodes = nodes
    for value in (*net.inputs, *net.outputs):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.BFLOAT16


def inputs_of(net):
    """Integers are below a limit, or all 1."""
    kinds = {np.dtype(np.int64): "i64", np.dtype(np.float32): "float"}
    return [{"name": name, "kind": kinds[value.dtype], "shape": value.shape, "limit": net.limits.get(name, 2)}
            for name, value in net.feeds.items()]


def model(folder, form, make, small=False, **facts):
    """`form` names the same computation in on_card_models.py."""
    for kind in ("f32", "bf16"):
        net = make()
        if kind == "bf16":
            narrow(net)
        place_weights(net, kind)
        if kind == "f32":
            describe(folder, group="models", form=form, small=small, weights=net.weights, inputs=inputs_of(net), **facts)
        if "steps" in facts:
            net.finish()
        graph = helper.make_graph(net.g.nodes, form, net.inputs, net.outputs, net.g.initializers)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", models.OPSET)], ir_version=8), folder / f"{kind}.onnx")


def decoders(out, name, past, steps, small, **sizes):
    """One step whose caches come and go, and a greedy search that appends to them in place."""
    facts = {"small": small, "heads": sizes.get("heads", 12), "layers": sizes.get("layers", 12), "past": past}
    step = lambda net: models.gpt2(1, past, net=net, **sizes)
    yield f"{name}_step", lambda: model(out / f"{name}_step", "gpt2_step", lambda: step(CardNet), **facts)
    states = ",".join(":".join(pair) for pair in step(StepNet).caches)
    yield f"{name}_greedy", lambda: model(out / f"{name}_greedy", "gpt2_greedy", lambda: step(StepNet), **facts, steps=steps,
                                          flags=["--generate=greedy", "--bos=1", f"--max-length={steps}", f"--state={states}"])


def whole_models(out):
    tiny = {"layers": 1, "width": 64, "heads": 2}
    for name, form, layers, heads, small, make in (
            ("bert_base_b1", "bert", 12, 12, False, lambda: models.bert(1, 128, net=CardNet)),
            ("bert_base_b32", "bert", 12, 12, False, lambda: models.bert(32, 128, net=CardNet)),
            ("vit_b16_b32", "vit", 12, 12, False, lambda: models.vit(32, net=CardNet)),
            ("bert_small", "bert", 1, 2, True, lambda: models.bert(2, 8, vocabulary=40, net=CardNet, **tiny)),
            ("vit_small", "vit", 1, 2, True, lambda: models.vit(1, net=CardNet, **tiny))):
        yield name, functools.partial(model, out / name, form, make, small=small, layers=layers, heads=heads)
    yield from decoders(out, "gpt2", 512, 64, False)
    yield from decoders(out, "gpt2_small", 6, 4, True, vocabulary=40, **tiny)


def write(out, only):
    """The cases whose names match `only`, below `out`; the names in their order."""
    names = []
    for name, make in (*attentions(out), *whole_models(out)):
        if re.search(only, name):
            make()
            names.append(name)
    (out / "order.json").parent.mkdir(parents=True, exist_ok=True)
    (out / "order.json").write_text(json.dumps(names))
    return names
