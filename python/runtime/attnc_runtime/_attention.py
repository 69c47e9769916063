"""What a fused model attends to: weights as arrays, and as a page that draws them."""

from __future__ import annotations

import base64
import binascii
import math
import os
import pathlib
import re
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _errors, _page

_FORMS = {"weights": 4, "head_mean": 3, "argmax": 3, "entropy": 3, "top_k_weights": 4}  # and how many axes they have
_MOST_WEIGHTS = 4 << 20  # that a page draws: 11 MB of it
_MOST_GROUPS = 512  # of positions on an axis


def _is_whole(name: str, array: Any) -> bool:
    """Whether an output has all weights of a node, "NODE.weights" or "NODE.weights.2", or those of a search."""
    if name == "alignment":
        return bool(array.ndim in (3, 4))
    return re.search(r"\.weights(\.\d+)?$", name) is not None and array.ndim in (4, 5)


class _Layer:
    """What a page draws of an output: rows of weights, [items, heads, queries, keys]."""

    def __init__(self, name: str, outputs: Mapping[str, Any], keys: int, alone: bool) -> None:
        import numpy

        found = re.fullmatch(r"(.*)\.(\w+?)(\.\d+)?", name, re.S)
        node, self.form, number = (found[1], found[2], found[3] or "") if found and found[2] in _FORMS else (name, "alignment", "")
        self.name = node + number
        array = numpy.asarray(outputs[name])
        self.hypotheses = 0
        if array.ndim > _FORMS.get(self.form, 3) and not (self.form == "alignment" and alone):
            self.hypotheses = array.shape[1]
            array = array.reshape(array.shape[0] * array.shape[1], *array.shape[2:])
        self.most = 1.0
        if self.form == "argmax":
            array = _scattered(array.astype(numpy.int64)[..., None], None, keys)
        elif self.form == "top_k_weights":
            places = numpy.asarray(outputs[f"{node}.top_k_keys{number}"])
            array = _scattered(places.reshape(array.shape), array, keys)
        elif self.form == "entropy":
            array = numpy.swapaxes(numpy.nan_to_num(array), 1, 2)[:, None] / numpy.log(2)
            self.most = max(float(array.max(initial=0)), 1e-9)
        elif array.ndim == 3:
            array = array[:, None]
        self.rows = array

    def groups(self, most: int, picture: bool) -> Tuple[int, int]:
        """How many positions are drawn as one. The parts of a picture stay as they are, and so do heads."""
        queries, keys = (max(1, -(-size // most)) for size in self.rows.shape[2:])
        return queries, 1 if picture or self.form == "entropy" else keys

    def drawn(self, items: int, groups: Tuple[int, int]) -> List[int]:
        shape = self.rows.shape
        return [min(shape[0], items), shape[1], -(-shape[2] // groups[0]), -(-shape[3] // groups[1])]

    def describe(self, items: int, groups: Tuple[int, int]) -> Dict[str, Any]:
        import numpy

        rows = numpy.maximum(numpy.nan_to_num(self.rows[:items].astype(numpy.float64)), 0)
        shape = self.drawn(items, groups)
        # Of a group the sum over keys and the mean over queries, so that a row still sums to what it did.
        sums = rows
        for axis, group in ((2, groups[0]), (3, groups[1])):
            if group > 1:
                sums = numpy.add.reduceat(sums, range(0, sums.shape[axis], group), axis)
        if groups[0] > 1:
            counts = numpy.minimum(groups[0], rows.shape[2] - groups[0] * numpy.arange(shape[2]))
            sums = sums / counts[:, None]
        words = numpy.round(65535 * numpy.minimum(sums / self.most, 1)).astype("<u2")
        form = {"head_mean": "mean", "top_k_weights": "top", "alignment": "weights"}.get(self.form, self.form)
        layer = {
            "name": self.name, "form": form, "shape": shape, "positions": list(rows.shape[2:]), "group": list(groups),
            "weights": base64.b64encode(words.tobytes()).decode(),
        }
        if self.form == "entropy":
            layer["most"], bits = self.most, rows.sum(2)
        else:
            bits = -(rows * numpy.log2(rows, out=numpy.zeros_like(rows), where=rows > 0)).sum((2, 3))
        if form in ("weights", "entropy"):
            layer["bits"] = (bits / max(rows.shape[2], 1)).ravel().tolist()
        if self.hypotheses:
            layer["hypotheses"] = self.hypotheses
        return layer


def _scattered(places: Any, weights: Any, keys: int) -> Any:
    """Weights of some keys, [items, heads, queries, k], as those of all, as far as these are known."""
    import numpy

    keys = max(keys, int(places.max(initial=-1)) + 1)
    array = numpy.zeros((*places.shape[:-1], keys), numpy.float32)
    for n in range(places.shape[-1]):
        place = numpy.maximum(places[..., n : n + 1], 0)
        weight = 1.0 if weights is None else weights[..., n : n + 1]
        numpy.put_along_axis(array, place, numpy.maximum(numpy.take_along_axis(array, place, -1), weight), -1)
    return array


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
    """Attention weights by node: float32 arrays [batch, head, query, key], as the fused kernels computed them. The
    queries of a search are the tokens that it wrote. The arrays of a beam search have its hypotheses after batch. A
    notebook shows the weights as a page, and ``save`` writes that page.

    outputs  all outputs of the run by name, including reductions (``expose_attention_as``)
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
        self._exposed = [name for name in exposed if name in outputs]
        self._image = None if image is None else _data_uri(image)
        self._weights = {
            re.sub(r"\.weights(\.\d+)?$", r"\1", name): outputs[name]
            for name in self._exposed
            if _is_whole(name, outputs[name])
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

    def _layers(self) -> List[_Layer]:
        """Whole weights and, of attentions that have none, reductions."""
        keys = len(self.key_labels or ())
        alone = all(name == "alignment" for name in self._exposed)
        layers = []
        for name in self._exposed:
            if re.search(r"\.top_k_keys(\.\d+)?$", name):
                continue
            layer = _Layer(name, self.outputs, keys, alone)
            if layer.form in ("weights", "alignment") or layer.name not in self._weights:
                layers.append(layer)
        return layers

    def page(self) -> str:
        """The page as HTML. It needs no network. Labels are shown on each axis that has as many positions. If there is
        too much to draw, the page draws a part and says so."""
        layers = self._layers()
        items = most_items = max((layer.rows.shape[0] for layer in layers), default=0)
        most = _MOST_GROUPS

        def is_large() -> bool:
            shapes = [layer.drawn(items, layer.groups(most, self._image is not None)) for layer in layers]
            return sum(math.prod(shape) for shape in shapes) > _MOST_WEIGHTS

        while items > 1 and is_large():
            items = -(-items // 2)
        while most > 1 and is_large():
            most //= 2
        described = []
        for layer in layers:
            fields = layer.describe(items, layer.groups(most, self._image is not None))
            for key, labels, size in (
                ("queryLabels", self.labels, layer.rows.shape[2]),
                ("keyLabels", None if layer.form == "entropy" else self.key_labels, layer.rows.shape[3]),
            ):
                if labels is not None and len(labels) == size:
                    fields[key] = labels
            described.append(fields)
        data: Dict[str, Any] = {"model": self.model, "layers": described, "items": most_items}
        if self._image is not None:
            data["image"] = self._image
        if self._heads is not None:
            data["heads"] = self._heads
        return _page.fill("attention.html", "@ATTENTION_DATA@", data)

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the page into a file."""
        _page.save(self.page(), path)

    def _repr_html_(self) -> str:
        return _page.frame("Attention maps", self.page())

    def __repr__(self) -> str:
        shapes = ", ".join(f"{node}: {'x'.join(map(str, array.shape))}" for node, array in self.items())
        return f"<AttentionMaps of {self.model}: {shapes}>"
