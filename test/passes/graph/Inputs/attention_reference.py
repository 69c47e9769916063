"""attn.attention in NumPy and float64, and as MLIR text: what decomposition and interpreter are tested against."""
from dataclasses import dataclass, field

import numpy as np

DIMS = "bhijde"
MLIR = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.float16): "f16",
        np.dtype(np.int64): "i64", np.dtype(np.int32): "i32", np.dtype(np.int8): "i8"}
# name: (MLIR body of one value %x giving %y, NumPy)
ACTIVATIONS = {
    "tanh": ("%y = math.tanh %x : T", np.tanh),
    "exp": ("%y = math.exp %x : T", np.exp),
    "relu": ("%z = arith.constant 0.0 : T\n%y = arith.maximumf %x, %z : T", lambda x: np.maximum(x, 0)),
    "": (None, lambda x: x),
}
INF = "inf"


def tensor(array, dynamic=False):
    return "tensor<" + "".join(("?" if dynamic else str(n)) + "x" for n in array.shape) + MLIR[array.dtype] + ">"


def mixed(part, weights, values):
    """The sum over j of weights (b, h, i, j) times values (b, h, j, e): those outside of `part` reach nothing, whatever they are."""
    isFinite = np.isfinite(values)
    total = np.matmul(weights, np.where(isFinite, values, 0))
    odd = np.flatnonzero(~isFinite.all((0, 1, 3)))
    terms = np.where(isFinite, 0, values)[:, :, None, odd] * weights[..., odd, None]
    return total + np.where(part[..., odd, None] & ~isFinite[:, :, None, odd], terms, 0).sum(3)


