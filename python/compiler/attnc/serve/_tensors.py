"""Requests of tensors as rows of one run."""

from __future__ import annotations

import math
from typing import Any, Dict, Hashable, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from attnc_runtime import InvalidArgument

from ._batches import Item
from ._settings import Settings

Arrays = Mapping[str, "np.ndarray[Any, Any]"]


class Rows:
    """How requests of a model share a run: along the first dimension, where inputs and outputs agree on its name;
    and of different lengths, where ``Settings.padding`` says with what shorter ones are filled up."""

    def __init__(self, model: Any, settings: Settings) -> None:
        self._model = model
        self._padding = settings.padding
        shapes = [tensor.shape for tensor in (*model.inputs, *model.outputs)]
        first = {shape[0] if shape else 1 for shape in shapes}
        name = next(iter(first))
        #: the dimension of the batch, or None: each request has a run of its own
        self.batch: Optional[str] = name if len(first) == 1 and isinstance(name, str) and name else None
        self._length = self._padded_dimension(model)

    def _padded_dimension(self, model: Any) -> Optional[str]:
        known = {tensor.name: tensor for tensor in model.inputs}
        for name in self._padding:
            if name not in known:
                raise InvalidArgument(f"padding: the model has no input '{name}', but {', '.join(known)}")
        found = {size for name in self._padding for size in known[name].shape[1:] if isinstance(size, str)}
        if len(found) > 1 or (self._padding and not found):
            raise InvalidArgument(
                f"padding: inputs {', '.join(self._padding)} need one open dimension besides the batch, not {sorted(found)}"
            )
        length = next(iter(found), None)
        left = [t.name for t in model.inputs if length in t.shape and t.name not in self._padding]
        if length and left:
            raise InvalidArgument(f"padding: input '{left[0]}' has the dimension '{length}', too, and no value to fill it with")
        return length

    def item(self, arrays: Arrays, deadline: float) -> Item:
        """InvalidArgument: names, types or ranks are not the model's, or inputs differ in a dimension of one name."""
        known = {tensor.name: tensor for tensor in self._model.inputs}
        for name in arrays:
            if name not in known:
                raise InvalidArgument(f"the model has no input '{name}', but {', '.join(known)}")
        key: List[Hashable] = []
        sizes: Dict[str, Tuple[int, str]] = {}
        rows, length = 1, 1
        for name, tensor in known.items():
            if name not in arrays:
                raise InvalidArgument(f"input '{name}' is missing: {tensor}")
            array = arrays[name]
            if array.dtype.name != tensor.dtype or array.ndim != len(tensor.shape):
                raise InvalidArgument(
                    f"input '{name}' is {array.dtype.name} of rank {array.ndim}, the model has {tensor}"
                )
            shape: List[Any] = list(array.shape)
            for axis, size in enumerate(tensor.shape):
                if isinstance(size, str) and size:
                    count, first = sizes.setdefault(size, (array.shape[axis], name))
                    if count != array.shape[axis]:
                        raise InvalidArgument(
                            f"inputs '{first}' and '{name}' differ in dimension '{size}': {count} and {array.shape[axis]}"
                        )
                if size == self._length and self._length:
                    length, shape[axis] = array.shape[axis], None
            if self.batch:
                rows, shape[0] = array.shape[0], None
            key.append((name, *shape))
        alone = not self.batch or rows == 0
        return Item(arrays, deadline, max(rows, 1), max(length, 1), object() if alone else tuple(key))

    def run(self, requests: Sequence[Arrays], **options: Any) -> List[Dict[str, Any]]:
        """One run of all; each request's outputs by name."""
        if len(requests) == 1:
            return [dict(self._model.run(requests[0], **options))]
        counts = [next(iter(arrays.values())).shape[0] for arrays in requests]
        lengths = [self._length_of(arrays) for arrays in requests]
        feeds = {t.name: self._join([arrays[t.name] for arrays in requests], t, max(lengths)) for t in self._model.inputs}
        outputs = self._model.run(feeds, **options)
        answers: List[Dict[str, Any]] = []
        begin = 0
        for count, length in zip(counts, lengths):
            answers.append({t.name: self._part(outputs[t.name], t, begin, count, length) for t in self._model.outputs})
            begin += count
        return answers

    def _length_of(self, arrays: Arrays) -> int:
        for tensor in self._model.inputs:
            if self._length and self._length in tensor.shape:
                return int(arrays[tensor.name].shape[tensor.shape.index(self._length)])
        return 1

    def _join(self, parts: List["np.ndarray[Any, Any]"], tensor: Any, length: int) -> "np.ndarray[Any, Any]":
        if tensor.name not in self._padding:
            return np.concatenate(parts)
        axis = tensor.shape.index(self._length)
        shape: Tuple[int, ...] = tuple(length if i == axis else size for i, size in enumerate(parts[0].shape))
        joined = np.full((sum(part.shape[0] for part in parts), *shape[1:]), self._padding[tensor.name], parts[0].dtype)
        begin = 0
        for part in parts:
            place = [slice(None)] * part.ndim
            place[0], place[axis] = slice(begin, begin + part.shape[0]), slice(0, part.shape[axis])
            joined[tuple(place)] = part
            begin += part.shape[0]
        return joined

    def _part(self, output: Any, tensor: Any, begin: int, count: int, length: int) -> Any:
        place: List[Any] = [slice(None)] * len(tensor.shape)
        place[0] = slice(begin, begin + count)
        for axis, size in enumerate(tensor.shape):
            if self._length and size == self._length:
                place[axis] = slice(0, length)
        return np.asarray(output)[tuple(place)].copy()


def tokens_of(arrays: Arrays) -> int:
    """A request's size where nothing says more: the largest input's elements per row."""
    return max((math.prod(a.shape[1:]) for a in arrays.values() if a.dtype.kind in "iu"), default=1)
