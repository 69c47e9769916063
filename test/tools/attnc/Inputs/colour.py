"""Runs attnc with standard error on a terminal and looks for colours."""
import os
import pty
import subprocess


def said(**changes):
    terminal, theirs = pty.openpty()
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    subprocess.Popen(["attnc", "absent.onnx"], stderr=theirs, env={**env, "TERM": "xterm", **changes})
    os.close(theirs)
    text = b""
    try:
        while part := os.read(terminal, 4096):
            text += part
    except OSError:
        pass
    return text


red = said()
assert b"\x1b[" in red and b"error: " in red, red
for changes in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
    plain = said(**changes)
    assert b"\x1b[" not in plain and b"error: absent.onnx: no such file" in plain, plain
