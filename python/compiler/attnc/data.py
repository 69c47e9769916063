"""Corpora to embeddings with Ray Data: ``pip install attnc[data]``.

    from attnc import data
    data.embed("texts/*.jsonl", "embedded", model="all-MiniLM-L6-v2", column="text")

reads Parquet or JSON lines and writes Parquet. It can be stopped at any time: the same call goes on where it stopped.
In your own pipeline, pass ``Embedder`` to ``map_batches``:

    rows.map_batches(data.Embedder, fn_constructor_args=["all-MiniLM-L6-v2"], concurrency=2, num_cpus=1, batch_size=256)
"""

from __future__ import annotations

import dataclasses
import glob
import hashlib
import json
import os
import pathlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
from attnc_runtime import FileError, InvalidArgument, NoSuchFile, Unsupported

from .text_encoder import TextEncoder

_PLAN = "_plan.json"
Path = Union[str, "os.PathLike[str]"]


class Embedder:
    """For ``ray.data.Dataset.map_batches``: adds the column ``output``, float32 of the model's width, to batches of
    NumPy arrays. It embeds the texts in ``column``; a missing text (None) is embedded as "". ``options`` are those of
    attnc.TextEncoder; ``threads`` is by default the number of CPUs that Ray reserved. If given,
    ``encoder(model, **options)`` makes the encoder instead, which needs a method ``encode``."""

    def __init__(
        self,
        model: Path,
        *,
        column: str = "text",
        output: str = "embedding",
        batch_size: int = 32,
        encoder: Callable[..., Any] = TextEncoder,
        **options: Any,
    ) -> None:
        self._column, self._output, self._batch_size = column, output, batch_size
        self._encoder = encoder(model, **{"threads": _reserved_cpus(), "sessions": 1, "verify": "once", **options})

    def __call__(self, batch: Dict[str, Any]) -> Dict[str, Any]:
        if self._column not in batch:
            raise InvalidArgument(f"there is no column '{self._column}', but {', '.join(batch)}")
        texts = ["" if text is None else text for text in batch[self._column].tolist()]
        return {**batch, self._output: self._encoder.encode(texts, batch_size=self._batch_size)}


def _reserved_cpus() -> int:
    import ray

    reserved = ray.get_runtime_context().get_assigned_resources() if ray.is_initialized() else {}
    return max(int(reserved.get("CPU", 1)), 1)


@dataclasses.dataclass(frozen=True)
class Part:
    """The input of one output file: ranges of rows of Parquet files, or of bytes of JSON-lines files."""

    name: str
    ranges: Tuple[Tuple[str, int, int], ...]


@dataclasses.dataclass(frozen=True)
class Summary:
    """What ``embed`` did: how much it wrote now, and how much earlier calls had written."""

    rows: int
    written: int
    kept: int


def embed(
    source: Union[Path, Sequence[Path]],
    target: Path,
    *,
    model: Path,
    column: str = "text",
    output: str = "embedding",
    rows_per_file: int = 4096,
    workers: int = 1,
    cpus: int = 1,
    **options: Any,
) -> Summary:
    """Embeds ``column`` of all rows of ``source`` (files, folders or patterns: .parquet, .jsonl, .ndjson, .json) into
    Parquet files in the folder ``target``, with all other columns, in order: part-00000.parquet, part-00001.parquet...

    A file is there whole or not at all. So a call that was interrupted in any way can be repeated: it goes on where it
    stopped, and no row is lost or written twice. ``workers`` processes with ``cpus`` threads each share the work.
    ``options`` are those of Embedder. Ray shows the progress.

    InvalidArgument  there is no such column, rows are not objects or differ in type, or ``target`` holds another job
    NoSuchFile       nothing matches ``source``
    FileError        a file cannot be read or written
    """
    try:
        import pyarrow  # noqa: F401
        import ray
    except ImportError as error:
        raise Unsupported(f"attnc.data needs Ray: pip install attnc[data] ({error})") from None
    if rows_per_file < 1 or workers < 1 or cpus < 1:
        raise InvalidArgument("rows_per_file, workers and cpus expect numbers above 0")
    folder = pathlib.Path(target)
    files = _find(source)
    parts = list(_divide(files, rows_per_file))
    job = {"rows_per_file": rows_per_file, "column": column, "output": output, "model": _digest(model)}
    _agree_on_plan(folder, files, {**job, "options": _spelled(options)})
    missing = [part for part in parts if not (folder / part.name).exists()]
    if missing:
        made = ray.data.from_items([{"part": part} for part in missing], override_num_blocks=len(missing))
        writer = {"model": os.fspath(model), "column": column, "output": output, **options}
        made = made.map(_Writer, fn_constructor_args=[str(folder.resolve()), writer], concurrency=workers, num_cpus=cpus)
        made.materialize()
    return Summary(sum(_rows_of(folder / part.name) for part in parts), len(missing), len(parts) - len(missing))


