"""documented.py DOCS FILE...: every key of the JSON in FILEs is named in DOCS."""
import json
import pathlib
import re
import sys

words = set(re.findall(r"`([^`]+)`", pathlib.Path(sys.argv[1]).read_text()))
words |= set(re.findall(r'"(\w+)":', pathlib.Path(sys.argv[1]).read_text()))


def keys(value):
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


found = set().union(*(keys(json.loads(pathlib.Path(name).read_text())) for name in sys.argv[2:]))
assert found, "no key at all"
print("undocumented:", ", ".join(sorted(found - words)) or "none")
