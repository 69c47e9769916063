#!/usr/bin/env python3
"""Functions of floats beside NumPy's of longer floats: special_values.py ATTNC ATTN-RUN FOLDER TYPES [OPTION...]

Arguments are zeros, denormals, numbers about 1, about where results overflow or vanish, infinities and NaN, numbers of
all exponents and many of usual sizes. Results are off by 4 units in the last place at most, of f16 and bf16 by 1, and
where a formula cancels by a few units of its largest term (`slack`). Zeros have the right sign.
"""
import math
import pathlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

TYPES = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
ALPHA, GAMMA = np.longdouble(1.67326319217681884765625), np.longdouble(1.05070102214813232421875)

in_double = lambda function: np.vectorize(lambda x: function(float(x)), otypes=[np.longdouble])
erf, erfc = in_double(math.erf), in_double(math.erfc)
sigmoid = lambda x: 1 / (1 + np.exp(-x))
softplus = lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
gelu_tanh = lambda x: x * sigmoid(2 * np.sqrt(2 / np.longdouble(np.pi)) * (x + np.longdouble(0.044715) * x * x * x))
of_argument = lambda x: 2 * np.abs(x)
# 1 + exp(-x) is infinite where its inverse is not yet 0.
of_least = lambda x: np.ldexp(np.float64(1), -102) * np.maximum(np.abs(x), 1)

# The function, and what errors may be besides, in units of the last place of 1.
UNARY = {
    "Abs": (np.abs,), "Neg": (np.negative,), "Relu": (lambda x: np.maximum(x, 0),), "Sqrt": (np.sqrt,),
    "Reciprocal": (lambda x: 1 / x,), "Exp": (np.exp,), "Log": (np.log,), "Erf": (erf,), "Floor": (np.floor,),
    "Ceil": (np.ceil,), "Round": (np.rint,), "Asin": (np.arcsin,), "Acos": (np.arccos,), "Atan": (np.arctan,),
    "Sinh": (np.sinh,), "Cosh": (np.cosh,), "Asinh": (np.arcsinh,), "Acosh": (np.arccosh,), "Atanh": (np.arctanh,),
    "Tanh": (np.tanh, lambda x: 0.1), "Sigmoid": (sigmoid, of_least), "Swish": (lambda x: x * sigmoid(x), of_least),
    "Elu": (lambda x: np.where(x < 0, np.expm1(x), x),),
    "Selu": (lambda x: GAMMA * np.where(x < 0, ALPHA * np.expm1(x), x),),
    "Softplus": (softplus,), "Softsign": (lambda x: x / (1 + np.abs(x)),),
    "HardSwish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), of_argument),
    "Mish": (lambda x: x * np.tanh(softplus(x)), lambda x: of_least(x) + np.where(np.abs(x) < 10, 0.5, 0)),
    "Gelu": (lambda x: x * 0.5 * erfc(-x / np.sqrt(np.longdouble(2))), of_argument),
    "GeluTanh": (gelu_tanh, of_argument),
}
BINARY = {"Add": (np.add,), "Sub": (np.subtract,), "Mul": (np.multiply,), "Div": (np.divide,), "Pow": (np.power,),
          "Fmod": (np.fmod,)}
SPELLED = {"GeluTanh": ("Gelu", {"approximate": "tanh"}), "Fmod": ("Mod", {"fmod": 1})}


def model(functions, names, element):
    value = lambda name, shape: helper.make_tensor_value_info(name, element, shape)
    nodes = []
    for name in functions:
        op, attributes = SPELLED.get(name, (name, {}))
        nodes.append(helper.make_node(op, names, [name], **attributes))
    graph = helper.make_graph(nodes, "g", [value(name, ["n"]) for name in names], [value(op, None) for op in functions])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)


def special(info):
    least, tiny, eps, most = (float(each) for each in (info.smallest_subnormal, info.tiny, info.eps, info.max))
    numbers = [0, least, 3 * least, tiny / 2, tiny, eps, 1e-3, 0.5, 1 - eps, 1, 1 + eps, 1.5, 2, 2.5, 3, 4, 7, 8, 20,
               64, 87.4, 88.5, 88.72283172607422, 88.72283935546875, 89.4, 89.42, 103.2, 103.98, 200, 709.5, 709.9,
               710.4, 710.5, 740, 745.2, 2e4, 8388607.5, 1e9, 1e10, 1e20, 1.7e38, 1e154, 1e300, most / 2, most,
               math.inf]
    return np.array(numbers + [-each for each in numbers] + [math.nan])


