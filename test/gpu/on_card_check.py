"""One test of a package: a compiled case in a process of its own against its references, or a test of the programs bin/ptx-*.
What fails runs again with every launch waited for, and under compute-sanitizer where that is."""
import ctypes
import pathlib
import shutil
import tempfile
import threading
import time

import numpy as np

from on_card_compile import HERE, run
from on_card_inputs import input_files

LIMIT = 20          # seconds a test
AGAIN, SANITIZED = 12, 4  # failures that are looked into
FIRST, LAST = 500, 200    # characters of what a failing program says


def shortened(text):
    """Its beginning, where the culprit is, and its end."""
    text = text.strip()
    return text if len(text) <= FIRST + LAST else f"{text[:FIRST]} [...] {text[-LAST:]}"


def widened(array):
    """NumPy has no bf16, but reads its bytes."""
    return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if array.dtype.kind == "V" else array.astype(float)


def spread(places, name):
    """Where along an axis the wrong elements lie: a wrong layout shows as a pattern."""
    places = np.unique(places)
    if places.size <= 4:
        return f"{name} {', '.join(map(str, places))}"
    for period in (8, 16, 32, 64):
        residues = np.unique(places % period)
        if residues.size <= period // 4:
            return f"{name} {places[0]}..{places[-1]}, all of them {', '.join(map(str, residues))} mod {period}"
    return f"{places.size} {name} in {places[0]}..{places[-1]}"


def compare(name, got, want, rtol, atol, rows=None, exact=None, slack=0):
    """What is wrong, or "". `want` is all of it, or the rows (of the last dimension) that `rows` numbers; the others must be
    finite, as nothing that was never written is. `exact`: the same of factors that are not rounded, to which a library may
    be as near. `slack`: how far each may be off beyond the rest."""
    shape, got, want = got.shape, widened(got), widened(want)
    if exact is not None:
        with np.errstate(invalid="ignore"):
            apart = np.abs(widened(exact) - want)
        atol = atol + np.where(np.isfinite(apart), apart, 0)
    atol = atol + slack
    if rows is not None:
        got = got.reshape(-1, shape[-1])
        if np.isfinite(want).all() and not np.isfinite(got).all():
            row, column = np.argwhere(~np.isfinite(got))[0]
            return (f"{name}: {np.sum(~np.isfinite(got))} of {got.size} elements are not finite, the first at "
                    f"{tuple(map(int, np.unravel_index(row, shape[:-1])))}, column {column}")
        got = got[rows]
    if got.shape != want.shape:
        return f"{name}: shape {got.shape}, expected {want.shape}"
    isWrong = ~np.isclose(got, want, rtol=rtol, atol=atol, equal_nan=True)
    if not isWrong.any():
        return ""
    places = np.argwhere(isWrong)
    first = tuple(places[0])
    shown = [int(n) for n in first]
    if rows is not None:
        places[:, 0] = np.asarray(rows)[places[:, 0]]
        shown = [*map(int, np.unravel_index(rows[first[0]], shape[:-1])), int(first[1])]
    with np.errstate(invalid="ignore"):
        worst = np.nanmax(np.abs(got - want)[isWrong], initial=0)
    text = (f"{name}: {places.shape[0]} of {want.size} elements wrong, the first at {tuple(shown)}: {got[first]:.6g}, expected "
            f"{want[first]:.6g}; off by {worst:.2e}")
    axes = ["rows", "columns"][-places.shape[1]:] if places.shape[1] else []
    return "; ".join([text, *(spread(places[:, n - len(axes)], axis) for n, axis in enumerate(axes))])


def check(folder, description, *, own, wrapper=(), blocking=False):
    """Exit status (0 where it ran) and what is wrong, or ""."""
    library = folder / description.get("library", "model.so")
    with tempfile.TemporaryDirectory() as temporary:
        command = [*wrapper, HERE / "bin/attn-run", library] + ["--own-products"] * own
        command += [f"--entry={description['entry']}"] if "entry" in description else []
        try:
            command += [f"--input={name}=@{path}" for name, path in input_files(folder, description["inputs"], temporary)]
        except ValueError as error:
            return 0, str(error)
        outputs = list(description["outputs"].items())
        command += [f"--output={name}=@{temporary}/{n}.npy" for n, (name, _) in enumerate(outputs)]
        status, text = run(*command, limit=LIMIT * (4 if wrapper else 1), blocking=blocking)
        if status:
            return status, f"exit status {status}: {shortened(text)}"
        for n, (name, stored) in enumerate(outputs):
            stored = stored if isinstance(stored, dict) else {"file": stored}
            exact = np.load(folder / stored["exact"]) if "exact" in stored and not own else None
            slack = np.load(folder / stored["slack"]) if "slack" in stored else 0
            wrong = compare(name, np.load(f"{temporary}/{n}.npy"), np.load(folder / stored["file"]), description["rtol"],
                            description["atol"], stored.get("rows"), exact, slack)
            if wrong:
                return 0, wrong
    return 0, ""


class Failures:
    """Looks into the first ones."""

    def __init__(self, end):
        self.end, self.lock, self.again, self.sanitized = end, threading.Lock(), 0, 0
        self.sanitizer = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")

    def take(self, counter, most):
        with self.lock:
            count = getattr(self, counter)
            setattr(self, counter, count + 1)
            return count < most and time.monotonic() < self.end

    def look_into(self, folder, description, own, text):
        """`text`, and what comes of running it again."""
        if not self.take("again", AGAIN):
            return text
        _, again = check(folder, description, own=own, blocking=True)
        text += " | with CUDA_LAUNCH_BLOCKING=1: " + (again if again != text else "the same" if again else "ok")
        if self.sanitizer and self.take("sanitized", SANITIZED):
            _, found = check(folder, description, own=own, wrapper=(self.sanitizer, "--error-exitcode=99", "--print-limit=3"))
            text += f" | compute-sanitizer: {found or 'nothing'}"
        return text


def has_library():
    """Whether the runtime will find cuBLASLt here."""
    for version in ("13", "12"):
        try:
            return bool(ctypes.CDLL(f"libcublasLt.so.{version}"))
        except OSError:
            pass
    return False


def tests_of(descriptions):
    """(name, what its case is called, whether products are the library's own), riskiest first. cuBLASLt is not ours: it comes
    behind."""
    found = [(description.get("risk", 99), name, name, True) for name, description in descriptions.items() if description["inputs"]]
    if has_library():
        found += [(50, f"{name} with cuBLASLt", name, False) for name, description in descriptions.items() if description.get("products")]
    return [each[1:] for each in sorted(found)]


def programs():
    """Of the programs bin/ptx-* each test by itself: (name, command)."""
    for program in sorted(pathlib.Path(HERE / "bin").glob("ptx-*")):
        status, text = run(program, "--gtest_list_tests", limit=LIMIT)
        suite, names = "", []
        for line in text.splitlines() if not status else ():
            if line and not line.startswith((" ", "Running main")):
                suite = line.split()[0]
            elif line.startswith("  "):
                names.append(suite + line.split()[0])
        for name in names:
            yield f"{program.name} {name}", (program, f"--gtest_filter={name}", "--gtest_brief=1")
        if not names:
            yield program.name, (program, "--gtest_brief=1")