@dataclass
class Operand:
    """`layout`: letters of DIMS and '0'; `divisors`: of h or i."""
    array: np.ndarray
    layout: str
    divisors: dict = field(default_factory=dict)

    def map(self):
        one = lambda c: f"{c} floordiv {self.divisors[c]}" if self.divisors.get(c, 1) > 1 else c
        return f"affine_map<({', '.join(DIMS)}) -> ({', '.join(one(c) for c in self.layout)})>"

    def full(self, sizes):
        """As a float64 (int64) array over b, h, i, j, d, e, with size 1 where it does not vary."""
        x = self.array.astype(np.int64 if self.array.dtype.kind == "i" else np.float64)
        for axis, c in enumerate(self.layout):
            if self.divisors.get(c, 1) > 1:
                x = np.take(x, np.arange(sizes[c]) // self.divisors[c], axis)
        extra = x.shape[len(self.layout):]
        x = x.reshape([n for n, c in zip(x.shape, self.layout) if c != "0"] + list(extra))
        letters = [c for c in self.layout if c != "0"]
        order = sorted(range(len(letters)), key=lambda n: DIMS.index(letters[n]))
        x = x.transpose(order + list(range(len(letters), x.ndim)))
        shape = [sizes[c] if c in letters else 1 for c in DIMS] + list(extra)
        return x.reshape(shape)


@dataclass
class Term:
    text: str
    operand: Operand = None


@dataclass
class Attention:
    sizes: dict
    query: Operand
    value: Operand
    result: str
    key: Operand = None
    alignment: Operand = None
    captures: list = field(default_factory=list)
    mask: list = field(default_factory=list)  # of Term
    kind: str = "dot"
    normalizer: str = "softmax"
    rows: str = "nan"
    activation: str = ""
    scale: float = 0.5
    exponential: bool = False  # the score region is exp (for normalizer sum)
    weight: float = 1.0  # factor in the weight region
    masked: float = None  # constant that the masked region adds
    extras: list = field(default_factory=list)  # of (text, layout, dtype, k or None)

    def operands(self):
        every = [self.query, self.key, self.value, self.alignment] + self.captures + [t.operand for t in self.mask]
        return [x for x in every if x is not None]

    def inputs(self):
        return [x.array for x in self.operands()]

    # The text

    def text(self, returns=None, dynamic=False):
        """A module whose @main returns the results with numbers `returns` (default: all)."""
        operands = self.operands()
        dtype = self.query.array.dtype
        compute = "f64" if dtype == np.float64 else "f32"
        types = [tensor(x.array, dynamic) for x in operands]
        shape = lambda layout: [1 if c == "0" else self.sizes[c] for c in layout]
        outs = [tensor(np.zeros(shape(self.result), dtype), dynamic)]
        maps = [x.map() for x in operands] + [Operand(None, self.result).map()]
        for _, layout, kind, k in self.extras:
            t = tensor(np.zeros(shape(layout), kind), dynamic)
            outs.append(t if k is None else t[:-4 if kind == np.float32 else -4] + f"{k}x" + t[-4:])
            maps.append(Operand(None, layout).map())
        names = [f"%{n}" for n in range(len(operands))]
        main = 2 + (self.key is not None) + (self.alignment is not None)
        captured = main + len(self.captures)
        group = lambda word, a, b: f"{word}({', '.join(names[a:b])} : {', '.join(types[a:b])})\n" if b > a else ""
        extras = f"extras [{', '.join(e[0] for e in self.extras)}] : {', '.join(outs[1:])}\n" if self.extras else ""
        arguments = [f"%x: {compute}"] + [f"%c{n}: {MLIR[c.array.dtype]}" for n, c in enumerate(self.captures)]
        arguments = ", ".join(arguments)
        body = f"%k = arith.constant {self.scale:e} : {compute}\n%y0 = arith.mulf %x, %k : {compute}\n"
        last = "%y0"
        for n, c in enumerate(self.captures):
            if c.array.dtype == np.float16:
                body += f"%d{n} = arith.extf %c{n} : f16 to {compute}\n"
            body += f"%y{n + 1} = arith.addf {last}, {'%d' if c.array.dtype == np.float16 else '%c'}{n} : {compute}\n"
            last = f"%y{n + 1}"
        if self.exponential:
            body += f"%e = math.exp {last} : {compute}\n"
            last = "%e"
        regions = f"score {{\n^bb0({arguments}):\n{body}attn.yield {last} : {compute}\n}}"
        if self.weight != 1.0:
            regions += (f" weight {{\n^bb0({arguments}):\n%k = arith.constant {self.weight:e} : {compute}\n"
                        f"%y = arith.mulf %x, %k : {compute}\nattn.yield %y : {compute}\n}}")
        if self.activation:
            code = ACTIVATIONS[self.activation][0].replace("T", compute)
            regions += f" activation {{\n^bb0(%x: {compute}):\n{code}\nattn.yield %y : {compute}\n}}"
        if self.masked is not None:
            regions += (f" masked {{\n^bb0({arguments}):\n%k = arith.constant {self.masked:e} : {compute}\n"
                        f"%y = arith.addf %x, %k : {compute}\nattn.yield %y : {compute}\n}}")
        terms = f"mask [{', '.join(t.text for t in self.mask)}]" if self.mask else ""
        returned = range(len(outs)) if returns is None else returns
        returned_types = ", ".join(outs[n] for n in returned)
        signature = ", ".join(f"{n}: {t}" for n, t in zip(names, types))
        return f"""func.func @main({signature}) -> ({returned_types}) {{
%o:{len(outs)} = attn.attention kind {self.kind} normalizer {self.normalizer} masked_rows {self.rows} {terms}
maps [{', '.join(maps)}]
ins({', '.join(names[:main])} : {', '.join(types[:main])})
{group('captures', main, captured)}{group('mask_operands', captured, len(names))}-> {outs[0]} {extras}
{regions}
return {', '.join(f'%o#{n}' for n in returned)} : {returned_types}
}}
"""

    # The values

    def visible(self):
        n = self.sizes
        i, j = np.arange(n["i"]).reshape(1, 1, -1, 1), np.arange(n["j"]).reshape(1, 1, 1, -1)
        shown = near = np.ones((n["b"], n["h"], n["i"], n["j"]), bool)
        prefix = np.zeros_like(near)
        for term in self.mask:
            name, _, rest = term.text[len("#attn."):].rstrip(">").partition("<")
            words = [w.strip() for w in rest.split(",")]
            x = term.operand.full(n) if term.operand else None
            at = x[..., 0, 0] if x is not None and x.ndim == 6 else None
            if name == "causal":
                near = near & (j <= i + (int(words[0]) if at is None else at))
            elif name == "window":
                base = words[2] if len(words) > 2 else "diagonal"
                centre = {"diagonal": i, "offset": i + (at if base == "offset" else 0), "centre": at}[base]
                if words[0] != INF:
                    near = near & (j >= centre - int(words[0]))
                if words[1] != INF:
                    near = near & (j <= centre + int(words[1]))
            elif name == "chunks":
                size, own = int(words[0]), i // int(words[0])
                chunk = (j - (0 if at is None else at)) // size
                if words[1] != INF:
                    shown = shown & (chunk >= own - int(words[1]))
                if words[2] != INF:
                    shown = shown & (chunk <= own + int(words[2]))
            elif name == "prefix":
                prefix = prefix | (j < (int(words[0]) if at is None else at))
            elif name == "lengths":
                shown = shown & (j < at)
            elif name == "dense":
                shown = shown & (at != 0)
            else:
                blocks = x.reshape(x.shape[:4] + x.shape[6:])[:, :, :, 0]  # b h i list
                listed = (blocks[..., None, :] == (np.arange(n["j"]) // int(words[1]))[:, None]).any(-1)
                shown = shown & listed
        return shown & (near | prefix)

    def evaluate(self):
        """All results, as float64 or int64 arrays in their layouts."""
        n = self.sizes
        shape = tuple(n[c] for c in "bhij")
        q, v = self.query.full(n), self.value.full(n)
        if self.kind == "given":
            raw = q[..., 0, 0]
        elif self.kind == "dot":
            raw = np.einsum("bhijd,bhijd->bhij", q[..., 0], self.key.full(n)[..., 0])
        elif self.kind == "distance":
            raw = ((q - self.key.full(n)) ** 2).sum((4, 5))
        else:
            phi = ACTIVATIONS[self.activation][1]
            raw = (self.alignment.full(n) * phi(q + self.key.full(n))).sum((4, 5))
        raw = np.broadcast_to(raw, shape)
        scores = raw * self.scale
        for capture in self.captures:
            scores = scores + capture.full(n)[..., 0, 0]
        if self.exponential:
            scores = np.exp(scores)
        visible = self.visible()
        hidden = -np.inf if self.normalizer == "softmax" else 0.0
        masked = taken = np.where(visible, scores, hidden)
        empty = (masked.max(-1, keepdims=True) == -np.inf if self.normalizer == "softmax"
                 else masked.sum(-1, keepdims=True) == 0)
        if self.rows == "finite" and self.mask:
            alternative = scores + (self.masked or 0)
            taken = np.where(empty & ~visible, alternative, masked)
            masked = np.where(visible, scores, alternative)
        with np.errstate(all="ignore"):
            if self.normalizer == "none":
                weights = taken
            elif self.normalizer == "sum":
                weights = taken / taken.sum(-1, keepdims=True)
            else:
                e = np.exp(taken - taken.max(-1, keepdims=True))
                weights = e / e.sum(-1, keepdims=True)
            top = taken.max(-1)
            lse = np.where(np.isneginf(top), -np.inf, top + np.log(np.exp(taken - top[..., None]).sum(-1)))
        if self.normalizer != "none":
            if self.rows == "zero":
                weights = np.where(empty, 0, weights)
            if self.rows == "uniform":
                weights = np.where(empty, 1 / n["j"], weights)
        part = visible | (weights != 0)
        final = np.where(part, weights * self.weight, 0)
        with np.errstate(invalid="ignore"):
            out = mixed(part, final, v[:, :, 0, :, 0])
        results = [self.arrange(out, "bhie", self.result)]
        sources = dict(raw_scores=raw, scores=scores, masked_scores=masked, weights=weights, final_weights=final)
        for text, layout, _, k in self.extras:
            source, _, how = text[len("#attn.extra<"):].rstrip(">").partition(",")
            how = how.strip()
            if source == "lse":
                results.append(self.arrange(lse, "bhi", layout))
                continue
            x = sources[source]
            reduced = tuple(axis for axis, c in enumerate("bhij") if c not in layout)
            left = "".join(c for c in "bhij" if c in layout)
            if how in ("sum", "mean", "max"):
                x = getattr(x, how)(reduced)
            elif how == "entropy":
                with np.errstate(all="ignore"):
                    x = -np.where(x == 0, 0, x * np.log(x)).sum(-1)
            elif how == "argmax":
                x = x.argmax(-1)
            elif how:
                order = np.argsort(-x, -1, kind="stable")[..., :k]
                x = order if how == "topk_indices" else np.take_along_axis(x, order, -1)
            results.append(self.arrange(x, left, layout))
        return results

    def arrange(self, x, have, layout):
        letters = [c for c in layout if c != "0"]
        rest = x.ndim - len(have)
        drop = [c for c in have if c not in letters]  # of size 1
        x = x.squeeze(tuple(have.index(c) for c in drop)) if drop else x
        have = [c for c in have if c in letters]
        x = x.transpose([have.index(c) for c in letters] + list(range(len(have), len(have) + rest)))
        shape = [1 if c == "0" else self.sizes[c] for c in layout]
        return x.reshape(shape + list(x.shape[len(letters):]))


def cases(rng):
    """(name, Attention, dynamic)"""
    sizes = dict(b=2, h=4, i=5, j=7, d=3, e=6)

    def operand(layout, dtype=np.float32, divisors=None, **other):
        divisors = divisors or {}
        n = dict(sizes, **other)
        shape = [1 if c == "0" else -(-n[c] // divisors.get(c, 1)) for c in layout]
        return Operand(rng.standard_normal(shape).astype(dtype), layout, divisors)

    def dot(**other):
        base = dict(sizes=sizes, query=operand("bihd"), key=operand("bhjd", divisors={"h": 2}),
                    value=operand("bjhe", divisors={"h": 4}), result="bihe")
        return Attention(**dict(base, **other))

    def integers(values, layout, dtype=np.int64, divisors=None):
        return Operand(np.array(values, dtype), layout, divisors or {})

    lse = ("#attn.extra<lse>", "bhi", np.float32, None)
    yield "causal zero", dot(mask=[Term("#attn.causal<0>")], rows="zero"), True
    yield "causal, negative offset", dot(mask=[Term("#attn.causal<-2>")], rows="zero", extras=[lse]), False
    for rows in ("nan", "uniform", "finite"):
        yield f"causal {rows}", dot(mask=[Term("#attn.causal<-2>")], rows=rows, weight=2.0), True
    yield "window before i", dot(mask=[Term("#attn.window<3, -1>")], rows="zero"), True
    yield "window inf", dot(mask=[Term("#attn.window<inf, 1>"), Term("#attn.window<2, inf>")], rows="zero"), False
    yield "offset operand", dot(mask=[Term("#attn.causal<?>", integers([-3, 2], "b"))], rows="uniform"), True
    yield "window offset", dot(mask=[Term("#attn.window<1, 2, offset>", integers([-4, 3], "b", np.int32))], rows="zero"), True
    centre = Operand(np.array([[0.5, 2.25, 9.0, np.nan, -3.0], [3, 3.5, 4, 6, 1e9]], np.float32), "bi")
    yield "real centre", dot(mask=[Term("#attn.window<1, 1, centre>", centre)], rows="zero"), True
    yield "start", dot(mask=[Term("#attn.window<0, inf, centre>", integers([0, 4], "b"))], rows="nan"), False
    yield "chunks", dot(mask=[Term("#attn.chunks<2, 0, 0>")], rows="zero"), True
    yield "chunks before", dot(mask=[Term("#attn.chunks<3, inf, 0>"), Term("#attn.chunks<2, 1, inf>")], rows="zero"), False
    yield "no chunk", dot(mask=[Term("#attn.chunks<2, inf, -1>")], rows="uniform"), True
    yield "chunks offset", dot(mask=[Term("#attn.chunks<2, 0, 1, offset>", integers([-4, 2], "b", np.int32))], rows="zero"), True
    yield "chunks and a prefix", dot(mask=[Term("#attn.causal<0>"), Term("#attn.chunks<2, 1, 0>"), Term("#attn.prefix<3>")],
                                     rows="zero"), False
    yield "prefix", dot(mask=[Term("#attn.causal<0>"), Term("#attn.prefix<3>"), Term("#attn.lengths", integers([2, 9], "b"))],
                        rows="zero"), True
    lengths = integers(rng.integers(-2, 9, (2, 4)), "bh")
    yield "lengths", dot(mask=[Term("#attn.lengths", lengths)], rows="zero", extras=[lse]), True
    huge = integers([2**63 - 1, -2**63], "b")
    yield "huge operands", dot(mask=[Term("#attn.causal<?>", Operand(np.clip(huge.array, -2**40, 2**40), "b"))], rows="zero"), False
    dense = Operand((rng.random((2, 5, 7)) > 0.6).astype(np.int8), "bij")
    yield "dense", dot(mask=[Term("#attn.dense", dense), Term("#attn.causal<1>")], rows="uniform"), True
    blocks = integers([[0, -1, 0], [2, 0, 2], [-1, -1, -1]], "i", divisors={"i": 2})
    yield "blocks", dot(mask=[Term("#attn.blocks<2, 3>", blocks)], rows="zero"), True
    yield "finite", dot(mask=[Term("#attn.dense", Operand((dense.array * 0).astype(np.int8), "bij")), Term("#attn.causal<0>")],
                        rows="finite", masked=-5.0, captures=[operand("bj")],
                        extras=[("#attn.extra<masked_scores>", "bhij", np.float32, None)]), True
    inf = operand("bj")
    inf.array[:, 2:5] = -np.inf
    inf.array[0] = -np.inf
    for rows in ("zero", "nan", "uniform", "finite"):
        yield f"region -inf {rows}", dot(captures=[inf], rows=rows, mask=[Term("#attn.window<2, 2>")], masked=-1.0 if rows == "finite" else None), True
    nan = operand("bhje")
    nan.array[:, :, 3:] = np.nan
    yield "NaN behind the mask", dot(value=nan, mask=[Term("#attn.lengths", integers([3, 2], "b"))], rows="zero"), True
    for activation in ACTIVATIONS:
        yield f"additive {activation}", dot(kind="additive", activation=activation, key=operand("bhjd"),
                                            alignment=operand("d"), rows="nan"), True
    yield "additive by head", dot(kind="additive", activation="tanh", key=operand("bjd"), alignment=operand("hd"),
                                  mask=[Term("#attn.lengths", integers([3, 0], "b"))], rows="uniform"), True
    yield "additive, no query", dot(kind="additive", activation="tanh", query=operand("d"), key=operand("bjd"),
                                    alignment=operand("hd"), sizes=dict(sizes, i=1), rows="nan"), False
    yield "distance", dot(kind="distance", scale=-0.5, rows="nan"), True
    yield "distance for all heads", dot(kind="distance", scale=-0.5, query=operand("bid"), key=operand("bjd"), rows="zero",
                                   mask=[Term("#attn.lengths", integers([3, 0], "b"))]), True
    yield "given", dot(kind="given", query=operand("bhij"), key=None, rows="nan"), True
    yield "given by key", dot(kind="given", query=operand("bj"), key=None, mask=[Term("#attn.causal<0>")], rows="zero"), False
    for rows in ("nan", "zero", "uniform", "finite"):
        yield f"sum {rows}", dot(normalizer="sum", exponential=True, rows=rows, mask=[Term("#attn.causal<-1>")]), True
    yield "gates", dot(normalizer="none", exponential=True, rows="zero", mask=[Term("#attn.causal<-1>")], weight=0.5), True
    every = [lse] + [(f"#attn.extra<{s}>", "bihj", np.float32, None) for s in
                     ("raw_scores", "scores", "masked_scores", "weights", "final_weights")]
    yield "scores and weights", dot(mask=[Term("#attn.causal<0>")], rows="zero", weight=2.0, extras=every), True
    reductions = [("#attn.extra<weights, mean>", "bij", np.float32, None), ("#attn.extra<weights, sum>", "bhj", np.float32, None),
                  ("#attn.extra<raw_scores, max>", "j", np.float32, None),
                  ("#attn.extra<weights, argmax>", "ibh", np.int64, None),
                  ("#attn.extra<weights, entropy>", "bhi", np.float32, None),
                  ("#attn.extra<weights, topk_values>", "bhi", np.float32, 3),
                  ("#attn.extra<weights, topk_indices>", "bih", np.int64, 3)]
    yield "reductions", dot(mask=[Term("#attn.causal<1>")], rows="zero", extras=reductions), True
    yield "f64", dot(query=operand("bihd", np.float64), key=operand("bhjd", np.float64), value=operand("bjhe", np.float64),
                     mask=[Term("#attn.causal<0>")], rows="zero"), True
