"""python colour.py MODEL LIBRARY: runs attnc with standard error on a terminal, and looks for colours and for what it
says of the library."""
import os
import pty
import re
import subprocess
import sys


def said(*arguments, **changes):
    terminal, theirs = pty.openpty()
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    command = ["attnc", *(arguments or ["absent.onnx"])]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env={**env, "TERM": "xterm", **changes})
    os.close(theirs)
    text = b""
    try:
        while part := os.read(terminal, 4096):
            text += part
    except OSError:
        pass
    child.wait()
    return text


red = said()
assert b"\x1b[" in red and b"error: " in red, red
for changes in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
    plain = said(**changes)
    assert b"\x1b[" not in plain and b"error: absent.onnx: no such file" in plain, plain

model, library = sys.argv[1:]
last = said(model, "-o", library).splitlines()[-1].rsplit(b"\x1b[K", 1)[-1].decode()
size, time = r"[0-9.]+ [KMG]iB", "[0-9.]+ m?s"
assert re.fullmatch(f"{os.path.basename(library)}: {size} in {time}, 1 of 1 attentions fused", last), last
text = said(model, "--emit=llvm", "-o", "-").splitlines()[-1].rsplit(b"\x1b[K", 1)[-1]
assert text == b"", text
