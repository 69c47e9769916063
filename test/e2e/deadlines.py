#!/usr/bin/env python3
"""How late a run is whose deadline passes in the middle, over every operator of docs/operators.md.

deadlines.py [--ops TopK,...] [--limit MS] [--attnc PROGRAM] [--runtime LIBATTNRT]

An operator's model is a case of the onnx package's backend suite or of contrib.py with open dimensions. Its sizes grow,
one after the other and all together, until a run takes longer than the deadline; how much later than that it came back
is the least of five times, as other programs use the machine, too. Operators whose largest run (2^25 elements in, or
no memory) is over before are named "short". The last line is the worst of all; exit status 1 if that is over the limit.
"""
import argparse
import ctypes as c
import itertools
import multiprocessing
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
sys.path[:0] = [str(ROOT / "test/onnx_backend"), str(ROOT / "test/e2e/search")]
import contrib
import suite
from check_interrupt import LATE, Options, Output, tensor

OK, MEMORY = 0, 6
DEADLINE = 60_000_000 # ns
MOST = 1 << 25        # elements of all inputs
GROWTH = 4
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


class Session:
    """A compiled model, on one thread."""

    def __init__(self, runtime, library):
        self.rt = c.CDLL(runtime)
        self.rt.attnrt_last_error.restype = c.c_char_p
        model, self.handle = c.c_void_p(), c.c_void_p()
        assert self.rt.attnrt_model_load(str(library).encode(), None, c.byref(model)) == 0, self.rt.attnrt_last_error()
        options = (c.c_size_t * 8)(64)
        c.cast(options, c.POINTER(c.c_int32))[2] = 1
        assert self.rt.attnrt_session_create(model, options, c.byref(self.handle)) == 0, self.rt.attnrt_last_error()

    def run(self, arrays, outputs, timeout):
        """Status and nanoseconds."""
        given = [tensor(value) for value in arrays]
        for one, value in zip(given, arrays):
            one.dtype.code = 4 if value.dtype.name == "bfloat16" else CODES[value.dtype.kind]
        pointers = (c.POINTER(type(given[0])) * len(given))(*map(c.pointer, given)) if given else None
        options = Options(c.sizeof(Options), None, None, timeout, None, None, 0)
        results = (Output * outputs)()
        start = time.monotonic_ns()
        status = self.rt.attnrt_session_run(self.handle, c.byref(options), pointers, len(given), results, outputs)
        taken = time.monotonic_ns() - start
        for result in results:
            if result.tensor: # DLManagedTensor: DLTensor, context, deleter
                address = c.cast(result.tensor + c.sizeof(type(tensor(np.zeros(1)))) + 8, c.POINTER(c.c_void_p))[0]
                c.CFUNCTYPE(None, c.c_void_p)(address)(result.tensor)
        return status, taken


def cases_of(op, domain, all_cases, own):
    """(model, feeds): those where the operator stands alone first, and the smallest."""
    found = []
    for model, feeds in own.get((domain, op), []):
        found.append((0, model, feeds))
    for case in all_cases:
        ops = [n.op_type for n in case.model.graph.node if (n.domain or "ai.onnx") == domain]
        if op not in ops or not case.data_sets:
            continue
        known = {t.name for t in case.model.graph.initializer}
        names = [i.name for i in case.model.graph.input]
        if len(names) != len(case.data_sets[0][0]):
            names = [n for n in names if n not in known]
        feeds = {n: suite.to_array(v) for n, v in zip(names, case.data_sets[0][0])}
        kinds = {getattr(getattr(v, "dtype", None), "kind", "O") for v in feeds.values()}
        if kinds <= set("iufb") and all(v.itemsize <= 8 and v.dtype.name in KNOWN for v in feeds.values()):
            found.append((len(case.model.graph.node), case.model, feeds))
    found.sort(key=lambda f: f[0])
    return [(model, feeds) for _, model, feeds in found[:3]]


KNOWN = {"float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
         "bool"}


def growths(feeds):
    """Ways to make inputs larger: functions of a factor. Sizes that are equal grow together."""
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


def grown(value, factor, sizes):
    for axis, size in enumerate(value.shape):
        if size in sizes:
            value = np.concatenate([value] * factor, axis) if value.size * factor <= MOST else np.zeros(MOST + 1)
    return value


