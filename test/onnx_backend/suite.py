#!/usr/bin/env python3
"""Run the backend suite of the onnx package against status.txt.

    suite.py                                      every case in every variant
    suite.py --variant static                     inputs as the case declares them
    suite.py --variant dynamic                    all dimensions of inputs and outputs open, but those of size 1
                                                  in inputs, which are broadcast because the model says so
    suite.py --variant constant                   inputs frozen into initialisers, so folding is tested
    suite.py --ops Add,MatMul                     cases whose model uses one of these operators
    suite.py --only reduce_,softmax               cases whose name contains one of these
    suite.py --sample 150 --seed 3                that many cases by chance
    suite.py --fused test_attention_:1            static cases with that in their names have exactly one attention
    suite.py --update                             write what is seen into status.txt

status.txt has a line a case: its name, variants by first letter and `pass`, `draws` or
`refuse: DIAGNOSTIC`. A case draws whose expected results are random numbers of NumPy: shapes and types agree. A refusal
is an exit status of 2 and names operator, node and reason. Whatever disagrees with the list fails: a wrong result, a
changed diagnostic, a case that is not listed.
With --update failing cases are left out of the list, so that they go on failing.
The last line is "N passed, N failed"; exit status 1 when one failed.
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
import time
import warnings

import numpy as np

import backend

VARIANTS = ("static", "dynamic", "constant")
# What a refusal says: node, operator and reason, or the operators that are not there and their nodes.
REFUSAL = re.compile(r"(unsupported: )?node '.+' \([\w.]+\): .{8,}|input '.+', which no node uses, .{8,}|uses \d+ operators? that "
                     r"(is|are) not supported: ([\w.]+ \(nodes? '.+?'\)(; )?)+$")
# (relative, absolute) by dtype; the suite's own 1e-3, 1e-7 leaves f32 no rounding near 0.
TOLERANCE = {"float16": (2e-3, 2e-3), "bfloat16": (2**-6, 1e-2), "float32": (1e-3, 1e-5), "float64": (1e-3, 1e-7)}
# Operators whose results are random.
DRAWING = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}

Case = collections.namedtuple("Case", "name model data_sets rtol")


#===----------------------------------------------------------------------===#
# Cases
#===----------------------------------------------------------------------===#


def read_value(path, declared):
    import onnx
    from onnx import numpy_helper
    proto, reader = {"sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
                     "optional_type": (onnx.OptionalProto, numpy_helper.to_optional)}.get(
                         declared.WhichOneof("value"), (onnx.TensorProto, numpy_helper.to_array))
    message = proto()
    message.ParseFromString(path.read_bytes())
    return reader(message)


def read_case(case):
    """A case whose model and data are files."""
    import onnx
    folder = pathlib.Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    known = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in known]
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        if len(list(data.glob("input_*.pb"))) != len(inputs):
            inputs = list(model.graph.input)
        sets.append(([read_value(data / f"input_{i}.pb", v.type) for i, v in enumerate(inputs)],
                     [read_value(data / f"output_{i}.pb", v.type) for i, v in enumerate(model.graph.output)]))
    return Case(case.name, model, sets, case.rtol)


def load_cases():
    warnings.simplefilter("ignore")
    from onnx.backend.test.loader import load_model_tests
    cases = {c.name: Case(c.name, c.model, c.data_sets, c.rtol) for c in load_model_tests(kind="node") if c.model}
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        for c in load_model_tests(kind=kind):
            if c.model_dir:
                cases.setdefault(c.name, c)
    return cases


#===----------------------------------------------------------------------===#
# Variants
#===----------------------------------------------------------------------===#


def copy_of(model):
    import onnx
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def open_dims(model):
    """`model` with the dimensions of its inputs open."""
    opened = copy_of(model)
    frozen = {t.name for t in model.graph.initializer}
    for value in opened.graph.input:
        if value.name not in frozen:
            for n, dim in enumerate(value.type.tensor_type.shape.dim):
                if dim.dim_value != 1:
                    dim.dim_param = f"{value.name}_{n}"
    for value in [*opened.graph.output, *opened.graph.value_info]: # these keep their ranks
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    return opened


def freeze(model, feeds):
    """`model` with the tensors among its inputs as initialisers, and the feeds that are left."""
    from onnx import numpy_helper
    frozen = copy_of(model)
    names = [n for n, v in feeds.items() if isinstance(v, np.ndarray) and v.dtype.kind != "O"]
    for name in names:
        frozen.graph.initializer.append(numpy_helper.from_array(feeds[name], name))
    kept = [i for i in frozen.graph.input if i.name not in names]
    del frozen.graph.input[:]
    frozen.graph.input.extend(kept)
    return frozen, {k: v for k, v in feeds.items() if k not in names}


#===----------------------------------------------------------------------===#
# Verdicts
#===----------------------------------------------------------------------===#


def to_array(value):
    """Some cases hold NumPy scalars, some TensorProto."""
    from onnx import TensorProto, numpy_helper
    if isinstance(value, TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.generic, int, float)) else value


def draws(case, feeds):
    """Whether results are random numbers. A case gives the training mode of a Dropout as an input."""
    return any(node.op_type in DRAWING or
               (node.op_type == "Dropout" and len(node.input) > 2 and bool(feeds.get(node.input[2], False)))
               for node in case.model.graph.node)


def complaint(got, want, rtol, drawn=False):
    """What is wrong with `got`, or None. Of what is `drawn` only shape and type are looked at."""
    if isinstance(want, list):
        if len(got) != len(want):
            return f"a sequence of {len(got)}, expected {len(want)}"
        return next(filter(None, (complaint(g, w, rtol) for g, w in zip(got, want))), None)
    want = to_array(want)
    if not isinstance(want, np.ndarray):
        return "expects something that is not a tensor"
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}"
    if drawn:
        return None
    if want.dtype.name.startswith(("float8", "float4")):
        wrong = int((~np.isclose(got.astype(np.float32), want.astype(np.float32), rtol=0, atol=0, equal_nan=True)).sum())
        return f"{wrong} of {want.size} elements differ" if wrong else None
    if want.dtype.name not in TOLERANCE:
        wrong = int((got != want).sum())
        return f"{wrong} of {want.size} elements differ" if wrong else None
    relative, absolute = TOLERANCE[want.dtype.name]
    g, w = got.astype(np.float64), want.astype(np.float64)
    wrong = int((~np.isclose(g, w, rtol=max(rtol, relative), atol=absolute, equal_nan=True)).sum())
    if not wrong:
        return None
    with np.errstate(invalid="ignore"):
        return f"{wrong} of {want.size} elements differ, by up to {np.nanmax(np.abs(g - w)):.3g}"


def run_case(server, case, variant, fused=None):
    """("pass" | "draws" | "refuse" | "FAIL", message). LLVM optimises the code of static cases: what our passes and kernels get
    wrong seldom comes right without it, and it is half of a compile."""
    names = [o.name for o in case.model.graph.output]
    known = {t.name for t in case.model.graph.initializer}
    drawn = False
    for inputs, outputs in case.data_sets:
        graph_inputs = [i.name for i in case.model.graph.input]
        if len(inputs) != len(graph_inputs):
            graph_inputs = [n for n in graph_inputs if n not in known]
        feeds = {n: to_array(v) for n, v in zip(graph_inputs, inputs)}
        model = case.model
        if variant == "constant":
            model, feeds = freeze(model, feeds)
        elif variant == "dynamic":
            model = open_dims(model)
        wanted = [[f"{name}.{n}" for n in range(len(value))] if isinstance(value, list) and value else name
                  for name, value in zip(names, outputs)]
        try:
            got, answer = server.run(model, feeds, wanted, is_open=variant == "dynamic", quick=variant != "static")
        except backend.Refused as refusal:
            word = "refuse" if refusal.code == backend.UNSUPPORTED else "FAIL"
            text = refusal.message.split("model.onnx: ", 1)[-1].splitlines()
            if word == "refuse" and not (text and REFUSAL.match(text[0])):
                word = "FAIL"
                text = [f"refused without operator, node and reason: {refusal.message}"]
            return word, (text or ["no message"])[0] + ("" if word == "refuse" else f" [exit status {refusal.code}]")
        if fused not in (None, answer["fused"]):
            return "FAIL", f"{answer['fused']} attentions are fused, expected {fused}"
        given = {n: to_array(v) for n, v in zip(graph_inputs, inputs)}
        for name, g, w in zip(names, got, outputs):
            wrong = complaint(g, w, case.rtol)
            if wrong and draws(case, given):
                drawn, wrong = True, complaint(g, w, case.rtol, drawn=True)
            if wrong:
                return "FAIL", f"output {name}: {wrong}"
    return "draws" if drawn else "pass", ""


def read_status(path):
    """{(case, variant): "pass", "draws" or "refuse: ..."}."""
    status = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, letters, verdict = line.split(" ", 2)
        for variant in VARIANTS:
            if variant[0] in letters:
                status[name, variant] = verdict
    return status


def write_status(path, status):
    lines = ["# Written by suite.py --update. Variants: (s)tatic, (d)ynamic, (c)onstant."]
    for name in sorted({name for name, _ in status}):
        by_verdict = {}
        for variant in VARIANTS:
            if (name, variant) in status:
                by_verdict.setdefault(status[name, variant], []).append(variant[0])
        lines += [f"{name} {''.join(letters)} {verdict}" for verdict, letters in by_verdict.items()]
    path.write_text("\n".join(lines) + "\n")


#===----------------------------------------------------------------------===#
# The command line
#===----------------------------------------------------------------------===#


def selected(cases, args, status):
    names = sorted(cases)
    if args.ops:
        ops = set(args.ops.split(","))
        names = [n for n in names if isinstance(cases[n], Case) and ops & {k.op_type for k in cases[n].model.graph.node}]
    if args.only:
        names = [n for n in names if any(o in n for o in args.only.split(","))]
    if args.case_list:
        wanted = set(pathlib.Path(args.case_list).read_text().split())
        names = [n for n in names if n in wanted]
    if args.refused: # what the list refuses, or does not know
        names = [n for n in names if any(status.get((n, v)) != "pass" for v in VARIANTS)]
    if args.sample:
        names = sorted(random.Random(args.seed).sample(names, min(args.sample, len(names))))
    variants = VARIANTS if args.variant == "all" else args.variant.split(",")
    return [(n, v) for n in names for v in variants]


def main():
    here = pathlib.Path(__file__).resolve().parent
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--server", default=backend.SERVER)
    p.add_argument("--ops", default="")
    p.add_argument("--only", default="")
    p.add_argument("--case-list", help="a file with names of cases")
    p.add_argument("--fused", metavar="TEXT:N", type=lambda text: text.split(":"),
                   help="static cases with TEXT in their names have exactly N attentions")
    p.add_argument("--refused", action="store_true", help="only cases that do not pass in every variant")
    p.add_argument("--sample", type=int, default=0)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--variant", default="all")
    p.add_argument("--status", type=pathlib.Path, default=here / "status.txt")
    p.add_argument("--gpu", default="", help="sm_80: compile for its CUDA, with build/test/gpu/lib on LD_LIBRARY_PATH")
    p.add_argument("--update", action="store_true")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--timeout", type=float, default=60)
    p.add_argument("-v", "--verbose", action="store_true", help="print every case")
    args = p.parse_args()
    cases, status = load_cases(), read_status(args.status)
    local = threading.local()

    def is_counted(job):
        return args.fused and job[1] == "static" and args.fused[0] in job[0]

    def work(job):
        name, variant = job
        if not hasattr(local, "server"):
            local.server = backend.Server(os.path.abspath(args.server), args.timeout, gpu=args.gpu)
        case = cases[name] if isinstance(cases[name], Case) else read_case(cases[name])
        began = time.time()
        word, message = run_case(local.server, case, variant, int(args.fused[1]) if is_counted(job) else None)
        return word, message, time.time() - began

    jobs, good, counts = selected(cases, args, status), 0, collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for job, (word, message, seconds) in zip(jobs, pool.map(work, jobs)):
            verdict = word + (f": {message}" if message else "")
            listed = status.get(job, "not listed")
            if args.update:
                status.pop(job, None)
                if word != "FAIL":
                    status[job] = listed = verdict
            ok = word != "FAIL" and verdict == listed
            good += ok
            counts[job[1], word] += 1
            if not ok or args.verbose:
                why = "" if ok else f" (status.txt: {listed})"
                print(f"{'ok' if ok else 'FAIL'} {job[0]} {job[1]} {verdict}{why} {seconds:.2f}s", flush=True)
    if args.update:
        write_status(args.status, status)
    print(", ".join(f"{variant} {word}: {n}" for (variant, word), n in sorted(counts.items())))
    if args.fused:
        print(f"{sum(map(is_counted, jobs))} cases of {args.fused[0]} with {args.fused[1]} attentions each")
    print(f"{good} passed, {len(jobs) - good} failed")
    return 1 if good < len(jobs) or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
