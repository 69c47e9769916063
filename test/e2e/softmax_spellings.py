#!/usr/bin/env python3
"""Small attentions whose weights are normalised in unusual ways: softmax_spellings.py ATTN_RUN FOLDER

Each is one graph with a reference in float64, and what the report must say of it.
"""
import sys

import numpy as np

from softmax_cases import Case, hidden, shown, softmax, B, BESIDE, D, H, MASKED, MAXIMUM, REPEATED, S, STATIC, SUM, WEIGH


def logarithms():
    """exp(s - log(sum(exp(s))))"""
    lse = "  l = ReduceLogSumExp<keepdims = 1>({0}, last)\n  d = Sub(z, l)\n  p = Exp(d)" + WEIGH
    parts = (MAXIMUM.format("z") + "  e = Exp(shifted)\n" + SUM.format("e")
             + "  log = Log(total)\n  l = Add(log, top)\n  d = Sub(z, l)\n  p = Exp(d)" + WEIGH)
    after = (MAXIMUM.format("z") + "  e = Exp(shifted)\n" + SUM.format("e")
             + "  l = Log(total)\n  d = Sub(shifted, l)\n  p = Exp(d)" + WEIGH)
    plain = "  e = Exp(z)\n" + SUM.format("e") + "  l = Log(total)\n  d = Sub(z, l)\n  p = Exp(d)" + WEIGH
    of_mask = lambda s, m, q, k: softmax(s + m)
    other = "  t = Add(z, z)\n" + lse.format("t")

    def of_other(s, m, q, k):
        return np.exp(s + m - np.log(np.exp(2 * (s + m)).sum(-1, keepdims=True)))

    # The maximum where it is finite, by a choice or by products with 1 and 0.
    guard = ("  most = ReduceMax<keepdims = 1>(z, last)\n  nan = IsNaN(most)\n  inf = IsInf(most)\n  bad = Or(nan, inf)\n"
             "  good = Not(bad)\n{}  shifted = Sub(z, top)\n  e = Exp(shifted)\n" + SUM.format("e")
             + "  log = Log(total)\n  l = Add(log, top)\n  d = Sub(z, l)\n  p = Exp(d)" + WEIGH)
    chosen = "  top = Where(good, most, zero)\n"
    summed = ("  is = Cast<to = 1>(good)\n  isnt = Cast<to = 1>(bad)\n  kept = Mul(is, most)\n  gone = Mul(isnt, zero)\n"
              "  top = Add(kept, gone)\n")

    return [
        Case("lse_chosen", MASKED + guard.format(chosen), of_mask, mask=hidden([3])),
        Case("lse_summed", MASKED + guard.format(summed), of_mask, mask=hidden([3])),
        Case("lse", MASKED + lse.format("z"), of_mask, mask=hidden([])),
        Case("lse_row", MASKED + lse.format("z"), of_mask, mask=hidden([3])),
        Case("lse_large", MASKED + lse.format("z"), of_mask, scale=300),
        Case("lse_parts", MASKED + parts, of_mask, mask=hidden([3])),
        Case("lse_after", MASKED + after, of_mask, scale=300, mask=hidden([3])),
        # Where the exponentials overflow, its weights are 0.
        Case("lse_plain", MASKED + plain, of_mask, says=("missed", "none", REPEATED), mask=hidden([3])),
        Case("lse_other", MASKED + other, of_other,
             says=("missed", "none", REPEATED)),
    ]


def shifts():
    """The maximum is subtracted from scores made small, which then become what they were."""
    body = "  x = {0}(z, four)\n" + MAXIMUM.format("x") + "  back = Mul(shifted, four)\n  p = Softmax<axis = -1>(back)" + WEIGH
    stored = "its scores are stored before: an operation that is not elementwise stands between the scores and the softmax"
    return [
        Case("shift_small", MASKED + body.format("Div"), lambda s, m, q, k: softmax(s + m), mask=hidden([3])),
        # Turned, and by a factor that is not the inner one's inverse.
        Case("shift_turned", MAXIMUM.format("s") + "  d = Sub(top, s)\n  p = Softmax<axis = -1>(d)" + WEIGH,
             lambda s, m, q, k: softmax(-s)),
        Case("shift_turned_small", body.format("Div").replace("(z", "(s").replace("Mul(shifted", "Div(shifted"),
             lambda s, m, q, k: softmax(s / 16)),
        Case("shift_large", MASKED + body.format("Mul"), lambda s, m, q, k: softmax(16 * (s + m)),
             says=("given", None, stored), mask=hidden([3])),
    ]


