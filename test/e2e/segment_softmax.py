#!/usr/bin/env python3
"""Graph attention as PyTorch Geometric writes it, a softmax over the edges of each node by scatters, in which an edge
that repeats counts again: segment_softmax.py FOLDER

Each spelling is a model with a reference in float64, for several graphs; near misses must not be fused, and give what
the graph says all the same.
"""
import json
import subprocess
import sys

import numpy as np
import onnx
from onnx import parser

from edge_lists import graphs

# How the sums over the edges of a node are spelled, and what picks them for the edges.
ELEMENTS = """
  sums = ScatterElements<axis = 0, reduction = "add">(zeros, index, x)
  z = Gather(sums, {by})
"""
BY_TUPLES = """
  sums = ScatterND<reduction = "add">(zeros, tuple, x)
  z = GatherND(sums, {by}tuple)
"""
MAXIMA = """
  maxima = ScatterElements<axis = 0, reduction = "max">(lows, index, s)
  m = Gather(maxima, rows)
  c = Sub(s, m)
"""
LOWEST = "  lows = ConstantOfShape<value = float[1] {-3e38}>(shape)\n"
# torch.onnx of old: maxima start at 0, or at the least score of all.
FROM_ZERO = """
  none = ConstantOfShape<value = float[1] {0}>(shape)
  least = ReduceMin<keepdims = 0>(s)
  scores = Shape(s)
  floor = Expand(least, scores)
  lows = ScatterElements<axis = 0, reduction = "max">(none, index, floor)
"""
# torch.export: what stands at nodes with edges becomes the lowest number.
REPLACED = """
  none = ConstantOfShape<value = float[1] {0}>(shape)
  scores = Shape(s)
  floor = ConstantOfShape<value = float[1] {-3.4028235e38}>(scores)
  lows = ScatterElements<axis = 0, reduction = "min">(none, index, floor)
"""
PLAIN = "  c = Identity(s)\n"
# One node more than there are: a negative index is another node, counted from the end.
LONGER = """
  more = Constant<value = int64[2] {1, 0}>()
  shape1 = Add(shape, more)
  zeros1 = ConstantOfShape<value = float[1] {0}>(shape1)
""" + ELEMENTS.replace("(zeros,", "(zeros1,")
EPSILON = "  tiny = Constant<value = float {%g}>()\n  total = Add(z, tiny)\n"
NO_EPSILON = "  total = Identity(z)\n"
VALUES = "  vj = Gather(v, columns)\n"
WEIGHTED = "  a = Div(x, total)\n  long = Unsqueeze(a, last)\n  w = Mul(long, vj)\n"
AGGREGATED = '  y = ScatterElements<axis = 0, reduction = "add">(zeros3, index3, w)\n'
BY_SOURCES = AGGREGATED.replace("index3", "sources3")

AFTER = """
  longx = Unsqueeze(x, last)
  w = Mul(vj, longx)
  apart = ScatterElements<axis = 0, reduction = "add">(zeros3, index3, w)
  whole = Unsqueeze({by}, last)
  y = Div(apart, whole)
"""

