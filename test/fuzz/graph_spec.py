"""What a random attention graph is: the axes, one sample of them, and how a failing sample shrinks.

A spec is a dictionary of plain values (it goes to spec.json). graph_onnx.py spells it as ONNX,
graph_reference.py says in float64 what it means; neither knows the other.
"""
import copy
import itertools
import random

SIZES = [1, 2, 3, 5, 7, 8, 13, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 127, 128, 129, 255, 256, 257, 513]
LONG = [511, 1027, 2050, 4097, 5200]  # keys of a few queries
HEAD_SIZES = [1, 3, 8, 16, 32, 40, 59, 64, 80, 96, 111, 128, 192, 256]
KINDS = ["dot"] * 12 + ["general", "cosine", "additive", "additive", "concat", "rank1", "location"]
LAYOUTS = ["bhsd", "bhsd", "bshd", "packed", "packed", "bh", "3d", "kt", "2d", "step", "keras", "time"]
HEAD_LAYOUTS = ("bhsd", "bshd", "packed", "bh", "kt", "keras")
STEPS = ("step", "time")
SCALES = ["none", "mul", "div", "mul", "div", "q_mul", "q_div", "k_mul", "both", "runtime", "q_before_split"]
SOFTMAXES = ["op"] * 6 + ["op_axis", "decomposed", "decomposed", "reciprocal", "nomax", "log_exp", "transposed", "cast", "smooth", "gate"]
MASKS = ["causal", "causal", "window", "lengths", "padding", "dense", "float", "blocks", "segments", "prefix"]
MASK_HOW = ["add_where", "add_mul", "where", "where_not", "add_where", "where"]
POSITIONS = ["const", "table", "trilu", "trilu_upper", "le", "ge", "not_gt", "sub", "cumsum", "range_cast"]
DATA = ["normal"] * 6 + ["equal", "big", "tiny", "onehot", "poison", "special", "nan_query"]
NARROW = ("f16", "bf16")
ELEMENTWISE = ["tanh", "relu", "scale", "shift", "abs", "sigmoid"]
# The axes whose pairs are counted.
AXES = ["kind", "layout", "dtype", "scale", "softmax", "guard", "combine", "how", "value", "gqa", "pre", "merge", "kt",
        "contract", "weights", "second", "tail", "data", "cross", "opset", "after0", "mod0", "mask0", "row_mask", "position", "dyn", "long", "open", "shared", "around"]