def guards():
    """Rows that are replaced where nothing is left of them: what is subtracted decides which rows those are."""
    quotient = "  e = Exp(shifted)\n" + SUM.format("e") + "  w = Div(e, total)\n"
    nan = "  n = IsNaN(w)\n  p = Where(n, zero, w)" + WEIGH
    above = "  n = Greater(total, zero)\n  p = Where(n, w, zero)" + WEIGH
    late = "  o = MatMul(w, v)\n  n = IsNaN(o)\n  y = Where(n, zero, o)"
    whole = "  top = ReduceMax<keepdims = 1>(z)\n  shifted = Sub(z, top)\n" + quotient
    none = "  shifted = Identity(z)\n" + quotient
    twice = whole.replace("shifted = Sub", "x = Sub").replace("  e = ", MAXIMUM.format("x").replace("top", "more") + "  e = ")
    finite = "  most = ReduceMax<keepdims = 1>(z, last)\n  b = IsInf(most)\n  top = Where(b, zero, most)\n"
    finite += "  shifted = Sub(z, top)\n" + quotient
    large = finite.replace("IsInf(most)", "Less(most, low)").replace("  b =", "  low = Constant<value = float {-1e8}>()\n  b =")
    middle = "  mean = ReduceMean<keepdims = 1>(z, last)\n  shifted = Sub(z, mean)\n"
    with_more = "  e = Exp(shifted)\n" + SUM.format("e")
    with_more += "  eps = Constant<value = float {1e-9}>()\n  more = Add(total, eps)\n  w = Div(e, more)\n"
    low = np.nan_to_num(hidden([3]), neginf=-1e9)

    def masked(s, m):
        return (s + m).astype(np.float32).astype(np.float64)  # nothing of a score is left beside -1e9

    def over(shift):
        def weights(s, m, q, k):
            z = masked(s, m)
            e = np.exp(z - shift(z))
            return np.nan_to_num(e / e.sum(-1, keepdims=True))

        return weights

    of_mask = lambda s, m, q, k: softmax(masked(s, m))
    of_whole, of_none, of_mean = over(np.max), over(lambda z: 0), over(lambda z: z.mean(-1, keepdims=True))
    missed, own = ("missed", "sum", REPEATED), ("dot", "sum")
    stored = "its scores are stored before: " + REPEATED
    given, given_sum = ("given", None, stored), ("given", "sum", stored)
    changed = "the weights are changed after they are divided by more than their sum"
    return [
        Case("guard_whole", MASKED + whole + nan, of_whole, missed, mask=low),
        Case("guard_row_equal", MASKED + MAXIMUM.format("z") + quotient + "  n = Equal(w, w)\n  p = Where(n, w, zero)" + WEIGH,
             of_mask, mask=low),
        Case("guard_whole_sum", MASKED + whole + above, of_whole, missed, mask=low),
        Case("guard_whole_late", MASKED + whole + late, of_whole, missed, mask=low),
        Case("guard_whole_only", MASKED + whole + "  p = Identity(w)" + WEIGH, of_mask, given, mask=hidden([])),
        Case("guard_none", MASKED + none + nan, of_none, own, mask=low),
        Case("guard_large", MASKED + large + nan, of_none, given_sum, mask=low),
        # Exponentials that overflow: inf / inf is replaced, and all else beside inf is 0.
        Case("guard_overflow", MASKED + none + nan, of_none, own, scale=1e5),
        Case("guard_overflow_mean", MASKED + middle + quotient + nan, of_mean, missed, scale=1e5),
        Case("guard_overflow_sink", MASKED + "  shifted = Identity(z)\n" + with_more + late, of_none, ("dot", "none"), scale=1e5),
        Case("guard_overflow_sink_mean", MASKED + middle + with_more + late, of_mean, ("missed", "none", REPEATED),
             scale=1e5),
        Case("guard_sink", MASKED + MAXIMUM.format("z") + with_more + nan, of_mask, ("missed", None, changed), mask=low),
        Case("guard_twice", MASKED + twice + nan, of_mask, given, mask=low),
        Case("guard_row", MASKED + MAXIMUM.format("z") + quotient + nan, of_mask, mask=low),
        Case("guard_finite", MASKED + finite + nan, lambda s, m, q, k: np.nan_to_num(softmax(s + m)), given,
             mask=hidden([3])),
    ]


