"""Exports models to the graphs that attnc compiles, named as folders of ONNX models on the hub name theirs."""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, MutableMapping, Optional, Tuple

import torch
from attnc_runtime import InvalidArgument
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.exporters.base import ExportedModel
from transformers.exporters.configs import ExportConfigMixin, OnnxConfig
from transformers.exporters.exporter_onnx import OnnxExporter
from transformers.modeling_outputs import BaseModelOutput

from ..._torch_program import rename_sizes
from ._decoder import CACHE
from ._generation_errors import check_call, check_inputs, quiet_failure

FORMAT = "attnc"


@dataclass
class AttncConfig(OnnxConfig):
    """What an export is asked for. Sizes that a run chooses (batch, sequence) stay open unless ``dynamic=False``."""

    export_format: str = FORMAT
    dynamic: bool = True


class AttncExporter(OnnxExporter):
    """Exports a model for attnc: ``AttncExporter().export(model, inputs, AttncConfig()).save_pretrained(folder)``, or
    ``export_for_generation`` for one that generates. The files are ONNX."""

    export_format = FORMAT
    config_class = AttncConfig

    def export_program(self, model: Any, sample_inputs: MutableMapping[str, Any], config: Any) -> Tuple[Any, Any]:
        program, metadata = super().export_program(model, sample_inputs, config)
        _name_dimensions(program.graph)
        return program, metadata

    def export(self, model: Any, sample_inputs: MutableMapping[str, Any], config: Any = None) -> ExportedModel:
        exported = super().export(model, sample_inputs, config if config is not None else AttncConfig())
        exported.config = _named(exported.config, model)
        return exported

    def export_for_generation(
        self,
        model: PreTrainedModel,
        sample_inputs: MutableMapping[str, Any],
        config: Any = None,
        *,
        generation_config: Any = None,
        multi_token_decode: bool = True,
    ) -> ExportedModel:
        """Exports a decoder as ``model`` (a look at any number of tokens behind those of its caches), or an encoder
        and a decoder as ``encoder_model``, ``decoder_model`` (the first look) and ``decoder_with_past_model``.

        InvalidArgument  the model has no such caches, or torch's exporter cannot trace it, or it reads an input of the
                         example that those graphs do not take (images beside text, for instance)
        """
        if not model.can_generate():
            raise InvalidArgument(
                f"{type(model).__name__} does not generate: AttncExporter().export(model, inputs) exports it to be "
                "called; classes that generate are called ...ForCausalLM, ...LMHeadModel or ...ForConditionalGeneration"
            )
        config = config if config is not None else AttncConfig()
        seq2seq = bool(model.config.is_encoder_decoder)
        components = {}
        if not seq2seq:
            check_call(model, {"input_ids", "attention_mask", "position_ids", CACHE, "use_cache"})
        with quiet_failure(model):
            parts = _seq2seq_parts(model, sample_inputs) if seq2seq else _causal_parts(model)
            for name, (module, inputs) in parts.items():
                chosen: ExportConfigMixin = config[name] if isinstance(config, dict) else config
                components[name] = self._export_component(module, inputs, chosen)
            check_inputs(model, sample_inputs, components)
        settings = copy.deepcopy(generation_config if generation_config is not None else model.generation_config)
        exported = ExportedModel(components, self.export_format, _named(model.config, model), settings)
        for component in components.values():
            component.metadata.architecture = type(model).__name__
        return exported


def _named(config: Any, model: Any) -> Any:
    """As saved beside a model: it says the model's class."""
    if config is not None:
        config = copy.deepcopy(config)
        config.architectures = [type(model).__name__]
    return config


class _Decoder(torch.nn.Module):
    """A look of a model that is a decoder alone."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, past_key_values: Mapping[str, Any], **inputs: torch.Tensor) -> Dict[str, Any]:
        cache = _cache(past_key_values)
        outputs = self.model(**inputs, **{CACHE: cache}, use_cache=True)
        return {"logits": outputs.logits, "present": _layers(getattr(outputs, CACHE))}


@dataclass
class _States(BaseModelOutput):
    """What an encoder made, with the mask that Moonshine's decoder looks for in it."""

    attention_mask: Optional[torch.Tensor] = None


class _CrossDecoder(torch.nn.Module):
    """A look of a decoder at what an encoder made. The later ones take the keys and values of that from the first."""

    def __init__(self, model: PreTrainedModel, width: int) -> None:
        super().__init__()
        self.model = model
        self.width = width  # of what the encoder made

    def forward(
        self,
        input_ids: torch.Tensor,
        encoder_hidden_states: Optional[torch.Tensor] = None,
        encoder_attention_mask: Optional[torch.Tensor] = None,
        past_key_values: Optional[Mapping[str, Any]] = None,
    ) -> Dict[str, Any]:
        caches = EncoderDecoderCache(DynamicCache(), DynamicCache())
        if past_key_values is not None:
            own, cross = ({n: layer[side] for n, layer in past_key_values.items()} for side in ("decoder", "encoder"))
            caches = EncoderDecoderCache(_cache(own), _cache(cross))
            keys = cross["0"]["key"]
            # Only the shape of it is read, as the caches hold its keys and values.
            encoder_hidden_states = keys.new_zeros(keys.shape[0], keys.shape[2], self.width)
        outputs = self.model(
            decoder_input_ids=input_ids,
            encoder_outputs=_States(last_hidden_state=encoder_hidden_states),
            use_cache=True,
            **{CACHE: caches},
            **({} if encoder_attention_mask is None else {"attention_mask": encoder_attention_mask}),
        )
        made = getattr(outputs, CACHE)
        sides = {"decoder": _layers(made.self_attention_cache)}
        if past_key_values is None:
            sides["encoder"] = _layers(made.cross_attention_cache)
        present = {n: {side: layers[n] for side, layers in sides.items()} for n in sides["decoder"]}
        return {"logits": outputs.logits, "present": present}


