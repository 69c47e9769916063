"""Runs a model library on tensors of PyTorch, by the C API of attnrt.h: no copy lies between the two sides."""
import ctypes

from on_card_compile import HERE

# DLPack's numbers (dlpack.h).
CPU, CUDA = 1, 2
TYPES = {"int64": (0, 64), "float32": (2, 32), "float64": (2, 64), "float16": (2, 16), "bfloat16": (4, 16)}


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Output(ctypes.Structure):
    _fields_ = [("buffer", ctypes.POINTER(DLTensor)), ("capacity", ctypes.c_uint64), ("tensor", ctypes.POINTER(DLManagedTensor))]


class RunOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("entry", ctypes.c_char_p), ("cancel", ctypes.c_void_p),
                ("timeout_ns", ctypes.c_int64), ("state", ctypes.c_void_p), ("stream", ctypes.c_void_p),
                ("output_device", ctypes.c_int32), ("on_mark", ctypes.c_void_p), ("mark_context", ctypes.c_void_p)]


class SessionOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("num_threads", ctypes.c_int32), ("num_cpus", ctypes.c_int32),
                ("cpus", ctypes.c_void_p), ("own_products", ctypes.c_int32)]


class TensorInfo(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype_name", ctypes.c_char_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
                ("dims", ctypes.c_void_p)]


class EntryInfo(ctypes.Structure):
    """Its first fields."""
    _fields_ = [("name", ctypes.c_char_p), ("num_inputs", ctypes.c_int32), ("num_outputs", ctypes.c_int32),
                ("inputs", ctypes.POINTER(TensorInfo)), ("outputs", ctypes.POINTER(TensorInfo))]


def load_runtime():
    runtime = ctypes.CDLL(str(HERE / "lib/libattnrt.so.0"))
    runtime.attnrt_last_error.restype = ctypes.c_char_p
    return runtime


def described(tensor):
    """A DLTensor that views a dense tensor; the tensor must outlive it."""
    code, bits = TYPES[str(tensor.dtype).removeprefix("torch.")]
    shape = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
    device = CUDA if tensor.is_cuda else CPU
    return DLTensor(tensor.data_ptr(), device, tensor.get_device() if tensor.is_cuda else 0, tensor.dim(), code, bits, 1,
                    ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)), None, 0)


class Library:
    """An entry with its inputs (tensors by name) bound. Outputs are allocated once, after the first run has told their shapes."""

    runtime = None

    def __init__(self, path, inputs, torch, entry=None, stream=None, own=False):
        Library.runtime = Library.runtime or load_runtime()
        self.torch, self.entry, self.inputs, self.outputs = torch, entry.encode() if entry else None, inputs, {}
        self.model, self.session, info = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.POINTER(EntryInfo)()
        self.must("attnrt_model_load", str(path).encode(), None, ctypes.byref(self.model))
        options = SessionOptions(ctypes.sizeof(SessionOptions), own_products=own)
        self.must("attnrt_session_create", self.model, ctypes.byref(options), ctypes.byref(self.session))
        self.must("attnrt_model_find_entry", self.model, self.entry, ctypes.byref(info))
        names = lambda infos, count: [infos[n].name.decode() for n in range(count)]
        self.input_names = names(info.contents.inputs, info.contents.num_inputs)
        self.output_names = names(info.contents.outputs, info.contents.num_outputs)
        self.device = next(iter(inputs.values())).device
        self.options = RunOptions(ctypes.sizeof(RunOptions), self.entry, stream=stream,
                                  output_device=CUDA if self.device.type == "cuda" else CPU)
        views = [described(inputs[name]) for name in self.input_names]
        self.views = (ctypes.POINTER(DLTensor) * len(views))(*map(ctypes.pointer, views))
        self.results = (Output * len(self.output_names))()
        self.bind_outputs()

    def must(self, function, *arguments):
        if getattr(self.runtime, function)(*arguments):
            raise RuntimeError(f"{function}: {self.runtime.attnrt_last_error().decode(errors='replace')}")

    def bind_outputs(self):
        self.run()
        types = {pair: name for name, pair in TYPES.items()}
        for name, result in zip(self.output_names, self.results):
            made = result.tensor.contents.tensor
            kind = types[made.code, made.bits]
            self.outputs[name] = self.torch.empty([made.shape[d] for d in range(made.ndim)], dtype=getattr(self.torch, kind),
                                                  device=self.device)
            ctypes.CFUNCTYPE(None, ctypes.POINTER(DLManagedTensor))(result.tensor.contents.deleter)(result.tensor)
        for name, result in zip(self.output_names, self.results):
            result.tensor = None
            result.buffer = ctypes.pointer(described(self.outputs[name]))

    def run(self):
        """Returns when the work is done. Safe on any one thread at a time; Python's lock is free meanwhile."""
        self.must("attnrt_session_run", self.session, ctypes.byref(self.options), self.views, len(self.views), self.results,
                  len(self.results))

    def close(self):
        self.runtime.attnrt_session_destroy(self.session)
        self.runtime.attnrt_model_release(self.model)