def sums():
    """x / f(sum(x))"""
    eps = "  eps = Constant<value = float {{{1}}}>()\n  more = Add(total, eps)\n  p = Div({0}, more)" + WEIGH
    relu = "  x = Relu(s)\n"
    exp = "  e = Exp(s)\n  x = Mul(e, m)\n"
    softplus = "  t = Constant<value = float {{{0}}}>()\n  isFar = Greater(s, t)\n  near = Softplus(s)\n"
    softplus += "  x = Where(isFar, s, near)\n"
    shift = MAXIMUM.format("s") + "  e = Exp(shifted)\n  x = Mul(e, m)\n"
    ones = "  unit = Constant<value = int64[1] {1}>()\n  n = Shape<start = 3>(e)\n  size = Concat<axis = 0>(n, unit)\n"
    ones += "  ones = Expand(one, size)\n  total = MatMul(e, ones)\n  p = Div(e, total)" + WEIGH
    after = "  t = Mul(s, m)\n  e = Softmax<axis = -1>(t)\n  x = Mul(e, m)\n"

    def late(change):
        half = "  half = Constant<value = float {0.5}>()\n  tenth = Constant<value = float {0.1}>()\n"
        return half + "  more = Add(total, half)\n  p = Div(x, more)\n  " + change + WEIGH.replace("(p", "(n")

    def over(x, more):
        return x / (x.sum(-1, keepdims=True) + more)

    changed = "the weights are changed, and more is added to their divisor than their sum (a sink, an epsilon)"

    def of_shift(more):
        return lambda s, m, q, k: over(np.exp(s - s.max(-1, keepdims=True)) * m, more)

    none, soft = ("dot", "none"), ("dot", None)
    return [
        Case("relu", relu + SUM.format("x") + eps.format("x", 1e-6),
             lambda s, m, q, k: over(np.maximum(s, 0), 1e-6), none),
        Case("relu_half", relu + SUM.format("x") + eps.format("x", 0.5),
             lambda s, m, q, k: over(np.maximum(s, 0), 0.5), none),
        Case("relu_most", relu + SUM.format("x") + "  more = Max(total, one)\n  p = Div(x, more)" + WEIGH,
             lambda s, m, q, k: np.maximum(s, 0) / np.maximum(np.maximum(s, 0).sum(-1, keepdims=True), 1), none),
        # Softplus as PyTorch's exporter writes it; below a threshold of -1 there may be a negative weight.
        Case("softplus", softplus.format(20) + SUM.format("x") + eps.format("x", 1e-6),
             lambda s, m, q, k: over(np.logaddexp(s, 0), 1e-6), none),
        Case("softplus_other", softplus.format(-1) + SUM.format("x") + eps.format("x", 50),
             lambda s, m, q, k: over(np.where(s > -1, s, np.logaddexp(s, 0)), 50), ("missed", "none", REPEATED)),
        Case("exp_mask", exp + SUM.format("x") + eps.format("x", 1e-6),
             lambda s, m, q, k: over(np.exp(s) * m, 1e-6), none, mask=shown()),
        Case("shift_mask", shift + SUM.format("x") + eps.format("x", 1e-6), of_shift(1e-6), soft, mask=shown()),
        Case("shift_half", shift + SUM.format("x") + eps.format("x", 0.5), of_shift(0.5), soft, mask=shown()),
        Case("shift_plain", shift + SUM.format("x") + "  p = Div(x, total)" + WEIGH, of_shift(0), soft, mask=shown()),
        Case("shift_ones", MASKED + MAXIMUM.format("z") + "  e = Exp(shifted)\n" + ones,
             lambda s, m, q, k: softmax(s + m), mask=hidden([3])),
        Case("shift_static", shift + SUM.format("x") + eps.format("x", 1e-6), of_shift(1e-6), soft, mask=shown(),
             declared=STATIC),
        Case("after", after + SUM.format("x") + eps.format("x", 1e-13),
             lambda s, m, q, k: over(softmax(s * m) * m, 1e-13), soft, mask=shown()),
        # Weights that are multiplied after they are divided by their sum and an epsilon, by a number and by a mask.
        Case("exp_scaled", "  x = Exp(s)\n" + SUM.format("x") + late("n = Mul(p, four)"),
             lambda s, m, q, k: 4 * over(np.exp(s), 0.5), soft),
        Case("exp_shown", "  x = Exp(s)\n" + SUM.format("x") + late("n = Mul(p, m)"),
             lambda s, m, q, k: over(np.exp(s), 0.5) * m, soft, mask=shown()),
        Case("exp_clipped", "  x = Exp(s)\n" + SUM.format("x") + late("n = Min(p, tenth)"),
             lambda s, m, q, k: np.minimum(over(np.exp(s), 0.5), 0.1), ("missed", None, changed)),
        # Another row's sum.
        Case("mixed", relu + SUM.format("x") + "  t = Mul(total, m)\n" + eps.format("x", 1e-6).replace("total", "t"),
             lambda s, m, q, k: np.maximum(s, 0) / (np.maximum(s, 0).sum(-1, keepdims=True) * m + 1e-6),
             ("missed", "none", "the weights are not divided by the sum of their row alone"),
             mask=np.full((1, 1, 1, 1), 2.0)),
    ]


