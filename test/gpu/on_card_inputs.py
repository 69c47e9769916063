"""Inputs of a case: files, or what was made of draws of NumPy, which is made again."""
import zlib

import numpy as np

SEED = 7


def to_bf16(array):
    bits = array.view(np.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).astype(np.uint32).view(np.float32)


def drawn(recipe, folder=None):
    """Normal numbers in f32, rounded to bf16, transposed, some of them replaced, as the recipe says; ValueError where this
    NumPy draws others than the one that made the references."""
    array = np.random.default_rng([SEED, recipe["draw"]]).standard_normal(recipe["drawn"]).astype(np.float32)
    array = to_bf16(array) if recipe["rounded"] else array
    array = np.ascontiguousarray(array.transpose(recipe["axes"])).reshape(recipe["shape"])
    if "changed" in recipe:
        changed = np.load(folder / recipe["changed"])
        array.reshape(-1)[changed["at"]] = changed["to"]
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
