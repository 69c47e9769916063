"""Open-loop load on a server: requests come by a Poisson process, whether or not earlier ones are answered."""
import asyncio
import random
import time

import numpy as np

# Sentences of mixed length: what people search for, and what they search in.
WORDS = ("the rain and rivers of a country in spring carry bread to its markets while stock prices rise for reasons that "
         "nobody who trades them can explain in fewer words than this").split()


def sentences(count, seed=0):
    """Lengths are drawn from a log-normal distribution: half have at most 11 words, one in twenty has over 40."""
    draw = random.Random(seed)
    lengths = [min(max(int(draw.lognormvariate(2.4, 0.8)), 1), 120) for _ in range(count)]
    return [" ".join(draw.choice(WORDS) for _ in range(length)) for length in lengths]


class Trial:
    """Latencies in milliseconds of those that were answered, and how many were not."""

    def __init__(self, latencies, failed, seconds):
        self.latencies, self.failed, self.seconds = latencies, failed, seconds

    def percentile(self, share):
        return float(np.percentile(self.latencies, share)) if len(self.latencies) else float("inf")

    @property
    def rate(self):
        return len(self.latencies) / self.seconds


async def offer(call, texts, rate, seconds, seed=0, most=2000):
    """``call(text)`` at ``rate`` per second for some seconds; at most ``most`` are open at a time, others count as failed."""
    draw = random.Random(seed)
    latencies, failed, open_calls = [], 0, set()
    began = time.monotonic()
    due = began

    async def one(text, at):
        nonlocal failed
        try:
            await call(text)
            latencies.append(1e3 * (time.monotonic() - at))
        except Exception:
            failed += 1

    number = 0
    while due < began + seconds:
        due += draw.expovariate(rate)
        await asyncio.sleep(max(due - time.monotonic(), 0))
        if len(open_calls) >= most:
            failed += 1
            continue
        # Measured from when it was due: a client that lags behind hides nothing.
        task = asyncio.ensure_future(one(texts[number % len(texts)], due))
        open_calls.add(task)
        task.add_done_callback(open_calls.discard)
        number += 1
    if open_calls:
        await asyncio.wait(open_calls, timeout=30)
    return Trial(latencies, failed + len(open_calls), time.monotonic() - began)
