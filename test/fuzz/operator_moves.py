"""Rows of operator_graphs.OPERATORS for shapes, indices, products and pooling."""
import math

import numpy as np

from operator_graphs import ints, operator

#===----------------------------------------------------------------------===#
# Shapes
#===----------------------------------------------------------------------===#


@operator("Shape", "Size")
def shape(d):
    x = d.array(d.shape(0, 5), d.dtype())
    attributes = {}
    if d.op == "Shape" and d.opset >= 15:
        # Before the first dimension the reference counts from the end once more.
        attributes = {k: d.r.randint(-x.ndim, 6) for k in ("start", "end") if d.maybe()}
    return attributes, [x]


def regrouped(d, total):
    """A shape of `total` elements."""
    factors = []
    while total > 1 and len(factors) < 5:
        divisor = d.r.choice([k for k in range(2, total + 1) if total % k == 0])
        factors.append(divisor)
        total //= divisor
    for _ in range(d.r.randint(0, 2)):
        factors.insert(d.r.randint(0, len(factors)), 1)
    return factors if total == 1 else factors + [total]


@operator("Reshape")
def reshape(d):
    x = d.array(d.shape(0, 4), d.dtype())
    if x.size:
        target = regrouped(d, x.size)
        if target and d.maybe():
            target[d.r.randrange(len(target))] = -1
        if d.maybe(0.3) and x.ndim and target and target[0] == x.shape[0]:
            target[0] = 0
        return {}, [x, ints(target)], 1, [1]
    if d.opset >= 14 and d.maybe():
        return {"allowzero": 1}, [x, ints([0, d.size(), d.size()])], 1, [1]
    return {}, [x, ints([0] * x.ndim)], 1, [1]


@operator("Transpose")
def transpose(d):
    x = d.array(d.shape(0, 5), d.dtype())
    return {"perm": d.r.sample(range(x.ndim), x.ndim)} if d.maybe(0.8) else {}, [x]


@operator("Squeeze", "Unsqueeze")
def squeeze(d):
    x = d.array(d.shape(0, 3), d.dtype())
    rank = x.ndim + d.r.randint(1, 2)
    axes = d.r.sample(range(rank), rank - x.ndim)
    if d.op == "Squeeze":
        x = np.expand_dims(x, tuple(sorted(axes)))
    # Unsqueeze-11 of the reference inserts one axis after the other, each counted in what it has so far.
    axes = sorted(axes) if d.op == "Unsqueeze" and d.opset < 13 else axes
    if d.opset >= (11 if d.op == "Squeeze" else 13):
        axes = [a - rank if d.negative() else a for a in axes]
    if d.opset < 13:
        return {"axes": axes}, [x]
    return {}, [x, ints(axes)], 1, [1]


@operator("Flatten")
def flatten(d):
    x = d.array(d.shape(0, 4), d.dtype())
    return {"axis": d.r.randint(-x.ndim if d.opset >= 11 else 0, x.ndim)}, [x]


@operator("Expand")
def expand(d):
    target = d.shape(0, 4)
    x = d.array(d.broadcast(target), d.dtype())
    asked = [1 if x.ndim == len(target) and d.maybe(0.2) else s for s in target]
    return {}, [x, ints(asked)], 1, [1]


@operator("ConstantOfShape", since=9)
def constant_of_shape(d):
    import onnx
    value = d.array([1], d.r.choice(["float32", "int64", "bool", "float64", "int32"]))
    return {"value": onnx.numpy_helper.from_array(value)} if d.maybe(0.8) else {}, [ints(d.shape())], 1, [0]


@operator("Range", since=11)
def arange(d):
    dtype = d.dtype(among=["float32", "float64", "int32", "int64"])
    delta = d.r.choice([-3, -1, 1, 2])
    start = d.r.randint(-5, 5)
    return {}, [np.asarray(v, dtype) for v in (start, start + delta * d.r.randint(-2, 13), delta)], 1, [0, 1, 2]


#===----------------------------------------------------------------------===#
# Pieces
#===----------------------------------------------------------------------===#


@operator("Concat")
def concat(d):
    shape, dtype = d.shape(1, 4), d.dtype()
    axis = d.r.randrange(len(shape))
    inputs = []
    for _ in range(d.r.randint(1, 4)):
        shape[axis] = d.size()
        inputs.append(d.array(shape, dtype))
    return {"axis": axis - len(shape) if d.opset >= 11 and d.negative() else axis}, inputs


