#!/usr/bin/env python3
"""Operators of com.microsoft against ONNX Runtime: one model a case, the same
inputs to both.

    contrib.py [--only PART] [--server PROGRAM]
"""
import argparse
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper

import backend

RNG = np.random.default_rng(7)
MS = "com.microsoft"
CASES = []


def floats(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def case(name, op, inputs, outputs=1, rtol=1e-3, atol=1e-4, domain=MS, check=None, oracle=None, **attributes):
    """`inputs`: arrays, None for a missing one, or ("const", array) for an initialiser. `oracle`: the same in
    another layout, with attributes where they differ, or its results by NumPy, where ONNX Runtime's CPU lacks this one."""
    CASES.append((name, op, inputs, outputs, rtol, atol, domain, check, oracle, attributes))


def build(op, inputs, outputs, domain, attributes):
    names, declared, initializers, feeds = [], [], [], {}
    for i, value in enumerate(inputs):
        if value is None:
            names.append("")
            continue
        names.append(f"i{i}")
        if isinstance(value, tuple):
            initializers.append(onnx.numpy_helper.from_array(value[1], names[-1]))
            continue
        feeds[names[-1]] = value
        declared.append(helper.make_tensor_value_info(names[-1], helper.np_dtype_to_tensor_dtype(value.dtype),
                                                      value.shape))
    made = [f"o{i}" if outputs >> i & 1 else "" for i in range(outputs.bit_length())]
    node = helper.make_node(op, names, made, "node", domain=domain, **attributes)
    kinds = [TensorProto.INT32 if op.endswith("EmbedLayerNormalization") and i == 1 else
             helper.np_dtype_to_tensor_dtype(inputs[-1][1].dtype) if op == "QuantizeLinear" else
             TensorProto.UINT8 if op == "QGemm" and len(inputs) > 7 else
             helper.np_dtype_to_tensor_dtype(next(v for v in feeds.values() if v.dtype.kind != "b").dtype)
             if op.startswith(("QLinear", "NhwcMaxPool")) else
             helper.np_dtype_to_tensor_dtype(next(v for v in feeds.values() if v.dtype.kind == "f").dtype)
             if any(v.dtype.kind == "f" for v in feeds.values()) else TensorProto.FLOAT for i in range(len(made))]
    graph = helper.make_graph([node], "g", declared, [helper.make_tensor_value_info(n, k, None)
                                                      for n, k in zip(made, kinds) if n], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)],
                              ir_version=8)
    return model, feeds, [n for n in made if n]


def activations():
    x, bias = floats(3, 5, 16), floats(16)
    case("gelu", "Gelu", [x])
    case("fast_gelu", "FastGelu", [x])
    case("fast_gelu_bias", "FastGelu", [x, bias])
    case("bias_gelu", "BiasGelu", [x, bias])
    case("quick_gelu", "QuickGelu", [x])
    case("quick_gelu_alpha", "QuickGelu", [x], alpha=1.3)


