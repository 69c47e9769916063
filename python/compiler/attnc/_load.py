"""Models as programs load them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import attnc_runtime
from attnc_runtime import InvalidArgument

if TYPE_CHECKING:
    from attnc_runtime import AttentionMaps, Profile, State
    from attnc_runtime._entry import OnToken

    from ._compile import Progress
    from ._search import Search

_RUNTIME_OPTIONS = ("threads", "sessions", "cpus", "copy_weights", "own_products", "device", "verify")


class Model(attnc_runtime.Model):
    """A model that ``load`` made: an attnc_runtime.Model that knows what it was compiled from."""

    _source: Any = None
    _compile_options: Mapping[str, Any] = {}
    _notes: List[str] = []

    def __reduce__(self) -> Tuple[Callable[..., Any], Tuple[Any, ...]]:
        if self._source is None:
            return _load_anew, (self.path, self._options, self._name)
        return _load_anew, (self._source, {**self._options, **self._compile_options}, self._name)

    def _with(self, **changed: Any) -> "Model":
        if self._source is None:
            what = next(iter(changed))
            raise InvalidArgument(f"{self.path} is compiled already: give {what}= where it is compiled")
        return _load(self._source, {**self._options, **self._compile_options, **changed}, known=self._notes)

    def profile(self, *inputs: Any, runs: int = 10, entry: Optional[str] = None, **named: Any) -> Profile:
        """Runs ``runs`` times with inputs by position or by name, and returns where the time of the fastest run went.
        A model that was not loaded with ``profiling=True`` is compiled a second time."""
        if self._source is not None and not self._compile_options.get("profiling"):
            return self._with(profiling=True).profile(*inputs, runs=runs, entry=entry, **named)
        return super().profile(*inputs, runs=runs, entry=entry, **named)

    def attention(
        self, *inputs: Any, entry: Optional[str] = None, state: Optional[State] = None, **options: Any
    ) -> AttentionMaps:
        """Runs an entry with inputs by position or by name and returns the weights of its attentions. A notebook shows
        them as a page. Options are those of ``attnc_runtime.Model.attention``. A model that exposes no weights is
        compiled a second time, with ``expose_attention="all"``."""
        if self._source is not None and state is None and not self._exposed(self._entry(entry)):
            if not self._compile_options.get("expose_attention"):
                return self._with(expose_attention="all").attention(*inputs, entry=entry, **options)
        return super().attention(*inputs, entry=entry, state=state, **options)

    def generate(
        self,
        *,
        search: Optional[Search] = None,
        timeout: Optional[float] = None,
        on_token: Optional[OnToken] = None,
        **named: Any,
    ) -> Dict[str, Any]:
        """Runs a compiled search and returns its outputs by name: ``tokens``, ``lengths``, ``scores``, and others that
        were requested. ``on_token`` is given each token as it is chosen; see ``run``. ``search`` may differ from the
        search that the model was loaded with. It is then compiled at its first use, and takes the fields of ``Search``
        that it leaves out (bos, eos, max_length...) from that one."""
        own = self._compile_options.get("search")
        if search is not None and own is not None:
            search = search.completed_by(own)
        chosen = search or own
        if on_token is not None and chosen is not None and chosen.flags()[0].startswith("--generate=beam"):
            raise InvalidArgument("on_token needs attnc.Greedy or attnc.Sample: a beam knows its first token at its end")
        if search is None or (own is not None and search.flags() == own.flags()):
            return super().generate(timeout=timeout, on_token=on_token, **named)
        return self._with(search=search).generate(timeout=timeout, on_token=on_token, **named)


def _load_anew(source: Any, options: Dict[str, Any], name: str) -> Model:
    model = load(source, **options)
    model._name = name
    return model


def load(source: Any, *, cache: bool = True, on_progress: Progress = None, **options: Any) -> Model:
    """Loads a model: a library (.so), or anything that ``compile`` takes, which is compiled if it is not in the cache.

    threads       how many threads a run computes with (default: one per CPU that this process may use)
    sessions      how many calls run at the same time (default: as many as fit the CPUs, at least one)
    cpus          CPUs to pin the threads to
    copy_weights  weights are copied into this process, so that the file may be removed
    own_products  on a GPU: products use only the library's own kernels
    device        the number of the GPU, as the CUDA driver counts (default 0)
    verify        whether a load reads the whole library and compares its digest: "always", "once" (per file and user;
                  what was verified is noted in the user's cache folder), or "never" (where storage is trusted)
    cache         False: compile again, and keep nothing
    on_progress   as for ``compile``; all other options of ``compile`` are taken, too

    Errors are those of ``compile``, CorruptFile, Incompatible (another version, architecture or processor) and
    OutOfMemory. Each load repeats the warnings of the compile (CompileWarning).
    """
    return _load(source, options, cache=cache, progress=on_progress)


def _load(
    source: Any, options: Dict[str, Any], *, cache: bool = True, progress: Progress = None, known: Sequence[str] = ()
) -> Model:
    """Warns of no note that is ``known``."""
    if isinstance(cache, str):
        raise InvalidArgument(
            f"cache= says whether what is compiled is kept, True or False, not {cache!r}: how caches of keys and values are "
            "stored is an option of attnc.compile, whose library attnc.load takes"
        )
    runtime = {name: options.pop(name) for name in _RUNTIME_OPTIONS if options.get(name) is not None}
    for name in _RUNTIME_OPTIONS:
        options.pop(name, None)
    if isinstance(source, (str, os.PathLike)) and (os.fspath(source).endswith(".so") or _is_library(source)):
        if options:
            raise InvalidArgument(f"{os.fspath(source)} is compiled already: {next(iter(options))}= has no meaning for it")
        return Model(source, **runtime)
    from ._compile_and_load import compile_and_load  # a process that finds a library needs no compiler

    model, opened = compile_and_load(source, runtime, options, keep=cache, progress=progress, known=known)
    if opened is not None:
        model._source = opened.pickled()
        model._compile_options = options
    return model


def _is_library(source: Any) -> bool:
    try:
        with open(source, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except (OSError, ValueError):  # ValueError: a path with a zero byte
        return False
