"""What a fused model attends to: weights as arrays, and as a page that draws them."""

from __future__ import annotations

import base64
import binascii
import os
import pathlib
import re
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Union

from . import _errors, _page

def _is_whole(name: str, array: Any) -> bool:
    """Whether an output has all weights of a node, "NODE.weights" or "NODE.weights.2", or those of a search."""
    if name == "alignment":
        return bool(array.ndim in (3, 4))
    return re.search(r"\.weights(\.\d+)?$", name) is not None and array.ndim in (4, 5)


def _drawn(weights: Any) -> Any:
    """As the page has it: [batch, head, query, key], with each hypothesis of a beam as an item."""
    if weights.ndim == 3:
        return weights[:, None]
    if weights.ndim == 5:
        return weights.reshape(weights.shape[0] * weights.shape[1], *weights.shape[2:])
    return weights


def _is_whole_png(content: bytes) -> bool:
    """Whether the chunks of a PNG file are whole, up to the last one."""
    at = 8
    while at + 12 <= len(content):
        end = at + 8 + int.from_bytes(content[at : at + 4], "big")
        if binascii.crc32(content[at + 4 : end]) != int.from_bytes(content[end : end + 4], "big"):
            return False
        if content[at + 4 : at + 8] == b"IEND":
            return True
        at = end + 4
    return False


def _data_uri(image: Union[str, "os.PathLike[str]", bytes]) -> str:
    """A picture, or the file that has it, as a page holds it."""
    name, content = ("", image) if isinstance(image, bytes) else (f"{image} is ", pathlib.Path(image).read_bytes())
    for start, kind in ((b"\x89PNG", "png"), (b"\xff\xd8\xff", "jpeg")):
        if content.startswith(start):
            if not (_is_whole_png(content) if kind == "png" else b"\xff\xd9" in content):
                raise _errors.InvalidArgument(f"image: {name or 'the bytes are '}damaged or cut off")
            return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    raise _errors.InvalidArgument(f"image: {name or 'the bytes are '}neither PNG nor JPEG")


class AttentionMaps(Mapping[str, Any]):
    """Attention weights by node: float32 arrays [batch, head, query, key], as the fused kernels computed them. In a
    search queries are the tokens that it wrote, and a beam's have its hypotheses behind batch. Shows itself as a page in
    a notebook; ``save`` writes that page.

    outputs  all outputs of the run by name, reductions (``expose_attention_as``) among them
    """

    def __init__(
        self,
        model: str,
        exposed: Sequence[str],
        outputs: Dict[str, Any],
        labels: Optional[Sequence[str]] = None,
        key_labels: Optional[Sequence[str]] = None,
        image: Union[str, "os.PathLike[str]", bytes, None] = None,
    ) -> None:
        self.model = model
        self.outputs = outputs
        self.labels = None if labels is None else [str(label) for label in labels]
        self.key_labels = self.labels if key_labels is None else [str(label) for label in key_labels]
        self._image = None if image is None else _data_uri(image)
        self._weights = {
            re.sub(r"\.weights(\.\d+)?$", r"\1", name): outputs[name]
            for name in exposed
            if name in outputs and _is_whole(name, outputs[name])
        }
        shapes = {node: array.shape for node, array in self._weights.items()}
        self._heads = "Hypothesis" if list(shapes) == ["alignment"] and len(shapes["alignment"]) == 4 else None
        self._check_labels(labels, key_labels)

    def _check_labels(self, labels: Optional[Sequence[str]], key_labels: Optional[Sequence[str]]) -> None:
        axes = {"queries": -2, "keys": -1} if labels is key_labels or key_labels is None else {"queries": -2}
        for name, texts, wanted in (("labels", labels, axes), ("key_labels", key_labels, {"keys": -1})):
            sizes = {w: sorted({array.shape[axis] for array in self._weights.values()}) for w, axis in wanted.items()}
            if texts is None or not self._weights or any(len(texts) in known for known in sizes.values()):
                continue
            have = " and ".join(f"{' or '.join(map(str, known))} {what}" for what, known in sizes.items())
            raise _errors.InvalidArgument(f"{name}: {len(texts)} texts for attentions of {have}")

    def __getitem__(self, node: str) -> Any:
        return self._weights[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def _layer(self, node: str) -> Dict[str, Any]:
        import numpy

        weights = _drawn(numpy.asarray(self._weights[node], numpy.float64))
        words = numpy.round(65535 * numpy.clip(numpy.nan_to_num(weights), 0, 1)).astype("<u2")
        layer = {"name": node, "shape": list(weights.shape), "weights": base64.b64encode(words.tobytes()).decode()}
        if self._weights[node].ndim == 5:
            layer["hypotheses"] = self._weights[node].shape[1]
        for key, labels, size in (
            ("queryLabels", self.labels, weights.shape[2]),
            ("keyLabels", self.key_labels, weights.shape[3]),
        ):
            if labels is not None and len(labels) == size:
                layer[key] = labels
        return layer

    def page(self) -> str:
        """The page as HTML. It needs no network; labels name each axis that has as many positions."""
        data: Dict[str, Any] = {"model": self.model, "layers": [self._layer(node) for node in self]}
        if self._image is not None:
            data["image"] = self._image
        if self._heads is not None:
            data["heads"] = self._heads
        return _page.fill("attention.html", "@ATTENTION_DATA@", data)

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the page into a file."""
        pathlib.Path(path).write_text(self.page(), encoding="utf-8")

    def _repr_html_(self) -> str:
        return _page.frame("Attention maps", self.page())

    def __repr__(self) -> str:
        shapes = ", ".join(f"{node}: {'x'.join(map(str, array.shape))}" for node, array in self.items())
        return f"<AttentionMaps of {self.model}: {shapes}>"
