"""Spells a spec as an ONNX model, in the ways that exporters do."""
import random

import numpy as np
import onnx
from onnx import TensorProto, helper

from graph_data import NUMPY, kept, scale_of, score_letters, weights
from graph_masks import ELEMENT, MaskEmitter
from graph_spec import STEPS
from graph_writer import Writer

INPUT_DIMS = {"x": ["B", "Sq", None], "y": ["B", "Sk", None], "lens": ["B"], "padding": ["B", "T"], "segments": ["B", "Sq"],
              "past_k": ["B", None, "P", None], "past_v": ["B", None, "P", None], "centre": ["B"]}
LAYOUT_DIMS = {"bhsd": ["B", None, "S", None], "kt": ["B", None, "S", None], "bshd": ["B", "S", None, None],
               "packed": ["B", "S", None], "bh": ["B", "S", None], "3d": ["B", "S", None], "2d": ["S", None],
               "step": ["B", "S", None], "time": ["S", "B", None], "keras": ["B", "S", None, None]}


class Emitter(MaskEmitter, Writer):
    def __init__(self, spec, feeds):
        super().__init__(random.Random(spec["style"]), NUMPY[spec["dtype"]], spec["opset"])
        self.s, self.d, self.feeds = spec, spec["dims"], feeds
        self.w = weights(spec)
        self.dynamic = set(spec["dynamic"])
        self.alias = {} if spec["cross"] else {"Sk": "Sq"}
        self.where = {}  # a dynamic dimension -> (input, axis)
        for name, value in feeds.items():
            self.add_input(name, value)

    def dim_name(self, n):
        return self.alias.get(n, n)

    def is_dynamic(self, n):
        if n == "T":
            return self.is_dynamic("Sk") or (self.s["past"] and "P" in self.dynamic)
        return self.dim_name(n) in self.dynamic

    def add_input(self, name, value):
        if name in ("q", "k", "v"):
            dims = [("Sq" if name == "q" else "Sk") if n == "S" else n for n in LAYOUT_DIMS[self.s["layout"]]]
            if self.s["layout"] in STEPS and name == "q":
                dims = ["B", None]
            if self.s["layout"] == "kt" and name == "k":
                dims = ["B", None, None, "Sk"]
        elif name in ("dense", "fmask", "bias", "bias2"):
            letters = self.s["mask_dims"] if name in ("dense", "fmask") else self.s["bias_dims"]
            dims = [{"b": "B", "i": "Sq", "j": "T"}.get(c) for c in kept(self.s, letters)]
        else:
            dims = INPUT_DIMS[name]
        shape = []
        for axis, (n, size) in enumerate(zip(dims, value.shape)):
            if n and self.is_dynamic(n):
                n = "Sk" if n == "T" and not self.s["past"] else n
                n = self.dim_name(n)
                shape.append(n)
                self.where.setdefault(n, (name, axis))
            elif self.s["open"] and size != 1:
                shape.append(n or f"{name}_{axis}")
            else:
                shape.append(size)
        self.inputs.append(helper.make_tensor_value_info(name, ELEMENT[value.dtype], shape))

    def size(self, n):
        """A dimension as an int64[1]."""
        if n == "T" and self.s["past"]:
            if not self.is_dynamic("T"):
                return self.ints(self.d["P"] + self.d["Sk"])
            return self.op("Add", self.size("P"), self.size("Sk"))
        n = self.dim_name("Sk" if n == "T" else n)
        if n not in self.dynamic:
            return self.ints(self.d[n])
        source, axis = self.where[n]
        if self.s["opset"] >= 15 and self.r.random() < 0.3:
            return self.op("Shape", source, start=axis, end=axis + 1)
        shape = self.op("Shape", source)
        if self.r.random() < 0.5:
            return self.op("Slice", shape, self.ints(axis), self.ints(axis + 1), self.ints(0))
        return self.unsqueeze(self.op("Gather", shape, self.const(axis, np.int64), axis=0), 0)

    def size0(self, n):
        return self.squeeze(self.size(n), 0)

    def reshape(self, x, *dims):
        """Dimensions as numbers, names, or 0 (copied); at most one unknown becomes -1 where that can be said."""
        parts = [(self.d[self.dim_name(n)] if n != "T" else self.d["P"] + self.d["Sk"]) if isinstance(n, str) and not self.is_dynamic(n)
                 else n for n in dims]
        names = [n for n in parts if isinstance(n, str)]
        if len(names) <= 1 and -1 not in parts and self.r.random() < 0.7:
            parts = [-1 if isinstance(n, str) else n for n in parts]
            names = []
        if not names:
            return self.op("Reshape", x, self.ints(*parts))
        return self.op("Reshape", x, self.op("Concat", *(self.size(n) if isinstance(n, str) else self.ints(n) for n in parts), axis=0))

    def lift(self, x, present):
        """A tensor of the dimensions `present` (a part of 'bhij') to the rank of the scores."""
        letters = score_letters(self.s)
        first = min((letters.index(c) for c in present if c in letters), default=len(letters))
        axes = [i for i, c in enumerate(letters) if c not in present and i > first]
        axes = [a for a in axes]
        if present and letters[0] in present and axes:
            return self.unsqueeze(x, *axes)
        return x

    def to_heads(self, x, n, heads, size, kt=False):
        """[B, S, heads*size] to [B, heads, S, size], or to [B, heads, size, S]."""
        x = self.op("Reshape", x, self.ints(0, *self.r.choice([(0, heads, size), (-1, heads, size), (0, heads, -1)]))) \
            if self.r.random() < 0.6 else self.reshape(x, "B", n, heads, size)
        return self.op("Transpose", x, perm=[0, 2, 3, 1] if kt else [0, 2, 1, 3])

    def operands(self):
        s, d, layout = self.s, self.d, self.s["layout"]
        heads = d["H"] * d["G"]
        self.direct = s["kt"] == "direct"
        if s["kind"] == "rank1":
            h = self.op("MatMul", "x", self.const(self.w["graph"]))
            return h, h, h
        if s["pre"] != "none":
            q, k, v = self.project()
        else:
            parts = {"q": "q", "k": "k" if s["kind"] != "location" else None, "v": "k" if s["shared"] else "v"}
            for name, function in s["before"]:
                parts[name] = self.elementwise(parts[name], function)
            q, k, v = parts.values()
        if self.r.random() < 0.15:
            q = self.op("Identity", q)
        if layout == "bshd":
            q, v = (self.op("Transpose", a, perm=[0, 2, 1, 3]) for a in (q, v))
            k = self.op("Transpose", k, perm=[0, 2, 3, 1] if self.direct else [0, 2, 1, 3])
        elif layout in ("packed", "bh"):
            if s["scale"] == "q_before_split":
                q = self.op("Mul", q, self.scalar(self.factor()))
            q = self.to_heads(q, "Sq", heads, d["D"])
            k = self.to_heads(k, "Sk", d["H"], d["D"], self.direct)
            v = self.to_heads(v, "Sk", d["H"], d["Dv"])
        elif layout == "step":
            q = self.unsqueeze(q, 1) if s["kind"] not in ("additive", "concat") else q
        return q, k, v

    def elementwise(self, x, function):
        if function in ("scale", "shift"):
            return self.commute("Mul" if function == "scale" else "Add", x, self.scalar(0.75))
        return self.op({"tanh": "Tanh", "relu": "Relu", "abs": "Abs", "sigmoid": "Sigmoid"}[function], x)

    def project(self):
        s, d, w = self.s, self.d, self.w
        parts = []
        if s["pre"] == "qkv":
            x = self.op("MatMul", "x", self.const(np.concatenate([w["wq"], w["wk"], w["wv"]], 1)))
            x = self.commute("Add", x, self.const(np.concatenate([w["bq"], w["bk"], w["bv"]])))
            sizes = [w["w" + n].shape[1] for n in "qkv"]
            if self.r.random() < 0.5:
                return self.op("Split", x, self.ints(*sizes), n=3, axis=-1)
            at = np.cumsum([0] + sizes)
            return [self.op("Slice", x, self.ints(at[i]), self.ints(at[i + 1]), self.ints(2)) for i in range(3)]
        for n in "qkv":
            x = "x" if n == "q" or not s["cross"] else "y"
            if self.r.random() < 0.3:
                weight = self.op("Transpose", self.const(np.ascontiguousarray(w["w" + n].T)), perm=[1, 0])
            else:
                weight = self.const(w["w" + n])
            parts.append(self.commute("Add", self.op("MatMul", x, weight), self.const(w["b" + n])))
        return parts

    def repeat(self, x, n, size, transposed=False):
        """Key or value heads for the groups of query heads."""
        how, h, g = self.s["gqa"], self.d["H"], self.d["G"]
        if how in ("none", "op", "grouped"):
            return x
        if how == "gather":
            return self.op("Gather", x, self.const(np.repeat(np.arange(h), g), np.int64), axis=1)
        last = [size, n] if transposed else [n, size]
        x = self.unsqueeze(x, 2)
        if how == "concat":
            x = self.op("Concat", *[x] * g, axis=2)
        elif self.r.random() < 0.5:
            x = self.op("Expand", x, self.ints(1, 1, g, 1, 1))
        else:
            sizes = [self.size(m) if isinstance(m, str) else self.ints(m) for m in ["B", h, g, *last]]
            x = self.op("Expand", x, self.op("Concat", *sizes, axis=0))
        return self.reshape(x, "B", h * g, *last)

    def factor(self):
        return scale_of(self.s, self.d)

    def dot_scores(self, q, k):
        s, d, layout = self.s, self.d, self.s["layout"]
        if s["kind"] == "general":
            q = self.op("MatMul", q, self.const(self.w["general"]))
        if s["kind"] == "cosine":
            q, k = self.normalise(q, -1), self.normalise(k, -2 if self.direct or layout == "kt" else -1)
        if s["kind"] == "cosine" and self.r.random() < 0.5:
            q = self.op("Mul", q, self.const(self.w["strength"]))
        elif s["kind"] == "cosine":
            k = self.op("Mul", k, self.const(self.w["strength"]))
        how, factor = s["scale"], self.factor()
        if how == "q_mul":
            q = self.commute("Mul", q, self.scalar(factor))
        elif how == "q_div":
            q = self.op("Div", q, self.scalar(1 / factor))
        elif how == "k_mul":
            k = self.commute("Mul", k, self.scalar(factor))
        elif how == "both":
            q, k = (self.op("Mul", a, self.scalar(factor**0.5)) for a in (q, k))
        if s["gqa"] == "grouped":
            q = self.reshape(q, "B", d["H"], -1, d["D"])
        if layout == "time":
            return self.from_time(self.reduce_sum(self.commute("Mul", k, q), -1, 0), how, factor, q)
        if layout == "keras":
            x = self.op("Einsum", k, q, equation="aecd,abcd->acbe") if self.r.random() < 0.5 else self.op(
                "Einsum", q, k, equation="bihd,bjhd->bhij")
            return self.scaled(x, how, factor, q)
        if s["kt"] == "swapped":
            x = self.transposed(self.op("MatMul", k, self.transposed(q)))
            return self.scaled(x, how, factor, q)
        k = k if self.direct or layout == "kt" else self.transposed(k)
        if s["kt"] == "einsum":
            x = self.op("Einsum", q, k, equation={4: "bhid,bhjd->bhij", 3: "bid,bjd->bij", 2: "id,jd->ij"}[self.rank()])
        else:
            x = self.op("MatMul", q, k)
        if s["gqa"] == "grouped":
            x = self.reshape(x, "B", d["H"] * d["G"], "Sq", "T")
        return self.scaled(x, how, factor, q)

    def from_time(self, x, how="none", factor=1, q=None):
        """Scores [Sk, B] of a step as [B, 1, Sk]."""
        return self.unsqueeze(self.op("Transpose", self.scaled(x, how, factor, q), perm=[1, 0]), 1)

    def scaled(self, x, how, factor, q):
        """The scores times the factor, if that comes after the product."""
        if how == "mul":
            x = self.commute("Mul", x, self.scalar(factor))
        elif how == "div":
            x = self.op("Div", x, self.scalar(1 / factor))
        elif how == "runtime":
            size = self.op("Gather", self.op("Shape", q), self.const(-1, np.int64), axis=0)
            x = self.op("Div", x, self.op("Sqrt", self.op("Cast", size, to=ELEMENT[np.dtype(self.dtype)])))
        return x

    def rank(self):
        return {"3d": 3, "step": 3, "time": 3, "bh": 3, "2d": 2}.get(self.s["layout"], 4)

    def normalise(self, x, axis):
        how = self.r.randrange(3)
        if how == 0:
            return self.op("LpNormalization", x, axis=axis, p=2)
        if how == 1:
            return self.op("Div", x, self.reduce("ReduceL2", x, axis, 1))
        return self.op("Div", x, self.op("Sqrt", self.reduce_sum(self.op("Mul", x, x), axis, 1)))

    def transposed(self, k):
        how, rank = self.s["kt"], self.rank()
        if how == "einsum":
            return k
        if how == "reshape3":
            flat = self.reshape(k, -1, "T", self.d["D"]) if self.is_dynamic("T") else self.op(
                "Reshape", k, self.ints(-1, self.d["P"] + self.d["Sk"], self.d["D"]))
            flat = self.op("Transpose", flat, perm=[0, 2, 1])
            return self.reshape(flat, "B", self.d["H"] * self.d["G"], self.d["D"], "T")
        perm = list(range(rank))
        perm[-1], perm[-2] = perm[-2], perm[-1]
        return self.op("Transpose", k, perm=perm)

    def activate(self, x):
        name = self.s["activation"]
        if name == "leaky":
            return self.op("LeakyRelu", x, alpha=0.1)
        return x if name == "identity" else self.op({"tanh": "Tanh", "relu": "Relu", "sigmoid": "Sigmoid"}[name], x)

    def additive_scores(self, q, k):
        """[B, Sq, Sk] from q [B, Sq, D] (a step: [B, D]) and k [B, Sk, D]."""
        s, w, step, time = self.s, self.w, self.s["layout"] in STEPS, self.s["layout"] == "time"
        if s["kind"] == "concat":
            q = self.unsqueeze(q, 1) if step else self.unsqueeze(q, 2)
            k = k if step else self.unsqueeze(k, 1)
            middle = [self.size("Sk")] if step else [self.size("Sq"), self.size("Sk")]
            shape = self.op("Concat", self.size("B"), *middle, self.ints(self.d["D"]), axis=0)
            if self.r.random() < 0.4:
                ones = [self.ints(1)] * (1 if step else 2)
                q = self.op("Tile", q, self.op("Concat", *ones, self.size("Sk"), self.ints(1), axis=0))
            else:
                q = self.op("Expand", q, shape)
            k = k if step else self.op("Expand", k, shape)
            x = self.op("MatMul", self.op("Concat", q, k, axis=-1), self.const(np.concatenate([w["aq"], w["ak"]], 0)))
            x = self.op("Add", x, self.const(w["ab"]))
        else:
            q = self.op("MatMul", q, self.const(w["aq"]))
            k = self.commute("Add", self.op("MatMul", k, self.const(w["ak"])), self.const(w["ab"]))
            if not time:
                q = self.unsqueeze(q, 1) if step else self.unsqueeze(q, 2)
            k = k if step else self.unsqueeze(k, 1)
            x = self.commute("Add", q, k)
        x = self.activate(x)
        if s["additive_how"] == "matmul":
            x = self.squeeze(self.op("MatMul", x, self.const(w["av"][:, None])), -1)
        else:
            x = self.reduce_sum(self.op("Mul", x, self.const(w["av"])), -1, 0)
        if time:
            return self.from_time(x)
        return self.unsqueeze(x, 1) if step else x

    def scores(self, q, k):
        kind = self.s["kind"]
        if kind in ("additive", "concat"):
            return self.additive_scores(q, k)
        if kind == "location":
            return self.op("MatMul", q, self.const(self.w["location"]))
        if kind == "rank1":
            a = self.op("MatMul", q, self.const(self.w["a1"][:, None]))
            b = self.op("Transpose", self.op("MatMul", k, self.const(self.w["a2"][:, None])), perm=[0, 2, 1])
            return self.op("LeakyRelu", self.commute("Add", a, b), alpha=0.1)
        return self.dot_scores(q, k)

    def softmax(self, x):
        how, rank = self.s["softmax"], self.rank()
        if how == "op_axis":
            return self.op("Softmax", x, axis=rank - 1)
        if how == "transposed":
            perm = list(range(rank))
            perm[-1], perm[-2] = perm[-2], perm[-1]
            return self.op("Transpose", self.op("Softmax", self.op("Transpose", x, perm=perm), axis=rank - 2), perm=perm)
        if how == "cast":
            to = TensorProto.FLOAT
            return self.op("Cast", self.op("Softmax", self.op("Cast", x, to=to), axis=-1), to=ELEMENT[np.dtype(self.dtype)])
        if how == "log_exp":
            return self.op("Exp", self.op("LogSoftmax", x, axis=-1))
        if how in ("smooth", "gate"):
            p = self.op("Sigmoid", x)
            return self.op("Div", p, self.reduce_sum(p, -1, 1)) if how == "smooth" else p
        if how in ("decomposed", "reciprocal", "nomax"):
            if how != "nomax":
                x = self.op("Sub", x, self.reduce("ReduceMax", x, -1, 1))
            e = self.op("Exp", x)
            total = self.reduce_sum(e, -1, 1)
            return self.op("Mul", e, self.op("Reciprocal", total)) if how == "reciprocal" else self.op("Div", e, total)
        return self.op("Softmax", x, axis=-1)

    def after_softmax(self, p):
        s, merged = self.s, self.s["layout"] == "bh"
        if s["guard"]:
            p = self.op("Where", self.op("IsNaN", p), self.scalar(0), p)
        if s["weights"] != "none":
            self.weights_output(self.reshape(p, "B", self.d["H"] * self.d["G"], "Sq", "T") if merged else p)
        for step in s["after"]:
            if step == "dropout":
                p = self.op("Dropout", p)
            elif step == "identity":
                p = self.op("Identity", p)
            else:
                p = self.reshape(p, "B", self.d["H"] * self.d["G"], "Sq", "T") if merged else p
                if step == "headmask":
                    p = self.op("Mul", p, self.const(self.w["headmask"]))
                else:
                    letters = score_letters(s)
                    centre = self.unsqueeze("centre", *range(1, len(letters))) if "b" in letters else "centre"
                    z = self.op("Sub", self.op("Cast", self.range("T"), to=ELEMENT[np.dtype(self.dtype)]), centre)
                    z = self.op("Div", self.op("Mul", z, z), self.scalar(-8.0))
                    p = self.op("Mul", p, self.op("Exp", z))
                p = self.reshape(p, -1, "Sq", "T") if merged else p
        return p

    def weights_output(self, p):
        if self.s["weights"] == "mean":
            p = self.reduce("ReduceMean", p, 1, 0)
        elif self.s["weights"] == "turned":
            p = self.op("Transpose", p, perm=[0, 3, 1, 2])
        elif self.s["layout"] in STEPS:
            p = self.squeeze(p, 1)
        self.output(p, "weights")

    def output(self, x, name):
        self.op("Identity", x, name=name)
        self.outputs.append(helper.make_tensor_value_info(name, ELEMENT[np.dtype(self.dtype)], None))

    def contract(self, p, v):
        how, rank = self.s["contract"], self.rank()
        if self.s["layout"] == "keras":
            equation = self.r.choice(["bhij,bjhd->bihd", "acbe,aecd->abcd"])
            return self.op("Transpose", self.op("Einsum", p, v, equation=equation), perm=[0, 2, 1, 3])
        if self.s["layout"] == "time":  # [B, 1, T] and [T, B, Dv]
            p = self.unsqueeze(self.op("Transpose", self.squeeze(p, 1), perm=[1, 0]), 2)
            return self.unsqueeze(self.reduce_sum(self.commute("Mul", p, v), 0, 0), 1)
        if how == "einsum":
            return self.op("Einsum", p, v, equation={4: "bhij,bhjd->bhid", 3: "bij,bjd->bid", 2: "ij,jd->id"}[rank])
        if how == "mulsum":  # a single query: [B, 1, T] and [B, T, Dv]
            return self.reduce_sum(self.op("Mul", self.op("Transpose", p, perm=[0, 2, 1]), v), 1, 1)
        return self.op("MatMul", p, v)

    def attention_op(self, q, k, v):
        s, d = self.s, self.d
        attributes = {} if s["scale"] == "default" else {"scale": float(self.factor())}
        if s["layout"] == "packed":
            attributes.update(q_num_heads=d["H"] * d["G"], kv_num_heads=d["H"])
        mods = [m for m in s["mods"] if m != "softcap"]
        if "softcap" in s["mods"]:
            attributes["softcap"] = 5.0
        masks = [m for m in s["masks"] if m != "float"]
        if masks == ["causal"] and s["align"] == "top" and "float" not in s["masks"] and not mods:
            attributes["is_causal"], masks = 1, []
        mask = ""
        if masks and not mods and "float" not in s["masks"]:
            mask = self.visible(masks[0])
            for m in masks[1:]:
                mask = self.op("And", mask, self.visible(m))
        else:
            for m in masks:
                mask = self.additive_mask(self.visible(m)) if not mask else self.op("Add", mask, self.additive_mask(self.visible(m)))
            if "float" in s["masks"]:
                mask = self.op("Add", mask, "fmask") if mask else "fmask"
            for mod in mods:
                s["mods"], saved = [mod], s["mods"]
                zero = self.op("Expand", self.scalar(0), self.op("Concat", self.ints(1), self.ints(1), self.size("Sq"), self.size("T"), axis=0))
                added = self.modify(zero)
                s["mods"] = saved
                mask = self.op("Add", mask, added) if mask else added
        if s["past"]:
            names = ["present_k", "present_v"] if s["present_out"] else ["pk", "pv"]
            out, *present = self.op("Attention", q, k, v, mask, "past_k", "past_v", n=3, **attributes)
            if s["present_out"]:
                for x, name in zip(present, names):
                    self.output(x, name)
        else:
            out = self.op("Attention", q, k, v, mask, **attributes) if mask else self.op("Attention", q, k, v, **attributes)
        return self.to_heads(out, "Sq", d["H"] * d["G"], d["Dv"]) if s["layout"] == "packed" else out

    def attention(self):
        s, d = self.s, self.d
        heads = d["H"] * d["G"]
        if s["attention_op"]:
            q, k, v = self.project() if s["pre"] != "none" else ("q", "k", "k" if s["shared"] else "v")
            return self.attention_op(q, k, v)
        q, k, v = self.operands()
        if s["past"]:
            k, v = self.op("Concat", "past_k", k, axis=2), self.op("Concat", "past_v", v, axis=-2)
            if s["present_out"]:
                self.output(k, "present_k")
                self.output(v, "present_v")
        if heads > 1 and d["G"] > 1 and s["gqa"] != "grouped":
            k = self.repeat(k, "T", d["D"], transposed=s["layout"] == "kt")
            v = self.repeat(v, "T", d["Dv"])
        if s["layout"] == "bh":
            q = self.reshape(q, -1, "Sq", d["D"])
            k = self.reshape(k, -1, "T", d["D"])
            v = self.reshape(v, -1, "T", d["Dv"])
        x = self.apply_masks(self.modify(self.scores(q, k)))
        p = self.after_softmax(self.softmax(x))
        if s["gqa"] == "grouped":
            p = self.op("Reshape", p, self.op("Concat", self.size("B"), self.ints(d["H"], -1), self.size("T"), axis=0))
        out = self.contract(p, v)
        if s["gqa"] == "grouped":
            out = self.reshape(out, "B", heads, "Sq", d["Dv"])
        if s["second"]:
            x = self.op("Mul", self.op("MatMul", out, self.transposed(k)), self.scalar(0.25))
            if s["gqa"] == "grouped":
                raise ValueError("a second attention over grouped heads")
            out = self.op("MatMul", self.op("Softmax", x, axis=-1), v)
        return self.reshape(out, "B", heads, "Sq", d["Dv"]) if s["layout"] == "bh" else out

    def finish(self, out):
        s, d = self.s, self.d
        for function in s["behind"]:
            out = self.elementwise(out, function)
        if s["merge"] != "none" and "h" in score_letters(s):
            width = d["H"] * d["G"] * d["Dv"]
            out = self.op("Transpose", out, perm=[0, 2, 1, 3])
            out = self.op("Reshape", out, self.ints(0, 0, self.r.choice([width, -1]))) if self.r.random() < 0.6 else \
                self.reshape(out, "B", "Sq", width)
        if s["merge"] == "proj":
            out = self.commute("Add", self.op("MatMul", out, self.const(self.w["wo"])), self.const(self.w["bo"]))
            if s["tail"] == "residual":
                out = self.commute("Add", out, "x")
        if s["tail"] == "relu":
            out = self.op("Relu", out)
        elif s["tail"] == "classifier":
            out = self.op("Softmax", self.op("MatMul", out, self.const(self.w["wc"])), axis=-1)
        elif s["tail"] == "featurewise":
            out = self.op("Mul", self.op("Softmax", out, axis=-1), out)
        return self.squeeze(out, 1) if s["layout"] in STEPS else out

    def model(self):
        self.output(self.finish(self.attention()), "out")
        used = {i for n in self.nodes for i in n.input}
        inputs = [i for i in self.inputs if i.name in used]
        graph = helper.make_graph(self.nodes, "fuzz", inputs, self.outputs, self.inits)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.s["opset"])], ir_version=10)
        shaped = onnx.shape_inference.infer_shapes(model)
        known = {o.name: o for o in shaped.graph.output}
        for o in model.graph.output:
            o.CopyFrom(known[o.name])
        return model


def build(spec, feeds):
    """The ONNX model of a spec; `feeds` are the inputs at the spec's own sizes."""
    return Emitter(spec, feeds).model()
