"""Inputs of a case: files, or what was made of draws of NumPy, which is made again."""
import zlib

import numpy as np

SEED = 7


def to_bf16(array):
    bits = array.view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).astype(np.uint32).view(np.float32)


# What becomes of normal numbers in f32. NumPy knows no bf16, but its bytes.
ROUNDED = {"f32": lambda x: x,
           "f32 of bf16": to_bf16,
           "f16": lambda x: x.astype(np.float16),
           "f16 of 64ths": lambda x: (np.round(np.clip(x, -3.9, 3.9) * 64) / 64).astype(np.float16),
           "bf16": lambda x: (to_bf16(x).view(np.uint32) >> 16).astype(np.uint16).view("V2")}


def words(array):
    return np.ascontiguousarray(array).reshape(-1).view(f"u{array.itemsize}")


def drawn(recipe, folder=None):
    """Normal numbers, rounded, transposed, some of them replaced, as the recipe says; ValueError where this NumPy draws
    others than the one that made the references."""
    array = np.random.default_rng([SEED, recipe["draw"]]).standard_normal(recipe["drawn"]).astype(np.float32)
    array = ROUNDED[recipe["rounded"]](array)
    array = np.ascontiguousarray(array.transpose(recipe["axes"])).reshape(recipe["shape"])
    if "changed" in recipe:
        changed = np.load(folder / recipe["changed"])
        words(array)[changed["at"]] = changed["to"]
    if zlib.crc32(array.tobytes()) != recipe["crc"]:
        raise ValueError(f"NumPy {np.__version__} draws other numbers than the one that made the references")
    return array


def input_files(folder, inputs, work):
    """Of each input its name and a file, in `folder` or made in `work`."""
    for n, (name, source) in enumerate(inputs.items()):
        if isinstance(source, dict):
            path = f"{work}/input{n}.npy"
            np.save(path, drawn(source, folder))
        else:
            path = folder / source
        yield name, path
