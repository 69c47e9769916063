#!/usr/bin/env python3
"""In passes/graph values are followed by the one worklist() of Structured.h, and by no loop of a function's own.

Such a loop runs until a list is empty and takes from it or puts the next one in its place, or runs to the end of a list
to which it adds.
"""
import pathlib
import re
import sys

from sources import blank, functions, settle, tracked

UNTIL_EMPTY = re.compile(r"\b(?:while\s*\(|for\s*\([^;{}]*;)[^;{}]*?!\s*(\w+)\s*\.\s*empty\s*\(\s*\)")
TO_THE_END = re.compile(r"\bfor\s*\([\w: ]+ (\w+) = 0;[^;{}]*\b\1 (?:!=|<) (\w+)\.size\(\)[^;{}]*;")


def body_from(text):
    """What a loop repeats, from the inside of its parentheses on."""
    depth, place = 1, 0
    while place < len(text) and depth:
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        place += 1
    start, depth = place, 0
    while place < len(text):
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(text[place], 0)
        if depth == 0 and text[place] in "};":
            break
        place += 1
    return text[start:place + 1]


def has_worklist(text):
    for match in UNTIL_EMPTY.finditer(text):
        name, body = match[1], body_from(text[match.end():])
        if re.search(rf"\b{name}\s*(?:\.\s*(?:pop|take|swap)\w*\s*\(|=[^=])|(?:swap|exchange)\s*\([^;]*\b{name}\b", body):
            return True
    for match in TO_THE_END.finditer(text):
        name, body = match[2], body_from(text[match.end():])
        if re.search(rf"\b{name}\s*\.\s*(?:push_back|append|emplace_back)\s*\(|append_range\s*\(\s*{name}\s*,", body):
            return True
    return False


def hand_made(root):
    """{"file function": what is wrong}."""
    problems = {}
    for name in tracked(root, r"^passes/graph/.*\.(h|cpp)$"):
        if pathlib.Path(name).stem == "Structured":
            continue
        text = (root / name).read_text()
        lines = blank(text).splitlines(keepends=True)
        for function, first, length in functions(text):
            if has_worklist("".join(lines[first - 1:first - 1 + length])):
                problems[f"{name} {function}"] = f"a worklist of its own, in the function from line {first} on"
    return problems


if __name__ == "__main__":
    sys.exit(settle(hand_made(pathlib.Path(sys.argv[1]))))
