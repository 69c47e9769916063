"""Runs attnc with streams that cannot be written to."""
import os
import signal
import subprocess


def run(status, words, *flags, **streams):
    done = subprocess.run(["attnc", "m.mlir", *flags], text=True, timeout=120, **streams)
    assert done.returncode == status and words in (done.stderr or ""), (flags, done)
    return done.stderr


def ignore_sigpipe():
    """As shells do for what a service starts; --help would be ended by the signal else."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def closed():
    """The end of a pipe that no one reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


with open("/dev/full", "w") as full:
    run(1, "error: cannot write to standard output: No space left on device", "--emit=attn", stdout=full, stderr=subprocess.PIPE)
    run(1, "error: cannot write to standard output: No space left on device", "--emit=attn", "--json", "-o", os.devnull,
        stdout=full, stderr=subprocess.PIPE)
run(1, "error: cannot write '/dev/full': No space left on device", "--emit=attn", "-o", "/dev/full", stderr=subprocess.PIPE)
# A reader that has enough, as head, is told nothing.
for flag in "--emit=attn", "--help":
    said = run(128 + signal.SIGPIPE, "", flag, stdout=closed(), stderr=subprocess.PIPE, preexec_fn=ignore_sigpipe)
    assert said == "", said
run(0, "", "--mlir-print-ir-after-all", "--mlir-timing", "--emit=linalg", "-o", os.devnull, stderr=closed())
