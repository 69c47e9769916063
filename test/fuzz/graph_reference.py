"""What a spec means, in float64, with a bound for the error of each element.

Written from the definition of attention: positions, not nodes. A value travels with the bound of
its error, so that projections before and after the attention widen the bound as they should. The
attention's own bound is |out - ref| <= u (S + |ref|) + 2^-21 (4 + max|s|) S with S = sum_j p_j |v_j|.
"""
import numpy as np

from graph_data import bias_is_input, mask_value, scale_of, score_letters

F32_MAX = float(np.finfo(np.float32).max)
U = {"f32": 2.0**-22, "f16": 2.0**-10, "bf16": 2.0**-7}  # rounding of one operation with its sum, generously
FLOOR = {"f32": 1e-37, "f16": 2.0**-23, "bf16": 1e-37}  # below it numbers are denormal
HALF_STEP = {"f32": 2.0**-150, "f16": 2.0**-25, "bf16": 2.0**-134}  # of denormal numbers: what rounding to one changes


class Number:
    def __init__(self, v, e=None):
        self.v = np.asarray(v, np.float64)
        self.e = np.zeros(self.v.shape) if e is None else np.broadcast_to(e, self.v.shape)


def linear(x, w, b, u):
    w = np.asarray(w, np.float64)
    v = x.v @ w
    e = x.e @ np.abs(w) + 2 * u * (np.abs(x.v) @ np.abs(w))
    if b is not None:
        v, e = v + np.asarray(b, np.float64), e + u * np.abs(b)
    return Number(v, e)


def through(f, s):
    """An elementwise function; the error as wide as the function makes it."""
    v = f(s.v)
    with np.errstate(invalid="ignore"):
        e = np.maximum(np.abs(f(s.v + s.e) - v), np.abs(f(s.v - s.e) - v))
    return Number(v, e)


