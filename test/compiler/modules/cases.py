"""Modules, what they compute in NumPy (float64 where it matters), and sizes to try.

A case is a function that returns (text, reference, sizes): `reference` maps input
arrays to the list of expected outputs, `sizes` is a list of {dimension: size}."""
import math

import numpy as np
from text import Module, tensor

CASES = {}


def case(make):
    CASES[make.__name__] = make
    return make


ROWS = [{"n": 1}, {"n": 5}, {"n": 16}, {"n": 173}, {"n": 0}]
erf = np.vectorize(math.erf, otypes=[np.float64])
f8 = lambda x: x.astype(np.float64)


@case
def elementwise_broadcast():
    m = Module({"x": (("n", 24), "f32"), "row": ((24,), "f32"), "col": (("n",), "f32")})
    y = m.generic("i, j", [("%x", "i, j"), ("%row", "j"), ("%col", "i")], (m.empty(("n", 24)), "i, j"), "pp", """
        %s = arith.addf %a0, %a1 : f32
        %t = arith.mulf %s, %a2 : f32
        %u = math.tanh %t : f32
        %u""")
    return m.text([y]), lambda x, row, col: [np.tanh((f8(x) + row) * col[:, None])], ROWS


@case
def math_functions():
    m = Module({"x": (("n",), "f32")})
    outs = []
    for name in ("exp", "erf", "tanh", "sin", "cos", "log1p", "expm1", "atan", "sinh", "cosh", "asinh", "sqrt", "rsqrt",
                 "floor", "ceil", "round", "roundeven", "absf", "exp2", "log", "log2", "cbrt", "tan"):
        body = f"%p = math.absf %a0 : f32\n%s = math.{name} {'%p' if name in ('log1p', 'sqrt', 'rsqrt', 'log', 'log2') else '%a0'} : f32\n%s"
        outs.append(m.generic("i", [("%x", "i")], (m.empty(("n",)), "i"), "p", body))

    def reference(x):
        x, p = f8(x), np.abs(f8(x))
        return [np.exp(x), erf(x), np.tanh(x), np.sin(x), np.cos(x), np.log1p(p), np.expm1(x), np.arctan(x), np.sinh(x),
                np.cosh(x), np.arcsinh(x), np.sqrt(p), 1 / np.sqrt(p), np.floor(x), np.ceil(x),
                np.trunc(x + np.copysign(0.5, x)), np.rint(x), p, np.exp2(x), np.log(p), np.log2(p), np.cbrt(x), np.tan(x)]
    return m.text(outs), reference, ROWS


@case
def double_precision():
    m = Module({"x": (("n",), "f64")})
    outs = [m.generic("i", [("%x", "i")], (m.empty(("n",), "f64"), "i"), "p", f"%s = math.{f} %a0 : f64\n%s")
            for f in ("exp", "erf", "tanh")]
    return m.text(outs), lambda x: [np.exp(x), erf(x), np.tanh(x)], ROWS


@case
def half_precision():
    m = Module({"x": (("n", 8), "f16")})
    y = m.generic("i, j", [("%x", "i, j")], (m.empty(("n", 8), "f16"), "i, j"), "pp", """
        %e = math.exp %a0 : f16
        %e""")
    s = m.generic("i, j", [("%x", "i, j")], (m.fill(("n",), 0.0), "i"), "pr", """
        %w = arith.extf %a0 : f16 to f32
        %s = arith.addf %o0, %w : f32
        %s""")
    return m.text([y, s]), lambda x: [np.exp(f8(x)).astype(np.float16), f8(x).sum(1)], ROWS


