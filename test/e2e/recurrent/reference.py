"""RNN, GRU and LSTM in float64, written from the text of the ONNX operators.

A layer is a dictionary: op, direction, activations [(name, alpha, beta)], clip or
None, layout, linear_before_reset, input_forget. Operands as in ONNX, None where
absent. Returns (Y, Y_h) or (Y, Y_h, Y_c).
"""
import numpy as np


def activation(name, alpha, beta):
    return {
        "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "Tanh": np.tanh,
        "Relu": lambda x: np.maximum(x, 0),
        "Affine": lambda x: alpha * x + beta,
        "LeakyRelu": lambda x: np.where(x < 0, alpha * x, x),
        "ThresholdedRelu": lambda x: np.where(x > alpha, x, 0),
        "ScaledTanh": lambda x: alpha * np.tanh(beta * x),
        "HardSigmoid": lambda x: np.clip(alpha * x + beta, 0, 1),
        "Elu": lambda x: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
        "Softsign": lambda x: x / (1 + np.abs(x)),
        "Softplus": lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
    }[name]


def one_direction(layer, functions, x, w, r, b, h, c, p):
    """x: steps x inputs of one item. Returns the sequence and the last states."""
    n = r.shape[1]
    clip = layer["clip"]
    f = [lambda v, g=activation(*a): g(np.clip(v, -clip, clip) if clip else v) for a in functions]
    gates = r.shape[0] // n
    wb, rb = (b[:gates * n], b[gates * n:]) if b is not None else (np.zeros(gates * n), np.zeros(gates * n))
    part = lambda v, k: v[k * n:(k + 1) * n]
    ys = []
    for xt in x:
        xw = w @ xt + wb
        if layer["op"] == "RNN":
            h = f[0](xw + r @ h + rb)
        elif layer["op"] == "GRU":
            hr = r @ h + rb
            z = f[0](part(xw, 0) + part(hr, 0))
            reset = f[0](part(xw, 1) + part(hr, 1))
            if layer["linear_before_reset"]:
                new = f[1](part(xw, 2) + reset * part(hr, 2))
            else:
                new = f[1](part(xw, 2) + part(r, 2) @ (reset * h) + part(rb, 2))
            h = (1 - z) * new + z * h
        else:
            a = xw + r @ h + rb
            pi, po, pf = (part(p, k) for k in range(3)) if p is not None else (0, 0, 0)
            i = f[0](part(a, 0) + pi * c)
            forget = 1 - i if layer["input_forget"] else f[0](part(a, 2) + pf * c)
            c = forget * c + i * f[1](part(a, 3))
            o = f[0](part(a, 1) + po * c)
            h = o * activation(*functions[2])(c)  # not clipped: the text can be read so, and ONNX Runtime does
        ys.append(h)
    return ys, h, c


def recurrent(layer, X, W, R, B=None, lens=None, h0=None, c0=None, P=None):
    wide = lambda v: None if v is None else np.asarray(v, np.float64)
    X, W, R, B, h0, c0, P = map(wide, (X, W, R, B, h0, c0, P))
    if layer["layout"]:
        X = X.transpose(1, 0, 2)
        h0, c0 = (None if v is None else v.transpose(1, 0, 2) for v in (h0, c0))
    steps, batch, _ = X.shape
    directions, _, n = R.shape
    Y = np.zeros((steps, directions, batch, n))
    last_h, last_c = np.zeros((directions, batch, n)), np.zeros((directions, batch, n))
    per = len(layer["activations"]) // directions
    for d in range(directions):
        backwards = layer["direction"] == "reverse" or d == 1
        for item in range(batch):
            count = steps if lens is None else int(lens[item])
            order = range(count)[::-1] if backwards else range(count)
            ys, h, c = one_direction(
                layer, layer["activations"][d * per:(d + 1) * per], X[list(order), item], W[d], R[d],
                None if B is None else B[d], np.zeros(n) if h0 is None else h0[d, item],
                np.zeros(n) if c0 is None else c0[d, item], None if P is None else P[d])
            for t, y in zip(order, ys):
                Y[t, d, item] = y
            last_h[d, item], last_c[d, item] = h, c
    if layer["layout"]:
        Y = Y.transpose(2, 0, 1, 3)
        last_h, last_c = last_h.transpose(1, 0, 2), last_c.transpose(1, 0, 2)
    return (Y, last_h, last_c) if layer["op"] == "LSTM" else (Y, last_h)
