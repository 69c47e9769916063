"""Docstrings as mkdocstrings shows them: a paragraph of ``name  what it is`` lines becomes a list."""
import re

import griffe

ROW = re.compile(r"^(?P<name>[A-Za-z_][\w, ()]*?\S|\w+)\s{2,}(?P<text>\S.*)$")


def as_list(paragraph):
    rows = []
    for line in paragraph.split("\n"):
        row = ROW.match(line)
        if row:
            rows.append([row["name"], row["text"]])
        elif rows and line.startswith(" "):
            rows[-1][1] += " " + line.strip()
        else:
            return paragraph
    return "\n".join(f"- **{name}**: {text}" for name, text in rows)


class Lists(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring:
            paragraphs = obj.docstring.value.split("\n\n")
            obj.docstring.value = "\n\n".join(as_list(p) for p in paragraphs).replace("``", "`")
