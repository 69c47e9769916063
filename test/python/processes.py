"""Threads, forks, event loops and signals: a model that many use at the same time, and what ends a run.

ATTNC_FULL: also 1,000 threads and 10,000 loads.
"""
import asyncio
import concurrent.futures
import gc
import multiprocessing
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest

import attnc
import models
import numpy as np

FULL = bool(os.environ.get("ATTNC_FULL"))
LONG = {"count": np.array(1 << 23), "x": np.ones((64, 64), np.float32)}  # many seconds


def resident():
    """Bytes of this process in memory."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


class Processes(unittest.TestCase):
    def test_threads(self):
        model = attnc.load(models.scaled(), threads=1, sessions=2)
        wrong = []

        def work(number):
            a = np.full((3, 4), number, np.float32)
            for _ in range(50):
                if not (model(a, a) == 3 * a).all():
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(1000 if FULL else 50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertEqual(model.sessions, 2)

    def test_others_run_during_a_run(self):
        model = attnc.load(models.endless(), threads=1, sessions=2)
        cancel, ended = attnc.Cancel(), []
        busy = threading.Thread(target=lambda: ended.append(self.assertRaises(attnc.Cancelled, model.run, LONG, cancel=cancel)))
        busy.start()
        model.run({**LONG, "count": np.array(10)})
        self.assertEqual(ended, [])
        cancel.request()
        busy.join()

    def test_fork(self):
        model = attnc.load(models.BERT, threads=2)
        ids = np.ones((1, 8), np.int64)
        expected = model(ids, ids)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            for y in pool.map(_Call(model), [ids] * 4):
                np.testing.assert_array_equal(y, expected)
        np.testing.assert_array_equal(model(ids, ids), expected)

    def test_as_many_sessions_as_cpus(self):
        program = textwrap.dedent("""
            import os, attnc, models
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            model = attnc.load(models.scaled())
            print(model.threads, model.sessions)
            """)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": ""})
        self.assertEqual(done.stdout, "1 1\n", done.stderr)

    def test_fork_while_all_sessions_run(self):
        model = attnc.load(models.endless(), threads=1, sessions=1)
        cancel = attnc.Cancel()
        busy = threading.Thread(target=lambda: self.assertRaises(attnc.Cancelled, model.run, LONG, cancel=cancel))
        busy.start()
        time.sleep(0.1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                y = model.run({**LONG, "count": np.array(1)}, timeout=60)["y"]
                code = 0 if np.allclose(y, np.tanh(LONG["x"])) else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        cancel.request()
        busy.join()
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)

    def test_spawned_processes_load_by_path(self):
        path = models.BERT
        model = attnc.load(path, threads=1)
        ids = np.ones((1, 4), np.int64)
        with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            np.testing.assert_array_equal(pool.submit(_call, pickle.dumps(model), ids).result(), model(ids, ids))

    def test_event_loop(self):
        model = attnc.load(models.endless(), threads=1, sessions=1)
        short = {**LONG, "count": np.array(3)}

        async def work():
            first, second = await asyncio.gather(model.arun(**short), model.arun(**short, entry="main"))
            np.testing.assert_array_equal(first, second)
            task = asyncio.create_task(model.arun(**LONG))
            await asyncio.sleep(0.1)
            start = time.monotonic()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            with self.assertRaises(attnc.DeadlineExceeded):
                await model.arun(**LONG, timeout=0.05)
            with self.assertRaises(TimeoutError):
                await asyncio.wait_for(model.arun(**LONG), 0.05)
            with self.assertRaises(attnc.InvalidArgument):
                await model.arun(count=np.array(1))
            # The one session is free again: the runs have ended, not only their tasks.
            await model.arun(**short)
            self.assertLess(time.monotonic() - start, 30)

        asyncio.run(work())

    def test_interrupt(self):
        # The signal comes while the main thread runs, or waits for a session; afterwards the model serves on.
        program = textwrap.dedent("""
            import models, attnc, numpy as np, os, signal, sys, threading, time
            signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
            model = attnc.load(models.endless(), threads=1, sessions=1)
            feeds = {"count": np.array(1 << 23), "x": np.ones((64, 64), np.float32)}
            interrupt = lambda: os.kill(os.getpid(), signal.SIGINT)
            for waits in (False, True):
                cancel = attnc.Cancel()
                if waits:
                    def run():
                        try:
                            model.run(feeds, cancel=cancel)
                        except attnc.Cancelled:
                            pass
                    other = threading.Thread(target=run)
                    other.start()
                    time.sleep(0.1)
                threading.Timer(0.1, interrupt).start()
                try:
                    model(**feeds)
                    sys.exit("not interrupted")
                except KeyboardInterrupt:
                    print("interrupted")
                if waits:
                    cancel.request()
                    other.join()
            # A handler that goes on: so does the run.
            seen = []
            signal.signal(signal.SIGINT, lambda *_: seen.append(1))
            threading.Timer(0.05, interrupt).start()
            feeds["count"] = np.array(1 << 15)
            y = model(**feeds)
            while not seen:
                time.sleep(0.01)
            print("done", y.shape)
            """)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.assertEqual((done.stdout, done.stderr), ("interrupted\ninterrupted\ndone (64, 64)\n", ""))

    def test_leaks(self):
        proto = models.scaled()
        path = attnc.load(proto).path
        a = np.ones((64, 4), np.float32)

        def work(times):
            for _ in range(times):
                model = attnc.Model(path, threads=1)
                model(a, a)
                model.run({"a": a, "b": a})
                try:
                    model(a)
                except attnc.InvalidArgument:
                    pass
            gc.collect()

        work(100)
        before = resident()
        work(10000 if FULL else 300)
        self.assertLessEqual(resident() - before, 1 << 20)

        model = attnc.Model(path, threads=1)
        big = np.ones((1 << 16, 4), np.float32)
        model(big, big)
        before = resident()
        for _ in range(300):
            model(big, big)
        self.assertLessEqual(resident() - before, 1 << 21)  # of 300 results of 1 MB each


class _Call:
    def __init__(self, model):
        self.model = model

    def __call__(self, ids):
        return self.model(ids, ids)


def _call(pickled, ids):
    return pickle.loads(pickled)(ids, ids)


if __name__ == "__main__":
    unittest.main()
