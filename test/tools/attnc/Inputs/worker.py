"""Starts attnc on a pipe, does something to it or its worker, and checks what it says, how it ends and what is left."""
import os
import signal
import subprocess
import sys
import time

folder = sys.argv[1]
model = os.path.join(folder, "model.mlir")
output = os.path.join(folder, "out.mlir")
os.mkfifo(model)
writer = None


def start(*flags):
    return subprocess.Popen(["attnc", model, "--emit=attn", "-o", output, *flags], stderr=subprocess.PIPE, text=True)


def worker_of(driver):
    """The worker's pid, once it reads from the pipe."""
    global writer
    deadline = time.time() + 60
    while time.time() < deadline:
        try:
            writer = os.open(model, os.O_WRONLY | os.O_NONBLOCK)  # fails as long as there is no reader
            return int(open(f"/proc/{driver.pid}/task/{driver.pid}/children").read())
        except OSError:
            time.sleep(0.01)
    raise SystemExit("attnc started no worker")


def check(what, driver, status, *words):
    global writer
    err = driver.communicate(timeout=60)[1]
    if writer is not None:
        os.close(writer)
    writer = None
    left = sorted(os.listdir(folder))
    if driver.returncode != status or any(w not in err for w in words) or left != ["model.mlir"]:
        raise SystemExit(f"{what}: exit status {driver.returncode} (expected {status}), left {left}, said:\n{err}")


for number, words in ((signal.SIGSEGV, "Segmentation fault"), (signal.SIGKILL, "Killed"), (signal.SIGABRT, "Aborted")):
    driver = start()
    os.kill(worker_of(driver), number)
    check(f"worker killed by {number}", driver, 4, "error:", model, "internal error: the compile died: " + words, "importing")

began = time.time()
check("timeout", start("--timeout=0.3"), 4, "the compile was stopped after 300 ms, the limit set by --timeout (importing)")
assert time.time() - began < 30

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    driver = start()
    worker = worker_of(driver)
    driver.send_signal(number)
    check(f"driver stopped by {number}", driver, -number)
    assert not os.path.exists(f"/proc/{worker}"), "the worker lives on"

# Nothing can clean up after SIGKILL, but the worker goes too.
driver = start()
worker = worker_of(driver)
driver.kill()
driver.wait()
deadline = time.time() + 10
while os.path.exists(f"/proc/{worker}") and open(f"/proc/{worker}/stat").read().rsplit(")", 1)[1].split()[0] != "Z":
    assert time.time() < deadline, "the worker outlives the driver"
    time.sleep(0.01)
