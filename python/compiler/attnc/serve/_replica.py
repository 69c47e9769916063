"""A process that serves: Ray's deployment class. By HTTP it speaks the Open Inference Protocol, version 2, with Triton's
``generate`` extension; by a ``DeploymentHandle`` its methods take arrays and texts, without JSON."""

import asyncio
import json
import pathlib
import time
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Sequence

import numpy as np
import ray.serve
from attnc_runtime import CorruptFile, DeviceError, Error, Internal, InvalidArgument, Unsupported, __version__
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from . import _decoder, _protocol, _timeline
from ._batches import Batcher, Item, Meters
from ._models import Models, held, open_runner
from ._settings import Settings
from ._tensors import Rows, tokens_of

_api = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

# After these a replica is of no use any more: Ray starts another one.
_FATAL = (CorruptFile, DeviceError, Internal)


class _Tensors:
    """A model of tensors, and the requests that wait for it."""

    def __init__(self, settings: Settings, name: str, path: pathlib.Path) -> None:
        self.model = open_runner(settings, path)
        self.rows = Rows(self.model, settings)
        self.batcher = Batcher(settings, self.rows.run, Meters(name))

    async def infer(self, arrays: Mapping[str, Any], deadline: float) -> Dict[str, Any]:
        item = self.rows.item(arrays, deadline)
        if not self.rows.batch:
            item.length = tokens_of(arrays)
        answer: Dict[str, Any] = await self.batcher.submit(item)
        return answer


