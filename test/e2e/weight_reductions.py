#!/usr/bin/env python3
"""Attention weights that are only reduced: weight_reductions.py results BIN LIBATTNRT FOLDER
                                            weight_reductions.py memory BIN FOLDER
"""
import json
import re
import subprocess
import sys

import numpy as np
import onnx
from onnx import numpy_helper, parser
from own_state import Runtime


def model(inputs, outputs, body, tables, path):
    """A graph from typed inputs to typed outputs."""
    text = f"""<ir_version: 9, opset_import: ["" : 18]>
g ({', '.join(inputs)}) => ({', '.join(outputs)}) {{
{body}
}}"""
    made = parser.parse_model(text)
    made.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in tables.items())
    onnx.checker.check_model(made)
    onnx.save(made, path)


def compile(bin, path, *options):
    """The library of the graph at `path`, and the verdicts on it."""
    library, report = path.replace(".onnx", ".so"), path.replace(".onnx", ".json")
    subprocess.run([f"{bin}/attnc", path, "-o", library, f"--fusion-report={report}", *options], check=True)
    return library, json.load(open(report))


def entropy(p):
    with np.errstate(divide="ignore", invalid="ignore"):
        return -np.where(p > 0, p * np.log(p), 0).sum(-1)


# name: (nodes from p to the outputs, their types over b, h, s, m, and NumPy)
REDUCTIONS = {
    "mean": ("w = ReduceMean<keepdims = 0>(p, d1)", ["float[b,s,m] w"], lambda p: [p.mean(1)]),
    "sum": ("w = ReduceSum<keepdims = 0>(p, d2)", ["float[b,4,m] w"], lambda p: [p.sum(2)]),
    "max": ("w = ReduceMax<keepdims = 0>(p, d3)", ["float[b,4,s] w"], lambda p: [p.max(3)]),
    "all": ("w = ReduceMax<keepdims = 0>(p, d123)", ["float[b] w"], lambda p: [p.max((1, 2, 3))]),
    "argmax": ("w = ArgMax<axis = 3, keepdims = 0>(p)", ["int64[b,4,s] w"], lambda p: [p.argmax(3)]),
    # The greatest of all queries first, then where it is: two sweeps.
    "argmax_queries": ("w = ArgMax<axis = 2, keepdims = 0>(p)", ["int64[b,4,m] w"], lambda p: [p.argmax(2)]),
    "topk": ("w, x = TopK<axis = -1>(p, three)", ["float[b,4,s,3] w", "int64[b,4,s,3] x"],
             lambda p: [-np.sort(-p, -1)[..., :3], np.argsort(-p, -1, "stable")[..., :3]]),
    "entropy": ("a = Add(p, tiny)\n l = Log(a)\n m = Mul(p, l)\n t = ReduceSum<keepdims = 0>(m, d3)\n w = Neg(t)",
                ["float[b,4,s] w"], lambda p: [entropy(p)]),
    "squares": ("m = Mul(p, p)\n t = ReduceSum<keepdims = 1>(m, d23)\n w = Sqrt(t)", ["float[b,4,1,1] w"],
                lambda p: [np.sqrt((p * p).sum((2, 3), keepdims=True))]),
    # Shares of a row's greatest weight, added up by key: a row's value goes back to its weights.
    "shares": ("g = ReduceMax<keepdims = 1>(p, d3)\n r = Div(p, g)\n w = ReduceMean<keepdims = 0>(r, d12)",
               ["float[b,m] w"], lambda p: [(p / p.max(3, keepdims=True)).mean((1, 2))]),
    # Two heads, and what they give to all keys but the first two.
    "sliced": ("r = Slice(p, ones, threes, ones)\n t = Slice(r, twos, ends, threes)\n w = ReduceSum<keepdims = 0>(t, d2)",
               ["float[b,2,k] w"], lambda p: [p[:, 1:3, :, 2:].sum(2)]),
    "one_head": ("r = Gather<axis = 1>(p, head)\n w = ReduceMax<keepdims = 0>(r, d2)", ["float[b,s] w"],
                 lambda p: [p[:, 2].max(2)]),
    # Shares of a key's greatest weight: all queries have to be seen first.
    "column_shares": ("g = ReduceMax<keepdims = 0>(p, d2)\n u = Unsqueeze(g, d2)\n r = Div(p, u)\n"
                      " w = ReduceMean<keepdims = 0>(r, d13)", ["float[b,s] w"],
                      lambda p: [(p / p.max(2, keepdims=True)).mean((1, 3))]),
    "batched": ("r = Reshape(p, flat)\n w = ReduceSum<keepdims = 0>(r, d1)", ["float[c,m] w"],
                lambda p: [p.reshape(-1, *p.shape[2:]).sum(1)]),
    "several": ("w = ReduceSum<keepdims = 0>(p, d2)\n x = ArgMax<axis = 3, keepdims = 0>(p)",
                ["float[b,4,m] w", "int64[b,4,s] x"], lambda p: [p.sum(2), p.argmax(3)]),
}
FIXED = "sliced", "one_head", "batched"  # their queries are of a size that is known
TABLES = {f"d{''.join(map(str, dims))}": np.array(dims) for dims in ((1,), (2,), (3,), (1, 2), (1, 3), (2, 3), (1, 2, 3))}
TABLES |= {"three": np.array([3]), "tiny": np.array(1e-30, np.float32), "head": np.array(2),
           "flat": np.array([-1, 400, 512])}
