"""Attentions in IR for check_kernels.py: what no ONNX operator says in a node, against the float64 of attention_reference."""
import dataclasses
import pathlib
import re
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "passes" / "graph" / "Inputs"))
from attention_reference import Attention, Operand, Term, mixed  # noqa: E402

CAUSAL = Term("#attn.causal<0>")
LSE = ("#attn.extra<lse>", "bhi", np.float32, None)


def magnitude(attention):
    """The sum of the absolute terms of each element of the result."""
    weights = ("#attn.extra<final_weights>", "bhij", np.float32, None)
    weights = dataclasses.replace(attention, extras=[weights]).evaluate()[1]
    values = np.nan_to_num(abs(attention.value.full(attention.sizes)), posinf=0)[:, :, 0, :, 0]
    return attention.arrange(np.matmul(abs(weights), values), "bhie", attention.result)


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
    values = one.value.full(one.sizes)[:, :, 0, :, 0]
    total = lambda v: one.arrange(np.matmul(w, v), "bhie", one.result)
    text, inputs, weights, _ = entry(one)
    return text.replace("maps [", "softmax_type bf16 maps [", 1), inputs, weights, (total(values), 2.0 ** -8 * total(abs(values)))


def entry(attention, dynamic=False):
    """What check_kernels takes: text, inputs, no weights, outputs."""
    half = attention.query.array.dtype
    if half == np.float16:  # what is kept of tiles and rows, too
        attention = dataclasses.replace(attention, extras=[(e[0], e[1], half if "," not in e[0] else e[2], e[3]) for e in attention.extras])
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

    def __init__(self, rng, size, near=lambda x: x, dtype=np.float32):
        b, h, g, i, j, d, e = size
        self.sizes, self.groups, self.rng, self.near, self.dtype = dict(b=b, h=h, i=i, j=j, d=d, e=e), h // g, rng, near, dtype

    def normal(self, layout, divisors=None):
        shape = [1 if c == "0" else -(-self.sizes[c] // (divisors or {}).get(c, 1)) for c in layout]
        x = self.rng.standard_normal(shape).astype(np.float32)
        return Operand(self.near(x).astype(self.dtype), layout, divisors or {})

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


CASES = []  # what makes attentions of a Maker and more numbers, its family, sizes: b, h, heads of keys, i, j, d, e...


def case(family, *sizes):
    def register(make):
        CASES.append((make, family, sizes))
        return make
    return register


# Rows and columns of the blocks, entries of a list, dimensions of the operand: windows of many tiles and of one, several
# lists a block of queries, blocks across tiles.
@case("ir", (1, 2, 1, 70, 130, 16, 16, 16, 16, 4, "i"), (2, 2, 2, 40, 100, 32, 24, 1, 1, 9, "bi"), (1, 2, 1, 65, 257, 64, 64, 64, 64, 2, "hi"),
      (1, 2, 1, 1, 700, 16, 16, 1, 32, 5, "i"), (2, 1, 1, 5, 1100, 64, 64, 3, 7, 40, "bi"), (1, 1, 1, 33, 3000, 8, 8, 20, 5, 3, "i"),
      (1, 1, 1, 20, 90, 256, 256, 16, 48, 1, "i"), (1, 2, 1, 100, 100, 128, 128, 1, 1, 3, "i"))
def blocks(maker, rows, columns, entries, layout):
    """Lists of blocks; a NaN that no query sees reaches nothing. Beside a limit, and two lists."""
    one = maker.hide(maker.attention(mask=[maker.lists(rows, columns, entries, layout, empty=0)]))
    both = maker.hide(maker.attention(rows="nan", mask=[maker.lists(rows, columns, entries, layout, np.int32), CAUSAL,
                                                        maker.lists(3, 11, 6)]))
    return [one, both]


@case("ir", (1, 2, 1, 70, 130, 16, 16), (2, 2, 2, 40, 100, 32, 24), (1, 2, 1, 1, 700, 16, 16))
@case("ir_warpgroups", (2, 2, 1, 260, 300, 64, 64), (1, 1, 1, 257, 130, 128, 100), (1, 1, 1, 256, 129, 256, 136))
def chunks(maker):
    """The query's own chunk with the one before it, and all up to it, beside lengths."""
    lengths = maker.lengths([maker.sizes["j"] // 2] * maker.sizes["b"])
    return [maker.hide(maker.attention(mask=[Term("#attn.chunks<24, 1, 0>")])),
            maker.hide(maker.attention(rows="nan", mask=[Term("#attn.chunks<16, inf, 0>"), lengths]))]


@case("ir_warpgroups", (2, 2, 1, 260, 300, 64, 64), (1, 1, 1, 257, 258, 128, 128), (1, 2, 2, 256, 1, 72, 40), (1, 2, 1, 256, 128, 24, 104),
      (1, 1, 1, 256, 129, 68, 64), (1, 1, 1, 256, 129, 256, 192))
def plain(maker):
    """Rows of 16 bits that are copied as they lie, and such as are packed first; with and without a mask."""
    return [maker.attention(), maker.hide(maker.attention(mask=[CAUSAL])), maker.attention(mask=[CAUSAL])]


@case("ir", (1, 6, 3, 40, 70, 16, 16), (2, 6, 3, 3, 300, 16, 24))
@case("ir_warpgroups", (1, 6, 3, 260, 130, 72, 40), (2, 6, 3, 256, 129, 64, 64))
def unequal_groups(maker):
    """Two heads share keys, and three share values."""
    return [maker.attention(value=maker.normal("bjhe", {"h": 3})), maker.attention(value=maker.normal("bjhe", {"h": 6}))]


@case("ir_warpgroups", (2, 2, 1, 390, 300, 64, 64), (1, 2, 1, 300, 260, 72, 40), (1, 2, 1, 260, 258, 128, 128),
      (1, 2, 1, 260, 129, 256, 192))
def rounds(maker):
    """More blocks of queries than processors, where those are few: a block of threads has several. Some see no key."""
    lengths = maker.lengths([0] + [maker.sizes["j"] // 2] * (maker.sizes["b"] - 1))
    return [maker.attention(), maker.hide(maker.attention(rows="zero", mask=[maker.causal(-130)])), maker.attention(rows="zero", mask=[lengths])]


@case("ir_warpgroups", (2, 66, 2, 65, 33, 8, 16), (1, 132, 1, 127, 16, 16, 8), (1, 66, 66, 129, 31, 64, 64), (1, 1, 1, 197, 197, 256, 256),
      (1, 132, 1, 64, 33, 8, 8), (1, 65, 1, 129, 33, 8, 8))
def few_queries(maker):
    """One block of them or two: by warpgroups from 65 on, where nothing need be packed and blocks are
    as many as processors or no other kernel has matrix units."""
    lengths = maker.lengths([0] + [maker.sizes["j"] // 2] * (maker.sizes["b"] - 1))
    return [maker.attention(), maker.hide(maker.attention(rows="zero", mask=[maker.causal(-30)])), maker.attention(rows="zero", mask=[lengths])]


@case("ir", (2, 2, 1, 40, 70, 16, 16), (1, 2, 2, 70, 33, 64, 64), (2, 1, 1, 20, 40, 128, 128), (2, 2, 1, 3, 300, 16, 24))
@case("ir_warpgroups", (2, 2, 1, 260, 300, 64, 64), (1, 1, 1, 257, 130, 128, 100), (1, 1, 1, 256, 129, 256, 136))
def policies(maker):
    """Rows that see no key, by limits, lengths, a table and lists; with the log-sum-exp."""
    isParted = maker.sizes["i"] <= 16 and maker.sizes["j"] >= 256
    isTogether = isParted or maker.sizes["i"] >= 256  # hidden keys of policy finite take part at once, wherever they are
    made = []
    for rows in ("zero", "nan", "uniform", "finite"):
        masked = (-40.0 if isTogether else -3.0) if rows == "finite" else None
        for mask in ([maker.causal(-2)], [maker.lengths([0] + [maker.sizes["j"] // 2] * (maker.sizes["b"] - 1))], [maker.dense(1), maker.causal(1)],
                     [maker.lists(4, 8, 3, empty=0), maker.causal(-1)]):
            made.append(maker.attention(rows=rows, mask=mask, masked=masked, extras=[LSE]))
    return [one if one.rows == "uniform" or isTogether else maker.hide(one, one.rows == "finite") for one in made]


@case("ir", (2, 2, 1, 40, 70, 16, 16), (1, 2, 2, 70, 33, 64, 64), (1, 1, 1, 20, 40, 128, 128), (2, 2, 1, 3, 300, 16, 24))
def weights(maker):
    """The weight region and a softmax in bf16, which take two sweeps, and other normalisers than the softmax."""
    made = [maker.attention(weight=0.5), maker.attention(normalizer="none"), maker.attention(normalizer="sum", exponential=True, rows="nan"),
            maker.attention(normalizer="none", mask=[maker.dense(0)], weight=3.0),
            maker.attention(weight=2.0, rows="finite", masked=-3.0, mask=[maker.causal(-2)]),
            maker.attention(weight=2.0, rows="uniform", mask=[maker.lists(4, 8, 3, empty=0), maker.lengths([0] + [9] * (maker.sizes["b"] - 1))])]
    made += [maker.attention(weight=2.0, rows=rows, mask=[maker.causal(-2)], extras=[LSE]) for rows in ("zero", "nan")]
    made += [maker.attention(normalizer="sum", exponential=True, rows=rows, mask=[mask])
             for rows, mask in (("zero", maker.lengths([0] * maker.sizes["b"])), ("uniform", maker.causal(-1)), ("zero", maker.lists(3, 8, 3, empty=0)))]
    return made + [narrow_softmax(maker)]


@case("ir", (2, 2, 1, 40, 70, 1, 16), (1, 2, 2, 70, 33, 1, 64), (1, 1, 1, 20, 40, 1, 256), (2, 2, 1, 3, 300, 1, 24), (1, 2, 1, 1, 5, 1, 6))
def given(maker):
    """Scores from elsewhere, by query and key, the other way around, and the same for all heads and queries."""
    plain = dict(kind="given", key=None, scale=1.0)
    made = [maker.attention(query=maker.normal("bhij"), **plain), maker.attention(query=maker.normal("jbih"), mask=[maker.causal(-1)], **plain),
            maker.attention(query=maker.normal("bj"), mask=[maker.lists(4, 8, 3, empty=0)], rows="nan", **plain),
            maker.attention(query=maker.normal("bhij"), weight=2.0, rows="uniform", mask=[maker.dense(0)], extras=[LSE], **plain),
            maker.attention(query=maker.normal("hij"), normalizer="none", **plain)]
    return [maker.hide(one) if one.rows != "uniform" and one.mask else one for one in made]


@case("ir", (2, 2, 1, 20, 40, 6, 16), (1, 2, 2, 33, 37, 1, 8), (2, 2, 1, 3, 300, 3, 10), (1, 2, 1, 17, 9, 65, 8))
def additive(maker):
    """Widths that are no multiple of 4, and 1, as in graph attention. Columns behind the last one would count in exp."""
    make = lambda function, layout, **other: maker.attention(kind="additive", activation=function, alignment=maker.normal(layout), **other)
    return [make("tanh", "hd"), make("exp", "d", mask=[maker.causal(1)]), make("relu", "hd", mask=[maker.dense(0)], rows="uniform", extras=[LSE])]


@case("ir", (2, 2, 1, 20, 40, 6, 16), (1, 2, 2, 33, 37, 1, 8), (1, 2, 1, 17, 9, 65, 8))
def distance(maker):
    """Gaussians of distances."""
    made = lambda **other: maker.attention(kind="distance", scale=-0.1, **other)
    return [made(), made(mask=[maker.causal(1)], extras=[LSE])]


@case("ir", (2, 2, 1, 40, 70, 16, 16), (1, 2, 2, 70, 33, 6, 10), (2, 2, 1, 3, 300, 16, 24))
@case("ir_warpgroups", (1, 2, 1, 260, 130, 64, 40), (1, 1, 1, 256, 129, 128, 128))
def captured(maker):
    """Tables in the score region, and operands in orders that no row of them is a piece of memory in."""
    turned = dict(key=maker.normal("bhdj", {"h": maker.groups}), value=maker.normal("behj", {"h": maker.groups}), result="beih")
    return [maker.attention(captures=[maker.normal("hij"), maker.normal("b0j")]),
            maker.attention(query=maker.normal("dbih"), captures=[maker.normal("bhi")], mask=[maker.causal(-1)], **turned)]


@case("ir", (2, 2, 1, 40, 70, 16, 16), (1, 2, 2, 70, 33, 64, 64), (2, 2, 1, 3, 300, 16, 24))
def stored(maker):
    """Scores and weights as results, of all keys, whatever the mask leaves out."""
    extras = {name: (f"#attn.extra<{name}>", layout, np.float32, None) for name, layout in
              (("raw_scores", "bhij"), ("scores", "hbij"), ("masked_scores", "bhij"), ("weights", "bihj"), ("final_weights", "bhij"))}
    masks = [[maker.causal(-2)], [maker.lists(4, 8, 3, empty=0)], [maker.dense(1)]]
    made = [maker.attention(rows=rows, mask=mask, weight=weight, extras=[extras["weights"], LSE, extras["final_weights"]])
            for rows, mask, weight in zip(("zero", "nan", "uniform"), masks, (1.0, 2.0, 1.0))]
    made += [maker.attention(rows="zero", mask=mask, extras=[extras[n] for n in ("raw_scores", "scores", "masked_scores")]) for mask in masks]
    made += [maker.attention(rows="finite", masked=-3.0, mask=[maker.causal(-2)], extras=[extras["weights"], extras["scores"]])]
    return made


@case("ir", (2, 2, 1, 40, 70, 16, 16), (1, 2, 2, 3, 300, 16, 24))
def reduced(maker):
    """Reductions of the weights."""
    extras = [(f"#attn.extra<weights, {how}>", layout, kind, k) for how, layout, kind, k in
              (("mean", "bij", np.float32, None), ("sum", "bhj", np.float32, None), ("entropy", "bhi", np.float32, None),
               ("argmax", "bhi", np.int64, None), ("topk_values", "bhi", np.float32, 3), ("max", "bhi", np.float32, None))]
    return [maker.attention(rows="zero", mask=[maker.causal(3)], extras=extras)]
