#!/usr/bin/env python3
"""Operators that draw, beside splitmix64 in NumPy and beside their distributions: random_numbers.py FOLDER [FOLDER OF libcuda]"""
import math
import os
import subprocess
import sys

import numpy as np
import onnx
from onnx import parser

DTYPES = {"float16": np.float16, "float": np.float32, "double": np.float64}
ONNX_TYPES = {"float16": 10, "bfloat16": 16, "float": 1, "double": 11}
BITS = {"float16": 11, "bfloat16": 8, "float": 24, "double": 53}


def mix(x):
    with np.errstate(over="ignore"):
        z = np.asarray(x, np.uint64) + np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
        return z ^ z >> np.uint64(31)


def key_of(run, seed, *iterations):
    """Of a node with its own `seed` (the bits of a float64, or an integer): docs/operators.md."""
    bits = np.float64(seed).view(np.uint64) if isinstance(seed, float) else np.uint64(seed)
    key = mix(np.uint64(run))
    for term in (np.uint64(2**64 - 1), bits, *map(np.uint64, iterations)):
        with np.errstate(over="ignore"):
            key = mix(key + term)
    return key


def bits_of(key, count):
    with np.errstate(over="ignore"):
        return mix(key + np.arange(count, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15))


def uniform(bits, count=24):
    return (bits >> np.uint64(64 - count)).astype(np.float64) * 2.0**-count


def normal(bits, double=False):
    count = 53 if double else 31
    part = ((bits >> np.uint64(64 - count)).astype(np.float64 if double else np.float32) + 0.5) * 2.0**-count
    turn = uniform(mix(bits), 53) if double else uniform(bits << np.uint64(40), 24)
    return np.sqrt(-2 * np.log(part.astype(np.float64))) * np.cos(2 * np.pi * turn)


class Runner:
    def __init__(self, folder):
        self.folder, self.count = folder, 0

    def compile(self, text, *flags, opset=17):
        self.count += 1
        path = f"{self.folder}/{self.count}"
        onnx.save(parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}'), f"{path}.onnx")
        subprocess.run(["attnc", f"{path}.onnx", "-o", f"{path}.so", *flags], check=True)
        return f"{path}.so"

    def run(self, library, outputs, *flags, environment=None, **inputs):
        command = ["attn-run", library, *flags]
        for name, value in inputs.items():
            np.save(f"{self.folder}/{name}.npy", value)
            command.append(f"--input={name}=@{self.folder}/{name}.npy")
        command += [f"--output={name}=@{self.folder}/{name}.npy" for name in outputs]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        return [np.load(f"{self.folder}/{name}.npy") for name in outputs]


def seed(number):
    return np.array([number], np.int64)


#===------------------------------------------------------------------------===#
# Each bit of it
#===------------------------------------------------------------------------===#


def check_exact(runner):
    for name in DTYPES:
        library = runner.compile(f"""g () => ({name}[30,50] u, {name}[30,50] w, {name}[30,50] z, {name}[] s) {{
  u = RandomUniform<shape = [30, 50], seed = 3.5, dtype = {ONNX_TYPES[name]}>()
  w = RandomUniform<shape = [30, 50], seed = 3.5, dtype = {ONNX_TYPES[name]}, low = -2.0, high = 6.0>()
  z = RandomNormal<shape = [30, 50], seed = -1.25, dtype = {ONNX_TYPES[name]}, mean = 2.0, scale = 0.5>()
  s = RandomUniform<shape : ints = [], seed = 3.5, dtype = {ONNX_TYPES[name]}>()
}}""")
        for run in (0, 7, -3, 2**62):
            given = {} if run == 0 else {"seed": seed(run)}
            u, w, z, s = runner.run(library, "uwzs", **given)
            run %= 2**64
            want = uniform(bits_of(key_of(run, 3.5), 1500), BITS[name]).reshape(30, 50)
            np.testing.assert_array_equal(u, want)
            np.testing.assert_array_equal(w, (want * 8 - 2).astype(DTYPES[name]))
            assert s == want[0, 0]
            want = 2 + 0.5 * normal(bits_of(key_of(run, -1.25), 1500), name == "double").reshape(30, 50)
            np.testing.assert_allclose(z, want, **{"float16": dict(rtol=1e-3, atol=1e-3), "float": dict(rtol=2e-6, atol=1e-6),
                                                   "double": dict(rtol=1e-12, atol=1e-12)}[name])
    library = runner.compile("""g () => (float[1500] u, float[1500] z) {
  v = RandomUniform<shape = [1500], seed = 3.5, dtype = 16>()
  u = Cast<to = 1>(v)
  w = RandomNormal<shape = [1500], seed = 3.5, dtype = 16>()
  z = Cast<to = 1>(w)
}""", opset=22)
    u, z = runner.run(library, "uz")
    bits = bits_of(key_of(0, 3.5), 1500)
    np.testing.assert_array_equal(u, uniform(bits, BITS["bfloat16"]))
    np.testing.assert_allclose(z, normal(bits), rtol=2**-8)


