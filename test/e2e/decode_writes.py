#!/usr/bin/env python3
"""What a decode step writes and allocates does not depend on the length of its caches.

decode_writes.py ATTNC LIBATTNRT COUNTER.so WORK: COUNTER is count_writes.c, which counts pages and allocations of each
step, in a process of its own. The step is that of search/check_caches.py without anything that tells one cache from
another, so that beams choose the same whatever the length.
"""
import ctypes
import os
import pathlib
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "search"))
LENGTHS, BATCH, STEPS, WIDTH = (5000, 25000), 2, 10, 64 # of caches that are reduced in as many parts as there may be


def build(attnc, work):
    import check_caches
    import onnx
    check_caches.D = WIDTH
    step = check_caches.Step("BHPD")
    step.weights["Wv"][:] = 0
    onnx.save(step.model(False), work / "step.onnx")
    states = ["--state=past_0:present_0", "--state=past_1:present_1"]
    search = ["--bos=1", f"--max-length={STEPS}"]
    for name, flags in (("own", ["--own-state", *states]), ("greedy", ["--generate=greedy", *search]),
                        ("beam", ["--generate=beam:4", *search])):
        subprocess.run([attnc, f"step={work}/step.onnx", *flags, "-o", work / f"{name}.so"], check=True)


class Watched:
    def __init__(self, runtime, counter, library):
        import own_state
        self.o, self.rt = own_state, own_state.Runtime(runtime, str(library), threads=1)
        self.counter = ctypes.CDLL(counter)
        for name in ("watched_pages", "watched_allocations"):
            getattr(self.counter, name).restype = ctypes.c_long

    def run(self, inputs, outputs, entry=None, state=None):
        """Pages and allocations of each span; the runtime makes the outputs."""
        inputs = [self.rt.view(np.ascontiguousarray(x)) for x in inputs]
        options = self.o.RunOptions(ctypes.sizeof(self.o.RunOptions), entry, None, 0, state, None, 0)
        given = (ctypes.POINTER(self.o.DLTensor) * len(inputs))(*map(ctypes.pointer, inputs))
        made = (self.o.Output * outputs)()
        if self.counter.watched_run(self.rt.lib.attnrt_session_run, self.rt.session, ctypes.byref(options), given,
                                    len(inputs), made, outputs):
            sys.exit(self.rt.lib.attnrt_last_error().decode())
        spans = range(self.counter.watched_spans())
        return [self.counter.watched_pages(n) for n in spans], [self.counter.watched_allocations(n) for n in spans]


def own(watched, length):
    """A step of the states after the first, and one that is given its caches."""
    rt, caches = watched.rt, [np.zeros((BATCH, 1, length, WIDTH), np.float32) for _ in range(2)]
    state, token = ctypes.c_void_p(), np.ones(BATCH, np.int64)
    rt.call("attnrt_state_create", rt.session, None, ctypes.byref(state))
    for n, cache in enumerate(caches):
        rt.call("attnrt_state_set", state, f"past_{n}".encode(), ctypes.byref(rt.view(cache)))
    watched.run([token], 1, state=state)  # makes room
    runs = [watched.run([token], 1, state=state) for _ in range(3)]
    # The scores, which the runtime is to make, are the one thing that is new.
    assert all(sum(allocations) <= 1 for _, allocations in runs), runs
    plain, _ = watched.run([token, *caches], 3)
    assert sum(plain) >= sum(x.nbytes for x in caches) // 4096, (plain, "the counter sees what is copied")
    return [sum(pages) for pages, _ in runs]


def generate(watched, length):
    """What each step but the first, which makes room, and the last one, which includes the results, writes from one look
    at the run's end to the next. Every step looks as often as the others."""
    caches = [np.zeros((BATCH, 1, length, WIDTH), np.float32) for _ in range(2)]
    pages, allocations = watched.run(caches, 3, b"generate")
    copied = sum(x.nbytes for x in caches) // 4096
    room = max(n for n, count in enumerate(pages) if count > copied / 2)
    assert sum(pages[:room + 1]) > copied, pages
    looks = (len(pages) - room - 1) // (STEPS - 1)
    assert looks > 0, pages
    steps = slice(room + 1, room + 1 + looks * (STEPS - 2))
    assert not any(allocations[steps]), allocations
    return [sum(pages[n:n + looks]) for n in range(steps.start, steps.stop, looks)]


def measure(runtime, counter, work):
    for name, fn in (("own", own), ("greedy", generate), ("beam", generate)):
        watched = Watched(runtime, counter, work / f"{name}.so")
        counts = [fn(watched, length) for length in LENGTHS]
        assert counts[0] == counts[1] and min(counts[0]) > 0, (name, dict(zip(LENGTHS, counts)))
        print(f"{name}: pages a step {counts[0]} at lengths {LENGTHS}")


if __name__ == "__main__":
    if sys.argv[1] == "measure":
        measure(*sys.argv[2:4], pathlib.Path(sys.argv[4]))
    else:
        attnc, runtime, counter, work = *sys.argv[1:4], pathlib.Path(sys.argv[4])
        build(attnc, work)
        sys.exit(subprocess.run([sys.executable, __file__, "measure", runtime, counter, work],
                                env={**os.environ, "LD_PRELOAD": counter}).returncode)