class _Text:
    """A sentence encoder, and the texts that wait for it."""

    def __init__(self, settings: Settings) -> None:
        self.encoder = open_runner(settings)
        self.batcher = Batcher(settings, self._run, Meters(settings.name))

    def _run(self, encodings: Sequence[Any], **options: Any) -> List[Any]:
        return list(self.encoder.embed(encodings, **options))

    async def embed(self, texts: Sequence[str], deadline: float) -> "np.ndarray[Any, Any]":
        if not texts:
            return np.empty((0, self.encoder.dimension), np.float32)
        encodings = self.encoder.tokenize(texts)
        items = [Item(encoding, deadline, length=len(encoding)) for encoding in encodings]
        tasks = [asyncio.ensure_future(self.batcher.submit(item)) for item in items]
        try:
            return np.stack(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()


class _Generator:
    """A decoder whose batch sequences join and leave."""

    def __init__(self, settings: Settings) -> None:
        folder = pathlib.Path(settings.model)
        self._defaults = {**_read(folder / "config.json"), **_read(folder / "generation_config.json")}
        places = self._defaults.get("n_positions") or self._defaults.get("max_position_embeddings")
        self.model = open_runner(settings)
        self.decoder = _decoder.Decoder(self.model, slots=settings.slots, chunk=settings.chunk, places=places)
        self.settings = settings
        self.tokenizer: Any = None
        if (folder / "tokenizer.json").exists():
            from tokenizers import Tokenizer

            self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def request(self, prompt: Any, deadline: float, options: Mapping[str, Any]) -> _decoder.Request:
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise InvalidArgument(f"{self.settings.model} has no tokenizer.json: give token numbers instead of text")
            prompt = self.tokenizer.encode(prompt).ids
        known = {"max_new_tokens": int, "temperature": float, "top_k": int, "top_p": float, "seed": int}
        for name, value in options.items():
            if name not in known:
                raise InvalidArgument(f"'{name}' is no option of generate: {', '.join(known)}")
            if isinstance(value, bool) or not isinstance(value, (int, known[name])):
                raise InvalidArgument(f"'{name}' expects a number, not {value!r}")
        end = self._defaults.get("eos_token_id")
        ends = tuple(end) if isinstance(end, list) else () if end is None else (end,)
        chosen = {"max_new_tokens": self.settings.max_new_tokens, **options}
        request = _decoder.Request(list(prompt), end_tokens=ends, deadline=deadline, **chosen)
        self.decoder.check(request)  # now, as a stream's status is sent before its first token
        return request

    async def tokens(self, request: _decoder.Request) -> AsyncIterator[int]:
        loop = asyncio.get_running_loop()
        arrived: "asyncio.Queue[Any]" = asyncio.Queue()

        def on_token(token: Optional[int], error: Optional[BaseException]) -> None:
            loop.call_soon_threadsafe(arrived.put_nowait, (token, error))

        leave = self.decoder.submit(request, on_token)
        try:
            while True:
                token, error = await arrived.get()
                if error:
                    raise error
                if token is None:
                    return
                yield token
        finally:
            leave()


def _read(path: pathlib.Path) -> Dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


# Ray pickles the routes with all that they name, as it is when the class below is made: it comes last.


class _Watch:
    """Remembers an error after which the replica is of no use."""

    def __init__(self, replica: "Replica") -> None:
        self._replica = replica

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        if error is not None:
            self._replica._note(error)


class _HttpError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


async def _json_of(request: Request, limit: int) -> Any:
    """The body, of at most ``limit`` bytes, which are not read beyond it."""
    parts: List[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _HttpError(413, f"the request has more than the {limit} bytes that this server takes (max_body)")
        parts.append(part)
    try:
        return json.loads(b"".join(parts))
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the request is no JSON: {error}") from None


def _text_of(generator: Any, tokens: Sequence[int]) -> Optional[str]:
    if generator.tokenizer is None:
        return None
    text: str = generator.tokenizer.decode(list(tokens))
    return text


def _event(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


@ray.serve.ingress(_api)
class Replica:
    """One process with the model. Methods serve handles; each raises attnc's errors, which Ray hands to the caller."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._broken: Optional[BaseException] = None
        self._text = _Text(settings) if settings.kind == "text" else None
        self._generator = _Generator(settings) if settings.kind == "decoder" else None
        self._models = Models(settings, lambda name, path: _Tensors(settings, name, path))
        if settings.kind == "tensors" and self._models.names() == [settings.name]:
            self._models.take(settings.name)  # one model stays open

    # For handles.

    async def infer(
        self, inputs: Mapping[str, Any], *, model: Optional[str] = None, timeout: Optional[float] = None
    ) -> Dict[str, Any]:
        """Outputs by name for arrays by name."""
        self._need("tensors")
        name = model or self._settings.name
        deadline = self._deadline(timeout)
        with self._watch():
            async with held(self._models, name) as opened:
                answer: Dict[str, Any] = await opened.infer({key: np.asarray(inputs[key]) for key in inputs}, deadline)
                return answer

    async def embed(self, texts: Sequence[str], *, timeout: Optional[float] = None) -> "np.ndarray[Any, Any]":
        """Embeddings [texts, dimension] in float32."""
        text = self._need("text")
        if isinstance(texts, str) or not all(isinstance(each, str) for each in texts):
            raise InvalidArgument("embed expects a list of str")
        with self._watch():
            embedded: "np.ndarray[Any, Any]" = await text.embed(list(texts), self._deadline(timeout))
            return embedded

    async def generate(
        self, prompt: Any, *, timeout: Optional[float] = None, **options: Any
    ) -> AsyncIterator[int]:
        """The new tokens of a prompt (text, or token numbers), each as soon as it is chosen: call it by a handle with
        ``options(stream=True)``. ``options``: max_new_tokens, temperature, top_k, top_p, seed."""
        generator = self._need("decoder")
        with self._watch():
            async for token in generator.tokens(generator.request(prompt, self._deadline(timeout), options)):
                yield token

    def check_health(self) -> None:
        """Asked by Ray, which replaces a replica that raises."""
        if self._broken is not None:
            raise self._broken

    def runs(self) -> List[Dict[str, Any]]:
        """The latest runs of this process, for ``serve.timeline``."""
        return _timeline.noted()

    # For HTTP.

    @_api.get("/v2")
    def _server(self) -> Any:
        return {"name": "attnc", "version": __version__, "extensions": ["generate"] if self._generator else []}

    @_api.get("/v2/health/live")
    @_api.get("/v2/health/ready")
    def _is_live(self) -> Any:
        return Response(status_code=503 if self._broken else 200)

    @_api.get("/v2/models")
    def _list(self) -> Any:
        return {"models": [{"name": name} for name in self._models.names()]}

    @_api.get("/v2/models/{name}")
    async def _metadata(self, name: str) -> Any:
        return await self._answer(self._describe(name))

    @_api.get("/v2/models/{name}/ready")
    async def _is_ready(self, name: str) -> Any:
        return await self._answer(self._check(name))

    @_api.post("/v2/models/{name}/infer")
    async def _infer(self, name: str, request: Request) -> Any:
        return await self._answer(self._infer_json(name, request))

    @_api.post("/v2/models/{name}/generate")
    async def _generate(self, name: str, request: Request) -> Any:
        return await self._answer(self._generate_json(name, request))

    @_api.post("/v2/models/{name}/generate_stream")
    async def _generate_stream(self, name: str, request: Request) -> Any:
        return await self._answer(self._stream_json(name, request))

    async def _check(self, name: str) -> Any:
        self._models.path(name)
        return Response(status_code=200)

    async def _describe(self, name: str) -> Any:
        self._models.path(name)
        about: Dict[str, Any] = {"name": name, "platform": "attnc"}
        if self._text:
            about["inputs"] = [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
            about["outputs"] = [
                {"name": "embedding", "datatype": "FP32", "shape": [-1, self._text.encoder.dimension or -1]}
            ]
        elif self._generator:
            about["inputs"] = [{"name": "text_input", "datatype": "BYTES", "shape": [1]}]
            about["outputs"] = [{"name": "text_output", "datatype": "BYTES", "shape": [1]}]
        else:
            async with held(self._models, name) as opened:
                about["inputs"] = _protocol.describe(opened.model.inputs)
                about["outputs"] = _protocol.describe(opened.model.outputs)
        return about

    async def _infer_json(self, name: str, request: Request) -> Any:
        self._models.path(name)
        body = await _json_of(request, self._settings.max_body)
        arrays, rest = _protocol.read_request(body)
        timeout = _protocol.timeout_of(rest["parameters"], self._settings.timeout)
        if not self._text:
            return _protocol.write_answer(name, await self.infer(arrays, model=name, timeout=timeout), rest)
        texts = arrays.get("text")
        if texts is None or texts.dtype != object or len(arrays) > 1:
            raise InvalidArgument("a model of texts has one input, 'text', of datatype BYTES")
        embedded = await self.embed(texts.ravel().tolist(), timeout=timeout)
        return _protocol.write_answer(name, {"embedding": embedded}, rest)

    async def _read_prompt(self, name: str, request: Request) -> Any:
        self._models.path(name)
        generator = self._need("decoder")
        body = await _json_of(request, self._settings.max_body)
        prompt = body.get("text_input") if isinstance(body, dict) else None
        numbers = isinstance(prompt, list) and all(isinstance(t, int) and not isinstance(t, bool) for t in prompt)
        if not isinstance(prompt, str) and not numbers:
            raise InvalidArgument("'text_input' is missing, or neither text nor a list of token numbers")
        options = body.get("parameters", {})
        if not isinstance(options, dict):
            raise InvalidArgument("'parameters' is no object")
        deadline = self._deadline(_protocol.timeout_of(options, self._settings.timeout))
        options = {key: value for key, value in options.items() if key != "timeout"}
        return generator, generator.request(prompt, deadline, options)

    async def _generate_json(self, name: str, request: Request) -> Any:
        generator, wanted = await self._read_prompt(name, request)
        with self._watch():
            tokens = [token async for token in generator.tokens(wanted)]
        return {"model_name": name, "text_output": _text_of(generator, tokens), "tokens": tokens}

    async def _stream_json(self, name: str, request: Request) -> Any:
        generator, wanted = await self._read_prompt(name, request)

        async def events() -> AsyncIterator[str]:
            tokens: List[int] = []
            shown = ""
            try:
                async for token in generator.tokens(wanted):
                    tokens.append(token)
                    text = _text_of(generator, tokens) or ""
                    # A character may take several tokens.
                    new, shown = ("", shown) if text.endswith("\ufffd") else (text[len(shown) :], text)
                    yield _event({"model_name": name, "text_output": new, "token": token})
            except Exception as error:  # the status is sent already
                self._note(error)
                yield _event({"error": str(error)})

        return StreamingResponse(events(), media_type="text/event-stream")

    # Both.

    def _need(self, kind: str) -> Any:
        if kind != self._settings.kind:
            raise Unsupported(f"the model '{self._settings.name}' is of kind '{self._settings.kind}', not '{kind}'")
        return self._text if kind == "text" else self._generator

    def _deadline(self, timeout: Optional[float]) -> float:
        if timeout is not None and not timeout > 0:
            raise InvalidArgument(f"timeout expects seconds above 0, not {timeout}")
        return time.monotonic() + (self._settings.timeout if timeout is None else timeout)

    def _note(self, error: BaseException) -> None:
        if isinstance(error, _FATAL):
            self._broken = error

    def _watch(self) -> "_Watch":
        return _Watch(self)

    async def _answer(self, work: Any) -> Any:
        try:
            return await work
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._note(error)
            status = error.code if isinstance(error, _HttpError) else _protocol.status_of(error)
            text = str(error) if status != 500 or isinstance(error, Error) else f"{type(error).__name__}: {error}"
            return JSONResponse({"error": text}, status_code=status)
