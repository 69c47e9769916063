"""Rows of operator_graphs.OPERATORS for layers: recurrence, images, signals, losses, quantised products, caches."""
import math

import numpy as np
from onnx import helper

from operator_graphs import DTYPES, ints, operator
from operator_moves import window

#===----------------------------------------------------------------------===#
# Elementwise and shapes
#===----------------------------------------------------------------------===#


@operator("Swish", since=24)
def swish(d):
    return ({"alpha": d.r.uniform(0.1, 2)} if d.maybe() else {}), [d.array(d.shape(), d.dtype())]


@operator("CastLike", since=15)
def cast_like(d):
    to = d.r.choice(list(DTYPES.values()))
    low = 0 if to.startswith("u") else -100
    return {}, [d.array(d.shape(), d.dtype(), low, 100), d.array([1], to)]


@operator("BitCast", since=26)
def bit_cast(d):
    source, to = d.r.choice([("float32", "int32"), ("int32", "uint32"), ("int64", "float64"), ("uint16", "float16"),
                             ("uint8", "int8"), ("float32", "uint32")])
    return {"to": int(helper.np_dtype_to_tensor_dtype(np.dtype(to)))}, [d.array(d.shape(), source, -100, 100)]


@operator("Dropout", since=12)
def dropout(d):
    return {}, [d.array(d.shape(), d.dtype(among=["float32", "float64"])), np.asarray(0.3, "float32")][:d.r.randint(1, 2)]


@operator("CenterCropPad", since=18)
def center_crop_pad(d):
    x = d.array(d.shape(1, 4, 1, 300), d.dtype(among=["float32", "int64"]))
    axes = d.axes(x.ndim, 1)
    attributes = {"axes": axes} if axes and d.maybe(0.7) else {}
    return attributes, [x, ints([d.size(1) for _ in attributes.get("axes", x.shape)])], 1, [1]


@operator("CumProd", since=26)
def cum_prod(d):
    x = d.array(d.shape(1, 4, 0, 300), d.dtype(among=["float32", "float64"]), -1.5, 1.5)
    return ({"exclusive": d.r.randint(0, 1), "reverse": d.r.randint(0, 1)},
            [x, np.asarray(d.axis(x.ndim), d.r.choice(["int32", "int64"]))], 1, [1])


@operator("Det", since=11)
def det(d):
    n = d.r.choice([1, 2, 3, 5])
    return {}, [d.array([*d.shape(1, 2, 1, 20), n, n], d.dtype(among=["float32", "float64"]))]


@operator("TensorScatter", since=24)
def tensor_scatter(d):
    b, heads, rows, width = d.size(1), d.r.choice([1, 2, 3]), d.r.choice([2, 5, 7]), d.r.choice([1, 3])
    new = d.r.randint(1, rows)
    mode = d.r.choice(["linear", "circular"])
    begin = d.data.integers(0, (rows if mode == "circular" else rows - new) + (mode != "circular"), [b]).astype(np.int64)
    return {"mode": mode}, [d.array([b, heads, rows, width]), d.array([b, heads, new, width]), begin]


#===----------------------------------------------------------------------===#
# Recurrence
#===----------------------------------------------------------------------===#


@operator("RNN", "GRU", "LSTM", since=14)
def recurrent(d):
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[d.op]
    steps, b, width, hidden = d.r.choice([1, 2, 5]), d.r.choice([1, 2, 3]), d.r.choice([1, 3, 7]), d.r.choice([1, 2, 5])
    low, high = -0.5, 0.5
    inputs = [d.array([steps, b, width]), d.array([1, gates * hidden, width], low=low, high=high),
              d.array([1, gates * hidden, hidden], low=low, high=high)]
    if d.maybe():
        inputs.append(d.array([1, 2 * gates * hidden], low=low, high=high))
        if d.maybe():
            inputs += [None, d.array([1, b, hidden])]
            if d.op == "LSTM":
                inputs.append(d.array([1, b, hidden]))
    attributes = {"hidden_size": hidden}
    if d.op == "GRU":
        attributes["linear_before_reset"] = d.r.randint(0, 1)
    return attributes, inputs, 2, [1, 2, 3]


#===----------------------------------------------------------------------===#
# Images
#===----------------------------------------------------------------------===#


@operator("ConvTranspose", since=11)
def conv_transpose(d):
    spatial = d.r.randint(1, 2)
    kernel, attributes, sizes = window(d, spatial)
    c, m = d.r.choice([1, 2, 3]), d.r.choice([1, 2, 5])
    inputs = [d.array([d.r.choice([1, 2]), c, *sizes]), d.array([c, m, *kernel])]
    if d.maybe():
        inputs.append(d.array([m]))
    attributes["kernel_shape"] = kernel
    if d.maybe(0.3):
        attributes["output_padding"] = [d.r.randint(0, s - 1) for s in attributes["strides"]]
    return attributes, inputs, 1, [1, 2]


