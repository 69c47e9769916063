"""Models that are compiled when they are loaded, once."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from attnc_runtime import CorruptFile, FileError, NoSuchFile

from ._cache import Cache, CacheUnusable, CacheWarning, Compile, key_of
from ._compile import Progress, _checked_flags, checked_limits, compile_source, warn
from ._load import Model
from ._source import Source, open_source


def compile_and_load(
    source: Any, runtime: Mapping[str, Any], options: Dict[str, Any], *, keep: bool, progress: Progress, known: Sequence[str]
) -> Tuple[Model, Optional[Source]]:
    """The model, and what the same can be made of again if it lies in files of the caller's. Warns of what the compile
    noted, whenever that was, and is not ``known``. Takes the limits of a compile out of ``options``."""
    limits = checked_limits(options.pop("timeout", None), options.pop("memory", None))
    flags = _checked_flags(options)
    with tempfile.TemporaryDirectory(prefix="attnc-") as scratch:
        opened, lasting = open_source(source, pathlib.Path(scratch), options.get("search"))

        def compile_to(path: pathlib.Path) -> List[str]:
            return compile_source(opened, path, flags, progress=progress, **limits)[1]

        found = _from_cache(opened, flags, runtime, compile_to) if keep else None
        if found is None:
            path = pathlib.Path(scratch) / "model.so"
            said = compile_to(path)
            found = Model(path, **runtime), said
    model, notes = found
    model._name, model._notes = opened.name, notes
    warn([note for note in notes if note not in known])
    return model, opened if lasting else None


def _from_cache(
    source: Source, flags: List[str], runtime: Mapping[str, Any], compile_to: Compile
) -> Optional[Tuple[Model, List[str]]]:
    """The model and the notes of its compile; None, after a warning, if the cache cannot be used."""
    kept = Cache()
    try:
        key = key_of(source.digest(), flags)
        path, notes = kept.find(key) or kept.make(key, source.label, flags, compile_to)
        try:
            return Model(path, **runtime), notes
        except (CorruptFile, NoSuchFile):
            # Damaged since, or removed by another process between the two lines above.
            kept.remove(path)
            path, notes = kept.make(key, source.label, flags, compile_to)
            return Model(path, **runtime), notes
    except CacheUnusable as error:
        reason = str(error)
    except FileError as error:
        if str(kept.folder) not in str(error):
            raise
        reason = str(error).splitlines()[0]
    text = f"the cache cannot be used, the model is compiled for this process alone: {reason}; ATTNC_CACHE names another folder"
    warn([text], CacheWarning)
    return None
