"""Starts attn-run on a pipe, which keeps attnc's worker waiting, and interrupts it."""
import os
import signal
import subprocess
import sys
import time

folder = sys.argv[1]
model = os.path.join(folder, "model.mlir")
os.mkfifo(model)
for number in (signal.SIGINT, signal.SIGTERM):
    runner = subprocess.Popen(["attn-run", model])
    deadline = time.time() + 60
    while True:
        try:
            writer = os.open(model, os.O_WRONLY | os.O_NONBLOCK)  # fails as long as there is no reader
            break
        except OSError:
            assert time.time() < deadline and runner.poll() is None, "attn-run started no compile"
            time.sleep(0.01)
    assert os.listdir(os.environ["TMPDIR"])
    runner.send_signal(number)
    assert runner.wait(timeout=60) == -number, runner.returncode
    assert not os.listdir(os.environ["TMPDIR"]), os.listdir(os.environ["TMPDIR"])
    try:
        os.write(writer, b"x")  # a reader that lives on would take it
        raise SystemExit("the worker lives on")
    except BrokenPipeError:
        os.close(writer)
