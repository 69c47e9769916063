"""Random models of several layers: what holds them together, and attentions of graph_onnx.py as their layers.

A model is a hidden state [B, S, E] that goes through blocks (model_blocks.py, model_bodies.py). Every number is drawn
from the seed. `make(seed)` gives a Model; `Model.proto()` is it at the opset that it was written for, which
model_versions.py spells for others, and `Model.feeds(run)` the inputs of a run at its sizes.
"""
import contextlib

import numpy as np
import onnx
from onnx import helper

import graph_data
import graph_onnx
import graph_spec
import seeds
from graph_masks import ELEMENT
from graph_writer import Writer

LAYOUTS = ["packed", "packed", "bh", "bhsd", "bhsd", "bshd", "kt", "keras", "3d"]
KINDS = ["dot"] * 12 + ["general", "cosine", "additive", "concat", "rank1"]
OPSETS = [17, 17, 18, 18, 20, 21, 23, 24, 25, 28]
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 31, 33]


class Model(Writer):
    def __init__(self, seed):
        r = seeds.Draws(seed)
        kind = r.choice(["f32"] * 8 + ["f16", "bf16"])
        super().__init__(r, graph_data.NUMPY[kind], r.choice(OPSETS if kind != "bf16" else [23, 24, 25, 28]))
        # Models for opsets before 17 have no operator that came later.
        self.old = self.opset < 20 and r.random() < 0.7
        self.seed, self.kind = seeds.first(seed), kind
        self.rng = np.random.default_rng([self.seed, 3])
        self.width = r.choice([4, 8, 8, 12, 16, 16, 24, 32])
        self.sizes = {"B": r.choice([1, 1, 2, 3]), "Sq": r.choice(LENGTHS), "Sk": r.choice(LENGTHS), "P": r.choice([1, 3, 8])}
        self.dynamic = [n for n in self.sizes if r.random() < 0.4]
        self.runs = [self.sizes, dict(self.sizes, **{n: self.other_size(n) for n in self.dynamic})]
        self.given = []  # what draws each input: name -> array of a run
        self.depth = 0  # of bodies of control flow
        self.blocks = []  # their names, for messages
        self.shared = None  # a seed of weights that several layers have
        self.same_masks = r.random() < 0.6
        self.mask_seed = r.randrange(1 << 30)
        self.masked = {}  # mask inputs that layers share

    def other_size(self, n):
        return self.r.choice({"B": [1, 2, 4], "P": [0, 1, 2, 9]}.get(n, LENGTHS))

    def normal(self, *shape, scale=1.0):
        return (self.rng.standard_normal(shape) * scale).astype(self.dtype)

    def weight(self, rows, columns):
        """A matrix from `rows` to `columns` features, as a constant or as the transpose of one."""
        value = self.normal(rows, columns, scale=rows**-0.5)
        if self.r.random() < 0.2:
            return self.op("Transpose", self.const(np.ascontiguousarray(value.T)), perm=[1, 0])
        return self.const(value)

    def linear(self, x, rows, columns, bias=True):
        x = self.op("MatMul", x, self.weight(rows, columns))
        return self.commute("Add", x, self.const(self.normal(columns, scale=0.3))) if bias else x

    def input(self, name, dims, draw, dtype=None):
        """A graph input; `draw(sizes, rng)` gives what it holds in a run."""
        shape = [d if not isinstance(d, str) or d in self.dynamic else self.sizes[d] for d in dims]
        self.inputs.append(helper.make_tensor_value_info(name, ELEMENT[np.dtype(dtype or self.dtype)], shape))
        self.given.append((name, draw))
        return name

    def output(self, x, name, dtype=None):
        self.op("Identity", x, name=name)
        self.outputs.append(helper.make_tensor_value_info(name, ELEMENT[np.dtype(dtype or self.dtype)], None))

    @contextlib.contextmanager
    def body(self):
        """What is written inside goes into a list of its own, for a branch or a loop."""
        outer, self.nodes = self.nodes, []
        self.depth += 1
        try:
            yield self.nodes
        finally:
            self.nodes = outer
            self.depth -= 1

    def proto(self):
        used = used_names(self.nodes)
        graph = helper.make_graph(self.nodes, f"seed-{self.seed}", [i for i in self.inputs if i.name in used], self.outputs,
                                  [t for t in self.inits if t.name in used])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return typed(model)

    def feeds(self, run):
        rng = np.random.default_rng([self.seed, run, 11])
        return {name: draw(self.runs[run], rng, run) for name, draw in self.given}

    #===------------------------------------------------------------------===#
    # Attention
    #===------------------------------------------------------------------===#

    def attention_spec(self, crosses):
        """A spec of graph_spec.py that fits this model: its sizes, type and opset, and what reads a hidden state."""
        r = self.r
        s = graph_spec.sample(r.randrange(1 << 30))
        s.update(kind=r.choice(KINDS), dtype=self.kind, data="normal", long=False, open=False, tail="none", merge="proj",
                 before=[], behind=[b for b in s["behind"] if b != "scale"][:1], cross=crosses, dynamic=list(self.dynamic))
        s["layout"] = r.choice(LAYOUTS) if s["kind"] in ("dot", "cosine") else "3d"
        s["attention_op"] = s["attention_op"] and self.opset >= 23 and s["layout"] in ("bhsd", "packed")
        s["pre"] = r.choice(["none", "proj", "qkv"]) if s["layout"] in ("packed", "bh", "3d") and not crosses else "none"
        if s["kind"] == "rank1" and crosses:
            s["kind"] = "dot"
        if s["gqa"] == "none" and r.random() < 0.4:
            s["gqa"] = r.choice(["expand", "gather", "concat", "grouped"])
        s["past"] = s["past"] and s["layout"] not in ("bh", "kt", "keras")
        if self.depth:  # what a body has cannot be an output of the graph, and a cache is one
            s["weights"], s["past"], s["present_out"] = "none", False, False
        s["dims"].update(self.sizes, D=r.choice([2, 4, 5, 8, 16]), H=r.choice([1, 2, 3]), G=r.choice([2, 3, 4]), E=self.width, A=r.choice([3, 8]))
        s["dims"]["Dv"] = s["dims"]["D"] if r.random() < 0.8 else r.choice([3, 8])
        if "segments" in s["masks"] and crosses:
            s["masks"].remove("segments")
        s["opset"] = self.opset
        if s["masks"] and s["softmax"] == "nomax":  # no sum of a row that sees nothing
            s["softmax"] = "decomposed"
        self.leave_no_nan(s)
        s["runs"] = [{n: run[n] for n in s["dynamic"]} for run in self.runs]
        s = graph_spec.normalise(s)
        s["opset"] = self.opset
        if not s["past"]:
            s["dims"]["P"] = 0
        return s

    @staticmethod
    def leave_no_nan(s):
        """A row that sees no key is not NaN, which the next attention may or may not take from a hidden key."""
        if s["attention_op"]:
            s["masks"] = [m for m in s["masks"] if m in ("causal", "prefix", "lengths", "padding")]
            s["align"] = "top"
        elif s["masks"] and (s["value"] == "-inf" or s["softmax"] in ("smooth", "gate") or s.get("row_mask")):
            # Sigmoids that are all 0 have no sum (a gate may become one that has it), two of the lowest numbers are -inf.
            s["guard"] = True

    def spec_dims(self, spec, sizes):
        d = dict(spec["dims"], **sizes)
        d["P"] = d["P"] if spec["past"] else 0
        d["Sk"] = d["Sk"] if spec["cross"] else d["Sq"]
        return d

    def attention(self, x, memory=None):
        """[B, Sq, E] attends to itself or to `memory`, [B, Sk, E]."""
        spec = self.attention_spec(memory is not None)
        if self.shared is not None:
            spec["seed"] = self.shared
        if spec["kind"] == "rank1":
            given = {"x": self.linear(x, self.width, spec["dims"]["D"])}
        elif spec["pre"] != "none":
            given = {"x": x}
        else:
            given = self.operands(spec, x, memory or x)
        feeds = graph_data.feeds(spec, self.spec_dims(spec, self.sizes), 0)
        block = graph_onnx.Emitter(spec, feeds)
        block.count = self.count
        out = block.finish(block.attention())
        self.graft(block, spec, given)
        return out

    def operands(self, spec, x, memory):
        """Queries, keys and values in the spec's layout, projected from hidden states."""
        d, layout, given = spec["dims"], spec["layout"], {}
        turns = self.r.random() < 0.3 and spec["kind"] == "dot" and d["D"] % 2 == 0 and layout in ("bshd", "bhsd")
        for name, source, heads, size in (("q", x, d["H"] * d["G"], d["D"]), ("k", memory, d["H"], d["D"]),
                                          ("v", memory, d["H"], d["Dv"])):
            if name == "k" and spec["kind"] == "location" or name == "v" and spec["shared"]:
                continue
            h = self.linear(source, self.width, heads * size, bias=self.r.random() < 0.6)
            if layout in ("bshd", "keras", "bhsd", "kt"):
                h = self.op("Reshape", h, self.ints(0, 0, heads, size))
            if turns and name != "v":
                h = self.rotary(h, size)
            if layout in ("bhsd", "kt"):
                h = self.op("Transpose", h, perm=[0, 2, 3, 1] if layout == "kt" and name == "k" else [0, 2, 1, 3])
            given[name] = h
        if spec["shared"]:
            given["v"] = given["k"]
        return given

    def rotary(self, x, size):
        """Rotates the features of [B, S, H, D] by their position: halves, pairs, or a part of them."""
        part = size if size < 4 or self.r.random() < 0.7 else size // 4 * 2
        angles = np.outer(np.arange(64), 100.0 ** (-np.arange(0, part, 2) / part))
        length = self.op("Gather", self.op("Shape", x), self.const(1, np.int64), axis=0)
        at = self.op("Range", self.const(0, np.int64), length, self.const(1, np.int64))
        both = [self.op("Gather", self.const(f(angles)), at, axis=0) for f in (np.cos, np.sin)]
        cos, sin = (self.unsqueeze(t, 0, 2) for t in both)
        rest = None
        if part != size:
            x, rest = self.op("Split", x, self.ints(part, size - part), n=2, axis=3)
        if self.r.random() < 0.5:  # neighbours are a pair
            pairs = self.op("Reshape", x, self.ints(0, 0, 0, part // 2, 2))
            a, b = (self.op("Gather", pairs, self.const(n, np.int64), axis=4) for n in (0, 1))
            a, b = self.turned(a, b, cos, sin)
            x = self.op("Concat", self.unsqueeze(a, 4), self.unsqueeze(b, 4), axis=4)
            x = self.op("Reshape", x, self.ints(0, 0, -1, part))
        else:
            a, b = (self.op("Slice", x, self.ints(n), self.ints(n + part // 2), self.ints(3)) for n in (0, part // 2))
            if self.r.random() < 0.5:
                x = self.op("Concat", *self.turned(a, b, cos, sin), axis=3)
            else:
                swapped = self.op("Concat", self.op("Neg", b), a, axis=3)
                cos, sin = (self.op("Concat", t, t, axis=3) for t in (cos, sin))
                x = self.op("Add", self.op("Mul", x, cos), self.op("Mul", swapped, sin))
        return x if rest is None else self.op("Concat", x, rest, axis=3)

    def turned(self, a, b, cos, sin):
        return [self.op("Sub", self.op("Mul", a, cos), self.op("Mul", b, sin)),
                self.op("Add", self.op("Mul", b, cos), self.op("Mul", a, sin))]

    def graft(self, block, spec, given):
        """Takes over the nodes of an attention, whose inputs are `given` or become inputs of the model."""
        names = dict(given)
        for info in block.inputs:
            if info.name not in names and info.name in used_names(block.nodes):
                names[info.name] = self.mask_input(info, spec)
        prefix = f"layer{len(self.blocks)}_"
        for info in block.outputs:
            names[info.name] = prefix + info.name
            self.outputs.append(helper.make_tensor_value_info(prefix + info.name, info.type.tensor_type.elem_type, None))
        for node in block.nodes:
            for field in (node.input, node.output):
                field[:] = [names.get(n, n) for n in field]
        self.nodes += block.nodes
        self.inits += block.inits
        self.count = block.count

    def mask_input(self, info, spec):
        """The input that a mask, bias or cache of an attention is; layers may share their masks."""
        kind = info.name
        dims = [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim]
        key = (kind, *dims)
        if self.same_masks and key in self.masked and kind not in ("past_k", "past_v"):
            return self.masked[key]
        name = f"layer{len(self.blocks)}_{kind}" if key in self.masked or kind.startswith("past") else kind
        name = name if name not in {i.name for i in self.inputs} else f"{name}_{self.count}"
        self.count += 1

        def draw(sizes, rng, run):
            d = self.spec_dims(spec, sizes)
            value = graph_data.feeds(dict(spec, seed=spec["seed"] % 1000 + 1), d, run)[kind]
            if kind == "lens":
                value = np.maximum(value, 1)
            if kind == "padding":
                value[:, 0] = 1
            return value

        info = helper.make_tensor_value_info(name, info.type.tensor_type.elem_type, dims)
        self.inputs.append(info)
        self.given.append((name, draw))
        self.masked[key] = name
        return name


def used_names(nodes):
    """What the nodes read, those of their bodies included."""
    names = set()
    for node in nodes:
        names.update(node.input)
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                names |= used_names(a.g.node) | {o.name for o in a.g.output}
    return names


def typed(model):
    """With the types of all values."""
    return onnx.shape_inference.infer_shapes(model)


def make(seed):
    """The model of `seed`."""
    import model_blocks
    m = Model(seed)
    x = model_blocks.beginning(m)
    memory = model_blocks.memory(m) if m.r.random() < 0.35 else None
    for _ in range(m.r.choice([1, 1, 1, 1, 1, 2, 2, 3])):  # what two layers make of each other is seldom new in more
        x = model_blocks.layer(m, x, memory)
    model_blocks.ending(m, x)
    return m