TABLES |= {"ones": np.array([1]), "twos": np.array([2]), "threes": np.array([3]), "ends": np.array([1 << 40])}

POSITIONS = """
 at1 = Constant<value = int64 {2}>()
 zero = Constant<value = int64 {0}>()
 one = Constant<value = int64 {1}>()
 rows = Constant<value = int64[1] {1}>()
 columns = Constant<value = int64[1] {0}>()
 ninf = Constant<value = float {-inf}>()
 sq = Shape(q)
 nq = Gather<axis = 0>(sq, at1)
 sk = Shape(k)
 nk = Gather<axis = 0>(sk, at1)
 ri = Range(zero, nq, one)
 rj = Range(zero, nk, one)
 i = Unsqueeze(ri, rows)
 j = Unsqueeze(rj, columns)
"""
# name: (nodes from s to z, more inputs, NumPy's mask or bias)
MASKS = {
    "plain": (" z = Identity(s)", {}, None),
    "causal": (" c = LessOrEqual(j, i)\n z = Where(c, s, ninf)", {}, lambda i, j, n, bias: j <= i),
    "window": (" five = Constant<value = int64 {5}>()\n a = Sub(i, five)\n c = LessOrEqual(j, i)\n"
               " e = GreaterOrEqual(j, a)\n both = And(c, e)\n z = Where(both, s, ninf)", {},
               lambda i, j, n, bias: (j <= i) & (j >= i - 5)),
    "lengths": (" c = Less(j, n)\n z = Where(c, s, ninf)", {"n": "int64[b,1,1,1]"},
                lambda i, j, n, bias: j < n),
    "moved": (" e = Add(i, n)\n c = LessOrEqual(j, e)\n z = Where(c, s, ninf)", {"n": "int64[b,1,1,1]"},
              lambda i, j, n, bias: j <= i + n),
    "dense": (" z = Add(s, bias)", {"bias": "float[1,1,s,m]"}, lambda i, j, n, bias: bias),
    "distance": (" d = Sub(j, i)\n f = Cast<to = 1>(d)\n a = Abs(f)\n z = Sub(s, a)", {},
                 lambda i, j, n, bias: -np.abs(j - i).astype(np.float64)),
}


