"""Sentence encoders without torch: a folder as sentence-transformers writes it, tokenizers and NumPy."""

from __future__ import annotations

import functools
import json
import numbers
import os
import pathlib
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any, Dict, List, Optional, Sequence, Union

import numpy as np
from attnc_runtime import AttentionMaps, InvalidArgument, NoSuchFile, Unsupported
from numpy.typing import NDArray

from ._bert import write_bert
from ._load import Model, load

Array = NDArray[np.float32]

# In the order in which sentence-transformers joins them.
_POOLINGS = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")


def _read(path: pathlib.Path, fallback: Any = None) -> Any:
    if not path.exists() and fallback is not None:
        return fallback
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NoSuchFile(f"{path}: no such file") from None
    except ValueError as error:
        raise InvalidArgument(f"{path}: {error}") from None


def _pooling_modes(config: Dict[str, Any], path: pathlib.Path) -> List[str]:
    given = config.get("pooling_mode")
    if given is not None:  # newer folders: a name, or a list of them
        short = {"cls": 0, "max": 1, "mean": 2, "mean_sqrt_len_tokens": 3, "weightedmean": 4, "lasttoken": 5}
        names = [given] if isinstance(given, str) else list(given)
        unknown = [name for name in names if name not in short]
        if unknown:
            raise Unsupported(f"{path}: pooling '{unknown[0]}' is not supported")
        return sorted((_POOLINGS[short[name]] for name in names), key=_POOLINGS.index)
    modes = [mode for mode in _POOLINGS if config.get(f"pooling_mode_{mode}")]
    return modes or ["mean_tokens"]


def _pool(mode: str, states: Array, mask: NDArray[np.int64]) -> Array:
    """``states`` [batch, sequence, width] over the tokens that ``mask`` shows."""
    shown = mask[:, :, None].astype(np.float32)
    if mode == "cls_token":
        first = mask.argmax(axis=1)
        return np.take_along_axis(states, first[:, None, None], axis=1)[:, 0]
    if mode == "lasttoken":
        last = mask.shape[1] - 1 - mask[:, ::-1].argmax(axis=1)
        return np.take_along_axis(states, last[:, None, None], axis=1)[:, 0]
    if mode == "max_tokens":
        return np.asarray(np.where(shown > 0, states, np.float32(-np.inf)).max(axis=1))
    if mode == "weightedmean_tokens":
        shown = shown * np.arange(1, mask.shape[1] + 1, dtype=np.float32)[None, :, None]
    total = np.einsum("bsw,bs->bw", states, shown[:, :, 0])
    count = np.maximum(shown.sum(axis=1), np.float32(1e-9))
    return np.asarray(total / (np.sqrt(count) if mode == "mean_sqrt_len_tokens" else count), np.float32)


