"""What can be compiled, and which files it is made of."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set, Tuple, Union

from attnc_runtime import InvalidArgument, NoSuchFile

from ._search import Search

Path = Union[str, "os.PathLike[str]"]

# {key: "location", value: PATH} of an ONNX tensor's external_data, as it is serialised. What else looks so costs a file
# more in the digest, and nothing else.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x01-\x7f]|[\x80-\xff][\x01-\x7f])")
_MODEL_SUFFIXES = (".onnx", ".json", ".mlir")


def external_files(data: bytes) -> Set[str]:
    """Names of the files that hold tensors of an ONNX model."""
    found = set()
    for match in _LOCATION.finditer(data):
        length = match[1]
        size = length[0] if len(length) == 1 else (length[0] & 0x7F) | length[1] << 7
        found.add(data[match.end() : match.end() + size].decode("utf-8", "replace"))
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _files_beside(path: pathlib.Path, data: bytes) -> List[pathlib.Path]:
    """The files that a model names, if they are there."""
    names: Set[str] = set()
    if path.suffix == ".json":
        try:
            names = set(_texts(json.loads(data).get("weights")))
        except (ValueError, AttributeError):
            pass  # attnc says what is wrong with it
    else:
        names = external_files(data)
    files = (path.parent / name for name in sorted(names) if name and "\0" not in name)
    return [file for file in files if file.is_file()]


class Source:
    """A model to be compiled: files for entries, "" for a model that names its own. ``shown`` is what a model is called
    that is in no file of the caller's."""

    def __init__(self, entries: Mapping[str, pathlib.Path], *, named: bool, shown: str = "") -> None:
        self.entries = dict(entries)
        self.shown = shown
        self._named = named

    @property
    def name(self) -> str:
        return next(iter(self.entries.values())).name

    @property
    def label(self) -> str:
        """What tells it from other models of its name."""
        return self.shown or " ".join(Source.arguments(self))

    def arguments(self) -> List[str]:
        """For the command line of attnc. A path never looks like an option, or like NAME=MODEL."""
        if not self._named:
            return [os.path.abspath(self.entries[""])]
        return [f"{name}={os.path.abspath(path)}" for name, path in self.entries.items()]

    def digest(self) -> str:
        """Of all that a compile reads."""
        whole = hashlib.sha256()

        def add(label: str, data: bytes) -> None:
            whole.update(json.dumps([label, len(data), hashlib.sha256(data).hexdigest()]).encode())

        for name, path in self.entries.items():
            data = path.read_bytes()
            add(f"{name}{path.suffix}", data)
            for file in _files_beside(path, data):
                digest = hashlib.sha256()
                with open(file, "rb") as stream:
                    while block := stream.read(1 << 22):
                        digest.update(block)
                add(os.path.relpath(file, path.parent), digest.digest())
        return whole.hexdigest()

    def pickled(self) -> Union[str, Dict[str, str]]:
        """What ``open_source`` makes the same of."""
        if not self._named:
            return os.path.abspath(self.entries[""])
        return {name: os.path.abspath(path) for name, path in self.entries.items()}


class Written(Source):
    """A model that is written when it is compiled, and not before: ``digest`` says what ``write`` would make of it in a
    folder."""

    def __init__(self, name: str, digest: str, write: Callable[[pathlib.Path], pathlib.Path]) -> None:
        super().__init__({"": pathlib.Path(name)}, named=False, shown=name)
        self._digest = digest
        self._write = write
        self.folder: Optional[pathlib.Path] = None  # where to write it

    def arguments(self) -> List[str]:
        assert self.folder is not None
        return [os.path.abspath(self._write(self.folder))]

    def digest(self) -> str:
        return self._digest


def _write_proto(model: Any, folder: pathlib.Path) -> pathlib.Path:
    path = folder / "model.onnx"
    size = model.ByteSize()
    if size < 1 << 31 and not any(t.external_data for t in model.graph.initializer):
        path.write_bytes(model.SerializeToString())
        return path
    import onnx

    onnx.save_model(model, str(path), save_as_external_data=True, location="model.data", size_threshold=1024)
    return path


