"""Programs of torch.export as ONNX files, with the names that their authors gave."""

from __future__ import annotations

import pathlib
import re
from typing import Any, Dict, Iterable, Iterator, List, Mapping

from attnc_runtime import Unsupported


def write_program(program: Any, folder: pathlib.Path) -> pathlib.Path:
    """An ExportedProgram, or an ONNXProgram as it is."""
    try:
        import torch
    except ImportError:
        raise Unsupported("a torch.export program needs torch to be exported to ONNX") from None
    path = folder / "model.onnx"
    exported = program
    if isinstance(program, torch.export.ExportedProgram):
        exported = torch.onnx.export(program, dynamo=True, verbose=False)
        _warn_of_changes(exported.exported_program.graph_signature.buffers_to_mutate.values())
        rename_sizes(exported.model.graph, _names_of_sizes(program))
        _name_outputs(exported.model.graph, program)
    exported.save(str(path), external_data=True)
    return path


def _warn_of_changes(buffers: Iterable[str]) -> None:
    from ._compile import warn  # which imports _source, and that us

    warn([f"the program changes its buffer '{name}' for the calls after it, and a compiled model does not: each run begins "
          "with the buffer as it was exported. Make it an input and an output of the module, as an attnc.State keeps them"
          for name in buffers])  # fmt: skip


def _values(graph: Any) -> Iterator[Any]:
    import onnx_ir

    yield from graph.inputs
    yield from graph.initializers.values()
    for node in onnx_ir.traversal.RecursiveGraphIterator(graph):
        yield from node.outputs


def rename_sizes(graph: Any, names: Mapping[str, str]) -> None:
    """Gives the symbols in sizes other names, and sizes that the trace found to be numbers ("8") their number."""
    import onnx_ir

    def renamed(size: Any) -> Any:
        text = getattr(size, "value", size)
        if not isinstance(text, str):
            return size
        if text.isdecimal():
            return int(text)
        return re.sub(r"\b[A-Za-z_]\w*\b", lambda match: names.get(match[0], match[0]), text)

    for value in _values(graph):
        if value.shape is not None and not value.is_initializer():
            value.shape = onnx_ir.Shape([renamed(size) for size in value.shape])


def _names_of_sizes(program: Any) -> Dict[str, str]:
    """What dynamic_shapes calls the symbols of the trace. A program that was stored has forgotten it."""
    sizes = [size for node in program.graph.find_nodes(op="placeholder")
             for size in getattr(node.meta.get("val"), "shape", ()) if hasattr(size, "node")]  # fmt: skip
    if not sizes:
        return {}
    environment = sizes[0].node.shape_env
    symbols = getattr(environment, "source_to_var", {})
    names: Dict[str, str] = {}
    for source, name in getattr(environment, "source_name_to_debug_name", {}).items():
        symbol = symbols.get(source)
        symbol = str(getattr(environment, "replacements", {}).get(symbol, symbol))
        if name.isidentifier() and symbol.isidentifier() and name not in names.values():
            names.setdefault(symbol, name)
    others = {str(size) for size in sizes} - set(names)
    return {symbol: name for symbol, name in names.items() if name not in others}


def _labels(program: Any) -> List[str]:
    """What each result is called: its keys or fields in what the module returns, or else its place."""
    import torch
    from torch.utils import _pytree

    spec = program.module_call_graph[0].signature.out_spec
    results = _pytree.tree_unflatten([torch.zeros(()) for _ in range(spec.num_leaves)], spec)
    labels = []
    for place, (path, _) in enumerate(_pytree.tree_flatten_with_path(results)[0]):
        parts = [str(next(getattr(key, field) for field in ("key", "name", "idx") if hasattr(key, field))) for key in path]
        if not path or hasattr(path[0], "idx"):
            parts[:1] = [f"output_{parts[0] if parts else 0}"]
        labels.append(".".join(parts) or f"output_{place}")  # a value of ONNX has a name
    kinds = (spec for spec in program.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT")
    return [label for label, spec in zip(labels, kinds) if type(spec.arg).__name__ != "ConstantArgument"]


def _name_outputs(graph: Any, program: Any) -> None:
    """Values within the graph make way for the names of outputs. An output that would have the name of an input or of a
    weight has "_output" behind it."""
    outputs, labels = list(graph.outputs), _labels(program)
    if len(labels) != len(outputs) or len({id(value) for value in outputs}) != len(outputs):
        return
    inputs = program.graph_signature.user_inputs
    if len(inputs) != len(graph.inputs) or not all(isinstance(name, str) for name in inputs):
        inputs = [value.name for value in graph.inputs]
    chosen = list(zip(graph.inputs, inputs))  # where one is an output, too, the exporter calls it x_orig
    taken = {*inputs, *graph.initializers}
    for value, label in zip(outputs, labels):
        while label in taken:
            label += "_output"
        taken.add(label)
        chosen.append((value, label))
    used = taken | {value.name for value in _values(graph)}
    kept = {id(value) for value, _ in chosen}
    for value in _values(graph):
        if value.name in taken and id(value) not in kept and not value.is_initializer():
            while value.name in used:
                value.name += "_"
            used.add(value.name)
    for value, name in chosen:
        value.name = name
