"""Runs attnc with streams that cannot be written to."""
import os
import subprocess


def run(status, words, *flags, **streams):
    done = subprocess.run(["attnc", "m.mlir", *flags], text=True, timeout=120, **streams)
    assert done.returncode == status and words in (done.stderr or ""), (flags, done)


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
run(1, "error: cannot write to standard output: Broken pipe", "--emit=attn", stdout=closed(), stderr=subprocess.PIPE)
run(0, "", "--mlir-print-ir-after-all", "--mlir-timing", "--emit=linalg", "-o", os.devnull, stderr=closed())
