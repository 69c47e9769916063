#!/usr/bin/env python3
"""Random models of several operators against ONNX Runtime, which runs them node by node.

    programs.py [--seed=1] [--count=200] [--jobs=2] [--gpu=sm_80]
    programs.py --replay FOLDER       a failure that an earlier run kept

Seed n is always the same model: operators are put behind each other as long as ONNX Runtime computes them, with open
dimensions and with outputs that are read further on, are inputs, or are the same. It runs at the sizes that it was made
with and at others. Inputs are small whole numbers; what has a jump (rounding, comparing) reads only what is exact, so
that no rounding decides. LLVM optimises the code of every eighth model, as in models.py. A failure is made smaller and
kept as operators.py keeps it.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import os
import pathlib
import random
import sys
import threading
import warnings

import numpy as np
import onnx
from onnx import helper

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "onnx_backend")]
import backend  # noqa: E402
import operators  # noqa: E402
import suite  # noqa: E402
from program_steps import STEPS  # noqa: E402

OPSET = 18
SIZES = {"n": 3, "m": 5, "k": 7}
OTHERS = ({"n": 1, "m": 4, "k": 2}, {"n": 6, "m": 1, "k": 9}, {"n": 2, "m": 17, "k": 1})
LARGEST = 1e6


@dataclasses.dataclass
class Value:
    name: str
    array: np.ndarray
    isExact: bool


class Program:
    """A model that grows: what it holds and what each value is at SIZES."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.seed, self.nodes, self.constants, self.values, self.inputs, self.outputs = seed, [], {}, [], {}, []

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def numbers(self, shape, dtype):
        return whole_numbers(shape, dtype, self.seed, len(self.inputs), len(shape))

    def add_input(self):
        dtype = self.r.choice([np.float32] * 5 + [np.int64] * 2 + [bool])
        dims = [self.r.choice([*SIZES, *SIZES, 1, 2, 4]) for _ in range(self.r.choice([1, 2, 2, 3, 3, 4]))]
        name = f"x{len(self.inputs)}"
        array = self.numbers([SIZES.get(d, d) for d in dims], dtype)
        self.inputs[name] = (dims, np.dtype(dtype))
        self.values.append(Value(name, array, True))

    def pick(self, accepts=lambda value: True):
        """A value that is accepted, a late one rather than an early one; None if there is none."""
        fit = [v for v in self.values if accepts(v)]
        return fit[max(self.r.randrange(len(fit)), self.r.randrange(len(fit)))] if fit else None

    def attempt(self):
        """Puts one more operator behind the others, if it can be computed."""
        count = len(self.constants)
        drawn = self.r.choice(STEPS)(self)
        if drawn and not self.append(*drawn):
            self.constants = dict(list(self.constants.items())[:count])

    def append(self, op, operands, attributes, keepsExact, results=1):
        names = [f"v{len(self.nodes)}_{n}" for n in range(results)]
        node = helper.make_node(op, [getattr(o, "name", o) for o in operands], names, **attributes)
        known = {o.name: o.array for o in operands if isinstance(o, Value)}
        graph = helper.make_graph([node], "g", [declared(n, a.shape, a.dtype) for n, a in known.items()],
                                  [onnx.ValueInfoProto(name=n) for n in names], self.initializers(node.input))
        try:
            arrays = operators.by_onnxruntime(as_model(graph), known)
        except Exception:  # of no common class
            return False
        if any(a.size > 4000 or a.ndim > 6 or a.dtype.kind not in "bif" or not np.isfinite(a).all()
               or np.abs(a.astype(float)).max(initial=0) > LARGEST for a in arrays):
            return False
        isExact = keepsExact and all(o.isExact for o in operands if isinstance(o, Value))
        self.nodes.append(node)
        self.values += [Value(n, a, isExact) for n, a in zip(names, arrays)]
        return True

    def initializers(self, names=None):
        return [onnx.numpy_helper.from_array(a, n) for n, a in self.constants.items() if names is None or n in names]

    def choose_outputs(self):
        made = [v for v in self.values if v.name not in self.inputs]
        others = self.r.sample(self.values, min(len(self.values), self.r.choice([0, 0, 1, 1, 2, 3])))
        self.outputs = list(dict.fromkeys(v.name for v in [*made[-1:], *others]))

    def model(self, outputs=None):
        """With only what the outputs need."""
        wanted, nodes = set(outputs or self.outputs), []
        for node in reversed(self.nodes):
            if wanted & set(node.output):
                nodes.insert(0, node)
                wanted |= set(node.input)
        dtypes = {v.name: v for v in self.values}
        # An output that is an input goes through Identity, as ONNX has each name once.
        outputs, infos = outputs or self.outputs, []
        for name in outputs:
            value, shown = dtypes[name], name
            if name in self.inputs:
                shown = name + "_out"
                nodes.append(helper.make_node("Identity", [name], [shown]))
            infos.append(declared(shown, [None] * value.array.ndim, value.array.dtype))
        inputs = [declared(n, dims, dtype) for n, (dims, dtype) in self.inputs.items() if n in wanted]
        return as_model(helper.make_graph(nodes, "g", inputs, infos, self.initializers(wanted)))

    def feeds(self, model, sizes):
        given = [(i.name, n, *self.inputs[i.name]) for n, i in enumerate(model.graph.input)]
        return {name: whole_numbers([sizes.get(d, d) for d in dims], dtype, self.seed, n, *sizes.values())
                for name, n, dims, dtype in given}