# name, whether it is fused, the parts, epsilon, the floor of the maxima: the number at which they start
CASES = [
    ("geometric", True, LOWEST + MAXIMA, ELEMENTS, EPSILON % 1e-16, WEIGHTED + AGGREGATED, 1e-16, -3e38),
    ("exported", True, REPLACED + MAXIMA, ELEMENTS, NO_EPSILON, WEIGHTED + AGGREGATED, 0, -3.4028235e38),
    ("floored", True, FROM_ZERO + MAXIMA, ELEMENTS, EPSILON % 1e-16, WEIGHTED + AGGREGATED, 1e-16, 0),
    ("large", True, LOWEST + MAXIMA, ELEMENTS, EPSILON % 0.25, WEIGHTED + AGGREGATED, 0.25, -3e38),
    ("unshifted", True, PLAIN, ELEMENTS, NO_EPSILON, WEIGHTED + AGGREGATED, 0, None),
    ("tiny", True, PLAIN, ELEMENTS, EPSILON % 1e-16, WEIGHTED + AGGREGATED, 1e-16, 0),
    ("tuples", True, LOWEST + MAXIMA, BY_TUPLES, NO_EPSILON,
     WEIGHTED + '  y = ScatterND<reduction = "add">(zeros3, tuple, w)\n', 0, -3e38),
    ("divided", True, LOWEST + MAXIMA, ELEMENTS, NO_EPSILON,
     "  longx = Unsqueeze(x, last)\n  p = Mul(vj, longx)\n  longz = Unsqueeze(total, last)\n  w = Div(p, longz)\n" +
     AGGREGATED, 0, -3e38),
    ("after", True, LOWEST + MAXIMA, ELEMENTS, "  tiny = Constant<value = float {1e-9}>()\n  total = Add(sums, tiny)\n",
     AFTER.format(by="total"), 1e-9, -3e38),
    # Near misses: sums at other nodes, sums that may be small beside what is added, weights that are shown, NaN at nodes
    # without edges, sums over more nodes.
    ("longer", False, LOWEST + MAXIMA, LONGER, NO_EPSILON, WEIGHTED + AGGREGATED, 0, -3e38),
    ("sources", False, LOWEST + MAXIMA, ELEMENTS, NO_EPSILON, WEIGHTED + BY_SOURCES, 0, -3e38),
    ("crossed", False, LOWEST + MAXIMA, ELEMENTS.replace("{by}", "columns"), NO_EPSILON, WEIGHTED + AGGREGATED, 0, -3e38),
    ("added", False, PLAIN, ELEMENTS, EPSILON % 0.25, WEIGHTED + AGGREGATED, 0.25, 0),
    ("shown", False, LOWEST + MAXIMA, ELEMENTS, NO_EPSILON, WEIGHTED + AGGREGATED + "  weights = Identity(a)\n", 0, -3e38),
    ("replaced", False, LOWEST + MAXIMA, ELEMENTS, NO_EPSILON,
     WEIGHTED + AGGREGATED.replace(', reduction = "add"', ""), 0, -3e38),
    ("empty", False, LOWEST + MAXIMA, ELEMENTS, NO_EPSILON, AFTER.format(by="sums"), 0, -3e38),
    ("mean", False, LOWEST + MAXIMA, ELEMENTS + """
  units = ConstantOfShape<value = float[1] {1}>(count)
  empty = ConstantOfShape<value = float[1] {0}>(nodes)
  counts = ScatterElements<axis = 0, reduction = "add">(empty, rows, units)
  mine = Gather(counts, rows)
  each = Unsqueeze(mine, last)
""", "  total = Div(z, each)\n", WEIGHTED + AGGREGATED, 0, -3e38),
]
NODES = {"divided": "node 'w' (Div)", "after": "node 'y' (Div)"}
WIDTHS = [(1, 1), (1, 8), (3, 5), (8, 32), (17, 20)]


def text(case, heads, width, values=VALUES, inputs=""):
    name, _, maxima, sums, epsilon, end, _, _ = case
    shown = f", float[e,{heads}] weights" if name == "shown" else ""
    return f"""<ir_version: 9, opset_import: ["" : 18]>
g (float[n,{heads}] q, float[n,{heads}] k, float[n,{heads},{width}] v, int64[2,e] edges{inputs})
  => (float[n,{heads},{width}] y{shown}) {{
  first = Constant<value = int64 {{0}}>()
  second = Constant<value = int64 {{1}}>()
  last = Constant<value = int64[1] {{-1}}>()
  middle = Constant<value = int64[2] {{1, 2}}>()
  rows = Gather(edges, first)
  columns = Gather(edges, second)
  qi = Gather(q, rows)
  kj = Gather(k, columns)
  sum = Add(qi, kj)
  s = LeakyRelu<alpha = 0.2>(sum)
  shape = Shape(q)
  nodes = Shape<start = 0, end = 1>(q)
  shape3 = Shape(v)
  zeros = ConstantOfShape<value = float[1] {{0}}>(shape)
  zeros3 = ConstantOfShape<value = float[1] {{0}}>(shape3)
  count = Shape<start = 1, end = 2>(edges)
  row = Constant<value = int64[1] {{{heads}}}>()
  row3 = Constant<value = int64[2] {{{heads}, {width}}}>()
  all = Concat<axis = 0>(count, row)
  all3 = Concat<axis = 0>(count, row3)
  tuple = Unsqueeze(rows, last)
  column3 = Unsqueeze(rows, middle)
  source3 = Unsqueeze(columns, middle)
  index = Expand(tuple, all)
  index3 = Expand(column3, all3)
  sources3 = Expand(source3, all3)
{maxima}  x = Exp(c)
{sums.replace("{by}tuple", "tuple").replace("{by}", "rows")}{epsilon}{values}{end}}}"""