def renormalized():
    """softmax(s) m / sum(softmax(s) m): a mask behind the softmax, as exporters of JAX write it."""
    hide = "  b = Greater(m, zero)\n  w = Softmax<axis = -1>(s)\n"
    bools = hide + "  n = Cast<to = 1>(b)\n  x = Mul(w, n)\n"
    chosen = hide + "  x = Where(b, w, zero)\n"
    placed = bools.replace("Greater(m, zero)", "LessOrEqual(column, row)")
    places = {"row": np.arange(S).reshape(S, 1), "column": np.arange(S).reshape(1, S)}
    above = SUM.format("x") + "  any = Greater(total, zero)\n"
    guard = above + "  more = Where(any, total, one)\n  d = Div(x, more)\n  p = Where(any, d, zero)" + WEIGH
    short = above + "  d = Div(x, total)\n  p = Where(any, d, zero)" + WEIGH
    other = guard.replace("Where(any, d", "Where(b, d")
    plain = SUM.format("x") + "  p = Div(x, total)" + WEIGH
    some = (np.arange(S) % 3 != 1).reshape(1, 1, 1, S)
    triangle = np.tri(S).reshape(1, 1, S, S)
    late = "the weights are changed after they are divided by more than their sum"
    between = "an operation that is not elementwise stands between the softmax and the weighted sum"

    def of_shown(s, m, q, k):
        x = softmax(s) * m
        return x / np.where(x.sum(-1, keepdims=True) > 0, x.sum(-1, keepdims=True), 1)

    return [
        Case("renormalized", bools + guard, of_shown, mask=shown(), declared=STATIC),
        Case("renormalized_short", bools + short, of_shown, mask=shown(), declared=STATIC),
        Case("renormalized_chosen", chosen + guard, of_shown, mask=triangle, declared=STATIC),
        Case("renormalized_causal", placed + guard, lambda s, m, q, k: softmax(s + np.log(np.maximum(np.tri(S), 1e-99))),
             tables=places, declared=STATIC),
        Case("renormalized_plain", bools + plain, of_shown, mask=some, declared=STATIC),
        # Weights of any size: no softmax of some scores.
        Case("renormalized_any", hide + "  x = Mul(w, m)\n" + plain, of_shown, mask=some * 0.5, declared=STATIC),
        # Another guard than that of the sum.
        Case("renormalized_other", bools + other, of_shown, [("missed", None, late), ("missed", None, between)],
             mask=shown(), declared=STATIC),
    ]


