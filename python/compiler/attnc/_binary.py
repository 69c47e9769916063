"""The compiler and the tools, which are programs of their own: no LLVM in the process that runs models."""

from __future__ import annotations

import functools
import hashlib
import os
import struct

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")
_BUILD_ID_NOTE = 3


def program(name: str) -> str:
    """The path of attnc, attn-run or attn-bench."""
    return os.path.join(_FOLDER, name)


def _build_id(data: bytes) -> str:
    """The id that the linker wrote into an ELF file's notes; "" if there is none."""
    if data[:6] != b"\x7fELF\x02\x01":
        return ""
    (offset,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for number in range(count):
        kind, _, begin, _, _, length = struct.unpack_from("<IIQQQQ", data, offset + number * size)
        end = begin + length
        while kind == 4 and begin + 12 <= min(end, len(data)):  # PT_NOTE
            name, value, note = struct.unpack_from("<III", data, begin)
            text = begin + 12 + (name + 3) // 4 * 4
            if note == _BUILD_ID_NOTE:
                return data[text : text + value].hex()
            begin = text + (value + 3) // 4 * 4
    return ""


@functools.lru_cache(maxsize=None)
def compiler_id() -> str:
    """What tells this compiler from every other build of it."""
    with open(program("attnc"), "rb") as file:
        head = file.read(1 << 16)
        return _build_id(head) or hashlib.sha256(head + file.read()).hexdigest()
