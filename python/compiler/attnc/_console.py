"""The commands that a wheel installs: attnc, attn-run, attn-bench."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import NoReturn

from ._binary import program


def _become(name: str) -> NoReturn:
    os.execv(program(name), [name, *sys.argv[1:]])


def attnc() -> int:
    if sys.argv[1:2] == ["cache"]:
        try:
            code = _cache(sys.argv[2:])
            sys.stdout.flush()
            return code
        except BrokenPipeError:  # a reader that has enough, as head
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more as it ends
            return 128 + signal.SIGPIPE
    _become("attnc")


def attn_run() -> NoReturn:
    _become("attn-run")


def attn_bench() -> NoReturn:
    _become("attn-bench")


def _cache(arguments: "list[str]") -> int:
    from attnc_runtime import InvalidArgument

    from ._cache import Cache, size_limit

    parser = argparse.ArgumentParser(
        prog="attnc cache", description="Lists the compiled models that attnc.load keeps, or removes them."
    )
    parser.add_argument("command", nargs="?", choices=["list", "clear"], default="list")
    parser.add_argument("--unused-days", type=float, metavar="N", help="clear: only what was not used for N days")
    asked = parser.parse_args(arguments)
    if asked.unused_days is not None and not asked.unused_days >= 0:
        parser.error(f"--unused-days expects days, 0 or more, not {asked.unused_days:g}")
    cache = Cache()
    kept = cache.list()
    if asked.command == "clear":
        old = [k for k in kept if asked.unused_days is None or time.time() - k.used > asked.unused_days * 86400]
        for each in old:
            cache.remove(each.path)
        print(f"{len(old)} removed, {sum(k.bytes for k in old) / 1e6:.1f} MB")
        return 0
    try:
        limit = size_limit()
    except InvalidArgument as error:
        parser.error(str(error))
    for each in kept:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.used))
        print(f"{each.path.stem[:12]}  {each.bytes / 1e6:9.1f} MB  {used}  {each.model} {' '.join(each.flags)}")
    total = sum(k.bytes for k in kept)
    print(f"{len(kept)} in {cache.folder}, {total / 1e6:.1f} MB of at most {limit / 1e6:.0f}")
    return 0
