#!/usr/bin/env python3
"""Small attentions whose masks are written in unusual ways: mask_spellings.py ATTN_RUN FOLDER

Each is one graph with a reference in float64, and the mask that the report must name.
"""
import json
import subprocess
import sys

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

MAX = np.iinfo(np.int64).max
MIN = np.iinfo(np.int64).min
FMIN = float(np.finfo(np.float32).min)
B, H, S, D = 2, 2, 40, 16
HEAD = f"float[b,{H},s,{D}]"
POSITIONS = """
  two = Constant<value = int64 {2}>()
  zero = Constant<value = int64 {0}>()
  one = Constant<value = int64 {1}>()
  shape = Shape(q)
  size = Gather<axis = 0>(shape, two)
  at = Range(zero, size, one)
  rows = Constant<value = int64[1] {1}>()
  columns = Constant<value = int64[1] {0}>()
  i = Unsqueeze(at, rows)
  j = Unsqueeze(at, columns)
"""


def softmax(s):
    with np.errstate(invalid="ignore"):
        e = np.exp(s - np.max(s, -1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Case:
    """A graph from q, k, v (and more) to y; `body` makes z of s = q k^T, `after` makes p of its softmax w."""

    def __init__(self, name, mask, body, weights, more=None, tables=None, positions=POSITIONS, declared=HEAD,
                 batch=B, dtype=np.float32, after="  p = Identity(w)"):
        self.name, self.mask, self.weights, self.batch, self.dtype = name, mask, weights, batch, dtype
        self.more, self.tables = more or {}, tables or {}
        extra = "".join(f", {type_of(x)} {n}" for n, x in self.more.items())
        self.text = f"""<ir_version: 9, opset_import: ["" : 18]>
g ({declared} q, {declared} k, {declared} v{extra}) => ({declared} y) {{
  ninf = Constant<value = float {{-inf}}>()
  none = Constant<value = float {{0}}>()
  fmin = Constant<value = float {{{FMIN!r}}}>()
  eight = Constant<value = float {{8}}>()
{positions}
  kt = Transpose<perm = [0, 1, 3, 2]>(k)
  s = MatMul(q, kt)
{body}
  w = Softmax<axis = -1>(z)
{after}
  y = MatMul(p, v)
}}"""

    def build(self, path):
        model = parser.parse_model(self.text)
        for name, value in self.tables.items():
            model.graph.initializer.append(numpy_helper.from_array(value, name))
        onnx.checker.check_model(model)
        onnx.save(model, path)

    def check(self, tool, folder):
        path, report, result = f"{folder}/{self.name}.onnx", f"{folder}/{self.name}.json", f"{folder}/y.npy"
        self.build(path)
        rng = np.random.default_rng(7)
        given = {n: rng.standard_normal((self.batch, H, S, D)).astype(self.dtype) for n in "qkv"}
        for name, value in {**given, **self.more}.items():
            np.save(f"{folder}/{name}.npy", value)
        subprocess.run([tool, path, f"--fusion-report={report}", f"--output=y=@{result}",
                        *(f"--input={n}=@{folder}/{n}.npy" for n in [*given, *self.more])], check=True,
                       stdout=subprocess.DEVNULL)
        verdicts = json.load(open(report))
        assert [(v["fused"], v["mask"]) for v in verdicts] == [(True, self.mask)], (self.name, verdicts)
        q, k, v = (given[n].astype(np.float64) for n in "qkv")
        with np.errstate(invalid="ignore", over="ignore"):
            want = self.weights(q @ k.swapaxes(2, 3)) @ v
        unit = 1 if self.dtype == np.float32 else 20
        np.testing.assert_allclose(np.load(result), want, rtol=1e-3 * unit, atol=1e-4 * unit, err_msg=self.name)


def type_of(value):
    names = {np.dtype(np.int64): "int64", np.dtype(np.float32): "float", np.dtype(np.float16): "float16"}
    return names[value.dtype] + str(list(value.shape)).replace(" ", "") if value.shape else names[value.dtype]


I, J = np.arange(S)[:, None], np.arange(S)[None, :]


def hide(visible, fill=-np.inf, before=1.0):
    return lambda s: softmax(np.where(visible, s / before, fill))


def limits():
    """A limit beyond any position, to which a graph's comparison adds one."""
    cases = []
    for name, operator, mask, test in (("upto", "LessOrEqual", "lengths", lambda n: J <= n),
                                       ("after", "Greater", "window", lambda n: J > n)):
        for end, n in (("max", MAX), ("min", MIN), ("some", 7)):
            body = f"  shown = {operator}(j, n)\n  z = Where(shown, s, ninf)"
            cases.append(Case(f"{name}_{end}", mask, body, hide(test(n)), {"n": np.array(n)}))
    # i - j < n, which is j >= i + 1 - n.
    for end, n in (("max", MAX), ("min", MIN), ("some", 7)):
        body = "  distance = Sub(i, j)\n  shown = Less(distance, n)\n  z = Where(shown, s, ninf)"
        cases.append(Case(f"within_{end}", "window", body, hide(I - J < n), {"n": np.array(n)}))
    return cases


def scaled():
    """A mask that is added before the scores are scaled."""
    bias = "  shown = LessOrEqual(j, i)\n  bias = Where(shown, none, {0})\n  masked = Add(s, bias)\n"
    causal = hide(J <= I, before=8.0)
    return [
        Case("divided_inf", "causal", bias.format("ninf") + "  z = Div(masked, eight)", causal),
        Case("divided_finite", "causal", bias.format("fmin") + "  z = Div(masked, eight)", causal),
        Case("negated", "computed", bias.format("fmin") + "  turned = Neg(eight)\n  z = Div(masked, turned)",
             lambda s: softmax((s + np.where(J <= I, 0, FMIN)) / -8.0)),
    ]


def counted():
    """(shown - 1) * 1e9, a bool that became a number; a factor of 10 hides nothing."""
    body = """
  unit = Constant<value = float {1}>()
  huge = Constant<value = float {FACTOR}>()
  shown = LessOrEqual(j, i)
  number = Cast<to = TYPE>(shown)
  float = Cast<to = 1>(number)
  less = Sub(float, unit)
  bias = Mul(less, huge)
  z = Add(s, bias)"""
    return [
        Case("counted", "causal", body.replace("FACTOR", "1e9").replace("TYPE", "1"), hide(J <= I)),
        Case("counted_integer", "causal", body.replace("FACTOR", "1e9").replace("TYPE", "7"), hide(J <= I)),
        Case("counted_little", "computed", body.replace("FACTOR", "10").replace("TYPE", "1"),
             lambda s: softmax(s - np.where(J <= I, 0, 10))),
    ]


def stored():
    """Positions that are constants, and a Range whose size is known."""
    static = f"float[{B},{H},{S},{D}]"
    compare = "  shown = LessOrEqual({0}, {1})\n  z = Where(shown, s, ninf)"
    at = np.arange(S)
    off = at.copy()
    off[5] = 7
    tables = {"i": at[:, None], "j": at[None, :]}
    length = np.array([3, 17]).reshape(B, 1, 1, 1)
    return [
        Case("stored", "causal", compare.format("j", "i"), hide(J <= I), tables=tables, positions="", declared=static),
        Case("stored_32", "causal", compare.format("j", "i"), hide(J <= I), positions="", declared=static,
             tables={n: x.astype(np.int32) for n, x in tables.items()}),
        Case("stored_lengths", "lengths", "  shown = Less(j, n)\n  z = Where(shown, s, ninf)", hide(J < length),
             {"n": length}, {"j": at}, "", static),
        Case("stored_distance", "window", "  near = Constant<value = int64 {3}>()\n" + compare.format("d", "near"),
             hide(I - J <= 3), tables={"d": at[:, None] - at[None, :]}, positions="", declared=static),
        Case("stored_off", "dense+computed", compare.format("j", "i"), hide(off[None, :] <= I),
             tables={**tables, "j": off[None, :]}, positions="", declared=static),
        Case("stored_part", "causal", f"""
  first = Constant<value = int64[1] {{3}}>()
  last = Constant<value = int64[1] {{{3 + S}}}>()
  part = Slice(at, first, last, rows)
  line = Squeeze(part, columns)
  i = Unsqueeze(line, rows)
""" + "  shown = LessOrEqual(part, i)\n  z = Where(shown, s, ninf)", hide(J <= I),
             tables={"at": np.arange(400)[None, :], "rows": np.array([1]), "columns": np.array([0])}, positions="",
             declared=static),
        Case("folded", "causal", compare.format("j", "i"), hide(J <= I), declared=static),
    ]


def halves():
    """A constant that is added to scores of a half type."""
    off = J <= I
    off[5, 7] = True
    tests = {"inf": (J <= I, -np.inf, "causal"), "least": (J <= I, -65504, "causal"),
             "strict": (J < I, -np.inf, "causal"), "off": (off, -np.inf, "dense")}
    static = f"float16[{B},{H},{S},{D}]"
    cases = [Case(f"half_{name}", mask, "  z = Add(s, mask)", hide(shown),
                  tables={"mask": np.where(shown, 0, fill).astype(np.float16)}, positions="", declared=static,
                  dtype=np.float16) for name, (shown, fill, mask) in tests.items()]

    # In a row that sees no key the sum with the constant rounds the scores, as f32 does: f16 is storage.
    def rounded(mask):
        return lambda s: softmax((s.astype(np.float32) + mask.astype(np.float16).astype(np.float32)).astype(float))

    for fill in (-1e4, -65504):
        strict = np.where(J < I, 0, fill)
        cases.append(Case(f"half_empty{fill:.0f}", "causal", "  z = Add(s, mask)", rounded(strict),
                          tables={"mask": strict.astype(np.float16)}, positions="", declared=static, dtype=np.float16))
        rows = np.where(np.arange(S) < np.array([0, 17]).reshape(B, 1, 1, 1), 0, fill).astype(np.float16)
        cases.append(Case(f"half_rows{fill:.0f}", "dense", "  z = Add(s, mask)", rounded(rows), {"mask": rows},
                          positions="", declared=static, dtype=np.float16))
        shown = f"""
  fill = Constant<value = float {{{fill}}}>()
  shown = Less(j, n)
  wide = Where(shown, none, fill)
  mask = CastLike(wide, q)
  z = Add(s, mask)"""
        cases.append(Case(f"half_lengths{fill:.0f}", "lengths", shown, rounded(rows),
                          {"n": np.array([0, 17]).reshape(B, 1, 1, 1)}, {"j": np.arange(S)}, "", static,
                          dtype=np.float16))
        # Scaled afterwards, which rounds again.
        def thirds(mask):
            wide = mask.astype(np.float16).astype(np.float32)
            return lambda s: softmax(((s.astype(np.float32) + wide) / np.float32(3)).astype(float))

        third = "  z1 = Add(s, mask)\n  three = Constant<value = float {3}>()\n  narrow = CastLike(three, q)\n"
        third += "  z = Div(z1, narrow)"
        # A third of -1e4 is not taken for a mask.
        cases.append(Case(f"half_third{fill:.0f}", "computed" if fill == -1e4 else "causal", third, thirds(strict),
                          tables={"mask": strict.astype(np.float16)}, positions="", declared=static, dtype=np.float16))
        cases.append(Case(f"half_third_rows{fill:.0f}", "dense", third, thirds(rows), {"mask": rows}, positions="",
                          declared=static, dtype=np.float16))
    # A mask that an op makes which nothing looks through; a constant too small to be taken for a mask.
    rows = np.where(np.arange(S) < np.array([0, 17]).reshape(B, 1, 1, 1), 0, -1e4).astype(np.float16)
    cases.append(Case("half_reduced", "dense", "  mask = ReduceMax<keepdims = 0>(both, first)\n  z = Add(s, mask)",
                      rounded(rows), {"both": np.stack([rows, rows - 1])}, {"first": np.array([0])}, positions="",
                      declared=static, dtype=np.float16))
    cases.append(Case("half_integers", "dense", "  mask = CastLike(whole, q)\n  z = Add(s, mask)", rounded(rows),
                      {"whole": rows.astype(np.int64)}, positions="", declared=static, dtype=np.float16))
    small = np.where(J < I, 0, -5e3)
    cases.append(Case("half_small", "computed", "  z = Add(s, mask)", rounded(small),
                      tables={"mask": small.astype(np.float16)}, positions="", declared=static, dtype=np.float16))
    return cases


def biased():
    """A finite mask beside a bias for keys, which may be a mask itself or may not."""
    slopes = np.array([0.5, 0.25], np.float32).reshape(1, H, 1, 1)
    alibi = """  place = Cast<to = 1>(j)
  bias = Mul(slopes, place)
  t = Add(s, bias)
  shown = LessOrEqual(j, i)
  mask = Where(shown, none, fmin)
  z = Add(t, mask)"""
    table = np.random.default_rng(3).standard_normal((400, H)).astype(np.float32)
    relative = """  distance = Sub(j, i)
  low = Constant<value = int64 {-200}>()
  high = Constant<value = int64 {199}>()
  clipped = Clip(distance, low, high)
  middle = Constant<value = int64 {200}>()
  bucket = Add(clipped, middle)
  entries = Gather<axis = 0>(table, bucket)
  bias = Transpose<perm = [2, 0, 1]>(entries)
  t = Add(s, bias)
  shown = LessOrEqual(j, i)
  mask = Where(shown, none, fmin)
  z = Add(t, mask)"""
    given = """  t = Add(s, bias)
  shown = LessOrEqual(j, i)
  z = Where(shown, t, fmin)"""
    # Places that count what a run shows (BLOOM).
    counted = alibi.replace("  place = Cast<to = 1>(j)", """  axis = Constant<value = int64 {1}>()
  kept = Constant<value = int64[2] {1, 2}>()
  count = CumSum(seen, axis)
  before = Sub(count, one)
  placed = Mul(before, seen)
  float = Cast<to = 1>(placed)
  place = Unsqueeze(float, kept)""")
    seen = np.ones((B, S), np.int64)
    seen[1, :5] = 0
    places = ((seen.cumsum(1) - 1) * seen).reshape(B, 1, 1, S)
    # Row 0 sees key 0 alone, which the input hides: all its keys count alike.
    padding = np.where(np.arange(S) < 2, FMIN, 0).astype(np.float32).reshape(1, 1, 1, S)
    hidden = table.copy()
    hidden[:, 0] = FMIN

    chosen = """  place = Cast<to = 1>(j)
  bias = Mul(slopes, place)
  shown = LessOrEqual(j, i)
  seen = Less(j, n)
  both = And(shown, seen)
  mask = Where(both, bias, fmin)
  z = Add(s, mask)"""
    length = np.array([0, 17]).reshape(B, 1, 1, 1)

    def shifted(bias, fill=-np.inf):
        return lambda s: softmax(np.where(J <= I, s + bias, fill))

    def of(values):
        return values[J - I + 200].transpose(2, 0, 1)

    return [
        Case("alibi", "causal", alibi, shifted(slopes * J), tables={"slopes": slopes}),
        Case("alibi_counted", "causal+dense", counted, shifted(slopes * places), {"seen": seen}, {"slopes": slopes}),
        # No key is seen where the length is 0: all count alike, without the bias.
        Case("alibi_chosen", "causal+lengths", chosen,
             lambda s: softmax(np.float32(s + np.where((J <= I) & (J < length), slopes * J, FMIN)).astype(float)),
             {"n": length}, {"slopes": slopes}),
        Case("relative", "causal+dense", relative, shifted(of(table)), tables={"table": table}),
        Case("relative_mask", "dense", relative, shifted(of(hidden)), tables={"table": hidden}),
        Case("given", "dense", given, shifted(padding, FMIN), {"bias": padding}),
    ]


def windows():
    """A mask for each window of an image, beside a bias for each head (shifted windows)."""
    rng = np.random.default_rng(5)
    mask = np.where(rng.random((1, 3, 1, S, S)) < 0.3, -100, 0).astype(np.float32)
    bias = rng.standard_normal((1, H, S, S)).astype(np.float32)
    body = f"""
  biased = Add(s, bias)
  split = Constant<value = int64[5] {{-1, 3, {H}, {S}, {S}}}>()
  images = Reshape(biased, split)
  masked = Add(images, mask)
  whole = Constant<value = int64[4] {{-1, {H}, {S}, {S}}}>()
  z = Reshape(masked, whole)"""

    def weights(s):
        images = (s + bias).reshape(-1, 3, H, S, S) + mask
        return softmax(images.reshape(s.shape))

    tables = {"mask": mask, "bias": bias}
    return [Case(f"windows_{batch}", "dense", body, weights, tables=tables, positions="", batch=batch,
                 declared=f"float[{batch},{H},{S},{D}]") for batch in (3, 6)]


def packed():
    """Several sequences may be packed in a row: keys of the query's sequence, no later than it. Where positions are a
    range, a sequence never starts anew; where they come with the run, it may."""
    body = """
  batch = Gather<axis = 0>(shape, zero)
  counts = Unsqueeze(batch, columns)
  sizes = Concat<axis = 0>(counts, rows)
{positions}
  head = Slice(position, columns, rows, rows)
  start = Sub(head, one)
  all = Concat<axis = -1>(start, position)
  length = Add(size, one)
  end = Unsqueeze(length, columns)
  ends = Unsqueeze(size, columns)
  next = Slice(all, rows, end, rows)
  last = Slice(all, columns, ends, rows)
  step = Sub(next, last)
  follows = Equal(step, one)
  starts = Not(follows)
  counted = Cast<to = 7>(starts)
  sequence = CumSum(counted, one)
  item = Range(zero, batch, one)
  heads = Constant<value = int64[3] {{1, 2, 3}}>()
  places = Constant<value = int64[3] {{0, 1, 2}}>()
  across = Constant<value = int64[3] {{0, 1, 3}}>()
  last_dim = Constant<value = int64[1] {{-1}}>()
  item4 = Unsqueeze(item, heads)
  i4 = Unsqueeze(at, across)
  j4 = Unsqueeze(at, places)
  rows_shape_of = Max(item4, i4)
  rows_shape = Shape(rows_shape_of)
  item_i = Expand(item4, rows_shape)
  place_i = Expand(i4, rows_shape)
  item_i5 = Unsqueeze(item_i, last_dim)
  place_i5 = Unsqueeze(place_i, last_dim)
  index_i = Concat<axis = -1>(item_i5, place_i5)
  columns_shape_of = Max(item4, j4)
  columns_shape = Shape(columns_shape_of)
  item_j = Expand(item4, columns_shape)
  place_j = Expand(j4, columns_shape)
  item_j5 = Unsqueeze(item_j, last_dim)
  place_j5 = Unsqueeze(place_j, last_dim)
  index_j = Concat<axis = -1>(item_j5, place_j5)
  sequence_i = GatherND(sequence, index_i)
  sequence_j = GatherND(sequence, index_j)
  alike = Equal(sequence_i, sequence_j)
  position_i = GatherND(position, index_i)
  position_j = GatherND(position, index_j)
  early = LessOrEqual(position_j, position_i)
  seen = And(alike, early)
  z = Where(seen, s, ninf)"""
    positions = np.concatenate([np.arange(S - 15), np.arange(15)])[None].repeat(B, 0)
    numbers = (np.arange(S) >= S - 15).astype(int)
    alike = numbers[:, None] == numbers
    return [
        Case("packed", "causal", body.format(positions="  j_all = Tile(j, sizes)\n  position = Identity(j_all)"),
             lambda s: softmax(np.where(J <= I, s, -np.inf))),
        Case("packed_given", "dense+computed", body.format(positions=""),
             lambda s: softmax(np.where((J <= I) & alike, s, -np.inf)), {"position": positions}),
    ]


def tensorflow():
    """As tf2onnx writes tf.where (two products), tf.cumsum of ones, tf.linalg.band_part and tf.sequence_mask."""
    chosen = """
  hides = Not(shown)
  kept = Cast<to = 1>(shown)
  dropped = Cast<to = 1>(hides)
  low = Constant<value = float {1e9}>()
  shifted = Sub(s, low)
  first = Mul(dropped, shifted)
  second = Mul(kept, s)
  z = Add(first, second)"""
    counted = """
  unit = Constant<value = int32 {1}>()
  length = Unsqueeze(size, columns)
  sizes = Concat<axis = 0>(length, length)
  ones = Expand(unit, sizes)
  i_count = CumSum(ones, zero)
  j_count = CumSum(ones, one)
  shown = GreaterOrEqual(i_count, j_count)"""
    banded = """
  length = Unsqueeze(size, columns)
  sizes = Concat<axis = 0>(length, length)
  number = Mul(length, length)
  ones = Expand(one, number)
  flat = CumSum<exclusive = 1>(ones, zero)
  places = Reshape(flat, sizes)
  column = Mod(places, WIDTH)
  row = Div(places, WIDTH)
  ahead = Sub(column, row)
  after = Greater(ahead, zero)
  whole = Not(after)
  all = Constant<value = int64[1] {1000000000}>()
  shown = Slice(whole, columns, all, columns)"""
    limited = """
  place = Cast<to = 1>(at)
  shown = Less(place, limit)
  z = Where(shown, s, ninf)"""
    causal = lambda s: softmax(np.where(J <= I, s, -1e9))
    limit = np.array([7, 2.5], np.float32).reshape(B, 1, 1, 1)
    return [
        Case("tf_where_cumsum", "causal", counted + chosen, causal),
        Case("tf_band_part", "causal", banded.replace("WIDTH", "length") + chosen, causal),
        Case("tf_other_width", "dense", banded.replace("WIDTH", "width") + chosen,
             lambda s: softmax(np.where((I * S + J) % 8 <= (I * S + J) // 8, s, s - 1e9)), {"width": np.array([8])}),
        Case("tf_sequence_mask", "lengths", limited, hide(J < limit), {"limit": limit}),
    ]


def summed():
    """Two masks by the least f32: what one hides is finite, what both hide is -inf, and a row of that a guard makes 0."""
    body = """
  before = Less(j, i)
  ahead = Sub(i, two)
  long_before = Less(j, ahead)
  first = Where(before, none, fmin)
  second = Where(long_before, none, fmin)
  once = Add(s, first)
  z = Add(once, second)"""
    guard = "  isnan = IsNaN(w)\n  p = Where(isnan, none, w)"

    def weights(s):
        first, second = (np.where(shown, 0, FMIN).astype(np.float32) for shown in (J < I, J < I - 2))
        return np.nan_to_num(softmax((s.astype(np.float32) + first + second).astype(np.float64)))

    return [Case("two_masks", "computed", body, weights, after=guard)]


def equal():
    """One key a query: its own, the one before it, which the first query lacks, and one that the run gives."""
    shown = "  place = {}\n  shown = Equal({})\n  z = Where(shown, s, {})"
    n = np.array([7, 2]).reshape(B, 1, 1, 1)
    return [
        Case("own", "window", shown.format("Identity(i)", "j, place", "ninf"), hide(J == I)),
        Case("before", "window", shown.format("Sub(i, one)", "place, j", "ninf"), hide(J == I - 1)),
        Case("before_finite", "window", shown.format("Sub(i, one)", "j, place", "fmin"), hide(J == I - 1, FMIN)),
        Case("given", "window", shown.format("Add(n, two)", "place, j", "ninf"), hide(J == n + 2), {"n": n}),
        Case("given_less", "window", shown.format("Sub(two, n)", "j, place", "ninf"), hide(J == 2 + n), {"n": -n}),
        Case("given_max", "window", shown.format("Identity(n)", "j, place", "ninf"), hide(J == MAX),
             {"n": np.full_like(n, MAX)}),
        Case("all_others", "computed", "  shown = Equal(j, i)\n  z = Where(shown, ninf, s)", hide(J != I)),
    ]


def thresholds():
    """Keys whose scores reach a bound: 7 does, though 7 times the reciprocal of 1.7 is less than 7 / 1.7."""
    body = """
  divisor = Constant<value = float {1.7}>()
  low = Constant<value = float {-20}>()
  whole = Round(s)
  t = Div(whole, divisor)
  shown = GreaterOrEqual(t, bound)
  z = Where(shown, t, low)"""
    weights = lambda s: softmax(np.where(np.rint(s) >= 7, np.rint(s) / 1.7, -20))  # noqa: E731
    return [Case("reached", "none", body, weights, tables={"bound": np.float32(7) / np.float32(1.7)})]


def main(tool, folder):
    cases = [*limits(), *equal(), *scaled(), *counted(), *stored(), *halves(), *biased(), *windows(), *packed(),
             *tensorflow(), *summed(), *thresholds()]
    for case in cases:
        case.check(tool, folder)
    print(len(cases), "graphs agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
