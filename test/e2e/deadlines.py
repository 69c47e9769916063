#!/usr/bin/env python3
"""How late a run is whose deadline passes in the middle, over every operator of docs/operators.md.

deadlines.py [--ops TopK,...] [--models N] [--limit MS] [--attnc PROGRAM] [--runtime LIBATTNRT]

A run can end when it looks at the clock. So one run to its end says how late any deadline would be answered: the longest
time that its thread computes between two looks (looks.c counts it; what other programs take of the machine is not in it).

An operator's models are cases of the onnx package's backend suite or of contrib.py with open dimensions, then models that
test/fuzz draws. Their sizes grow, one after the other and all together, until a run takes 100 ms, or 2 s while it looks
seldom. Operators whose largest run (2^30 bytes in, or no memory) takes less are named "short", with what it took. The
last line is the worst of all; exit status 1 if that is over the limit.
"""
import argparse
import ctypes as c
import itertools
import multiprocessing
import operator
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "test/onnx_backend"), str(ROOT / "test/e2e/search"), str(ROOT / "test/fuzz")]
import contrib
import operator_graphs
import operators
import suite
from check_interrupt import Options, Output, tensor

OK = 0
ENOUGH = 100_000_000  # ns
NOTICED = 5_000_000    # between two looks: larger inputs say whether it grows with them
DEADLINE = 20_000_000_000
MOST = 1 << 30        # bytes of all inputs
GROWTH = 4
SECONDS = 400         # for an operator
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
KNOWN = {"float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
         "bool"}


class Session:
    """A compiled model, on one thread."""

    def __init__(self, runtime, library):
        self.looks = c.CDLL(None)
        self.rt = c.CDLL(runtime)
        self.rt.attnrt_last_error.restype = c.c_char_p
        model, self.handle = c.c_void_p(), c.c_void_p()
        assert self.rt.attnrt_model_load(str(library).encode(), None, c.byref(model)) == 0, self.rt.attnrt_last_error()
        options = (c.c_size_t * 8)(64)
        c.cast(options, c.POINTER(c.c_int32))[2] = 1
        assert self.rt.attnrt_session_create(model, options, c.byref(self.handle)) == 0, self.rt.attnrt_last_error()

    def run(self, arrays, outputs):
        """Status, and nanoseconds: of the run, and the longest between two looks."""
        given = [tensor(value) for value in arrays]
        for one, value in zip(given, arrays):
            one.dtype.code = 4 if value.dtype.name == "bfloat16" else CODES[value.dtype.kind]
        pointers = (c.POINTER(type(given[0])) * len(given))(*map(c.pointer, given)) if given else None
        options = Options(c.sizeof(Options), None, None, DEADLINE, None, None, 0)
        results, counts = (Output * outputs)(), (c.c_int64 * 2)()
        self.looks.watch_looks()
        status = self.rt.attnrt_session_run(self.handle, c.byref(options), pointers, len(given), results, outputs)
        self.looks.count_looks(counts)
        for result in results:
            if result.tensor: # DLManagedTensor: DLTensor, context, deleter
                address = c.cast(result.tensor + c.sizeof(type(tensor(np.zeros(1)))) + 8, c.POINTER(c.c_void_p))[0]
                c.CFUNCTYPE(None, c.c_void_p)(address)(result.tensor)
        return status, *counts


def is_plain(feeds):
    return all(isinstance(v, np.ndarray) and v.dtype.name in KNOWN for v in feeds.values())


def holds(graph, op, domain):
    """Whether a node of `graph` or of a body is `op`."""
    for node in graph.node:
        if node.op_type == op and (node.domain or "ai.onnx") == domain:
            return True
        if any(holds(a.g, op, domain) for a in node.attribute if a.type == onnx.AttributeProto.GRAPH):
            return True
    return False


