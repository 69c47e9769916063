"""Layers of the literature as plain torch modules, for wild_models.py."""
import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 16


def linear(inner=WIDTH, outer=WIDTH):
    return nn.Linear(inner, outer)


class Deformable(nn.Module):
    """Deformable DETR: each query samples some places of several maps and weighs them."""

    def __init__(self, heads=2, points=3, maps=((4, 4), (2, 2)), width=WIDTH):
        super().__init__()
        self.heads, self.points, self.maps = heads, points, maps
        self.offsets = linear(width, heads * len(maps) * points * 2)
        self.weights = linear(width, heads * len(maps) * points)
        self.values = linear(width, width)

    def forward(self, x, memory, places):
        b, n = x.shape[:2]
        h, l, p = self.heads, len(self.maps), self.points
        values = self.values(memory).view(b, memory.shape[1], h, -1)
        weights = self.weights(x).view(b, n, h, l * p).softmax(-1)
        grid = 2 * (places[:, :, None, None, None] + self.offsets(x).view(b, n, h, l, p, 2) * 0.1) - 1
        taken = []
        for at, (part, (u, v)) in enumerate(zip(values.split([u * v for u, v in self.maps], 1), self.maps)):
            plane = part.flatten(2).transpose(1, 2).reshape(b * h, -1, u, v)
            taken.append(F.grid_sample(plane, grid[:, :, :, at].transpose(1, 2).flatten(0, 1), align_corners=False))
        weights = weights.transpose(1, 2).reshape(b * h, 1, n, l * p)
        y = (torch.stack(taken, -2).flatten(-2) * weights).sum(-1).view(b, -1, n)
        return y.transpose(1, 2)


class Outlook(nn.Module):
    """VOLO: weights of a window come from its middle alone."""

    def __init__(self, heads=2, kernel=3, width=WIDTH):
        super().__init__()
        self.heads, self.kernel = heads, kernel
        self.values, self.weights = linear(width, width), linear(width, heads * kernel**4)

    def forward(self, x):
        b, u, v, c = map(int, x.shape)  # of one size, which the exporter of fold asks for
        h, k = self.heads, self.kernel
        values = F.unfold(self.values(x).permute(0, 3, 1, 2), k, padding=1)
        values = values.reshape(b, h, c // h, k * k, u * v).permute(0, 1, 4, 3, 2)
        weights = self.weights(x).reshape(b, u * v, h, k * k, k * k).permute(0, 2, 1, 3, 4).softmax(-1)
        y = (weights @ values).permute(0, 1, 4, 3, 2).reshape(b, c * k * k, u * v)
        return F.fold(y, (u, v), k, padding=1)


class Heads(nn.Module):
    """Heads with a way to change scores and weights."""

    def __init__(self, heads=4):
        super().__init__()
        self.heads, self.qkv = heads, linear(WIDTH, 3 * WIDTH)
        self.before, self.behind = linear(heads, heads), linear(heads, heads)
        self.gate = nn.Parameter(torch.randn(heads))

    def parts(self, x):
        b, n = x.shape[:2]
        return self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)

    def forward(self, x):
        q, k, v = self.parts(x)
        return (self.weights(q @ k.transpose(-1, -2) * 0.5) @ v).transpose(1, 2).flatten(2)

    def weights(self, s):
        return s.softmax(-1)


