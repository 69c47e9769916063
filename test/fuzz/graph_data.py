"""The tensors of a spec: weights, and the inputs of one run."""
import ml_dtypes
import numpy as np

NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


def mask_value(spec):
    dtype = NUMPY[spec["dtype"]]
    return float(dtype({"-inf": -np.inf, "min": ml_dtypes.finfo(dtype).min, "-1e4": -1e4, "-1e9": -1e9}[spec["value"]]))


def scale_of(spec, d):
    if spec["scale"] == "none":
        return 1.0
    if spec["scale"] in ("runtime", "default") or spec["scale_value"] is None:
        return d["D"] ** -0.5
    if spec["scale"] in ("both", "attr"):  # each side is multiplied by the root
        return abs(spec["scale_value"])
    return spec["scale_value"]


def score_letters(spec):
    """The dimensions of the score tensor that a mask meets."""
    return {"3d": "bij", "step": "bij", "time": "bij", "2d": "ij"}.get(spec["layout"], "bhij")


def kept(spec, letters):
    """`letters` of the score dimensions, the others dropped: 'b1ij' of 'bij' is 'bij'."""
    return "".join(c if c in letters else "1" for c in score_letters(spec))


def extent(d, letter):
    return {"b": d["B"], "h": d["H"] * d["G"], "i": d["Sq"], "j": d["P"] + d["Sk"], "1": 1}[letter]


def bias_is_input(spec):
    dynamic = {"B": "b", "Sq": "ij" if not spec["cross"] else "i", "Sk": "j", "P": "j"}
    return any(c in kept(spec, spec["bias_dims"]) for n in spec["dynamic"] for c in dynamic[n])


def weights(spec):
    """Constants of the model, at the sizes of the spec."""
    d, dtype = spec["dims"], NUMPY[spec["dtype"]]
    rng = np.random.default_rng(spec["seed"])
    heads = d["H"] * d["G"]

    def normal(*shape, scale=1.0):
        return (rng.standard_normal(shape) * scale).astype(dtype)

    w, kind = {}, spec["kind"]
    if spec["pre"] != "none":
        for name, width in (("q", heads * d["D"]), ("k", d["H"] * d["D"]), ("v", d["H"] * d["Dv"])):
            w["w" + name] = normal(d["E"], width, scale=d["E"] ** -0.5)
            w["b" + name] = normal(width, scale=0.3)
    if kind == "general":
        w["general"] = normal(d["D"], d["D"], scale=d["D"] ** -0.5)
    if kind in ("additive", "concat"):
        w["aq"], w["ak"] = normal(d["D"], d["A"], scale=d["D"] ** -0.5), normal(d["D"], d["A"], scale=d["D"] ** -0.5)
        w["ab"], w["av"] = normal(d["A"], scale=0.3), normal(d["A"])
    if kind == "rank1":
        w["graph"] = normal(d["D"], d["D"], scale=d["D"] ** -0.5)
        w["a1"], w["a2"] = normal(d["D"]), normal(d["D"])
    if kind == "location":
        w["location"] = normal(d["D"], d["Sk"], scale=d["D"] ** -0.5)
    if kind == "cosine":
        w["strength"] = np.asarray(rng.uniform(1, 8), dtype)
    w["bias"] = normal(*(extent(d, c) for c in kept(spec, spec["bias_dims"])))
    w["slopes"] = (2.0 ** -np.arange(1, heads + 1)).astype(dtype)
    w["table"] = normal(17, heads)
    w["headmask"] = rng.integers(0, 2, (1, heads, 1, 1)).astype(dtype)
    w["wo"], w["bo"] = normal(heads * d["Dv"], d["E"], scale=(heads * d["Dv"]) ** -0.5), normal(d["E"], scale=0.3)
    width = {"none": d["Dv"], "heads": heads * d["Dv"], "proj": d["E"]}[spec["merge"]]
    w["wc"] = normal(width, 5)
    return w