def check_bernoulli(runner):
    """Of all types, and with results of all kinds."""
    p = np.random.default_rng(1).random((40, 25))
    p[0, :3] = 0, 1, np.nan
    for name, result in (("float", 1), ("double", 11), ("float16", 10), ("float", 9), ("double", 7), ("float16", 3)):
        kind = {1: "float", 11: "double", 10: "float16", 9: "bool", 7: "int64", 3: "int8"}[result]
        dtype = "" if kind == name else f"dtype = {result}, "
        library = runner.compile(f"g ({name}[a,b] p) => ({kind}[a,b] y) {{ y = Bernoulli<{dtype}seed = 2.0>(p) }}")
        given = p.astype(DTYPES[name])
        y, = runner.run(library, "y", p=given, seed=seed(11))
        u = uniform(bits_of(key_of(11, 2.0), 1000), 53 if name == "double" else 24).reshape(40, 25)
        np.testing.assert_array_equal(y, u < given)
        assert not y[0, 0] and y[0, 1] and not y[0, 2]


def check_dropout(runner):
    x = np.random.default_rng(2).standard_normal((40, 25))
    for name in DTYPES:
        library = runner.compile(f"""g ({name}[a,b] x, {name} r, bool t) => ({name}[a,b] y, bool[a,b] m, {name}[a,b] k) {{
  y, m = Dropout<seed = 5>(x, r, t)
  on = Constant<value = bool {{1}}>()
  k = Dropout<seed = 5>(x, r, on)
}}""")
        given = x.astype(DTYPES[name])
        u = uniform(bits_of(key_of(0, 5), 1000), 53 if name == "double" else 24).reshape(40, 25)
        for ratio, training in ((0.25, True), (0.25, False), (0, True), (1, True), (0.9, True)):
            r = np.array(ratio, DTYPES[name])
            y, m, k = runner.run(library, "ymk", x=given, r=r, t=np.array(training))
            keeps = u >= r.astype(np.float64) if training else np.ones_like(x, bool)
            np.testing.assert_array_equal(m, keeps)
            scale = 1 / (1 - r.astype(np.float64)) if training and ratio < 1 else 1
            np.testing.assert_allclose(y, np.where(keeps, given * scale, 0), rtol=2e-3 if name == "float16" else 1e-6)
            if training:
                np.testing.assert_array_equal(y, k)
        np.save(f"{runner.folder}/r.npy", np.array(1.5, DTYPES[name]))
        done = subprocess.run(["attn-run", library, *(f"--input={i}=@{runner.folder}/{i}.npy" for i in "rtx")],
                              capture_output=True, text=True)
        assert done.returncode == 3 and "(Dropout): the ratio is outside [0, 1]" in done.stderr, done


def check_multinomial(runner):
    """Draws by the sums of the weights; a class of weight 0 is never drawn."""
    rng, rows, classes, count = np.random.default_rng(3), 3, 37, 200
    logits = rng.standard_normal((rows, classes)) * 3
    logits[0, :30], logits[1, -1], logits[2, 5:] = -np.inf, -np.inf, -np.inf
    for name, dtype, open_classes in (("float", 6, 0), ("double", 7, 1), ("float16", 7, 0), ("float", 7, 1)):
        kind = {6: "int32", 7: "int64"}[dtype]
        library = runner.compile(f"""g ({name}[n,{'c' if open_classes else classes}] x) => ({kind}[n,{count}] y) {{
  y = Multinomial<sample_size = {count}, dtype = {dtype}, seed = 9.0>(x)
}}""")
        given = logits.astype(DTYPES[name])
        y, = runner.run(library, "y", x=given, seed=seed(4))
        u = uniform(bits_of(key_of(4, 9.0), rows * count), 53).reshape(rows, count)
        weights = np.exp(given.astype(np.float64) - given.max(-1, keepdims=True).astype(np.float64))
        sums = np.cumsum(weights, -1)
        want = np.array([np.searchsorted(s, t * s[-1], side="right") for s, t in zip(sums, u)])
        assert y.shape == (rows, count) and np.mean(y != want) < (0 if name == "double" else 2e-3) + 1e-9, name
        assert np.all(np.take_along_axis(given, y.astype(np.int64), -1) > -np.inf)
        for bad in (np.nan, np.inf):
            wrong = given.copy()
            wrong[1, 3] = bad
            np.save(f"{runner.folder}/x.npy", wrong)
            done = subprocess.run(["attn-run", library, f"--input=x=@{runner.folder}/x.npy"], capture_output=True, text=True)
            assert done.returncode == 3 and "(Multinomial): a row has NaN, +inf" in done.stderr, done


