#!/usr/bin/env python3
"""What READMEs and docs name exists.

In backticks or as the target of a link: a file or folder, below the page's folder, its room, or the root; a word in
CamelCase is the stem of a file or stands in a source; attn-NAME is a pass.
"""
import pathlib
import re
import sys

from sources import settle, tracked

PAGES = r"^(?:[^/]+/)*README\.md$|^CONTRIBUTING\.md$|^docs/.*\.md$"
SUFFIXES = "md h c cpp td py test mlir json txt cmake in xz png js yml".split()
FILE = re.compile(rf"[\w./+-]+\.(?:{'|'.join(SUFFIXES)})")
# What users have, and what tools write: no files of ours.
EXAMPLES = re.compile(r"^(?:build|dist|PREFIX|DIR|include)/|^\.?/?(?:model|graph|a|b|ab|y|ids|out|step|encode|weights|dates|results|run|tokenizer|modules|config|generation_config|tokens)\.\w+$")


def mentions(text):
    """(line, word) of what a page says in backticks or links to; blocks of code are left out."""
    text = re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S | re.M)
    text = re.sub(r"^(?: {4}|\t).*$", "", text, flags=re.M)
    for match in re.finditer(r"`([^`\n]+)`|\]\(([^)#:\s]+)(?:#[^)]*)?\)", text):
        yield text.count("\n", 0, match.start()) + 1, match[1] or match[2], bool(match[2])


def braces(word):
    """`cpu/{a,b}.cpp` as both."""
    match = re.search(r"\{([^{}]*)\}", word)
    return [w for part in match[1].split(",") for w in braces(word[:match.start()] + part + word[match.end():])] if match else [word]


class Tree:
    def __init__(self, root):
        self.root = root
        self.files = tracked(root)
        self.places = set(self.files) | {str(p) for f in self.files for p in pathlib.PurePath(f).parents}
        self.names = {place.rpartition("/")[2] for place in self.places}
        self.stems = {name.partition(".")[0] for name in self.names}
        sources = [f for f in self.files if re.search(r"\.(?:c|h|cpp|td|py|json)$", f)]
        self.words = set(re.findall(r"\w+", "\n".join((root / f).read_text(errors="replace") for f in sources)))
        self.passes = set(re.findall(r'"(attn-[a-z0-9-]+)"', "\n".join((root / f).read_text() for f in sources if f.endswith(".td"))))
        self.tools = {p.rpartition("/")[2] for p in self.places if p.startswith("tools/")}

    def has(self, folder, word, is_link):
        word = word.rstrip("/")
        if is_link:
            return str((self.root / folder / word).resolve().relative_to(self.root)) in self.places
        if "/" not in word:
            return word in self.names
        tries = [word] + [f"{at}/{word}" for at in [folder, *pathlib.PurePath(folder).parents]]
        tries = {str((self.root / t).resolve().relative_to(self.root)) for t in tries if not t.startswith("/")}
        return bool(tries & self.places) or any(p.endswith("/" + word) for p in self.places)


def stale(root):
    """{page and word: what is wrong}."""
    tree, problems = Tree(root), {}
    for page in tracked(root, PAGES):
        folder = str(pathlib.PurePath(page).parent)
        for line, mention, is_link in mentions((root / page).read_text()):
            for word in braces(mention):
                word = re.sub(r"^\./", "", word)
                if is_link or FILE.fullmatch(word) and not EXAMPLES.search(word) or re.fullmatch(r"[\w.-]+(?:/[\w.-]+)*/", word):
                    if not tree.has(folder, word, is_link):
                        problems[f"{page}: {word}"] = f"line {line} names it, and there is no such file"
                elif re.fullmatch(r"(?:[A-Z][a-z0-9]+){2,}", word):
                    if word not in tree.stems and word not in tree.words:
                        problems[f"{page}: {word}"] = f"line {line} names it, and neither a file nor a source has the name"
                elif re.fullmatch(r"attn-[a-z0-9-]+", word) and word not in tree.passes and word not in tree.tools:
                    problems[f"{page}: {word}"] = f"line {line} names it, and there is no such pass or tool"
    return problems


if __name__ == "__main__":
    sys.exit(settle(stale(pathlib.Path(sys.argv[1]).resolve())))