def sinks():
    """One more score whose key has no value."""
    own = MAXIMUM.format("z") + "  e = Exp(shifted)\n" + SUM.format("e")
    term = "  down = Neg(top)\n  extra = Exp(down)\n  more = Add(total, extra)\n  p = Div(e, more)" + WEIGH
    least = own.replace("shifted = Sub(z, top)", "low = Max(top, zero)\n  shifted = Sub(z, low)")
    shorter = term.replace("Neg(top)", "Sub(one, top)")
    table = np.array([0.3, -0.4], np.float32).reshape(1, H, 1, 1)

    def beside(s, sink):
        return softmax(np.concatenate([s, np.broadcast_to(sink, (*s.shape[:3], 1))], -1))[..., :-1]

    def lost(s, m, q, k, sink=0.0):
        z = s + m
        e = np.exp(z - z.max(-1, keepdims=True))
        return e / (np.exp(sink - z.max(-1, keepdims=True)) + e.sum(-1, keepdims=True))

    column = "  beside = Expand(sink, whole)\n  joined = Concat<axis = 3>({})\n  w = Softmax<axis = -1>(joined)\n"
    cut = "  from = Constant<value = int64[1] {{{}}}>()\n  to = Constant<value = int64[1] {{{}}}>()\n"
    cut += "  p = Slice(w, from, to, last)" + WEIGH
    pad = "  joined = Pad(z, pads)\n  w = Softmax<axis = -1>(joined)\n"
    tables = {"sink": table, "whole": np.array([B, H, S, 1])}

    def pads(before, after):
        return {"pads": np.array([0, 0, 0, before, 0, 0, 0, after])}

    # exp(s - top) / (exp(sink - top) + sum) with the maximum of the row, of both, and of another tensor.
    parts = "  top = {}\n  d = Sub(z, top)\n  e = Exp(d)\n" + SUM.format("e")
    parts += "  down = Sub(sink, top)\n  extra = Exp(down)\n  more = Add(total, extra)\n  p = Div(e, more)" + WEIGH
    both, other = "  row = ReduceMax<keepdims = 1>(z, last)\n", {**tables, "high": table + 1}
    side = "  beside = Expand(sink, whole)\n  joined = Concat<axis = 3>(z, beside)\n"
    above = MAXIMUM.format("z") + column.format("shifted, beside") + cut.format(0, -1)

    def from_above(s, m, q, k):
        z = s + m
        return beside(z - z.max(-1, keepdims=True), table)

    # Infinity, from which it is subtracted itself where the maximum is of it, too.
    endless = np.array([0.3, np.inf], np.float32).reshape(1, H, 1, 1)
    without_end = {**tables, "sink": endless}
    to_nan = lambda s, m, q, k: beside(s + m, endless)
    with_sink = lambda s, m, q, k: beside(s + m, table)
    with_zero = lambda s, m, q, k: beside(s + m, 0.0)
    one, mask = ("dot", None), hidden([3])
    return [
        Case("off_by_one", MASKED + own + term, lost, mask=hidden([])),
        Case("off_by_one_row", MASKED + own + term, lost, mask=mask),
        Case("off_by_one_least", MASKED + least + term.replace("Neg(top)", "Neg(low)"), with_zero, mask=mask),
        Case("off_by_one_clip", MASKED + least.replace("Max(", "Clip(") + term.replace("Neg(top)", "Neg(low)"), with_zero,
             mask=mask),
        # The lesser of the maximum and a number is above no row's scores.
        Case("off_by_one_most", MASKED + least.replace("Max(top, zero)", 'Clip(top, "", one)') +
             term.replace("Neg(top)", "Neg(low)"), with_zero, BESIDE, mask=hidden([])),
        Case("off_by_more", MASKED + own + shorter, lambda s, m, q, k: lost(s, m, q, k, 1.0), mask=mask),
        Case("sink_front", MASKED + column.format("beside, z") + cut.format(1, S + 1), with_sink, one, mask, tables,
             STATIC),
        Case("sink_back", MASKED + column.format("z, beside") + cut.format(0, -1), with_sink, one, mask, tables, STATIC),
        Case("sink_parts", MASKED + both + parts.format("Max(row, sink)"), with_sink, one, mask, tables, STATIC),
        Case("sink_parts_row", MASKED + parts.format("ReduceMax<keepdims = 1>(z, last)"),
             lambda s, m, q, k: lost(s, m, q, k, table), one, mask, tables, STATIC),
        Case("sink_parts_joined", MASKED + side + parts.format("ReduceMax<keepdims = 1>(joined, last)"), with_sink, one,
             mask, tables, STATIC),
        Case("sink_parts_other", MASKED + both + parts.format("Max(row, high)"), with_sink, BESIDE, mask, other,
             STATIC),
        Case("sink_endless", MASKED + column.format("z, beside") + cut.format(0, -1), to_nan, one, mask, without_end, STATIC),
        Case("sink_endless_parts", MASKED + both + parts.format("Max(row, sink)"), to_nan, one, mask, without_end, STATIC),
        Case("sink_endless_row", MASKED + parts.format("ReduceMax<keepdims = 1>(z, last)"),
             lambda s, m, q, k: lost(s, m, q, k, endless), one, mask, without_end, STATIC),
        Case("sink_above", MASKED + above, from_above, one, mask, tables, STATIC),
        Case("pad_any_back", pad.replace("z", "s") + cut.format(0, -1), lambda s, m, q, k: beside(s, 0.0), one,
             tables=pads(0, 1)),
        Case("pad_any_front", pad.replace("z", "s") + cut.format(1, 1 << 40), lambda s, m, q, k: beside(s, 0.0), one,
             tables=pads(1, 0)),
        Case("pad_back", MASKED + pad + cut.format(0, S), with_zero, one, mask, pads(0, 1), STATIC),
        Case("pad_front", MASKED + pad + cut.format(1, S + 1), with_zero, one, mask, pads(1, 0), STATIC),
        Case("pad_two", MASKED + pad + cut.format(0, S), lambda s, m, q, k: beside(s + m, np.log(2.0)),
             ("none", None, "an operation that is not elementwise stands between the softmax and the weighted sum"),
             mask, pads(0, 2), STATIC),
    ]


