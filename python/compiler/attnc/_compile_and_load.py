"""Models that are compiled when they are loaded, once."""

from __future__ import annotations

import pathlib
import tempfile
import warnings
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from attnc_runtime import CorruptFile, FileError, NoSuchFile

from ._cache import Cache, CacheUnusable, CacheWarning, key_of
from ._compile import Progress, _checked_flags, compile_source
from ._load import Model
from ._source import Source, open_source


def compile_and_load(
    source: Any, runtime: Mapping[str, Any], options: Dict[str, Any], *, keep: bool, progress: Progress
) -> Tuple[Model, Optional[Source]]:
    """The model, and what the same can be made of again if it lies in files of the caller's. Takes the limits of a
    compile out of ``options``."""
    limits = {name: options.pop(name, None) for name in ("timeout", "memory")}
    flags = _checked_flags(options)
    with tempfile.TemporaryDirectory(prefix="attnc-") as scratch:
        opened, lasting = open_source(source, pathlib.Path(scratch), options.get("search"))

        def compile_to(path: pathlib.Path) -> None:
            compile_source(opened, path, flags, progress=progress, **limits)

        model = _from_cache(opened, flags, runtime, compile_to) if keep else None
        if model is None:
            path = pathlib.Path(scratch) / "model.so"
            compile_to(path)
            model = Model(path, **runtime)
        return model, opened if lasting else None


def _from_cache(
    source: Source, flags: List[str], runtime: Mapping[str, Any], compile_to: Callable[[pathlib.Path], None]
) -> Optional[Model]:
    """None, after a warning, if the cache cannot be used."""
    kept = Cache()
    try:
        key = key_of(source.digest(), flags)
        path = kept.find(key) or kept.make(key, source.name, flags, compile_to)
        try:
            return Model(path, **runtime)
        except (CorruptFile, NoSuchFile):
            # Damaged since, or removed by another process between the two lines above.
            kept.remove(path)
            return Model(kept.make(key, source.name, flags, compile_to), **runtime)
    except CacheUnusable as error:
        reason = str(error)
    except FileError as error:
        if str(kept.folder) not in str(error):
            raise
        reason = str(error).splitlines()[0]
    warnings.warn(
        f"the cache cannot be used, the model is compiled for this process alone: {reason}; "
        "ATTNC_CACHE names another folder",
        CacheWarning,
        stacklevel=4,
    )
    return None
