#!/usr/bin/env python3
"""Searches whose parts draw random numbers: drawing_step.py FOLDER"""
import os
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from random_numbers import Runner, bits_of, key_of, mix, seed, uniform  # noqa: E402

VOCABULARY, LENGTH, ROWS = 50, 9, 3
INIT = """g (float[rows,4] source) => (float[rows,4] memory) {
  memory = RandomUniformLike<seed = 6.0>(source)
}"""
STEP = """g (int64[rows] token, float[rows,4] memory, float[rows,1] h) => (float[rows,50] logits, float[rows,1] next_h) {
  next_h = Identity(h)
  two = Constant<value_ints = [1, 50]>()
  wide = Expand(h, two)
  noise = RandomUniformLike<seed = 5.0>(wide)
  first, second, third, fourth = Split<num_outputs = 4, axis = 1>(memory)
  less = Sub(noise, first)
  logits = Abs(less)
}"""


def reference(number):
    """The tokens of a greedy search: seeds as docs/operators.md says."""
    with np.errstate(over="ignore"):
        mixed = mix(np.uint64(number % 2**64))
        memory = uniform(bits_of(key_of(mix(mixed + np.uint64(1)), 6.0), ROWS * 4)).reshape(ROWS, 4)
        first = mix(mixed)
        draws = [uniform(bits_of(key_of(first + np.uint64(t), 5.0), ROWS * VOCABULARY)) for t in range(LENGTH)]
    return np.array([np.abs(draw.reshape(ROWS, VOCABULARY) - memory[:, :1]).argmax(-1) for draw in draws]).T


def main(folder):
    runner = Runner(folder)
    for name, text in (("init", INIT), ("step", STEP)):
        runner.compile(text, opset=18)
        os.rename(f"{folder}/{runner.count}.onnx", f"{folder}/{name}.onnx")
    source, h = np.zeros((ROWS, 4), np.float32), np.zeros((ROWS, 1), np.float32)
    common = ["attnc", f"init={folder}/init.onnx", f"step={folder}/step.onnx", "--init=init", "--bos=0",
              f"--max-length={LENGTH}"]
    libraries = {}
    for kind, *flags in (("greedy",), ("beam:2",), ("sample", "--sample-seed=12")):
        name = kind.split(":")[0]
        libraries[name] = f"{folder}/{name}.so"
        subprocess.run([*common, f"--generate={kind}", "-o", libraries[name], *flags], check=True,
                       stderr=subprocess.DEVNULL)
    for number in (0, 5, 6):
        given = {} if number == 0 else {"seed": seed(number)}
        tokens, = runner.run(libraries["greedy"], ["tokens"], "--entry=generate", source=source, h=h, **given)
        np.testing.assert_array_equal(tokens, reference(number))
    for kind in ("beam", "sample"):
        draws = [runner.run(libraries[kind], ["tokens"], "--entry=generate", source=source, h=h, seed=seed(n))[0].tolist()
                 for n in (1, 1, 2)]
        assert draws[0] == draws[1] != draws[2], (kind, draws)
    print("searches draw")


if __name__ == "__main__":
    main(*sys.argv[1:])