def others():
    """Division after the weighted sum, powers, squares, features, the largest scores."""
    shift = MAXIMUM.format("z")
    late = shift + "  e = Exp(shifted)\n" + SUM.format("e") + "  o = MatMul(e, v)\n  y = Div(o, total)"
    eps = "  eps = Constant<value = float {0.5}>()\n"
    late_relu = eps + "  x = Relu(z)\n" + SUM.format("x")
    late_relu += "  more = Add(total, eps)\n  o = MatMul(x, v)\n  y = Div(o, more)"
    power = "  base = Constant<value = float {BASE}>()\n" + shift + "  e = Pow(base, shifted)\n" + SUM.format("e")
    power += "  p = Div(e, total)" + WEIGH
    square = "  e = Mul(s, s)\n" + SUM.format("e") + "  p = Div(e, total)" + WEIGH
    elu = "  qe = Elu<alpha = ALPHA>(q)\n  qf = Add(qe, one)\n  ke = Elu<alpha = ALPHA>(kt)\n  kf = Add(ke, one)\n"
    elu += "  e = MatMul(qf, kf)\n" + SUM.format("e") + "  p = Div(e, total)" + WEIGH
    best = "  five = Constant<value = int64[1] {5}>()\n  top, at = TopK<axis = -1>(s, five)\n"
    best += "  least = ReduceMin<keepdims = 1>(top, last)\n  low = Less(s, least)\n"
    best += "  hidden = Constant<value = float {-inf}>()\n  z = Where(low, hidden, s)\n  p = Softmax<axis = -1>(z)" + WEIGH
    # The least of the largest is compared with itself: what it is compared with may not be rounded anew.
    third = "  rate = Constant<value = float {2.8284271}>()\n  r = Div(s, rate)\n"
    third += best.replace("(s, ", "(r, ").replace("hidden, s)", "hidden, r)")
    # The same, where both sides are divided once more in front of the comparison.
    both = "  rate = Constant<value = float {2.8284271}>()\n  more = Constant<value = float {1.7}>()\n  r = Div(s, rate)\n"
    both += best.replace("(s, ", "(r, ").replace("  low = Less(s, least)\n", "").replace("  low = Less(r, least)\n", "") \
        .replace("  hidden = ", "  u = Div(r, more)\n  edge = Div(least, more)\n  low = Less(u, edge)\n  hidden = ").replace("hidden, s)", "hidden, u)")
    hard = "  w = Softmax<axis = -1>(s)\n  at = ArgMax<axis = 3, keepdims = 0>(w)\n"
    hard += "  p = OneHot<axis = -1>(at, depth, values)" + WEIGH
    # Its gradient is that of the weights (straight-through).
    chosen = "  w = Softmax<axis = -1>(s)\n  at = ArgMax<axis = 3, keepdims = 0>(w)\n"
    chosen += "  h = OneHot<axis = -1>(at, depth, values)\n  d = Sub(h, w)\n"
    through = chosen + "  p = Add(d, w)" + WEIGH
    beyond = chosen + "  e = Add(d, w)\n  p = Add(e, w)" + WEIGH
    picks = {"depth": np.array(S), "values": np.array([0, 1], np.float32)}
    of_mask = lambda s, m, q, k: softmax(s + m)

    def over(x, more=0.0):
        return x / (x.sum(-1, keepdims=True) + more)

    def features(alpha):
        def feature(x):
            return np.where(x > 0, x, alpha * (np.exp(np.minimum(x, 0)) - 1)) + 1

        return lambda s, m, q, k: over(feature(q) @ feature(k).swapaxes(2, 3))

    def of_best(s, m, q, k):
        return softmax(np.where(s < np.sort(s, -1)[..., -5:-4], -np.inf, s))

    summed = ("dot", "sum")
    return [
        Case("late", MASKED + late, of_mask, mask=hidden([3])),
        Case("late_relu", MASKED + late_relu, lambda s, m, q, k: over(np.maximum(s + m, 0), 0.5), ("dot", "none"),
             mask=hidden([3])),
        Case("power", MASKED + power.replace("BASE", "2"), lambda s, m, q, k: softmax((s + m) * np.log(2.0)),
             mask=hidden([3])),
        Case("power_ten", MASKED + power.replace("BASE", "10"), lambda s, m, q, k: softmax((s + m) * np.log(10.0)),
             mask=hidden([])),
        Case("square", square, lambda s, m, q, k: over(s * s), summed),
        Case("elu", elu.replace("ALPHA", "1.0"), features(1.0), summed),
        # It may be negative.
        Case("elu_two", elu.replace("ALPHA", "2.0"), features(2.0), None),
        Case("best", best, of_best, ("given", None, "its scores are stored before: " + REPEATED), tables={},
             declared=STATIC),
        Case("best_third", third, lambda s, m, q, k: of_best(s / 2.8284271, m, q, k),
             ("given", None, "its scores are stored before: " + REPEATED), declared=STATIC),
        Case("best_both", both, lambda s, m, q, k: of_best(s / 2.8284271 / 1.7, m, q, k),
             ("given", None, "its scores are stored before: " + REPEATED), declared=STATIC),
        Case("hard", hard, lambda s, m, q, k: np.eye(S)[softmax(s).argmax(-1)],
             ("none", None, "not an attention: the largest weight alone selects a value (hard attention)"), tables=picks,
             declared=STATIC),
        Case("through", through, lambda s, m, q, k: np.eye(S)[softmax(s).argmax(-1)],
             ("none", None, "not an attention: its weights cancel out of a hard assignment (straight-through)"),
             tables=picks, declared=STATIC),
        Case("beyond", beyond, lambda s, m, q, k: np.eye(S)[softmax(s).argmax(-1)] + softmax(s),
             ("missed", None, "an operation that is not elementwise stands between the softmax and the weighted sum"),
             tables=picks, declared=STATIC),
    ]


