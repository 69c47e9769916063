"""A loaded library: what it is, and what it does."""

from __future__ import annotations

import collections.abc
import numbers
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from . import _core, _errors
from ._entry import NOT_GIVEN, Entry, OnToken
from ._state import State
from ._tensor import TensorInfo, WeightInfo

if TYPE_CHECKING:
    from . import _attention, _report

Path = Union[str, "os.PathLike[str]"]

_M = TypeVar("_M", bound="Model")
_VERIFY = ("always", "once", "never")  # by attnrt_verify


def _check_number(name: str, value: Any, least: int, most: int, what: str = "a number") -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or not least <= int(value) <= most:
        raise _errors.InvalidArgument(f"{name} expects {what} from {least} to {most}, not {value!r}")


class Model:
    """A loaded model. Any number of threads may call it at the same time. Each call takes a session from a pool of
    ``sessions`` and waits if all are busy. All sessions share the weights, and other processes share them, too."""

    def __init__(
        self,
        path: Path,
        *,
        threads: Optional[int] = None,
        sessions: Optional[int] = None,
        cpus: Sequence[int] = (),
        copy_weights: bool = False,
        own_products: bool = False,
        device: int = 0,
        verify: str = "always",
    ) -> None:
        for name, value, most in (("threads", threads, 4096), ("sessions", sessions, 1 << 16)):
            if value is not None:
                _check_number(name, value, 1, most)
        if not isinstance(cpus, collections.abc.Iterable):
            raise _errors.InvalidArgument(f"cpus expects numbers of CPUs, not {cpus!r}")
        cpus = tuple(cpus)
        for cpu in cpus:
            _check_number("cpus", cpu, 0, (os.cpu_count() or 1) - 1, "numbers of CPUs")
        for name, on in (("copy_weights", copy_weights), ("own_products", own_products)):
            if not isinstance(on, bool):
                raise _errors.InvalidArgument(f"{name} expects True or False, not {on!r}")
        _check_number("device", device, 0, (1 << 31) - 1, "the number of a GPU")
        if verify not in _VERIFY:
            raise _errors.InvalidArgument(f"verify expects {', '.join(map(repr, _VERIFY))}, not {verify!r}")
        self.path = os.path.abspath(os.fspath(path))
        self._options: Dict[str, Any] = dict(
            threads=threads,
            sessions=sessions,
            cpus=cpus,
            copy_weights=copy_weights,
            own_products=own_products,
            device=device,
            verify=verify,
        )
        #: What pages and errors call the model: not the file in a cache.
        self._name = os.path.basename(self.path)
        if not os.path.exists(self.path):
            raise _errors.NoSuchFile(f"{self.path}: no such file")
        self._engine = _core.Engine(
            self.path,
            threads or 0,
            sessions or 0,
            list(cpus),
            copy_weights,
            own_products,
            device,
            _VERIFY.index(verify),
        )
        self._info = self._engine.info()
        rows = self._info["entries"]
        self._entries = {row[0]: Entry(self._engine, number, row) for number, row in enumerate(rows)}
        self._first = next(iter(self._entries.values()))
        # As fast a call as there is: no method of Python's in between.
        self._function = self._first._function

    def __reduce__(self) -> Tuple[Callable[..., Any], Tuple[Any, ...]]:
        return _reload, (type(self), self.path, self._options)

    # What it is.

    @property
    def entries(self) -> Mapping[str, Entry]:
        """The functions of the library, by name. A call of the model runs the first one."""
        return MappingProxyType(self._entries)

    @property
    def inputs(self) -> Tuple[TensorInfo, ...]:
        """The inputs of the first entry."""
        return self._first.inputs

    @property
    def outputs(self) -> Tuple[TensorInfo, ...]:
        """The outputs of the first entry."""
        return self._first.outputs

    @property
    def weights(self) -> Tuple[WeightInfo, ...]:
        """The weights that the library stores outside its code."""
        return tuple(WeightInfo(*row) for row in self._info["weights"])

    @property
    def fusion(self) -> _report.FusionReport:
        """A verdict for each softmax: whether its attention was fused, and why."""
        from . import _report

        manifest = self.manifest
        return _report.FusionReport(manifest.get("fusion", []), self._name, manifest.get("products", []))

    @property
    def manifest(self) -> Dict[str, Any]:
        """Everything that the compiler wrote about the library into it (docs/reports.md)."""
        import json

        result: Dict[str, Any] = json.loads(self._info["manifest"])
        return result

    @property
    def threads(self) -> int:
        """How many threads a run computes with."""
        return self._engine.threads()

    @property
    def sessions(self) -> int:
        """How many calls run at the same time."""
        return self._engine.sessions()

    @property
    def digest(self) -> str:
        """SHA-256 of the library, as hexadecimal digits."""
        return str(self._info["digest"].hex())

    # What it does.

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Runs the first entry with arrays by position, by name, or both: NumPy arrays, torch tensors, or anything with
        a buffer or ``__dlpack__``. Their dtypes and shapes must be exactly those of ``inputs``; for an input of one
        element a number of Python will do (``seed=3``). Contiguous arrays are read in place. Returns arrays of the kind
        of the first input, which own the memory that the run wrote, without a copy: the array itself if the
        entry has one output, otherwise a dict.

        InvalidArgument  a name, dtype, shape or array does not fit
        OutOfRange       an index in an input is outside of its axis
        OutOfMemory      workspace or outputs cannot be allocated
        CorruptFile      the library was modified since it was loaded
        """
        return self._function(*inputs, **named)

    def run(
        self, inputs: Mapping[str, Any] = NOT_GIVEN, *others: Any, entry: Optional[str] = None, **options: Any
    ) -> Dict[str, Any]:
        """Runs an entry with ``inputs`` by name and returns all outputs by name.

        entry     its name (default: the first)
        out       arrays for outputs, by name: contiguous, of the exact shape; other outputs are allocated
        timeout   seconds, including the wait for a session, after which the run ends with DeadlineExceeded
        cancel    a Cancel, by which another thread can end the run
        state     a State of the entry; inputs and outputs that it keeps are then left out
        on_token  for an entry that searches without a beam, on the CPU: called as ``on_token(row, step, token)`` when a
                  row has its token number ``step`` (from 0), by the thread of the run, which waits for it. True ends
                  the run with Cancelled; an exception ends it, too. Its tokens are what the run would return.
        """
        return self._entry(entry).run(inputs, *others, **options)

    async def arun(
        self,
        *,
        entry: Optional[str] = None,
        timeout: Optional[float] = None,
        state: Optional[State] = None,
        on_token: Optional[OnToken] = None,
        **named: Any,
    ) -> Any:
        """Runs an entry in a thread of the event loop's executor, with inputs by name, and returns what a call does.
        Cancelling the task ends the run. ``on_token`` is called in that thread."""
        results = await self._entry(entry).arun(named, timeout=timeout, state=state, on_token=on_token)
        return next(iter(results.values())) if len(results) == 1 else results

    def state(self, entry: Optional[str] = None) -> State:
        """A new, empty state of an entry that was compiled to have one (``own_state=True``)."""
        chosen = self._entry(entry) if entry or self._first.states else self._with_state()
        return State(self._engine, self._engine.state(chosen._index))

    def step(self, state: State, *, timeout: Optional[float] = None, **named: Any) -> Any:
        """Runs the entry of ``state`` with the inputs that the state does not keep. Returns the same as a call."""
        if not isinstance(state, State):
            raise _errors.InvalidArgument(f"state expects an attnc.State, as Model.state() makes it, not {type(state).__name__}")
        chosen = list(self._entries.values())[state._native.entry]
        results = chosen.run(named, state=state, timeout=timeout)
        return next(iter(results.values())) if len(results) == 1 else results

    def profile(self, *inputs: Any, runs: int = 10, entry: Optional[str] = None, **named: Any) -> _report.Profile:
        """Runs ``runs`` times with inputs by position or by name, and returns where the time of the fastest run went.
        Needs a library that was compiled for it (``profiling=True``)."""
        from . import _report, _timeline

        manifest = self.manifest
        if not manifest.get("regions"):
            raise _errors.InvalidArgument(
                f"{self._name} was not compiled to be profiled: attnc.load(..., profiling=True), or attnc --mark-regions"
            )
        if runs < 1:
            raise _errors.InvalidArgument(f"runs expects a number above 0, not {runs}")
        chosen = self._entry(entry)
        given = chosen._by_name(inputs, named)
        done = [_timeline.Run(*self._engine.profile(chosen._index, given)) for _ in range(runs)]
        return _report.profile_of(manifest, done)

    def attention(
        self,
        *inputs: Any,
        labels: Optional[Sequence[str]] = None,
        key_labels: Optional[Sequence[str]] = None,
        image: Union[str, "os.PathLike[str]", bytes, None] = None,
        entry: Optional[str] = None,
        timeout: Optional[float] = None,
        state: Optional[State] = None,
        **named: Any,
    ) -> _attention.AttentionMaps:
        """Runs an entry with inputs by position or by name, and returns the weights of its attentions. A notebook shows
        them as a page. Needs a library that exposes them (``expose_attention="all"``), or a search with ``alignment``.
        For a search, pass ``entry="generate"``; its queries are the tokens that it wrote.

        labels      texts, one for each position, such as the tokens
        key_labels  the same for keys, if their positions are not those of the queries
        image       a PNG or JPEG picture whose parts are the keys, as a path or bytes: the page draws weights on it
        entry, timeout, state  as for ``run``

        InvalidArgument  the entry exposes nothing; the number of labels fits no attention; the picture is damaged
        """
        from . import _attention

        chosen = self._entry(entry)
        exposed = self._exposed(chosen)
        if not exposed:
            others = [f"'{other.name}'" for other in self._entries.values() if self._exposed(other)]
            hint = f"entry= takes another one: {', '.join(others)}" if others else (
                "attnc.load(..., expose_attention='all'), or attnc --expose-attention; a search has alignment="
            )
            raise _errors.InvalidArgument(f"entry '{chosen.name}' of {self._name} exposes no attention: {hint}")
        outputs = chosen.run(chosen._by_name(inputs, named), timeout=timeout, state=state)
        return _attention.AttentionMaps(self._name, exposed, outputs, labels, key_labels, image)

    def _exposed(self, entry: Entry) -> List[str]:
        """The outputs of an entry that show attentions."""
        names = [output.name for output in entry.outputs]
        # Entries may have outputs of one name.
        verdicts = [verdict for verdict in self.fusion if verdict.entry in ("", entry.name)]
        exposed = [name for verdict in verdicts for name in verdict.fields.get("exposed", []) if name in names]
        return exposed + [name for name in names if name == "alignment" and names[0] == "tokens"]

    def generate(
        self, *, timeout: Optional[float] = None, on_token: Optional[OnToken] = None, **named: Any
    ) -> Dict[str, Any]:
        """Runs the compiled search, the entry ``generate``, and returns its outputs by name: ``tokens``, ``lengths``,
        ``scores``, and others that were requested. ``on_token`` is given each token as it is chosen; see ``run``."""
        if "generate" not in self._entries:
            raise _errors.InvalidArgument(
                f"{self._name} has no entry 'generate': attnc.load(..., search=attnc.Beam(5)), or attnc --generate"
            )
        return self._entries["generate"].run(named, timeout=timeout, on_token=on_token)

    def set_weight(self, name: str, value: Any) -> None:
        """Replaces a weight of ``weights`` by a copy of ``value``, for all sessions. Waits until current runs end."""
        if value is None:
            raise _errors.InvalidArgument(f"the weight '{name}' expects an array, not None")
        try:
            self._engine.set_weight(str(name), value)
        except _errors.Error as error:
            raise type(error)(error.args[0].replace(self.path, self._name)) from error

    def close(self) -> None:
        """Gives up the weights, threads and workspace. Calls in progress end as usual, and with the last one the memory
        is free; it does not wait for them. Arrays that calls returned stay valid, and so do a State and what the model
        says of itself. Later calls raise InvalidArgument. ``with attnc.load(...) as model`` closes at its end."""
        self._engine.close()

    def __enter__(self: _M) -> _M:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _entry(self, name: Optional[str]) -> Entry:
        if name is None:
            return self._first
        if name not in self._entries:
            raise _errors.NotFound(f"no entry '{name}'; the model has {', '.join(self._entries)}")
        return self._entries[name]

    def _with_state(self) -> Entry:
        for entry in self._entries.values():
            if entry.states:
                return entry
        raise _errors.Unsupported(f"no entry of {self._name} keeps a state: compile with own_state=True (attnc --own-state)")

    def __repr__(self) -> str:
        return f"<attnc model {self._name}: {'; '.join(map(repr, self._entries.values()))}>"

    def _repr_html_(self) -> str:
        import html

        from . import _report

        rows = []
        for entry in self._entries.values():
            for way, tensors in (("input", entry.inputs), ("output", entry.outputs)):
                for tensor in tensors:
                    shape = ", ".join(str(size) or "?" for size in tensor.shape)
                    way_and_need = f"{way}, optional" if tensor.optional else way
                    rows.append((entry.name, way_and_need, tensor.name, tensor.dtype, f"[{shape}]"))
        size = self._info["file_size"] / 1e6
        title = f"{self._name}, {size:.1f} MB, {self._info['compiler_version']}, {self._info['target']}"
        fused = html.escape(repr(self.fusion).strip("<>"))
        return _report.table(title, ("entry", "", "name", "dtype", "shape"), rows) + f"<p>{fused}</p>"


def _reload(kind: Any, path: str, options: Dict[str, Any]) -> Any:
    return kind(path, **options)