def attention(body, mask, group):
    lines = POSITIONS
    for x, y in ("k", "kk"), ("v", "vv"):
        if group == 1:
            lines += f" {y} = Identity({x})\n"
        else:
            lines += (f" {y}u = Unsqueeze({x}, at1v)\n {y}e = Expand({y}u, wide)\n {y} = Reshape({y}e, {x}heads)\n")
    return lines + f""" kt = Transpose<perm = [0, 1, 3, 2]>(kk)
 s0 = MatMul(q, kt)
 half = Constant<value = float {{0.5}}>()
 s = Mul(s0, half)
{MASKS[mask][0]}
 p = Softmax<axis = -1>(z)
 y = MatMul(p, vv)
 {body}"""


def write(path, body, outputs, mask, sizes, group=1):
    heads = 4 // group
    fix = lambda text: re.sub(r"\b([bsm])\b(?=[,\]])", lambda x: str(sizes.get(x[1], x[1])), text)
    inputs = ["float[b,4,s,16] q", f"float[b,{heads},m,16] k", f"float[b,{heads},m,8] v"]
    inputs += [f"{kind} {name}" for name, kind in MASKS[mask][1].items()]
    tables = dict(TABLES)
    if group > 1:
        tables |= {"at1v": np.array([2]), "wide": np.array([1, 1, group, 1, 1]), "kheads": np.array([0, 4, -1, 16]),
                   "vheads": np.array([0, 4, -1, 8])}
    model(list(map(fix, inputs)), list(map(fix, ["float[b,4,s,8] y", *outputs])), attention(body, mask, group), tables,
          path)


def reference(given, mask, group):
    q, k, v = (given[n].astype(np.float64) for n in "qkv")
    k, v = (np.repeat(x, group, 1) for x in (k, v))
    s = 0.5 * q @ k.swapaxes(2, 3)
    i, j = np.indices(s.shape[2:])
    if MASKS[mask][2]:
        m = MASKS[mask][2](i, j, given.get("n"), given.get("bias"))
        s = s + m if m.dtype.kind == "f" else np.where(m, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True, initial=-np.inf))
    p = e / e.sum(-1, keepdims=True)
    return p, p @ v


