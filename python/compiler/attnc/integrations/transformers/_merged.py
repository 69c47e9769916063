"""A decoder of two branches in one file becomes the two files that it was made of."""

from __future__ import annotations

import pathlib
import re
from typing import Any, Iterator, Tuple

from attnc_runtime import Unsupported

from ..._source import external_files

_CHOOSER = "use_cache_branch"


def split(path: pathlib.Path, folder: pathlib.Path) -> Tuple[pathlib.Path, pathlib.Path]:
    """Writes the first look and the later ones into ``folder``. Weights in files of their own stay where they are."""
    try:
        import onnx
    except ImportError:
        raise Unsupported(f"{path} is a decoder of two branches in one file, which needs the package onnx") from None

    model = onnx.load(path, load_external_data=False)
    for name in external_files(path.read_bytes()):
        link = folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to((path.parent / name).absolute())
    first, step = folder / "decoder_model.onnx", folder / "decoder_with_past_model.onnx"
    for file, has_past in ((first, False), (step, True)):
        decided = onnx.ModelProto()
        decided.CopyFrom(model)
        if not _decide(decided.graph, has_past):
            raise Unsupported(
                f"{path}: no If of its graph reads the input '{_CHOOSER}'; give decoder_model.onnx and "
                "decoder_with_past_model.onnx as well"
            )
        file.write_bytes(decided.SerializeToString())
    return first, step


def _decide(graph: Any, has_past: bool) -> bool:
    """Leaves the one branch, what it reads, and what it computes. False where there is no choice."""
    chooser = next((value for value in graph.input if value.name == _CHOOSER), None)
    choices = [node for node in graph.node if node.op_type == "If" and node.input[0] == _CHOOSER]
    if chooser is None or not choices:
        return False
    for node in choices:
        branches = {attribute.name: attribute.g for attribute in node.attribute}
        kept = type(graph)()
        kept.CopyFrom(branches["then_branch" if has_past else "else_branch"])
        for branch in branches.values():
            branch.CopyFrom(kept)
    shape = [size.dim_value or 1 for size in chooser.type.tensor_type.shape.dim]
    constant = graph.initializer.add(name=_CHOOSER, dims=shape, data_type=chooser.type.tensor_type.elem_type)
    constant.int32_data.append(int(has_past))
    read = set(_read(graph))
    _keep(graph.input, lambda name: name in read and name != _CHOOSER)
    if has_past:
        # An encoder's keys and values stay as the first look made them; an If has to return something.
        _keep(graph.output, lambda name: ".encoder." not in name)
        _rename_tokens(graph)
    return True


def _rename_tokens(graph: Any) -> None:
    """In a search the later looks see other numbers of tokens than the first, and than a mask that counts all of them:
    sizes of several names, where the files may have one for all."""
    for value in graph.input:
        sizes = value.type.tensor_type.shape.dim
        if value.name in ("input_ids", "decoder_input_ids") and len(sizes) == 2 and sizes[1].dim_param:
            tokens = re.compile(rf"\b{re.escape(sizes[1].dim_param)}\b")
            for size in list(_sizes(graph)):
                size.dim_param = tokens.sub("new_tokens", size.dim_param)


def _sizes(graph: Any) -> Iterator[Any]:
    """Those with a name, but for masks'."""
    for values in (graph.input, graph.output, graph.value_info):
        for value in values:
            if not value.name.endswith("attention_mask"):
                yield from (size for size in value.type.tensor_type.shape.dim if size.dim_param)
    for branch in _branches(graph):
        yield from _sizes(branch)


def _branches(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        yield from (attribute.g for attribute in node.attribute if attribute.HasField("g"))


def _read(graph: Any) -> Iterator[str]:
    """Names of all values that nodes read, those in branches too."""
    for node in graph.node:
        yield from node.input
    for branch in _branches(graph):
        yield from _read(branch)
        yield from (value.name for value in branch.output)


def _keep(values: Any, wanted: Any) -> None:
    kept = [value for value in values if wanted(value.name)]
    del values[:]
    values.extend(kept)
