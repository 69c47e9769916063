#!/usr/bin/env python3
"""Functions of f64 on the GPU against the C library's in 80 bits: in units of the last place, at the edges, too.

    check_doubles.py [--tools=build/bin]     with build/test/gpu/lib on LD_LIBRARY_PATH
"""
import argparse
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

LARGEST_ERROR = 3.0
FUNCTIONS = {"exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
             "erf": lambda x: np.array([math.erf(float(each)) for each in x], np.longdouble), "asin": np.arcsin, "acos": np.arccos,
             "atan": np.arctan, "powf": np.power}
INF, NAN, LEAST, MOST = np.inf, np.nan, np.finfo(float).tiny, np.finfo(float).max
# Where branches, exponents and signs change; the last three lie next to multiples of pi / 2.
EDGES = [0.0, 1.0, 0.5, 2.0, 3.0, INF, NAN, 5e-324, 1e-310, LEAST, MOST, 1e-17, 2.0**-27, np.nextafter(1, 0), np.nextafter(1, 2),
         np.nextafter(0.5, 1), 0.7071067811865475, 0.7071067811865476, 1.4142135623730951, 0.3465735902799727, 6.5, 22.5, 708.5, 709.78,
         709.79, 744.4, 745.2, 2.0**17 - 1e-9, 2.0**17, 2.0**53 + 1, 2.0**53 + 2, 1e22, math.pi / 2, 6381956970095103.0 * 2.0**797,
         5.319372648326541e+255]
ENTRY = """func.func @{name}(%x: tensor<?xf64> {{attn.name = "x"}}, %y: tensor<?xf64> {{attn.name = "y"}})
    -> (tensor<?xf64> {{attn.name = "z"}}) attributes {{attn.entry}} {{
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf64>
  %made = tensor.empty(%n) : tensor<?xf64>
  %z = linalg.generic {{indexing_maps = [#each, #each, #each], iterator_types = ["parallel"]}}
      ins(%x, %y : tensor<?xf64>, tensor<?xf64>) outs(%made : tensor<?xf64>) {{
  ^bb0(%a: f64, %b: f64, %c: f64):
    %r = math.{name} {operands} : f64
    linalg.yield %r : f64
  }} -> tensor<?xf64>
  return %z : tensor<?xf64>
}}
"""


def arguments(name, rng):
    """Edges of both signs, and numbers of all sizes and of those that give no edge."""
    edges = np.array([*EDGES, *(-each for each in EDGES)])
    if name == "powf":
        x, y = (each.ravel() for each in np.meshgrid([*edges[:13], *-edges[:13]], [*edges[:11], *-edges[:11], 2.0**53 + 1, 1e300]))
        bases = np.exp2(rng.uniform(-1000, 1000, 300))
        near = 1 + np.exp2(rng.uniform(-40, -1, 300)) * rng.choice([-1, 1], 300)
        powers = rng.uniform(-740, 705, 600) / np.log(np.concatenate([bases, near]))
        whole = rng.integers(-40, 40, 200).astype(float)
        return np.concatenate([x, bases, near, -rng.uniform(0, 50, 200)]), np.concatenate([y, powers, whole])
    sizes = np.exp2(rng.uniform(-70, 1020, 300)) * rng.choice([-1, 1], 300)
    middle = np.concatenate([rng.uniform(-1, 1, 200), rng.uniform(-8, 8, 200), rng.uniform(-745, 710, 200)])
    x = np.concatenate([edges, sizes, middle])
    return x, np.zeros_like(x)


def errors(got, want):
    """In units of the last place of a double; infinite where one is infinite, NaN or a zero of another sign."""
    rounded = want.astype(float)
    with np.errstate(all="ignore"):
        off = np.abs(got.astype(np.longdouble) - want) / np.spacing(np.abs(rounded))
    alike = (np.isnan(got) & np.isnan(rounded)) | (np.isinf(got) & (got == rounded))
    isOdd = ~np.isfinite(got) | ~np.isfinite(rounded) | (np.signbit(got) != np.signbit(rounded))
    return np.where(alike, 0, np.where(isOdd, np.inf, off))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=pathlib.Path, default=pathlib.Path("build/bin"))
    args = parser.parse_args()
    rng, problems = np.random.default_rng(3), 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        text = "".join(ENTRY.format(name=name, operands="%a, %b" if name == "powf" else "%a") for name in FUNCTIONS)
        (work / "m.mlir").write_text("#each = affine_map<(i) -> (i)>\n" + text)
        subprocess.run([args.tools / "attnc", work / "m.mlir", "--target=cuda", "-o", work / "m.so"], check=True)
        for name, function in FUNCTIONS.items():
            x, y = arguments(name, rng)
            np.save(work / "x.npy", x), np.save(work / "y.npy", y)
            subprocess.run([args.tools / "attn-run", work / "m.so", f"--entry={name}", f"--input=x=@{work}/x.npy",
                            f"--input=y=@{work}/y.npy", f"--output=z=@{work}/z.npy"], check=True)
            wide = [each.astype(np.longdouble) for each in ((x, y) if name == "powf" else (x,))]
            with np.errstate(all="ignore"):
                off = errors(np.load(work / "z.npy"), function(*wide))
            worst = int(off.argmax())
            problems += bool(off[worst] > LARGEST_ERROR)
            print(f"{name}: {off[worst]:.2f} units at most, at {x[worst]!r}" + (f", {y[worst]!r}" if name == "powf" else ""))
    print(f"{problems} problems")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
