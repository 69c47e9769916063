"""Requests and answers: the Open Inference Protocol, version 2 (KServe's, Triton's), in JSON, and statuses of HTTP."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

import attnc_runtime as errors
import numpy as np

# https://github.com/kserve/open-inference-protocol, "Tensor Data Types".
_TYPES = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8",
    "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64",
}  # fmt: skip
_NAMES = {theirs: ours for ours, theirs in _TYPES.items()}


def describe(infos: Sequence[Any]) -> List[Dict[str, Any]]:
    """Tensors of a model's metadata; an open size is -1."""
    return [
        {
            "name": info.name,
            "datatype": _TYPES.get(info.dtype, info.dtype.upper()),
            "shape": [size if isinstance(size, int) else -1 for size in info.shape],
        }
        for info in infos
    ]


def _need(holds: bool, text: str) -> None:
    if not holds:
        raise errors.InvalidArgument(text)


def _array(tensor: Any, number: int) -> Tuple[str, np.ndarray[Any, Any]]:
    where = f"inputs[{number}]"
    _need(isinstance(tensor, dict), f"{where} is not an object")
    for key, kind in (("name", str), ("shape", list), ("datatype", str), ("data", list)):
        _need(isinstance(tensor.get(key), kind), f"{where}: '{key}' is missing or no {kind.__name__}")
    name, shape, datatype = tensor["name"], tensor["shape"], tensor["datatype"]
    _need(all(isinstance(size, int) and 0 <= size < 1 << 40 for size in shape), f"input '{name}': shape {shape}")
    if datatype == "BYTES":
        _need(all(isinstance(text, str) for text in tensor["data"]), f"input '{name}': data of BYTES are texts")
        texts = np.array([*tensor["data"], None], object)[:-1]
        _need(texts.size == int(np.prod(shape)), f"input '{name}': {texts.size} data for shape {shape}")
        return name, texts.reshape(shape)
    _need(datatype in _NAMES, f"input '{name}': datatype '{datatype}' is none of BYTES, {', '.join(_NAMES)}")
    try:
        raw = np.asarray(tensor["data"])
        _need(raw.dtype != object and raw.dtype.kind in "biuf", f"input '{name}': data are not numbers of one shape")
        dtype = np.dtype(_NAMES[datatype])
        if dtype.kind in "biu":
            _need(raw.dtype.kind in "biu" or raw.size == 0, f"input '{name}': {datatype} has data that are not whole numbers")
        array = raw.astype(dtype)
        exact = dtype.kind in "fb" or raw.size == 0 or bool(np.array_equal(array, raw))
    except errors.InvalidArgument:  # a ValueError as well
        raise
    except (ValueError, OverflowError, TypeError) as error:
        raise errors.InvalidArgument(f"input '{name}': {error}") from None
    _need(exact, f"input '{name}': data beyond the range of {datatype}")
    _need(array.size == int(np.prod(shape)), f"input '{name}': {array.size} data for shape {shape}")
    return name, array.reshape(shape)


def read_request(body: Any) -> Tuple[Dict[str, np.ndarray[Any, Any]], Dict[str, Any]]:
    """Arrays by name, and the request without its tensors. InvalidArgument says what is malformed."""
    _need(isinstance(body, dict), "a request is a JSON object")
    inputs = body.get("inputs")
    _need(isinstance(inputs, list), "'inputs' is missing or no list")
    arrays: Dict[str, np.ndarray[Any, Any]] = {}
    for number, tensor in enumerate(inputs):
        name, array = _array(tensor, number)
        _need(name not in arrays, f"input '{name}' is there twice")
        arrays[name] = array
    rest = {key: value for key, value in body.items() if key != "inputs"}
    _need(isinstance(rest.setdefault("parameters", {}), dict), "'parameters' is no object")
    wanted = rest.setdefault("outputs", [])
    _need(isinstance(wanted, list) and all(isinstance(o, dict) and isinstance(o.get("name"), str) for o in wanted),
          "'outputs' is no list of objects with a name")  # fmt: skip
    return arrays, rest


def timeout_of(parameters: Mapping[str, Any], fallback: float) -> float:
    """Seconds: the parameter ``timeout``, which Triton's clients give in microseconds, as its extension says."""
    value = parameters.get("timeout")
    if value is None:
        return fallback
    _need(isinstance(value, int) and not isinstance(value, bool) and value > 0, "parameter 'timeout' expects microseconds above 0")
    return float(min(value * 1e-6, 86400.0))


def write_answer(model: str, outputs: Mapping[str, Any], rest: Mapping[str, Any]) -> Dict[str, Any]:
    names = [wanted["name"] for wanted in rest.get("outputs", [])] or list(outputs)
    for name in names:
        _need(name in outputs, f"the model has no output '{name}', but {', '.join(outputs)}")
    answer: Dict[str, Any] = {"model_name": model, "outputs": []}
    if isinstance(rest.get("id"), str):
        answer["id"] = rest["id"]
    for name in names:
        array = np.asarray(outputs[name])
        if array.dtype.name not in _TYPES:  # bfloat16 and its like have no place in JSON
            array = array.astype(np.float32)
        data = np.where(np.isfinite(array), array, 0) if array.dtype.kind == "f" else array
        _need(data is array or bool(np.isfinite(array).all()), f"output '{name}' has values that JSON cannot hold: NaN or infinity")
        answer["outputs"].append(
            {"name": name, "datatype": _TYPES[array.dtype.name], "shape": list(array.shape), "data": array.ravel().tolist()}
        )
    return answer


_STATUSES: Sequence[Tuple[type, int]] = (
    (errors.NoSuchFile, 404), (errors.NotFound, 404), (errors.OutOfRange, 400), (errors.InvalidArgument, 400),
    (errors.Unsupported, 501), (errors.DeadlineExceeded, 504), (errors.Cancelled, 499), (errors.OutOfMemory, 507),
)  # fmt: skip


def status_of(error: BaseException) -> int:
    """The HTTP status of an error; 500 is a fault of the server."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