def elsewhere():
    """Sums and maxima over other dimensions than the keys."""
    axis = "  other = Constant<value = int64[1] {-2}>()\n"
    eps = "  eps = Constant<value = float {0.5}>()\n"
    relu = axis + eps + "  x = Relu(s)\n  total = ReduceSum<keepdims = 1>(x, other)\n  more = Add(total, eps)\n"
    relu += "  p = Div(x, more)" + WEIGH
    sink = "  e = Exp(d)\n" + SUM.format("e") + "  n = Neg(top)\n  first = Exp(n)\n  more = Add(first, total)\n"
    sink = "  d = Sub(s, top)\n" + sink + "  p = Div(e, more)" + WEIGH
    clipped = axis + "  most = ReduceMax<keepdims = 1>(s, other)\n  top = Max(most, zero)\n" + sink

    def over_queries(s, m, q, k):
        x = np.maximum(s, 0)
        return x / (x.sum(-2, keepdims=True) + 0.5)

    def with_sink(top):
        def weights(s, m, q, k):
            e = np.exp(s - top(s))
            return e / (np.exp(-top(s)) + e.sum(-1, keepdims=True))

        return weights

    # What a mask without a dimension of keys is summed over is the weights' alone.
    gate = "  w = Softmax<axis = -1>(s)\n  g = Mul(w, m)\n" + SUM.format("g") + "  y = Mul(v, total)"

    class Gate(Case):
        def expected(self, weights, v):
            return weights * v

    return [
        Case("sum_over_queries", relu, over_queries,
             ("missed", "none", "the weights are summed over other dimensions than the softmax runs over")),
        Case("sink_each", "  top = Max(s, zero)\n" + sink, with_sink(lambda s: np.maximum(s, 0)), BESIDE),
        Case("sink_over_queries", clipped, with_sink(lambda s: np.maximum(s.max(-2, keepdims=True), 0)), BESIDE),
        Gate("gate", gate, lambda s, m, q, k: (softmax(s) * m).sum(-1, keepdims=True),
             ("none", None, "no contraction: its weights multiply values, and are not summed over them"),
             mask=np.full((1, 1, 1, 1), 3.0)),
    ]