class _Writer:
    """On a worker: one part from its ranges to its file."""

    def __init__(self, folder: str, options: Dict[str, Any]) -> None:
        self._folder = pathlib.Path(folder)
        self._options = options
        self._embedder = Embedder(**options)

    def __call__(self, row: Dict[str, Any]) -> Dict[str, Any]:
        import pyarrow
        import pyarrow.parquet

        part: Part = row["part"]
        try:
            table = pyarrow.concat_tables(map(_read, part.ranges), promote_options="permissive")
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
            raise InvalidArgument(f"{part.ranges[0][0]}: {error}") from None
        if self._options["column"] not in table.column_names:
            raise InvalidArgument(
                f"{part.ranges[0][0]}: there is no column '{self._options['column']}', but {', '.join(table.column_names)}"
            )
        texts = np.array([*table.column(self._options["column"]).to_pylist(), None], object)[:-1]
        wrong = next((text for text in texts if text is not None and not isinstance(text, str)), None)
        if wrong is not None:
            raise InvalidArgument(f"{part.ranges[0][0]}: column '{self._options['column']}' has {wrong!r}, which is no text")
        rows = self._embedder({self._options["column"]: texts})[self._options["output"]]
        column = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(rows.ravel()), rows.shape[1] if rows.size else 1)
        name = self._options["output"]
        if name in table.column_names:
            raise InvalidArgument(f"{part.ranges[0][0]} has a column '{name}' already; choose another output=")
        written = self._folder / f".{part.name}.{os.getpid()}"
        try:
            pyarrow.parquet.write_table(table.append_column(name, column), written)
            with open(written, "rb") as file:
                os.fsync(file.fileno())
            os.replace(written, self._folder / part.name)
        except OSError as error:
            raise FileError(f"{self._folder / part.name}: {error}") from None
        finally:
            written.unlink(missing_ok=True)
        return {"part": part.name, "rows": len(rows)}


def _find(source: Union[Path, Sequence[Path]]) -> List[str]:
    given = [source] if isinstance(source, (str, os.PathLike)) else list(source)
    found: List[str] = []
    for each in (os.fspath(path) for path in given):
        matches = sorted(glob.glob(each, recursive=True)) if not os.path.exists(each) else [each]
        files = [f for m in matches for f in (sorted(glob.glob(f"{glob.escape(m)}/**", recursive=True)) if os.path.isdir(m) else [m])]
        files = [os.path.abspath(f) for f in files if os.path.isfile(f) and (f in matches or _is_read(f))]
        if not files:
            raise NoSuchFile(f"{each}: no .parquet, .jsonl, .ndjson or .json file there")
        found += files
    for file in found:
        if not _is_read(file):
            raise InvalidArgument(f"{file}: expected .parquet, .jsonl, .ndjson or .json")
    return list(dict.fromkeys(found))


def _is_read(file: str) -> bool:
    return file.endswith((".parquet", ".jsonl", ".ndjson", ".json")) and os.path.basename(file) != _PLAN


def _divide(files: Sequence[str], rows_per_file: int) -> Iterator[Part]:
    """Parts of ``rows_per_file`` rows: one of a large file, or several small ones together."""
    ranges: List[Tuple[str, int, int]] = []
    rows = number = 0
    for file in files:
        for begin, end, count in _steps(file, rows_per_file):
            if rows and rows + count > rows_per_file:
                yield Part(f"part-{number:05d}.parquet", tuple(ranges))
                ranges, rows, number = [], 0, number + 1
            ranges.append((file, begin, end))
            rows += count
    if ranges:
        yield Part(f"part-{number:05d}.parquet", tuple(ranges))


