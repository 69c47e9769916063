"""Other engines behind attnc's replica: Settings(backend="peers:onnxruntime"). Each function makes a runner of a file."""
import os
import threading
import time
from typing import NamedTuple

import numpy as np

# As Ray tells a worker how many CPUs it has.
THREADS = int(os.environ.get("OMP_NUM_THREADS", "1"))


class Tensor(NamedTuple):
    name: str
    dtype: str
    shape: tuple


def _tensors(values):
    from onnx.helper import tensor_dtype_to_np_dtype

    def shape(value):
        return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param for d in value.type.tensor_type.shape.dim)

    return [Tensor(v.name, np.dtype(tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type)).name, shape(v)) for v in values]


class _Described:
    """Inputs and outputs as the file declares them."""

    def __init__(self, path):
        import onnx

        graph = onnx.load(path, load_external_data=False).graph
        weights = {tensor.name for tensor in graph.initializer}
        self.inputs = _tensors(value for value in graph.input if value.name not in weights)
        self.outputs = _tensors(graph.output)


class _OnnxRuntime(_Described):
    def __init__(self, path):
        import onnxruntime

        super().__init__(path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = THREADS
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(self, inputs, **options):
        return dict(zip([o.name for o in self.outputs], self._session.run(None, dict(inputs))))


class _OpenVino(_Described):
    def __init__(self, path):
        import openvino

        super().__init__(path)
        config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": THREADS, "INFERENCE_PRECISION_HINT": "f32"}
        self._request = openvino.compile_model(path, "CPU", config).create_infer_request()

    def run(self, inputs, **options):
        results = self._request.infer(dict(inputs))
        return {o.name: results[o.name] for o in self.outputs}


class _Fake:
    """y = x, and how many runs there were, after some time."""

    def __init__(self, seconds):
        self.inputs = [Tensor("x", "int64", ("batch", "n"))]
        self.outputs = [Tensor("y", "int64", ("batch", "n")), Tensor("runs", "int64", ("batch",))]
        self._seconds, self._runs, self._lock = seconds, 0, threading.Lock()

    def run(self, inputs, **options):
        with self._lock:
            self._runs += 1
        time.sleep(self._seconds)
        x = inputs["x"]
        return {"y": x, "runs": np.full(len(x), self._runs, np.int64)}


class _NoModel(_Described):
    """Answers at once: what the engine around a model costs."""

    def run(self, inputs, **options):
        rows, length = next(iter(inputs.values())).shape
        return {o.name: np.zeros((rows, length, 384)[:: 2 if len(o.shape) == 2 else 1], np.float32) for o in self.outputs}


class _Noting(_Fake):
    """Notes in the file of the model which requests it has run."""

    def __init__(self, path):
        super().__init__(0.005)
        self._path = path

    def run(self, inputs, **options):
        with open(self._path, "a") as notes:
            notes.write("".join(f"{number}\n" for number in inputs["x"][:, 0]))
        return super().run(inputs, **options)


def noting(path):
    return _Noting(path)


def onnxruntime(path):
    return _OnnxRuntime(path)


def openvino(path):
    return _OpenVino(path)


def nothing(path):
    return _NoModel(path)


def fast(path):
    return _Fake(0)


def slow(path):
    return _Fake(0.1)
