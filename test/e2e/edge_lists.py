#!/usr/bin/env python3
"""Graph attention whose adjacency a run gives as a list of edges: edge_lists.py FOLDER

Each spelling of the mask is a model with a reference in float64, for several graphs. Values of nodes that no row
sees are NaN.
"""
import json
import subprocess
import sys

import numpy as np
import onnx
from onnx import numpy_helper, parser

WIDTH = 8
ZEROS = """
  zeros = ConstantOfShape<value = float[1] {0}>(square)
  places = Transpose<perm = [1, 0]>(edges)
  ones = ConstantOfShape<value = float[1] {1}>(count)
"""
SHOWN = """
  shown = Greater(table, zero)
  x = Where(shown, s, low)
"""
MINUS = "  low = Constant<value = float {-9e15}>()\n"
INFINITE = """
  one = Constant<value = float {1}>()
  nought = Sub(one, one)
  minus = Neg(one)
  low = Div(minus, nought)
"""

# name, the mask in the report, what makes x of s, edges in [2, E]; what a row without an edge is
CASES = [
    ("nd", "edges", ZEROS + "  table = ScatterND(zeros, places, ones)\n" + MINUS + SHOWN, "mean"),
    ("infinite", "edges", ZEROS + "  table = ScatterND(zeros, places, ones)\n" + INFINITE + SHOWN, "nan"),
    ("guarded", "edges", """
  nothing = ConstantOfShape<value = bool[1] {0}>(square)
  places = Transpose<perm = [1, 0]>(edges)
  all = ConstantOfShape<value = bool[1] {1}>(count)
  shown = ScatterND(nothing, places, all)
  hidden = Not(shown)
""" + INFINITE + "  x = Where(hidden, low, s)\n", "zero"),
    ("flat", "edges", """
  product = Mul(n, n)
  zeros = ConstantOfShape<value = float[1] {0}>(product)
  rows = Gather(edges, first)
  columns = Gather(edges, second)
  begins = Mul(rows, n)
  flat = Add(begins, columns)
  ones = ConstantOfShape<value = float[1] {1}>(count)
  long = ScatterElements<axis = 0>(zeros, flat, ones)
  table = Reshape(long, square)
""" + MINUS + SHOWN, "mean"),
    ("bias", "edges", """
  lows = ConstantOfShape<value = float[1] {-1e9}>(square)
  places = Transpose<perm = [1, 0]>(edges)
  shows = ConstantOfShape<value = float[1] {0}>(count)
  table = ScatterND(lows, places, shows)
  x = Add(s, table)
""", "shifted"),
    ("added", "edges",
     ZEROS + "  table = ScatterND<reduction = \"add\">(zeros, places, ones)\n" + MINUS + SHOWN, "mean"),
    ("loops", "edges", """
  zeros = ConstantOfShape<value = float[1] {0}>(square)
  many = Squeeze(n, axis)
  nodes = Range(nil, many, unit)
  row = Unsqueeze(nodes, axis)
  pair = Concat<axis = 0>(row, row)
  all = Concat<axis = 1>(edges, pair)
  places = Transpose<perm = [1, 0]>(all)
  more = Add(count, n)
  ones = ConstantOfShape<value = float[1] {1}>(more)
  table = ScatterND<reduction = "max">(zeros, places, ones)
""" + MINUS + SHOWN, "loops"),
    ("twice", "edges", """
  many = Squeeze(n, axis)
  nodes = Range(nil, many, unit)
  column = Unsqueeze(nodes, last)
  own = Concat<axis = 1>(column, column)
  each = ConstantOfShape<value = float[1] {1}>(n)
""" + ZEROS + """
  before = ScatterND(zeros, places, ones)
  table = ScatterND(before, own, each)
""" + MINUS + SHOWN, "loops"),
    ("backwards", "edges", """
  zeros = ConstantOfShape<value = float[1] {0}>(square)
  rows = Gather(edges, first)
  columns = Gather(edges, second)
  r = Unsqueeze(rows, last)
  c = Unsqueeze(columns, last)
  places = Concat<axis = 1>(c, r)
  ones = ConstantOfShape<value = float[1] {1}>(count)
  there = ScatterND(zeros, places, ones)
  table = Transpose<perm = [1, 0]>(there)
""" + MINUS + SHOWN, "mean"),
    ("scaled", "edges", ZEROS + """
  adjacent = ScatterND(zeros, places, ones)
  one = Constant<value = float {1}>()
  apart = Sub(one, adjacent)
  large = Constant<value = float {-1e9}>()
  table = Mul(apart, large)
  x = Add(s, table)
""", "shifted"),
    # Near misses: numbers that a run gives, and a count of edges that is added to the scores.
    ("weighted", "dense", """
  zeros = ConstantOfShape<value = float[1] {0}>(square)
  places = Transpose<perm = [1, 0]>(edges)
  rows = Gather(edges, first)
  ones = Cast<to = 1>(rows)
  table = ScatterND(zeros, places, ones)
""" + MINUS + SHOWN, None),
    ("counted", "dense", ZEROS + """
  table = ScatterND<reduction = "add">(zeros, places, ones)
  x = Add(s, table)
""", None),
]