def feeds(spec, d, run):
    """The inputs of run number `run` at the sizes `d`, by the name of the graph input."""
    dtype = NUMPY[spec["dtype"]]
    rng = np.random.default_rng([spec["seed"], run, 7])
    heads, data = d["H"] * d["G"], spec["data"]
    keys = d["P"] + d["Sk"]

    def normal(*shape, scale=1.0):
        return (rng.standard_normal(shape) * scale).astype(dtype)

    f, layout = {}, spec["layout"]
    if spec["pre"] != "none":
        f["x"] = normal(d["B"], d["Sq"], d["E"])
        if spec["cross"]:
            f["y"] = normal(d["B"], d["Sk"], d["E"])
    elif spec["kind"] == "rank1":
        f["x"] = normal(d["B"], d["Sq"], d["D"])
    else:
        for name, h, s, e in (("q", heads, d["Sq"], d["D"]), ("k", d["H"], d["Sk"], d["D"]), ("v", d["H"], d["Sk"], d["Dv"])):
            if name == "k" and spec["kind"] == "location":
                continue
            a = normal(d["B"], h, s, e)
            if data == "equal" and name == "k":
                a = np.broadcast_to(a[:, :, :1], a.shape).copy()
            if name == "q" and data == "big" and spec["kind"] != "cosine":
                a = (a * (1e4 / max(1.0, 3.0 * d["D"] ** 0.5))).astype(dtype)
            if name == "q" and data == "onehot":
                a = np.eye(e, dtype=dtype)[rng.integers(0, e, (d["B"], h, s))] * dtype(8)
            if data == "tiny" and name == "v":
                a = (a * 1e-30).astype(dtype)
            if name == "q" and data == "special":
                a[..., ::2] = -0.0
            if name == "q" and data == "nan_query":
                a[rng.random(a.shape[:3]) < 0.2, -1] = np.nan
            f[name] = in_layout(layout, name, a)
        if spec["shared"]:
            f["v"] = f["k"]
    if spec["past"]:
        f["past_k"], f["past_v"] = normal(d["B"], d["H"], d["P"], d["D"]), normal(d["B"], d["H"], d["P"], d["Dv"])
    mask_inputs(spec, d, rng, f)
    if "bias" in spec["mods"] and bias_is_input(spec):
        f["bias"] = normal(*(extent(d, c) for c in kept(spec, spec["bias_dims"])))
    if "bias_input" in spec["mods"]:
        f["bias2"] = normal(*(extent(d, c) for c in kept(spec, spec["bias_dims"])))
        if spec["row_mask"]:
            f["bias2"] = np.where(rng.random(f["bias2"].shape) < 0.4, mask_value(spec), 0).astype(dtype)
    if "gauss" in spec["after"]:
        f["centre"] = (rng.uniform(0, keys, d["B"])).astype(dtype)
    if data in ("poison", "special") and "v" in f and spec["value"] == "-inf" and "lengths" in spec["masks"]:
        hide(spec, d, f, rng)
    return f


def hide(spec, d, f, rng):
    """Puts into values (and keys, where the score is not computed with) that no query sees what would show."""
    special = spec["data"] == "special"
    for name in "vk" if special and hides_scores(spec) and "k" in f else "v":
        layout = spec["layout"]
        axis = {"bhsd": 2, "kt": 3 if name == "k" else 2, "bshd": 1, "keras": 1, "packed": 1, "bh": 1, "3d": 1, "step": 1,
                "time": 0, "2d": 0}[layout]
        for b, n in enumerate(f["lens"]):
            at = [slice(None)] * f[name].ndim
            if layout != "2d":
                at[layout == "time"] = b
            at[axis] = slice(max(0, int(n) - d["P"]), None)
            part = f[name][tuple(at)]
            # Finite and large, or no number.
            f[name][tuple(at)] = rng.choice([np.nan, np.inf, -np.inf, -0.0], part.shape) if special else 1e30


def hides_scores(spec):
    """Whether what a hidden key scores is replaced, and not added to."""
    return spec["how"] in ("where", "where_not") and spec["combine"] != "sum" and not spec["attention_op"]


def in_layout(layout, name, a):
    b, h, s, e = a.shape
    if layout in ("bshd", "keras"):
        return np.ascontiguousarray(a.transpose(0, 2, 1, 3))
    if layout in ("packed", "bh"):
        return np.ascontiguousarray(a.transpose(0, 2, 1, 3)).reshape(b, s, h * e)
    if layout == "kt" and name == "k":
        return np.ascontiguousarray(a.transpose(0, 1, 3, 2))
    if layout == "3d":
        return a[:, 0]
    if layout == "2d":
        return a[0, 0]
    if layout == "time" and name != "q":
        return np.ascontiguousarray(a[:, 0].transpose(1, 0, 2))
    if layout in ("step", "time"):
        return a[:, 0, 0] if name == "q" else a[:, 0]
    return a


def mask_inputs(spec, d, rng, f):
    dtype, keys = NUMPY[spec["dtype"]], d["P"] + d["Sk"]
    if "lengths" in spec["masks"]:
        # Zero hides every key of a batch.
        low = 0 if rng.random() < 0.3 else 1
        f["lens"] = rng.integers(low, keys + 1, d["B"]).astype(np.int64)
    if "padding" in spec["masks"]:
        lens = rng.integers(0 if rng.random() < 0.2 else 1, keys + 1, d["B"])
        f["padding"] = (np.arange(keys) < lens[:, None]).astype(np.int64)
    shape = [extent(d, c) for c in kept(spec, spec["mask_dims"])]
    if "dense" in spec["masks"]:
        f["dense"] = rng.random(shape) < rng.choice([0.1, 0.5, 0.9])
    if "float" in spec["masks"]:
        f["fmask"] = np.where(rng.random(shape) < rng.choice([0.3, 0.8]), 0, mask_value(spec)).astype(dtype)
    if "segments" in spec["masks"]:
        f["segments"] = np.sort(rng.integers(0, 4, (d["B"], d["Sq"])), axis=1).astype(np.int64)
