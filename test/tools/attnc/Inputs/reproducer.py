"""reproducer.py MODEL FOLDER: kills attnc's worker once it compiles, and replays what is left."""
import os
import pty
import re
import signal
import subprocess
import sys

model, folder = sys.argv[1:]
output = os.path.join(folder, "model.so")
reproducer = output + ".reproducer.mlir"

for number, name in ((signal.SIGSEGV, "Segmentation fault"), (signal.SIGKILL, "Killed")):
    terminal, theirs = pty.openpty()
    driver = subprocess.Popen(["attnc", model, "-o", output], stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    said, killed = "", False
    while True:
        try:
            said += os.read(terminal, 4096).decode()
        except OSError:
            break  # the end of a terminal is an error
        if not killed and re.search(r"model\.onnx: (?!importing)", said):
            worker = int(open(f"/proc/{driver.pid}/task/{driver.pid}/children").read())
            os.kill(worker, number)
            killed = True
    status = driver.wait(timeout=60)
    assert status == 4, (status, said)
    # A pass that the signal met on its own thread was given up, and the worker lived, or died later of a lock.
    recovered = number == signal.SIGSEGV and "internal error: a pass crashed" in said
    died = any("internal error: the compile died: " + why in said for why in (name, "a pass crashed"))
    assert died or recovered, said
    assert f"'attn-opt --run-reproducer {reproducer}' replays it" in said, said
    assert os.listdir(folder) == [os.path.basename(reproducer)], os.listdir(folder)
    replay = subprocess.run(["attn-opt", "--run-reproducer", reproducer, "-o", os.devnull], capture_output=True, text=True)
    assert replay.returncode == 0, replay.stderr
    os.remove(reproducer)