def check_attention(runner):
    """Dropout of an attention's weights is part of the attention."""
    library = runner.compile("""g (float[b,3,s,8] q, float[b,3,8,t] k, float[b,3,t,8] v) => (float[b,3,s,8] y) {
  scores = MatMul(q, k)
  weights = Softmax(scores)
  on = Constant<value = bool {1}>()
  ratio = Constant<value = float {0.3}>()
  kept, mask = Dropout<seed = 8>(weights, ratio, on)
  y = MatMul(kept, v)
}""", "--require-fused=1")
    rng = np.random.default_rng(5)
    for b, s, t in ((2, 70, 33), (1, 1, 200), (3, 5, 1)):
        q, k, v = (rng.standard_normal((b, 3, *rest)).astype(np.float32) for rest in ((s, 8), (8, t), (t, 8)))
        y, = runner.run(library, "y", q=q, k=k, v=v, seed=seed(6))
        weights = np.exp(q.astype(np.float64) @ k)
        weights /= weights.sum(-1, keepdims=True)
        keeps = uniform(bits_of(key_of(6, 8), weights.size)).reshape(weights.shape) >= np.float32(0.3)
        np.testing.assert_allclose(y, np.where(keeps, weights / 0.7, 0) @ v, rtol=1e-4, atol=1e-5)


#===------------------------------------------------------------------------===#
# Distributions
#===------------------------------------------------------------------------===#


def kolmogorov(drawn, distribution):
    """The greatest distance from the distribution; more than 1.95 / sqrt(n) happens in a thousandth of cases."""
    x = distribution(np.sort(drawn.ravel().astype(np.float64)))
    steps = np.arange(len(x) + 1) / len(x)
    return max(np.max(steps[1:] - x), np.max(x - steps[:-1])) * math.sqrt(len(x))


def check_distributions(runner):
    library = runner.compile("""g () => (float[1000,1000] u, float[1000,1000] z, double[1000,1000] d, float[1000,1000] v) {
  u = RandomUniform<shape = [1000, 1000], low = -1.0, high = 3.0>()
  z = RandomNormal<shape = [1000, 1000], mean = 1.0, scale = 2.0>()
  d = RandomNormal<shape = [1000, 1000], dtype = 11>()
  v = RandomUniform<shape = [1000, 1000]>()
}""")
    erf = np.vectorize(math.erf)
    bell = lambda x: 0.5 * (1 + erf(x / math.sqrt(2)))
    draws = [runner.run(library, "uzdv", seed=seed(run)) for run in (1, 2)]
    for u, z, d, v in draws:
        assert u.min() >= -1 and u.max() < 3 and v.max() < 1
        assert kolmogorov(u, lambda x: (x + 1) / 4) < 1.95 and kolmogorov(v, lambda x: x) < 1.95
        assert kolmogorov((z - 1) / 2, bell) < 1.95 and kolmogorov(d, bell) < 1.95
        for x in ((z - 1) / 2, d):
            assert abs(x.mean()) < 4e-3 and abs(x.std() - 1) < 4e-3
            assert abs(np.mean(x**3)) < 2e-2 and abs(np.mean(x**4) - 3) < 5e-2
            assert 4.5 < np.abs(x).max() < 6.5
        # Neighbours, rows and nodes do not know of each other.
        flat = [v.ravel(), (u.ravel() + 1) / 4, d.ravel()]
        pairs = [(flat[0], flat[1]), (flat[0], flat[2])] + [(x[:-n], x[n:]) for x in flat for n in (1, 2, 1000)]
        for x, y in pairs:
            assert abs(np.corrcoef(x, y)[0, 1]) < 4.5e-3
    for x, y in zip(*draws):
        assert abs(np.corrcoef(x.ravel(), y.ravel())[0, 1]) < 4.5e-3
    weights = np.arange(1, 11)
    library = runner.compile("g (float[n,c] x) => (int64[n,100000] y) { y = Multinomial<sample_size = 100000, dtype = 7>(x) }")
    y, = runner.run(library, "y", x=np.log(np.array([weights, weights[::-1]], np.float32)))
    for row, expected in zip(y, (weights, weights[::-1])):
        wanted = 100000 * expected / expected.sum()
        assert np.sum((np.bincount(row, minlength=10) - wanted)**2 / wanted) < 27.9  # chi-square of 9, a thousandth