def data(rng, b, s, m, mask, group):
    given = {"q": rng.normal(size=(b, 4, s, 16)), "k": rng.normal(size=(b, 4 // group, m, 16)),
             "v": rng.normal(size=(b, 4 // group, m, 8))}
    given = {n: x.astype(np.float32) for n, x in given.items()}
    if mask in ("lengths", "moved"):
        given["n"] = rng.integers(1, m + 1, (b, 1, 1, 1))
    if mask == "dense":
        bias = rng.normal(size=(1, 1, s, m)).astype(np.float32)
        given["bias"] = np.where(rng.random(bias.shape) < 0.3, np.float32(-np.inf), bias)
        given["bias"][..., 0] = 0
    return given


def compare(rt, given, wanted, name):
    outputs = [np.full(x.shape, 77, np.int64 if x.dtype.kind == "i" else np.float32) for x in wanted]
    rt.run(list(given.values()), outputs)
    for x, want in zip(outputs, wanted):
        np.testing.assert_allclose(x, want, rtol=1e-3, atol=1e-4, err_msg=name)


def results(bin, runtime, folder):
    rng = np.random.default_rng(11)
    cases = [(r, "plain", 1, {}) for r in REDUCTIONS if r not in FIXED] + [("several", mask, 1, {}) for mask in MASKS]
    cases += [("several", mask, group, {}) for mask, group in (("lengths", 2), ("causal", 2), ("dense", 4), ("plain", 4))]
    # Of fixed size: blocks without and with a rest.
    cases += [(r, "causal", group, {"b": 1, "s": 512, "m": 512})
              for r, group in (("mean", 1), ("argmax_queries", 1), ("topk", 2), ("entropy", 4))]
    cases += [(r, "moved", 1, {"s": 400, "m": 512}) for r in FIXED]
    cases += [("several", "window", 2, {"b": 1, "s": 517, "m": 517}), ("shares", "distance", 1, {"b": 2, "s": 400})]
    for number, (reduction, mask, group, fixed) in enumerate(cases):
        name, path = f"{reduction} {mask} {fixed}", f"{folder}/r{number}.onnx"
        body, outputs, numpy = REDUCTIONS[reduction]
        write(path, body, outputs, mask, fixed, group)
        library, verdicts = compile(bin, path, "--require-fused=1")
        weights = [v.get("weights", "") for v in verdicts if v["fused"]]
        assert len(weights) == 1 and weights[0].startswith("reduced by blocks"), (name, verdicts)
        assert ("twice" in weights[0]) == (reduction in ("argmax_queries", "column_shares")), (name, weights)
        rt = Runtime(runtime, library)
        for b, s, m in ((2, 150, 70), (1, 64, 33), (1, 5, 7), (1, 1, 3), (2, 0, 4)):
            if mask in ("causal", "window", "distance"):
                m = max(s, 3)
            b, s, m = (fixed.get(n, x) for n, x in zip("bsm", (b, s, m)))
            if s == 0 and (reduction in ("argmax_queries", "shares", "column_shares", "all")):
                continue # of no numbers
            given = data(rng, b, s, m, mask, group)
            p, y = reference(given, mask, group)
            compare(rt, given, [y, *numpy(p)], f"{name} {b, s, m}")
    near_misses(bin, runtime, folder, rng)
    print("reductions agree")


def near_misses(bin, runtime, folder, rng):
    """What needs all weights at once: they are a result too, or multiplied with something else."""
    misses = {
        "result": ("w = ReduceSum<keepdims = 0>(p, d2)\n x = Identity(p)", ["float[b,4,m] w", "float[b,4,s,m] x"],
                   lambda p: [p.sum(2), p], "a result"),
        "softmax": ("x = Softmax<axis = 2>(p)\n w = ReduceSum<keepdims = 0>(x, d3)", ["float[b,4,s] w"],
                    lambda p: [(np.exp(p) / np.exp(p).sum(2, keepdims=True)).sum(3)], "no reduction"),
        "product": ("t = Transpose<perm = [0, 1, 3, 2]>(p)\n x = MatMul(t, p)\n w = ReduceSum<keepdims = 0>(x, d3)",
                    ["float[b,4,m] w"], lambda p: [(p.swapaxes(2, 3) @ p).sum(3)], "no reduction"),
    }
    for name, (body, outputs, numpy, reason) in misses.items():
        path = f"{folder}/{name}.onnx"
        write(path, body, outputs, "plain", {})
        library, verdicts = compile(bin, path)
        weights = [v.get("weights", "") for v in verdicts if v["fused"]]
        assert any(w.startswith("stored: ") and reason in w for w in weights), (name, verdicts)
        given = data(rng, 2, 70, 70, "plain", 1)
        p, y = reference(given, "plain", 1)
        compare(Runtime(runtime, library), given, [y, *numpy(p)], name)


def memory(bin, folder):
    """What a run needs beside inputs and outputs, of four heads, as the number of queries and keys doubles."""
    def workspace(reduction, size, *options):
        path = f"{folder}/{reduction}{size}.onnx"
        body, outputs, _ = REDUCTIONS[reduction]
        write(path, body, outputs, "plain", {"b": 1, "s": size, "m": size})
        library, _ = compile(bin, path, *options)
        info = subprocess.run([f"{bin}/attn-run", "--info", library], check=True, capture_output=True, text=True)
        number, unit = re.search(r"a run needs at most ([\d.]+) (\w+) beside", info.stdout).groups()
        return float(number) * {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]

    for reduction in [r for r in REDUCTIONS if r not in FIXED]:
        some, more = workspace(reduction, 2048), workspace(reduction, 4096)
        whole = 4 * 2048 * 2048 * 4
        assert some < whole / 6 and more < 2.3 * some + (1 << 20), (reduction, some, more)
    print("memory grows with the queries")


if __name__ == "__main__":
    {"results": results, "memory": memory}[sys.argv[1]](*sys.argv[2:])
