"""Mixtures of experts of com.microsoft, on floats and on blocks of a few bits."""
import numpy as np

from contrib_cases import RNG, case, floats


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


def routers():
    """Equal scores, of which the last is taken, and scores that are no number."""
    d, h, e = 32, 16, 4
    nan, inf = np.nan, np.inf
    router = np.array([[1, 1, 1, 1], [2, 1, 1, 1], [1, 2, 1, 1], [0, 1, 1, 0], [0, -0.0, 0, -0.0], [nan, 1, 1, 0],
                       [1, nan, 0, 2], [1, 2, nan, nan], [1, 0, 2, nan], [3, nan, 2, 1], [nan] * 4, [inf, inf, 0, 1],
                       [-inf] * 4, [-inf, -inf, 1, -inf]], np.float32)
    x, signed = floats(len(router), d), floats(len(router), e)
    first, second = ("const", floats(e, h, d)), ("const", floats(e, d, h))
    codes = [("const", RNG.integers(0, 256, shape).astype(np.uint8)) for shape in ((e, h, d // 2), (e, d, h // 2))]
    scales = [("const", RNG.uniform(0.01, 0.04, (e, rows)).astype(np.float32)) for rows in (h, d)]
    for k in (1, 2, 3):
        for normalised in (0, 1):
            more = dict(k=k, activation_type="silu", normalize_routing_weights=normalised)
            case(f"moe_router_{k}_{normalised}", "MoE", [x, router, first, None, second], **more)
            inputs = [x, router, codes[0], scales[0], None, codes[1], scales[1]]
            case(f"qmoe_router_{k}_{normalised}", "QMoE", inputs, rtol=2e-3, atol=2e-3, expert_weight_bits=4, **more)
            # Without a NaN among the first k of a row, whose place among the chosen is that of a heap.
            rows = ~np.isnan(router[:, :k]).any(1)
            given = [x[rows], router[rows], *inputs[2:], *[None] * 7, signed[rows]]
            case(f"qmoe_weights_{k}_{normalised}", "QMoE", given, rtol=2e-3, atol=2e-3, expert_weight_bits=4, **more)