class TextEncoder:
    """Embeds sentences with the model in ``folder``. The folder's own files say which tokenizer, pooling and
    normalisation it uses (modules.json, 1_Pooling/config.json, sentence_bert_config.json).

    The model is ``onnx/model.onnx`` or ``model.onnx``. A BERT encoder may be ``model.safetensors`` instead. Options are
    those of ``attnc.load``: ``encoder = attnc.TextEncoder(folder, weights="int8", threads=2)``.
    """

    def __init__(self, folder: Union[str, "os.PathLike[str]"], **options: Any) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise Unsupported("TextEncoder needs the package tokenizers: pip install tokenizers") from None
        self.folder = pathlib.Path(folder)
        if not self.folder.is_dir():
            raise NoSuchFile(f"{self.folder}: no such folder")
        self._modes: List[str] = []
        self.normalizes = False
        self._read_modules()
        words = self.folder / "tokenizer.json"
        if not words.exists():
            raise NoSuchFile(f"{words}: no such file")
        self._tokenizer = Tokenizer.from_file(str(words))
        self.max_length = self._longest()
        self._tokenizer.enable_truncation(self.max_length)
        padding = self._tokenizer.padding or {}
        known = {name: padding[name] for name in ("pad_id", "pad_type_id", "pad_token", "direction") if name in padding}
        if not known:
            settings = _read(self.folder / "tokenizer_config.json", {})
            token = settings.get("pad_token") or "[PAD]"
            token = token.get("content", "[PAD]") if isinstance(token, dict) else token
            known = {"pad_token": token, "pad_id": self._tokenizer.token_to_id(token) or 0}
        self._tokenizer.no_padding()
        self._padding = known
        self._options = options
        self.model = self._load(options)

    def _read_modules(self) -> None:
        stack = _read(self.folder / "modules.json", [{"type": "Transformer", "path": ""}])
        for module in stack:
            kind = str(module.get("type", "")).rpartition(".")[2]
            if kind == "Pooling":
                path = self.folder / module.get("path", "") / "config.json"
                self._modes = _pooling_modes(_read(path), path)
            elif kind == "Normalize":
                self.normalizes = True
            elif kind != "Transformer":
                raise Unsupported(f"{self.folder}/modules.json: a module of type '{kind}' is not supported")

    def _longest(self) -> int:
        limits = [_read(self.folder / "sentence_bert_config.json", {}).get("max_seq_length")]
        limits.append(_read(self.folder / "config.json", {}).get("max_position_embeddings"))
        limits.append(_read(self.folder / "tokenizer_config.json", {}).get("model_max_length"))
        # sentence-transformers takes its own file's word for it, and else the least of the others.
        return int(limits[0] or min([limit for limit in limits if limit] or [512]))

    def _load(self, options: Dict[str, Any]) -> Model:
        for name in ("onnx/model.onnx", "model.onnx"):
            if (self.folder / name).exists():
                return load(self.folder / name, **options)
        if not (self.folder / "model.safetensors").exists():
            raise NoSuchFile(f"{self.folder} has neither onnx/model.onnx nor model.onnx nor model.safetensors")
        with tempfile.TemporaryDirectory(prefix="attnc-") as scratch:
            graph = pathlib.Path(scratch) / "model.json"
            write_bert(self.folder, graph)
            return load(graph, **options)

    @property
    def dimension(self) -> int:
        """The width of an embedding; 0 if the model leaves it open."""
        size = self.model.outputs[0].shape[-1]
        return size * max(len(self._modes), 1) if isinstance(size, int) else 0

    def encode(self, sentences: Union[str, Sequence[str]], *, batch_size: int = 32, prompt: str = "") -> Array:
        """Embeddings as float32 [sentences, dimension], or [dimension] for a single str. ``prompt`` is put before each
        sentence. Sentences of similar length share a batch, whatever their order."""
        if isinstance(sentences, str):
            alone: Array = self.encode([sentences], batch_size=batch_size, prompt=prompt)[0]
            return alone
        if not isinstance(batch_size, numbers.Integral) or batch_size < 1:
            raise InvalidArgument(f"batch_size expects a number above 0, not {batch_size!r}")
        if not isinstance(sentences, Iterable) or isinstance(sentences, Mapping):
            raise InvalidArgument(f"encode expects a str or a sequence of them, not {type(sentences).__name__}")
        texts = list(sentences)
        for number, text in enumerate(texts):
            if not isinstance(text, str):
                raise InvalidArgument(f"sentence {number} is of type {type(text).__name__}, not str")
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        result: Optional[Array] = None
        for begin in range(0, len(order), batch_size):
            chosen = order[begin : begin + batch_size]
            rows = self._encode([prompt + texts[i] for i in chosen])
            if result is None:
                result = np.empty((len(texts), rows.shape[1]), np.float32)
            result[chosen] = rows
        return np.empty((0, self.dimension), np.float32) if result is None else result

    def _encode(self, texts: List[str]) -> Array:
        return self.embed(self.tokenize(texts))

    def tokenize(self, texts: Sequence[str]) -> List[Any]:
        """The ``tokenizers.Encoding`` of each text, cut to ``max_length``."""
        return list(self._tokenizer.encode_batch(list(texts)))

    def embed(self, encodings: Sequence[Any], **options: Any) -> Array:
        """Embeddings of the result of ``tokenize``, float32 [texts, dimension], in one run. ``encodings`` are padded in
        place to the longest of them. ``options`` are those of Model.run."""
        longest = max((len(encoding) for encoding in encodings), default=0)
        for encoding in encodings:
            encoding.pad(longest, **self._padding)
        mask = np.array([e.attention_mask for e in encodings], np.int64)
        outputs = self.model.run(self._feeds(encodings), **options)
        if "sentence_embedding" in outputs:
            rows = np.asarray(outputs["sentence_embedding"], np.float32)
        else:
            states = np.asarray(next(iter(outputs.values())), np.float32)
            if states.ndim == 3:
                rows = np.concatenate([_pool(mode, states, mask) for mode in self._modes or ["mean_tokens"]], axis=1)
            else:
                rows = states
        if self.normalizes:
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
        return np.asarray(rows, np.float32)

    def _feeds(self, encodings: Sequence[Any]) -> Dict[str, Any]:
        columns = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
        feeds = {}
        for info in self.model.inputs:
            if info.name not in columns:
                raise Unsupported(f"the model has an input '{info.name}', which a tokenizer does not make")
            feeds[info.name] = np.array([getattr(e, columns[info.name]) for e in encodings], info.dtype)
        return feeds

    @functools.cached_property
    def _attending(self) -> Model:
        if self._options.get("expose_attention"):
            return self.model
        return self._load({**self._options, "expose_attention": "all"})

    def attention(self, text: str, **options: Any) -> AttentionMaps:
        """What each head attends to in ``text``: attention weights whose positions are labelled with the tokens. A
        notebook shows them as a page, and ``maps.save("attention.html")`` writes that page. ``options`` are those of
        Model.attention. A model that exposes no weights is compiled a second time, at the first call."""
        if not isinstance(text, str):
            raise InvalidArgument(f"attention expects a str, not {type(text).__name__}")
        encodings = self.tokenize([text])
        return self._attending.attention(**{"labels": encodings[0].tokens, **options}, **self._feeds(encodings))

    def __repr__(self) -> str:
        pooled = "+".join(self._modes) or "mean_tokens"
        return f"<TextEncoder {self.folder.name}: {pooled}{', normalised' if self.normalizes else ''}, {self.dimension} wide>"
