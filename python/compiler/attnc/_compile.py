"""Compiles models, in a process of its own."""

from __future__ import annotations

import dataclasses
import difflib
import json
import numbers
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections import abc
from dataclasses import dataclass
from typing import IO, Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, Union

from attnc_runtime import (
    DeadlineExceeded,
    Error,
    FileError,
    Internal,
    InvalidArgument,
    Model,
    NoSuchFile,
    OutOfMemory,
    Unsupported,
)

from ._binary import program
from ._search import Beam, Sample, Search
from ._source import Path, Source, open_source

Progress = Union[Callable[[str, float], None], bool, None]
Size = Union[int, Tuple[int, int]]
Shape = Sequence[Optional[int]]


class CompileWarning(UserWarning):
    """A warning of a compile that succeeded, as of an ambiguous name, or of a cache that is copied at each step."""


@dataclass(frozen=True)
class Compiled:
    """What a compile wrote. ``details`` is what ``attnc --json`` prints (docs/reports.md). ``notes`` is what the
    compile said that is no warning, as what a search took each input for."""

    path: str
    bytes: int
    seconds: float
    fused: int  # attentions, of
    softmaxes: int
    details: Mapping[str, Any]
    notes: Tuple[str, ...] = ()


def _texts_of(option: str, given: Any) -> List[str]:
    """A text, or several."""
    texts = [given] if isinstance(given, str) else list(given) if isinstance(given, abc.Iterable) else [given]
    for text in texts:
        if not isinstance(text, str):
            raise InvalidArgument(f"{option} expects a text or a list of texts, not {type(text).__name__}")
    return texts


def _is_size(size: Any) -> bool:
    return isinstance(size, numbers.Integral) and not isinstance(size, bool)


def _dim(name: str, size: Any) -> str:
    if _is_size(size):
        return f"--dim={name}:{size}"
    if isinstance(size, tuple) and len(size) == 2 and all(_is_size(bound) for bound in size):
        return f"--dim={name}:{size[0]}..{size[1]}"
    raise InvalidArgument(f"dims: '{name}' expects a size or (least, most), not {size!r}")


def _shapes(name: str, given: Any) -> Iterator[Tuple[str, str]]:
    """The shape of an input, or that of each tensor of a sequence."""
    if not isinstance(given, abc.Iterable) or isinstance(given, str):
        raise InvalidArgument(f"shapes: '{name}' expects a shape, or for a sequence a list of them, not {given!r}")
    sizes = list(given)
    if any(isinstance(size, abc.Iterable) for size in sizes):
        for number, size in enumerate(sizes):
            yield from _shapes(f"{name}.{number}", size)
    elif not all(size is None or _is_size(size) for size in sizes):
        raise InvalidArgument(f"shapes: '{name}' expects sizes, or None for an open one, not {given!r}")
    else:
        yield name, "x".join("?" if size is None else str(size) for size in sizes)