@operator("Split")
def split(d):
    parts, shape = [d.size() for _ in range(d.r.randint(1, 4))], d.shape(1, 4, 0, 200)
    axis = d.r.randrange(len(shape))
    even = d.maybe(0.4)
    if even:
        parts = [d.size(1)] * len(parts)
    shape[axis] = sum(parts)
    attributes = {"axis": axis - len(shape) if d.opset >= 11 and d.negative() else axis}
    x = d.array(shape, d.dtype())
    if even and d.opset < 18:
        return attributes, [x], len(parts)
    if even:
        return {**attributes, "num_outputs": len(parts)}, [x], len(parts)
    if d.opset < 13:
        return {**attributes, "split": parts}, [x], len(parts)
    return attributes, [x, ints(parts)], len(parts), [1]


@operator("Slice")
def slices(d):
    x = d.array(d.shape(1, 4), d.dtype())
    axes = [a % x.ndim for a in d.axes(x.ndim, 1)]
    starts, ends, steps = [], [], []
    for a in axes:
        n = x.shape[a]
        starts.append(d.r.choice([0, d.r.randint(-n - 2, n + 2), d.r.randint(0, max(n - 1, 0))]))
        ends.append(d.r.choice([n, d.r.randint(-n - 2, n + 2), 2**31 - 1, -2**31]))
        steps.append(d.r.choice([1, 1, 2, -1, -3]))
    axes = [a - x.ndim if d.opset >= 10 and d.negative() else a for a in axes]
    if d.opset < 10:
        return {"starts": starts, "ends": ends, "axes": axes}, [x]
    inputs = [x, ints(starts), ints(ends), ints(axes)]
    if d.maybe():
        inputs.append(ints(steps))
    return {}, inputs, 1, [1, 2, 3, 4]


@operator("Tile")
def tile(d):
    x = d.array(d.shape(1, 4, 0, 200), d.dtype())
    return {}, [x, ints([d.r.choice([0, 1, 1, 2, 3]) for _ in x.shape])], 1, [1]


@operator("Pad", since=11)
def pad(d):
    x = d.array(d.shape(1, 4, 2, 400), d.dtype(among=["float32", "float64", "int32", "int64"]))
    mode = d.r.choice(["constant", "edge", "reflect"])
    low = -1 if mode == "constant" else 0
    pads = [d.r.randint(low, 1 if mode == "reflect" else 3) for _ in range(2 * x.ndim)]
    inputs = [x, ints(pads)]
    if mode == "constant" and d.maybe():
        inputs.append(d.array([], x.dtype))
    return {"mode": mode}, inputs, 1, [1, 2]


@operator("Trilu", since=14)
def trilu(d):
    x = d.array(d.shape(2, 4), d.dtype())
    return {"upper": d.r.randint(0, 1)}, [x, *([np.asarray(d.r.randint(-5, 5), np.int64)] if d.maybe(0.7) else [])], 1, [1]


@operator("DepthToSpace", "SpaceToDepth")
def depth_space(d):
    block, n, c, h, w = d.r.choice([1, 2, 3]), d.size(), d.r.choice([1, 2, 3]), d.r.choice([1, 2, 3]), d.r.choice([1, 5])
    dtype = d.dtype(among=["float32", "float64", "int32", "uint8"])
    if d.op == "SpaceToDepth":
        return {"blocksize": block}, [d.array([n, c, h * block, w * block], dtype)]
    attributes = {"mode": d.r.choice(["DCR", "CRD"])} if d.opset >= 11 else {}
    return {"blocksize": block, **attributes}, [d.array([n, c * block * block, h, w], dtype)]


@operator("EyeLike", since=9)
def eye_like(d):
    return {"k": d.r.randint(-3, 3)}, [d.array([d.size(1), d.size(1)], d.dtype(among=["float32", "int64", "float64"]))]


#===----------------------------------------------------------------------===#
# Indices
#===----------------------------------------------------------------------===#


def indices(d, shape, size):
    least = -size if d.opset >= 11 else 0
    return d.data.integers(least, size, shape).astype(d.r.choice(["int32", "int64"]))