def sample(seed):
    r = random.Random(seed)
    kind = r.choice(KINDS)
    spec = {"seed": seed, "kind": kind, "dtype": "f32", "opset": r.choice([13, 14, 17, 17, 18, 20, 21])}
    spec["layout"] = r.choice(LAYOUTS)
    if kind in ("additive", "concat", "rank1", "location"):
        spec["layout"] = r.choice(["3d", "3d", "step", "time"]) if kind in ("additive", "concat") else "3d"
    elif kind == "general":
        spec["layout"] = r.choice(["3d", "step", "2d"])
    spec["attention_op"] = kind == "dot" and spec["layout"] in ("bhsd", "packed") and r.random() < 0.3
    if kind == "dot" and r.random() < 0.2:
        spec["dtype"] = r.choice(NARROW)
    heads = spec["layout"] in HEAD_LAYOUTS
    spec["gqa"] = r.choice(["expand", "gather", "concat", "grouped"]) if heads and r.random() < 0.4 else "none"
    spec["pre"] = r.choice(["none", "proj", "qkv"]) if spec["layout"] in ("packed", "bh", "3d") else "none"
    spec["cross"] = kind != "rank1" and spec["pre"] != "qkv" and r.random() < 0.4
    spec["past"] = heads and spec["layout"] not in ("bh", "kt", "keras") and r.random() < 0.12
    spec["present_out"] = spec["past"] and r.random() < 0.7
    spec["scale"] = r.choice(SCALES)
    spec["scale_value"] = r.choice([None, None, None, 0.125, 1.7, -0.3])
    spec["kt"] = r.choice(["perm", "perm", "direct", "einsum", "reshape3", "swapped"])
    spec["mods"] = r.sample(["softcap", "alibi", "bias", "bias", "relpos", "bias_input"], k=r.choice([0, 0, 0, 1, 1, 2]))
    spec["bias_dims"] = "".join(c for c in "bhij" if r.random() < 0.6)
    masks = r.sample(MASKS, k=r.choice([0, 1, 1, 1, 1, 2, 2, 3]))
    spec["masks"] = list(dict.fromkeys(masks))
    spec["align"] = r.choice(["top", "top", "bottom"])
    spec["window"] = [r.choice([0, 1, 2, 3, 7, 16, 40]), r.choice([0, 0, 1, 2, 5, 16, -1])]
    spec["prefix"] = r.choice([1, 2, 5, 9])
    spec["block"] = r.choice([1, 2, 4, 8, 16])
    spec["mask_dims"] = r.choice(["ij", "b1ij", "bhij", "b11j", "1hij", "11ij"])
    spec["position"] = r.choice(POSITIONS)
    spec["how"] = r.choice(MASK_HOW)
    spec["combine"] = r.choice(["and", "and", "each", "sum"])
    spec["value"] = r.choice(["-inf", "-inf", "min", "min", "-1e4", "-1e9"])
    spec["softmax"] = r.choice(SOFTMAXES)
    spec["guard"] = bool(spec["masks"]) and spec["value"] == "-inf" and r.random() < 0.4
    spec["after"] = [a for a in ("dropout", "identity", "headmask", "gauss") if r.random() < 0.08]
    spec["contract"] = r.choice(["matmul", "matmul", "matmul", "einsum", "mulsum"])
    spec["weights"] = r.choice(["none"] * 5 + ["weights", "mean", "turned"])
    spec["merge"] = r.choice(["none", "heads", "proj"])
    spec["second"] = r.random() < 0.07
    spec["tail"] = r.choice(["none"] * 10 + ["classifier", "featurewise", "relu", "residual"])
    spec["data"] = r.choice(DATA)
    if spec["data"] in ("poison", "special"):
        spec["masks"], spec["value"] = list(dict.fromkeys(["lengths"] + spec["masks"][:2])), "-inf"
    spec["long"] = r.random() < 0.08
    spec["open"] = r.random() < 0.1
    spec["shared"] = r.random() < 0.08
    spec["before"] = [[r.choice("qkv"), r.choice(ELEMENTWISE)] for _ in range(r.choice([0, 0, 0, 0, 1, 2, 3]))]
    spec["behind"] = [r.choice(ELEMENTWISE) for _ in range(r.choice([0, 0, 0, 0, 1, 2]))]
    spec["activation"] = r.choice(["tanh", "tanh", "relu", "leaky", "identity", "sigmoid"])
    spec["additive_how"] = r.choice(["matmul", "mulsum"])
    spec["style"] = r.randrange(1 << 30)
    sample_sizes(spec, r)
    r = random.Random(~seed)
    # A mask by queries, as a number added to the scores, beside the others.
    spec["row_mask"] = bool(spec["masks"]) and r.random() < 0.06
    return normalise(spec)


def sample_sizes(spec, r):
    def size():
        return r.choice(SIZES)

    def draw():
        d = {"B": r.choice([1, 1, 2, 3, 4]), "H": r.choice([1, 2, 3, 4, 8]), "G": r.choice([2, 3, 4, 5, 8, 16]),
             "Sq": r.randrange(1, 6) if spec["long"] else size(), "Sk": r.choice(LONG) if spec["long"] else size(), "P": r.choice([1, 3, 8, 31]), "D": r.choice(HEAD_SIZES), "A": r.choice([1, 4, 7, 16, 33])}
        d["Dv"] = d["D"] if r.random() < 0.7 else r.choice(HEAD_SIZES)
        d["E"] = r.choice([4, 12, 32])
        return d

    d = draw()
    while not small_enough(d):
        d = draw()
    spec["dims"] = d
    spec["dynamic"] = [n for n in ("B", "Sq", "Sk", "P") if r.random() < 0.5]
    spec["runs"] = []
    for _ in range(2):
        for _ in range(50):
            other = dict(d, **{n: draw()[n] for n in spec["dynamic"]})
            if "P" in spec["dynamic"] and r.random() < 0.3:
                other["P"] = 0  # an empty cache
            if small_enough(other):
                spec["runs"].append({n: other[n] for n in spec["dynamic"]})
                break


