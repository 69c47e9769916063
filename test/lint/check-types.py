#!/usr/bin/env python3
"""A type that a header defines has a name that no other header gives one of the same namespace.

Two such types are one to the linker: which of their inline functions a program has is chance. Headers of tests belong
to programs of their own.
"""
import pathlib
import re
import sys

from sources import blank, settle, tracked

SCOPE = re.compile(r"^(?:namespace ([\w:]+) \{"
                   r"|(?:template <.*> )?(?:class|struct|union|enum(?: class| struct)?) (\w+)(?![\w:<])[^;{]*\{)", re.M)


def defined_twice(root):
    """{"namespace::Type": what is wrong}."""
    files = {}
    for name in tracked(root, r"^(?!test/).*\.h$"):
        namespace = ""
        for match in SCOPE.finditer(blank((root / name).read_text())):
            if match[1]:
                namespace = match[1]
            elif namespace:
                files.setdefault(f"{namespace}::{match[2]}", []).append(name)
    return {type: "defined in " + " and ".join(names) for type, names in files.items() if len(names) > 1}


if __name__ == "__main__":
    sys.exit(settle(defined_twice(pathlib.Path(sys.argv[1]))))