@operator("ConvInteger", since=10)
def conv_integer(d):
    kernel, attributes, sizes = window(d, 2)
    c, m = d.r.choice([1, 2, 17]), d.r.choice([1, 3, 50])
    inputs = [d.array([1, c, *sizes], "uint8", 0, 100), d.array([m, c, *kernel], "uint8", 0, 100)]
    if d.maybe():
        inputs.append(np.asarray(d.r.randint(0, 20), "uint8"))
    return {**attributes, "kernel_shape": kernel}, inputs, 1, [1, 2]


@operator("QLinearMatMul", since=10)
def qlinear_matmul(d):
    m, k, n, kind = d.size(1), d.size(1), d.size(1), d.r.choice(["uint8", "int8"])
    scale, zero = lambda: np.asarray(d.r.uniform(0.01, 0.1), "float32"), lambda: np.asarray(d.r.randint(0, 20), kind)  # noqa: E731
    return {}, [d.array([m, k], kind, -100, 100), scale(), zero(), d.array([k, n], kind, -100, 100), scale(), zero(),
                np.asarray(d.r.uniform(0.5, 2), "float32"), zero()], 1, [1, 2, 3, 4, 5, 6, 7]


@operator("QLinearConv", since=10)
def qlinear_conv(d):
    kernel, attributes, sizes = window(d, 2)
    group, kind = d.r.choice([1, 1, 2]), d.r.choice(["uint8", "int8"])
    c, m = group * d.r.choice([1, 2, 9]), group * d.r.choice([1, 3, 50])
    scale, zero = lambda *s: d.array(s, low=0.01, high=0.1), lambda: d.array([], kind, 0, 20)  # noqa: E731
    weights = d.array([m, c // group, *kernel], kind, -100, 100)
    # A scale for each row of the weights, whose zero points are then 0 in ONNX Runtime.
    rows = [scale(m), np.zeros([m], kind)] if d.maybe(0.4) else [scale(), zero()]
    inputs = [d.array([d.r.choice([1, 2]), c, *sizes], kind, -100, 100), scale(), zero(), weights, *rows,
              np.asarray(d.r.uniform(0.5, 2), "float32"), zero()]
    if d.maybe():
        inputs.append(d.array([m], "int32", -500, 500))
    return {**attributes, "group": group, "kernel_shape": kernel}, inputs, 1, [1, 2, 3, 4, 5, 6, 7, 8]


@operator("DeformConv", since=19)
def deform_conv(d):
    kernel, attributes, sizes = window(d, 2)
    attributes.setdefault("pads", [0] * 4)
    group, offsets = d.r.choice([1, 1, 2]), d.r.choice([1, 1, 2])
    n, c, m = d.r.choice([1, 2]), group * offsets * d.r.choice([1, 2]), group * d.r.choice([1, 3])
    pads, dilations, strides = attributes["pads"], attributes["dilations"], attributes["strides"]
    out = [(s + pads[k] + pads[k + 2] - (kernel[k] - 1) * dilations[k] - 1) // strides[k] + 1 for k, s in enumerate(sizes)]
    taps = offsets * math.prod(kernel)
    inputs = [d.array([n, c, *sizes]), d.array([m, c // group, *kernel]), d.array([n, 2 * taps, *out], low=-2, high=2),
              d.array([m]) if d.maybe() else None]
    if d.maybe():
        inputs.append(d.array([n, taps, *out], low=0, high=1))
    return {**attributes, "group": group, "offset_group": offsets, "kernel_shape": kernel}, inputs, 1, [1, 3]


@operator("MaxUnpool", since=11)
def max_unpool(d):
    spatial, n, c = d.r.randint(1, 2), d.r.choice([1, 2]), d.r.choice([1, 3])
    kernel, sizes = [d.r.randint(1, 3) for _ in range(spatial)], [d.r.choice([1, 2, 5]) for _ in range(spatial)]
    block = math.prod(k * s for k, s in zip(kernel, sizes))
    places = np.stack([d.data.permutation(block)[:math.prod(sizes)] + block * k for k in range(n * c)])  # no place twice
    return ({"kernel_shape": kernel, "strides": kernel},
            [d.array([n, c, *sizes]), places.reshape(n, c, *sizes).astype(np.int64)])


@operator("NonMaxSuppression", since=11, until=21)
def suppression(d):
    b, classes, boxes = d.r.choice([1, 2, 3]), d.r.choice([1, 2]), d.r.choice([0, 1, 5, 13])
    d.form.oracle = "onnxruntime"  # the reference fails where an input is left out
    number = lambda low, high: np.asarray([d.r.uniform(low, high)], "float32")  # noqa: E731
    inputs = [d.array([b, boxes, 4], low=0, high=1), d.array([b, classes, boxes], low=0, high=1), ints([d.r.choice([0, 1, 3, 20])])]
    if d.maybe(0.8):
        inputs.append(number(0, 0.6))
        if d.maybe():
            inputs.append(number(0, 0.7))
    return {"center_point_box": d.r.randint(0, 1)}, inputs, 1, [2, 3, 4]


@operator("Col2Im", since=18)
def col2im(d):
    r = d.r.randint(1, 3)
    image, block = [d.r.choice([3, 5, 7]) for _ in range(r)], [d.r.randint(1, 3) for _ in range(r)]
    strides = [d.r.randint(1, 2) for _ in range(r)]
    positions = math.prod((i - b) // s + 1 for i, b, s in zip(image, block, strides))
    x = d.array([d.r.choice([1, 2]), d.r.choice([1, 3]) * math.prod(block), positions])
    return {"strides": strides}, [x, ints(image), ints(block)], 1, [1, 2]


@operator("AffineGrid", since=20)
def affine_grid(d):
    spatial, n = d.r.choice([2, 3]), d.r.choice([1, 2, 3])
    size = [n, d.r.choice([1, 3]), *(d.r.choice([2, 3, 5, 7]) for _ in range(spatial))]
    return {"align_corners": d.r.randint(0, 1)}, [d.array([n, spatial, spatial + 1]), ints(size)], 1, [1]


@operator("GridSample", since=20)
def grid_sample(d):
    n, c, h, w, oh, ow = d.r.choice([1, 2]), d.r.choice([1, 3]), *(d.r.choice([1, 2, 5, 7]) for _ in range(4))
    # Halves of a pixel are rounded to even by the reference only for some sizes: places are drawn off them.
    grid = d.array([n, oh, ow, 2], low=-1.3, high=1.3)
    return {"mode": d.r.choice(["linear", "nearest", "cubic"]), "padding_mode": d.r.choice(["zeros", "border", "reflection"]),
            "align_corners": d.r.randint(0, 1)}, [d.array([n, c, h, w]), grid]


@operator("Resize", since=19)
def resize(d):
    shape = [1, d.r.choice([1, 2]), *(d.r.choice([1, 2, 3, 5, 7]) for _ in range(2))]
    x = d.array(shape)
    mode = d.r.choice(["nearest", "linear", "cubic"])
    attributes = {"mode": mode, "coordinate_transformation_mode":
                  d.r.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"])}
    if mode == "nearest":
        attributes["nearest_mode"] = d.r.choice(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
    if mode == "cubic":
        attributes.update(cubic_coeff_a=d.r.choice([-0.5, -0.75]), exclude_outside=d.r.randint(0, 1))
    if d.maybe():
        scales = np.asarray([1, 1, d.r.choice([0.5, 1, 2, 3]), d.r.choice([0.6, 1.5, 2])], "float32")
        if (np.floor(shape * scales) < 1).any():
            return None
        return attributes, [x, None, scales], 1, [2]
    return attributes, [x, None, None, ints([*shape[:2], *(d.r.choice([1, 2, 4, 7, 11]) for _ in range(2))])], 1, [3]


@operator("LpPool", since=18)
def lp_pool(d):
    kernel, attributes, sizes = window(d, 2)
    return {**attributes, "kernel_shape": kernel, "p": d.r.choice([1, 2, 3])}, [d.array([1, 2, *sizes])]


@operator("MeanVarianceNormalization", since=9)
def mean_variance(d):
    return {"axes": [0, 2, 3]}, [d.array(d.shape(4, 4, 2))]


@operator("RoiAlign", since=16)
def roi_align(d):
    boxes = d.r.choice([1, 3])
    corners = np.sort(d.data.uniform(0, 9, [boxes, 2, 2]), 1).reshape(boxes, 4).astype("float32")
    attributes = {"output_height": d.r.choice([1, 2, 5]), "output_width": d.r.choice([1, 3]), "sampling_ratio": d.r.choice([1, 2]),
                  "spatial_scale": d.r.choice([1.0, 0.5]), "mode": "avg",
                  "coordinate_transformation_mode": d.r.choice(["half_pixel", "output_half_pixel"])}
    return attributes, [d.array([2, d.r.choice([1, 3]), 10, 7]), corners, d.data.integers(0, 2, [boxes]).astype(np.int64)]


#===----------------------------------------------------------------------===#
# Signals
#===----------------------------------------------------------------------===#


@operator("HannWindow", "HammingWindow", "BlackmanWindow", since=17)
def signal_window(d):
    return {"periodic": d.r.randint(0, 1)}, [np.asarray(d.size(2), np.int64)], 1, [0]


@operator("DFT", since=17)
def dft(d):
    shape = [*d.shape(1, 3, 1, 100), d.r.choice([1, 2])]
    axis = d.r.randrange(len(shape) - 1)
    inputs, attributes = [d.array(shape)], {}
    if d.maybe(0.3):
        inputs.append(np.asarray(d.size(1), np.int64))
    if d.opset < 20:
        attributes["axis"] = axis
    else:
        inputs += [None] * (2 - len(inputs)) + [np.asarray(axis, np.int64)]
    if shape[-1] == 1 and d.maybe(0.3):
        attributes["onesided"] = 1
    elif d.maybe(0.3):
        attributes["inverse"] = 1
    return attributes, inputs, 1, [1, 2]


@operator("STFT", since=17)
def stft(d):
    length = d.r.choice([1, 2, 5, 8, 16])
    complex_ = d.maybe(0.3)
    signal = d.array([d.r.choice([1, 2, 3]), length + d.r.choice([0, 1, 7, 13]), 1 + complex_])
    window_ = d.array([length]) if d.maybe() else None
    inputs = [signal, np.asarray(d.r.choice([1, 2, 5]), np.int64), window_]
    if window_ is None or d.maybe():
        inputs.append(np.asarray(length, np.int64))
    return {"onesided": 0 if complex_ else d.r.randint(0, 1)}, inputs, 1, [1, 2, 3]


@operator("MelWeightMatrix", since=17)
def mel(d):
    return {}, [np.asarray(v, np.int64) for v in (d.r.choice([2, 5, 8]), d.r.choice([16, 32]), 8192)] + \
        [np.asarray(v, "float32") for v in (0, d.r.choice([2048, 4096]))], 1, [0, 1, 2, 3, 4]


#===----------------------------------------------------------------------===#
# Losses, attention's surroundings
#===----------------------------------------------------------------------===#


@operator("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", since=13)
def loss(d):
    n, c, rest = d.size(1), d.size(1), d.shape(0, 2, 1, 20)
    target = d.data.integers(0, c, [n, *rest]).astype(np.int64)
    attributes = {"reduction": d.r.choice(["none", "sum", "mean"])}
    inputs = [d.array([n, c, *rest]), target]
    if d.maybe():
        inputs.append(d.array([c], low=0.5, high=2))
    if d.maybe(0.4):
        # -1 is "none" to the reference.
        attributes["ignore_index"] = d.r.choice([0, -100, c - 1])
        if attributes["ignore_index"] < 0:
            target[target == 0] = -100
        if attributes["reduction"] == "mean" and not (target != attributes["ignore_index"]).any():
            return None  # 0 / 0
    return attributes, inputs, 1, [2]


@operator("RotaryEmbedding", since=23)
def rotary(d):
    b, heads, length, width, most = d.r.choice([1, 2, 3]), d.r.choice([1, 2]), d.r.choice([1, 3, 7]), d.r.choice([4, 8]), 11
    attributes = {"interleaved": d.r.randint(0, 1)}
    if d.maybe(0.3):
        attributes["rotary_embedding_dim"] = width // 2
    half = attributes.get("rotary_embedding_dim", width) // 2
    x = d.array([b, heads, length, width])
    if d.maybe(0.4):
        return attributes, [x, d.array([b, length, half]), d.array([b, length, half])]
    positions = d.data.integers(0, most, [b, length]).astype(np.int64)
    return attributes, [x, d.array([most, half]), d.array([most, half]), positions], 1, [1, 2]


@operator("LinearAttention", since=27)
def linear_attention(d):
    b, heads, length, width = d.r.choice([1, 2]), d.r.choice([1, 2, 3]), d.r.choice([1, 2, 5]), d.r.choice([2, 4])
    x = lambda: d.array([b, length, heads * width], low=-1, high=1)  # noqa: E731
    return {"q_num_heads": heads, "kv_num_heads": heads, "update_rule": "linear"}, [x(), x(), x()], 2


@operator("CausalConvWithState", since=27)
def causal_conv(d):
    b, c, length, taps = d.r.choice([1, 2]), d.r.choice([1, 3]), d.r.choice([1, 2, 7]), d.r.choice([2, 4])
    inputs = [d.array([b, c, length]), d.array([c, 1, taps])]
    if d.maybe():
        inputs.append(d.array([c]))
        if d.maybe():
            inputs.append(d.array([b, c, taps - 1]))
    return {"activation": d.r.choice(["none", "silu"])}, inputs, 2, [1, 2]
