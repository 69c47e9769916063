"""Which files of a folder are which part of a model that generates."""

from __future__ import annotations

import pathlib
import tempfile
from dataclasses import dataclass
from typing import Dict, Optional

from attnc_runtime import NoSuchFile, Unsupported

from ..._source import models_in
from ._merged import split


@dataclass(frozen=True)
class Folder:
    """The graphs of a folder. ``first`` is a look without caches, ``step`` one with them; where the caches may be empty
    there is no ``first``. A model that does not generate is ``model`` alone. ``scratch`` holds the two where one file
    of the folder was both."""

    path: pathlib.Path
    model: Optional[pathlib.Path] = None
    encoder: Optional[pathlib.Path] = None
    first: Optional[pathlib.Path] = None
    step: Optional[pathlib.Path] = None
    scratch: Optional["tempfile.TemporaryDirectory[str]"] = None

    def decoder(self) -> Dict[str, pathlib.Path]:
        """The entries of a library that decodes."""
        return {name: path for name, path in (("first", self.first), ("step", self.step)) if path is not None}


def find(path: pathlib.Path, takes_caches: bool) -> Folder:
    """``takes_caches``: the model generates, so that ``model.onnx`` is its step."""
    if not path.is_dir():
        raise NoSuchFile(f"{path}: no such folder")

    parts = models_in(path)
    whole, encoder = parts.get("model"), parts.get("encoder_model")
    first, step = parts.get("decoder_model"), parts.get("decoder_with_past_model")
    if first is not None and step is not None:
        return Folder(path, encoder=encoder, first=first, step=step)
    if whole is not None:
        return Folder(path, step=whole) if takes_caches else Folder(path, model=whole)
    if (merged := parts.get("decoder_model_merged")) is not None:
        scratch = tempfile.TemporaryDirectory(prefix="attnc-")
        first, step = split(merged, pathlib.Path(scratch.name))
        return Folder(path, encoder=encoder, first=first, step=step, scratch=scratch)
    if first is not None:
        raise Unsupported(f"{path} has decoder_model.onnx, and no decoder_with_past_model.onnx, which goes on")
    raise NoSuchFile(f"{path} has neither model.onnx nor decoder_model.onnx, nor does its folder onnx")
