"""Runs an exported graph by attnc, behind transformers' interface."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any, Dict, Mapping, Optional, Tuple

import torch
from attnc_runtime import InvalidArgument
from transformers.exporters.metadata import ExportMetadata
from transformers.exporters.runners.base import ModelRunner
from transformers.exporters.utils import onnx_inputs

from ..._load import Model, load


class AttncModelRunner(ModelRunner):
    """A compiled graph. Options of ``ExportedModel.from_pretrained`` and ``ExportedModel.to`` are those of
    ``attnc.load``."""

    def __init__(self, model: Model, metadata: ExportMetadata) -> None:
        super().__init__(metadata)
        self.model = model

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @classmethod
    def from_program(
        cls,
        program: Any,
        metadata: ExportMetadata,
        device: Any = None,
        threads: Optional[int] = None,
        sessions: Optional[int] = None,
        cpus: Tuple[int, ...] = (),
        copy_weights: Optional[bool] = None,
        dims: Optional[Mapping[str, Any]] = None,
        shapes: Optional[Mapping[str, Any]] = None,
        weights: Optional[str] = None,
        precision: Optional[str] = None,
        cpu: Optional[str] = None,
        optimize: Optional[int] = None,
        cache: bool = True,
        on_progress: Any = None,
    ) -> "AttncModelRunner":
        # Named one by one in the signature, by which transformers tells what it may be asked for.
        options: Dict[str, Any] = dict(threads=threads, sessions=sessions, cpus=cpus, copy_weights=copy_weights)
        options.update(dims=dims, shapes=shapes, weights=weights, precision=precision, cpu=cpu, optimize=optimize)
        options = {name: value for name, value in options.items() if value not in (None, ())}
        check_device(device)
        if "path" in program.meta:
            return cls(load(program.meta["path"], cache=cache, on_progress=on_progress, **options), metadata)
        import onnx_ir

        with tempfile.TemporaryDirectory(prefix="attnc-") as folder:
            path = pathlib.Path(folder) / "model.onnx"
            onnx_ir.save(program, path, external_data="model.onnx.data")
            return cls(load(path, cache=cache, on_progress=on_progress, **options), metadata)

    def __call__(self, share_inputs: bool = True, share_outputs: bool = False, **kwargs: Any) -> Any:
        """Inputs are read where they lie, and outputs own what the run wrote: the two options change nothing."""
        given = onnx_inputs([info.name for info in self.model.inputs], kwargs)
        missing = [info.name for info in self.model.inputs if info.name not in given]
        if missing:
            raise InvalidArgument(f"the model has an input '{missing[0]}', of which there is none in {list(kwargs)}")
        outputs = self.model.run({name: as_input(tensor) for name, tensor in given.items()})
        return self.unflatten([outputs[info.name] for info in self.model.outputs])


def as_input(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous()


def check_device(device: Any) -> None:
    if device is not None and torch.device(device).type != "cpu":
        raise InvalidArgument(f"attnc runs transformers' models on the CPU, not on {torch.device(device)}")