class _Encoder(torch.nn.Module):
    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, **inputs: torch.Tensor) -> Dict[str, torch.Tensor]:
        return {"last_hidden_state": self.encoder(**inputs).last_hidden_state}


def _cache(layers: Mapping[str, Any]) -> DynamicCache:
    return DynamicCache([(layer["key"], layer["value"]) for layer in layers.values()])


def _layers(cache: DynamicCache) -> Dict[str, Dict[str, torch.Tensor]]:
    return {str(n): {"key": layer.keys, "value": layer.values} for n, layer in enumerate(cache.layers)}


# Sizes of the examples that are traced. None is 1, and no two are equal, so that the trace takes none for fixed and no
# two for one.
_ROWS, _TOKENS, _PAST, _SOURCE = 2, 3, 5, 7


def _run(module: torch.nn.Module, **inputs: Any) -> Any:
    with torch.no_grad():
        return module(**copy.deepcopy(inputs))


def _causal_parts(model: PreTrainedModel) -> Dict[str, Tuple[torch.nn.Module, Dict[str, Any]]]:
    takes = set(inspect.signature(model.forward).parameters)
    ids = torch.ones(_ROWS, _TOKENS, dtype=torch.int64)
    # Of whole layers alone: one that slides would keep its window only, so that layers differ in length.
    past = torch.ones(_ROWS, _PAST, dtype=torch.int64)
    before = _run(model, input_ids=past, use_cache=True, **{CACHE: DynamicCache()}).get(CACHE)
    if before is None:
        name = type(model).__name__
        raise InvalidArgument(f"{name} returns no cache of keys and values: config.is_decoder = True makes it do so")
    inputs: Dict[str, Any] = {"input_ids": ids}
    inputs["attention_mask"] = torch.ones(_ROWS, _PAST + _TOKENS, dtype=torch.int64)
    if "position_ids" in takes:
        inputs["position_ids"] = torch.arange(_PAST, _PAST + _TOKENS).expand(_ROWS, _TOKENS).contiguous()
    inputs["past_key_values"] = _layers(before)
    return {"model": (_Decoder(model), inputs)}


def _seq2seq_parts(
    model: PreTrainedModel, sample: Mapping[str, Any]
) -> Dict[str, Tuple[torch.nn.Module, Dict[str, Any]]]:
    encoder = _Encoder(model)
    given = {name: value for name, value in sample.items() if isinstance(value, torch.Tensor)}
    given = {name: value for name, value in given.items() if not name.startswith("decoder_")}
    states = _run(encoder, **given)["last_hidden_state"]
    ids = torch.ones(states.shape[0], _TOKENS, dtype=torch.int64)
    first: Dict[str, Any] = {"input_ids": ids, "encoder_hidden_states": states}
    if "attention_mask" in given and given["attention_mask"].shape == states.shape[:2]:
        first["encoder_attention_mask"] = given["attention_mask"]
    decoder = _CrossDecoder(model, states.shape[-1])
    later = {**first, "input_ids": ids[:, :2].contiguous(), "past_key_values": _run(decoder, **first)["present"]}
    del later["encoder_hidden_states"]
    return {
        "encoder_model": (encoder, given),
        "decoder_model": (decoder, first),
        "decoder_with_past_model": (decoder, later),
    }


# What the dimensions of an input of this name are called.
_DIMENSIONS: Mapping[str, List[str]] = {
    "input_ids": ["batch_size", "sequence_length"],
    "token_type_ids": ["batch_size", "sequence_length"],
    "position_ids": ["batch_size", "sequence_length"],
    "encoder_hidden_states": ["batch_size", "encoder_sequence_length"],
    "encoder_attention_mask": ["batch_size", "encoder_sequence_length"],
    "pixel_values": ["batch_size", "num_channels", "height", "width"],
    "input_features": ["batch_size", "feature_size", "frames"],
}


def _dimensions_of(name: str, cached: bool) -> List[str]:
    if name == "attention_mask":
        return ["batch_size", "total_sequence_length" if cached else "sequence_length"]
    if name.startswith("past_key_values."):
        source = "encoder_sequence_length" if ".encoder." in name else "past_sequence_length"
        return ["batch_size", "num_heads", source, "head_size"]
    return _DIMENSIONS.get(name, [])


def _name_dimensions(graph: Any) -> None:
    """Gives sizes of inputs and outputs the names that people know, one to each, and those that the trace found to be
    numbers ("8") their number."""
    cached = any(value.name.startswith("past_key_values.") for value in graph.inputs)
    names: Dict[str, str] = {}
    for value in graph.inputs:
        for size, name in zip(value.shape or (), _dimensions_of(value.name, cached)):
            if isinstance(getattr(size, "value", size), str):
                names.setdefault(size.value, name)
    rename_sizes(graph, names)
