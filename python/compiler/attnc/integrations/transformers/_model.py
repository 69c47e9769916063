"""Exported models that are used as transformers' own: called, given to pipelines, asked to generate."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Dict, List, Optional, Tuple, Type, Union

import torch
from attnc_runtime import InvalidArgument, NoSuchFile
from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto import modeling_auto
from transformers.utils import ModelOutput

from ..._load import Model, load
from ..._source import models_in
from ._folder import Folder, find
from ._runner import as_input, check_device


class AttncModel:
    """A compiled model with what transformers' pipelines ask of one: ``AttncModel.from_pretrained(folder)``. The class
    of what that returns is called as the model's own."""

    base_model_prefix = ""
    input_modalities: Tuple[str, ...] = ("text",)
    _is_stateful = False

    def __init__(self, config: PreTrainedConfig, folder: Folder, options: Dict[str, Any]) -> None:
        self.config = config
        self.folder = folder
        self._options = options

    @staticmethod
    def from_pretrained(path: Union[str, "os.PathLike[str]"], **options: Any) -> "AttncModel":
        """The model in a folder: what ``AttncExporter`` wrote, or ONNX files as the hub has them (``model.onnx``;
        ``encoder_model.onnx``, ``decoder_model.onnx`` and ``decoder_with_past_model.onnx``; there or in a folder
        ``onnx``), beside ``config.json`` and ``generation_config.json``. Options are those of ``attnc.load``.

        NoSuchFile   a file that is needed is not there
        Unsupported  a layout of the files that has no support, or what ``attnc.load`` says of them
        """
        folder = pathlib.Path(path)
        check_device(options.pop("device", None))
        if not (folder / "config.json").exists():
            raise NoSuchFile(f"{folder / 'config.json'}: no such file; it says what the model is")
        config = AutoConfig.from_pretrained(folder)
        kind: Type[AttncModel] = Encoder
        # Where the configuration does not say what it is of, the files do.
        generates = _generates(config) or not {"decoder_model", "decoder_model_merged"}.isdisjoint(models_in(folder))
        if generates:
            from ._generate import Generator, WhisperGenerator

            kind = WhisperGenerator if config.model_type == "whisper" else Generator
        name = (config.architectures or [kind.__name__])[0]
        made: Type[AttncModel] = type(name, (kind,), {"__module__": __name__})
        return made(config, find(folder, generates), options)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def to(self, *where: Any, **named: Any) -> "AttncModel":
        for each in (*where, named.get("device")):
            if isinstance(each, (str, int, torch.device)):
                check_device(each)
            elif isinstance(each, torch.dtype) and each != torch.float32:
                raise InvalidArgument(f"a compiled model stays {self.dtype}; precision='bf16' narrows it when loaded")
        return self

    def eval(self) -> "AttncModel":
        return self

    def can_generate(self) -> bool:
        return False

    def is_remote_code(self) -> bool:
        return False

    def forward(self, **inputs: Any) -> Any:
        raise NotImplementedError

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self.forward(*inputs, **named)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} compiled from {self.folder.path}>"


def _generates(config: PreTrainedConfig) -> bool:
    """Whether the model is one that writes text, token by token."""
    names = ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT")
    mappings = [getattr(modeling_auto, f"MODEL_FOR_{name}_MAPPING_NAMES") for name in names]
    values = [each for mapping in mappings for each in mapping.values()]
    known = {name for each in values for name in ([each] if isinstance(each, str) else each)}
    architectures: List[str] = config.architectures or []
    return any(name in known for name in architectures) or (not architectures and bool(config.is_encoder_decoder))


class Encoder(AttncModel):
    """A model that is called once: its outputs have the names that the file gives them."""

    def __init__(self, config: PreTrainedConfig, folder: Folder, options: Dict[str, Any]) -> None:
        super().__init__(config, folder, options)
        self.model: Model = load(folder.model, **options)
        self.main_input_name = self.model.inputs[0].name

    def forward(self, *inputs: torch.Tensor, **named: Any) -> ModelOutput:
        """Inputs that the model has not are left out, as a tokenizer gives more than some models take."""
        infos = self.model.inputs
        given = {**dict(zip((info.name for info in infos), inputs)), **named}
        feeds = {}
        for info in infos:
            if given.get(info.name) is None:
                raise InvalidArgument(f"the model has an input '{info.name}', of which there is none in {list(given)}")
            feeds[info.name] = as_input(given[info.name].to(getattr(torch, info.dtype)))
        return ModelOutput(self.model.run(feeds))