def reference(case, given, edges, n):
    name, _, _, _, _, _, epsilon, floor = case
    rows, columns = edges % n if n else edges
    q, k, v = (given[key].astype(np.float64) for key in "qkv")
    s = q[rows] + k[columns]
    s = np.where(s > 0, s, 0.2 * s)
    top = np.full(q.shape, -np.inf if floor is None else floor)
    if name in ("tiny", "added"):
        top[:] = 0
    else:
        np.maximum.at(top, rows, s)
    with np.errstate(invalid="ignore"):
        x = np.exp(s - top[rows])
    sums = np.zeros((n + 1, q.shape[1]))
    own = edges[0] if name == "longer" else rows
    np.add.at(sums, own, x)
    z = sums[columns if name == "crossed" else own]
    if name == "mean":
        z = z / np.bincount(rows, minlength=n)[rows][:, None]
    with np.errstate(all="ignore"):
        a = x / (z + epsilon)
        w = a[:, :, None] * (v[columns] + given.get("e", 0))
        y = np.zeros(v.shape)
        if name == "replaced":
            y[rows] = w  # the last one wins
        else:
            np.add.at(y, columns if name == "sources" else rows, w)
        if name == "empty":
            y[np.bincount(rows, minlength=n) == 0] = np.nan
    return y, a


def run(library, folder, given, outputs=("y",)):
    for key, value in given.items():
        np.save(f"{folder}/{key}.npy", value)
    return subprocess.run(["attn-run", library, *(f"--output={name}=@{folder}/{name}.npy" for name in outputs),
                           *(f"--input={key}=@{folder}/{key}.npy" for key in given)], capture_output=True, text=True)


def compile_case(folder, name, model):
    path, report = f"{folder}/{name}.onnx", f"{folder}/{name}.json"
    onnx.save(parser.parse_model(model) if isinstance(model, str) else model, path)
    library = path.replace(".onnx", ".so")
    subprocess.run(["attnc", path, "-o", library, f"--fusion-report={report}"], check=True)
    return library, json.load(open(report))


def inputs(rng, n, heads, width):
    given = {"q": 4 * rng.standard_normal((n, heads)) - 3, "k": 4 * rng.standard_normal((n, heads)),
             "v": rng.standard_normal((n, heads, width))}
    # A node that sees nothing: what is added to its sum decides between 0 and NaN.
    given["q"][3:4] = -np.inf
    return {key: value.astype(np.float32) for key, value in given.items()}


def check(case, verdicts):
    name, isFused = case[:2]
    if isFused:
        assert [(v["fused"], v["mask"], v["kernel"]) for v in verdicts] == [(True, "edges", True)], (name, verdicts)
        assert verdicts[0]["node"] == NODES.get(name, "node 'a' (Div)"), (name, verdicts)
    else:
        assert not any(v["fused"] for v in verdicts), (name, verdicts)
        if name == "empty":  # each quotient of sums has a verdict, too
            assert [v["node"] for v in verdicts] == ["node 'y' (Div)"] and "give NaN" in verdicts[0]["reason"], verdicts


def expect_refusals(library, folder, rng, case):
    """Edges to nodes that there are not: an error of the run, as the scatter or the gather gives it."""
    for n, edges in (5, [[0, 5], [4, 0]]), (5, [[0, 1], [4, 5]]), (5, [[-6], [0]]), (0, [[0], [0]]):
        done = run(library, folder, inputs(rng, n, 1, 8) | {"edges": np.array(edges, np.int64)})
        assert done.returncode == 3 and "index" in done.stderr, (case[0], n, edges, done)


