#!/usr/bin/env python3
"""Writes tiny models of every architecture that transformers has, and of what zoo_libraries.py lists, as wild_models.py
does: zoo.py OUT [ARCHITECTURE[+VARIANT]...]

A variant is `cached` (a step with a past), `f16`, `bf16`, `half` (a converter's f16), `dynamic` (quantize_dynamic),
`qdq` (quantize_static), `fused` (what ONNX Runtime's optimiser makes of it), `slim` (onnxslim) or `other` (the exporter
that the architecture's own draw does not have). Exporter, opset, sizes, mask and implementation of attention are drawn
by the name. Needs torch, transformers, onnxruntime, onnxslim, x_transformers, vit_pytorch and timm, which no test
installs. check_wild.py runs them.
"""
import inspect
import json
import pathlib
import random
import signal
import sys
import warnings

import numpy as np
import onnxruntime
import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from shrink import Count, small
from zoo_files import REWRITES, narrowed, strip, widened
from zoo_libraries import CASES as LIBRARIES

SETTINGS = {"deberta-v2": dict(relative_attention=True, pos_att_type=["c2p", "p2c"])}
LENGTHS = (16, 9)


class Choice:
    """How a name is exported, by its letters."""

    def __init__(self, name, variant):
        drawn = random.Random(name + ("cached" if variant == "cached" else ""))
        self.dynamo = (drawn.random() < 0.5) != (variant == "other")
        self.opset = drawn.choice((18, 20, 21, 23) if self.dynamo else (14, 15, 16, 17, 18))
        self.dynamic = drawn.random() < 0.7
        self.attention = drawn.choice(("eager", "sdpa"))
        self.mask = drawn.choice(("right", "left", "none"))


class Model(torch.nn.Module):
    """Takes tensors by position, and gives the first result and the caches."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def named(self, *values):
        values = dict(zip(self.names, values))
        past = [v for k, v in values.items() if k.startswith("past")]
        values = {k: v for k, v in values.items() if not k.startswith("past")}
        if past:
            values["past_key_values"] = transformers.DynamicCache(list(zip(past[::2], past[1::2])))
        y = self.model(**values, use_cache=bool(past)) if self.caches else self.model(**values)
        first = next(v for v in (y.values() if hasattr(y, "values") else y) if isinstance(v, torch.Tensor))
        if not past:
            return first
        return first, *(t for layer in y.past_key_values.layers for t in (layer.keys, layer.values))

    @property
    def caches(self):
        return "use_cache" in inspect.signature(self.model.forward).parameters


def fixed_signature(model, names):
    """`model` with a parameter for each name, which exporters ask for."""
    space = {}
    exec(f"def forward(self, {', '.join(names)}): return self.named({', '.join(names)})", space)
    return type("Model", (Model,), {"forward": space["forward"]})(model, names).eval()


def vocabulary(config):
    sizes = vars(config.get_text_config()).items()
    return min((v for k, v in sizes if k.endswith("vocab_size") and "type" not in k and v), default=97)


def mask(choice, batch, length):
    values = torch.ones(batch, length, dtype=torch.int64)
    if choice.mask == "right":
        values[-1, length - 3:] = 0
    elif choice.mask == "left":
        values[-1, :3] = 0
    return values


def pixels(config, batch):
    config = getattr(config, "vision_config", config)
    size = getattr(config, "image_size", 32)
    size = size if isinstance(size, (list, tuple)) else (size, size)
    frames = [config.num_frames] if getattr(config, "num_frames", None) else []
    return torch.randn(batch, *frames, getattr(config, "num_channels", 3), *size)


def tensors(model, choice, batch, length):
    """{name: tensor} for the parameters that the model cannot do without."""
    config, takes = model.config, inspect.signature(model.forward).parameters
    values = {}
    main = model.main_input_name
    if main == "input_ids" and takes.keys() >= {"input_ids", "pixel_values"} and "inputs_embeds" not in takes:
        values["pixel_values"] = pixels(config, batch)  # pairs, as of CLIP
    if main == "input_ids":
        values["input_ids"] = torch.randint(6, vocabulary(config), (batch, length))
        if "attention_mask" in takes and choice.mask != "none":
            values["attention_mask"] = mask(choice, batch, length)
        if "decoder_input_ids" in takes:
            values["decoder_input_ids"] = torch.randint(6, vocabulary(config), (batch, length - 3))
    elif main == "pixel_values":
        values["pixel_values"] = pixels(config, batch)
    elif main == "input_values":
        values["input_values"] = torch.randn(batch, 800 + 40 * length)
    elif main == "input_features":
        count = getattr(config, "num_mel_bins", None) or config.feature_size
        values["input_features"] = torch.randn(batch, count, 2 * getattr(config, "max_source_positions", 32))
        if "decoder_input_ids" in takes:
            values["decoder_input_ids"] = torch.randint(6, vocabulary(config), (batch, length - 3))
    else:
        raise ValueError(f"nothing is known of {main}")
    return values


def step(model, choice, batch, past):
    """One token behind `past` others."""
    y = model(input_ids=torch.randint(6, vocabulary(model.config), (batch, past)), use_cache=True)
    layers = y.past_key_values.layers
    values = {"input_ids": torch.randint(6, vocabulary(model.config), (batch, 1)),
              "attention_mask": mask(choice, batch, past + 1)}
    for n, layer in enumerate(layers):
        values[f"past_key_{n}"], values[f"past_value_{n}"] = layer.keys, layer.values
    return values


def axes(first, second):
    """The dimensions that differ between two draws, by names of their own sizes."""
    named = {}
    for name, a in first.items():
        for at, (u, v) in enumerate(zip(a.shape, second[name].shape)):
            if u != v:
                named.setdefault(name, {})[at] = "batch" if at == 0 else f"length_{u}_{v}"
    return named


def build(kind, choice, variant):
    torch.manual_seed(sum(map(ord, kind)))
    if kind in LIBRARIES:
        model, draws = LIBRARIES[kind]()
        return model.eval(), draws
    config = small(transformers.AutoConfig.for_model(kind), **SETTINGS.get(kind, {}))
    names = MODEL_MAPPING_NAMES[kind]
    model_class = getattr(transformers, names if isinstance(names, str) else names[0])
    config._experts_implementation = "eager"  # others are of no exporter
    try:
        model = model_class._from_config(config, attn_implementation=choice.attention)
    except ValueError:
        model = model_class._from_config(config, attn_implementation="eager")
    for parameter in model.parameters():  # what is made as zeros or ones says little
        parameter.data = parameter.data + 0.05 * torch.randn_like(parameter)
    draw = step if variant == "cached" else tensors
    with torch.no_grad():
        return model.eval(), [draw(model, choice, b, n) for b, n in zip((2, 3), LENGTHS)]


def export(model, draws, choice, path, precision):
    names = list(draws[0])
    model.to(precision)
    wrapped = fixed_signature(model, names) if hasattr(model, "main_input_name") else model
    values = [tuple(v.to(precision) if v.is_floating_point() else v for v in d.values()) for d in draws]
    with torch.no_grad(), Count() as count:
        y = wrapped(*values[0])
    count = count.softmaxes
    outputs = ["y"] + [f"present_{n}" for n in range(len(y) - 1 if isinstance(y, tuple) else 0)]
    named = axes(*draws) if choice.dynamic else {}
    common = dict(input_names=names, output_names=outputs, opset_version=choice.opset)
    if choice.dynamo:
        shapes = {n: {at: torch.export.Dim.DYNAMIC for at in named.get(n, {})} for n in names}
        torch.onnx.export(wrapped, values[0], path, dynamo=True, external_data=False, verbose=False,
                          dynamic_shapes=shapes if named else None, **common)
    else:
        torch.onnx.export(wrapped, values[0], path, dynamo=False, dynamic_axes=named, **common)
    return count, outputs, draws if choice.dynamic else draws[:1]


def references(path, draws, outputs, precision):
    """ONNX Runtime's; of a model in bf16, which it does not run, those of the same graph in f32."""
    is_bf16 = precision == torch.bfloat16
    session = onnxruntime.InferenceSession(widened(path) if is_bf16 else path, providers=["CPUExecutionProvider"])
    types = {i.name: i.type for i in session.get_inputs()}
    arrays = {}
    if is_bf16:
        for at, values in enumerate(draws):
            given = {n: v.numpy() for n, v in values.items() if n in types}
            stored = {n: narrowed(v) if v.dtype == np.float32 else v for n, v in given.items()}
            feeds = {n: v.astype(given[n].dtype) for n, v in stored.items()}
            arrays |= {f"{at}.{n}": v for n, v in stored.items()}
            arrays |= {f"{at}.{n}": v for n, v in zip(outputs, session.run(outputs, feeds))}
        return list(types), arrays
    for at, values in enumerate(draws):
        feeds = {n: v.numpy().astype(np.float16) if types.get(n) == "tensor(float16)" else v.numpy()
                 for n, v in values.items() if n in types}
        arrays |= {f"{at}.{n}": v for n, v in feeds.items()}
        arrays |= {f"{at}.{n}": v for n, v in zip(outputs, session.run(outputs, feeds))}
    return list(types), arrays


