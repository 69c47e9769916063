"""Rows of operator_graphs.OPERATORS outside ONNX's own domain: com.microsoft against ONNX Runtime, FlexAttention."""
import numpy as np
from onnx import TensorProto, helper

from operator_graphs import ints, operator

MS = "com.microsoft."


def ms(*names):
    """Rows of com.microsoft; ONNX Runtime knows opsets up to 21 of the rest for certain."""
    return operator(*(MS + n for n in names), since=13, until=21)


#===----------------------------------------------------------------------===#
# Activations, normalisation
#===----------------------------------------------------------------------===#


@ms("Gelu", "QuickGelu", "FastGelu", "BiasGelu")
def gelus(d):
    x = d.array(d.shape(1, 4))
    bias = d.op == MS + "BiasGelu" or d.op == MS + "FastGelu" and d.maybe()
    attributes = {"alpha": d.r.choice([1.0, 1.702])} if d.op == MS + "QuickGelu" else {}
    return attributes, [x, d.array(x.shape[-1:])] if bias else [x], 1, [1]


@ms("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_norm(d):
    b, length, width = d.r.choice([1, 2, 3]), d.r.choice([1, 2, 5]), d.r.choice([2, 7, 16])
    lead = [[b, length], [length]][d.maybe(0.2)]
    skip = d.r.choice([lead, [length], [1, length]]) if len(lead) == 2 else lead
    inputs = [d.array([*lead, width]), d.array([*skip, width]), d.array([width])]
    if d.op == MS + "SkipLayerNormalization" and d.maybe():
        inputs.append(d.array([width]))
    return {"epsilon": d.r.choice([1e-5, 1e-3])}, inputs, 1, [2, 3]


@ms("EmbedLayerNormalization")
def embed(d):
    b, length, width = d.r.choice([1, 2, 3]), d.r.choice([1, 5, 7]), d.r.choice([4, 16])
    ids = lambda count: d.data.integers(0, count, [b, length]).astype(np.int32)  # noqa: E731
    segments = d.maybe()
    inputs = [ids(13), ids(3) if segments else None, d.array([13, width]), d.array([11, width]),
              d.array([3, width]) if segments else None, d.array([width]), d.array([width])]
    if d.maybe():
        inputs.append((np.arange(length) < d.data.integers(1, length + 1, [b, 1])).astype(np.int32))
    d.form.kinds = [TensorProto.FLOAT, TensorProto.INT32]
    return {"epsilon": 1e-5}, inputs, 2, [2, 3, 4, 5, 6]


#===----------------------------------------------------------------------===#
# Products
#===----------------------------------------------------------------------===#


@ms("FusedMatMul")
def fused_matmul(d):
    lead, m, k, n, ta, tb = d.shape(0, 2, 1, 12), d.size(1), d.size(1), d.size(1), d.r.randint(0, 1), d.r.randint(0, 1)
    a, b = d.array([*lead, *([k, m] if ta else [m, k])]), d.array([*lead, *([n, k] if tb else [k, n])])
    attributes = {"transA": ta, "transB": tb, "alpha": d.r.choice([1.0, 0.5])}
    if len(lead) == 1 and d.maybe(0.3):  # the batch stands before the columns
        a, attributes["transBatchA"] = np.ascontiguousarray(np.moveaxis(a, 0, -2)), 1
    elif not lead and d.maybe(0.2):
        a = d.array([k])
    return attributes, [a, b], 1, [0, 1]


@ms("DynamicQuantizeMatMul", "MatMulIntegerToFloat")
def quantised_matmul(d):
    m, k, n = d.size(1), d.r.choice([1, 7, 40]), d.r.choice([1, 5, 50])
    # In 7 bits: on processors without VNNI ONNX Runtime adds pairs of products in 16 bits, which saturate.
    weights = d.array([k, n], "int8", -64, 63)
    scale = d.array([n] if d.maybe() else [], low=0.01, high=0.1)
    zero = np.zeros(scale.shape, "int8")  # ONNX Runtime's kernels take no others of a column
    bias = [d.array([n])] if d.maybe() else []
    if d.op == MS + "DynamicQuantizeMatMul":
        return {}, [d.array([2, m, k]), weights, scale, zero, *bias], 1, [1, 2, 3, 4]
    return {}, [d.array([m, k], "uint8", 0, 200), weights, np.asarray(d.r.uniform(0.01, 0.1), "float32"), scale,
                np.asarray(d.r.randint(0, 20), "uint8"), zero, *bias], 1, [1, 2, 3, 4, 5, 6]


@ms("MatMulNBits")
def nbits(d):
    bits, block = d.r.choice([2, 4, 4, 8]), d.r.choice([16, 32, 64])
    k, n = d.r.choice([16, 40, 64, 96]), d.r.choice([1, 5, 16, 70])
    blocks = -(-k // block)
    packed = lambda *shape: d.data.integers(0, 256, shape).astype(np.uint8)  # noqa: E731
    inputs = [d.array([*d.shape(1, 2, 1, 20), k], low=-1, high=1), packed(n, blocks, block * bits // 8),
              d.array([n * blocks], low=0.01, high=0.1)]
    if d.maybe():
        inputs.append(packed(n * (-(-blocks * bits // 8))))
    if bits == 4 and len(inputs) == 3 and d.maybe(0.3):  # with g_idx ONNX Runtime reads 4 bits and no zero points, whatever there is
        inputs += [None, d.data.integers(0, blocks, k).astype(np.int32)]
    d.form.fixed = (1, 2, 3, 4)
    return {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": 1}, inputs


#===----------------------------------------------------------------------===#
# Attention
#===----------------------------------------------------------------------===#


@ms("RotaryEmbedding")
def rotary(d):
    b, heads, length, width, most = d.r.choice([1, 2, 3]), d.r.choice([1, 2, 3]), d.r.choice([1, 3, 7]), d.r.choice([4, 8]), 13
    x = d.array([b, heads, length, width] if d.maybe(0.3) else [b, length, heads * width])
    at = ints([d.r.randint(0, most - length)]) if d.maybe() else d.data.integers(0, most, [b, length]).astype(np.int64)
    cosine, sine = d.array([most, width // 2]), d.array([most, width // 2])
    return {"interleaved": d.r.randint(0, 1)}, [x, at, cosine, sine], 1, [2, 3]


@ms("Attention")
def packed_attention(d):
    b, length, heads, per, inner = d.r.choice([1, 2, 3]), d.r.choice([1, 2, 5, 7]), d.r.choice([1, 2, 3]), d.r.choice([2, 8]), 6
    width = heads * per
    inputs = [d.array([b, length, inner]), d.array([inner, 3 * width], low=-1, high=1), d.array([3 * width])]
    attributes = {"num_heads": heads}
    mask = d.r.choice(["none", "lengths", "raw", "raw"])
    if mask == "lengths":
        inputs.append(d.data.integers(1, length + 1, [b]).astype(np.int32))
    elif mask == "raw":
        inputs.append((np.arange(length) < d.data.integers(1, length + 1, [b, 1])).astype(np.int32))
    elif d.maybe():
        inputs += [None, None, d.array([1, heads, length, length])]
    if mask == "none" and d.maybe():
        attributes["unidirectional"] = 1
    if d.maybe(0.3):
        attributes["scale"] = 0.7
    return attributes, inputs, 1, [1, 2]


@ms("MultiHeadAttention")
def multi_head(d):
    b, lq, lk, heads, per = d.r.choice([1, 2, 3]), d.r.choice([1, 2, 5]), d.r.choice([1, 3, 7]), d.r.choice([1, 2, 3]), d.r.choice([2, 8])
    width = heads * per
    inputs = [d.array([b, lq, width]), d.array([b, lk, width]), d.array([b, lk, width])]
    attributes = {"num_heads": heads}
    inputs.append(d.array([3 * width]) if d.maybe(0.4) else None)
    inputs.append((np.arange(lk) < d.data.integers(1, lk + 1, [b, 1])).astype(np.int32) if d.maybe(0.4) else None)
    inputs.append(d.array([b, heads, lq, lk]) if d.maybe(0.3) else None)
    if lq == lk and d.maybe():
        attributes["unidirectional"] = 1
    while inputs[-1] is None:
        inputs.pop()
    return attributes, inputs, 1, [3]


@ms("GroupQueryAttention")
def grouped(d):
    b, kv, group, per = d.r.choice([1, 2, 3]), d.r.choice([1, 2]), d.r.choice([1, 2, 3]), 16
    past = d.r.choice([0, 0, 1, 5])
    new = 1 if past else d.r.choice([1, 2, 7])
    rows = lambda heads: d.array([b, new, heads * per])  # noqa: E731
    inputs = [rows(group * kv), rows(kv), rows(kv), d.array([b, kv, past, per]), d.array([b, kv, past, per]),
              np.full([b], past + new - 1, np.int32), np.asarray(past + new, np.int32)]
    attributes = {"num_heads": group * kv, "kv_num_heads": kv}
    if d.maybe(0.3):
        attributes["local_window_size"] = d.r.choice([1, 3])
    if d.maybe(0.3):
        attributes["softcap"] = 2.0
    if d.maybe(0.4):
        attributes.update(do_rotary=1, rotary_interleaved=d.r.randint(0, 1))
        inputs += [d.array([13, per // 2]), d.array([13, per // 2])]
    return attributes, inputs, 3, [6, 7, 8]


def modifier(d, name):
    """One tensor to one of its shape."""
    value = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, None)  # noqa: E731
    constant = helper.make_node("Constant", [], ["c"], value_float=d.r.choice([0.5, 2.0]))
    nodes = d.r.choice([[constant, helper.make_node("Mul", ["s", "c"], ["t"])], [helper.make_node("Tanh", ["s"], ["t"])],
                        [constant, helper.make_node("Sub", ["s", "c"], ["u"]), helper.make_node("Relu", ["u"], ["t"])]])
    return helper.make_graph(nodes, name, [value("s")], [value("t")])


@operator("ai.onnx.preview.FlexAttention", since=23)
def flex(d):
    b, group, heads, lq, lk, width = (d.r.choice([1, 2, 3]) for _ in range(6))
    attributes = {name: modifier(d, name) for name in ("score_mod", "prob_mod") if d.maybe(0.4)}
    if d.maybe(0.3):
        attributes["scale"] = 0.3
    return attributes, [d.array([b, group * heads, lq, width]), d.array([b, heads, lk, width]), d.array([b, heads, lk, d.size(1)])]