@operator("Gather")
def gather(d):
    x = d.array(d.shape(1, 4, 1, 500), d.dtype())
    axis = d.axis(x.ndim)
    return {"axis": axis}, [x, indices(d, d.shape(0, 2, 0, 20), x.shape[axis])], 1, [0, 1]


@operator("GatherElements", since=11)
def gather_elements(d):
    x = d.array(d.shape(1, 4, 1, 500), d.dtype())
    axis, shape = d.axis(x.ndim), [d.r.randint(1, s) for s in x.shape]
    shape[axis] = d.size(1)
    return {"axis": axis}, [x, indices(d, shape, x.shape[axis])], 1, [1]


def tuples(d, x, batch=0):
    depth = d.r.randint(1, x.ndim - batch)
    lead = [*x.shape[:batch], *d.shape(0 if batch else 1, 2, 1, 20)]
    return np.stack([d.data.integers(-s, s, lead) for s in x.shape[batch:batch + depth]], -1).astype(np.int64)


@operator("GatherND", since=12)
def gather_nd(d):
    x = d.array(d.shape(2, 4, 1, 500), d.dtype())
    batch = d.r.randint(0, x.ndim - 1)
    return {"batch_dims": batch}, [x, tuples(d, x, batch)], 1, [1]


@operator("ScatterElements", since=11)
def scatter_elements(d):
    x = d.array(d.shape(1, 3, 1, 300), d.dtype(among=["float32", "float64", "int32", "int64"]))
    axis, shape = d.axis(x.ndim), [d.r.randint(1, s) for s in x.shape]
    at = axis % x.ndim
    places = np.argsort(d.data.random([*shape[:at], x.shape[at], *shape[at + 1:]]), at)  # no place twice
    places = np.take(places, range(shape[at]), at).astype(np.int64)
    attributes = {"axis": axis}
    if d.opset >= 18:
        attributes["reduction"] = d.r.choice(["none", "add", "mul", "max", "min"])
    return attributes, [x, places, d.array(shape, x.dtype)], 1, [1]


@operator("ScatterND", since=11)
def scatter_nd(d):
    x = d.array(d.shape(1, 3, 1, 300), d.dtype(among=["float32", "float64", "int32", "int64"]))
    reduction = d.r.choice(["add", "mul", "max", "min"]) if d.opset >= 18 and d.maybe() else "none"
    places = tuples(d, x) % ints(x.shape)[:1]
    places = np.stack([places[..., k] % x.shape[k] for k in range(places.shape[-1])], -1)
    if reduction == "none":  # no place twice
        flat = np.unique(places.reshape(-1, places.shape[-1]), axis=0)
        places = d.data.permutation(flat)
    updates = d.array([*places.shape[:-1], *x.shape[places.shape[-1]:]], x.dtype)
    return {"reduction": reduction} if d.opset >= 16 else {}, [x, places, updates], 1, [1]


@operator("OneHot", since=11)
def one_hot(d):
    depth, places = d.r.randint(1, 7), d.shape(0, 3, 0, 50)
    # Beyond the depth (a row of off) the reference wraps; ONNX does not.
    at = d.data.integers(-depth, depth, places).astype(d.r.choice(["int64", "int32"]))
    dtype = d.r.choice(["float32", "int64", "float64"])
    return {"axis": d.r.randint(-len(places) - 1, len(places))}, [at, np.asarray(depth, np.int64), d.array([2], dtype)], 1, [1, 2]


@operator("NonZero", since=9)
def nonzero(d):
    return {}, [d.array(d.shape(1, 4), d.dtype(among=["float32", "int64", "bool", "int32"]), -1, 1)]


@operator("TopK", since=11)
def top_k(d):
    shape = d.shape(1, 4, 1, 500)
    axis = d.r.randrange(len(shape))
    x = d.data.permutation(math.prod(shape)).reshape(shape).astype(d.dtype(among=["float32", "float64", "int64"]))
    k = ints([d.r.randint(0 if shape[axis] else 0, shape[axis])])
    return {"axis": axis - len(shape) if d.negative() else axis, "largest": d.r.randint(0, 1)}, [x, k], 2, [1]