def check_edge_values(folder, rng):
    """Values that edges have of their own, as TransformerConv adds them: they are stored, and summed all the same."""
    case = CASES[0]
    library, verdicts = compile_case(folder, "own", text(
        case, 4, 6, "  near = Gather(v, columns)\n  vj = Add(near, e)\n", ", float[e,4,6] e"))
    check(case, verdicts)
    for graph, n, edges in graphs():
        given = inputs(rng, n, 4, 6) | {"e": rng.standard_normal((edges.shape[1], 4, 6)).astype(np.float32)}
        want, _ = reference(case, given, edges, n)
        done = run(library, folder, given | {"edges": edges.astype(np.int64)})
        assert done.returncode == 0, (graph, done)
        np.testing.assert_allclose(np.load(f"{folder}/y.npy"), want, rtol=1e-4, atol=1e-5, err_msg=graph)


def check_shared_lists(folder, rng):
    """Two attentions over the same edges, of which the first is divided last."""
    case, second = next(case for case in CASES if case[0] == "after"), """
  mean = Gather(total, rows)
  a = Div(x, mean)
  long = Unsqueeze(a, last)
  vi = Neg(vj)
  wi = Mul(long, vi)
  turned = ScatterElements<axis = 0, reduction = "add">(zeros3, index3, wi)
"""
    first, quotient = case[5].split("  y = ")
    end = first + second + "  apart_y = " + quotient + "  y = Sub(apart_y, turned)\n"
    library, verdicts = compile_case(folder, "shared", text((*case[:5], end, *case[6:]), 3, 5))
    assert [v["fused"] for v in verdicts] == [True, True], verdicts
    for graph, n, edges in graphs():
        given = inputs(rng, n, 3, 5)
        done = run(library, folder, given | {"edges": edges.astype(np.int64)})
        assert done.returncode == 0, (graph, done)
        want = 2 * reference(case, given, edges, n)[0]
        np.testing.assert_allclose(np.load(f"{folder}/y.npy"), want, rtol=1e-4, atol=1e-5, err_msg=graph)


def check_joined(folder, rng):
    """Heads and columns that are one dimension of the sums, as PyTorch Geometric joins them; or columns before heads."""
    scattered = """
  flat = Flatten(%s)
  flatShape = Shape(flat)
  flatIndex = Expand(tuple, flatShape)
  empty = Flatten(zeros3)
  joined = ScatterElements<axis = 0, reduction = "add">(empty, flatIndex, flat)
"""
    turned = """
  turned = Transpose<perm = [0, 2, 1]>(w)
""" + scattered % "turned" + """
  few = Shape<start = 0, end = 1>(v)
  many = Constant<value = int64[2] {5, 3}>()
  backShape = Concat<axis = 0>(few, many)
  back = Reshape(joined, backShape)
  y = Transpose<perm = [0, 2, 1]>(back)
"""
    joined = scattered % "w" + "  y = Reshape(joined, shape3)\n"
    for name, isFused, end in (("joined", True, joined), ("turned", False, turned)):
        case = (name, isFused, *CASES[0][2:5], WEIGHTED + end, *CASES[0][6:])
        library, verdicts = compile_case(folder, name, text(case, 3, 5))
        check(case, verdicts)
        for graph, n, edges in graphs():
            given = inputs(rng, n, 3, 5)
            done = run(library, folder, given | {"edges": edges.astype(np.int64)})
            assert done.returncode == 0, (name, graph, done)
            want, _ = reference(case, given, edges, n)
            np.testing.assert_allclose(np.load(f"{folder}/y.npy"), want, rtol=1e-4, atol=1e-5, err_msg=f"{name}, {graph}")


def check_stored(folder, rng):
    """A graph of a known size: what sums start from is stored in the file. A sum that starts elsewhere is no softmax's."""
    case, n, heads, width = CASES[0], 40, 4, 8
    for name, start, isFused in (("stored", 0, True), ("started", 1, False)):
        model = parser.parse_model(text(case, heads, width).replace("[n,", f"[{n},"))
        nodes = [node for node in model.graph.node if node.output[0] not in ("zeros", "zeros3")]
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        starts = np.zeros((n, heads, width), np.float32)
        starts[-1, -1, -1] = start
        model.graph.initializer.extend([onnx.numpy_helper.from_array(np.zeros((n, heads), np.float32), "zeros"),
                                        onnx.numpy_helper.from_array(starts, "zeros3")])
        library, verdicts = compile_case(folder, name, model)
        check((name, isFused), verdicts)
        given, edges = inputs(rng, n, heads, width), rng.integers(0, n, (2, 130))
        done = run(library, folder, given | {"edges": edges})
        assert done.returncode == 0, (name, done)
        want = reference(case, given, edges, n)[0] + starts
        np.testing.assert_allclose(np.load(f"{folder}/y.npy"), want, rtol=1e-4, atol=1e-5, err_msg=name)


