"""What a compile meets: faults.py PRELOAD.so MODEL FOLDER [CELL...]; attnc and attn-run are taken from PATH.

Each cell is a fault of the table in test/faults.md. Afterwards the output is the older one or a whole new one, nothing
is left beside it, a compile that failed has said why, and the next compile works.
"""
import errno
import os
import pathlib
import resource
import shutil
import stat
import subprocess
import sys
import threading
import time

preload, model, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
OLD = b"the older output"
MESSAGE_CODES = (1, 2, 3, 4)


def attnc(*arguments, limits=(), environment=None, timeout=120, **more):
    def limit():
        for what, most in limits:
            resource.setrlimit(what, (most, most))
    return subprocess.run(["attnc", *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                          preexec_fn=limit, env=os.environ | (environment or {}), **more)


def is_whole(path):
    return subprocess.run(["attn-run", "--info", path], capture_output=True).returncode == 0


def check(what, done, output=None, said=(), codes=MESSAGE_CODES):
    """A compile that failed, or did not mind."""
    assert done.returncode in (0, *codes), f"{what}: exit status {done.returncode}: {done.stderr}"
    if done.returncode:
        assert "error: " in done.stderr, f"{what}: no message: {done.stderr}"
        assert not said or any(s in done.stderr for s in said), f"{what}: {done.stderr}"
    if output:
        bytes_ = output.read_bytes()
        assert bytes_ == OLD if done.returncode else is_whole(output), f"{what}: a partial output"
    left = [n for n in os.listdir(folder) if n.startswith(".")]
    assert not left, f"{what}: left behind: {left}"
    return done.returncode


def again(output):
    assert attnc(model, "-o", output).returncode == 0 and is_whole(output)


def each_call(call, error, said, most=400):
    """Call number 1, 2, ... of `call` fails, up to the number that a compile makes."""
    output, failed = folder / "model.so", 0
    for n in range(1, most):
        output.write_bytes(OLD)
        fault = {"LD_PRELOAD": preload, "FAIL_CALL": call, "FAIL_AT": str(n), "FAIL_ERRNO": str(error)}
        done = attnc(model, "-o", output, "--reproducer=/dev/null", environment=fault)
        failed += check(f"{call} {n}", done, output, said) != 0
        if done.returncode == 0 and n > failed + 1: # none of so many
            break
    again(output)
    assert failed, f"no {call} failed"
    return failed


def c3():
    """the disk is full"""
    return each_call("write", errno.ENOSPC, ["No space left on device", "died", "linker", "internal error"])


def c4():
    """EIO on each write, fsync and rename, and what else makes a file or process"""
    said = [os.strerror(errno.EIO), "died", "linker", "internal error"]
    return sum(each_call(call, errno.EIO, said)
               for call in ("write", "fsync", "rename", "mkostemp", "fchmod", "memfd_create", "pipe2", "fork"))


def c5():
    """a folder that cannot be written"""
    locked = folder / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    # Root may write anywhere but where the file system says no.
    target = "/proc/self/model.so" if os.geteuid() == 0 else locked / "model.so"
    done = attnc(model, "-o", target)
    assert check("read-only", done), "a file in a folder that cannot be written"
    locked.rmdir()


def c6():
    """an output that is a folder, a full device, a pipe (whoever reads it gets all), a link (its file is replaced)"""
    (folder / "folder").mkdir()
    for name, said in (("folder", "Is a directory"), ("/dev/full", "No space left on device")):
        assert check(name, attnc(model, "-o", folder / name), said=[said]), name
    pipe, copy = folder / "pipe", folder / "copy.so"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=open(copy, "wb"))
    assert attnc(model, "-o", pipe).returncode == 0 and reader.wait() == 0 and is_whole(copy)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    target, link = folder / "target.so", folder / "link.so"
    target.write_bytes(OLD)
    link.symlink_to(target)
    assert attnc(model, "-o", link).returncode == 0 and link.is_symlink() and is_whole(target)
    (folder / "pipe").unlink()
    (folder / "folder").rmdir()


def c7():
    """no linker: lld is in the compiler, and nothing is looked up"""
    program = shutil.which("attnc")
    done = subprocess.run([program, model, "-o", str(folder / "model.so")], env={"PATH": "/nonexistent"})
    assert done.returncode == 0


