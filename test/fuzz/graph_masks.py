"""Positions, masks and score modifications of a spec, spelled as ONNX nodes: a part of graph_onnx.Emitter."""
import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from graph_data import bias_is_input, mask_value, score_letters
from graph_spec import run_dims

ELEMENT = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float16): TensorProto.FLOAT16,
           np.dtype(ml_dtypes.bfloat16): TensorProto.BFLOAT16,
           np.dtype(np.int64): TensorProto.INT64, np.dtype(bool): TensorProto.BOOL}


class MaskEmitter:
    def rows(self, offset=True):
        """Query positions [Sq, 1] and key positions [T], int64."""
        if self.s["position"] == "cumsum":
            ones = self.op("Expand", self.ints(1), self.size("Sq"))
            i = self.op("Sub", self.op("CumSum", ones, self.const(0, np.int64)), self.ints(1))
        else:
            i = self.range("Sq")
        i = self.unsqueeze(i, 1)
        if offset and self.offset_size() is not None:
            i = self.op("Add", i, self.offset_size())
        return i, self.range("T")

    def range(self, n):
        if not self.is_dynamic(n):
            size = self.d[n] if n != "T" else self.d["P"] + self.d["Sk"]
            return self.const(np.arange(size), np.int64)
        return self.op("Range", self.const(0, np.int64), self.size0(n), self.const(1, np.int64))

    def offset_size(self):
        if self.s["align"] == "bottom":
            return self.op("Sub", self.size("T"), self.size("Sq"))
        return self.size("P") if self.s["past"] else None

    def position(self, left, right):
        """Keys from `left` before the query's position to `right` after it (None: no end), [Sq, T] of bool."""
        how, runs = self.s["position"], run_dims(self.s)
        offsets = [d["P"] + d["Sk"] - d["Sq"] if self.s["align"] == "bottom" else d["P"] for d in runs]
        if how == "table" and min(offsets) < 0 or how in ("trilu", "trilu_upper") and self.s["opset"] < 14:
            how = "le"
        if how in ("const", "table"):
            n = max(max(o + d["Sq"], d["P"] + d["Sk"]) for o, d in zip(offsets, runs)) + 3
            base = offsets[0] if how == "const" else 0
            i, j = np.arange(-4 - max(0, -base), n)[:, None] + 4 + max(0, -base) + base, np.arange(n)
            table = np.ones((i.shape[0], n), bool)
            if left is not None:
                table &= j >= i - left
            if right is not None:
                table &= j <= i + right
            if how == "const":
                return self.const(table[:self.d["Sq"], :self.d["P"] + self.d["Sk"]], bool)
            start = self.offset_size() or self.ints(0)
            t = self.op("Slice", self.const(table, bool), start, self.op("Add", start, self.size("Sq")), self.ints(0))
            return self.op("Slice", t, self.ints(0), self.size("T"), self.ints(1))
        if how in ("trilu", "trilu_upper"):
            return self.by_trilu(left, right, how)
        i, j = self.rows()
        if how == "range_cast":
            i, j = (self.op("Cast", a, to=TensorProto.FLOAT) for a in (i, j))
        terms = []
        for end, op_type, sign in ((right, "LessOrEqual", 1), (left, "GreaterOrEqual", -1)):
            if end is None:
                continue
            number = self.const([sign * end], np.float32 if how == "range_cast" else np.int64)
            limit = self.op("Add", i, number) if end else i
            if how in ("sub", "range_cast"):
                terms.append(self.op(op_type, self.op("Sub", j, i), number))
            elif how == "ge":
                terms.append(self.op("GreaterOrEqual" if sign > 0 else "LessOrEqual", limit, j))
            elif how == "not_gt":
                terms.append(self.op("Not", self.op("Greater" if sign > 0 else "Less", j, limit)))
            else:
                terms.append(self.op(op_type, j, limit))
        return terms[0] if len(terms) == 1 else self.op("And", *terms)

    def by_trilu(self, left, right, how):
        shape = self.op("Concat", self.size("Sq"), self.size("T"), axis=0)
        value = helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])
        ones = self.op("ConstantOfShape", shape, value=value) if self.r.random() < 0.5 else self.op(
            "Expand", self.const(1.0, np.float32), shape)

        def diagonal(n):
            offset = self.offset_size()
            k = self.const(n, np.int64)
            return k if offset is None else self.op("Add", self.squeeze(offset, 0), k)

        terms = []
        if right is not None:
            if how == "trilu":
                terms.append(self.op("Cast", self.op("Trilu", ones, diagonal(right), upper=0), to=TensorProto.BOOL))
            else:
                upper = self.op("Trilu", ones, diagonal(right + 1), upper=1)
                terms.append(self.op("Equal", upper, self.const(0.0, np.float32)) if self.r.random() < 0.5 else
                             self.op("Not", self.op("Cast", upper, to=TensorProto.BOOL)))
        if left is not None:
            terms.append(self.op("Cast", self.op("Trilu", ones, diagonal(-left), upper=1), to=TensorProto.BOOL))
        return terms[0] if len(terms) == 1 else self.op("And", *terms)

    def visible(self, mask):
        """A mask as bool, in a shape that broadcasts to the scores."""
        s = self.s
        if mask == "causal":
            return self.dress(self.position(None, 0))
        if mask == "window":
            return self.dress(self.position(*s["window"]))
        if mask == "prefix":
            return self.dress(self.op("Or", self.position(None, 0), self.op("Less", self.range("T"), self.ints(s["prefix"]))))
        if mask == "blocks":
            i, j = self.rows(offset=False)
            block = self.ints(s["block"])
            return self.dress(self.op("Equal", self.op("Div", i, block), self.op("Div", j, block)))
        if mask == "lengths":
            letters = score_letters(s)
            lens = self.unsqueeze("lens", *range(1, len(letters))) if "b" in letters else "lens"
            return self.op("Less", self.range("T"), lens) if self.r.random() < 0.6 else self.op("Greater", lens, self.range("T"))
        if mask == "padding":
            how = self.r.randrange(3)
            m = "padding"
            if how == 0:
                m = self.op("Cast", m, to=TensorProto.BOOL)
            elif how == 1:
                m = self.op("Not", self.op("Equal", m, self.ints(0)))
            else:
                m = self.op("Greater", self.op("Cast", m, to=TensorProto.FLOAT), self.const(0.5, np.float32))
            return self.lift(m, "bj")
        if mask == "segments":
            a, b = self.unsqueeze("segments", 2), self.unsqueeze("segments", 1)
            return self.lift(self.op("Equal", a, b), "bij") if "b" in score_letters(s) else self.squeeze(self.op("Equal", a, b), 0)
        return "dense"

    def dress(self, m):
        """A [Sq, T] mask, sometimes as [1, 1, Sq, T]."""
        if self.r.random() < 0.4 and len(score_letters(self.s)) > 2:
            return self.unsqueeze(m, *range(len(score_letters(self.s)) - 2))
        return m

    def additive_mask(self, m):
        value = mask_value(self.s)
        if np.isfinite(value) and self.s["how"] == "add_mul":
            x = self.op("Cast", m, to=ELEMENT[np.dtype(self.dtype)])
            return self.op("Mul", self.op("Sub", self.scalar(1), x), self.scalar(value))
        return self.op("Where", m, self.scalar(0), self.scalar(value))

    def apply_masks(self, x):
        s, value = self.s, mask_value(self.s)
        if not s["masks"]:
            return x
        merged = s["layout"] == "bh"
        if merged:
            x = self.reshape(x, "B", self.d["H"] * self.d["G"], "Sq", "T")
        shown = [self.visible(m) for m in s["masks"] if m != "float"]
        floats = ["fmask"] if "float" in s["masks"] else []
        if s["combine"] == "and" and shown:
            m = shown[0]
            for other in shown[1:]:
                m = self.commute("And", m, other)
            shown = [m]
        if s["combine"] == "sum":
            parts = [self.additive_mask(m) for m in shown] + floats
            total = parts[0]
            for p in parts[1:]:
                total = self.op("Add", total, p)
            x = self.commute("Add", x, total)
        else:
            for m in shown:
                if s["how"] == "where":
                    x = self.op("Where", m, x, self.scalar(value))
                elif s["how"] == "where_not":
                    x = self.op("Where", self.op("Not", m), self.scalar(value), x)
                else:
                    x = self.commute("Add", x, self.additive_mask(m))
            for m in floats:
                x = self.commute("Add", x, m)
        return self.reshape(x, -1, "Sq", "T") if merged else x

    def modify(self, x):
        s, letters = self.s, score_letters(self.s)
        merged = s["layout"] == "bh" and s["mods"]
        if merged:
            x = self.reshape(x, "B", self.d["H"] * self.d["G"], "Sq", "T")
        heads = "h" in letters
        for mod in s["mods"]:
            if mod == "softcap":
                x = self.op("Mul", self.op("Tanh", self.op("Div", x, self.scalar(5.0))), self.scalar(5.0))
                continue
            if mod in ("alibi", "relpos"):
                i, j = self.rows(offset=False)
                distance = self.op("Sub", j, i)
            if mod == "alibi":
                slopes = self.const(self.w["slopes"].reshape((-1, 1, 1) if heads else ()))
                added = self.op("Mul", slopes, self.op("Cast", distance, to=ELEMENT[np.dtype(self.dtype)]))
            elif mod == "relpos":
                at = self.op("Add", self.op("Max", self.op("Min", distance, self.ints(8)), self.ints(-8)), self.ints(8))
                added = self.op("Gather", self.const(self.w["table"] if heads else self.w["table"][:, 0]), at, axis=0)
                added = self.op("Transpose", added, perm=[2, 0, 1]) if heads else added
            elif mod == "bias":
                added = "bias" if bias_is_input(s) else self.const(self.w["bias"])
            else:
                added = "bias2"
            x = self.commute("Add", x, added)
        return self.reshape(x, -1, "Sq", "T") if merged else x