@operator("ReverseSequence", since=10)
def reverse_sequence(d):
    x = d.array(d.shape(2, 4, 1), d.dtype(among=["float32", "int64"]))
    batch = d.r.randint(0, 1)
    lengths = d.data.integers(1, x.shape[1 - batch] + 1, [x.shape[batch]]).astype(np.int64)
    return {"batch_axis": batch, "time_axis": 1 - batch}, [x, lengths]


@operator("Compress", since=9)
def compress(d):
    x = d.array(d.shape(1, 4, 1), d.dtype())
    axis = d.axis(x.ndim) if d.opset >= 11 else d.r.randrange(x.ndim)
    flat = d.maybe(0.3)
    n = x.size if flat else x.shape[axis]
    return {} if flat else {"axis": axis}, [x, d.array([d.r.randint(1, n)], "bool")], 1, [1]


@operator("Unique", since=11)
def unique(d):
    x = d.array(d.shape(1, 3, 1, 60), d.dtype(among=["float32", "int64"]), 0, 3)
    x = np.round(x)
    attributes = {"sorted": 1}
    if d.maybe():
        attributes["axis"] = d.axis(x.ndim)
    return attributes, [x], 4


#===----------------------------------------------------------------------===#
# Products and windows
#===----------------------------------------------------------------------===#


@operator("MatMul")
def matmul(d):
    dtype = d.dtype(among=["float32", "float64", "int32", "int64"])
    lead, m, k, n = d.shape(0, 2, 0, 12), d.size(), d.size(), d.size()
    a, b = [*d.broadcast(lead), m, k], [*d.broadcast(lead), k, n]
    if d.maybe(0.15):
        a = [k]
    if d.maybe(0.15):
        b = [k]
    return {}, [d.array(a, dtype), d.array(b, dtype)], 1, [0, 1]


@operator("Gemm")
def gemm(d):
    m, k, n, ta, tb = d.size(), d.size(), d.size(), d.r.randint(0, 1), d.r.randint(0, 1)
    dtype = d.dtype(among=["float32", "float64"])
    inputs = [d.array([k, m] if ta else [m, k], dtype), d.array([n, k] if tb else [k, n], dtype)]
    if d.opset < 11 or d.maybe(0.7):
        inputs.append(d.array(d.broadcast([m, n]), dtype))
    return {"transA": ta, "transB": tb, "alpha": d.r.choice([1.0, 0.5]), "beta": d.r.choice([1.0, 0.25, 0.0])}, inputs, 1, [1, 2]


EQUATIONS = ["ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "i,i->", "ij,kj->ik", "...ij,...jk->...ik", "bhqd,bhkd->bhqk",
             "ij->", "i,j->ij", "ij,jk", "bij->bj", "abc,cd->abd", "...ii->...i", "ij,jk,kl->il"]


@operator("Einsum", since=12)
def einsum(d):
    equation = d.r.choice(EQUATIONS)
    sizes, lead = {c: d.size() for c in "abcdefghijklmnopq"}, d.shape(0, 2, 0, 6)
    dtype = d.dtype(among=["float32", "float64", "int64"])
    shapes = []
    for term in equation.split("->")[0].split(","):
        letters = term.replace("...", "")
        shapes.append([*(lead if "..." in term else []), *(sizes[c] for c in letters)])
    if sum(math.prod(s) for s in shapes) > 20000:
        return None
    return {"equation": equation}, [d.array(s, dtype) for s in shapes]


def window(d, spatial, dilations=True):
    """Attributes of a window that fits, and the sizes of what it slides over."""
    kernel = [d.r.randint(1, 3) for _ in range(spatial)]
    dilation = [d.r.randint(1, 2) if dilations else 1 for _ in range(spatial)]
    attributes = {"strides": [d.r.randint(1, 3) for _ in range(spatial)]}
    if dilations:
        attributes["dilations"] = dilation
    if d.maybe():
        attributes["pads"] = [d.r.randint(0, k - 1) for k in kernel * 2]
    sizes = [(k - 1) * t + 1 + d.r.choice([0, 1, 2, 5, 7]) for k, t in zip(kernel, dilation)]
    return kernel, attributes, sizes