def c8():
    """no folder for temporary files"""
    assert attnc(model, "-o", folder / "model.so", environment={"TMPDIR": "/nonexistent"}).returncode == 0


def c9():
    """address space of 128 MiB to 4 GiB"""
    output, codes = folder / "model.so", []
    for megabytes in (128, 192, 256, 384, 512, 768, 1024, 2048, 4096):
        output.write_bytes(OLD)
        done = attnc(model, "-o", output, "--reproducer=/dev/null", limits=[(resource.RLIMIT_AS, megabytes << 20)])
        if done.returncode == 127: # the loader has no room for the program itself
            assert "cannot" in done.stderr or "error while loading" in done.stderr, done.stderr
            assert output.read_bytes() == OLD
        else:
            check(f"{megabytes} MiB", done, output)
        codes.append(done.returncode)
    assert codes[-1] == 0, codes
    again(output)


def c10():
    """an allocation that fails, from where libraries are loaded to the end of the compile"""
    output, failed, n = folder / "model.so", 0, 1000
    while n < 1_000_000:
        output.write_bytes(OLD)
        fault = {"LD_PRELOAD": preload, "FAIL_CALL": "malloc", "FAIL_AT": str(n)}
        done = attnc(model, "-o", output, "--reproducer=/dev/null", environment=fault)
        failed += check(f"allocation {n}", done, output) != 0
        n += n // 4 + 1
    assert failed > 10, f"{failed} failed"
    again(output)
    return failed


def c11():
    """16 descriptors"""
    output = folder / "model.so"
    for most in range(4, 17):
        output.write_bytes(OLD)
        done = attnc(model, "-o", output, "--reproducer=/dev/null", limits=[(resource.RLIMIT_NOFILE, most)])
        if done.returncode != 127: # no descriptor for a shared library
            check(f"{most} descriptors", done, output)
    again(output)


def c12():
    """two compiles into one file"""
    output = folder / "model.so"
    for _ in range(3):
        both = [subprocess.Popen(["attnc", model, "-o", output]) for _ in range(2)]
        assert [p.wait() for p in both] == [0, 0] and is_whole(output)
    assert not [n for n in os.listdir(folder) if n.startswith(".")]


def c13():
    """a model that is cut while it is read: none of its lengths is one that the importer dies of"""
    cut, whole = folder / "cut.onnx", pathlib.Path(model).read_bytes()
    stop = threading.Event()

    def shorten():
        n = 0
        while not stop.is_set():
            n += 1
            with open(cut, "r+b") as file:
                file.truncate(len(whole) * (n * 7919 % 100) // 100)
                file.seek(0)
                file.write(whole)
    cut.write_bytes(whole)
    thread = threading.Thread(target=shorten)
    thread.start()
    try:
        for _ in range(12):
            check("cut", attnc(cut, "-o", folder / "cut.so", "--reproducer=/dev/null"))
    finally:
        stop.set()
        thread.join()
    cut.unlink()


def c14():
    """a model that is a pipe without a writer, a device without an end, a folder"""
    os.mkfifo(folder / "in")
    done = attnc(folder / "in", "-o", folder / "none.so", "--timeout=1")
    assert check("pipe", done, said=["stopped after", "is not a regular file"])
    (folder / "in").unlink()
    for path in ("/dev/zero", str(folder)):
        done = attnc(path, "-o", folder / "none.so", "--timeout=60", "--max-memory=2G")
        assert check(path, done), path


def c15():
    """a deadline"""
    began = time.monotonic()
    done = attnc(model, "-o", folder / "late.so", "--timeout=0.001")
    assert done.returncode == 4 and "--timeout" in done.stderr, done.stderr
    assert time.monotonic() - began < 30 and not (folder / "late.so").exists()


CELLS = {f.__name__.upper(): f for f in (c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15)}
for name in sys.argv[4:] or CELLS:
    began = time.monotonic()
    detail = CELLS[name]()
    print(f"{name}: {CELLS[name].__doc__}" + (f", {detail} faults" if detail else ""), file=sys.stdout, flush=True)
    print(f"{name} {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