def write(folder, name):
    kind, _, variant = name.partition("+")
    choice = Choice(kind, variant)
    model, draws = build(kind, choice, variant)
    path = folder / f"{name}.onnx"
    precision = {"f16": torch.float16, "bf16": torch.bfloat16}.get(variant, torch.float32)
    all_draws = draws
    for attempt in ("as drawn", "other exporter", "one size"):  # what one exporter lacks the other may have
        if attempt == "other exporter":
            choice.dynamo, choice.opset = not choice.dynamo, 18
        choice.dynamic &= attempt != "one size"
        try:
            count, outputs, draws = export(model, all_draws, choice, path, precision)
            strip(path)
            if variant in REWRITES:
                REWRITES[variant](path, [{n: v.numpy() for n, v in d.items()} for d in draws])
            inputs, arrays = references(path, draws, outputs, precision)
            break
        except TimeoutError:
            raise
        except Exception:
            if attempt == "one size":
                raise
    if not all(np.isfinite(v.astype(np.float64)).all() for v in arrays.values()):
        raise ValueError("its results are not finite")
    np.savez(folder / f"{name}.npz", **arrays)
    tolerance = {"f16": 2e-2, "bf16": 1e-2, "half": 2e-2, "dynamic": 5e-2, "qdq": 5e-2}.get(variant, 2e-4)
    about = {"inputs": inputs, "outputs": outputs, "sizes": len(draws), "attentions": count, "tolerance": tolerance}
    (folder / f"{name}.json").write_text(json.dumps(about | {"drawn": vars(choice)}))


def late(*_):
    raise TimeoutError("it takes too long")


def main():
    warnings.simplefilter("ignore")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGALRM, late)
    for name in sys.argv[2:] or [*MODEL_MAPPING_NAMES, *LIBRARIES]:
        signal.alarm(90)
        try:
            write(folder, name)
            print(name, flush=True)
        except Exception as error:
            why = " ".join(str(error).split())[:200]
            print(f"{name}: cannot be exported: {type(error).__name__}: {why}", flush=True)
        finally:
            signal.alarm(0)


if __name__ == "__main__":
    main()
