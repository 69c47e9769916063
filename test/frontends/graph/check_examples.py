#!/usr/bin/env python3
"""Every layer has an example in docs/graphs.md; examples fit the schema, compile, and give what NumPy gives.

    check_examples.py ROOT [--tools=build/bin]
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import save_file

from json_schema import complaint

ROOT = pathlib.Path(sys.argv[1])
TOOLS = pathlib.Path(next((a.split("=")[1] for a in sys.argv if a.startswith("--tools=")), "build/bin"))
sys.path.insert(0, str(ROOT / "test/e2e/systems"))
import layers as formulas  # noqa: E402

DOCS = (ROOT / "docs/graphs.md").read_text()
SCHEMA = json.loads((ROOT / "frontends/graph/schema.json").read_text())
B, T = 2, 5


def examples():
    """The layers of the document, in order."""
    decoder, result = json.JSONDecoder(), []
    for block in re.findall(r"```json layers\n(.*?)```", DOCS, re.S):
        while block.strip():
            layer, end = decoder.raw_decode(block.lstrip())
            result.append(layer)
            block = block.lstrip()[end:]
    return result


def weight_shapes():
    shapes = {"linear.weight": (6, 8), "linear.bias": (6,), "embedding.weight": (9, 8), "weight": (2, 3), "convolution.weight": (4, 2, 3, 3), "convolution.bias": (4,),
              "layer_norm.weight": (8,), "layer_norm.bias": (8,), "general.weight": (8, 8), "additive.query.weight": (6, 8), "additive.key.weight": (6, 8),
              "additive.bias": (6,), "additive.score.weight": (6,), "pooling.key.weight": (6, 8), "pooling.score.weight": (6,), "concat.weight": (6, 16),
              "concat.score.weight": (6,), "location.weight": (7, 8), "local_p.position.weight": (6, 8), "local_p.position_score.weight": (6,),
              "location_aware.query.weight": (6, 8), "location_aware.key.weight": (6, 8), "location_aware.score.weight": (6,),
              "location_aware.location.weight": (3, 1, 5), "location_aware.location_projection.weight": (6, 3), "decode.out.weight": (6, 8), "decode.out.bias": (6,)}
    shapes |= {f"batch_norm.{k}": (2,) for k in ("weight", "bias", "running_mean", "running_var")}
    shapes |= {f"self.{p}.{k}": (8, 8)[:n] for p in ("query", "key", "value", "output") for k, n in (("weight", 2), ("bias", 1))}
    shapes |= {f"tower.{i}.inner.{k}": (8, 8)[:n] for i in range(3) for k, n in (("weight", 2), ("bias", 1))}

    def recurrent(name, gates, units, width, end):
        shapes.update({f"{name}.weight_ih{end}": (gates * units, width), f"{name}.weight_hh{end}": (gates * units, units),
                       f"{name}.bias_ih{end}": (gates * units,), f"{name}.bias_hh{end}": (gates * units,)})
    for end in ("", "_reverse"):
        recurrent("lstm", 4, 4, 8, "_l0" + end)
        recurrent("lstm", 4, 4, 8, "_l1" + end)
    recurrent("gru", 3, 8, 8, "_l0")
    recurrent("rnn", 1, 8, 8, "_l0")
    for name, gates in (("lstm_cell", 4), ("gru_cell", 3), ("rnn_cell", 1), ("decode.step", 3)):
        recurrent(name, gates, 8, 8, "")
    return shapes


def reference(net, x, row, s, c, n, ids, image):
    """What the examples are that no system of test/e2e/systems shows."""
    w = net.w
    gru, rnn, h, g = [], np.zeros((B, T, 8)), s, np.zeros((B, 8))
    for t in range(T):
        gru.append(h := net.gru_cell("gru", x[:, t], h, "_l0", reset_after=False))
    for t in reversed(range(T)):
        g = rnn[:, t] = formulas.relu(sum(net.gates("rnn", x[:, t], g, "_l0")))
    m, last = net.run("lstm", "lstm", x, 0, bidirectional=True, lengths=n)
    m, last1 = net.run("lstm", "lstm", m, 1, bidirectional=True, lengths=n)
    e = np.einsum("btd,bd->bt", x, row)
    band = np.abs(np.arange(T)[:, None] - np.arange(T)) <= 3
    scaled = x @ x.swapaxes(1, 2) / np.sqrt(8)
    gelu = np.vectorize(lambda v: 0.5 * v * (1 + __import__("math").erf(v / np.sqrt(2))))
    tower, decoded, hd = x, [], s
    for i in range(3):
        tower = tower + gelu(net.linear(f"tower.{i}.inner", tower))
    for t in range(T):
        hd = net.gru_cell("decode.step", x[:, t], hd)
        decoded.append(net.linear("decode.out", hd))
    variance = (image - w["batch_norm.running_mean"].reshape(2, 1, 1)) / np.sqrt(w["batch_norm.running_var"].reshape(2, 1, 1) + 1e-5)
    padded = np.pad(image, [(0, 0), (0, 0), (1, 1), (1, 1)])
    hard = np.einsum("btd,bd->bt", x, row).argmax(1)
    return {
        "linear": formulas.relu(net.linear("linear", x)), "convolution": formulas.convolve(padded, w["convolution.weight"], w["convolution.bias"], 2),
        "batch_norm": variance * w["batch_norm.weight"].reshape(2, 1, 1) + w["batch_norm.bias"].reshape(2, 1, 1), "softmax": formulas.softmax(x, 1),
        "matmul": x @ x.swapaxes(1, 2), "reduce": x.mean(1), "argmax": row.argmax(1), "positional_encoding": x + formulas.sinusoids(T, 8),
        "formula": np.tanh(s) * formulas.sigmoid(c) + 0.5 * np.maximum(row, 0), "lstm": m,
        "lstm.state": np.stack([last[0][0], last[1][0], last1[0][0], last1[1][0]]), "lstm.cell": np.stack([last[0][1], last[1][1], last1[0][1], last1[1][1]]),
        "gru": np.stack(gru, 1), "gru.state": gru[-1], "rnn": rnn, "rnn.state": g, "rnn_cell": np.tanh(sum(net.gates("rnn_cell", row, s))),
        "scaled_dot": formulas.masked_softmax(scaled, np.tri(T, dtype=bool)) @ x, "restricted": formulas.masked_softmax(scaled, band) @ x,
        "given": np.einsum("bt,btd->bd", formulas.softmax(e), x), "hard": x[np.arange(B), hard], "hard.choice": hard,
        "reshape": x.reshape(B * T, 2, 4), "joined": np.concatenate([row, s], 1), "stack": np.stack([row, row], 1), "slice": x[:, :, 1:7:2],
        "reverse": x[:, ::-1], "expand_dims": row[:, None], "squeeze": row, "gather": x[np.arange(B), n], "pad": np.pad(x, [(0, 0), (1, 0), (0, 0)]),
        "broadcast": np.broadcast_to(row[:, None], x.shape), "one_hot": np.eye(9)[ids], "range": np.arange(T + 1), "fill": np.ones((B, 8)), "cast": ids * 1.0,
        "pool": image.reshape(B, 2, 3, 2, 3, 2).max((3, 5)), "tower": tower, "decode.logits": np.stack(decoded, 1), "decode.h": hd}


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nexit status {done.returncode}\n{done.stderr}")


def main():
    problems, layers = [], examples()
    texts = [json.loads(t) for t in re.findall(r"```json\n(.*?)```", DOCS, re.S)]
    texts += [json.loads(path.read_text()) for path in sorted((ROOT / "test/e2e/systems").glob("*.json"))]
    dims = {"batch": {}, "time": {}, "hidden": 8}
    inputs = {"x": (B, T, 8), "row": (B, 8), "s": (B, 8), "c": (B, 8), "n": (B,), "ids": (B, T), "image": (B, 2, 6, 6)}
    names = {B: "batch", T: "time"}
    everything = {"format": 1, "weights": "all.safetensors", "dimensions": dims, "layers": layers,
                  "inputs": {k: {"dtype": "int64" if k in ("n", "ids") else "float32", "shape": [names.get(size, size) if at < 2 and not (k == "image" and at) else size for at, size in enumerate(shape)]}
                             for k, shape in inputs.items()}}
    rng = np.random.default_rng(3)
    weights = {k: (rng.standard_normal(shape) / np.sqrt(max(shape[-1], 1))).astype(np.float32) for k, shape in weight_shapes().items()}
    weights["batch_norm.running_var"] = np.abs(weights["batch_norm.running_var"]) + 1
    feeds = {k: rng.integers(1, 5, shape) if k in ("n", "ids") else rng.standard_normal(shape).astype(np.float32) for k, shape in inputs.items()}
    want = reference(formulas.Net(weights), **feeds)
    everything["outputs"] = {name.replace(".", "__"): name for name in sorted({layer["name"] for layer in layers if layer["layer"] not in ("loop",)} | want.keys())}
    for text in texts + [everything]:
        if found := complaint(text, SCHEMA, SCHEMA):
            problems.append(f"{text.get('name', 'an example')}: {found}")
    listed = set(SCHEMA["$defs"]["layer"]["properties"]["layer"]["enum"])
    if missing := listed - {layer["layer"] for layer in layers}:
        problems.append(f"no example of {', '.join(sorted(missing))}")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        save_file(weights, folder / "all.safetensors")
        (folder / "all.json").write_text(json.dumps(everything, indent=1))
        command = [TOOLS / "attn-run", folder / "all.json"]
        for name, value in feeds.items():
            np.save(folder / f"{name}.npy", value)
            command.append(f"--input={name}=@{folder / name}.npy")
        run(*command, *[f"--output={name.replace('.', '__')}=@{folder / name}.out.npy" for name in want])
        for name, expected in want.items():
            got = np.load(folder / f"{name}.out.npy")
            if got.shape != expected.shape or not np.allclose(got, expected, rtol=2e-4, atol=2e-5):
                problems.append(f"{name}: {got.shape}, expected {expected.shape}" if got.shape != expected.shape else f"{name} differs by {np.abs(got - expected).max():.2e}")
    print(*problems, f"{len(layers)} examples of {len(listed)} layers, {len(want)} compared, {len(problems)} problems", sep="\n")
    return bool(problems)


sys.exit(main())