def split_heads(x, heads):
    b, s, hd = x.v.shape
    return Number(*(a.reshape(b, s, heads, hd // heads).transpose(0, 2, 1, 3) for a in (x.v, x.e)))


def canonical(spec, d, f, w, u):
    """Query, key and value as [b, head, position, feature]."""
    heads, layout = d["H"] * d["G"], spec["layout"]
    if spec["pre"] != "none":
        x = Number(f["x"])
        y = Number(f["y"]) if spec["cross"] else x
        return [split_heads(linear(a, w["w" + n], w["b" + n], u), h)
                for a, n, h in ((x, "q", heads), (y, "k", d["H"]), (y, "v", d["H"]))]
    if spec["kind"] == "rank1":
        h = split_heads(linear(Number(f["x"]), w["graph"], None, u), 1)
        return [h, h, h]
    result = []
    for name, h in (("q", heads), ("k", d["H"]), ("v", d["H"])):
        a = f.get(name)
        if a is None:
            result.append(None)
            continue
        if layout in ("bshd", "keras"):
            a = a.transpose(0, 2, 1, 3)
        elif layout in ("packed", "bh"):
            a = a.reshape(a.shape[0], a.shape[1], h, -1).transpose(0, 2, 1, 3)
        elif layout == "kt" and name == "k":
            a = a.transpose(0, 1, 3, 2)
        elif layout == "3d":
            a = a[:, None]
        elif layout == "2d":
            a = a[None, None]
        elif layout == "time" and name != "q":
            a = a.transpose(1, 0, 2)[:, None]
        elif layout in ("step", "time"):
            a = a[:, None, None] if name == "q" else a[:, None]
        x = Number(a)
        for which, function in spec["before"]:
            x = elementwise(function, x, u, HALF_STEP[spec["dtype"]]) if which == name else x
        result.append(x)
    return result


def elementwise(function, x, u, half_step):
    y = through(ELEMENTWISE[function], x)
    # A polynomial of exp or tanh is good to a few roundings, all else is one operation. What may be anything may be NaN,
    # which no function bounds.
    rounding = np.maximum(u * (4 if function in ("tanh", "sigmoid") else 1) * np.abs(y.v), half_step)
    return Number(y.v, np.where(np.isinf(x.e), np.inf, y.e + rounding))


ACTIVATIONS = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "leaky": lambda x: np.where(x < 0, 0.1 * x, x),
    "identity": lambda x: x,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
ELEMENTWISE = dict(ACTIVATIONS, scale=lambda x: 0.75 * x, shift=lambda x: x + 0.75, abs=np.abs)


def dot(q, k):
    kt, ke = np.swapaxes(k.v, -1, -2), np.swapaxes(k.e, -1, -2)
    return Number(q.v @ kt, q.e @ np.abs(kt) + np.abs(q.v) @ ke), np.abs(q.v) @ np.abs(kt)


def unit(a):
    """Vectors over their norms, which take the errors of projections along: much, where a vector is short."""
    norm = np.linalg.norm(a.v, axis=-1, keepdims=True)
    moved = (np.abs(a.v) * a.e).sum(-1, keepdims=True) / norm
    return Number(a.v / norm, np.where(norm > 0, (a.e + np.abs(a.v) * moved / norm) / norm, 0))


def scores(spec, d, q, k, w, u):
    """The score of each pair and the largest magnitude on the way to it."""
    kind = spec["kind"]
    if kind in ("dot", "general", "cosine"):
        if kind == "general":
            q = linear(q, w["general"], None, u)
        if kind == "cosine":
            q, k = unit(q), unit(k)
        s, terms = dot(q, k)
        factor = scale_of(spec, d) * (float(w["strength"]) if kind == "cosine" else 1.0)
        magnitude = np.abs(s.v) * max(abs(factor), 1.0 if u > 1e-5 else 0)
        # Long sums that cancel: a quarter of the terms' magnitudes, which widens the bound by a third or so.
        return Number(s.v * factor, s.e * abs(factor)), magnitude + abs(factor) * (terms / 4 + (kind == "cosine"))
    if kind == "location":
        s = linear(q, w["location"], None, u)
        return s, np.abs(s.v)
    if kind == "rank1":
        a, b = linear(q, w["a1"][:, None], None, u), linear(k, w["a2"][:, None], None, u)
        s = Number(a.v + np.swapaxes(b.v, -1, -2), a.e + np.swapaxes(b.e, -1, -2))
        return through(ACTIVATIONS["leaky"], s), np.abs(a.v) + np.abs(np.swapaxes(b.v, -1, -2))
    a, b = linear(q, w["aq"], None, u), linear(k, w["ak"], w["ab"], u)
    x = Number(a.v[..., :, None, :] + b.v[..., None, :, :], a.e[..., :, None, :] + b.e[..., None, :, :])
    x.e = x.e + u * (np.abs(a.v)[..., :, None, :] + np.abs(b.v)[..., None, :, :])
    x = through(ACTIVATIONS[spec["activation"]], x)
    s = linear(Number(x.v, x.e + u * np.abs(x.v)), w["av"][:, None], None, u)
    return Number(s.v[..., 0], s.e[..., 0]), np.abs(s.v[..., 0])


def aligned(spec, a):
    """A tensor of the score's rank as [b, h, i, j]."""
    a = np.asarray(a, np.float64 if a.dtype.kind == "f" else a.dtype)
    return a if a.ndim == 4 else a[:, None] if a.ndim == 3 else a[None, None]


def modify(spec, d, f, w, s, magnitude):
    i, j = np.arange(d["Sq"])[:, None], np.arange(d["P"] + d["Sk"])
    slopes = np.asarray(w["slopes"], np.float64)[:, None, None]
    for mod in spec["mods"]:
        if mod == "softcap":
            s = through(lambda x: 5.0 * np.tanh(x / 5.0), s)
        else:
            if mod == "alibi":
                added = (slopes * (j - i))[None]
            elif mod == "relpos":
                added = np.asarray(w["table"], np.float64)[np.clip(j - i + 8, 0, 16)].transpose(2, 0, 1)[None]
            elif mod == "bias":
                added = aligned(spec, f["bias"] if bias_is_input(spec) else w["bias"])
            else:
                added = aligned(spec, f["bias2"])
            with np.errstate(invalid="ignore"):
                s = Number(overflow(s.v + added, spec), s.e)
            magnitude = np.maximum(magnitude, np.where(np.isfinite(added), np.abs(added), 0))
        magnitude = np.maximum(magnitude, np.where(np.isfinite(s.v), np.abs(s.v), 0))
    return s, magnitude


def visible(spec, d, f):
    """Per mask, in order, what it shows: a boolean [b, h, i, j]; `float` apart."""
    keys = d["P"] + d["Sk"]
    i, j = np.arange(d["Sq"])[:, None], np.arange(keys)
    offset = keys - d["Sq"] if spec["align"] == "bottom" else d["P"]
    p, result = i + offset, []
    for mask in spec["masks"]:
        if mask == "causal":
            m = j <= p
        elif mask == "window":
            left, right = spec["window"]
            m = (j >= p - left) & (j <= p + right)
        elif mask == "prefix":
            m = (j <= p) | (j < spec["prefix"])
        elif mask == "blocks":
            m = i // spec["block"] == j // spec["block"]
        elif mask == "lengths":
            m = (j < f["lens"][:, None])[:, None, None]
        elif mask == "padding":
            m = (f["padding"] != 0)[:, None, None]
        elif mask == "segments":
            m = (f["segments"][:, :, None] == f["segments"][:, None, :])[:, None]
        elif mask == "dense":
            m = aligned(spec, f["dense"])
        else:
            continue
        result.append(np.broadcast_to(m, np.broadcast_shapes(np.shape(m), (1, 1, 1, 1))))
    return result


def overflow(x, spec):
    limit = 65504.0 if spec["dtype"] == "f16" else F32_MAX
    # What rounds to beyond the largest number is infinite.
    return np.where(np.abs(x) > limit * (1 + 1e-9), np.sign(x) * np.inf, x)


def masked(spec, d, f, s):
    value, how = mask_value(spec), spec["how"]
    shown = visible(spec, d, f)
    if spec["combine"] == "and" and shown:
        shown = [np.logical_and.reduce(np.broadcast_arrays(*shown))]
    v = s.v
    with np.errstate(invalid="ignore"):
        extra = [aligned(spec, f["fmask"])] if "float" in spec["masks"] else []
        if spec["combine"] == "sum" or spec["attention_op"]:
            total = 0
            for a in [np.where(m, 0.0, value) for m in shown] + extra:
                total = overflow(total + a, spec)
            v = overflow(v + total, spec)
        else:
            for m in shown:
                v = np.where(m, v, value) if how in ("where", "where_not") else overflow(v + np.where(m, 0.0, value), spec)
            for a in extra:
                v = overflow(v + a, spec)
    # What a hidden key would have scored is no error.
    return Number(v, np.where(np.isneginf(v), 0, s.e))


def normalised(spec, s, magnitude, u):
    """Weights, and the bounds of their relative errors: of those that matter in each row, and of each."""
    if spec["softmax"] in ("smooth", "gate"):
        return sigmoids(spec, s, magnitude, u)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        top = s.v.max(axis=-1, keepdims=True)
        e = np.exp(s.v - top)
        p = e / e.sum(axis=-1, keepdims=True)
    if spec["guard"] or spec["attention_op"]:
        p = np.where(np.isnan(p), 0.0, p)
    size = np.where(np.isfinite(s.v), np.abs(s.v), 0)
    with np.errstate(invalid="ignore"):
        # Scores that differ by less than they round to may change places.
        matter = s.v + u * size + s.e > (s.v - u * size).max(axis=-1, keepdims=True) - 23
    weight = np.where(matter, np.maximum(magnitude, size), 0).max(axis=-1, keepdims=True)
    delta = u * (1.5 if spec["softmax"] == "nomax" else 1) * (4 + weight) + np.where(matter, s.e, 0).max(axis=-1, keepdims=True)
    if spec["softmax"] == "nomax":
        # Where exp or its sum leaves the range, the parts give NaN, and their meaning a number: neither is wrong.
        delta = np.where(np.isfinite(top) & ((top < -60) | (top > 60)), np.inf, delta)
    own = delta + u * np.maximum(0, size - weight) + np.maximum(0, s.e - delta)
    return p, anything(delta, np.expm1(np.minimum(2 * delta, 50.0))), anything(own, np.expm1(np.minimum(4 * own, 200.0)))


def sigmoids(spec, s, magnitude, u):
    """Likewise where the weights are sigmoids, over their sum or as they are."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        p = 1 / (1 + np.exp(-s.v))
        if spec["softmax"] == "smooth":
            p = p / p.sum(axis=-1, keepdims=True)
    if spec["guard"]:
        p = np.where(np.isnan(p), 0.0, p)
    own = u * (4 + np.where(np.isfinite(s.v), np.maximum(magnitude, np.abs(s.v)), 0)) + s.e
    own = np.expm1(np.minimum(2 * own, 50.0))
    if spec["softmax"] == "smooth":
        # In a row of which every sigmoid leaves the range the graph divides 0 by 0.
        top = s.v.max(axis=-1, keepdims=True)
        own = np.where(np.isfinite(top) & (top < -80), np.inf, own)
    most = own.max(axis=-1, keepdims=True)
    return p, most, own + (most if spec["softmax"] == "smooth" else 0)


def anything(delta, bound):
    """Where `delta` is infinite, so is the bound."""
    return np.where(np.isinf(delta), np.inf, bound)


def sum_error(spec, keys):
    """The relative error of a sum over keys that `u` does not hold. Equal terms are rounded alike, so that their errors
    add up where others cancel: sums of up to 256 terms one after the other, and of those sums."""
    return 2.0**-24 * (min(keys, 256) + keys / 256) if spec["data"] == "equal" and spec["shared"] else 0.0


def attend(p, relative, v, u, floor, moved=0.0):
    """p v; `relative` bounds the relative errors of a row's weights, `moved` adds absolute ones of each."""
    with np.errstate(invalid="ignore"):
        # Values that are no numbers are those of hidden keys alone, which count nothing.
        values = np.where(np.isfinite(v.v), v.v, 0)
        out, size = p @ values, p @ np.abs(values)
        e = u * (size + np.abs(out)) + relative * size + p @ v.e + floor * p.shape[-1]
        e = e + np.broadcast_to(moved, p.shape) @ np.abs(values)
        return Number(out, np.where(np.isinf(relative), np.inf, e))


def reference(spec, d, f, w):
    """The outputs by name."""
    u, floor = U[spec["dtype"]], FLOOR[spec["dtype"]]
    q, k, v = canonical(spec, d, f, w, u)
    outputs = {}
    if spec["past"]:
        k, v = (Number(np.concatenate([f[n], a.v], 2), np.concatenate([np.zeros(f[n].shape), a.e], 2))
                for n, a in (("past_k", k), ("past_v", v)))
        if spec["present_out"]:
            outputs["present_k"], outputs["present_v"] = k, v
    if d["G"] > 1:
        k, v = (Number(np.repeat(a.v, d["G"], 1), np.repeat(a.e, d["G"], 1)) for a in (k, v))
    s, magnitude = scores(spec, d, q, k, w, u)
    s, magnitude = modify(spec, d, f, w, s, magnitude)
    s = masked(spec, d, f, s)
    p, relative, own = normalised(spec, s, magnitude, u)
    if spec["softmax"] == "smooth":
        # Sigmoids and, in a fused sum, which divides last, their products underflow before they are divided.
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            total = (1 / (1 + np.exp(-s.v))).sum(axis=-1, keepdims=True)
            floor = floor / np.where(total > 0, np.minimum(1.0, total), 1.0)
    if spec["weights"] == "weights":
        outputs["weights"] = Number(p, np.where(np.isinf(own), np.inf, p * (own + 2 * u) + floor))
    elif spec["weights"] == "turned":
        outputs["weights"] = Number(*(a.transpose(0, 3, 1, 2) for a in (p, np.where(np.isinf(own), np.inf, p * (own + 2 * u) + floor))))
    elif spec["weights"] == "mean":
        outputs["weights"] = Number(p.mean(1), np.where(np.isinf(own), np.inf, p * (own + 4 * u) + floor).mean(1))
    moved = np.zeros_like(p)
    for step in spec["after"]:
        if step == "headmask":
            p = p * np.asarray(w["headmask"], np.float64)
        elif step == "gauss":
            centre = np.asarray(f["centre"], np.float64)[:, None, None, None]
            place = np.arange(d["P"] + d["Sk"])
            z = (place - centre) ** 2 / 8.0
            # Positions are rounded to the type, too, and what they make grows exponentially.
            step = u * (place + np.abs(centre))
            shift = 8 * u * (1 + z) + (2 * np.abs(place - centre) * step + step**2) / 8.0
            p = p * np.exp(-z)
            moved = p * np.expm1(np.minimum(shift, 500.0))
    same = sum_error(spec, p.shape[-1])
    out = attend(p, relative + same, v, u, floor, moved)
    if spec["second"]:
        s, magnitude = dot(out, k)
        s = Number(s.v * 0.25, s.e * 0.25)
        p, relative, _ = normalised({"softmax": "op", "guard": False, "attention_op": False}, s, magnitude * 0.25, u)
        out = attend(p, relative + same, v, u, floor)
    for function in spec["behind"]:
        out = elementwise(function, out, u, HALF_STEP[spec["dtype"]])
    outputs["out"] = finish(spec, d, f, w, out, u)
    squeeze(spec, outputs)
    return outputs


def finish(spec, d, f, w, out, u):
    if spec["merge"] != "none":
        b, h, s, e = out.v.shape
        out = Number(*(a.transpose(0, 2, 1, 3).reshape(b, 1, s, h * e) for a in (out.v, out.e)))
    if spec["merge"] == "proj":
        out = linear(out, w["wo"], w["bo"], u)
        if spec["tail"] == "residual":
            x = np.asarray(f["x"], np.float64)[:, None]
            out = Number(out.v + x, out.e + u * (np.abs(out.v) + np.abs(x)))
    if spec["tail"] == "relu":
        out = through(lambda x: np.maximum(x, 0), out)
    if spec["tail"] in ("classifier", "featurewise"):
        floor = FLOOR[spec["dtype"]]
        if spec["tail"] == "classifier":
            out = linear(out, w["wc"], None, u)
        with np.errstate(invalid="ignore"):
            e = np.exp(out.v - out.v.max(axis=-1, keepdims=True))
            p = e / e.sum(axis=-1, keepdims=True)
        exponent = 2 * (out.e.max(axis=-1, keepdims=True) + u * (4 + np.abs(out.v).max(axis=-1, keepdims=True)))
        relative = np.where(np.isfinite(out.e.max(axis=-1, keepdims=True)), np.expm1(np.minimum(exponent, 50.0)), np.inf)
        # Which is the largest of numbers that are off by more than this nobody knows: any weight.
        anyone = np.where(exponent >= 50, 1.0, 0.0)
        if spec["tail"] == "classifier":
            out = Number(p, p * (relative + 4 * u) + anyone + floor)
        else:
            out = Number(p * out.v, np.abs(out.v) * (p * (relative + 4 * u) + anyone) + (p + anyone) * out.e + floor)
    return out


def squeeze(spec, outputs):
    """Takes away the dimensions that the layout does not have."""
    layout, letters = spec["layout"], score_letters(spec)
    for name, n in outputs.items():
        if name.startswith("present"):
            continue
        single = n.v.shape[1] == 1 and (name == "out" and (spec["merge"] != "none" or "h" not in letters))
        take = (slice(None), 0) if single else ()
        if name == "weights":
            take = (slice(None), 0) if "h" not in letters and n.v.ndim == 4 else ()
        if layout == "2d":
            take = (0, 0) if n.v.ndim == 4 else (0,)
        elif layout in ("step", "time"):
            take = (slice(None), 0, 0) if n.v.ndim == 4 else (slice(None), 0)
        n.v, n.e = n.v[take], n.e[take]

