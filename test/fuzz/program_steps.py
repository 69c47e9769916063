"""What programs.py puts behind each other: a function a family, (operator, operands, attributes, keeps exact[, results]).

What cannot be computed at the drawn sizes is refused by ONNX Runtime and drawn again, so a step need not ask."""
import numpy as np

STEPS = []


def step(weight):
    def enlist(function):
        STEPS.extend([function] * weight)
        return function
    return enlist


def is_float(value):
    return value.array.dtype == np.float32


def is_number(value):
    return value.array.dtype.kind in "if"


def like(p, value):
    """Another value of the type: one of the program, or a constant that broadcasts."""
    if p.r.random() < 0.7:
        return p.pick(lambda v: v.array.dtype == value.array.dtype)
    shape = [p.r.choice([s, 1]) if s in (1, 2, 4) else 1 for s in value.array.shape][p.r.randint(0, value.array.ndim):]
    return p.constant(p.numbers(shape, value.array.dtype))


def axis_of(p, value):
    rank = value.array.ndim
    return p.r.randrange(-rank, rank) if rank else 0


@step(3)
def arithmetic(p):
    x = p.pick(is_number)
    return x and (p.r.choice(["Add", "Sub", "Mul", "Max", "Min"]), [x, like(p, x)][::p.r.choice([1, -1])], {}, True)


@step(2)
def smooth(p):
    x = p.pick(is_float)
    return x and (p.r.choice(["Tanh", "Sigmoid", "Erf", "Softplus", "Exp"]), [x], {}, False)


@step(2)
def exact_unary(p):
    x = p.pick(is_number)
    return x and (p.r.choice(["Neg", "Abs", "Relu", "Identity"] if is_float(x) else ["Neg", "Abs", "Identity"]), [x], {}, True)


@step(1)
def jumps(p):
    x = p.pick(lambda v: is_float(v) and v.isExact)
    return x and (p.r.choice(["Floor", "Ceil", "Round", "Sign"]), [x], {}, True)


@step(2)
def compare(p):
    x = p.pick(lambda v: is_number(v) and v.isExact)
    y = x and like(p, x)
    if y is None or not getattr(y, "isExact", True):
        return None
    return p.r.choice(["Greater", "Less", "Equal", "GreaterOrEqual", "LessOrEqual"]), [x, y], {}, True


@step(1)
def logic(p):
    x = p.pick(lambda v: v.array.dtype == bool)
    if not x or p.r.random() < 0.3:
        return x and ("Not", [x], {}, True)
    return p.r.choice(["And", "Or", "Xor"]), [x, like(p, x)], {}, True


@step(2)
def where(p):
    condition, x = p.pick(lambda v: v.array.dtype == bool), p.pick()
    return condition and ("Where", [condition, x, like(p, x)], {}, True)


@step(2)
def cast(p):
    x = p.pick(lambda v: v.isExact or is_float(v))
    to = p.r.choice([1, 7, 6, 9] if x and x.isExact else [1])
    return x and ("Cast", [x], {"to": to}, True)