def text(name, heads, body, guard):
    softmax = "  a = Softmax<axis = -1>(x)\n"
    if guard:
        softmax = "  p = Softmax<axis = -1>(x)\n  isnan = IsNaN(p)\n  a = Where(isnan, zero, p)\n"
    return f"""<ir_version: 9, opset_import: ["" : 18]>
g (float[{heads},n,1] q, float[{heads},1,n] k, float[{heads},n,{WIDTH}] v, int64[2,e] edges)
  => (float[{heads},n,{WIDTH}] y) {{
  axis = Constant<value = int64[1] {{0}}>()
  last = Constant<value = int64[1] {{-1}}>()
  nil = Constant<value = int64 {{0}}>()
  unit = Constant<value = int64 {{1}}>()
  first = Constant<value = int64 {{0}}>()
  second = Constant<value = int64 {{1}}>()
  zero = Constant<value = float {{0}}>()
  n = Shape<start = 1, end = 2>(q)
  square = Concat<axis = 0>(n, n)
  count = Shape<start = 1, end = 2>(edges)
  sum = Add(q, k)
  s = LeakyRelu<alpha = 0.2>(sum)
{body}{softmax}  y = MatMul(a, v)
}}"""


def graphs():
    """n and edges, rows are queries."""
    rng = np.random.default_rng(7)
    yield "one", 1, np.array([[0], [0]])
    yield "none", 5, np.zeros((2, 0), np.int64)
    some = rng.integers(0, 37, (2, 90))
    some = some[:, some[0] % 5 != 0]  # nodes without an edge
    some = np.concatenate([some, some[:, :20], [[3, 36], [3, 36]]], 1)
    yield "some", 37, some
    yield "negative", 37, some - 37 * (np.arange(some.shape[1]) % 2)
    queries, keys = rng.integers(0, 600, (2, 900))
    queries[:450] = 7
    yield "hub", 600, np.stack([queries, keys])
    yield "all", 19, np.stack(np.divmod(np.arange(361), 19))