def small_enough(d):
    return d["B"] * d["H"] * d["G"] * d["Sq"] * (d["Sk"] + d["P"]) * (d["D"] + d["Dv"]) <= 1.2e7


def normalise(spec):
    """Makes the axes agree with each other; also after one was changed."""
    s, d = spec, spec["dims"]
    heads = s["layout"] in HEAD_LAYOUTS
    if s["dtype"] in NARROW:
        s["kind"] = "dot"
    if s["dtype"] == "bf16":  # Einsum has no such type
        s["layout"] = "bshd" if s["layout"] == "keras" else s["layout"]
        s["kt"], s["contract"] = (n if n != "einsum" else m for n, m in ((s["kt"], "perm"), (s["contract"], "matmul")))
        s["opset"] = max(s["opset"], 22)
    if s["layout"] == "keras":
        s["gqa"], s["past"], s["kt"], s["contract"] = "none", False, "einsum", "einsum"
    if s["layout"] == "time":
        s["kind"] = s["kind"] if s["kind"] in ("dot", "additive") else "dot"
        s["kt"], s["contract"], s["second"] = "perm", "mulsum", False
    if not heads:
        d["H"] = 1
        s["gqa"], s["past"], s["present_out"] = "none", False, False
    if s["gqa"] == "none":
        d["G"] = 1
    if not s["past"]:
        d["P"], s["present_out"] = 0, False
    if s["layout"] in STEPS:
        d["Sq"], s["cross"] = 1, True
    if s["layout"] == "2d":
        d["B"] = 1
    if s["long"]:
        s["cross"], s["pre"] = True, "none" if s["pre"] == "qkv" else s["pre"]
    if s["kind"] in ("rank1",) or s["pre"] == "qkv":
        s["cross"] = s["long"] = False
    if s["kind"] == "rank1":
        d["Dv"], s["pre"] = d["D"], "none"
    if s["kind"] in ("rank1", "location") or s["pre"] != "none" or s["layout"] == "kt" or s["data"] in ("poison", "special", "tiny"):
        s["shared"] = False
    if s["shared"]:
        d["Dv"] = d["D"]
    if s["pre"] != "none" or s["kind"] == "rank1" or s["attention_op"]:
        s["before"] = []
    s["before"] = [b for b in s["before"] if (b[0] != "k" or s["kind"] != "location") and not (s["shared"] and b[0] != "q")]
    if s["kind"] == "cosine":  # nothing is made 0, whose direction is NaN in one spelling and 0 in another
        s["before"] = [[name, "tanh" if function == "relu" and name != "v" else function] for name, function in s["before"]]
    s["around"] = len(s["before"]) + len(s["behind"])
    if not s["cross"]:
        d["Sk"] = d["Sq"]
    if s["attention_op"]:
        s["opset"], s["gqa"] = max(s["opset"], 23), "op" if s["gqa"] != "none" else "none"
        s["softmax"], s["guard"], s["kt"], s["contract"], s["after"], s["weights"] = "op", False, "perm", "matmul", [], "none"
        s["value"], s["combine"] = "-inf", "and"
        s["scale"] = "attr" if s["scale"] != "none" else "default"
        s["mods"] = sorted(s["mods"], key=lambda m: m != "softcap")
    elif s["gqa"] == "op" or s["scale"] in ("attr", "default"):
        s["gqa"], s["scale"], d["G"] = "none", "mul", 1
    if s["contract"] == "mulsum" and s["layout"] not in STEPS:
        s["contract"] = "matmul"
    if s["gqa"] == "grouped" and s["layout"] == "bh":
        s["gqa"] = "expand"
    if s["gqa"] == "grouped":
        s["kt"], s["contract"] = "perm", "matmul"
    if s["kind"] == "location" and "Sk" in s["dynamic"]:
        s["dynamic"].remove("Sk")
    if s["kind"] == "location" and not s["cross"]:
        s["dynamic"] = [n for n in s["dynamic"] if n != "Sq"]
    if not s["cross"]:
        s["dynamic"] = [n for n in s["dynamic"] if n != "Sk"]
    if not s["past"]:
        s["dynamic"] = [n for n in s["dynamic"] if n != "P"]
    if d["Sq"] == d["P"] + d["Sk"] == 1 and not {"Sq", "Sk", "P"} & set(s["dynamic"]):
        s["window"] = [max(0, side) for side in s["window"]]  # which hides the only key from a score: none is left
    if s["layout"] in STEPS:
        s["dynamic"] = [n for n in s["dynamic"] if n != "Sq"]
    if s["layout"] == "2d":
        s["dynamic"] = [n for n in s["dynamic"] if n != "B"]
    if "segments" in s["masks"] and (s["cross"] or s["past"]):
        s["masks"].remove("segments")
    if s["value"] == "-inf" and s["how"] == "add_mul":
        s["how"] = "add_where"
    # In half precision two of the lowest numbers overflow, or do not, by the precision between the operators.
    if s["dtype"] in NARROW and s["value"] in ("-1e9", "min"):
        s["value"] = "-1e4"
    s["row_mask"] = s.get("row_mask", False) and bool(s["masks"]) and s["dtype"] == "f32" and not s["attention_op"]
    if s["row_mask"]:
        s["mods"] = [m for m in s["mods"] if m != "bias_input"] + ["bias_input"]
        s["bias_dims"] = "bi"
    if not s["masks"]:
        s["guard"] = False
    if s["guard"]:
        s["value"] = "-inf"
    if s["softmax"] == "nomax" and s["data"] in ("big",):
        s["data"] = "normal"
    # Scores that come near the constant are outside what is assumed of it.
    if s["data"] == "big" and s["value"] == "-1e4":
        s["value"] = "-1e9"
    if s["data"] == "nan_query" and (s["guard"] or s["attention_op"] or s["tail"] != "none" or s["second"]):
        s["data"] = "normal"
    # Where no kernel leaves hidden keys out, they show; a sum of sigmoids has no mask to do so.
    if s["data"] == "special" and (s["second"] or s["open"] or s["softmax"] in ("smooth", "gate")):
        s["data"] = "poison"
    if s["data"] in ("nan_query", "special", "poison", "big", "tiny"):
        s["before"], s["behind"] = [], []
        s["around"] = 0
    if s["softmax"] in ("smooth", "gate") and s["data"] in ("big",):
        s["data"] = "normal"  # sums of zeros
    # A sigmoid that nothing sums is an attention's by the matrix products around it alone.
    if s["softmax"] == "gate" and (s["kind"] not in ("dot", "general", "cosine") or s["contract"] == "mulsum"):
        s["softmax"] = "smooth"
    if s["dtype"] in NARROW:
        if s["data"] in ("big", "tiny", "poison"):
            s["data"] = "normal"
        if s["softmax"] in ("nomax", "log_exp", "decomposed", "reciprocal", "smooth", "gate"):
            s["softmax"] = "cast"
    if s["kind"] in ("additive", "concat", "rank1", "location"):
        s["scale"], s["kt"] = "none", "perm"
    if s["scale"] == "q_before_split" and (s["layout"] not in ("packed", "bh") or s["kind"] == "cosine"):
        s["scale"] = "q_mul"
    if s["kt"] == "direct" and (s["layout"] not in ("bshd", "packed") or s["past"] or s["gqa"] != "none"):
        s["kt"] = "perm"
    if s["layout"] == "kt" and s["kt"] in ("direct", "einsum", "reshape3", "swapped"):
        s["kt"] = "perm"
    if s["layout"] in ("3d", "bh", "step", "2d", "time") and s["kt"] == "reshape3":
        s["kt"] = "perm"
    if s["second"] and (d["Dv"] != d["D"] or s["gqa"] == "grouped" or s["attention_op"] or s["layout"] in ("step", "time", "2d", "kt", "bh", "keras") or s["kind"] != "dot"):
        s["second"] = False
    if s["second"]:
        s["kt"] = "perm"
    if s["tail"] == "residual" and s["merge"] != "proj":
        s["merge"] = "proj" if s["pre"] != "none" else s["merge"]
    if s["tail"] == "residual" and s["pre"] == "none":
        s["tail"] = "none"
    if s["position"] == "table" and s["align"] == "bottom" and s["layout"] in STEPS:
        s["position"] = "le"  # a row that is cut out by sizes of the run: that it is one is not known
    if s["position"] in ("const",) and set(s["dynamic"]) & {"Sq", "Sk", "P"}:
        s["position"] = "table"
    if "causal" not in s["masks"] and "window" not in s["masks"] and "prefix" not in s["masks"] and s["position"] == "table":
        s["position"] = "le"
    if s["layout"] == "2d":
        s["mask_dims"] = "ij"
        s["bias_dims"] = "".join(c for c in s["bias_dims"] if c in "ij")
    if not heads:
        s["weights"] = "weights" if s["weights"] != "none" else "none"
        s["after"] = [a for a in s["after"] if a != "headmask"]
    s["runs"] = [dict((n, run[n]) for n in s["dynamic"] if n in run) for run in s["runs"]]
    runs = [r for r in s["runs"] if len(r) == len(s["dynamic"])]
    s["runs"] = runs if s["dynamic"] else []
    return s


