#!/usr/bin/env python3
"""Which package does a docstring come from? Two classifiers of the text in installed packages, each below two minutes.

bert.onnx reads up to 48 words with two layers of a transformer. hierarchical.onnx reads 6 sentences of 12 words as Yang
et al. 2016 do: attention over the words of a sentence, then over sentences. Writes bert.npz and hierarchical.npz, the
test split (files that training has not seen), and words.txt, a word on each line.
"""
import ast
import collections
import importlib.util
import pathlib
import re
import zlib

import torch
from torch import nn

from layers import HERE, EncoderLayer, store, train

PACKAGES = ["numpy", "torch", "sklearn", "matplotlib", "networkx", "sympy"]
WORDS, SENTENCES, LENGTH, EACH = 2000, 6, 12, 700


def docstrings(package):
    """(file, text) of functions and classes."""
    root = pathlib.Path(importlib.util.find_spec(package).origin).parent
    for path in sorted(root.rglob("*.py")):
        if "tests" in path.parts:
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                text = ast.get_docstring(node) or ""
                if len(text.split()) >= 15:
                    yield str(path.relative_to(root)), text


def sentences_of(text):
    """Lists of words, without the names of the packages."""
    text = text.lower()
    found = [re.findall(r"[a-z]+", part) for part in re.split(r"[.:;\n]\s", text)]
    found = [[w for w in part if w not in PACKAGES + ["np", "plt", "nx", "tensor", "ndarray"]] for part in found]
    return [part for part in found if part]


def read():
    """(class, whether it is of the test split, sentences), as many of each package."""
    items = []
    for label, package in enumerate(PACKAGES):
        texts = {text: file for file, text in docstrings(package)}
        chosen = sorted(texts.items(), key=lambda item: zlib.crc32(item[0].encode()))[:EACH]
        items += [(label, zlib.crc32(f"{package}/{file}".encode()) % 5 == 0, sentences_of(text)) for text, file in chosen]
    return [item for item in items if item[2]]


class Bert(nn.Module):
    def __init__(self, width=48, heads=4, depth=2):
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=0)
        self.places = nn.Parameter(torch.randn(49, width) * 0.02)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(depth))
        self.norm, self.out, self.drop = nn.LayerNorm(width), nn.Linear(width, len(PACKAGES)), nn.Dropout(0.3)

    def forward(self, words):
        token = self.token.expand(words.shape[0], -1, -1)
        x = self.drop(torch.cat([token, self.words(words)], 1) + self.places[: words.shape[1] + 1])
        visible = nn.functional.pad(words != 0, (1, 0), value=True)
        for layer in self.layers:
            x = layer(x, visible)
        return self.out(self.norm(x)[:, 0])


class Pooling(nn.Module):
    """What a GRU says of each step, weighted by softmax(u tanh(W h))."""

    def __init__(self, before, width):
        super().__init__()
        self.gru = nn.GRU(before, width, batch_first=True, bidirectional=True)
        self.hidden, self.context = nn.Linear(2 * width, width), nn.Linear(width, 1, bias=False)

    def forward(self, x, visible):
        states, _ = self.gru(x)
        scores = self.context(torch.tanh(self.hidden(states))).squeeze(2).masked_fill(~visible, -1e9)
        return (torch.softmax(scores, 1)[:, None] @ states).squeeze(1)


class Hierarchical(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.words = nn.Embedding(WORDS, 48, padding_idx=0)
        self.of_words, self.of_sentences = Pooling(48, width), Pooling(2 * width, width)
        self.out, self.drop = nn.Linear(2 * width, len(PACKAGES)), nn.Dropout(0.4)

    def forward(self, words):
        flat = words.reshape(-1, LENGTH)
        vectors = self.of_words(self.drop(self.words(flat)), flat != 0).reshape(-1, SENTENCES, 64)
        return self.out(self.drop(self.of_sentences(vectors, (words != 0).any(2))))


def main():
    torch.manual_seed(2)
    items = read()
    counts = collections.Counter(w for _, is_test, text in items if not is_test for part in text for w in part)
    known = ["<pad>", "<other>"] + [word for word, _ in counts.most_common(WORDS - 2)]
    (HERE / "words.txt").write_text("\n".join(known) + "\n")
    number = {word: n for n, word in enumerate(known)}
    flat, nested = torch.zeros(len(items), 48, dtype=torch.int64), torch.zeros(len(items), SENTENCES, LENGTH, dtype=torch.int64)
    for n, (_, _, text) in enumerate(items):
        ids = [[number.get(word, 1) for word in part] for part in text]
        line = sum(ids, [])[:48]
        flat[n, : len(line)] = torch.tensor(line)
        for k, part in enumerate(ids[:SENTENCES]):
            nested[n, k, : len(part[:LENGTH])] = torch.tensor(part[:LENGTH])
    labels = torch.tensor([item[0] for item in items])
    test = torch.tensor([item[1] for item in items])
    print(f"{len(items)} docstrings, {test.sum()} of them for the test")
    for name, model, inputs in (("bert", Bert(), flat), ("hierarchical", Hierarchical(), nested)):
        trained = train(model, inputs[~test], labels[~test], 8, 4e-3)
        store(name, trained, "words", inputs[test], labels[test])


if __name__ == "__main__":
    main()