def flags_of(
    *,
    dims: Optional[Mapping[str, Size]] = None,
    shapes: Optional[Mapping[str, Union[Shape, Sequence[Shape]]]] = None,
    absent: Union[str, Sequence[str], None] = None,
    keep_output: Union[str, Sequence[str], None] = None,
    weights: Optional[str] = None,
    precision: Optional[str] = None,
    fp32_math: Optional[str] = None,
    cpu: Optional[str] = None,
    target: Optional[str] = None,
    gpu_arch: Optional[str] = None,
    allow_host_ops: bool = False,
    masks: Optional[str] = None,
    optimize: Optional[int] = None,
    own_state: bool = False,
    states: Optional[Mapping[str, str]] = None,
    cache: Optional[str] = None,
    search: Optional[Search] = None,
    profiling: bool = False,
    require_fused: Optional[int] = None,
    max_loop_iterations: Optional[int] = None,
    expose_attention: Union[bool, str, Sequence[str], None] = None,
    expose_attention_as: Union[str, Sequence[str], None] = None,
) -> List[str]:
    """What changes the library, for the command line of attnc, in an order that says the same of equal options."""
    for option, given, kind, what in (
        ("dims", dims, abc.Mapping, "a mapping of names to sizes"),
        ("shapes", shapes, abc.Mapping, "a mapping of inputs to shapes"),
        ("states", states, abc.Mapping, "a mapping of inputs to outputs"),
        ("search", search, Search, "attnc.Greedy, Beam or Sample"),
    ):
        if given is not None and not isinstance(given, kind):
            raise InvalidArgument(f"{option} expects {what}, not {type(given).__name__}")
    for option, on in (("allow_host_ops", allow_host_ops), ("own_state", own_state), ("profiling", profiling)):
        if not isinstance(on, bool):
            raise InvalidArgument(f"{option} expects True or False, not {on!r}")
    if optimize is not None and not (_is_size(optimize) and 0 <= optimize <= 3):
        raise InvalidArgument(f"optimize expects a level from 0 to 3, not {optimize!r}")
    flags = [_dim(name, size) for name, size in sorted((dims or {}).items())]
    for name, sizes in sorted((shapes or {}).items()):
        flags += [f"--shape={tensor}:{shape}" for tensor, shape in _shapes(name, sizes)]
    for option, names in (("absent", absent), ("keep_output", keep_output)):
        texts = _texts_of(option, () if names is None else names)
        flags += [f"--{option.replace('_', '-')}={name}" for name in sorted(set(texts))]
    for flag, value in (
        ("weights", weights),
        ("precision", precision),
        ("fp32-math", fp32_math),
        ("mcpu", cpu),
        ("target", target),
        ("gpu-arch", gpu_arch),
        ("masks", masks),
        ("cache", cache),
        ("require-fused", require_fused),
        ("max-loop-iterations", max_loop_iterations),
    ):
        if value is not None:
            flags.append(f"--{flag}={value}")
    if optimize is not None:
        flags.append(f"-O{optimize}")
    exposed = "all" if expose_attention is True else expose_attention
    nodes = [] if exposed is None or exposed is False else _texts_of("expose_attention", exposed)
    flags += [f"--expose-attention={node}" for node in nodes]
    if expose_attention_as is not None:
        flags.append("--expose-attention-as=" + ",".join(_texts_of("expose_attention_as", expose_attention_as)))
    if states:
        flags.append("--state=" + ",".join(f"{input}:{output}" for input, output in states.items()))
    flags += [flag for flag, on in (("--allow-host-ops", allow_host_ops), ("--own-state", own_state),
                                    ("--mark-regions", profiling)) if on]  # fmt: skip
    return flags + (search.flags() if search else [])


# Flags of attnc with another name than the option of which they are made.
_OPTIONS = {"dim": "dims", "shape": "shapes", "state": "states", "mcpu": "cpu", "mark-regions": "profiling",
            "max-memory": "memory", "generate": "search", "sample-seed": "seed"}  # fmt: skip


def _shape_in_python(text: str) -> str:
    sizes = ["None" if size == "?" else size for size in text.split("x")]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _in_python(text: str) -> str:
    """What the compiler says, with options as Python has them; others stay flags."""
    fields = {each.name for kind in (Beam, Sample) for each in dataclasses.fields(kind)}
    known = {*(flags_of.__kwdefaults__ or {}), "timeout", "memory", *fields}

    def option(match: "re.Match[str]") -> str:
        flag, value = match["flag"], match["value"]
        name = _OPTIONS.get(flag, flag.replace("-", "_"))
        if name not in known:
            return match[0]
        if value is None:
            return name
        key, colon, rest = value.partition(":")
        if flag == "generate" and key in ("greedy", "beam", "sample"):
            return f"search=attnc.{key.capitalize()}({rest})"
        if re.fullmatch(r"[0-9.]+|[A-Z]+", value):  # a number, or what stands for one
            return f"{name}={value}"
        if flag not in ("dim", "shape", "state") or not colon:
            return f"{name}='{value}'"
        value = {"state": repr, "shape": _shape_in_python}.get(flag, str)(rest)
        return f"{name}={{'{key}': {value}}}"

    text = text.replace("'attnc --help' lists the options", "help(attnc.compile) lists the options")
    return re.sub(r"(?<![\w/.-])--(?P<flag>[a-z][a-z0-9-]*)(?:=(?P<value>[\w:.?-]*[\w?]))?", option, text)


def _error_of(status: int, message: str) -> Type[Error]:
    if status == 1:
        if message.endswith(("no such file", "no such file or folder")):
            return NoSuchFile
        return FileError if "cannot write" in message or "cannot make" in message else InvalidArgument
    if status == 4:
        if "out of memory" in message:
            return OutOfMemory
        return DeadlineExceeded if "--timeout" in message else Internal
    return {2: Unsupported, 3: InvalidArgument}.get(status, Internal)


def _raise(status: int, output: str, errors: str, renamed: Mapping[str, str]) -> None:
    for path, shown in renamed.items():
        output, errors = output.replace(path, json.dumps(shown)[1:-1]), errors.replace(path, shown)
    try:
        told: Dict[str, Any] = json.loads(output)
    except ValueError:
        text = errors.strip() or "nothing was said"
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        raise Internal(f"the compiler {how}: {text[-2000:]}") from None
    message = str(told.get("message", ""))
    more, notes = ([_in_python(text) for text in told.get(key, ())] for key in ("more", "notes"))
    raise _error_of(status, message)(_in_python(message), more, notes)