def reference(given, edges, n, rows):
    q, k, v = (given[name].astype(np.float64) for name in "qkv")
    s = q + k
    s = np.where(s > 0, s, 0.2 * s)
    shown = np.zeros((n, n), bool)
    shown[tuple(edges)] = True
    if rows == "loops":
        shown |= np.eye(n, dtype=bool)
    empty = ~shown.any(-1)
    x = np.where(shown, s, -np.inf)
    if rows in ("mean", "shifted"):
        # -1e9 takes a score in: in f32 all keys of such a row have one.
        x[:, empty] = 0
    with np.errstate(all="ignore"):
        p = np.exp(x - x.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
    if rows == "zero":
        p[:, empty] = 0
    return np.einsum("hij,hje->hie", p, np.where(np.isnan(v), 0, v))


def run(library, folder, given):
    for key, value in given.items():
        np.save(f"{folder}/{key}.npy", value)
    return subprocess.run(["attn-run", library, f"--output=y=@{folder}/y.npy",
                           *(f"--input={key}=@{folder}/{key}.npy" for key in given)], capture_output=True, text=True)


def inputs(rng, heads, n):
    given = {"q": rng.standard_normal((heads, n, 1)), "k": rng.standard_normal((heads, 1, n)),
             "v": rng.standard_normal((heads, n, WIDTH))}
    return {key: value.astype(np.float32) for key, value in given.items()}


def expect_refusals(library, folder, rng, operator):
    """Edges to nodes that there are not: an error of the run, as the scatter alone gives it."""
    for n, edges in (5, [[0, 1], [4, 5]]), (5, [[-6], [0]]), (1, [[2**62], [-2**62]]), (0, [[0], [0]]):
        done = run(library, folder, inputs(rng, 1, n) | {"edges": np.array(edges, np.int64)})
        assert done.returncode == 3 and operator in done.stderr and "index" in done.stderr, (n, edges, done)


def check_stored(folder, rng, n=24):
    """The zeros and the ones are tables of the model, as tools that fold constants leave them."""
    edges = rng.integers(0, n, (2, 300 if n > 100 else 40))
    body = "  places = Transpose<perm = [1, 0]>(edges)\n  table = ScatterND(zeros, places, ones)\n" + MINUS + SHOWN
    model = parser.parse_model(text("stored", 1, body, False).replace(",n", f",{n}").replace(",e]", f",{edges.shape[1]}]"))
    for name, value in {"zeros": np.zeros((n, n), np.float32), "ones": np.ones(edges.shape[1], np.float32)}.items():
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    path, library, report = f"{folder}/stored{n}.onnx", f"{folder}/stored{n}.so", f"{folder}/stored{n}.json"
    onnx.save(model, path)
    subprocess.run(["attnc", path, "-o", library, f"--fusion-report={report}"], check=True)
    assert [v["mask"] for v in json.load(open(report))] == ["edges"], n
    given = inputs(rng, 1, n)
    assert run(library, folder, given | {"edges": edges}).returncode == 0
    np.testing.assert_allclose(np.load(f"{folder}/y.npy"), reference(given, edges, n, "mean"), rtol=1e-4, atol=1e-5)


def main(folder):
    rng, agree = np.random.default_rng(11), 0
    for name, mask, body, rows in CASES:
        for heads in (1, 8):
            path, report = f"{folder}/{name}{heads}.onnx", f"{folder}/{name}{heads}.json"
            model = parser.parse_model(text(name, heads, body, rows == "zero"))
            onnx.save(model, path)
            library = path.replace(".onnx", ".so")
            subprocess.run(["attnc", path, "-o", library, f"--fusion-report={report}"], check=True)
            verdicts = json.load(open(report))
            assert [(v["fused"], v["mask"]) for v in verdicts] == [(True, mask)], (name, verdicts)
            if rows is None:
                continue
            for graph, n, edges in graphs():
                if (name, graph) == ("flat", "negative"):
                    continue  # the sum of a row's begin and a column is another place then
                given = inputs(rng, heads, n)
                if rows in ("nan", "zero"):
                    given["v"][:, np.setdiff1d(np.arange(n), edges[1] % n)] = np.nan
                want = reference(given, edges, n, rows)
                done = run(library, folder, given | {"edges": edges.astype(np.int64)})
                assert done.returncode == 0, (name, graph, done)
                np.testing.assert_allclose(np.load(f"{folder}/y.npy"), want, rtol=1e-4, atol=1e-5,
                                           err_msg=f"{name}, {heads} heads, {graph}")
                agree += 1
            if heads == 1 and name != "flat":
                expect_refusals(library, folder, rng, "ScatterND")
    for n in (24, 200):
        check_stored(folder, rng, n)
    print(agree, "runs agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