@case
def booleans_and_integers():
    m = Module({"x": (("n", 7), "i64"), "m": (("n", 7), "i8")}, bools=("m", "out0"))
    lt = m.generic("i, j", [("%x", "i, j"), ("%m", "i, j")], (m.empty(("n", 7), "i8"), "i, j"), "pp", """
        %zero = arith.constant 0 : i64
        %b = arith.cmpi slt, %a0, %zero : i64
        %c = arith.extui %b : i1 to i8
        %d = arith.xori %c, %a1 : i8
        %d""")
    div = m.generic("i, j", [("%x", "i, j")], (m.empty(("n", 7), "i64"), "i, j"), "pp", """
        %three = arith.constant 3 : i64
        %one = arith.constant 1 : i64
        %p = math.absi %a0 : i64
        %d = arith.addi %p, %one : i64
        %q = arith.divsi %three, %d : i64
        %r = arith.remsi %a0, %d : i64
        %s = arith.addi %q, %r : i64
        %s""")
    f = m.generic("i, j", [("%x", "i, j"), ("%m", "i, j")], (m.empty(("n", 7)), "i, j"), "pp", """
        %f = arith.sitofp %a0 : i64 to f32
        %b = arith.trunci %a1 : i8 to i1
        %zero = arith.constant 0.0 : f32
        %s = arith.select %b, %f, %zero : f32
        %s""")

    def reference(x, mask):
        d = np.abs(x) + 1
        return [(x < 0) ^ mask, 3 // d + np.fmod(x, d), np.where(mask, x, 0).astype(np.float32)]
    return m.text([lt, div, f]), reference, ROWS


@case
def transposes():
    m = Module({"x": (("a", "b", "c"), "f32")})
    outs = []
    for order in ("a, c, b", "c, b, a", "b, a, c", "b, c, a"):
        shape = tuple(order.split(", "))
        outs.append(m.generic("a, b, c", [("%x", "a, b, c")], (m.empty(shape), order), "ppp", "%a0"))
    return (m.text(outs), lambda x: [x.transpose(0, 2, 1), x.transpose(2, 1, 0), x.transpose(1, 0, 2), x.transpose(1, 2, 0)],
            [{"a": 3, "b": 17, "c": 5}, {"a": 1, "b": 1, "c": 40}, {"a": 33, "b": 2, "c": 16}, {"a": 64, "b": 70, "c": 96}])


@case
def reductions():
    m = Module({"x": (("a", "b", "c"), "f32")})
    outs = []
    for kept in ("a, b", "b, c", "a", "c", "b", ""):
        dims = tuple(kept.split(", ")) if kept else ()
        kinds = "".join("p" if d in dims else "r" for d in "abc")
        outs.append(m.generic("a, b, c", [("%x", "a, b, c")], (m.fill(dims, 0.0), kept), kinds,
                              "%s = arith.addf %o0, %a0 : f32\n%s"))
    low = m.fill(("a", "b"), "0xFF800000")
    outs.append(m.generic("a, b, c", [("%x", "a, b, c")], (low, "a, b"), "ppr", "%s = arith.maximumf %a0, %o0 : f32\n%s"))

    def reference(x):
        x = f8(x)
        return [x.sum(2), x.sum(0), x.sum((1, 2)), x.sum((0, 1)), x.sum((0, 2)), x.sum(),
                x.max(2, initial=-np.inf)]
    return (m.text(outs), reference, [{"a": 3, "b": 17, "c": 5}, {"a": 1, "b": 64, "c": 400}, {"a": 2, "b": 3, "c": 0},
                                      {"a": 33, "b": 2, "c": 16}])


@case
def argmax_of_rows():
    m = Module({"x": (("n", "k"), "f32")})
    best, where = m.fill(("n",), "0xFF800000"), m.fill(("n",), 0, "i64")
    _, at = m.generic("i, j", [("%x", "i, j")], [(best, "i"), (where, "i")], "pr", """
        %j = linalg.index 1 : index
        %k = arith.index_cast %j : index to i64
        %gt = arith.cmpf ogt, %a0, %o0 : f32
        %v = arith.select %gt, %a0, %o0 : f32
        %w = arith.select %gt, %k, %o1 : i64
        %v, %w""")
    return m.text([at]), lambda x: [x.argmax(1)], [{"n": 4, "k": 33}, {"n": 1, "k": 1}, {"n": 130, "k": 16}]


@case
def contractions():
    m = Module({"a": (("b", "i", "k"), "f32"), "w": (("b", "j", "k"), "f32"), "v": (("b", "k", "j"), "f32")})
    qk = m.generic("b, i, j, k", [("%a", "b, i, k"), ("%w", "b, j, k")], (m.fill(("b", "i", "j"), 0.0), "b, i, j"), "pppr", """
        %p = arith.mulf %a0, %a1 : f32
        %s = arith.addf %o0, %p : f32
        %s""")
    pv = m.generic("b, i, j, k", [("%a", "b, i, k"), ("%v", "b, k, j")], (m.fill(("b", "i", "j"), 0.0), "b, i, j"), "pppr", """
        %p = arith.mulf %a0, %a1 : f32
        %s = arith.addf %o0, %p : f32
        %s""")
    reference = lambda a, w, v: [np.einsum("bik,bjk->bij", f8(a), w), np.einsum("bik,bkj->bij", f8(a), v)]
    return (m.text([qk, pv]), reference,
            [{"b": 2, "i": 7, "j": 19, "k": 32}, {"b": 1, "i": 1, "j": 64, "k": 5}, {"b": 3, "i": 64, "j": 64, "k": 64}])


@case
def gather_rows():
    m = Module({"table": ((100, 24), "f32"), "ids": (("b", "s"), "i64")})
    y = m.generic("b, s, d", [("%ids", "b, s")], (m.empty(("b", "s", 24)), "b, s, d"), "ppp", """
        %i = arith.index_cast %a0 : i64 to index
        %n = arith.constant 100 : index
        %k = attn.check_index %i, %n, "node 'emb' (Gather)" : index
        %d = linalg.index 2 : index
        %v = tensor.extract %table[%k, %d] : tensor<100x24xf32>
        %v""")
    # Along the last dimension: each lane looks elsewhere.
    z = m.generic("b, s", [("%ids", "b, s")], (m.empty(("b", "s")), "b, s"), "pp", """
        %i = arith.index_cast %a0 : i64 to index
        %c = arith.constant 3 : index
        %v = tensor.extract %table[%i, %c] : tensor<100x24xf32>
        %v""")
    return m.text([y, z]), lambda table, ids: [table[ids], table[ids, 3]], [{"b": 2, "s": 33}, {"b": 1, "s": 1}, {"b": 0, "s": 3}]


@case
def shifted_rows():
    m = Module({"x": (("n", 40), "f32")})
    y = m.generic("i, j", [], (m.empty(("n", 20)), "i, j"), "pp", """
        %i = linalg.index 0 : index
        %j = linalg.index 1 : index
        %five = arith.constant 5 : index
        %two = arith.constant 2 : index
        %k = arith.addi %j, %five : index
        %k2 = arith.muli %j, %two : index
        %u = tensor.extract %x[%i, %k] : tensor<?x40xf32>
        %v = tensor.extract %x[%i, %k2] : tensor<?x40xf32>
        %s = arith.addf %u, %v : f32
        %s""")
    return m.text([y]), lambda x: [x[:, 5:25] + x[:, 0:40:2]], ROWS


@case
def passed_through():
    m = Module({"x": (("n", 3), "f32")})
    c = m.value("arith.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>", ((3,), "f32"))
    y = m.generic("i, j", [("%x", "i, j"), (c, "j")], (m.empty(("n", 3)), "i, j"), "pp", "%s = arith.addf %a0, %a1 : f32\n%s")
    return (m.text(["%x", c, y, y, "%x"]),
            lambda x: [x, np.float32([1, 2, 3]), x + np.float32([1, 2, 3]), x + np.float32([1, 2, 3]), x], ROWS)


@case
def slices_and_concatenation():
    m = Module({"x": (("n", 10), "f32"), "y": (("n", 6), "f32")})
    n = m.sizes["n"]
    s = m.value(f"tensor.extract_slice %x[0, 2] [{n}, 6] [1, 1] : tensor<?x10xf32> to tensor<?x6xf32>", (("n", 6), "f32"))
    t = m.value(f"tensor.concat dim(1) {s}, %y : (tensor<?x6xf32>, tensor<?x6xf32>) -> tensor<?x12xf32>", (("n", 12), "f32"))
    u = m.generic("i, j", [(s, "i, j")], (m.empty(("n", 6)), "i, j"), "pp", "%s = arith.negf %a0 : f32\n%s")
    e = m.value(f"tensor.expand_shape {u} [[0], [1, 2]] output_shape [{n}, 2, 3] : tensor<?x6xf32> into tensor<?x2x3xf32>",
                (("n", 2, 3), "f32"))
    f = m.value(f"tensor.collapse_shape %x [[0, 1]] : tensor<?x10xf32> into tensor<?xf32>")
    m.sizes["n10"] = m.value(f"arith.muli {n}, {m.value('arith.constant 10 : index')} : index")
    m.types[f] = (("n10",), "f32")
    return (m.text([t, e, f, s]), lambda x, y: [np.concatenate([x[:, 2:8], y], 1), -x[:, 2:8].reshape(-1, 2, 3), x.reshape(-1), x[:, 2:8]],
            ROWS)


@case
def softmax_chain():
    m = Module({"x": (("b", "h", "i", "j"), "f32"), "mask": (("b", "j"), "f32")})
    row = ("b", "h", "i")
    z = m.generic("b, h, i, j", [("%x", "b, h, i, j"), ("%mask", "b, j")], (m.empty(("b", "h", "i", "j")), "b, h, i, j"), "pppp",
                  "%s = arith.addf %a0, %a1 : f32\n%s")
    top = m.generic("b, h, i, j", [(z, "b, h, i, j")], (m.fill(row, "0xFF800000"), "b, h, i"), "pppr",
                    "%s = arith.maximumf %a0, %o0 : f32\n%s")
    e = m.generic("b, h, i, j", [(z, "b, h, i, j"), (top, "b, h, i")], (m.empty(("b", "h", "i", "j")), "b, h, i, j"), "pppp",
                  "%d = arith.subf %a0, %a1 : f32\n%s = math.exp %d : f32\n%s")
    total = m.generic("b, h, i, j", [(e, "b, h, i, j")], (m.fill(row, 0.0), "b, h, i"), "pppr", "%s = arith.addf %a0, %o0 : f32\n%s")
    p = m.generic("b, h, i, j", [(e, "b, h, i, j"), (total, "b, h, i")], (m.empty(("b", "h", "i", "j")), "b, h, i, j"), "pppp",
                  "%s = arith.divf %a0, %a1 : f32\n%s")

    def reference(x, mask):
        z = f8(x) + mask[:, None, None]
        e = np.exp(z - z.max(-1, keepdims=True))
        return [e / e.sum(-1, keepdims=True)]
    return m.text([p]), reference, [{"b": 2, "h": 3, "i": 5, "j": 37}, {"b": 1, "h": 12, "i": 128, "j": 128}, {"b": 1, "h": 1, "i": 1, "j": 1}]


@case
def normalisation_over_any_axis():
    m = Module({"x": (("a", "b", 6), "f32"), "s0": (("a", "b", 6), "f32"), "s1": (("b", 6), "f32"), "s2": ((6,), "f32")})
    x = tensor(("a", "b", 6))
    outs = [m.value(f"attn.layer_norm %x, %s{axis} axis {axis} epsilon 1.0e-5 : {x}, {tensor(('a', 'b', 6)[axis:])}",
                    (("a", "b", 6), "f32")) for axis in range(3)]
    outs += [m.value(f"attn.softmax %x dim {dim} : {x}", (("a", "b", 6), "f32")) for dim in range(3)]

    def reference(x, *scales):
        x, results = f8(x), []
        for axis, scale in enumerate(scales):
            over = tuple(range(axis, 3))
            with np.errstate(all="ignore"):
                results.append((x - x.mean(over, keepdims=True)) / np.sqrt(x.var(over, keepdims=True) + 1e-5) * scale)
        for dim in range(3):
            e = np.exp(x - x.max(dim, keepdims=True)) if x.size else x
            results.append(e / e.sum(dim, keepdims=True))
        return results
    return m.text(outs), reference, [{"a": 3, "b": 4}, {"a": 1, "b": 1}, {"a": 17, "b": 16}, {"a": 2, "b": 0}]


@case
def fills_shared_by_writers():
    m = Module({"x": (("n", 9), "f32")})
    zero = m.fill(("n",), 0.0)
    a = m.generic("i, j", [("%x", "i, j")], (zero, "i"), "pr", "%s = arith.addf %a0, %o0 : f32\n%s")
    b = m.generic("i, j", [("%x", "i, j")], (zero, "i"), "pr", "%q = arith.mulf %a0, %a0 : f32\n%s = arith.addf %q, %o0 : f32\n%s")
    return m.text([a, b]), lambda x: [f8(x).sum(1), (f8(x) ** 2).sum(1)], ROWS


@case
def constant_output():
    m = Module({"x": ((4,), "f32")})
    return m.text([m.fill((2, 3), 1.5)]), lambda x: [np.full((2, 3), 1.5, np.float32)], [{}]


@case
def data_dependent_size():
    m = Module({"x": (("n",), "f32"), "k": ((1,), "i64")})
    c0 = m.value("arith.constant 0 : index")
    k = m.value(f"tensor.extract %k[{c0}] : tensor<1xi64>")
    m.sizes["k"] = m.value(f"arith.index_cast {k} : i64 to index")
    total = m.generic("i", [("%x", "i")], (m.fill((), 0.0), ""), "r", "%s = arith.addf %a0, %o0 : f32\n%s")
    # A size that a computed tensor decides: no place in the first workspace.
    t = m.value(f"tensor.extract {total}[] : tensor<f32>")
    i = m.value(f"arith.fptosi {t} : f32 to i64")
    two = m.value("arith.constant 2 : i64")
    m.sizes["t"] = m.value(f"arith.index_cast {m.value(f'arith.remui {i}, {two} : i64')} : i64 to index")
    y = m.generic("i, j", [("%x", "i")], (m.empty(("n", "t")), "i, j"), "pp", "%a0")
    z = m.generic("i, j", [(y, "i, j")], (m.fill(("n",), 0.0), "i"), "pr", "%s = arith.addf %a0, %o0 : f32\n%s")
    w = m.generic("i, j", [("%x", "j")], (m.empty(("k", "n")), "i, j"), "pp", "%a0")
    reference = lambda x, k: [np.full_like(x, 0) + x * (int(np.float32(f8(x).sum())) % 2), np.tile(x, (int(k[0]), 1))]
    return m.text([z, w]), reference, [{"n": 5, "inputs": lambda r: [np.arange(5, dtype=np.float32), np.array([3])]},
                                       {"n": 6, "inputs": lambda r: [np.arange(6, dtype=np.float32), np.array([0])]}]


def softmax64(x):
    top = np.max(x, axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp(x - np.where(np.isinf(top), 0, top))
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-300)


@case
def attention_results():
    """A masked attention with its log-sum-exp, and reductions of its weights."""
    m = Module({"q": ((2, 3, "i", 8), "f32"), "k": ((2, 3, "j", 8), "f32"), "v": ((2, 3, "j", 5), "f32")})
    maps = ["b, h, i, d", "b, h, j, d", "b, h, j, e", "b, h, i, e", "b, h, i", "b, i, j", "b, h, i", "b, h, i", "b, h, j", "b, h, i"]
    maps = ", ".join(f"affine_map<(b, h, i, j, d, e) -> ({x})>" for x in maps)
    out = [((2, 3, "i", 5), "f32"), ((2, 3, "i"), "f32"), ((2, "i", "j"), "f32"), ((2, 3, "i"), "f32"), ((2, 3, "i"), "i64"),
           ((2, 3, "j"), "f32"), ((2, 3, "i", 2), "i64")]
    extras = ["lse", "weights, mean", "weights, entropy", "weights, argmax", "weights, sum", "weights, topk_indices"]
    extras = ", ".join(f"#attn.extra<{x}>" for x in extras)
    name = m.value(f"""attn.attention masked_rows zero mask [#attn.causal<1>] maps [{maps}]
        ins(%q, %k, %v : {", ".join(tensor(*m.types["%" + x]) for x in "qkv")}) -> {tensor(*out[0])}
        extras [{extras}] : {", ".join(tensor(*x) for x in out[1:])} score {{
        ^bb0(%s: f32):
          %c = arith.constant 0.5 : f32
          %y = arith.mulf %s, %c : f32
          attn.yield %y : f32
        }}""")
    m.lines[-1] = m.lines[-1].replace(f"{name} =", f"{name}:{len(out)} =", 1)
    results = [f"{name}#{n}" for n in range(len(out))]
    m.types.update(zip(results, out))

    def reference(q, k, v):
        s = 0.5 * np.einsum("bhid,bhjd->bhij", f8(q), f8(k))
        i, j = np.indices(s.shape[2:])
        s = np.where(j <= i + 1, s, -np.inf)
        w = softmax64(s)
        top = np.max(s, -1)
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.sum(np.where(w > 0, w * np.log(w), 0), -1)
        order = np.argsort(-w, axis=-1, kind="stable")
        return [w @ f8(v), top + np.log(np.exp(s - top[..., None]).sum(-1)), w.mean(1), entropy,
                order[..., 0], w.sum(2), order[..., :2]]
    return m.text(results), reference, [{"i": 3, "j": 5}, {"i": 40, "j": 45}]
