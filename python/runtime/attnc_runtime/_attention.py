"""What a fused model attends to: weights as arrays, and as a page that draws them."""

from __future__ import annotations

import base64
import os
import pathlib
import re
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Union

from . import _page

def _is_whole(name: str, array: Any) -> bool:
    """Whether an exposed output has all weights of a node: "NODE.weights", or "NODE.weights.2"."""
    return re.search(r"\.weights(\.\d+)?$", name) is not None and array.ndim == 4


class AttentionMaps(Mapping[str, Any]):
    """Attention weights by node: float32 arrays [batch, head, query, key], as the fused kernels computed them. Shows
    itself as a page in a notebook; ``save`` writes that page.

    outputs  all outputs of the run by name, reductions (``expose_attention_as``) among them
    """

    def __init__(self, model: str, exposed: Sequence[str], outputs: Dict[str, Any], labels: Optional[Sequence[str]]) -> None:
        self.model = model
        self.outputs = outputs
        self.labels = None if labels is None else [str(label) for label in labels]
        self._weights = {
            re.sub(r"\.weights(\.\d+)?$", r"\1", name): outputs[name]
            for name in exposed
            if name in outputs and _is_whole(name, outputs[name])
        }

    def __getitem__(self, node: str) -> Any:
        return self._weights[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)

    def _layer(self, node: str) -> Dict[str, Any]:
        import numpy

        weights = numpy.asarray(self._weights[node], numpy.float64)
        words = numpy.round(65535 * numpy.clip(numpy.nan_to_num(weights), 0, 1)).astype("<u2")
        layer = {"name": node, "shape": list(weights.shape), "weights": base64.b64encode(words.tobytes()).decode()}
        for key, size in (("queryLabels", weights.shape[2]), ("keyLabels", weights.shape[3])):
            if self.labels is not None and len(self.labels) == size:
                layer[key] = self.labels
        return layer

    def page(self) -> str:
        """The page as HTML. It needs no network; labels name each axis that has as many positions."""
        layers = [self._layer(node) for node in self]
        return _page.fill("attention.html", "@ATTENTION_DATA@", {"model": self.model, "layers": layers})

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the page into a file."""
        pathlib.Path(path).write_text(self.page(), encoding="utf-8")

    def _repr_html_(self) -> str:
        return _page.frame("Attention maps", self.page())

    def __repr__(self) -> str:
        shapes = ", ".join(f"{node}: {'x'.join(map(str, array.shape))}" for node, array in self.items())
        return f"<AttentionMaps of {self.model}: {shapes}>"