def run_dims(spec):
    """The sizes of each run: the model's own, then those of the dynamic dimensions."""
    result = []
    for run in [{}] + spec["runs"]:
        d = dict(spec["dims"], **run)
        if not spec["cross"]:
            d["Sk"] = d["Sq"]
        if d not in result:
            result.append(d)
    return result


def expected_fused(spec):
    return 2 if spec["second"] else 1


def expected_kinds(spec):
    """The kinds of score that may be reported, the one meant first."""
    if all(spec["dims"][n] == 1 and n not in spec["dynamic"] for n in ("Sq", "Sk")) and spec["kind"] in ("rank1", "location", "concat"):
        return ["additive", "given", "dot"]  # the weight is 1 whatever the score is
    if spec["kind"] in ("additive", "concat") and spec["activation"] == "identity":
        return ["additive", "given", "dot"]  # the query's term cancels, and any form serves
    if spec["kind"] == "concat" and spec["open"]:
        return ["additive", "given", "dot"]  # where the two parts meet is not known
    if spec["kind"] in ("additive", "concat", "rank1"):
        return ["additive", "dot"] if spec["second"] else ["additive"]
    return ["given", "dot"] if spec["kind"] == "location" else ["dot"]


def values(spec):
    v = {a: spec[a] for a in AXES if a in spec}
    v["after0"] = (spec["after"] or ["none"])[0]
    v["mod0"] = (spec["mods"] or ["none"])[0]
    v["mask0"] = (spec["masks"] or ["none"])[0]
    v["dyn"] = bool(spec["dynamic"])
    return v