def arguments(rng, dtype):
    """One column for functions of one argument, two for the others."""
    points, size = special(ml_dtypes.finfo(dtype)).astype(dtype), np.dtype(dtype).itemsize
    bits = rng.integers(0, 1 << 8 * size, 25000, dtype=f"u{size}", endpoint=False) if size < 8 else \
        rng.integers(0, (1 << 64) - 1, 25000, dtype="u8", endpoint=True)
    usual = rng.uniform(-1, 1, 25000) * rng.choice([1, 2, 10, 100, 800], 25000)
    one = np.concatenate([points, bits.view(dtype), usual.astype(dtype)])
    pairs = np.stack(np.meshgrid(points, np.append(points, -np.arange(1, 6).astype(dtype)))).reshape(2, -1)
    drawn = rng.choice(one, (2, 15000)), rng.uniform((0.01, -20), 20, (15000, 2)).T.astype(dtype)
    return [one], list(np.concatenate([pairs, *drawn], axis=1))


def are_right(got, want, dtype, slack):
    info = ml_dtypes.finfo(dtype)
    exponent = np.maximum(np.frexp(np.abs(want))[1], info.minexp + 1)
    unit = np.ldexp(np.longdouble(1), exponent - 1 - info.nmant)
    eps = min(float(info.eps), 2.0**-23)  # shorter types are computed in f32
    close = np.abs(got - want) <= (4 if info.nmant >= 23 else 1) * unit + slack * eps
    is_infinite = np.abs(want) >= np.longdouble(float(info.max)) * (1 + np.ldexp(np.longdouble(1), -info.nmant - 2))
    right = np.where(is_infinite, got == np.sign(want) * np.inf, close)
    right = np.where(np.isnan(want), np.isnan(got), right)
    return right & ((want != 0) | (np.signbit(want) == np.signbit(got)))


def compare(run, dtype, functions, columns):
    """How many results there are, and how many are wrong."""
    files = run(dict(zip("xy", columns)), functions)
    wide, problems = [column.astype(np.longdouble) for column in columns], 0
    for op, (function, *slack) in functions.items():
        got = np.load(files[op]).view(dtype).astype(np.longdouble)
        want = function(*wide)
        right = are_right(got, want, dtype, slack[0](wide[0]) if slack else 0)
        problems += np.sum(~right)
        for n in np.flatnonzero(~right)[:3]:
            print(f"{op}({', '.join(repr(column[n]) for column in columns)}) is {got[n]}, not {want[n]}")
    return len(functions) * len(columns[0]), problems


def main(attnc, attn_run, folder, types, *options):
    folder, rng, totals = pathlib.Path(folder), np.random.default_rng(1), np.zeros(2, int)

    def run(inputs, outputs):
        for name, array in inputs.items():
            np.save(folder / f"{name}.npy", array)
        files = {name: folder / f"{name}-result.npy" for name in outputs}
        subprocess.run([attn_run, folder / "m.so", *(f"--input={name}=@{folder}/{name}.npy" for name in inputs),
                        *(f"--output={name}=@{file}" for name, file in files.items())], check=True,
                       stdout=subprocess.DEVNULL)
        return files

    for dtype in (TYPES[name] for name in types.split(",")):
        element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        for functions, columns in zip((UNARY, BINARY), arguments(rng, dtype)):
            onnx.save(model(functions, list("xy")[:len(columns)], element), folder / "m.onnx")
            subprocess.run([attnc, folder / "m.onnx", "-o", folder / "m.so", *options], check=True)
            for count in (1, 7, 9, len(columns[0])):
                totals += compare(run, dtype, functions, [column[-count:] for column in columns])
    print(f"{totals[0]} results, {totals[1]} wrong")
    return int(totals[1] != 0)


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        sys.exit(main(*sys.argv[1:]))
