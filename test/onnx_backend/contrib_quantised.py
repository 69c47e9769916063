"""Operators of com.microsoft on bytes and on blocks of a few bits."""
import ml_dtypes
import numpy as np

from contrib_cases import RNG, case, floats


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
        # On AVX2 without VNNI ONNX Runtime adds two products in 16 bits, which saturates: weights of 7 bits do not.
        w = "const", RNG.integers(-64, 64, (6, 4 // more.get("group", 1), 3, 2)).astype(np.int8)
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