def whole_numbers(shape, dtype, *seed):
    return np.random.default_rng(seed).integers(*((0, 2) if dtype == bool else (-4, 5)), shape).astype(dtype)


def declared(name, dims, dtype):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), dims)


def as_model(graph):
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 9
    return model


def make(seed):
    program = Program(seed)
    for _ in range(program.r.randint(1, 3)):
        program.add_input()
    wanted = program.r.randint(2, 12)
    for _ in range(6 * wanted):
        program.attempt()
        if len(program.nodes) == wanted:
            break
    program.choose_outputs()
    return program if program.nodes else None


def is_oracles_own(model, feeds):
    """Whether ONNX Runtime's answer may differ from ONNX's: means and places of the largest over nothing, pads that
    leave less than nothing."""
    every = onnx.ModelProto()
    every.CopyFrom(model)
    known = {o.name for o in model.graph.output}
    every.graph.output.extend(onnx.ValueInfoProto(name=n) for node in model.graph.node for n in node.output if n not in known)
    arrays = dict(zip([o.name for o in every.graph.output], operators.by_onnxruntime(every, feeds)))
    arrays |= feeds | {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        shape = arrays[node.input[0]].shape
        if node.op_type in ("ReduceMean", "ArgMax", "ArgMin") and 0 in shape:
            return True
        cuts = np.minimum(arrays[node.input[1]], 0).reshape(2, -1).sum(0) if node.op_type == "Pad" else 0
        if (np.array(shape) + cuts < 0).any():
            return True
    return False


def verdict(server, model, feeds, **more):
    """("pass" | "void" | "open" | "refused" | "wrong" | "crash", message); `more` goes into the server's request."""
    try:
        expected = operators.by_onnxruntime(model, feeds)
    except Exception:  # of no common class: not a model at these sizes
        return "void", ""
    # A number of dimensions that depends on the sizes is not the one that the model declares.
    if any(not np.isfinite(a).all() or np.abs(a.astype(float)).max(initial=0) > LARGEST
           or a.ndim != len(o.type.tensor_type.shape.dim) for a, o in zip(expected, model.graph.output)):
        return "void", ""
    try:
        got, _ = server.run(model, feeds, [o.name for o in model.graph.output], **more)
    except backend.Refused as refusal:
        if refusal.code == backend.UNSUPPORTED:
            return ("open" if operators.OPEN.search(refusal.message) else "refused"), refusal.message
        if refusal.code == backend.INTERNAL:
            return "crash", refusal.message
        return "void" if is_oracles_own(model, feeds) else "wrong", f"[{refusal.code}] {refusal.message}"
    for name, g, w in zip(model.graph.output, got, expected):
        scale = max(1, np.abs(w.astype(float)).max(initial=0)) if w.dtype.kind == "f" else 1
        wrong = suite.complaint(g, w, 0) if scale == 1 else suite.complaint(
            (g / scale).astype(g.dtype), (w / scale).astype(w.dtype), 1e-4)
        if wrong:
            return "void" if is_oracles_own(model, feeds) else "wrong", f"{name.name}: {wrong}"
    return "pass", ""


def shrunk(server, program, sizes, kind, quick):
    """The model of the fewest outputs, and of the earliest, that fails in the same way."""
    fails = lambda outputs: verdict(server, m := program.model(outputs), program.feeds(m, sizes), quick=quick)[0] == kind  # noqa: E731
    outputs = list(program.outputs)
    for name in list(outputs):
        rest = [o for o in outputs if o != name]
        if rest and fails(rest):
            outputs = rest
    for value in program.values:
        for n in range(len(outputs)):
            earlier = [*outputs[:n], value.name, *outputs[n + 1:]]
            if value.name not in program.inputs and len(set(earlier)) == len(earlier) and \
                    len(program.model(earlier).graph.node) < len(program.model(outputs).graph.node) and fails(earlier):
                outputs = earlier
    return program.model(outputs)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=200)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--server", default=backend.SERVER)
    p.add_argument("--gpu", default="", help="compile for this architecture")
    p.add_argument("--failures", type=pathlib.Path, default=pathlib.Path("program-failures"))
    p.add_argument("--replay", type=pathlib.Path)
    args = p.parse_args()
    warnings.simplefilter("ignore")
    if args.replay:
        return operators.replay(backend.Server(os.path.abspath(args.server), gpu=args.gpu), args.replay)
    local = threading.local()

    def work(seed):
        program, answers = make(seed), []
        if not program:
            return seed, [("void", "")]
        if not hasattr(local, "server"):
            local.server = backend.Server(os.path.abspath(args.server), gpu=args.gpu)
        quick = seed % 8 != 0
        for sizes in (SIZES, program.r.choice(OTHERS)):
            model = program.model()
            kind, message = verdict(local.server, model, program.feeds(model, sizes), keep=not answers,
                                    compiled=bool(answers) and answers[0][0] == "pass", quick=quick)
            answers.append((kind, message))
            if kind not in ("pass", "open", "void"):
                model = shrunk(local.server, program, sizes, kind, quick)
                feeds, names = program.feeds(model, sizes), dict.fromkeys(n.op_type for n in model.graph.node)
                operators.keep(args.failures / f"{seed}-{'-'.join(names)[:80]}", model, feeds,
                               operators.by_onnxruntime(model, feeds))
                break
        return seed, answers

    counts, failed, left = collections.Counter(), 0, 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for seed, answers in pool.map(work, range(args.seed, args.seed + args.count)):
            for kind, message in answers:
                counts[kind] += 1
                if kind not in ("pass", "open", "void"):
                    failed += 1
                    print(f"FAIL seed {seed}: {kind}: {message[:300]}", flush=True)
            kinds = {kind for kind, _ in answers}
            left += kinds != {"pass"} and kinds <= {"pass", "open", "void"}
    print(", ".join(f"{kind} {n}" for kind, n in sorted(counts.items())))
    print(f"{args.count - failed - left} of {args.count} agree, {left} left open, {failed} fail")
    # Where ONNX Runtime computed next to nothing, nothing was compared.
    return 1 if failed or counts["pass"] < args.count else 0


if __name__ == "__main__":
    sys.exit(main())
