"""Runs the libraries of sequence-choice.test at every position and compares with lists of Python."""
import subprocess

import numpy as np

X = "--input=x=6xf32=1,2,3,4,5,6"
PARTS = [[1], [2, 3], [4, 5, 6]]


def run(library, outputs, *inputs):
    subprocess.run(["attn-run", library, X, *inputs, *(f"--output={name}=@{name}.npy" for name in outputs)], check=True)
    return [np.load(f"{name}.npy").tolist() for name in outputs]


for position in range(-3, 3):
    assert run("at.so", ["y"], f"--input=p=i64={position}") == [PARTS[position]], position
for item in ([7, 8], []):
    given = f"--input=item={len(item)}xf32=" + ",".join(map(str, item))
    for position in range(-3, 4):
        erased = min(position, 2)
        more, less = list(PARTS), list(PARTS)
        more.insert(position, item)
        del less[erased]
        got = run("change.so", ["inserted", "erased"], given, f"--input=p=i64={position}", f"--input=q=i64={erased}")
        assert got == [sum(more, []), sum(less, [])], (position, got)
assert run("loop.so", ["y", "sums"]) == [[2, 4, 6, 8, 10, 12], [1, 5, 15]]
assert run("ends.so", ["y"]) == [[1, 2, 3]]
