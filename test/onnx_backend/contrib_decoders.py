"""Attentions of com.microsoft for decoders and for packed batches, and GemmFloat8. Where ONNX Runtime's CPU lacks the
operator, what its documentation says is computed in NumPy."""
import ml_dtypes
import numpy as np
import onnx

from contrib_cases import RNG, case, floats


def expect(name, op, inputs, want=None, outputs=1, **attributes):
    """`want`: results by NumPy."""
    case(name, op, inputs, outputs, rtol=1e-4, atol=1e-5, oracle=want and (lambda: want), **attributes)


def attention(q, k, v, bias=0.0):
    """Of [heads, length, width]."""
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def heads_of(x, heads):
    """[T, C] as [heads, T, C / heads]."""
    return np.swapaxes(x.reshape(len(x), heads, -1), 0, 1)


def packed():
    heads, width = 4, 8
    for lengths, longest in (([3, 1, 5], 5), ([2], 4), ([4, 4], 4), ([1, 0, 3], 3)):
        batch, tokens = len(lengths), sum(lengths)
        real = [b * longest + s for b, n in enumerate(lengths) for s in range(n)]
        padding = [p for p in range(batch * longest) if p not in real]
        offsets = np.array(real + padding, np.int32).reshape(batch, longest)
        ends = np.cumsum([0] + lengths).astype(np.int32)

        def reference(q, k, v, bias):
            rows = []
            for b, n in enumerate(lengths):
                part = slice(ends[b], ends[b + 1])
                own = 0.0 if bias is None else bias[min(b, len(bias) - 1), :, :n, :n]
                y = attention(*(heads_of(t[part], heads) for t in (q, k, v)), own) if n else np.zeros((heads, 0, v.shape[1] // heads))
                rows.append(np.swapaxes(y, 0, 1).reshape(n, v.shape[1]))
            return np.concatenate(rows).astype(np.float32)

        for name, bias in (("", None), ("_bias", floats(batch, heads, longest, longest)), ("_one_bias", floats(1, heads, longest, longest))):
            x, w, shift = floats(tokens, 16), floats(16, 3 * heads * width), floats(3 * heads * width)
            q, k, v = np.split(x @ w + shift, 3, axis=1)
            label = f"{lengths}{name}"
            expect(f"packed_attention_{label}", "PackedAttention", [x, w, shift, offsets, ends, bias],
                  [reference(q, k, v, bias)], num_heads=heads)
            q, k, v = floats(tokens, heads * width), floats(tokens, heads * width), floats(tokens, heads * width)
            expect(f"packed_mha_{label}", "PackedMultiHeadAttention", [q, k, v, None, offsets, ends, bias],
                  [reference(q, k, v, bias)], num_heads=heads)
            one, two, three = np.split(shift, 3)
            expect(f"packed_mha_shift_{label}", "PackedMultiHeadAttention", [q, k, v, shift, offsets, ends, bias],
                  [reference(q + one, k + two, v + three, bias)], num_heads=heads)
            together = np.stack([t.reshape(tokens, heads, width) for t in (q, k, v)], 2)
            expect(f"packed_mha_one_{label}", "PackedMultiHeadAttention",
                  [together, None, None, None, offsets, ends, bias], [reference(q, k, v, bias)], num_heads=heads)


def decoder():
    batch, heads, width, past = 2, 4, 8, 6
    size = heads * width
    q, k, v = floats(batch, 1, size), floats(batch, 1, size), floats(batch, 1, size)
    before = [floats(batch, heads, past, width), floats(batch, heads, past, width)]
    mask = np.ones((batch, past + 1), np.int32)
    mask[1, :3] = 0
    op= "DecoderMaskedMultiHeadAttention"
    number = lambda n: np.array([n], np.int32)  # noqa: E731
    expect("decoder_cross", op, [q, floats(batch, heads, 9, width), floats(batch, heads, 9, width)], num_heads=heads)
    whole = floats(batch, heads, 9, width), floats(batch, heads, 9, width)
    seen = np.ones((batch, 9), np.int32)
    seen[0, 5:] = 0
    expect("decoder_cross_mask", op, [q, *whole, seen], num_heads=heads, mask_filter_value=-50.0)
    for length in (0, 3, 5):
        inputs = [q, k, v, None, None, *before, number(length)]
        expect(f"decoder_shared_{length}", op, inputs, outputs=0b111, num_heads=heads, past_present_share_buffer=1)
        expect(f"decoder_shared_open_{length}", op, [None if t is None else ("open", t) for t in inputs], outputs=0b111,
               num_heads=heads, past_present_share_buffer=1)
        shift = floats(3 * size)
        expect(f"decoder_shared_shift_{length}", op, [*inputs, None, None, shift], outputs=0b111, num_heads=heads,
              past_present_share_buffer=1, scale=0.3)

    def step(q, k, v, visible):
        keys, values = (np.concatenate([p, t.reshape(batch, 1, heads, width).swapaxes(1, 2)], 2) for p, t in zip(before, (k, v)))
        hidden = np.where(visible, 0.0, -10000.0)[:, None, None]
        y = attention(q.reshape(batch, 1, heads, width).swapaxes(1, 2), keys, values, hidden)
        return [y.swapaxes(1, 2).reshape(batch, 1, size).astype(np.float32), keys, values]

    expect("decoder_appended", op, [q, k, v, mask, None, *before], step(q, k, v, mask), 0b111, num_heads=heads)
    expect("decoder_packed", op, [np.concatenate([q, k, v], 2), None, None, None, None, *before],
          step(q, k, v, np.ones_like(mask)), 0b111, num_heads=heads)
    x, w, shift = floats(batch, 1, 16), floats(16, 3 * size), floats(3 * size)
    parts = np.split(x @ w + shift, 3, axis=2)
    y, keys, values = step(*parts, mask)
    expect("decoder_self", "DecoderMaskedSelfAttention", [x, w, shift, mask, np.stack(before)],
          [y, np.stack([keys, values])], 0b11, num_heads=heads)


def sparse():
    heads, shared, width, block, blocks, room = 4, 2, 8, 16, 4, 64
    layouts = [np.tril(np.ones((blocks, blocks), bool)), np.eye(blocks, dtype=bool)]
    layouts[1][2:, 0] = True
    columns = [[c for row in layout for c in np.flatnonzero(row)] for layout in layouts]
    longest = max(map(len, columns))
    columns = np.array([c + [-1] * (longest - len(c)) for c in columns], np.int32)
    rows = np.array([np.cumsum([0, *layout.sum(1)]) for layout in layouts], np.int32)
    for name, queries, totals in (("prompt", 40, [40, 40]), ("one_block", 16, [16, 16]), ("step", 1, [39, 20]), ("step_full", 1, [64, 1])):
        batch, total = 2, max(totals)
        q, k, v = floats(batch, queries, heads * width), floats(batch, queries, shared * width), floats(batch, queries, shared * width)
        caches = [floats(batch, shared, room, width), floats(batch, shared, room, width)]
        after, y = [c.copy() for c in caches], np.zeros((batch, queries, heads, width), np.float32)
        for b in range(batch):
            first = 0 if queries == total else totals[b] - queries
            for cache, t in zip(after, (k, v)):
                cache[b, :, first:first + queries] = t[b].reshape(queries, shared, width).swapaxes(0, 1)
            for h in range(heads):
                i, j = np.arange(queries)[:, None] + first, np.arange(totals[b])[None]
                visible = (j <= i) & layouts[h % 2][i // block, j // block]
                part = [c[b, h // 2, :totals[b]] for c in after]
                y[b, :, h] = attention(q[b, :, h * width:(h + 1) * width], *part, np.where(visible, 0.0, -np.inf))
        expect(f"sparse_{name}", "SparseAttention",
              [q, k, v, *caches, rows, columns, np.array([total], np.int32), np.array(totals, np.int32)],
              [y.reshape(batch, queries, -1), *after], 0b111, num_heads=heads, kv_num_heads=shared, sparse_block_size=block)


def float8_products():
    a, b, c = floats(5, 16), floats(7, 16), floats(5, 7)
    one = lambda value: np.array([value], np.float32)  # noqa: E731
    expect("gemm_f32", "GemmFloat8", [a, b, c], [0.5 * a @ b.T + 2 * c], transB=1, alpha=0.5, beta=2.0)
    expect("gemm_relu", "GemmFloat8", [a.T.copy(), b.T.copy()], [np.maximum(a @ b.T, 0)], transA=1, activation="RELU")
    narrow = ml_dtypes.float8_e4m3fn
    p, q = a.astype(narrow), b.astype(ml_dtypes.float8_e5m2)
    exact = p.astype(np.float32) @ q.astype(np.float32).T
    expect("gemm_f8", "GemmFloat8", [p, q, None, one(2.0), one(0.25), one(1.0)], [0.5 * exact], transB=1)
    expect("gemm_f8_result", "GemmFloat8", [p, q, None, one(2.0), one(0.25), one(3.0)], [(1.5 * exact).astype(narrow)],
           check=lambda outputs: [outputs[0].astype(np.float32)], transB=1, dtype=int(onnx.TensorProto.FLOAT8E4M3FN))
