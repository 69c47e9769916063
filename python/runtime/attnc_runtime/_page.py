"""Pages that need no network: the templates beside this file, with data in their places."""

from __future__ import annotations

import html
import json
import os
import pathlib
from typing import Any, Mapping, Union

from . import _errors


def fill(template: str, place: str, data: Mapping[str, Any]) -> str:
    """The page as HTML."""
    text = pathlib.Path(__file__).with_name(template).read_text(encoding="utf-8")
    return text.replace(place, json.dumps(data).replace("<", "\\u003c"), 1)


def frame(title: str, page: str) -> str:
    """The page inside of another one, a notebook."""
    style = "width:100%;height:48rem;border:0"
    return f'<iframe style="{style}" title="{title}" srcdoc="{html.escape(page, quote=True)}"></iframe>'


def save(page: str, path: Union[str, "os.PathLike[str]"]) -> None:
    """Writes a page. FileError, or NoSuchFile where the folder is not there."""
    try:
        pathlib.Path(path).write_text(page, encoding="utf-8")
    except OSError as error:
        kind = _errors.NoSuchFile if isinstance(error, FileNotFoundError) else _errors.FileError
        raise kind(f"cannot write '{os.fspath(path)}': {error.strerror}") from error
