"""Operators of com.microsoft on floats."""
from math import erf

import numpy as np

from contrib_cases import RNG, case, floats


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


def diffusion():
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
    def opened(*arrays):
        return [None if t is None else ("open", t) for t in arrays]

    long = np.array([4, 7, 0, 5, 10, 0, 7, 14], np.int32)  # 3 * 2 + 2, of which 2 are read
    case("mha_mask_long", "MultiHeadAttention", [q, k, v, None, long], num_heads=3)
    case("mha_open", "MultiHeadAttention", opened(q, k, v), num_heads=3)
    case("mha_open_scale", "MultiHeadAttention", opened(q, k, v), num_heads=3, scale=0.7)
    case("mha_open_mask", "MultiHeadAttention", opened(q, k, v, None, np.array([4, 7], np.int32)), num_heads=3)
    case("mha_open_mask_long", "MultiHeadAttention", opened(q, k, v, None, long), num_heads=3)
    case("mha_scores", "MultiHeadAttention", [q, k, v], 0b1001, num_heads=3)
    case("mha_scores_open", "MultiHeadAttention", opened(q, k, v), 0b1001, num_heads=3)
    case("mha_scores_masked", "MultiHeadAttention", [q, k, v, None, np.array([4, 7], np.int32), floats(2, 3, 5, 7)], 0b1001,
         num_heads=3, scale=0.7)
    case("mha_scores_causal", "MultiHeadAttention", [q, floats(2, 5, 24), floats(2, 5, 24)], 0b1001, num_heads=3,
         unidirectional=1)
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
    def buffered(name, room, total, bias, form=lambda t: t, **more):
        operands = [floats(2, 1, 32), floats(2, 1, 16), floats(2, 1, 16), floats(2, 2, room, 8), floats(2, 2, room, 8),
                    np.array([total - 1, total - 3], np.int32), np.array([total], np.int32)]
        shift = [] if bias is None else [None] * 3 + [floats(*bias)]
        case(name, "GroupQueryAttention", [None if t is None else form(t) for t in operands + shift], 0b111, num_heads=4,
             kv_num_heads=2, check=lambda o: [o[0], *(t[i, :, :n] for t in o[1:] for i, n in ((0, total), (1, total - 2)))],
             **more)

    buffered("gqa_room_bias", 16, 6, (2, 4, 1, 6))
    buffered("gqa_room_one_bias", 16, 6, (1, 1, 1, 6), local_window_size=3)
    buffered("gqa_room_bias_full", 16, 16, (2, 4, 1, 16))
    buffered("gqa_room_bias_open", 16, 6, (2, 4, 1, 6), lambda t: ("open", t))
    buffered("gqa_room_bias_grown", 5, 6, (2, 4, 1, 6), lambda t: ("open", t))
    buffered("gqa_room_open", 16, 6, None, lambda t: ("open", t))
    gqa("gqa_ragged_prompt", 5, 0, [2, 4], check=lambda o: [o[0][0, :3], o[0][1], o[1][0, :, :3], o[1][1]])