def scaled(feeds, name, place, factor):
    value = feeds[name].copy()
    bounds = np.iinfo(value.dtype)
    value.reshape(-1)[place] = np.clip(int(value.reshape(-1)[place]) * factor, bounds.min, bounds.max)
    return feeds | {name: value}


def lateness(session, feeds, outputs):
    """The worst (ns, how) over all ways to grow, or None where no run is long enough."""
    worst = None
    for how, grow in growths(feeds):
        for factor in itertools.accumulate(itertools.repeat(GROWTH), lambda a, b: a * b, initial=1):
            made = grow(factor)
            if sum(v.size for v in made.values()) > MOST or factor > 1 << 40:
                break
            arrays = [np.ascontiguousarray(v) for v in made.values()]
            status, taken = session.run(arrays, outputs, DEADLINE)
            if status not in (OK, LATE):
                break
            if status == LATE:
                late = taken - DEADLINE
                for _ in range(4):
                    status, taken = session.run(arrays, outputs, DEADLINE)
                    late = min(late, taken - DEADLINE) if status == LATE else 0
                if worst is None or late > worst[0]:
                    worst = (late, f"{how} x {factor}")
                break
    return worst


def measure(op, domain, models, args, pipe):
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    worst, compiled = None, 0
    with tempfile.TemporaryDirectory() as folder:
        for n, (model, feeds) in enumerate(models):
            path = pathlib.Path(folder) / f"{n}.onnx"
            onnx.save(suite.open_dims(model), path)
            done = subprocess.run([args.attnc, path, "-o", f"{path}.so"], capture_output=True, text=True)
            if done.returncode:
                continue
            compiled += 1
            session = Session(args.runtime, f"{path}.so")
            late = lateness(session, feeds, len(model.graph.output))
            if late and (worst is None or late > worst):
                worst = late
    pipe.send((compiled, worst))


def from_contrib():
    """{(domain, operator): [(model, feeds)]} of contrib.py's cases."""
    for family in (contrib.activations, contrib.normalisations, contrib.products, contrib.operator_form,
                   contrib.quantised_embeddings, contrib.quantised_attentions, contrib.blocks,
                   contrib.quantised_products, contrib.rotary, contrib.attentions, contrib.grouped):
        family()
    found = {}
    for _, op, inputs, outputs, _, _, domain, _, _, attributes in contrib.CASES:
        model, feeds, _ = contrib.build(op, inputs, outputs, domain, attributes)
        found.setdefault((domain or "ai.onnx", op), []).append((model, feeds))
    return found


def coverage():
    """(domain, operator) of the page."""
    domain = None
    for line in (ROOT / "docs/operators.md").read_text().splitlines():
        if line.startswith("## "):
            domain = line[3:]
        elif domain and (match := re.match(r"\| (\w+) \| \d", line)):
            yield domain, match[1]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ops", default="")
    p.add_argument("--limit", type=float, default=50, help="milliseconds")
    p.add_argument("--attnc", default=str(ROOT / "build/bin/attnc"))
    p.add_argument("--runtime", default=str(ROOT / "build/lib/libattnrt.so"))
    args = p.parse_args()
    all_cases = [c for c in suite.load_cases().values() if isinstance(c, suite.Case)]
    own, wanted = from_contrib(), set(filter(None, args.ops.split(",")))
    worst, counts = (0, "none"), {"measured": 0, "short": 0, "without a case": 0}
    for domain, op in coverage():
        if wanted and op not in wanted:
            continue
        ours, theirs = multiprocessing.Pipe()
        models = cases_of(op, domain, all_cases, own)
        process = multiprocessing.Process(target=measure, args=(op, domain, models, args, theirs))
        process.start()
        theirs.close()
        try:
            compiled, late = ours.recv() if ours.poll(300) else (1, (300 * 10**9, "no answer"))
        except EOFError:
            compiled, late = 1, (10**12, "died")
        process.kill()
        process.join()
        kind = "measured" if late else "short" if compiled else "without a case"
        counts[kind] += 1
        print(f"{op}: " + (f"{late[0] / 1e6:.1f} ms late ({late[1]})" if late else kind), flush=True)
        if late and late[0] > worst[0]:
            worst = (late[0], op)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    print(f"worst: {worst[0] / 1e6:.1f} ms late ({worst[1]})")
    return 1 if worst[0] > args.limit * 1e6 else 0


if __name__ == "__main__":
    sys.exit(main())