def from_suite(op, domain, cases):
    """(model, feeds): those where the operator stands alone first."""
    found = []
    for case in cases:
        if not case.data_sets or not holds(case.model.graph, op, domain):
            continue
        known = {t.name for t in case.model.graph.initializer}
        names = [i.name for i in case.model.graph.input]
        if len(names) != len(case.data_sets[0][0]):
            names = [n for n in names if n not in known]
        feeds = {n: suite.to_array(v) for n, v in zip(names, case.data_sets[0][0])}
        if is_plain(feeds):
            found.append((case.model, feeds))
    return sorted(found, key=lambda case: len(case[0].graph.node))


def from_contrib(op, domain):
    for _, name, inputs, outputs, _, _, of, _, _, attributes in contrib.CASES:
        if (name, of or "ai.onnx") == (op, domain):
            yield contrib.build(name, inputs, outputs, of, attributes)[:2]


def from_fuzz(op, domain):
    """Of the rows of the operator, and of those with several nodes."""
    name = op if domain == "ai.onnx" else f"{domain}.{op}"
    rows = [name] if name in operator_graphs.OPERATORS else [r for r in operator_graphs.OPERATORS if
                                                            r in ("If", "Loop", "Scan") or "Sequence" in r]
    for seed in range(300):
        try:
            graph = operators.make(seed, rows)
            model = graph and graph.replaced(open_dims=True).model()
        except Exception:  # of no common class
            continue
        feeds = graph.feeds() if graph else {}
        if feeds and is_plain(feeds) and all(v.size for v in feeds.values()) and holds(model.graph, op, domain):
            yield model, feeds


def opened(model):
    """The model with open dimensions, and with all of them open but the last, which operators of heads have to know."""
    yield suite.open_dims(model)
    kept = suite.open_dims(model)
    for was, value in zip(model.graph.input, kept.graph.input):
        if was.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[-1].CopyFrom(was.type.tensor_type.shape.dim[-1])
    yield kept


def growths(feeds):
    """Ways to make inputs larger: functions of a factor. Sizes that are equal grow together, then those of an axis."""
    sizes = sorted({s for v in feeds.values() for s in v.shape if s > 1})
    for size in sizes:
        yield f"size {size}", lambda f, size=size: {n: grown(v, f, {size}) for n, v in feeds.items()}
    if len(sizes) > 1:
        yield "all sizes", lambda f: {n: grown(v, max(round(f ** (1 / max(v.ndim, 1))), 1), set(sizes))
                                      for n, v in feeds.items()}
    # Sizes that are values: a shape, a limit, repeats.
    for name, value in feeds.items():
        if value.dtype.kind in "iu" and value.size <= 8:
            for place in range(value.size):
                yield f"{name}[{place}]", lambda f, name=name, place=place: scaled(feeds, name, place, f)
    for axis in range(max(v.ndim for v in feeds.values())):
        yield f"axis {axis}", lambda f, axis=axis: {n: repeated(v, f, axis) for n, v in feeds.items()}


def grown(value, factor, sizes):
    """None beyond MOST."""
    for axis, size in enumerate(value.shape):
        value = repeated(value, factor, axis) if size in sizes else value
        if value is None:
            return None
    return value


def repeated(value, factor, axis):
    """None beyond MOST."""
    if value.ndim <= axis or value.shape[axis] == 1:
        return value
    return np.concatenate([value] * factor, axis) if value.nbytes * factor <= MOST else None


def scaled(feeds, name, place, factor):
    value = feeds[name].copy()
    bounds = np.iinfo(value.dtype)
    value.reshape(-1)[place] = np.clip(int(value.reshape(-1)[place]) * factor, bounds.min, bounds.max)
    return feeds | {name: value}


def worst_of(session, feeds, outputs):
    """(longest run, longest time between two looks, how) over all ways to grow."""
    most, worst, how = 0, 0, ""
    for way, grow in growths(feeds):
        if most >= ENOUGH and way.startswith("axis"):
            break
        for factor in itertools.accumulate(itertools.repeat(GROWTH, 20), operator.mul, initial=1):
            made = grow(factor)
            if any(v is None for v in made.values()) or sum(v.nbytes for v in made.values()) > MOST:
                break
            arrays = [np.ascontiguousarray(v) for v in made.values()]
            status, taken, gap = session.run(arrays, outputs)
            if status != OK:
                break
            if gap > max(worst, NOTICED): # the first of two finds its pages
                gap = min(gap, session.run(arrays, outputs)[2])
            most = max(most, taken)
            if gap > worst:
                worst, how = gap, f"{way} x {factor}"
            if taken > (ENOUGH if gap < NOTICED else 20 * ENOUGH):
                break
    return most, worst, how