def _steps(file: str, rows: int) -> Iterator[Tuple[int, int, int]]:
    """Ranges of at most ``rows`` rows, and how many they have."""
    try:
        if file.endswith(".parquet"):
            total = _rows_of(pathlib.Path(file))
            yield from ((begin, min(begin + rows, total), min(rows, total - begin)) for begin in range(0, total, rows))
            return
        with open(file, "rb") as lines:
            begin = end = count = 0
            for line in lines:
                end += len(line)
                count += bool(line.strip())
                if count == rows:
                    yield begin, end, count
                    begin, count = end, 0
            if count:
                yield begin, end, count
    except OSError as error:
        raise FileError(f"{file}: {error}") from None


def _rows_of(file: pathlib.Path) -> int:
    import pyarrow
    import pyarrow.parquet

    try:
        return int(pyarrow.parquet.read_metadata(file).num_rows)
    except pyarrow.ArrowInvalid as error:
        raise InvalidArgument(f"{file}: {error}") from None


def _read(piece: Tuple[str, int, int]) -> Any:
    import pyarrow
    import pyarrow.json
    import pyarrow.parquet

    file, begin, end = piece
    if file.endswith(".parquet"):
        parquet = pyarrow.parquet.ParquetFile(file)
        groups: List[int] = []
        first = at = 0
        for number in range(parquet.num_row_groups):
            size = parquet.metadata.row_group(number).num_rows
            if at < end and at + size > begin:
                first = at if not groups else first
                groups.append(number)
            at += size
        return parquet.read_row_groups(groups).slice(begin - first, end - begin)
    with open(file, "rb") as lines:
        lines.seek(begin)
        block = lines.read(end - begin)
    rows = []
    for line in filter(bytes.strip, block.splitlines()):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise InvalidArgument(f"{file}, at byte {begin}: a line is no JSON: {error}") from None
        if not isinstance(rows[-1], dict):
            raise InvalidArgument(f"{file}, at byte {begin}: a line is no JSON object: {line[:80]!r}")
    return pyarrow.Table.from_pylist(rows)


def _digest(model: Path) -> str:
    """Names what embeddings depend on: the model's files by name and contents, hidden ones aside."""
    digest = hashlib.sha256()
    root = pathlib.Path(model)
    if not root.exists():
        raise NoSuchFile(f"{root}: no such folder")
    files = (f for f in root.rglob("*") if f.is_file())
    for file in sorted(f for f in files if not any(part.startswith(".") for part in f.relative_to(root).parts)):
        digest.update(f"{file.relative_to(root)}\0{file.stat().st_size}\0".encode())
        with open(file, "rb") as contents:
            digest.update(hashlib.file_digest(contents, "sha256").digest())
    return digest.hexdigest()


# Options of Embedder that change no embedding.
_FREE = ("batch_size", "threads", "sessions", "cpus", "verify", "cache", "on_progress")


def _spelled(options: Dict[str, Any]) -> Dict[str, str]:
    """As texts that are equal where the options are."""
    return {
        name: f"{value.__module__}.{value.__qualname__}" if callable(value) else repr(value)
        for name, value in options.items()
        if name not in _FREE
    }


def _agree_on_plan(folder: pathlib.Path, files: Sequence[str], job: Dict[str, Any]) -> None:
    """The first call writes down what the folder is to hold; a later one must want the same."""
    plan = {**job, "files": [[file, os.stat(file).st_size, os.stat(file).st_mtime_ns] for file in files]}
    path = folder / _PLAN
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found: Optional[Dict[str, Any]] = json.loads(path.read_text()) if path.exists() else None
        if found is None:
            if any(folder.glob("part-*.parquet")):
                raise InvalidArgument(f"{folder} has files of another job: give an empty folder")
            written = folder / f"{_PLAN}.{os.getpid()}"
            written.write_text(json.dumps(plan))
            os.replace(written, path)
            return
    except OSError as error:
        raise FileError(f"{folder}: {error}") from None
    except ValueError as error:
        raise InvalidArgument(f"{path}: {error}") from None
    changed = [key for key in plan if found.get(key) != plan[key]]
    if changed:
        raise InvalidArgument(
            f"{folder} belongs to a job with other {', '.join(changed)}: give another folder, or what it was begun with"
        )
