#!/usr/bin/env python3
"""How exact random models in f16 and bf16 are, beside models that are run op by op.

    half_programs.py [--seed=1] [--count=300] [--kinds=f16,bf16] [--options=-O0]

Models are those of programs.py with their floats in 16 bits and with inputs that are no whole numbers; the exact results
are those of the same numbers in f32, whose own rounding is 2^13 (2^16) times finer. The other side is ONNX Runtime: of
f16 its CPU provider, of bf16, which that lacks, its f32 with the result of each op rounded to bf16. An output counts
where it is finite on both sides and does not jump: a change of the inputs by 2^-14 changes it by little. Errors are in steps of the
output's greatest number.

The last lines say, for each kind, the ratio of ours to theirs at 50 % and 99 % of the outputs, of mean and of greatest
errors. Exit status 1 where that of the means is more than 1.0 or 1.5, or a number is infinite here that is finite there.
"""
import argparse
import os
import pathlib
import sys
import warnings

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "onnx_backend")]
import backend
import operators
import programs

KINDS = {"f16": (np.dtype(np.float16), TensorProto.FLOAT16), "bf16": (np.dtype(ml_dtypes.bfloat16), TensorProto.BFLOAT16)}
LIMITS = {"f16": 65504.0, "bf16": 3.38e38}
MOVED = 2.0**-14
FLOOR = 0.01 # steps: two errors of less are alike


def narrowed(model, kind):
    """`model` with its floats in 16 bits."""
    dtype, element = KINDS[kind]
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for tensor in made.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(dtype), tensor.name))
    for value in [*made.graph.input, *made.graph.output]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = element
    for node in made.graph.node:
        for attribute in node.attribute:
            if attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = element
            elif attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type == TensorProto.FLOAT:
                attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(dtype)))
    return made


def stepwise(model, kind):
    """`model` in f32 with the constants of `kind` and each op's results rounded to it."""
    dtype, element = KINDS[kind]
    made = widened(model, dtype)
    every = onnx.shape_inference.infer_shapes(made)
    floats = {v.name for v in [*every.graph.value_info, *every.graph.output]
              if v.type.tensor_type.elem_type == TensorProto.FLOAT}
    nodes = []
    for node in made.graph.node:
        renamed = {}
        for n, name in enumerate(node.output):
            if name in floats:
                node.output[n] = renamed[name] = name + "_wide"
        nodes.append(node)
        for name, wide in renamed.items():
            nodes += [helper.make_node("Cast", [wide], [name + "_narrow"], to=element),
                      helper.make_node("Cast", [name + "_narrow"], [name], to=TensorProto.FLOAT)]
    copies = [onnx.NodeProto() for _ in nodes]
    for copy, node in zip(copies, nodes):
        copy.CopyFrom(node)
    del made.graph.node[:]
    made.graph.node.extend(copies)
    return made


