"""BERT encoders as graphs (docs/graphs.md), from a folder of transformers: config.json and model.safetensors."""

from __future__ import annotations

import json
import math
import pathlib
import shutil
import struct
from typing import Any, Dict, List

from attnc_runtime import InvalidArgument, Unsupported


def _weight_names(path: pathlib.Path) -> List[str]:
    with open(path, "rb") as file:
        head = file.read(8)
        (size,) = struct.unpack("<Q", head) if len(head) == 8 else (0,)
        if not 2 <= size <= 100 << 20:
            raise InvalidArgument(f"{path} is no file of safetensors")
        try:
            return list(json.loads(file.read(size)))
        except ValueError:
            raise InvalidArgument(f"{path}: its header is damaged") from None


_ACTIVATIONS = {"gelu": "gelu", "relu": "relu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}


def write_bert(folder: pathlib.Path, path: pathlib.Path) -> None:
    """Writes the graph of the encoder in ``folder`` to ``path``, with its weights beside it."""
    config: Dict[str, Any] = json.loads((folder / "config.json").read_text())
    weights = folder / "model.safetensors"
    kind = config.get("model_type")
    if kind != "bert" or config.get("position_embedding_type", "absolute") != "absolute" or config.get("is_decoder"):
        raise Unsupported(
            f"{folder} holds no ONNX file, and a model of type '{kind}' is not one that attnc writes by itself; "
            "export it to onnx/model.onnx"
        )
    activation = _ACTIVATIONS.get(config.get("hidden_act", "gelu"))
    if activation is None:
        raise Unsupported(f"{folder}/config.json: the activation '{config['hidden_act']}' is not supported")
    prefix = "bert." if any(name.startswith("bert.") for name in _weight_names(weights)) else ""
    width, heads = config["hidden_size"], config["num_attention_heads"]
    epsilon = config.get("layer_norm_eps", 1e-12)
    layers: List[Dict[str, Any]] = []

    def add(kind: str, name: str, **fields: Any) -> str:
        if "weights" in fields:
            fields["weights"] = prefix + fields["weights"]
        layers.append({"layer": kind, "name": name, **fields})
        return name

    def norm(name: str, value: str, weights: str) -> str:
        total = add("formula", f"{name}_sum", value=value)
        return add("layer_norm", name, input=total, epsilon=epsilon, weights=f"{weights}.LayerNorm")

    def head_rows(name: str, x: str, weights: str, order: List[int]) -> str:
        y = add("linear", name, input=x, weights=weights)
        y = add("reshape", f"{name}_split", input=y, shape=["batch", "sequence", heads, width // heads])
        return add("transpose", f"{name}_heads", input=y, order=order)

    add("range", "places", size="sequence", dtype="int64")
    add("embedding", "words", input="input_ids", weights="embeddings.word_embeddings")
    add("embedding", "kinds", input="token_type_ids", weights="embeddings.token_type_embeddings")
    add("embedding", "positions", input="places", weights="embeddings.position_embeddings")
    x = norm("embedded", "words + kinds + positions", "embeddings")
    add("cast", "shown", input="attention_mask", dtype="float32")
    add("expand_dims", "shown_keys", input="shown", axes=[1, 2])
    # The least float, as transformers adds it to scores of padding.
    add("formula", "hidden", value="(1 - shown_keys) * -3.4028234663852886e38")
    for number in range(config["num_hidden_layers"]):
        at, own = f"encoder.layer.{number}", f"l{number}"
        q = head_rows(f"{own}_query", x, f"{at}.attention.self.query", [0, 2, 1, 3])
        k = head_rows(f"{own}_key", x, f"{at}.attention.self.key", [0, 2, 3, 1])
        v = head_rows(f"{own}_value", x, f"{at}.attention.self.value", [0, 2, 1, 3])
        scores = add("matmul", f"{own}_scores", inputs=[q, k])
        scores = add("formula", f"{own}_masked", value=f"{scores} / {math.sqrt(width // heads)!r} + hidden")
        shares = add("softmax", f"{own}_weights", input=scores, axis=-1)
        y = add("matmul", f"{own}_mixed", inputs=[shares, v])
        y = add("transpose", f"{own}_rows", input=y, order=[0, 2, 1, 3])
        y = add("reshape", f"{own}_context", input=y, shape=["batch", "sequence", width])
        y = add("linear", f"{own}_attended", input=y, weights=f"{at}.attention.output.dense")
        x = norm(f"{own}_attention", f"{y} + {x}", f"{at}.attention.output")
        y = add("linear", f"{own}_wide", input=x, activation=activation, weights=f"{at}.intermediate.dense")
        y = add("linear", f"{own}_narrow", input=y, weights=f"{at}.output.dense")
        x = norm(f"{own}_out", f"{y} + {x}", f"{at}.output")
    tokens = {"dtype": "int64", "shape": ["batch", "sequence"]}
    graph = {
        "format": 1,
        "name": config.get("_name_or_path") or folder.name,
        "weights": "model.safetensors",
        "dimensions": {"batch": {}, "sequence": {"max": config["max_position_embeddings"]}},
        "inputs": {name: tokens for name in ("input_ids", "attention_mask", "token_type_ids")},
        "layers": layers,
        "outputs": {"last_hidden_state": x},
    }
    path.write_text(json.dumps(graph))
    if path.parent != folder:
        # Not a link: attnc reads nothing that lies elsewhere too.
        shutil.copyfile(weights, path.parent / "model.safetensors")