#===------------------------------------------------------------------------===#
# Streams
#===------------------------------------------------------------------------===#


def check_loops(runner):
    """Iterations of loops inside loops, of the unrolled, and of branches draw numbers of their own."""
    library = runner.compile("""g (int64 n, bool c) => (float[a,b,4] y, float[4] z) {
  t = Constant<value = bool {1}>()
  y = Loop(n, t) <body = outer (int64 i, bool go) => (bool go_on, float[k,4] rows) {
    go_on = Identity(go)
    rows = Loop(n, t) <body = inner (int64 j, bool go2) => (bool go_on2, float[4] row) {
      go_on2 = Identity(go2)
      row = RandomUniform<shape = [4], seed = 1.0>()
    }>
  }>
  z = If(c) <then_branch = yes () => (float[4] a1) { a1 = RandomUniform<shape = [4]>() },
             else_branch = no () => (float[4] b1) { b1 = RandomUniform<shape = [4]>() }>
}""")
    draws = []
    for condition in (True, False):
        y, z = runner.run(library, "yz", n=np.array(5), c=np.array(condition))
        want = [[uniform(bits_of(key_of(0, 1.0, i, j), 4)) for j in range(5)] for i in range(5)]
        np.testing.assert_array_equal(y, want)
        draws.append(z)
    assert len(np.unique(np.concatenate([y.ravel(), *draws]))) == 108
    library = runner.compile("""g (float[6] x) => (float[6] y) <int64 two = {2}> {
  parts = SplitToSequence<axis = 0>(x, two)
  mapped = SequenceMap(parts) <body = noisy (float[2] item) => (float[2] out) {
    out = RandomUniformLike<seed = 1.0>(item)
  }>
  y = ConcatFromSequence<axis = 0>(mapped)
}""")
    y, = runner.run(library, "y", x=np.zeros(6, np.float32))
    np.testing.assert_array_equal(y.reshape(3, 2), [uniform(bits_of(key_of(0, 1.0, i), 2)) for i in range(3)])


STREAMS = """g (float[n,m] x) => (float[n,m] a, float[n,m] b, float[n,m] d, bool[n,m] e, float[n,m] z, int32[n,9] s) {
  a = RandomUniformLike(x)
  b = RandomUniformLike(x)
  t = Constant<value = bool {1}>()
  half = Constant<value = float {0.5}>()
  r = Relu(x)
  d, e = Dropout(r, half, t)
  z = RandomNormalLike(x)
  s = Multinomial<sample_size = 9>(x)
}"""


def check_streams(runner, cuda):
    """Any number of threads and any instructions give the same; normal numbers up to their last bits."""
    x = np.random.default_rng(4).standard_normal((130, 301)).astype(np.float32)
    first = None
    for flags in ([], ["--mcpu=x86-64"], ["--mcpu=x86-64-v3"], ["--mcpu=x86-64-v4"], ["-O0"]):
        if flags == ["--mcpu=x86-64-v4"] and "avx512f" not in open("/proc/cpuinfo").read():
            continue
        library = runner.compile(STREAMS, *flags)
        for threads in ("1", "2"):
            got = runner.run(library, "abdezs", f"--threads={threads}", x=x, seed=seed(3))
            first = first or got
            for n, (want, have) in enumerate(zip(first, got)):
                (np.testing.assert_array_equal if n != 4 else
                 lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-5, atol=1e-6))(have, want)
    a, b, d, e = first[:4]
    assert len(np.unique(a)) > 0.99 * a.size and np.mean(a == b) < 1e-3
    assert abs(np.corrcoef((a < 0.5).ravel(), e.ravel())[0, 1]) < 0.02
    np.testing.assert_array_equal(d, np.where(e, 2 * np.maximum(x, 0), 0))
    if cuda:
        library_of_gpu = runner.compile(STREAMS, "--target=cuda", "--gpu-arch=sm_80")
        for want, have in zip(runner.run(library, "abdezs", x=x[:9, :31], seed=seed(3)),
                              runner.run(library_of_gpu, "abdezs", x=x[:9, :31], seed=seed(3), environment={
                                  **os.environ, "LD_LIBRARY_PATH": cuda})):
            np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
    # No elements.
    assert [t.shape for t in runner.run(library, "abdez", x=x[:0])] == [(0, 301)] * 5


def main(folder, cuda=""):
    runner = Runner(folder)
    for check in (check_exact, check_bernoulli, check_dropout, check_multinomial, check_attention, check_distributions,
                  check_loops):
        check(runner)
    check_streams(runner, cuda)
    print("random numbers agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