def differences():
    """A weighted sum of the difference of two weights: of two softmaxes, and of two heads of one."""
    half = "  half = Constant<value = float {0.5}>()\n"
    two = half + "  n = Neg(s)\n  a = Softmax<axis = -1>(s)\n  b = Softmax<axis = -1>(n)\n"
    heads = half + "  i = Constant<value = int64 {0}>()\n  j = Constant<value = int64 {1}>()\n"
    heads += "  p = Softmax<axis = -1>(s)\n  a = Gather<axis = 1>(p, i)\n  b = Gather<axis = 1>(p, j)\n"
    less = "  c = Mul(b, half)\n  w = Sub(a, c)\n"
    pair = "  pair = Constant<value = int64[1] {1}>()\n  x = Gather<axis = 1>(v, i)\n  z = MatMul(w, x)\n"
    pair += "  u = Unsqueeze(z, pair)\n  y = Concat<axis = 1>(u, u)"

    class Twice(Case):
        def expected(self, weights, v):
            return np.repeat(weights @ v[:, :1], 2, axis=1)

    return [
        Case("two_softmaxes", two + less + "  y = MatMul(w, v)", lambda s, m, q, k: softmax(s) - 0.5 * softmax(-s),
             [("dot", None), ("dot", None)]),
        Twice("two_heads", heads + less + pair, lambda s, m, q, k: softmax(s)[:, :1] - 0.5 * softmax(s)[:, 1:]),
    ]


def grids():
    """Keys that are an image of 4 x 5: biases of the query for its rows and for its columns (ViTDet)."""
    body = "  cut = Constant<value = int64[5] {0, 0, 0, 4, 5}>()\n  g = Reshape(s, cut)\n"
    body += "  below = Constant<value = int64[1] {4}>()\n  beside = Constant<value = int64[1] {3}>()\n"
    body += "  r = MatMul(q, rows)\n  ru = Unsqueeze(r, below)\n  c = MatMul(q, columns)\n  cu = Unsqueeze(c, beside)\n"
    body += "  gr = Add(ru, g)\n  gc = Add(gr, cu)\n  whole = Constant<value = int64[4] {0, 0, 0, -1}>()\n"
    body += "  z = Reshape(gc, whole)\n  p = Softmax<axis = -1>(z)" + WEIGH
    rng = np.random.default_rng(7)
    tables = {"rows": rng.standard_normal((D, 4)).astype(np.float32),
              "columns": rng.standard_normal((D, 5)).astype(np.float32)}

    def biased(s, m, q, k):
        return softmax(s + np.repeat(q @ tables["rows"], 5, -1) + np.tile(q @ tables["columns"], 4))

    return [Case("grid", body, biased, tables=tables, declared=STATIC)]


def main(tool, folder):
    cases = [*logarithms(), *shifts(), *guards(), *sums(), *renormalized(), *sinks(), *others(), *elsewhere(), *differences(), *grids()]
    for case in cases:
        case.check(tool, folder)
    print(len(cases), "graphs agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