class Talking(Heads):
    def weights(self, s):
        s = self.before(s.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1)
        return self.behind(s.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Mixed(Heads):
    """ConViT: content and place, mixed by a gate, and divided by their sum."""

    def weights(self, s):
        n = s.shape[-1]
        at = torch.arange(n, device=s.device)
        place = (-(at[:, None] - at[None]).abs().float())[None, None].expand(s.shape[0], self.heads, n, n).softmax(-1)
        gate = self.gate.view(1, -1, 1, 1).sigmoid()
        w = (1 - gate) * s.softmax(-1) + gate * place
        return w / w.sum(-1, keepdim=True)


class Mean(Heads):
    """TFT: the heads' weights are averaged and share one value."""

    def forward(self, x):
        q, k, v = self.parts(x)
        n = x.shape[1]
        hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
        w = (q @ k.transpose(-1, -2)).masked_fill(hidden, -1e9).softmax(-1)
        return w.mean(1) @ v[:, 0]


class Separate(nn.Module):
    """TFT as its authors wrote it: each head's result, averaged."""

    def __init__(self, heads=3):
        super().__init__()
        self.q = nn.ModuleList([linear(WIDTH, 8) for _ in range(heads)])
        self.k = nn.ModuleList([linear(WIDTH, 8) for _ in range(heads)])
        self.v = linear(WIDTH, 8)

    def forward(self, x):
        v = self.v(x)
        y = [torch.bmm((q(x) @ k(x).transpose(1, 2)).softmax(-1), v) for q, k in zip(self.q, self.k)]
        return torch.stack(y).mean(0)


class Induced(nn.Module):
    """ISAB: a few learnt points stand between."""

    def __init__(self):
        super().__init__()
        self.points = nn.Parameter(torch.randn(1, 5, WIDTH))
        self.a, self.b = (nn.MultiheadAttention(WIDTH, 4, batch_first=True) for _ in range(2))

    def forward(self, x):
        points = self.points.repeat(x.shape[0], 1, 1)
        h = self.a(points, x, x, need_weights=False)[0]
        return self.b(x, h, h, need_weights=False)[0]


class Edges(nn.Module):
    def __init__(self, layer, **settings):
        super().__init__()
        import torch_geometric.nn
        self.layer = getattr(torch_geometric.nn, layer)(WIDTH, 8, heads=2, **settings)

    def forward(self, x, edges):
        return self.layer(x, edges)


class Experts(nn.Module):
    def __init__(self, count=4, top=2):
        super().__init__()
        self.router, self.top = linear(WIDTH, count), top
        self.inner = nn.Parameter(torch.randn(count, WIDTH, WIDTH))

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).topk(self.top, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        dense = torch.zeros_like(self.router(x)).scatter(-1, chosen, weights)
        return (torch.einsum("bnd,edf->bnef", x, self.inner) * dense[..., None]).sum(2)


class Repeat(Heads):
    """Heads of keys, repeated by an op."""

    def forward(self, x):
        q, k, v = self.parts(x)
        k, v = (t[:, :2].repeat_interleave(2, 1) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class Running(Heads):
    """Flash attention unrolled by hand, with a running maximum."""

    def forward(self, x):
        q, k, v = self.parts(x)
        top, total, y = None, None, None
        for keys, values in zip(k.split(4, 2), v.split(4, 2)):
            s = q @ keys.transpose(-1, -2)
            high = s.amax(-1, keepdim=True)
            high = high if top is None else torch.maximum(top, high)
            e = (s - high).exp()
            if top is None:
                total, y = e.sum(-1, keepdim=True), e @ values
            else:
                fade = (top - high).exp()
                total, y = total * fade + e.sum(-1, keepdim=True), y * fade + e @ values
            top = high
        return (y / total).transpose(1, 2).flatten(2)


class OneKey(Heads):
    """A softmax over one key: its weights are 1."""

    def forward(self, x):
        q, k, v = self.parts(x)
        return ((q @ k[:, :, :1].transpose(-1, -2)).softmax(-1) @ v[:, :, :1]).transpose(1, 2).flatten(2)


class Pool(nn.Module):
    """Attention pooling with a mask and a tanh."""

    def __init__(self):
        super().__init__()
        self.inner, self.score = linear(), linear(WIDTH, 1)

    def forward(self, x, mask):
        s = self.score(self.inner(x).tanh()).squeeze(-1).masked_fill(mask == 0, float("-inf"))
        return (s.softmax(-1).unsqueeze(-1) * x).sum(1)


class OneHot(Heads):
    """Hard assignment of a softmax's row."""

    def weights(self, s):
        w = s.softmax(-1)
        return F.one_hot(w.argmax(-1), w.shape[-1]).float()


class Slots(nn.Module):
    """Slot attention: a softmax over slots, made a mean over inputs."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = linear(), linear(), linear()
        self.slots = nn.Parameter(torch.randn(3, WIDTH))

    def forward(self, x):
        s = self.q(self.slots) @ self.k(x).transpose(1, 2)
        w = s.softmax(1) + 1e-8
        return (w / w.sum(-1, keepdim=True)) @ self.v(x)


class Axial(Heads):
    """A sequence's rows, then its columns: batch dimensions that do not lie side by side."""

    def forward(self, x):
        b, n, c = x.shape
        t = self.qkv(x.view(b, n // 4, 4, c)).view(b, n // 4, 4, 3, self.heads, -1)
        q, k, v = t.unbind(3)
        w = torch.einsum("bnmhd,bkmhd->bmhnk", q, k).softmax(-1)
        return torch.einsum("bmhnk,bkmhd->bnmhd", w, v).reshape(b, n, c)


class Linear(Heads):
    """Linear attention: softmaxes of queries over features and of keys over positions."""

    def forward(self, x):
        q, k, v = self.parts(x)
        return (q.softmax(-1) @ (k.softmax(-2).transpose(-1, -2) @ v)).transpose(1, 2).flatten(2)


def sequence(model, attentions, *others):
    """x [batch, length, WIDTH] at two sizes"""
    return lambda: (model(), [(torch.randn(2, 12, WIDTH),), (torch.randn(3, 8, WIDTH),)],
                    {"x": {0: "batch", 1: "sequence"}}, attentions)


def fixed(model, attentions):
    """x of one length, as its loop is unrolled"""
    return lambda: (model(), [(torch.randn(2, 12, WIDTH),), (torch.randn(3, 12, WIDTH),)], {"x": {0: "batch"}},
                    attentions)


def static(model, attentions):
    """x of one size, where the exporter knows no other"""
    return lambda: (model(), [(torch.randn(2, 12, WIDTH),)], {"x": {}}, attentions)


def sampled():
    def sizes(b, n):
        return torch.randn(b, n, WIDTH), torch.randn(b, 20, WIDTH), torch.rand(b, n, 2)
    return (Deformable(), [sizes(2, 7), sizes(3, 5)],
            {"x": {0: "batch", 1: "queries"}, "memory": {0: "batch"}, "places": {0: "batch", 1: "queries"}}, 1)


def windows():
    return Outlook(), [(torch.randn(2, 6, 6, WIDTH),)], {"x": {}}, 1


def pooled():
    def size(b, n):
        mask = torch.ones(b, n, dtype=torch.int64)
        mask[-1, n - 2:] = 0
        return torch.randn(b, n, WIDTH), mask
    return Pool(), [size(2, 7), size(3, 5)], {"x": {0: "batch", 1: "length"}, "mask": {0: "batch", 1: "length"}}, 1


def edges(layer, **settings):
    def size(n, e):
        return torch.randn(n, WIDTH), torch.randint(0, n, (2, e))
    return lambda: (Edges(layer, **settings), [size(7, 15), size(5, 9)], {"x": {0: "nodes"}, "edges": {1: "edges"}}, 1)


CASES = {
    "deformable": sampled, "outlook": windows, "talking_heads": sequence(Talking, 1), "mixed_sum": sequence(Mixed, 2),
    "mean_of_heads": sequence(Mean, 1), "separate_heads": sequence(Separate, 3), "isab": static(Induced, 2),
    "gat": edges("GATConv", add_self_loops=False), "gatv2": edges("GATv2Conv", add_self_loops=False),
    "transformer_conv": edges("TransformerConv"), "gat_loops": edges("GATConv"),
    "experts": sequence(Experts, 0), "repeated_heads": sequence(Repeat, 1), "running_maximum": fixed(Running, 1),
    "one_key": sequence(OneKey, 0), "pool": pooled, "hard": sequence(OneHot, 0), "slots": sequence(Slots, 1),
    "axial": sequence(Axial, 1), "linear": sequence(Linear, 1),
}
