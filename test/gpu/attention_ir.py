"""Attentions in IR for check_kernels.py: what no ONNX operator says in a node, against the float64 of attention_reference."""
import dataclasses
import pathlib
import re
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "passes" / "graph" / "Inputs"))
from attention_reference import Attention, Operand, Term  # noqa: E402

CAUSAL = Term("#attn.causal<0>")
LSE = ("#attn.extra<lse>", "bhi", np.float32, None)


def magnitude(attention):
    """The sum of the absolute terms of each element of the result."""
    weights = ("#attn.extra<final_weights>", "bhij", np.float32, None)
    weights = dataclasses.replace(attention, extras=[weights]).evaluate()[1]
    terms = abs(weights[..., None, None]) * np.nan_to_num(abs(attention.value.full(attention.sizes)), posinf=0)
    return attention.arrange(terms.sum((3, 4)), "bhie", attention.result)


def to_bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).astype(np.uint32).view(np.float32).astype(float)


def narrow_softmax(maker):
    """Scores and weights rounded to bf16. Scores are exact before; weights may round to either side."""
    one = maker.attention(scale=2.0 ** -6)
    for operand in (one.query, one.key):
        operand.array[:] = maker.rng.integers(-9, 10, operand.array.shape)
    scores = (one.query.full(one.sizes) * one.key.full(one.sizes)).sum((4, 5)) / 64
    rounded = to_bf16(scores)
    assert (rounded != scores).any()
    e = np.exp(rounded - rounded.max(-1, keepdims=True))
    w = to_bf16(e / e.sum(-1, keepdims=True))
    values = np.broadcast_to(one.value.full(one.sizes), (*w.shape, 1, one.sizes["e"]))
    total = lambda v: one.arrange((w[..., None, None] * v).sum((3, 4)), "bhie", one.result)
    text, inputs, weights, _ = entry(one)
    return text.replace("maps [", "softmax_type bf16 maps [", 1), inputs, weights, (total(values), 2.0 ** -8 * total(abs(values)))


def entry(attention, dynamic=False):
    """What check_kernels takes: text, inputs, no weights, outputs."""
    text = attention.text(dynamic=dynamic)
    head, body = text.split("{\n", 1)
    arguments, results = re.fullmatch(r"func.func @main\((.*)\) -> \((.*)\) ", head).groups()
    named = re.sub(r"%(\d+): ([^ ,]*>)", r'%\1: \2 {attn.name = "x\1"}', arguments)
    types = results.split(", ")
    named_results = ", ".join(f'{t} {{attn.name = "y{n}"}}' for n, t in enumerate(types))
    text = f"func.func @main({named}) -> ({named_results}) attributes {{attn.entry}} {{\n{body}"
    outputs = {f"y{n}": value for n, value in enumerate(attention.evaluate())}
    return text, {f"x{n}": array for n, array in enumerate(attention.inputs())}, {}, outputs


class Maker:
    """Attentions of (b, h, heads of keys, i, j, d, e) with random operands."""

    def __init__(self, rng, size, near=lambda x: x):
        b, h, g, i, j, d, e = size
        self.sizes, self.groups, self.rng, self.near = dict(b=b, h=h, i=i, j=j, d=d, e=e), h // g, rng, near

    def normal(self, layout, divisors=None):
        shape = [1 if c == "0" else -(-self.sizes[c] // (divisors or {}).get(c, 1)) for c in layout]
        x = self.rng.standard_normal(shape).astype(np.float32)
        return Operand(self.near(x).astype(np.float32), layout, divisors or {})

    def attention(self, **other):
        group = {"h": self.groups}
        made = dict(sizes=self.sizes, query=self.normal("bihd"), key=self.normal("bhjd", group),
                    value=self.normal("bjhe", group), result="bihe", rows="zero", scale=self.sizes["d"] ** -0.5)
        return Attention(**(made | other))

    def lists(self, rows, columns, entries, layout="i", dtype=np.int64, empty=None):
        """Ragged lists: blocks in no order, repeated ones, padding and numbers beyond the last; row `empty` lists none."""
        blocks = -(-self.sizes["j"] // columns)
        shape = [-(-self.sizes[c] // rows) if c == "i" else self.sizes[c] for c in layout] + [entries]
        x = self.rng.integers(0, blocks, shape)
        far = [-1, -100, 2**31 - 1] + ([2**62, -2**63] if dtype == np.int64 else [])
        x = np.where(self.rng.random(shape) < 0.3, self.rng.choice(far, shape), x)
        if empty is not None:
            x[..., empty, :] = -1
        return Term(f"#attn.blocks<{rows}, {columns}>", Operand(x.astype(dtype), layout, {"i": rows}))

    def causal(self, offset):
        return Term(f"#attn.causal<{offset}>")

    def lengths(self, lengths):
        return Term("#attn.lengths", Operand(np.array(lengths, np.int64), "b"))

    def dense(self, empty):
        """A table in which row `empty` has no key."""
        x = self.rng.random((self.sizes["i"], self.sizes["j"])) < 0.5
        x[empty] = False
        return Term("#attn.dense", Operand(x.astype(np.int8), "ij"))

    def hide(self, attention, takesPart=False):
        """NaN and infinities in the values, and the keys, that no query sees; unless some row sees none and takes all."""
        visible = attention.visible()
        if takesPart:
            visible = visible | ~visible.any(-1, keepdims=True)
        unseen = ~visible.any(2).reshape(self.sizes["b"], -1, self.groups, self.sizes["j"]).any(2)
        attention.value.array[unseen.transpose(0, 2, 1)] = np.nan
        attention.value.array[:, ::2][unseen.transpose(0, 2, 1)[:, ::2]] = np.inf
        if attention.key:
            attention.key.array[unseen] = np.nan
        return attention
