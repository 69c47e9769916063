#!/usr/bin/env python3
"""Decodes with a cache that the library keeps: own_state.py MODEL.onnx MODEL.so LIBATTNRT

Each step must give what ONNX Runtime gives for it (whose caches are passed on by
hand) and, in the same bits, what the same entry gives without a state. The cache
outgrows its first room. own_state.py count IR: what the step's code (IR after
attn-finish-buffers) copies, allocates and asks for that has the size of a cache.
"""
import ctypes
import re
import sys

import numpy as np
import onnxruntime

CPU, FLOAT32, INT64 = 1, 0x220, 0x40


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Output(ctypes.Structure):
    _fields_ = [("buffer", ctypes.POINTER(DLTensor)), ("capacity", ctypes.c_uint64), ("tensor", ctypes.c_void_p)]


class RunOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("entry", ctypes.c_char_p), ("cancel", ctypes.c_void_p),
                ("timeout_ns", ctypes.c_int64), ("state", ctypes.c_void_p), ("stream", ctypes.c_void_p),
                ("output_device", ctypes.c_int32)]


class SessionOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("num_threads", ctypes.c_int32), ("num_cpus", ctypes.c_int32),
                ("cpus", ctypes.c_void_p)]


class Runtime:
    def __init__(self, library, model, threads=0):
        self.lib = ctypes.CDLL(library)
        self.lib.attnrt_last_error.restype = ctypes.c_char_p
        self.model, self.session = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("attnrt_model_load", model.encode(), None, ctypes.byref(self.model))
        options = SessionOptions(ctypes.sizeof(SessionOptions), threads, 0, None)
        self.call("attnrt_session_create", self.model, ctypes.byref(options), ctypes.byref(self.session))

    def call(self, function, *arguments):
        if getattr(self.lib, function)(*arguments):
            sys.exit(f"{function}: {self.lib.attnrt_last_error().decode()}")

    @staticmethod
    def view(array):
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        code = {"f": 2, "i": 0}[array.dtype.kind]
        return DLTensor(array.ctypes.data, CPU, 0, array.ndim, code, array.itemsize * 8, 1, shape, None, 0)

    def run(self, inputs, outputs, state=None):
        inputs = [self.view(np.ascontiguousarray(x)) for x in inputs]
        outputs = [self.view(x) for x in outputs]
        options = RunOptions(ctypes.sizeof(RunOptions), None, None, 0, state, None, 0)
        given = (ctypes.POINTER(DLTensor) * len(inputs))(*map(ctypes.pointer, inputs))
        made = (Output * len(outputs))(*[Output(ctypes.pointer(x), 0, None) for x in outputs])
        self.call("attnrt_session_run", self.session, ctypes.byref(options), given, len(inputs), made, len(outputs))


def main(model, library, runtime):
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    rt = Runtime(runtime, library)
    state = ctypes.c_void_p()
    rt.call("attnrt_state_create", rt.session, None, ctypes.byref(state))
    batch, steps, vocabulary, heads, width = 2, 30, 50, 4, 8
    caches = [x.name for x in reference.get_inputs()[2:]]
    past = [np.zeros((batch, heads, 0, width), np.float32) for _ in caches]
    plain = list(past)
    rng = np.random.default_rng(5)
    mask = np.ones((batch, steps), np.int64)
    mask[1, :3] = 0
    for n in range(1, steps + 1):
        ids = rng.integers(0, vocabulary, (batch, 1))
        seen = np.ascontiguousarray(mask[:, :n])
        want = reference.run(None, {"input_ids": ids, "attention_mask": seen, **dict(zip(caches, past))})
        past = want[1:]
        logits, alone = np.empty((batch, 1, vocabulary), np.float32), np.empty((batch, 1, vocabulary), np.float32)
        rt.run([ids, seen], [logits], state)
        present = [np.empty((batch, heads, n, width), np.float32) for _ in caches]
        rt.run([ids, seen, *plain], [alone, *present])
        plain = present
        visible = np.isfinite(want[0])
        np.testing.assert_allclose(logits[visible], want[0][visible], rtol=1e-3, atol=1e-4, err_msg=f"step {n}")
        assert np.array_equal(logits, alone, equal_nan=True), f"step {n}: not the bits of a run without a state"
    length = ctypes.c_int64()
    rt.call("attnrt_state_length", state, ctypes.byref(length))
    assert length.value == steps, length.value
    for name, cache in zip(caches, past):
        view = ctypes.POINTER(DLTensor)()
        rt.call("attnrt_state_get", state, name.encode(), ctypes.byref(view))
        shape, strides = view.contents.shape[:4], view.contents.strides[:4]
        flat = np.ctypeslib.as_array(ctypes.cast(view.contents.data, ctypes.POINTER(ctypes.c_float)),
                                     (strides[0] * shape[0],))
        kept = np.lib.stride_tricks.as_strided(flat, shape, [4 * s for s in strides])
        np.testing.assert_allclose(kept, cache, rtol=1e-3, atol=1e-4, err_msg=name)
    rt.lib.attnrt_state_destroy(state)
    print(f"{steps} steps agree")


def count(ir, cache=r"memref<\?x4x\?x8xf32"):
    text = open(ir).read()
    step = text[text.index("func.func @main"):]
    step = step[:step.index("\n  }\n")]
    print("caches:", len(re.findall(r"attn\.cache \d", step)))
    print("buffers of a cache:", len(re.findall(r"(?:memref\.alloc|attn\.output)\b.*" + cache, step)))
    print("copies of a cache:", len(re.findall(r"(?:linalg\.generic.*ins|linalg\.copy ins|memref\.copy )[^)]*" + cache, step)))


if __name__ == "__main__":
    count(sys.argv[2]) if sys.argv[1] == "count" else main(*sys.argv[1:])
