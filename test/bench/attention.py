"""The attention cases of ./dev bench: one attention each, as an ONNX graph that attnc, ONNX Runtime and OpenVINO
read, and as PyTorch functions. Masks come from index arithmetic (Range, Less), never from a constant."""
import dataclasses
import math

import numpy as np


@dataclasses.dataclass
class Case:
    kind: str          # dense | causal | window | additive | decode
    batch: int
    heads: int
    queries: int
    keys: int
    size: int          # of a head; of the hidden layer for additive
    window: int = 0
    rotate: int = 1    # sets of inputs that runs take in turn, so that no cache holds them
    sweep: tuple = ()  # more lengths, attnc alone

    def shapes(self):
        if self.kind == "additive":
            b, d = self.batch, self.size
            return {"q": (b, self.queries, d), "k": (b, self.keys, d), "v": (b, self.keys, d)}
        b, h, d = self.batch, self.heads, self.size
        return {"q": (b, h, self.queries, d), "k": (b, h, self.keys, d), "v": (b, h, self.keys, d)}

    def key_bytes(self):
        return sum(4 * math.prod(s) for n, s in self.shapes().items() if n != "q")

    def intermediate_bytes(self):
        """What a run that stores it for all pairs needs: tanh's argument for additive scores, otherwise the scores."""
        pairs = self.batch * self.queries * self.keys
        return 4 * pairs * (self.size if self.kind == "additive" else self.heads)

    def inputs(self, number=0):
        rng = np.random.default_rng(1 + number)
        return {n: rng.standard_normal(s, np.float32) for n, s in self.shapes().items()}


CASES = {
    "attention-dense": Case("dense", 1, 12, 512, 512, 64),
    "attention-causal": Case("causal", 1, 8, 2048, 2048, 64),
    "attention-window": Case("window", 1, 8, 4096, 4096, 64, window=256, sweep=(4096, 8192, 16384, 32768, 65536, 131072)),
    "attention-additive": Case("additive", 8, 1, 64, 256, 512),
    "attention-decode": Case("decode", 16, 12, 1, 2048, 64, rotate=2),
}


def weight(case):
    return (np.random.default_rng(9).standard_normal(case.size) * case.size**-0.5).astype(np.float32)


def shown(case, i, j):
    """Whether query i sees key j (arrays that broadcast)."""
    if case.kind == "causal":
        return j <= i
    if case.kind == "window":
        return (j <= i) & (j > i - case.window)
    return np.broadcast_to(True, np.broadcast_shapes(np.shape(i), np.shape(j)))


def write_model(case, path):
    """The graph as exporters write it: MatMul, Where, Softmax, MatMul. The sequence is dynamic in the window case."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    nodes, constants = [], []

    def op(op_type, *inputs, **attributes):
        name = attributes.pop("name", f"t{len(nodes)}")
        nodes.append(helper.make_node(op_type, list(inputs), [name], name=f"/{op_type}_{len(nodes)}", **attributes))
        return name

    def const(value, dtype=np.int64):
        constants.append(numpy_helper.from_array(np.asarray(value, dtype), f"c{len(constants)}"))
        return constants[-1].name

    dims = {n: list(s) for n, s in case.shapes().items()}
    if case.kind == "additive":
        hidden = op("Tanh", op("Add", op("Unsqueeze", "q", const([2])), op("Unsqueeze", "k", const([1]))))
        s = op("Squeeze", op("MatMul", hidden, const(weight(case)[:, None], np.float32)), const([-1]))
    else:
        scaled = op("Mul", "q", const(case.size**-0.5, np.float32))
        s = op("MatMul", scaled, op("Transpose", "k", perm=[0, 1, 3, 2]))
    if case.kind in ("causal", "window"):
        if case.sweep:
            for d in dims.values():
                d[2] = "sequence"
        length = op("Gather", op("Shape", "q"), const(2), axis=0)
        j = op("Range", const(0), length, const(1))
        i = op("Unsqueeze", j, const([1]))
        hidden = op("Less", i, j)
        if case.kind == "window":
            hidden = op("Or", hidden, op("LessOrEqual", j, op("Sub", i, const([case.window]))))
        s = op("Where", hidden, const(-np.inf, np.float32), s)
    op("MatMul", op("Softmax", s, axis=-1), "v", name="out")
    graph = helper.make_graph(nodes, case.kind, [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in dims.items()],
                              [helper.make_tensor_value_info("out", TensorProto.FLOAT, dims["q"])], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def write_operator(case, path):
    """The same as one Attention operator; False where there is none for it."""
    import onnx
    from onnx import TensorProto, helper
    if case.kind not in ("dense", "causal", "decode"):
        return False
    node = helper.make_node("Attention", ["q", "k", "v"], ["out"], is_causal=int(case.kind == "causal"))
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in case.shapes().items()]
    graph = helper.make_graph([node], case.kind, values,
                              [helper.make_tensor_value_info("out", TensorProto.FLOAT, case.shapes()["q"])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)
    return True


def reference_rows(case, feeds, count=48):
    """Some rows of the result in float64: (batch, head, query) -> row."""
    rng, rows = np.random.default_rng(3), {}
    for _ in range(count):
        b, h, i = (int(rng.integers(0, n)) for n in (case.batch, case.heads, feeds["q"].shape[-2]))
        at = (b,) if case.kind == "additive" else (b, h)
        q, k, v = feeds["q"][at][i].astype(np.float64), feeds["k"][at].astype(np.float64), feeds["v"][at].astype(np.float64)
        s = np.tanh(q + k) @ weight(case) if case.kind == "additive" else k @ q * case.size**-0.5
        s = np.where(shown(case, i, np.arange(len(k))), s, -np.inf)
        p = np.exp(s - s.max())
        rows[at + (i,)] = p @ v / p.sum()
    return rows


def difference(rows, out):
    return max(float(np.abs(out[at] - row).max()) for at, row in rows.items())


def torch_function(case, mode):
    """The case in PyTorch: 'eager', 'compiled' or 'flex'; None where there is no such form."""
    import torch
    import torch.nn.functional as F
    a = torch.from_numpy(weight(case)) if case.kind == "additive" else None

    def additive(q, k, v):
        s = torch.matmul(torch.tanh(q.unsqueeze(2) + k.unsqueeze(1)), a)
        return torch.matmul(torch.softmax(s, -1), v)

    def windowed(q, k, v):
        i = torch.arange(q.shape[2])
        d = i[:, None] - i[None, :]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=(d >= 0) & (d < case.window))

    def dot(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=case.kind == "causal")

    function = {"additive": additive, "window": windowed}.get(case.kind, dot)
    if mode == "flex":
        if case.kind not in ("causal", "window"):
            return None
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        if case.kind == "causal":
            def rule(b, h, i, j):
                return i >= j
        else:
            def rule(b, h, i, j):
                return (i >= j) & (i - j < case.window)
        mask = create_block_mask(rule, None, None, case.queries, case.keys, device="cpu")
        flex = torch.compile(flex_attention, dynamic=False)
        return lambda q, k, v: flex(q, k, v, block_mask=mask)
    return torch.compile(function, dynamic=False) if mode == "compiled" else function