def normalisations():
    x, skip, gamma, beta, bias = floats(2, 5, 24), floats(2, 5, 24), floats(24), floats(24), floats(24)
    case("skip_ln", "SkipLayerNormalization", [x, skip, gamma, beta, bias], 0b1001, epsilon=1e-5)
    case("skip_ln_plain", "SkipLayerNormalization", [x, skip, gamma])
    case("skip_ln_broadcast", "SkipLayerNormalization", [x, floats(5, 24), gamma, beta])
    case("skip_rms", "SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], 0b1001, epsilon=1e-6)
    case("rms", "SimplifiedLayerNormalization", [x, gamma], domain="", axis=-1, epsilon=1e-6)
    ids = RNG.integers(0, 20, (2, 7)).astype(np.int32)
    tables = [("const", floats(20, 16)), ("const", floats(12, 16)), ("const", floats(3, 16))]
    norm = [("const", floats(16)), ("const", floats(16))]
    mask = np.array([[1, 1, 1, 1, 0, 0, 0], [1] * 7], np.int32)
    segments = RNG.integers(0, 3, (2, 7)).astype(np.int32)
    case("embed_ln", "EmbedLayerNormalization", [ids, segments, *tables, *norm, mask], 0b111, epsilon=1e-5)
    case("embed_ln_plain", "EmbedLayerNormalization", [ids, None, *tables[:2], None, *norm], 0b11)
    case("embed_ln_positions", "EmbedLayerNormalization",
         [ids, segments, *tables, *norm, None, RNG.integers(0, 12, (2, 7)).astype(np.int32)], 0b11)


def products():
    case("fused_matmul", "FusedMatMul", [floats(2, 4, 5), floats(2, 5, 3)], alpha=0.5)
    case("fused_matmul_trans", "FusedMatMul", [floats(2, 5, 4), floats(2, 3, 5)], transA=1, transB=1)
    case("fused_matmul_batch", "FusedMatMul", [floats(4, 2, 5), floats(2, 5, 3)], transBatchA=1)
    for name, numbers in (("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("LeakyRelu", {"activation_alpha": 0.3}),
                          ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4})):
        case(f"fused_gemm_{name}", "FusedGemm", [floats(3, 5), floats(4, 5), floats(4)], transB=1, alpha=0.7, beta=1.3,
             activation=name, **numbers)
    case("fused_gemm_no_c", "FusedGemm", [floats(5, 3), floats(5, 4)], transA=1, activation="Relu")
    for name, params in (("Relu", None), ("Tanh", None), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.75]), ("HardSigmoid", [0.3, 0.4])):
        more = {} if params is None else {"activation_params": params}
        case(f"fused_conv_{name}", "FusedConv", [floats(1, 4, 9, 8), floats(6, 4, 3, 3), floats(6)], activation=name,
             pads=[1, 1, 1, 1], kernel_shape=[3, 3], **more)
    case("fused_conv_residual", "FusedConv", [floats(1, 4, 9, 8), floats(6, 4, 3, 3), floats(6), floats(1, 6, 9, 8)],
         activation="Relu", pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    for bits, block, k, zeros in ((4, 16, 64, None), (4, 32, 80, "packed"), (8, 16, 48, None), (4, 16, 64, "float")):
        n, blocks = 6, (k + block - 1) // block
        weights = RNG.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
        scales = floats(n * blocks) if zeros != "float" else floats(n, blocks)
        inputs = [floats(2, 3, k), ("const", weights), ("const", scales)]
        if zeros == "packed":
            inputs.append(("const", RNG.integers(0, 256, (n * ((blocks * bits + 7) // 8),)).astype(np.uint8)))
        elif zeros == "float":
            inputs.append(("const", floats(n, blocks)))
        case(f"nbits_{bits}_{block}_{zeros}", "MatMulNBits", inputs, rtol=2e-2, atol=2e-2, K=k, N=n, bits=bits,
             block_size=block)


def operator_form():
    """What stands between quantised products; a result may lie one step beside ONNX Runtime's, which has tables."""
    u8 = lambda *shape: RNG.integers(0, 256, shape).astype(np.uint8)  # noqa: E731
    i8 = lambda *shape: RNG.integers(-128, 128, shape).astype(np.int8)  # noqa: E731
    f = lambda value: ("const", np.array(value, np.float32))  # noqa: E731

    def z(value, of=np.uint8):
        return "const", np.array(value, of)

    for kind in (np.uint8, np.int8, np.uint16, np.int16):
        limits = np.iinfo(kind)
        codes = RNG.integers(limits.min, limits.max, (3, 8)).astype(kind)
        scales, zeros = ("const", np.linspace(0.01, 0.1, 8, dtype=np.float32)), ("const", codes[0])
        case(f"quantize_{kind.__name__}", "QuantizeLinear", [floats(3, 8), scales, zeros], axis=1, atol=1)
        case(f"dequantize_{kind.__name__}", "DequantizeLinear", [codes, scales, zeros], axis=1)
    for name in ("QLinearAdd", "QLinearMul"):
        case(f"{name}_u8", name, [u8(2, 3, 40), f(0.03), z(120), u8(2, 3, 40), f(0.05), z(7), f(0.09), z(100)], atol=1)
        case(f"{name}_i8", name, [i8(2, 3, 40), f(0.03), z(-9, np.int8), i8(40), f(0.02), z(0, np.int8), f(0.04), z(5, np.int8)], atol=1)
        case(f"{name}_no_zero", name, [u8(5, 1, 33), f(0.01), z(0), u8(4, 33), f(0.02), z(3), f(0.03)], atol=1)
    case("QLinearSigmoid", "QLinearSigmoid", [u8(3, 50), f(0.07), z(128), f(1 / 256), z(0)], atol=1)
    case("QLinearSigmoid_i8", "QLinearSigmoid", [i8(3, 50), f(0.07), z(3, np.int8), f(1 / 256), z(-128, np.int8)], atol=1)
    case("QLinearLeakyRelu", "QLinearLeakyRelu", [u8(3, 50), f(0.07), z(100), f(0.05), z(60)], atol=1, alpha=0.2)
    case("QLinearSoftmax_12", "QLinearSoftmax", [u8(2, 5, 7), f(0.05), z(128), f(1 / 256), z(0)], atol=1, opset=12)  # by its last dimension
    for opset, axis in ((13, -1), (13, 1), (12, 1), (12, 2)):
        case(f"QLinearSoftmax_{opset}_{axis}", "QLinearSoftmax", [u8(2, 5, 7), f(0.05), z(128), f(1 / 256), z(0)], atol=1,
             axis=axis, opset=opset)
    cond = RNG.integers(0, 2, (2, 3, 1)).astype(bool)
    case("QLinearWhere", "QLinearWhere", [cond, u8(2, 3, 40), f(0.03), z(120), u8(3, 40), f(0.05), z(7), f(0.09), z(100)], atol=1)
    means = u8(2, 3, 40, 5)
    for axes, keep in (([1, -1], 1), ([2], 0), (None, 1)):
        own = tuple(axes) if axes else None

        def mean(own=own, keep=keep):
            real = ((means.astype(np.float64) - 120) * 0.03).mean(own, keepdims=bool(keep))
            return [np.clip(np.rint(real / 0.01) + 100, 0, 255)]

        case(f"QLinearReduceMean_{keep}_{axes and len(axes)}", "QLinearReduceMean", [means, f(0.03), z(120), f(0.01), z(100)],
             atol=1, keepdims=keep, oracle=mean, **({"axes": axes} if axes else {}))
    case("QLinearConcat", "QLinearConcat", [f(0.06), z(90), u8(2, 3, 5), f(0.05), z(128), u8(2, 4, 5), f(0.08), z(10)], atol=1, axis=1)
    case("QLinearConcat_one", "QLinearConcat", [f(0.06), z(90), u8(2, 3), f(0.05), z(128)], atol=1, axis=0)
    case("QLinearAveragePool", "QLinearAveragePool", [u8(2, 3, 9, 8), f(0.05), z(128), f(0.04), z(100)], atol=1,
         kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    case("QLinearAveragePool_pads", "QLinearAveragePool", [i8(1, 2, 9, 8), f(0.05), z(4, np.int8), f(0.04), z(0, np.int8)], atol=1,
         kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    for last in (0, 1):
        case(f"QLinearGlobalAveragePool_{last}", "QLinearGlobalAveragePool", [u8(2, 6, 7, 5), f(0.05), z(128), f(0.02), z(100)],
             atol=1, channels_last=last)


def convolved(x, w, bias):
    """x [N, H, W, C] by w [M, C / 2, 3, 3] in two groups, with a border of one."""
    padded, (m, c, _, _), (n, h, v, _) = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), w.shape, x.shape
    y = np.zeros((n, h, v, m))
    for filter in range(m):
        for i, j in np.ndindex(3, 3):
            own = padded[:, i:i + h, j:j + v, filter // (m // 2) * c:][..., :c]
            y[..., filter] += own.astype(np.float64) @ w[filter, :, i, j]
    return y + bias


def channels_last():
    u8 = lambda *shape: RNG.integers(0, 256, shape).astype(np.uint8)  # noqa: E731
    f = lambda value: ("const", np.array(value, np.float32))  # noqa: E731
    z = lambda value, of=np.uint8: ("const", np.array(value, of))  # noqa: E731
    window = dict(kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    for name, more in (("plain", {}), ("dilated", {"dilations": [1, 2]}), ("groups", {"group": 2})):
        w = "const", RNG.integers(-128, 128, (6, 4 // more.get("group", 1), 3, 2)).astype(np.int8)
        case(f"QLinearConv_last_{name}", "QLinearConv",
             [u8(2, 9, 8, 4), f(0.05), z(120), w, f(0.02), z(0, np.int8), f(0.3), z(99), ("const", RNG.integers(-99, 99, 6).astype(np.int32))],
             atol=1, channels_last=1, **window, **more)
    case("QLinearAveragePool_last", "QLinearAveragePool", [u8(2, 9, 8, 3), f(0.05), z(128), f(0.04), z(100)], atol=1,
         channels_last=1, **window)
    case("NhwcMaxPool", "NhwcMaxPool", [u8(2, 9, 8, 3)], **window)
    x, w, bias, z4 = floats(1, 9, 8, 4), floats(6, 2, 3, 3), floats(6), floats(1, 9, 8, 6)
    for name, inner, more in (("NhwcConv", w.transpose(0, 2, 3, 1), {}), ("NhwcFusedConv", w, {"activation": "Relu"})):
        want = lambda z=0, relu=bool(more): [(lambda y: np.maximum(y, 0) if relu else y)(convolved(x, w, bias) + z)]  # noqa: E731
        case(name, name, [x, np.ascontiguousarray(inner), bias], oracle=want, group=2, pads=[1, 1, 1, 1], **more)
        if more:
            case(f"{name}_sum", name, [x, w, bias, z4], oracle=lambda want=want: want(z4), group=2, pads=[1, 1, 1, 1], **more)


def diffusion():
    from math import erf
    x, bias, skip = floats(2, 5, 24), floats(24), floats(2, 5, 24)

    def split_gelu():
        left, right = np.split((x + bias).astype(np.float64), 2, -1)
        return [left * right * 0.5 * (1 + np.vectorize(erf)(right / np.sqrt(2)))]

    case("bias_split_gelu", "BiasSplitGelu", [x, bias], oracle=split_gelu)
    case("bias_add", "BiasAdd", [x, bias, skip], oracle=lambda: [x + bias + skip])

    def softmax(s, axis):
        e = np.exp(s.astype(np.float64) - s.max(tuple(range(axis, s.ndim)), keepdims=True))
        return [e / e.sum(tuple(range(axis, s.ndim)), keepdims=True)]

    scores = floats(2, 3, 4, 5)
    for axis, mask in ((3, (2, 1, 1, 5)), (-1, (4, 5)), (2, (1, 3, 4, 5))):
        added = floats(*mask)
        case(f"bias_softmax_{axis}", "BiasSoftmax", [scores, added], axis=axis, is_inner_broadcast=1,
             oracle=lambda added=added, axis=axis % 4: softmax(scores + added, axis))
    for last in (0, 1):
        for activation in (0, 1):
            group_norms(last, activation)


def group_norms(last, activation):
    size, channels, groups = (2, 4, 3, 12), 12, 4
    put = lambda t: np.ascontiguousarray(t if last else np.moveaxis(t, -1, 1))  # noqa: E731
    x, gamma, beta, bias = floats(*size) * 3 + 1, floats(channels), floats(channels), floats(channels)

    def norm(s):
        g = s.astype(np.float64).reshape(2, 12, groups, channels // groups)
        y = (g - g.mean((1, 3), keepdims=True)) / np.sqrt(g.var((1, 3), keepdims=True) + 1e-4)
        y = y.reshape(size) * gamma + beta
        return put(y / (1 + np.exp(-y)) if activation else y)

    more = dict(groups=groups, epsilon=1e-4, channels_last=last, activation=activation)
    case(f"group_norm_{last}_{activation}", "GroupNorm", [put(x), gamma, beta], oracle=lambda: [norm(x)], **more)
    for name, skip in (("whole", floats(*size)), ("row", floats(2, 1, 1, channels)), ("matrix", floats(2, channels))):
        own = skip.reshape(2, 1, 1, channels) if skip.ndim == 2 else skip
        for b in (None, bias):
            s = x + own + (0 if b is None else b)
            case(f"skip_group_norm_{last}_{activation}_{name}_{b is not None}", "SkipGroupNorm",
                 [put(x), gamma, beta, skip if skip.ndim == 2 else put(skip), *([] if b is None else [b])], 0b11,
                 oracle=lambda s=s: [norm(s), put(s)], **more)


def quantised_embeddings():
    u8 = lambda *shape: ("const", RNG.integers(0, 256, shape).astype(np.uint8))  # noqa: E731
    scales = [("const", np.array(s, np.float32)) for s in (0.02, 0.01, 0.03, 0.01, 0.004)]
    zeros = [("const", np.array(z, np.uint8)) for z in (120, 128, 130, 3, 99)]
    ids = RNG.integers(0, 20, (2, 7)).astype(np.int32)
    segments = RNG.integers(0, 3, (2, 7)).astype(np.int32)
    mask = np.array([[1, 1, 1, 1, 0, 0, 0], [1] * 7], np.int32)
    tables = [u8(20, 16), u8(12, 16)]
    case("qembed_ln", "QEmbedLayerNormalization", [ids, segments, *tables, u8(3, 16), u8(16), u8(16), mask, *scales, *zeros], 0b11,
         epsilon=1e-5)
    case("qembed_ln_no_segments", "QEmbedLayerNormalization",
         [ids, None, *tables, None, u8(16), u8(16), None, *scales[:2], None, *scales[3:], *zeros[:2], None, *zeros[3:]], 0b11)


def quantised_attentions():
    def u8(*shape):
        return RNG.integers(0, 256, shape).astype(np.uint8)

    f = lambda value: ("const", np.array(value, np.float32))  # noqa: E731
    weights = "const", RNG.integers(-128, 128, (16, 48)).astype(np.int8)
    scales = "const", RNG.uniform(0.002, 0.01, 48).astype(np.float32)
    zero, none = ("const", np.array(120, np.uint8)), ("const", np.array(0, np.int8))
    bias = "const", floats(48)
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], np.int32)
    for name, w, more, attributes in (
        ("plain", f(0.004), [], {}), ("causal", f(0.004), [], {"unidirectional": 1}), ("mask", f(0.004), [mask], {}),
        ("columns", scales, [mask], {}), ("scale", scales, [], {"scale": 0.3}),
    ):
        padded = [*more, *[None] * (1 - len(more))]
        case(f"qattention_{name}", "QAttention", [u8(2, 5, 16), weights, bias, f(0.02), w, *padded, zero, none], num_heads=4, **attributes)
    case("qattention_past", "QAttention", [u8(2, 3, 16), weights, bias, f(0.02), f(0.004), None, zero, none, floats(2, 2, 4, 6, 4)],
         0b11, num_heads=4, unidirectional=1)


def blocks():
    """Codes of a few bits beside ONNX Runtime, in matrices that are large enough to be stored apart."""
    n = 70
    u8 = lambda *shape: RNG.integers(0, 256, shape).astype(np.uint8)  # noqa: E731
    scale = lambda *shape, dtype=np.float32: RNG.uniform(0.01, 0.1, shape).astype(dtype)  # noqa: E731

    def nbits(name, bits=4, block=32, k=96, rows=(2, 3), zeros=None, groups=None, bias=None, dtype=np.float32, error=1e-4,
              x=None, **attributes):
        count = -(-k // block)
        inputs = [floats(*rows, k, dtype=dtype) if x is None else x, ("const", u8(n, count, block * bits // 8)),
                  ("const", scale(n * count, dtype=dtype))]
        packed = ("const", u8(n * (-(-count * bits // 8)))) if zeros == "packed" else None
        inputs += [packed or (("const", floats(n, count)) if zeros == "float" else None),
                   ("const", groups(k, count)) if groups else None, ("const", floats(n)) if bias else None]
        while inputs[-1] is None:
            inputs.pop()
        case(f"nbits_{name}", "MatMulNBits", inputs, K=k, N=n, bits=bits, block_size=block, rtol=error, atol=error, **attributes)

    for bits in (2, 4, 8):
        for zeros in (None, "packed"):
            nbits(f"stored_{bits}_{zeros}", bits, zeros=zeros)
    nbits("stored_float", zeros="float")
    for block in (16, 64, 128, 256):
        nbits(f"stored_block_{block}", block=block, k=300, zeros="packed")
    nbits("stored_row", rows=(1,), k=70, block=16)
    nbits("stored_rows", rows=(40,), k=70, zeros="packed")
    nbits("stored_bias", bias=True)
    nbits("stored_f16", dtype=np.float16, error=2e-2)
    for rows in 1, 40:  # rows of 8 bits on both sides: of multiples of a 127th of each block's maximum, which neither rounds
        x = RNG.integers(-127, 128, (rows, 3, 32))
        x[..., 0] = 127
        nbits(f"narrow_{rows}", zeros="packed", accuracy_level=4, x=(x.reshape(rows, 96) / 64).astype(np.float32))
    nbits("groups_in_order", groups=lambda k, count: (np.arange(k) // 32).astype(np.int32))
    nbits("groups", groups=lambda k, count: RNG.integers(0, count, k).astype(np.int32))
    for kind, k, n, block, rows in ((0, 64, 12, 16, (3,)), (1, 96, 20, 64, (2, 40)), (1, 35, 7, 32, (1,)), (0, 1, 1, 16, (5,))):
        absmax = scale((k * n + block - 1) // block)
        for given in (False, True):
            packed = u8((k * n + 1) // 2)
            weights = [packed, absmax] if given else [("const", packed), ("const", absmax)]
            case(f"bnb4_{kind}_{k}_{given}", "MatMulBnb4", [floats(*rows, k), *weights], K=k, N=n, block_size=block, quant_type=kind)
    ids = RNG.integers(0, 20, (2, 5)).astype(np.int64)
    for bits in (4, 8):
        for zeros in (False, True):
            inputs = [("const", u8(20, 64 * bits // 8)), ids, ("const", scale(20, 4))]
            if zeros:
                inputs.append(("const", u8(20, 4 * bits // 8)))
            case(f"gather_blocks_{bits}_{zeros}", "GatherBlockQuantized", inputs, quantize_axis=1, block_size=16, bits=bits)
    import ml_dtypes
    for kind in (ml_dtypes.int4, ml_dtypes.uint4):
        low = -8 if kind == ml_dtypes.int4 else 0
        table = lambda *shape: ("const", RNG.integers(low, low + 16, shape).astype(kind))  # noqa: E731
        case(f"gather_blocks_{kind.__name__}", "GatherBlockQuantized", [table(20, 64), ids, ("const", scale(20, 4))],
             quantize_axis=1, block_size=16)
        case(f"gather_blocks_{kind.__name__}_rows", "GatherBlockQuantized",
             [table(32, 24), ids, ("const", scale(2, 24)), table(2, 24)], quantize_axis=0, block_size=16)


def quantised_products():
    """ONNX Runtime takes signed weights and unsigned activations on every CPU."""
    k, n = 40, 30
    u8, s8 = (lambda *shape: RNG.integers(0, 256, shape).astype(np.uint8)), (lambda *shape: RNG.integers(-128, 128, shape).astype(np.int8))
    scale = lambda *shape: RNG.uniform(0.01, 0.1, shape).astype(np.float32)  # noqa: E731
    w, ws, bias = ("const", s8(k, n)), ("const", scale(n)), ("const", floats(n))
    one = lambda value, kind=np.float32: ("const", np.array(value, kind))  # noqa: E731
    case("dynamic_quantize_matmul", "DynamicQuantizeMatMul", [floats(2, 3, k), w, ws])
    case("dynamic_quantize_matmul_bias", "DynamicQuantizeMatMul", [floats(5, k), w, one(0.02), one(0, np.int8), bias])
    case("matmul_integer_to_float", "MatMulIntegerToFloat", [u8(2, 3, k), w, one(0.1), ws, one(7, np.uint8), None, bias])
    case("matmul_integer_to_float_plain", "MatMulIntegerToFloat", [u8(4, k), ("const", u8(k, n)), one(0.1), one(0.2)])
    a = [u8(4, k), one(0.1), one(100, np.uint8)]
    case("qgemm", "QGemm", [*a, ("const", s8(n, k)), ws, ("const", np.zeros(n, np.int8)),
                            ("const", RNG.integers(-999, 999, n).astype(np.int32))], transB=1, alpha=0.5)
    case("qgemm_bytes", "QGemm", [*a, w, one(0.1), one(0, np.int8), None, one(3.0), one(128, np.uint8)], atol=1)


def quantised_recurrence():
    """The state is not rounded, which ONNX Runtime does to a 255th of its range in each step."""
    steps, batch, size, units = 7, 3, 12, 16
    x = floats(steps, batch, size)
    for name, kind, columns, more in (("i8", np.int8, False, {}), ("u8", np.uint8, False, {"direction": "reverse"}),
                                      ("columns", np.int8, True, {}), ("both", np.int8, True, {"direction": "bidirectional"})):
        ways, limits = 2 if name == "both" else 1, np.iinfo(kind)
        matrix = lambda rows: ("const", RNG.integers(limits.min, limits.max + 1, (ways, rows, 4 * units)).astype(kind))  # noqa: E731
        shape = (ways, 4 * units) if columns else (ways,)
        scale = lambda: ("const", RNG.uniform(0.002, 0.004, shape).astype(np.float32))  # noqa: E731
        zero = ("const", np.full(shape, 128 if kind == np.uint8 else 0, kind))
        bias, lengths = ("const", floats(ways, 8 * units)), np.array([7, 3, 5], np.int32)
        states = [floats(ways, batch, units), floats(ways, batch, units)] if name == "columns" else [None, None]
        case(f"quantised_lstm_{name}", "DynamicQuantizeLSTM",
             [x, matrix(size), matrix(units), bias, lengths if name == "u8" else None, *states, None, scale(), zero, scale(), zero],
             0b111, rtol=2e-2, atol=1e-2, hidden_size=units, **more)


def experts():
    t, d, h, e = 5, 32, 64, 4
    x, router = floats(t, d), floats(t, e)
    w = lambda *shape: ("const", floats(*shape) * 0.3)  # noqa: E731
    for name, k, more in (("relu", 1, {}), ("gelu", 2, {}), ("silu", 4, {"normalize_routing_weights": 1}), ("identity", 2, {}),
                          ("swiglu", 2, {"swiglu_fusion": 1, "activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": 0.9})):
        rows = 2 * h if name == "swiglu" else h
        weights = [w(e, rows, d), w(e, rows), w(e, d, h), w(e, d)]
        case(f"moe_{name}", "MoE", [x, router, *weights], k=k, activation_type=name, **more)
        case(f"moe_{name}_plain", "MoE", [x.reshape(1, t, d), router, weights[0], None, weights[2]], k=k, activation_type=name, **more)

    # The forms that ONNX Runtime's CPU lacks are others of the same numbers.
    gate, linear, second = floats(e, h, d), floats(e, h, d), w(e, d, h)
    mixed = np.stack([gate, linear], 2).reshape(e, 2 * h, d)
    more = dict(k=2, activation_type="swiglu", normalize_routing_weights=1)
    wanted = [x, router, ("const", mixed), None, second]
    case("moe_swiglu_apart", "MoE", [x, router, ("const", gate), None, second, None, ("const", linear)],
         oracle=(wanted, {"swiglu_fusion": 1}), **more)
    case("moe_swiglu_halves", "MoE", [x, router, ("const", np.concatenate([gate, linear], 1)), None, second],
         oracle=(wanted, {"swiglu_fusion": 1}), swiglu_fusion=2, **more)
    for bits in (4, 8):
        for block in (0, 16, 32):
            for zeros in (False, True):
                quantised_experts(bits, block, zeros)


def quantised_experts(bits, block, zeros):
    t, d, h, e = 5, 32, 64, 4
    u8 = lambda *shape: ("const", RNG.integers(0, 256, shape).astype(np.uint8))  # noqa: E731
    scale = lambda *shape: ("const", RNG.uniform(0.01, 0.04, shape).astype(np.float32) * 16 / 2**bits)  # noqa: E731
    x, router = floats(t, d), floats(t, e)
    for name, more in (("silu", {}), ("swiglu", {"swiglu_fusion": 1}), ("relu", {"weights": True})):
        n = 2 * h if name == "swiglu" else h
        layers = []
        for rows, columns in ((n, d), (d, h)):
            blocks = [columns // block] if block else []
            zero = (u8(e, rows, -(-columns // block * bits // 8)) if block else u8(e, rows * bits // 8)) if zeros else None
            layers.append((u8(e, rows, columns * bits // 8), scale(e, rows, *blocks), ("const", floats(e, rows)), zero))
        (w1, s1, b1, z1), (w2, s2, b2, z2) = layers
        inputs = [x, router, w1, s1, b1, w2, s2, b2, None, None, None, z1, z2, None]
        inputs.append(np.abs(floats(t, e)) if more.pop("weights", False) else None)
        while inputs[-1] is None:
            inputs.pop()
        # Blocks of 8 bits it multiplies by rows of bytes.
        error = 0.1 if bits == 8 and block else 2e-3
        case(f"qmoe_{bits}_{block}_{zeros}_{name}", "QMoE", inputs, k=2, activation_type=name, expert_weight_bits=bits,
             normalize_routing_weights=int(name != "silu"), rtol=error, atol=error, **({"block_size": block} if block else {}), **more)


def rotary():
    caches = [floats(20, 4), floats(20, 4)]
    ids = RNG.integers(0, 20, (2, 5)).astype(np.int64)
    for interleaved in (0, 1):
        case(f"rotary_{interleaved}", "RotaryEmbedding", [floats(2, 5, 24), ids, *caches], interleaved=interleaved)
    case("rotary_4d", "RotaryEmbedding", [floats(2, 3, 5, 8), ids, *caches])
    case("rotary_offset", "RotaryEmbedding", [floats(2, 5, 24), np.array([3], np.int64), *caches])
    case("rotary_partial", "RotaryEmbedding", [floats(2, 5, 36), ids, *caches], num_heads=3, rotary_embedding_dim=8)


def attentions():
    weights, bias = ("const", floats(24, 72) * 0.2), ("const", floats(72))
    x, past = floats(2, 5, 24), floats(2, 2, 3, 4, 8)
    case("attention", "Attention", [x, weights, bias], num_heads=3)
    case("attention_causal", "Attention", [x, weights, bias], num_heads=3, unidirectional=1)
    case("attention_past", "Attention", [x, weights, bias, None, past], 0b11, num_heads=3, unidirectional=1)
    case("attention_lengths", "Attention", [x, weights, bias, np.array([3, 5], np.int32)], num_heads=3)
    case("attention_ends", "Attention", [x, weights, bias, np.array([4, 5, 1, 0], np.int32)], num_heads=3)
    raw = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    case("attention_raw", "Attention", [x, weights, bias, raw], num_heads=3)
    case("attention_raw3", "Attention", [x, weights, bias, RNG.integers(0, 2, (2, 5, 5)).astype(np.int32) | np.eye(5, dtype=np.int32)], num_heads=3)
    case("attention_bias", "Attention", [x, weights, bias, raw, None, floats(1, 3, 5, 5)], num_heads=3)
    case("attention_scale", "Attention", [x, weights, bias], num_heads=3, scale=0.7)
    case("attention_widths", "Attention", [x, ("const", floats(24, 60) * 0.2), ("const", floats(60))], num_heads=3,
         qkv_hidden_sizes=[24, 24, 12])
    q, k, v = floats(2, 5, 24), floats(2, 7, 24), floats(2, 7, 24)
    case("mha", "MultiHeadAttention", [q, k, v], num_heads=3)
    case("mha_bias", "MultiHeadAttention", [q, k, v, floats(72)], num_heads=3)
    case("mha_mask", "MultiHeadAttention", [q, k, v, None, np.array([[1] * 5 + [0] * 2, [1] * 7], np.int32)], num_heads=3)
    case("mha_lengths", "MultiHeadAttention", [q, k, v, None, np.array([4, 7], np.int32)], num_heads=3)
    case("mha_attention_bias", "MultiHeadAttention", [q, k, v, None, None, floats(2, 3, 5, 7)], num_heads=3)
    case("mha_kv4", "MultiHeadAttention", [q, floats(2, 3, 7, 8), floats(2, 3, 7, 8)], num_heads=3)
    qkv, kv = floats(2, 5, 3, 3, 8), floats(2, 7, 3, 2, 8)
    apart = lambda t: [np.ascontiguousarray(t[:, :, :, i].reshape(2, -1, 24)) for i in range(t.shape[3])]
    case("mha_packed", "MultiHeadAttention", [qkv], num_heads=3, oracle=apart(qkv))
    case("mha_packed_kv", "MultiHeadAttention", [q, kv], num_heads=3, oracle=[q, *apart(kv)])
    case("mha_past", "MultiHeadAttention", [q, floats(2, 5, 24), floats(2, 5, 24), None, None, None,
                                            floats(2, 3, 4, 8), floats(2, 3, 4, 8)], 0b111, num_heads=3, unidirectional=1)


def grouped():
    def gqa(name, s, past, ends, outputs=0b111, packed=False, d=8, **more):
        total = np.array(past + s, np.int32)
        qkv = [floats(2, s, 8 * d), None, None] if packed else [floats(2, s, 4 * d), floats(2, s, 2 * d),
                                                                          floats(2, s, 2 * d)]
        cache = [floats(2, 2, past, d), floats(2, 2, past, d)]
        case(name, "GroupQueryAttention", [*qkv, *cache, np.array(ends, np.int32), ("const", total), *more.pop("rest", [])],
             outputs, num_heads=4, kv_num_heads=2, **more)

    gqa("gqa_prompt", 5, 0, [4, 4])
    gqa("gqa_packed", 5, 0, [4, 4], packed=True)
    gqa("gqa_decode", 1, 6, [6, 6])
    gqa("gqa_window", 7, 0, [6, 6], local_window_size=3)
    gqa("gqa_softcap", 5, 0, [4, 4], softcap=2.0)
    caches = [floats(16, 8), floats(16, 8)]
    gqa("gqa_rotary", 5, 0, [4, 4], rest=caches, d=16, do_rotary=1)
    gqa("gqa_rotary_decode", 1, 6, [6, 6], rest=caches, d=16, do_rotary=1)
    gqa("gqa_rotary_interleaved", 1, 6, [6, 6], rest=caches, d=16, do_rotary=1, rotary_interleaved=1)
    for s, past in ((5, 0), (1, 6)):
        gqa(f"gqa_smooth_{s}", s, past, [past + s - 1] * 2, smooth_softmax=1)
        gqa(f"gqa_sink_{s}", s, past, [past + s - 1] * 2, rest=[None, None, None, None, floats(4)])
    gqa("gqa_sink_window", 7, 0, [6, 6], rest=[None, None, None, None, floats(4)], local_window_size=3)
    gqa("gqa_ragged_prompt", 5, 0, [2, 4], check=lambda o: [o[0][0, :3], o[0][1], o[1][0, :, :3], o[1][1]])


def main():
    import onnxruntime
    p = argparse.ArgumentParser()
    p.add_argument("--only", default="")
    p.add_argument("--server", default=backend.SERVER)
    args = p.parse_args()
    for family in (activations, normalisations, products, operator_form, channels_last, diffusion, quantised_embeddings, quantised_attentions, blocks, quantised_products, quantised_recurrence, experts, rotary, attentions, grouped):
        family()
    options = onnxruntime.SessionOptions()
    # Without it, sums of two products saturate in 16 bits on processors without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    server, passed, failed = backend.Server(args.server), 0, 0
    for name, op, inputs, outputs, rtol, atol, domain, check, oracle, attributes in CASES:
        if args.only not in name:
            continue
        model, feeds, names = build(op, inputs, outputs, domain, attributes)
        asked, known = model, feeds
        if isinstance(oracle, (list, tuple)):
            given, more = oracle if isinstance(oracle, tuple) else (oracle, {})
            asked, known = build(op, given, outputs, domain, {**attributes, **more})[:2]
        try:
            if callable(oracle):
                want = oracle()
            else:
                session = onnxruntime.InferenceSession(asked.SerializeToString(), options, providers=["CPUExecutionProvider"])
                want = session.run(names, known)
        except Exception as error:  # of no common class
            failed += 1
            print(f"FAIL {name}: ONNX Runtime refuses it: " + " ".join(str(error).split())[:300])
            continue
        try:
            got, _ = server.run(model, feeds, names)
            if check:
                got, want = check(got), check(want)
            for g, w in zip(got, want):
                np.testing.assert_allclose(g, w, rtol=rtol, atol=atol)
            passed += 1
        except (backend.Refused, AssertionError) as error:
            failed += 1
            print(f"FAIL {name}: " + " ".join(str(error).split())[:300])
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
