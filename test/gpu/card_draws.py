"""Random inputs of a package as numbers of draws, which the machine with the card makes again: stored they would be most of it."""
import zlib

import numpy as np

import kernel_cases
from on_card_inputs import SEED, drawn

LEAST = 256  # elements; a smaller array is stored


class Draws:
    """What kernel_cases draws from: each array of normal numbers has a generator of its own, and is known afterwards."""

    def __init__(self):
        self.other, self.count, self.known = np.random.default_rng(SEED), 0, {}

    def standard_normal(self, shape):
        self.count += 1
        array = np.random.default_rng([SEED, self.count]).standard_normal(shape)
        if array.size >= LEAST:
            self.known[zlib.crc32(array.astype(np.float32).tobytes())] = self.count
        return array

    def __getattr__(self, name):
        return getattr(self.other, name)

    def recipe(self, array):
        """How drawn() makes the array, or None for one that is no draw."""
        check = zlib.crc32(np.ascontiguousarray(array).tobytes())
        if array.dtype != np.float32 or check not in self.known:
            return None
        recipe = {"draw": self.known[check], "shape": array.shape, "crc": check}
        return recipe if np.array_equal(drawn(recipe), array) else None


def install():
    kernel_cases.rng = Draws()
    return kernel_cases.rng
