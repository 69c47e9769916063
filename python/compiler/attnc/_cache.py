"""Compiled libraries that are kept: `~/.cache/attnc`, or the folder that ATTNC_CACHE names.

A library is named by a digest of all that it depends on. It is there whole or not at all. A process that needs a
library waits while another process compiles it. The least recently used libraries are removed when all together are
larger than ATTNC_CACHE_SIZE.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import pathlib
import re
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from attnc_runtime import InvalidArgument

from ._binary import compiler_id

# Writes a library, and returns its notes.
Compile = Callable[[pathlib.Path], List[str]]

_DEFAULT_SIZE = 10 << 30
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class CacheWarning(UserWarning):
    """The cache cannot be used; the model is compiled for this process alone."""


class CacheUnusable(Exception):
    """Why the cache cannot be used."""


def cache_folder() -> pathlib.Path:
    named = os.environ.get("ATTNC_CACHE")
    if named:
        return pathlib.Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "attnc"


def size_limit() -> int:
    """How many bytes all libraries together may have."""
    text = os.environ.get("ATTNC_CACHE_SIZE", "")
    if not text:
        return _DEFAULT_SIZE
    match = re.fullmatch(r"(\d+)([KMGT]?)", text)
    if not match:
        raise InvalidArgument(f"ATTNC_CACHE_SIZE expects bytes, as 512M or 10G, not '{text}'")
    return int(match[1]) * _UNITS[match[2]]


def _processor() -> str:
    """What --mcpu=native depends on."""
    try:
        with open("/proc/cpuinfo") as file:
            lines = [line for line in file if line.startswith(("flags", "model name", "vendor_id"))]
    except OSError:
        return ""
    return "".join(sorted(set(lines)))


def key_of(digest: str, flags: Sequence[str]) -> str:
    """The name of the library that a compile of the model with ``digest`` makes."""
    native = not any(flag.startswith("--mcpu=") and flag != "--mcpu=native" for flag in flags)
    parts = [2, digest, list(flags), compiler_id(), _processor() if native else ""]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


@dataclass(frozen=True)
class Kept:
    """A library in the cache."""

    path: pathlib.Path
    model: str
    flags: Sequence[str]
    bytes: int
    used: float  # seconds since 1970

    @property
    def note(self) -> pathlib.Path:
        return self.path.with_suffix(".json")


# A library, and what its compile noted.
Found = Tuple[pathlib.Path, List[str]]


def _read(note: pathlib.Path) -> Dict[str, Any]:
    """What stands beside a library; nothing if that is damaged."""
    with contextlib.suppress(OSError, ValueError):
        read = json.loads(note.read_text())
        return read if isinstance(read, dict) else {}
    return {}


def _strings(value: Any) -> List[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


@contextlib.contextmanager
def _locked(path: pathlib.Path, *, wait: bool = True) -> Iterator[bool]:
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                yield False
                return
            raise
        yield True  # closing the file gives the lock up


class Cache:
    """The libraries in a folder (default: that of ``attnc.load``), by name."""

    def __init__(self, folder: Optional[pathlib.Path] = None) -> None:
        self.folder = folder or cache_folder()

    def find(self, key: str) -> Optional[Found]:
        """The library of this name; it counts as used now. A library without its note is unfinished and not found."""
        path = self.folder / f"{key}.so"
        note = path.with_suffix(".json")
        if not path.is_file() or not note.is_file():
            return None
        # Not the library itself: its time tells the runtime that it was written to.
        with contextlib.suppress(OSError):
            os.utime(note)
        return path, _strings(_read(note).get("notes"))

    def make(self, key: str, model: str, flags: Sequence[str], compile: Compile) -> Found:
        """The library of this name; ``compile`` writes it if it is missing. CacheUnusable if it cannot be kept."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # As many locks as there are first bytes of a name, so that they need not be removed.
            with _locked(self.folder / f"lock-{key[:2]}"):
                found = self.find(key)
                if found:
                    return found
                path = self.folder / f"{key}.so"
                if path.is_dir():
                    raise CacheUnusable(f"{path}: is a folder")
                notes = compile(path)
                self._describe(path, model, flags, notes)
        except OSError as error:
            if isinstance(error, CacheUnusable) or error.filename is None or error.errno is None:
                raise
            raise CacheUnusable(f"{error.filename}: {error.strerror}") from error
        self.shrink(size_limit(), keep=path)
        return path, notes

    def _describe(self, path: pathlib.Path, model: str, flags: Sequence[str], notes: Sequence[str]) -> None:
        note = path.with_suffix(".json")
        staged = note.with_suffix(f".{os.getpid()}.tmp")
        staged.write_text(json.dumps({"model": model, "flags": list(flags), "notes": list(notes), "made": time.time()}))
        staged.replace(note)

    def remove(self, path: pathlib.Path) -> None:
        for name in (path.with_suffix(".json"), path):
            with contextlib.suppress(FileNotFoundError):
                name.unlink()

    def list(self) -> List[Kept]:
        """All libraries, the most recently used first."""
        result = []
        for path in self.folder.glob("*.so") if self.folder.is_dir() else ():
            if not path.is_file():
                continue  # no library of ours
            note = _read(path.with_suffix(".json"))
            try:
                used = max(os.stat(name).st_mtime for name in (path, path.with_suffix(".json")) if name.exists())
                result.append(Kept(path, str(note.get("model", "?")), _strings(note.get("flags")), path.stat().st_size, used))
            except (OSError, ValueError):
                continue  # another process removed it meanwhile
        return sorted(result, key=lambda kept: -kept.used)

    def shrink(self, limit: int, keep: Optional[pathlib.Path] = None) -> int:
        """Removes the least recently used libraries until the rest fits, and returns how many it removed. A process
        that has a removed library loaded keeps its mapping."""
        total, removed = 0, 0
        for kept in self.list():
            total += kept.bytes
            if total > limit and kept.path != keep:
                self.remove(kept.path)
                total -= kept.bytes
                removed += 1
        return removed