def pairs(spec):
    return set(itertools.combinations(sorted(values(spec).items(), key=lambda kv: kv[0]), 2))


SIMPLEST = {"row_mask": False, "second": False, "tail": "none", "weights": "none", "merge": "none", "pre": "none", "after": [], "mods": [],
            "guard": False, "gqa": "none", "past": False, "present_out": False, "scale": "none", "softmax": "op",
            "contract": "matmul", "kt": "perm", "combine": "and", "dynamic": [], "masks": [], "data": "normal",
            "cross": False, "position": "le", "how": "where", "scale_value": None, "value": "-inf", "attention_op": False,
            "before": [], "behind": [], "open": False, "shared": False, "dtype": "f32", "opset": 17, "activation": "tanh", "additive_how": "matmul", "runs": [], "style": 0}


def simpler(spec):
    """Specs one step simpler than `spec`, the most promising first."""
    for axis, value in SIMPLEST.items():
        if axis in spec and spec[axis] != value:
            other = copy.deepcopy(spec)
            other[axis] = copy.copy(value)
            yield normalise(other)
    for axis in ("masks", "mods", "after"):
        for i in range(len(spec[axis])):
            other = copy.deepcopy(spec)
            del other[axis][i]
            yield normalise(other)
    if spec["layout"] not in ("bhsd", "3d", "step"):
        other = copy.deepcopy(spec)
        other["layout"] = "bhsd" if spec["dims"]["H"] > 1 else "3d"
        yield normalise(other)
    for name, size in spec["dims"].items():
        for smaller in sorted({1, 2, 4, size // 2, size - 1}):
            if 0 < smaller < size:
                other = copy.deepcopy(spec)
                other["dims"][name] = smaller
                yield normalise(other)
