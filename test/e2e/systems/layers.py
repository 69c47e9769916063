"""The layers of the systems in NumPy and float64, written from their formulas."""
import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def masked_softmax(x, visible, axis=-1):
    """Weights over what is visible; a row that sees nothing has none."""
    x = np.where(visible, x, -1e300)
    e = np.where(visible, np.exp(x - x.max(axis, keepdims=True)), 0)
    return e / np.maximum(e.sum(axis, keepdims=True), 1e-300)


def log_softmax(x, axis=-1):
    x = x - x.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def relu(x):
    return np.maximum(x, 0)


def elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def softplus(x):
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


class Net:
    """Weights by name; layers that read them."""

    def __init__(self, weights):
        self.w = {name: value.astype(np.float64) for name, value in weights.items()}

    def __getitem__(self, name):
        return self.w[name]

    def linear(self, name, x):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def embed(self, name, x):
        return self.w[name + ".weight"][x]

    def layer_norm(self, name, x, epsilon=1e-5):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * self.w[name + ".weight"] + self.w[name + ".bias"]

    def gates(self, name, x, h, end=""):
        return (x @ self.w[f"{name}.weight_ih{end}"].T + self.w[f"{name}.bias_ih{end}"],
                h @ self.w[f"{name}.weight_hh{end}"].T + self.w[f"{name}.bias_hh{end}"])

    def lstm_cell(self, name, x, h, c, end=""):
        i, f, g, o = np.split(sum(self.gates(name, x, h, end)), 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    def gru_cell(self, name, x, h, end="", reset_after=True):
        a, b = self.gates(name, x, h, end)
        n = h.shape[-1]
        r, z = sigmoid(a[..., :n] + b[..., :n]), sigmoid(a[..., n:2 * n] + b[..., n:2 * n])
        if reset_after:
            g = np.tanh(a[..., 2 * n:] + r * b[..., 2 * n:])
        else:
            g = np.tanh(a[..., 2 * n:] + (r * h) @ self.w[f"{name}.weight_hh{end}"][2 * n:].T + self.w[f"{name}.bias_hh{end}"][2 * n:])
        return (1 - z) * g + z * h

    def run(self, kind, name, x, layer=0, state=None, bidirectional=False, lengths=None, **options):
        """All states [batch, time, directions * units], the last states and cells of each direction."""
        batch, time, _ = x.shape
        lengths = np.full(batch, time) if lengths is None else lengths
        outputs, last = [], []
        for end in (f"_l{layer}", f"_l{layer}_reverse")[:2 if bidirectional else 1]:
            n = self.w[f"{name}.weight_hh{end}"].shape[1]
            h, c = (np.zeros((batch, n)), np.zeros((batch, n))) if state is None else state
            y = np.zeros((batch, time, n))
            for t in range(time)[::-1 if end.endswith("reverse") else 1]:
                live = (t < lengths)[:, None]
                if kind == "lstm":
                    h2, c2 = self.lstm_cell(name, x[:, t], h, c, end)
                    c = np.where(live, c2, c)
                else:
                    h2 = self.gru_cell(name, x[:, t], h, end, **options)
                h = np.where(live, h2, h)
                y[:, t] = np.where(live, h2, 0)
            outputs.append(y)
            last.append((h, c))
        return np.concatenate(outputs, -1), last

    def heads(self, name, x, heads):
        y = self.linear(name, x)
        return y.reshape(*y.shape[:2], heads, -1).transpose(0, 2, 1, 3)

    def multi_head(self, name, q, k, v, heads, visible=None, cache=None):
        """The result, and the keys and values with those of the cache."""
        q, k, v = self.heads(name + ".query", q, heads), self.heads(name + ".key", k, heads), self.heads(name + ".value", v, heads)
        if cache is not None:
            k, v = np.concatenate([cache[0], k], 2), np.concatenate([cache[1], v], 2)
        e = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        a = softmax(e) if visible is None else masked_softmax(e, visible)
        y = (a @ v).swapaxes(1, 2)
        return self.linear(name + ".output", y.reshape(*y.shape[:2], -1)), k, v


def sinusoids(time, width, offset=0):
    at = np.arange(offset, offset + time)[:, None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(at), np.cos(at)], -1).reshape(time, width)


def sample_grid(image, grid):
    """Bilinear samples with zeros outside, corners not aligned."""
    batch, channels, height, width = image.shape
    x, y = ((grid[..., 0] + 1) * width - 1) / 2, ((grid[..., 1] + 1) * height - 1) / 2
    out = np.zeros((batch, channels) + x.shape[1:])
    for dy in (0, 1):
        for dx in (0, 1):
            i, j = np.floor(y).astype(int) + dy, np.floor(x).astype(int) + dx
            part = np.maximum(0, 1 - np.abs(y - i)) * np.maximum(0, 1 - np.abs(x - j))
            part *= (i >= 0) & (i < height) & (j >= 0) & (j < width)
            picked = image[np.arange(batch)[:, None, None], :, i.clip(0, height - 1), j.clip(0, width - 1)]
            out += part[:, None] * picked.transpose(0, 3, 1, 2)
    return out


def convolve(x, weight, bias=None, stride=1, padding=0):
    """x [batch, channels, length...] with weight [out, channels, taps...]."""
    spatial = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0)] + [(padding, padding)] * spatial)
    view = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], tuple(range(2, x.ndim)))
    view = view[(slice(None), slice(None)) + (slice(None, None, stride),) * spatial]
    letters = "xyz"[:spatial], "uvw"[:spatial]
    y = np.einsum(f"bc{letters[0]}{letters[1]},oc{letters[1]}->bo{letters[0]}", view, weight)
    return y if bias is None else y + bias.reshape(-1, *[1] * spatial)