def check_joined_divisor(folder, rng):
    """Columns that the sums join, divided afterwards by a sum for each head; or for each column, as many as there are
    heads, which is no softmax."""
    for name, isFused, shape in (("by-heads", True, (5, 4, 1)), ("by-columns", False, (5, 1, 4))):
        library, verdicts = compile_case(folder, name, f"""<ir_version: 9, opset_import: ["" : 18]>
g (float[e,4] s, float[e,1,4,2,2] v, int64[e,1] to) => (float[5,4,4] y)
<float[5,4] sums = {{{",".join("0" * 20)}}}, float[5,4,4] zeros = {{{",".join("0" * 80)}}}, float tiny = {{1e-12}},
 int64[5] long = {{-1, 1, 4, 1, 1}}, int64[3] joined = {{-1, 4, 4}}, int64[3] shape = {{{shape[0]}, {shape[1]}, {shape[2]}}}> {{
  x = Exp(s)
  longx = Reshape(x, long)
  w = Mul(longx, v)
  rows = Reshape(w, joined)
  apart = ScatterND<reduction = "add">(zeros, to, rows)
  z = ScatterND<reduction = "add">(sums, to, x)
  total = Add(z, tiny)
  whole = Reshape(total, shape)
  y = Div(apart, whole)
}}""")
        assert [v["fused"] for v in verdicts] == [True] * isFused, (name, verdicts)
        to = rng.integers(0, 4, 30)  # none to the last node
        given = {"s": rng.standard_normal((30, 4)).astype(np.float32), "to": to[:, None],
                 "v": rng.standard_normal((30, 1, 4, 2, 2)).astype(np.float32)}
        done = run(library, folder, given)
        assert done.returncode == 0, (name, done)
        x, want, z = np.exp(given["s"].astype(np.float64)), np.zeros((5, 4, 4)), np.full((5, 4), 1e-12)
        np.add.at(want, to, x[:, :, None] * given["v"].reshape(30, 4, 4))
        np.add.at(z, to, x)
        np.testing.assert_allclose(np.load(f"{folder}/y.npy"), want / z.reshape(shape), rtol=1e-4, atol=1e-5, err_msg=name)


def check_exposure(folder):
    """Weights of edges are no output, which is said of the attention that is asked for."""
    for asked, refusal in ("all", "no fused attention can be shown"), ("a", "the attention 'a' cannot be shown"):
        done = subprocess.run(["attnc", f"{folder}/own.onnx", "-o", f"{folder}/own.so", f"--expose-attention={asked}"],
                              capture_output=True, text=True)
        reason = "node 'a' (Div): its weights are no output: it has one for each edge"
        assert done.returncode == 1 and refusal in done.stderr and reason in done.stderr, done


def main(folder):
    rng, agree = np.random.default_rng(3), 0
    for case in CASES:
        name = case[0]
        for heads, width in WIDTHS if name == "geometric" else WIDTHS[1:3]:
            library, verdicts = compile_case(folder, f"{name}{heads}x{width}", text(case, heads, width))
            check(case, verdicts)
            outputs = ("y", "weights") if name == "shown" else ("y",)
            for graph, n, edges in graphs():
                given = inputs(rng, n, heads, width)
                want = reference(case, given, edges, n)
                done = run(library, folder, given | {"edges": edges.astype(np.int64)}, outputs)
                assert done.returncode == 0, (name, graph, done)
                for output, expected in zip(outputs, want):
                    np.testing.assert_allclose(np.load(f"{folder}/{output}.npy"), expected, rtol=1e-4, atol=1e-5,
                                               err_msg=f"{name}, {heads} heads of {width}, {graph}")
                agree += 1
            if name == "geometric" and (heads, width) == (1, 8):
                expect_refusals(library, folder, rng, case)
    check_edge_values(folder, rng)
    check_shared_lists(folder, rng)
    check_joined(folder, rng)
    check_joined_divisor(folder, rng)
    check_stored(folder, rng)
    check_exposure(folder)
    print(agree, "runs agree")


if __name__ == "__main__":
    main(*sys.argv[1:])