def open_source(source: Any, scratch: pathlib.Path, search: Union[Search, None] = None) -> Tuple[Source, bool]:
    """The source, and whether it lies in files of the caller's. What does not is written into ``scratch``."""
    if isinstance(source, Written):
        source.folder = scratch
        return source, False
    if isinstance(source, Mapping):
        if not source:
            raise InvalidArgument("no models are given: a mapping holds the model of each entry by its name")
        if not all(isinstance(path, (str, os.PathLike)) for path in source.values()):
            raise InvalidArgument("of several entries each is the path of a model")
        return Source({str(name): _existing(path) for name, path in source.items()}, named=True), True
    if isinstance(source, (str, os.PathLike)) and os.path.isdir(source):
        return _folder(pathlib.Path(source), search is not None and search.step is None), True
    if isinstance(source, (str, os.PathLike)):
        return Source({"": _existing(source)}, named=False), True
    if hasattr(source, "SerializeToString") and hasattr(source, "graph"):
        shown = f"<onnx.ModelProto '{source.graph.name}'>"
        return Source({"": _write_proto(source, scratch)}, named=False, shown=shown), False
    if type(source).__name__ in ("ExportedProgram", "ONNXProgram") and type(source).__module__.startswith("torch"):
        from ._torch_program import write_program  # which imports torch

        return Source({"": write_program(source, scratch)}, named=False, shown=f"<{type(source).__name__}>"), False
    raise InvalidArgument(
        f"cannot compile an object of type {type(source).__name__}: give the path of a model "
        f"({', '.join(_MODEL_SUFFIXES)}) or of a folder of the hub, a mapping of entries to paths, an onnx.ModelProto "
        "or a torch.export program"
    )


# The files of a model on the hub, as Optimum writes them: a model alone, or an encoder and a decoder, whose first look
# and later ones are two files or two branches of one.
_PARTS = ("model", "encoder_model", "decoder_model", "decoder_with_past_model", "decoder_model_merged")


def models_in(folder: pathlib.Path) -> Dict[str, pathlib.Path]:
    """The parts that a folder has, there or in its folder ``onnx``."""
    found: Dict[str, pathlib.Path] = {}
    for name in _PARTS:
        for path in (folder / f"{name}.onnx", folder / "onnx" / f"{name}.onnx"):
            if path.is_file():
                found.setdefault(name, path)
    return found


class _Whole(Source):
    """A folder of which attnc makes one function: it finds the parts, and their settings in the configurations."""

    def __init__(self, path: pathlib.Path, found: Mapping[str, pathlib.Path]) -> None:
        super().__init__({"": path}, named=False)
        settings = (path / place / name for place in ("", "onnx") for name in ("config.json", "generation_config.json"))
        self._parts = Source({**found, **{str(file): file for file in settings if file.is_file()}}, named=True)

    def digest(self) -> str:
        return self._parts.digest()


def _folder(path: pathlib.Path, generates: bool) -> Source:
    """A model alone, or each part as an entry of its name; of the decoder's forms the one with a file each. All of it if
    it ``generates``."""
    found = models_in(path)
    if found and generates:
        return _Whole(path, found)
    if "decoder_model" in found and "decoder_with_past_model" in found:
        found.pop("decoder_model_merged", None)
        found.pop("model", None)
    elif "model" in found:
        return Source({"": found["model"]}, named=False)
    if not found:
        names = ", ".join(f"{name}.onnx" for name in _PARTS)
        raise InvalidArgument(
            f"{path} is a folder with none of {names}, nor has its folder onnx; give a model's path, or export the "
            "model: 'optimum-cli export onnx --model FOLDER OUT', or attnc.integrations.transformers.AttncExporter"
        )
    return Source(found, named=True)


def _existing(path: Path) -> pathlib.Path:
    result = pathlib.Path(path)
    if not os.fspath(path):
        raise InvalidArgument("the path of the model is empty")
    if not result.exists():
        raise NoSuchFile(f"{result}: no such file")
    if result.is_dir():
        raise InvalidArgument(f"{result} is a folder; of several entries each is the path of a model")
    return result
