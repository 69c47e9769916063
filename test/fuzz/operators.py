#!/usr/bin/env python3
"""Random models of one operator against onnx.reference, or against ONNX Runtime where a row says so.

    operators.py [--seed=1] [--count=200] [--jobs=2] [--ops=Add,MatMul]
    operators.py --replay FOLDER       a failure that an earlier run kept

Seed n is always the same model (operator_graphs.py, operator_moves.py). It fails when the compile or the run dies, is
refused (but for what needs the sizes that the model leaves open) or gives another result than the reference. LLVM
optimises the code of every eighth model, as in models.py. A failure is made smaller and kept in a folder as ONNX's own
tests are: model.onnx, test_data_set_0/{input,output}_N.pb.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import re
import sys
import threading
import warnings

import numpy as np
import onnx
import onnx.reference

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "onnx_backend")]
import backend  # noqa: E402
import operator_bodies  # noqa: E402, F401
import operator_contrib  # noqa: E402, F401
import operator_graphs  # noqa: E402
import operator_layers  # noqa: E402, F401
import operator_moves  # noqa: E402, F401
import suite  # noqa: E402

# What may be refused where sizes are open: each says that it has to know a size.
OPEN = re.compile(r"not known at import|broadcast in this run only|is broadcast, and is not 1|number of dimensions")


def make(seed, ops=None):
    """The graph of `seed`; None where the draw comes to nothing."""
    r = random.Random(seed)
    op = r.choice(sorted(ops or operator_graphs.OPERATORS))
    draw, since, until = operator_graphs.OPERATORS[op]
    domain, name = operator_graphs.split_name(op)
    versions = [s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == name and not domain]
    d = operator_graphs.Draw(seed, op, r.randint(max(since, min(versions, default=7), 7), until))
    drawn = draw(d)
    if drawn is None:
        return None
    attributes, inputs, outputs, settings = (*drawn, *(1, [])[len(drawn) - 2:])
    # What sets shapes is a constant in most models; data seldom.
    constants = [n for n, v in enumerate(inputs)
                 if v is not None and r.random() < (1 if n in d.form.fixed else 0.8 if n in settings else 0.1)]
    return operator_graphs.Graph(seed, op, d.opset, attributes, inputs, outputs, constants, r.random() < 0.4, d.form)


def by_onnxruntime(model, feeds):
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(o) for o in session.run(None, feeds)]


def evaluate(graph):
    """What the reference computes; None when it cannot."""
    try:
        model = graph.model()
        if graph.form.oracle == "onnxruntime":
            return by_onnxruntime(model, graph.feeds())
        if not graph.form.nodes:
            context = onnx.checker.C.CheckerContext()
            context.ir_version = model.ir_version
            context.opset_imports = {i.domain: i.version for i in model.opset_import}
            onnx.checker.check_node(model.graph.node[0], context)
        with np.errstate(all="ignore"):
            outputs = onnx.reference.ReferenceEvaluator(model).run(None, graph.feeds())
        return [np.asarray(o) for o in outputs]
    except Exception:  # of no common class
        return None


def verdict(server, graph, expected):
    """("pass" | "open" | "refused" | "wrong" | "crash", message)."""
    model = graph.model()
    for declared, value in zip(model.graph.output, expected):
        declared.type.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    try:
        got, _ = server.run(model, graph.feeds(), [o.name for o in model.graph.output], quick=graph.seed % 8 != 0)
    except backend.Refused as refusal:
        if refusal.code == backend.UNSUPPORTED:
            return ("open" if graph.open_dims and OPEN.search(refusal.message) else "refused"), refusal.message
        return ("crash" if refusal.code == backend.INTERNAL else "wrong"), f"[{refusal.code}] {refusal.message}"
    except FileNotFoundError as missing:
        return "wrong", f"no output {missing.filename}"
    for name, g, w in zip(model.graph.output, got, expected):
        wrong = suite.complaint(g, w, 1e-3)
        if wrong:
            return "wrong", f"{name.name}: {wrong}"
    return "pass", ""


def shrunk(server, graph, kind):
    """The smallest graph found that fails in the same way."""
    def still(candidate):
        expected = evaluate(candidate)
        return expected is not None and verdict(server, candidate, expected)[0] == kind

    def sliced(size, to):
        return [v if v is None else v[tuple(slice(to) if s == size else slice(None) for s in v.shape)] for v in graph.inputs]

    progress, tries = True, 0
    while progress and tries < 40:
        progress = False
        candidates = [graph.replaced(open_dims=False)] if graph.open_dims else []
        candidates += [graph.replaced(constants=graph.constants - {n}) for n in graph.constants]
        sizes = sorted({s for v in graph.inputs if v is not None for s in v.shape if s > 1}, reverse=True)
        candidates += [graph.replaced(inputs=sliced(s, t)) for s in sizes for t in {1, s // 2} if 0 < t < s]
        candidates += [graph.replaced(attributes={k: v for k, v in graph.attributes.items() if k != name})
                       for name in graph.attributes]
        for candidate in candidates:
            tries += 1
            if still(candidate):
                graph, progress = candidate, True
                break
    return graph


def keep(folder, model, feeds, expected):
    data = folder / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    for name, arrays in (("input", feeds.values()), ("output", expected)):
        for n, array in enumerate(arrays):
            (data / f"{name}_{n}.pb").write_bytes(onnx.numpy_helper.from_array(array).SerializeToString())


def replay(server, folder):
    model = onnx.load(folder / "model.onnx")
    load = lambda name: [onnx.load_tensor(f) for f in  # noqa: E731
                         sorted((folder / "test_data_set_0").glob(name + "_*.pb"), key=lambda f: int(f.stem.split("_")[1]))]
    inputs, expected = ([onnx.numpy_helper.to_array(t) for t in load(name)] for name in ("input", "output"))
    print(onnx.printer.to_text(model))
    failed = 0
    for quick in (False, True):  # with and without LLVM's optimisations
        got, _ = server.run(model, dict(zip([i.name for i in model.graph.input], inputs)),
                            [o.name for o in model.graph.output], quick=quick)
        for g, w in zip(got, expected):
            print("got", g, "expected", w, sep="\n")
            if wrong := suite.complaint(g, w, 1e-3):
                print("FAIL, not optimised:" if quick else "FAIL, optimised:", wrong)
                failed = 1
    return failed


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=200)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--ops", type=lambda text: text.split(","))
    p.add_argument("--server", default=backend.SERVER)
    p.add_argument("--failures", type=pathlib.Path, default=pathlib.Path("operator-failures"))
    p.add_argument("--replay", type=pathlib.Path)
    p.add_argument("--no-shrink", action="store_true")
    args = p.parse_args()
    warnings.simplefilter("ignore")
    if args.replay:
        return replay(backend.Server(os.path.abspath(args.server)), args.replay)
    local = threading.local()

    def work(seed):
        graph = make(seed, args.ops)
        expected = graph and evaluate(graph)
        if not expected:
            return seed, graph, "void", ""
        if not hasattr(local, "server"):
            local.server = backend.Server(os.path.abspath(args.server))
        kind, message = verdict(local.server, graph, expected)
        if kind not in ("pass", "open"):
            small = graph if args.no_shrink else shrunk(local.server, graph, kind)
            keep(args.failures / f"{seed}-{graph.op}", small.model(), small.feeds(), evaluate(small))
        return seed, graph, kind, message

    counts, seed, done = collections.Counter(), args.seed, 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        while done < args.count:  # draws that the reference cannot compute are drawn again
            batch = range(seed, seed + args.count - done)
            for n, graph, kind, message in pool.map(work, batch):
                counts[kind] += 1
                done += kind != "void"
                if kind not in ("pass", "open", "void"):
                    shapes = [None if v is None else f"{v.dtype}{list(v.shape)}" for v in graph.inputs]
                    print(f"FAIL seed {n} {graph.op}-{graph.opset} {shapes} {'open' if graph.open_dims else ''}: "
                          f"{kind}: {message[:300]}", flush=True)
            seed = batch[-1] + 1
            if counts["void"] > 3 * args.count + 20:
                break
    print(", ".join(f"{kind} {n}" for kind, n in sorted(counts.items())))
    failed = counts["wrong"] + counts["crash"] + counts["refused"]
    print(f"{counts['pass']} of {done} agree, {counts['open']} left open, {failed} fail")
    return 1 if failed or done < args.count else 0


if __name__ == "__main__":
    sys.exit(main())
