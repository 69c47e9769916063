"""attnc behind ONNX's backend interface (onnx.backend.base): ``import attnc.onnx_backend as backend``.

    backend.prepare(onnx.load("model.onnx")).run([ids, mask])
"""

from __future__ import annotations

import contextlib
from typing import Any, Mapping, Optional, Sequence, Tuple

import numpy as np
import onnx
from attnc_runtime import InvalidArgument
from onnx.backend.base import Backend, BackendRep, DeviceType, namedtupledict

from ._load import Model, load


class AttncRep(BackendRep):  # type: ignore[misc]
    """A compiled model. ``run`` takes a list of arrays in the order of the model's inputs, or a mapping."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def run(self, inputs: Any, **options: Any) -> Tuple[Any, ...]:
        names = [info.name for info in self.model.inputs]
        if not isinstance(inputs, Mapping):
            if isinstance(inputs, np.ndarray) or not isinstance(inputs, Sequence):
                inputs = [inputs]
            if len(inputs) > len(names):
                raise InvalidArgument(f"the model takes {len(names)} inputs, not {len(inputs)}: {', '.join(names)}")
            inputs = dict(zip(names, inputs))
        outputs = self.model.run({name: np.asarray(value) for name, value in inputs.items()}, **options)
        return tuple(namedtupledict("Outputs", list(outputs))(*outputs.values()))


class AttncBackend(Backend):  # type: ignore[misc]
    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> AttncRep:
        """Compiles ``model``; options are those of ``attnc.load``."""
        if not cls.supports_device(device):
            raise InvalidArgument(f"device expects CPU or CUDA, not '{device}'")
        if device.startswith("CUDA"):
            options.setdefault("target", "cuda")
        options.setdefault("cache", False)
        super().prepare(model, device)  # checks the model
        return AttncRep(load(model, **options))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> Tuple[Any, ...]:
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Optional[Sequence[Tuple[Any, Tuple[int, ...]]]] = None,
        **options: Any,
    ) -> Tuple[Any, ...]:
        """Runs one node. The sizes of its outputs are inferred unless ``outputs_info`` has them."""
        opset = options.pop("opset_version", onnx.defs.onnx_opset_version())
        arrays = [np.asarray(value) for value in inputs]
        kinds = [onnx.helper.np_dtype_to_tensor_dtype(array.dtype) for array in arrays]
        given = [name for name in node.input if name]
        infos = [
            onnx.helper.make_tensor_value_info(name, kind, array.shape)
            for name, kind, array in zip(given, kinds, arrays)
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        if outputs_info is not None:
            outputs = [
                onnx.helper.make_tensor_value_info(o.name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
                for o, (dtype, shape) in zip(outputs, outputs_info)
            ]
        graph = onnx.helper.make_graph([node], "node", infos, outputs)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, opset)])
        model.ir_version = min(model.ir_version, 11)
        if outputs_info is None:
            model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        return cls.prepare(model, device, **options).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        with contextlib.suppress(AttributeError):
            return getattr(DeviceType, device.partition(":")[0]) in (DeviceType.CPU, DeviceType.CUDA)
        return False


prepare = AttncBackend.prepare
run_model = AttncBackend.run_model
run_node = AttncBackend.run_node
supports_device = AttncBackend.supports_device

__all__ = ["AttncBackend", "AttncRep", "prepare", "run_model", "run_node", "supports_device"]
