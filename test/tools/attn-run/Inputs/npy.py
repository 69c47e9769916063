"""Gives attn-run .npy files, good ones and bad ones, and checks what it makes of them."""
import os
import subprocess
import sys

import numpy as np

folder = sys.argv[1]
library = os.path.join(folder, "model.so")
source, written = os.path.join(folder, "x.npy"), os.path.join(folder, "y.npy")
failures = []


def run(*flags):
    return subprocess.run(["attn-run", library, *flags], capture_output=True, text=True)


def header(text, version=(1, 0)):
    size = len(text).to_bytes(2 if version == (1, 0) else 4, "little")
    return b"\x93NUMPY" + bytes(version) + size + text.encode()


def refused(what, data, words, status=3):
    with open(source, "wb") as f:
        f.write(data)
    done = run(f"--input=x=@{source}", "--entry=rows")
    if done.returncode != status or words not in done.stderr or source not in done.stderr:
        failures.append(f"{what}: exit status {done.returncode}, expected {status} and '{words}', got: {done.stderr}")


good = {"descr": "'<f4'", "fortran_order": "False", "shape": "(2, 3)"}


def fields(**changes):
    return "{" + ", ".join(f"'{k}': {v}" for k, v in {**good, **changes}.items() if v) + ", }\n"


data = np.arange(6, dtype="<f4").tobytes()

# Good files: the sum over rows tells whether each element is where it belongs.
x = np.arange(24, dtype=np.float32).reshape(4, 6)
for what, array in (("row-major", x), ("column-major", np.asfortranarray(x)), ("a view's copy", x[:, ::2].copy())):
    np.save(source, array)
    done = run("--entry=rows", f"--input=x=@{source}", f"--output=y=@{written}")
    want = (np.sin(array.astype(np.float64)) / 3).sum(1)
    if done.returncode or not np.allclose(np.load(written), want, atol=1e-5):
        failures.append(f"{what}: {done.stderr or np.load(written)}")
for version in ((1, 0), (2, 0), (3, 0)):
    with open(source, "wb") as f:
        f.write(header(fields(), version) + data)
    if done := run("--entry=rows", f"--input=x=@{source}"):
        if done.returncode:
            failures.append(f"version {version}: {done.stderr}")

# A 3-D column-major array and each dtype, through --expected-output: the same file twice.
# (The right dtype for the model or not, both sides are read before they are compared.)
for dtype in ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"):
    np.save(source, np.asfortranarray(np.arange(8 * 3 * 2).reshape(8, 3, 2).astype(dtype)))
    done = run("--entry=rows", f"--expected-output=y=@{source}")
    words = "its shape is 8, expected 8x3x2" if dtype == "float32" else f"expected {dtype}"
    if done.returncode != 5 or words not in done.stderr:
        failures.append(f"{dtype}: {done.returncode} {done.stderr}")

# Bad files.
refused("empty", b"", "not an .npy file")
refused("text", b"hello, world\n" * 10, "not an .npy file")
refused("version 9", header(fields(), (9, 0)) + data, ".npy version 9 is not supported")
refused("header cut", header(fields())[:40], "cut short in its header")
refused("header longer than the file", b"\x93NUMPY\1\0\xff\xff{", "cut short in its header")
refused("huge header", b"\x93NUMPY\2\0\xff\xff\xff\xff{", "is longer than 65536")
refused("data cut", header(fields()) + data[:-1], "holds 23 bytes of data, the shape 2x3 of float32 takes 24")
refused("data too long", header(fields()) + data + b"x", "holds 25 bytes of data, the shape 2x3 of float32 takes 24")
refused("huge shape", header(fields(shape="(4294967296, 4294967296)")) + data, "has too many elements")
refused("large shape", header(fields(shape="(1099511627776,)")) + data, "the shape 1099511627776 of float32 takes 4398046511104")
refused("overflowing size", header(fields(shape="(99999999999999999999,)")) + data, "'shape' is damaged")
refused("negative size", header(fields(shape="(-1, 3)")) + data, "'shape' is damaged")
refused("no tuple", header(fields(shape="(6)")) + data, "'shape' is damaged")
refused("33 dimensions", header(fields(shape="(" + "1, " * 33 + ")")) + data, "'shape' is damaged")
refused("big-endian", header(fields(descr="'>f4'")) + data, "dtype '>f4' is big-endian; save it with .astype('<f4')")
refused("complex", header(fields(descr="'<c8'")) + data, "dtype '<c8' is not supported")
refused("object", header(fields(descr="'|O'")) + data, "dtype '|O' is not supported")
refused("records", header(fields(descr="[('a', '<f4')]")) + data, "arrays of records are not supported")
refused("no descr", header(fields(descr=None)) + data, "lacks descr, fortran_order or shape")
refused("unknown key", header(fields(extra="1")) + data, "unknown key 'extra'")
refused("repeated key", header(fields()[:-4] + ", 'descr': '<f4', }\n") + data, "repeats 'descr'")
refused("code", header("__import__('os').system('true')") + data, "the header is no dictionary")
refused("text after it", header(fields() + "x") + data, "text after its dictionary")
refused("not closed", header(fields()[:-4]) + data, "the header is damaged")
refused("key not closed", header("{'descr") + data, "the header is damaged")
os.remove(source)
os.mkfifo(source)
done = run("--entry=rows", f"--input=x=@{source}")
if done.returncode != 3 or "not a regular file" not in done.stderr:
    failures.append(f"pipe: {done.stderr}")

# Every dtype can be written and read back by NumPy; bfloat16 comes as raw bytes.
os.remove(source)
done = run("--entry=rows", f"--input=x=@{folder}")
if done.returncode != 3 or "not a regular file" not in done.stderr:
    failures.append(f"folder: {done.stderr}")
done = run("--entry=rows", f"--input=x=@{source}")
if done.returncode != 1 or "No such file" not in done.stderr:
    failures.append(f"absent: {done.returncode} {done.stderr}")

print("\n".join(failures))
sys.exit(bool(failures))
