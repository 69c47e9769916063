"""sentence-transformers with its encoder compiled: ``attnc.accelerate(SentenceTransformer(...))``."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import io
import json
import logging
import pathlib
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import torch
from attnc_runtime import InvalidArgument, Unsupported
from sentence_transformers import __version__ as _version
from sentence_transformers.base.model import BaseModel
from sentence_transformers.base.modules import Transformer

from .._bert import write_bert
from .._load import Model, load
from .._source import Written

# What asks a model for more than its output. An accelerated one has nothing else.
_MORE = ("output_hidden_states", "output_attentions")


class Encoder:
    """Takes the place of a Transformer's model and runs the compiled one, on the CPU."""

    def __init__(self, model: Model, config: Any, dtype: torch.dtype) -> None:
        self.model = model
        self.config = config
        self.dtype = dtype
        self.device = torch.device("cpu")
        self._entry = model.entries[next(iter(model.entries))]
        self._names = [info.name for info in model.inputs]
        self._output = model.outputs[0].name

    def forward(self, return_dict: bool = True, **given: Any) -> Dict[str, torch.Tensor]:
        """The compiled output by its name. ``given`` are the features of ``preprocess``."""
        for name, value in given.items():
            if name in _MORE and value or name not in self._names and isinstance(value, torch.Tensor):
                raise Unsupported(
                    f"'{name}' is not part of the compiled model, whose inputs are {', '.join(self._names)} and whose "
                    f"output is '{self._output}'; use the model that was given to attnc.accelerate"
                )
        return {self._output: self._entry(**{name: given[name] for name in self._names if name in given})}

    __call__ = forward

    def __reduce__(self) -> Tuple[Any, ...]:
        return Encoder, (self.model, self.config, self.dtype)

    def save_pretrained(self, *_: Any, **__: Any) -> None:
        raise Unsupported("an accelerated model holds no weights of torch's: save the one given to attnc.accelerate")

    def __repr__(self) -> str:
        return f"<attnc.Encoder {self.model!r}>"


def accelerate(model: Any, **options: Any) -> Any:
    """See attnc.accelerate."""
    if not isinstance(model, BaseModel):
        raise InvalidArgument(f"expected a model of sentence-transformers, not a {type(model).__name__}")
    place, first = next(iter(model.named_children()))
    if not isinstance(first, Transformer):
        raise Unsupported(f"the first module is a {type(first).__name__}; what can be compiled is a Transformer")
    if isinstance(first.model, Encoder):
        raise InvalidArgument("the model is accelerated already")
    output = _output_of(first)
    encoder = Encoder(_compile(first, output, options), first.model.config, first.model.dtype)

    compiled = copy.copy(first)
    compiled._modules = {name: child for name, child in first._modules.items() if name != "model"}
    compiled.model = encoder
    compiled.unpad_inputs = False  # no flat batches for flash attention
    result = copy.copy(model)
    result._modules = {**model._modules, place: compiled}
    result.model_card_data = copy.copy(model.model_card_data)
    result.model_card_data.register_model(result)
    return result


def _output_of(module: Transformer) -> str:
    """The name of the only output that the module hands on, of texts."""
    if not hasattr(module, "modality_config"):
        raise Unsupported(f"sentence-transformers {_version} is older than 6, the first that attnc.accelerate knows")
    ways = {json.dumps([way["method"], way["method_output_name"]]) for way in module.modality_config.values()}
    method, output = json.loads(ways.pop()) if len(ways) == 1 else (None, None)
    if "text" not in module.modality_config or method != "forward" or not isinstance(output, str):
        kinds = ", ".join(map(str, module.modality_config))
        raise Unsupported(f"a model of {kinds} that calls more than one forward(); only encoders of text are compiled")
    return output


def _compile(module: Transformer, output: str, options: Mapping[str, Any]) -> Model:
    inner = module.model
    features = module.preprocess(["one", "and two more"])
    known = module._declared_forward_params
    inputs = {name: value.cpu() for name, value in features.items() if isinstance(value, torch.Tensor) and name in known}
    # The tokenizer may leave out what it thinks the model does not need; the order is the model's.
    names = [name for name in known if name in inputs]
    plain = _is_plain_bert(inner, output, names)

    def write(folder: pathlib.Path) -> pathlib.Path:
        return _write_graph(inner, folder) if plain else _export(inner, {n: inputs[n] for n in names}, output, folder)

    label = f"{type(inner).__name__}.{'json' if plain else 'onnx'}"
    return load(Written(label, _digest(inner, names, output), write), **options)


def _digest(model: Any, inputs: List[str], output: str) -> str:
    """Of all that the compiled model depends on: the weights as they are now, not the files they came from."""
    kind = type(model)
    whole = hashlib.sha256(json.dumps([1, kind.__module__, kind.__qualname__, inputs, output]).encode())
    config = {name: value for name, value in model.config.to_dict().items() if name != "_name_or_path"}
    whole.update(json.dumps(config, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        plain = tensor.detach().cpu().contiguous()
        whole.update(json.dumps([name, str(plain.dtype), list(plain.shape)]).encode())
        whole.update(memoryview(plain.reshape(-1).view(torch.uint8).numpy()))
    return whole.hexdigest()


def _is_plain_bert(model: Any, output: str, inputs: List[str]) -> bool:
    """BERT as attnc writes it by itself, which takes no exporter."""
    return (
        type(model).__module__.startswith("transformers.models.bert.")
        and type(model).__name__ == "BertModel"
        and output == "last_hidden_state"
        and set(inputs) == {"input_ids", "attention_mask", "token_type_ids"}
        and all(parameter.dtype == torch.float32 for parameter in model.parameters())
        and not model.config.is_decoder
    )


def _write_graph(model: Any, folder: pathlib.Path) -> pathlib.Path:
    from safetensors.torch import save_file

    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    save_file(tensors, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(model.config.to_json_string(use_diff=False))
    write_bert(folder, folder / "model.json")
    return folder / "model.json"


def _export(model: Any, inputs: Dict[str, torch.Tensor], output: str, folder: pathlib.Path) -> pathlib.Path:
    """As ONNX, by the exporter of transformers, with ``output`` alone."""
    try:
        from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter
    except ImportError as error:
        raise Unsupported(
            f"exporting a {type(model).__name__} takes transformers 5.23 or later with onnx and onnxscript: {error}; "
            "pip install onnx onnxscript"
        ) from None
    if model.device.type != "cpu":
        model = copy.deepcopy(model).cpu()
    with _quiet(), _evaluating(model), torch.no_grad():
        program = OnnxExporter().export(model, inputs, OnnxConfig(dynamic=True)).program
    import onnx_ir

    graph = program.graph
    kept = [value for value in graph.outputs if value.name == output]
    if not kept:
        raise Unsupported(f"{type(model).__name__} has no output '{output}'; it has {', '.join(v.name for v in graph.outputs)}")
    graph.outputs[:] = kept
    # The exporter gives each input sizes of its own; a batch is one of equally long rows.
    for value in graph.inputs:
        if len(value.shape) == 2:
            value.shape = onnx_ir.Shape(["batch", "sequence"])
    OnnxExporter.save_program(program, folder / "model.onnx")
    return folder / "model.onnx"


@contextlib.contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter tells its steps, and what it has no operators for."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)