@operator("Conv")
def conv(d):
    spatial, group = d.r.randint(1, 3), d.r.choice([1, 1, 2, 3])
    kernel, attributes, sizes = window(d, spatial)
    c, m = group * d.r.choice([1, 2, 3]), group * d.r.choice([1, 2, 5])
    inputs = [d.array([d.r.choice([1, 2, 3]), c, *sizes]), d.array([m, c // group, *kernel])]
    if d.maybe():
        inputs.append(d.array([m]))
    return {**attributes, "group": group, "kernel_shape": kernel}, inputs, 1, [1, 2]


@operator("MaxPool", "AveragePool")
def pool(d):
    spatial = d.r.randint(1, 3)
    dilations = d.opset >= (10 if d.op == "MaxPool" else 19)
    kernel, attributes, sizes = window(d, spatial, dilations)
    if d.op == "AveragePool":
        attributes["count_include_pad"] = d.r.randint(0, 1)
    return {**attributes, "kernel_shape": kernel}, [d.array([d.r.choice([1, 2]), d.r.choice([1, 3]), *sizes])]


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(d):
    # GlobalMaxPool of the reference keeps spatial dimensions of any other rank than 4.
    return {}, [d.array(d.shape(4, 4, 1) if d.op == "GlobalMaxPool" else d.shape(3, 5, 1))]


#===----------------------------------------------------------------------===#
# Quantised numbers, attention
#===----------------------------------------------------------------------===#


def dequantize_blocks(d):
    """Blocks along one dimension, now and then of a matrix that is large enough to be stored apart."""
    shape = [64, 20] if d.maybe(0.3) else d.shape(1, 3, 1)
    axis, block = d.axis(len(shape)), d.r.choice([1, 2, 16])
    blocks = list(shape)
    blocks[axis] = -(-shape[axis] // block)
    kind = d.r.choice(["uint8", "int8"])
    inputs = [d.array(shape, kind, -100, 100), d.array(blocks, "float32", 0.05, 1)]
    if d.maybe():
        inputs.append(d.array(blocks, kind, 0, 20))
    return {"axis": axis, "block_size": block}, inputs, 1, [0, 1, 2]


@operator("QuantizeLinear", "DequantizeLinear", since=13)
def quantize(d):
    if d.op == "DequantizeLinear" and d.opset >= 21 and d.maybe(0.4):
        return dequantize_blocks(d)
    shape = d.shape(1, 4, 1)
    axis = d.axis(len(shape))
    per = d.maybe()
    scale = d.array([shape[axis]] if per else [], "float32", 0.05, 1)
    kind = d.r.choice(["uint8", "int8"])
    zero = d.array(scale.shape, kind, 0, 20)
    x = d.array(shape) if d.op[0] == "Q" else d.array(shape, kind, -100, 100)
    return {"axis": axis}, [x, scale, zero], 1, [1, 2]


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize(d):
    return {}, [d.array(d.shape(1, 4, 1))], 3


@operator("MatMulInteger", since=10)
def matmul_integer(d):
    m, k, n, batch = d.size(1), d.size(1), d.size(1), d.r.choice([[], [], [2], [3, 2]])
    kinds = [d.r.choice(["uint8", "int8"]) for _ in range(2)]
    shared = batch[d.r.randint(0, len(batch)):]  # of its leading dimensions
    inputs = [d.array([*batch, m, k], kinds[0], -100, 100), d.array([*shared, k, n], kinds[1], -100, 100)]
    if d.maybe():
        inputs += [d.array([], kinds[0], 0, 20), d.array([], kinds[1], 0, 20)]
    return {}, inputs, 1, [1, 2, 3]


@operator("Attention", since=23)
def attention(d):
    b, group, heads, lq, lk, width = (d.r.choice([1, 2, 3]) for _ in range(6))
    inputs = [d.array([b, group * heads, lq, width]), d.array([b, heads, lk, width]), d.array([b, heads, lk, d.size(1)])]
    attributes = {}
    if d.maybe(0.3):
        attributes["softcap"] = 2.0
    if d.maybe(0.4):
        inputs.append(d.array([lq, lk]))
    elif lq == lk and d.maybe():
        attributes["is_causal"] = 1
    return attributes, inputs


@operator("SwiGLU", since=28)
def swiglu(d):
    shape = d.shape(1, 3, 1)
    return {}, [d.array(shape), d.array(shape)]
