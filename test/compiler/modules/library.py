"""A model library called through libattnrt's C API, with NumPy arrays in and out."""
import ctypes as c

import numpy as np


class DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("ndim", c.c_int32),
                ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class Managed(c.Structure):
    pass


Managed._fields_ = [("tensor", DLTensor), ("context", c.c_void_p), ("deleter", c.CFUNCTYPE(None, c.POINTER(Managed)))]


class Output(c.Structure):
    _fields_ = [("buffer", c.POINTER(DLTensor)), ("capacity", c.c_uint64), ("tensor", c.POINTER(Managed))]


class RunOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("entry", c.c_char_p), ("cancel", c.c_void_p), ("timeout_ns", c.c_int64),
                ("state", c.c_void_p)]


class SessionOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("threads", c.c_int32), ("num_cpus", c.c_int32), ("cpus", c.c_void_p)]


CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
KINDS = {code: kind for kind, code in CODES.items()}


class RunError(Exception):
    pass


class Runtime:
    def __init__(self, path):
        self.lib = c.CDLL(path)
        self.lib.attnrt_last_error.restype = c.c_char_p

    def check(self, status):
        if status:
            raise RunError(self.lib.attnrt_last_error().decode())

    def load(self, path, threads=2):
        return Library(self, path, threads)


class Library:
    def __init__(self, runtime, path, threads):
        self.runtime, self.model, self.session = runtime, c.c_void_p(), c.c_void_p()
        runtime.check(runtime.lib.attnrt_model_load(path.encode(), None, c.byref(self.model)))
        options = SessionOptions(c.sizeof(SessionOptions), threads, 0, None)
        runtime.check(runtime.lib.attnrt_session_create(self.model, c.byref(options), c.byref(self.session)))

    def close(self):
        self.runtime.lib.attnrt_session_destroy(self.session)
        self.runtime.lib.attnrt_model_release(self.model)

    def state(self, entry=None):
        made = c.c_void_p()
        self.runtime.check(self.runtime.lib.attnrt_state_create(self.session, entry and entry.encode(), c.byref(made)))
        return made

    def run(self, inputs, num_outputs, entry=None, state=None):
        tensors, alive = [], []
        for x in inputs:
            x = np.ascontiguousarray(x)
            shape = (c.c_int64 * max(x.ndim, 1))(*x.shape)
            alive.append((x, shape))
            tensors.append(DLTensor(x.ctypes.data, 1, 0, x.ndim, CODES[x.dtype.kind], x.itemsize * 8, 1, shape, None, 0))
        pointers = (c.POINTER(DLTensor) * max(len(tensors), 1))(*[c.pointer(t) for t in tensors])
        outputs = (Output * num_outputs)()
        options = RunOptions(c.sizeof(RunOptions), entry and entry.encode(), None, 0, state)
        self.runtime.check(self.runtime.lib.attnrt_session_run(
            self.session, c.byref(options), pointers, len(tensors), outputs, num_outputs))
        results = []
        for output in outputs:
            t = output.tensor.contents.tensor
            shape = [t.shape[i] for i in range(t.ndim)]
            dtype = np.dtype(bool) if t.code == 6 else np.dtype(f"{KINDS[t.code]}{t.bits // 8}")
            size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            data = c.string_at(t.data + t.byte_offset, size) if size else b""
            results.append(np.frombuffer(data, dtype).reshape(shape))
            output.tensor.contents.deleter(output.tensor)
        return results
