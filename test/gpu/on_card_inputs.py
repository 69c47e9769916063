"""Inputs of a case: files, or draws of NumPy, which are made again."""
import zlib

import numpy as np

SEED = 7


def drawn(recipe):
    """Normal numbers in f32; ValueError where this NumPy draws others than the one that made the references."""
    array = np.random.default_rng([SEED, recipe["draw"]]).standard_normal(recipe["shape"]).astype(np.float32)
    if zlib.crc32(array.tobytes()) != recipe["crc"]:
        raise ValueError(f"NumPy {np.__version__} draws other numbers than the one that made the references")
    return array


def input_files(folder, inputs, work):
    """Of each input its name and a file, in `folder` or made in `work`."""
    for n, (name, source) in enumerate(inputs.items()):
        if isinstance(source, dict):
            path = f"{work}/input{n}.npy"
            np.save(path, drawn(source))
        else:
            path = folder / source
        yield name, path