def _said(errors: str, severity: str) -> List[str]:
    """What a compile said that came to its end: each "warning", or each "note"."""
    lines = (line.partition(": ") for line in errors.splitlines())
    return [_in_python(text) for kind, _, text in lines if kind == severity]


# Whoever calls one of these called us; their own lines say nothing to a user.
_CALLERS = {"sentence_transformers", "torch", "transformers"}


def warn(texts: Sequence[str], kind: Type[Warning] = CompileWarning) -> None:
    """Hands on what a compile warned of, in the name of who called us, however deep that is."""
    depth, frame, ours = 1, sys._getframe(), os.path.dirname(__file__)
    while frame.f_back and (
        frame.f_code.co_filename.startswith(ours) or str(frame.f_globals.get("__name__")).partition(".")[0] in _CALLERS
    ):
        depth, frame = depth + 1, frame.f_back
    for text in texts:
        warnings.warn(text, kind, stacklevel=depth)


class _Shown:
    """A line on a terminal, or in a notebook, that says what the compile is at."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._last = ""
        self._notebook: Any = None
        if "ipykernel" in sys.modules:
            from IPython.display import display

            self._notebook = display({"text/plain": ""}, raw=True, display_id=True)

    def __call__(self, stage: str, seconds: float) -> None:
        text = f"{self._name}: {stage}" if stage else ""
        if self._notebook is not None:
            self._notebook.update({"text/plain": text and f"{text} ({seconds:.1f} s)"}, raw=True)
        elif text != self._last:
            sys.stderr.write(f"\r\033[K{text[:100]}")
            sys.stderr.flush()
        self._last = text


def _listener(progress: Progress, name: str) -> Optional[Callable[[str, float], None]]:
    if callable(progress):
        return progress
    watched = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
    return _Shown(name) if progress or (progress is None and watched) else None


def _end(child: "subprocess.Popen[str]") -> None:
    """Ends a compile that nobody waits for. It takes its worker and what it began to write with it."""
    child.terminate()
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def run_compiler(
    arguments: Sequence[str], name: str, progress: Progress, renamed: Mapping[str, str]
) -> Tuple[Dict[str, Any], str]:
    """Starts attnc and returns what it prints with --json, and what it says on standard error. Errors call a file that
    is ``renamed`` by the name there."""
    listener = _listener(progress, name)
    command = [program("attnc"), *arguments, "--json", "--progress"]
    start = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, text=True, errors="replace"
        )
        try:
            errors = _follow(child.stderr, listener, start) if child.stderr else ""
            status = child.wait()
        except BaseException:
            # Ctrl-C, or a listener that raises.
            _end(child)
            raise
        finally:
            if child.stderr:
                child.stderr.close()
            if listener:
                listener("", time.monotonic() - start)
        output.seek(0)
        text = output.read()
    if status:
        _raise(status, text, errors, renamed)
    return json.loads(text), errors


def _follow(stream: IO[str], listener: Optional[Callable[[str, float], None]], start: float) -> str:
    """Hands on each stage, and returns the rest of what is said."""
    rest = []
    for line in stream:
        if line.startswith("progress: "):
            if listener:
                listener(line[len("progress: ") :].rstrip("\n"), time.monotonic() - start)
        else:
            rest.append(line)
    return "".join(rest)


def checked_limits(timeout: Any, memory: Any) -> Dict[str, Any]:
    """The limits of a compile. attnc looks at them, too, but nobody starts it for what the cache has."""
    if timeout is not None:
        try:
            seconds = float(str(timeout))
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            raise InvalidArgument(f"'timeout' expects a number of at least 0, not '{timeout}'")
    if memory is not None:
        size = re.fullmatch("0*([0-9]{1,19})([KMGkmg]?)", str(memory))
        if not size or int(size[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[size[2].upper()] > 1 << 62:
            raise InvalidArgument(f"'memory' expects a size as 512M or 4G, not '{memory}'")
    return {"timeout": timeout, "memory": memory}


def compile_source(
    source: Source,
    out: Path,
    flags: Sequence[str],
    *,
    timeout: Optional[float],
    memory: Optional[str],
    progress: Progress,
) -> Tuple[Compiled, List[str]]:
    """What was written, and the warnings of the compile."""
    models = source.arguments()
    arguments = [*models, *flags, "-o", os.fspath(out)]
    if timeout is not None:
        arguments.append(f"--timeout={timeout}")
    if memory is not None:
        arguments.append(f"--max-memory={memory}")
    renamed = {models[0]: source.shown} if source.shown else {}
    told, errors = run_compiler(arguments, source.name, progress, renamed)
    for model in models:  # NAME=PATH, or PATH: a library's warnings are those of a model that lies elsewhere, too
        path = model[model.index("/") :]
        errors = errors.replace(path, os.path.basename(path))
    result = Compiled(
        os.fspath(out),
        told.get("bytes", 0),
        told.get("seconds", 0.0),
        told.get("fused", 0),
        told.get("softmaxes", 0),
        told,
        tuple(_said(errors, "note")),
    )
    return result, _said(errors, "warning")


def compile(
    source: Any,
    out: Path,
    *,
    timeout: Optional[float] = None,
    memory: Optional[str] = None,
    on_progress: Progress = None,
    **options: Any,
) -> Compiled:
    """Compiles a model into the library ``out``, which is there whole or not at all.

    source       the path of an ONNX file, of a graph (.json) or of IR (.mlir); a mapping of entries to such paths; a
                 folder of the hub, whose parts become entries (encoder_model, decoder_model, ...), or one function
                 if there is a search that names no step; an onnx.ModelProto; a program of torch.export
    dims         sizes by the model's names for dimensions: 128, or bounds (1, 512)
    shapes       shapes by input (for a sequence, a list with one for each tensor); None leaves a size open
    absent       names of optional inputs that the model does without
    keep_output  names of outputs to keep; others, and nodes that only they need, are left out (inputs stay)
    weights      "f32", "bf16", "int8", "int8:64", "int4:32" or (target "cuda") "fp8": how constant operands of products are
                 stored
    precision    "f32", "bf16" or "int8" (target "cuda": "tf32", "bf16", "f16"): the arithmetic of products; int8 rounds
                 their weights to bytes, and their rows during the run
    fp32_math    "f32", "bf16x3" or "bf16x6": how products of f32 are computed
    cpu          "native", "x86-64-v3", "x86-64-v4", or LLVM's name of a CPU
    target       "cpu" or "cuda"; gpu_arch and allow_host_ops belong to "cuda"
    masks        "proved" or "exact"
    optimize     0 to 3
    own_state    the library can keep state between runs (Model.state); states: which inputs take which outputs
    cache        "model", "int8" or (target "cuda") "fp8": how caches that the library or a search keeps are stored
    search       Greedy, Beam or Sample: adds an entry ``generate`` that searches by repeating a step
    profiling    the library can measure where its time goes (Model.profile)
    require_fused  the compile fails if fewer attentions are fused
    max_loop_iterations  a loop of the model with more iterations ends the run with an error (default 16777216)
    expose_attention  "all" (or True), or names of nodes ("ENTRY:NODE" for one entry): attention weights become outputs
                 (Model.attention); expose_attention_as: one or a list of "weights" (default), "head-mean", "argmax",
                 "entropy", "top-k:K"
    timeout      limit of the compile, in seconds; memory: limit of its address space, as "4G"
    on_progress  a function that is called with the name of each stage and the seconds so far, and with "" at the end;
                 True or False: whether a line shows the progress; None: shows it in a terminal or a notebook

    Unsupported       the model needs something that attnc does not support: the message lists all operators that are
                      not there, with their nodes, or else it names the first node that is not supported as it is
    InvalidArgument   an option is wrong, or the model is damaged
    FileError         the library cannot be written; NoSuchFile: the model is not there
    OutOfMemory, DeadlineExceeded  a limit was reached
    CompileWarning    a warning (module ``warnings``) of a compile that succeeded
    """
    flags, limits = _checked_flags(options), checked_limits(timeout, memory)
    with tempfile.TemporaryDirectory(prefix="attnc-") as scratch:
        opened, _ = open_source(source, pathlib.Path(scratch), options.get("search"))
        result, texts = compile_source(opened, out, flags, progress=on_progress, **limits)
    warn(texts)
    return result


def _checked_flags(options: Mapping[str, Any]) -> List[str]:
    try:
        return flags_of(**options)
    except TypeError as error:
        unknown = [name for name in options if name not in (flags_of.__kwdefaults__ or {})]
        if not unknown:
            raise
        known = sorted(flags_of.__kwdefaults__ or {})
        # What a load hands to the runtime is meant as often.
        others = [*(Model.__init__.__kwdefaults__ or {}), "memory", "timeout", "on_progress"]
        near = difflib.get_close_matches(unknown[0], known + others, 1)
        meant = f", did you mean '{near[0]}'" if near else ""
        raise InvalidArgument(f"no option '{unknown[0]}'{meant}; the options of a compile are {', '.join(known)}") from error