@step(3)
def reduce(p):
    x = p.pick(is_number)
    if not x or not x.array.ndim:
        return None
    axes = p.r.sample(range(x.array.ndim), p.r.randint(1, x.array.ndim))
    op = p.r.choice(["ReduceSum", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean"])
    operands = [x, *([p.constant(np.array(axes))] if p.r.random() < 0.9 else [])]
    return op, operands, {"keepdims": p.r.randint(0, 1)}, op != "ReduceMean"


@step(2)
def normalize(p):
    x = p.pick(is_float)
    return x and (p.r.choice(["Softmax", "LogSoftmax"]), [x], {"axis": axis_of(p, x)}, False)


@step(2)
def matmul(p):
    x = p.pick(is_float)
    return x and ("MatMul", [x, p.pick(is_float)][::p.r.choice([1, -1])], {}, True)


@step(3)
def transpose(p):
    x = p.pick()
    perm = list(range(x.array.ndim)) or None
    if perm:
        p.r.shuffle(perm)
    return perm and ("Transpose", [x], {"perm": perm}, True)


@step(3)
def reshape(p):
    x = p.pick()
    rank = x.array.ndim
    kind = p.r.choice(["flat", "merge", "split", "zero", "shape"])
    if kind == "shape":  # the shape of another value
        shape = p.pick(lambda v: v.array.dtype == np.int64 and v.array.ndim == 1 and v.array.size < 6)
        return shape and ("Reshape", [x, shape], {}, True)
    if kind == "flat" or rank < 2:
        target = p.r.choice([[-1], [-1, 1], [1, -1]])
    elif kind == "merge":
        target = [0] * p.r.randint(0, rank - 2) + [-1]
    elif kind == "split":
        target = [0] * (rank - 1) + [p.r.choice([1, 2]), -1]
    else:
        target = [0] * rank
        target[p.r.randrange(rank)] = -1
    return "Reshape", [x, p.constant(np.array(target))], {}, True


@step(1)
def shape(p):
    x = p.pick()
    return "Shape", [x], {}, True


@step(2)
def unit_axes(p):
    x = p.pick()
    if p.r.random() < 0.5:
        return "Unsqueeze", [x, p.constant(np.array([p.r.randint(0, x.array.ndim)]))], {}, True
    units = [n for n, size in enumerate(x.array.shape) if size == 1]
    return units and ("Squeeze", [x, p.constant(np.array([p.r.choice(units)]))], {}, True)


@step(4)
def cut(p):
    x = p.pick()
    if not x.array.ndim:
        return None
    axis, pace = axis_of(p, x), p.r.choice([1, 1, 1, 2, 3, -1, -2])
    first, last = p.r.choice([0, 0, 1, 2, -1, -2, -9]), p.r.choice([1, 2, 3, -1, -2, 2**31 - 1, 2**31 - 1, -2**31])
    if pace < 0 and last == 2**31 - 1:
        last = -2**31  # ONNX Runtime means the beginning by it
    return "Slice", [x, *(p.constant(np.array([v])) for v in (first, last, axis, pace))], {}, True


@step(3)
def concat(p):
    x = p.pick()
    if not x.array.ndim:
        return None
    axis = axis_of(p, x)
    fits = lambda v: v.array.dtype == x.array.dtype and v.array.ndim == x.array.ndim  # noqa: E731
    return "Concat", [x, *(p.pick(fits) for _ in range(p.r.randint(1, 2)))], {"axis": axis}, True


@step(2)
def split(p):
    x = p.pick()
    if not x.array.ndim:
        return None
    axis = axis_of(p, x)
    if x.array.shape[axis] in (2, 4):
        return "Split", [x], {"axis": axis, "num_outputs": 2}, True, 2
    sizes = [1, x.array.shape[axis] - 1]
    return "Split", [x, p.constant(np.array(sizes))], {"axis": axis}, True, 2


@step(3)
def gather(p):
    x = p.pick()
    if not x.array.ndim:
        return None
    index = p.r.choice([np.array(0), np.array(-1), np.array([0, 0]), np.array([-1, 0, 1]), np.array([[0], [-1]])])
    return "Gather", [x, p.constant(index)], {"axis": axis_of(p, x)}, True


@step(2)
def expand(p):
    x = p.pick()
    if p.r.random() < 0.4:
        other = p.pick(lambda v: v.array.dtype == np.int64 and v.array.ndim == 1 and 0 < v.array.size < 6)
        return other and ("Expand", [x, other], {}, True)
    return "Expand", [x, p.constant(np.array([p.r.choice([1, 2])] + [1] * p.r.randint(0, x.array.ndim)))], {}, True


@step(1)
def tile(p):
    x = p.pick()
    return "Tile", [x, p.constant(np.array([p.r.choice([1, 2]) for _ in x.array.shape], np.int64))], {}, True


@step(2)
def pad(p):
    x = p.pick()
    amounts = [p.r.choice([0, 0, 1, 2, -1]) for _ in range(2 * x.array.ndim)]
    mode = p.r.choice(["constant", "constant", "edge", "reflect"])
    if mode != "constant":
        amounts = [max(a, 0) for a in amounts]
    return "Pad", [x, p.constant(np.array(amounts, np.int64))], {"mode": mode}, True


@step(1)
def cumsum(p):
    x = p.pick(is_number)
    return x and x.array.ndim and ("CumSum", [x, p.constant(np.array(axis_of(p, x)))],
                                   {"exclusive": p.r.randint(0, 1), "reverse": p.r.randint(0, 1)}, True)


@step(1)
def arg(p):
    x = p.pick(lambda v: is_float(v) and v.isExact)
    return x and x.array.ndim and (p.r.choice(["ArgMax", "ArgMin"]), [x],
                                   {"axis": axis_of(p, x), "keepdims": p.r.randint(0, 1)}, True)


@step(1)
def top(p):
    x = p.pick(lambda v: is_float(v) and v.isExact)
    return x and x.array.ndim and ("TopK", [x, p.constant(np.array([p.r.choice([1, 2])]))], {"axis": axis_of(p, x)}, True, 2)


@step(1)
def triangle(p):
    x = p.pick(lambda v: v.array.ndim >= 2)
    return x and ("Trilu", [x, p.constant(np.array(p.r.choice([0, 1, -1])))], {"upper": p.r.randint(0, 1)}, True)


@step(1)
def filled(p):
    shape_of = p.pick(lambda v: v.array.dtype == np.int64 and v.array.ndim == 1 and 0 < v.array.size < 6)
    return shape_of and ("ConstantOfShape", [shape_of], {}, True)


@step(1)
def positions(p):
    end = p.pick(lambda v: v.array.dtype == np.int64 and v.array.ndim == 0)
    return end and ("Range", [p.constant(np.array(0)), end, p.constant(np.array(1))], {}, True)


@step(1)
def scatter(p):
    x = p.pick(lambda v: v.array.ndim)
    if not x:
        return None
    axis = axis_of(p, x)
    place = [1] * x.array.ndim
    return "ScatterElements", [x, p.constant(np.zeros(place, np.int64)), p.constant(p.numbers(place, x.array.dtype))], {"axis": axis}, True


@step(1)
def scatter_rows(p):
    x = p.pick(lambda v: v.array.ndim >= 1)
    row = x and p.pick(lambda v: v.array.dtype == x.array.dtype and v.array.shape == (1, *x.array.shape[1:]))
    return row and ("ScatterND", [x, p.constant(np.array([[p.r.choice([0, -1])]])), row], {}, True)


@step(2)
def layer(p):
    x = p.pick(lambda v: is_float(v) and v.array.ndim and v.array.shape[-1] in (2, 4))
    if not x:
        return None
    width = x.array.shape[-1]
    if p.r.random() < 0.5:
        scale, shift = (p.constant(p.numbers([width], np.float32)) for _ in range(2))
        return "LayerNormalization", [x, scale, shift], {"axis": -1}, False
    matrix = p.constant(p.numbers([width, p.r.choice([1, 4, 6])], np.float32))
    return "MatMul", [x, matrix], {}, True


@step(1)
def einsum(p):
    x, y = p.pick(is_float), p.pick(is_float)
    if not x:
        return None
    names = {3: "n", 5: "m", 7: "k", 1: "o", 2: "t", 4: "f"}
    terms = ["".join(dict.fromkeys(names.get(s, "?") for s in v.array.shape)) for v in (x, y)]
    if any("?" in t or len(t) != v.array.ndim for t, v in zip(terms, (x, y))):
        return None
    both = list(dict.fromkeys("".join(terms)))
    kept = p.r.sample(both, p.r.randint(0, len(both)))
    return "Einsum", [x, y], {"equation": f"{terms[0]},{terms[1]}->{''.join(kept)}"}, True


@step(1)
def pick_elements(p):
    x = p.pick(lambda v: v.array.ndim)
    if not x:
        return None
    index = np.array(p.r.choice([0, -1])).reshape([1] * x.array.ndim)
    return "GatherElements", [x, p.constant(index)], {"axis": axis_of(p, x)}, True


@step(1)
def bounded(p):
    x = p.pick(is_number)
    low, high = (p.constant(np.array(v, x.array.dtype)) for v in (-1, 2)) if x else (0, 0)
    return x and ("Clip", [x, low, high][:p.r.choice([2, 3])], {}, True)


@step(1)
def divide(p):
    x = p.pick(is_number)
    divisor = x and p.constant(np.array(p.r.choice([2, 3, -2]), x.array.dtype))
    return x and (p.r.choice(["Div", "Mod"]) if not is_float(x) else "Div", [x, divisor], {}, not is_float(x))


@step(1)
def one_hot(p):
    x = p.pick(lambda v: v.array.dtype == np.int64 and v.array.ndim < 4)
    values = p.r.choice([np.array([0, 1], np.float32), np.array([2, -1])])
    return x and ("OneHot", [x, p.constant(np.array(4)), p.constant(values)], {"axis": -1}, True)