def measure(models, args, pipe):
    """Sends what each model took, until as many as wanted took long enough."""
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    long = 0
    with tempfile.TemporaryDirectory() as folder:
        for n, (model, feeds) in enumerate(models):
            path = pathlib.Path(folder) / f"{n}.onnx"
            for with_open_dims in opened(model):
                onnx.save(with_open_dims, path)
                done = subprocess.run([args.attnc, path, "-o", f"{path}.so"], capture_output=True, env=environment)
                if done.returncode == 0:
                    break
            if done.returncode == 0:
                taken = worst_of(Session(args.runtime, f"{path}.so"), feeds, len(model.graph.output))
                pipe.send(taken)
                long += taken[0] >= ENOUGH
            if long >= args.models or n > 3 * args.models + 6:
                break


def measured(op, domain, cases, args):
    """What measure() says of an operator's models; a run that doesn't end or dies is the last."""
    models = itertools.chain(from_contrib(op, domain), from_suite(op, domain, cases), from_fuzz(op, domain))
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=measure, args=(models, args, theirs))
    process.start()
    theirs.close()
    end = time.monotonic() + SECONDS
    try:
        while ours.poll(max(end - time.monotonic(), 0)):
            yield ours.recv()
    except EOFError:
        process.join()
    if process.exitcode != 0:
        print(f"{op}: " + ("no answer" if process.exitcode is None else f"died ({process.exitcode})"), flush=True)
    process.kill()
    process.join()


def coverage():
    """(domain, operator) of the page."""
    domain = None
    for line in (ROOT / "docs/operators.md").read_text().splitlines():
        if line.startswith("## "):
            domain = line[3:]
        elif domain and (match := re.match(r"\| (\w+) \| \d", line)):
            yield domain, match[1]


def preload():
    """Starts this program again with looks.c in it."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/looks.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", pathlib.Path(__file__).parent / "looks.c", "-o", library], check=True)
        return subprocess.run([sys.executable, *sys.argv], env=os.environ | {"LD_PRELOAD": library}).returncode


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ops", default="")
    p.add_argument("--models", type=int, default=2, help="of each operator, whose runs are long enough")
    p.add_argument("--limit", type=float, default=50, help="milliseconds")
    p.add_argument("--attnc", default=str(ROOT / "build/bin/attnc"))
    p.add_argument("--runtime", default=str(ROOT / "build/lib/libattnrt.so"))
    args = p.parse_args()
    if not hasattr(c.CDLL(None), "watch_looks"):
        return preload()
    cases = [c for c in suite.load_cases().values() if isinstance(c, suite.Case)]
    for family in contrib.FAMILIES:
        family()
    wanted = set(filter(None, args.ops.split(",")))
    worst, counts = (0, "none"), {"measured": 0, "short": 0, "without a case": 0}
    for domain, op in coverage():
        if wanted and op not in wanted:
            continue
        found = list(measured(op, domain, cases, args))
        longest, late = max((f[0] for f in found), default=0), max(found, key=lambda f: f[1], default=None)
        kind = "measured" if longest >= ENOUGH else "short" if found else "without a case"
        counts[kind] += 1
        print(f"{op}: {kind}" + (f", {late[1] / 1e6:.1f} ms late ({late[2]}), run {longest / 1e6:.0f} ms" if late else ""),
              flush=True)
        if late and late[1] > worst[0]:
            worst = (late[1], op)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    print(f"worst: {worst[0] / 1e6:.1f} ms late ({worst[1]})")
    return 1 if worst[0] > args.limit * 1e6 else 0


if __name__ == "__main__":
    sys.exit(main())