def widened(model, dtype):
    """`model` with constants that `dtype` has."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for tensor in made.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            values = numpy_helper.to_array(tensor).astype(dtype).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return made


def drawn(program, model, dtype):
    """Feeds: what programs.py gives, floats a little beside whole numbers and then in 16 bits."""
    feeds = program.feeds(model, programs.SIZES)
    rng = np.random.default_rng(program.seed)
    return {n: (v + rng.standard_normal(v.shape) / 4).astype(dtype) if v.dtype == np.float32 else v
            for n, v in feeds.items()}


def wide(feeds, moved=0.0):
    rng = np.random.default_rng(5)
    return {n: (v.astype(np.float32) * (1 + moved * rng.choice([-1, 1], v.shape))).astype(np.float32)
            if v.dtype.kind in "fV" and v.dtype != np.float64 else v for n, v in feeds.items()}


def step_of(exact, dtype):
    largest = np.abs(exact).max()
    mantissa = 10 if dtype == np.float16 else 7
    return 2.0 ** (np.floor(np.log2(max(largest, 2.0**-14))) - mantissa)


def errors(value, exact, dtype):
    """In steps: mean and greatest."""
    steps = np.abs(value - exact) / step_of(exact, dtype)
    return np.array([steps.mean(), steps.max()])


def outcomes(server, seed, kind):
    """For each output that counts (our errors, theirs, name), and what is not finite where it should be."""
    program = programs.make(seed)
    if not program:
        return [], []
    dtype, _ = KINDS[kind]
    model = program.model()
    feeds = drawn(program, model, dtype)
    exact_model = widened(model, dtype)
    try:
        exact = operators.by_onnxruntime(exact_model, wide(feeds))
        near = operators.by_onnxruntime(exact_model, wide(feeds, MOVED))
        theirs = operators.by_onnxruntime(narrowed(model, kind), feeds) if kind == "f16" else \
            operators.by_onnxruntime(stepwise(model, kind), wide(feeds))
        if programs.is_oracles_own(exact_model, wide(feeds)):
            return [], []
    except Exception:  # of no common class: not a model of theirs
        return [], []
    try:
        ours, _ = server.run(narrowed(model, kind), feeds, [o.name for o in model.graph.output])
    except backend.Refused as refusal:
        return [], [] if refusal.code == backend.UNSUPPORTED else [f"seed {seed}: {refusal.message[:200]}"]
    counted, wrong = [], []
    for output, o, t, e, n in zip(model.graph.output, ours, theirs, exact, near):
        if e.dtype != np.float32 or e.size == 0 or e.shape != n.shape or e.shape != o.shape:
            continue
        o, t, e, n = (a.astype(np.float64) for a in (o, t, e, n))
        scale = np.abs(e[np.isfinite(e)]).max(initial=0)
        if not np.isfinite(e).all() or not np.isfinite(n).all() or np.abs(e - n).max() > 64 * MOVED * scale:
            continue
        if np.isfinite(t).all() and not np.isfinite(o).all() and scale < LIMITS[kind]:
            wrong.append(f"seed {seed} {output.name}: not finite, and {scale:.3g} at most in ONNX Runtime")
        elif np.isfinite(t).all() and np.isfinite(o).all():
            counted.append((errors(o, e, dtype), errors(t, e, dtype), output.name))
    return counted, wrong


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=300)
    p.add_argument("--kinds", default="f16,bf16")
    p.add_argument("--server", default=backend.SERVER)
    p.add_argument("--worst", type=int, default=0, help="print so many outputs whose error is farthest above the other's")
    args = p.parse_args()
    warnings.simplefilter("ignore")
    failed = False
    for kind in args.kinds.split(","):
        server, seen = backend.Server(os.path.abspath(args.server)), []
        for seed in range(args.seed, args.seed + args.count):
            counted, wrong = outcomes(server, seed, kind)
            seen += [(ours, theirs, f"seed {seed} {name}") for ours, theirs, name in counted]
            for line in wrong:
                print(f"FAIL {kind} {line}", flush=True)
                failed = True
        ratios = np.array([(ours + FLOOR) / (theirs + FLOOR) for ours, theirs, _ in seen])
        for n in np.argsort(-ratios[:, 0])[:args.worst]:
            ours, theirs, name = seen[n]
            print(f"{kind} {name}: mean {ours[0]:.3g} steps, theirs {theirs[0]:.3g}; greatest {ours[1]:.3g}, {theirs[1]:.3g}")
        mean, greatest = (np.percentile(ratios[:, n], (50, 99)) for n in (0, 1))
        good = mean[0] <= 1.0 + 1e-3 and mean[1] <= 1.5
        failed |= not good
        print(f"{kind}: {len(seen)} outputs, ratio of mean errors {mean[0]:.3f} at 50 %, {mean[1]:.3f} at 99 %, "
              f"of greatest {greatest[0]:.3f}, {greatest[1]:.3f}{'' if good else ' FAIL'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
