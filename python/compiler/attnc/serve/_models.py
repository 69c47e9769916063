"""Models as a replica holds them: one, or those of a folder, of which the most recently used are open."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import importlib
import os
import pathlib
import threading
from typing import Any, AsyncIterator, Callable, Dict, List, Mapping, Optional, OrderedDict, Protocol, Sequence

from attnc_runtime import NoSuchFile

from ..text_encoder import TextEncoder
from ._settings import Settings

_MODEL_FILES = (".so", ".onnx")


class Runner(Protocol):
    """An engine with a model: attnc.Model, or what ``Settings.backend`` makes. ``inputs`` and ``outputs`` have name,
    dtype and shape, in which a name stands for a size that is open."""

    inputs: Sequence[Any]
    outputs: Sequence[Any]

    def run(self, inputs: Mapping[str, Any], **options: Any) -> Mapping[str, Any]: ...


def is_collection(settings: Settings) -> bool:
    """Whether ``model`` is a folder of models: their names are those of its .so and .onnx files and of its folders."""
    path = pathlib.Path(settings.model)
    return settings.kind == "tensors" and path.is_dir() and not (path / "model.onnx").exists()


def _backend_of(settings: Settings) -> Optional[Callable[[str], Runner]]:
    if not settings.backend:
        return None
    module, _, function = settings.backend.partition(":")
    found: Callable[[str], Runner] = getattr(importlib.import_module(module), function)
    return found


class _PeerEncoder(TextEncoder):
    """The same tokenizer, pooling and normalisation around another engine."""

    def _load(self, options: Dict[str, Any]) -> Any:
        for name in ("onnx/model.onnx", "model.onnx"):
            if (self.folder / name).exists():
                return options["backend"](str(self.folder / name))
        raise NoSuchFile(f"{self.folder} has neither onnx/model.onnx nor model.onnx")


def open_runner(settings: Settings, path: Optional[pathlib.Path] = None) -> Any:
    """The model, ready to run: a TextEncoder for kind "text", a Model whose runs keep a state for "decoder"."""
    source = path or pathlib.Path(settings.model)
    backend = _backend_of(settings)
    if settings.kind == "text":
        if backend:
            return _PeerEncoder(source, backend=backend)
        return TextEncoder(source, **{"threads": settings.cpus, "sessions": 1, "verify": "once", **settings.options})
    if settings.kind == "decoder":
        return settings.load(_step_of(source), own_state=True)
    if source.is_dir():
        source = source / "model.onnx"
    return backend(str(source)) if backend else settings.load(source)


def _step_of(folder: pathlib.Path) -> pathlib.Path:
    """The decoder that takes a cache: a batch of sequences needs no other."""
    names = ("decoder_with_past_model.onnx", "decoder_model.onnx", "model.onnx", "decoder.onnx")
    for place in (folder, folder / "onnx"):
        for name in names:
            if (place / name).exists():
                return place / name
    raise NoSuchFile(f"{folder} has no decoder with a cache: {', '.join(names)}")


def _mapped_bytes(made: Any, path: pathlib.Path) -> int:
    """Of its library, which has the weights that an ONNX file may keep beside it; of the file, for another engine."""
    library = getattr(getattr(made, "model", None), "path", None)
    return os.stat(library or path).st_size


class Models:
    """The models of a folder by name. At most ``max_models`` of them, or ``max_bytes`` of weights, are open: the one
    that was not used for longest is closed first, unless a request holds it. Opening one maps its library; its session
    is made by its first run. Thread-safe."""

    def __init__(self, settings: Settings, make: Callable[[str, pathlib.Path], Any]) -> None:
        self._settings = settings
        self._make = make
        self._lock = threading.Lock()
        self._opening: Dict[str, threading.Lock] = collections.defaultdict(threading.Lock)
        self._open: OrderedDict[str, Any] = collections.OrderedDict()
        self._users: Dict[str, int] = collections.Counter()
        self._bytes: Dict[str, int] = {}

    def names(self) -> List[str]:
        if not is_collection(self._settings):
            return [self._settings.name]
        found = pathlib.Path(self._settings.model).iterdir()
        return sorted(p.stem for p in found if p.suffix in _MODEL_FILES or (p / "model.onnx").exists())

    def path(self, name: str) -> pathlib.Path:
        """NoSuchFile: there is no model of this name."""
        if not is_collection(self._settings):
            if name == self._settings.name:
                return pathlib.Path(self._settings.model)
        elif name not in ("", ".", "..") and not set(name) & set("/\\\0"):
            folder = pathlib.Path(self._settings.model)
            for candidate in (folder / f"{name}.so", folder / f"{name}.onnx", folder / name / "model.onnx"):
                if candidate.is_file():
                    return candidate
        raise NoSuchFile(f"there is no model '{name}'; GET /v2/models lists all")

    def take(self, name: str) -> Any:
        """The open model, held until ``give_back``."""
        path = self.path(name)
        with self._lock:
            opening = self._opening[name]
        with opening:  # one opens, others of the same name wait for it
            with self._lock:
                if name in self._open:
                    return self._hold(name)
            made = self._make(name, path)
            with self._lock:
                self._open[name] = made
                self._bytes[name] = _mapped_bytes(made, path)
                held = self._hold(name)
                self._shrink()
                return held

    def give_back(self, name: str) -> None:
        with self._lock:
            self._users[name] -= 1
            self._shrink()

    def loaded(self) -> List[str]:
        with self._lock:
            return list(self._open)

    def _hold(self, name: str) -> Any:
        self._users[name] += 1
        self._open.move_to_end(name)
        return self._open[name]

    def _shrink(self) -> None:
        limit = self._settings.max_bytes
        for name in list(self._open):
            within = not limit or sum(self._bytes[each] for each in self._open) <= limit
            if len(self._open) <= self._settings.max_models and within:
                return
            if not self._users[name]:
                del self._open[name], self._bytes[name], self._users[name]


@contextlib.asynccontextmanager
async def held(models: Models, name: str) -> AsyncIterator[Any]:
    """The open model, opened in a thread. A caller that is cancelled meanwhile leaves nothing held."""
    taking = asyncio.get_running_loop().run_in_executor(None, models.take, name)
    try:
        model = await asyncio.shield(taking)
    except asyncio.CancelledError:
        taking.add_done_callback(lambda done: None if done.exception() else models.give_back(name))
        raise
    try:
        yield model
    finally:
        models.give_back(name)
