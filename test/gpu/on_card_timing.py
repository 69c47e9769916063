"""Times sides alternately, so that clocks are the same for all; on a card between two events of its stream.

The stream first overwrites a buffer larger than the L2 cache, then spins. What follows is queued meanwhile, so that neither
side pays for its launches. A run of attnc returns when its work is done: it goes on another thread, and the second event is
recorded while the stream still spins; a third one, somewhat later, tells whether work came in between. Where the spinning ended before all was queued it is made longer; a run that waits in
between, or launches for too long, is measured with the host, and that is counted (`host_included`).
"""
import concurrent.futures
import contextlib
import statistics
import time

FLUSHED = 256 << 20          # bytes
SPIN_MS, LONGEST_MS = 4.0, 12.0
QUEUED_MS = 1.5              # in which a run of attnc has put its work on the stream
TRIES = 4                    # the host may be late by chance
RAMP_MS = 300                # until clocks are up
SETTLED_MS = 0.75            # in which no more work may come
NOTHING_MS = 0.004           # between two events with no work in between
SLACK_MS = 0.3               # between the event behind the work and the one behind the run
LEAST = 20                   # measurements a side
WARM_UP = 3
HOW = {"device": f"between events, launches hidden, L2 overwritten ({FLUSHED >> 20} MiB) before each run",
       "wall": "on the host's clock, from the call until the card is idle",
       "cpu": "on the host's clock: a rehearsal without a card, whose figures mean nothing"}


class Side:
    """`call()` does the work; `blocks`: it returns when the work is done."""

    def __init__(self, name, call, blocks=False):
        self.name, self.call, self.blocks, self.times, self.late, self.error = name, call, blocks, [], 0, ""

    def result(self):
        if self.error or not self.times:
            return {"side": self.name, "error": self.error or "no time left"}
        return {"side": self.name, "ms": statistics.median(self.times), "min_ms": min(self.times), "runs": len(self.times),
                "host_included": self.late}


class Clock:
    def __init__(self, torch, on_card):
        self.torch, self.on_card = torch, on_card
        if on_card:
            self.stream = torch.cuda.Stream()
            self.flush = torch.empty(FLUSHED, dtype=torch.uint8, device="cuda")
            self.events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
            self.helper = concurrent.futures.ThreadPoolExecutor(1)
            self.cycles, self.most = self.cycles_of(SPIN_MS), self.cycles_of(LONGEST_MS)

    @property
    def handle(self):
        """The stream on which both sides work."""
        return self.stream.cuda_stream if self.on_card else None

    def cycles_of(self, milliseconds):
        """At the clock that the card reaches under load: a spin is counted in cycles."""
        begin, end = self.events[:2]
        cycles, start = 1_000_000, time.perf_counter()
        while time.perf_counter() - start < RAMP_MS / 1e3:
            with self.torch.cuda.stream(self.stream):
                begin.record()
                self.torch.cuda._sleep(cycles)
                end.record()
            end.synchronize()
        return int(cycles * milliseconds / begin.elapsed_time(end))

    def wall(self, side):
        start = time.perf_counter()
        side.call()
        if self.on_card:
            self.stream.synchronize()
        return 1e3 * (time.perf_counter() - start)

    def device(self, side):
        if not self.on_card:
            return self.wall(side)
        for _ in range(TRIES):
            milliseconds, is_hidden = self.between_events(side)
            if is_hidden:
                return milliseconds
            self.cycles = min(2 * self.cycles, self.most)
        side.late += 1
        return milliseconds

    def between_events(self, side):
        """Time, and whether all was queued while the stream was spinning."""
        begin, end, settled, late = self.events
        self.flush.zero_()
        self.torch.cuda._sleep(self.cycles)
        begin.record()
        if not side.blocks:
            side.call()
            is_hidden = not begin.query()
            end.record()
            end.synchronize()
            return begin.elapsed_time(end), is_hidden
        running = self.helper.submit(side.call)
        time.sleep(QUEUED_MS / 1e3)
        end.record()
        time.sleep(SETTLED_MS / 1e3)
        is_hidden = not begin.query()
        settled.record()
        running.result()
        late.record()
        late.synchronize()
        is_hidden = is_hidden and end.elapsed_time(settled) < NOTHING_MS and settled.elapsed_time(late) < SLACK_MS
        return begin.elapsed_time(end if is_hidden else late), is_hidden

    def scope(self):
        return self.torch.cuda.stream(self.stream) if self.on_card else contextlib.nullcontext()

    def prepare(self, side):
        """Warm-up; a side that fails keeps its error and is timed no more."""
        try:
            with self.scope():
                for _ in range(WARM_UP):
                    side.call()
            if self.on_card:
                self.stream.synchronize()
        except Exception as error:  # noqa: BLE001: whatever a side fails with is its answer
            side.error = first_line(error)

    def measure(self, sides, how, end, rounds=4):
        """Each side LEAST times, in turns; none begins after `end` (of time.monotonic)."""
        timed = self.wall if how == "wall" else self.device
        least = LEAST if self.on_card else rounds
        with self.scope():
            for _ in range(rounds):
                for side in sides:
                    for _ in range(0 if side.error else -(-least // rounds)):
                        if time.monotonic() > end:
                            break
                        try:
                            side.times.append(timed(side))
                        except Exception as error:  # noqa: BLE001
                            side.error = first_line(error)
                            break
        return [side.result() for side in sides]


def first_line(error):
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:200]
