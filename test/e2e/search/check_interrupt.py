#!/usr/bin/env python3
"""A search that is running ends when it is cancelled or late, soon and with a message, and the session serves again.

check_interrupt.py LIBATTNRT LIBRARY: LIBRARY has the entry generate around luong_dot_step_ts17, with max_length an input.
"""
import ctypes as c
import sys
import threading
import time

import numpy as np

CANCELLED, LATE, LONG = 7, 8, 10_000_000


class Type(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device", c.c_int32 * 2), ("ndim", c.c_int32), ("dtype", Type),
                ("shape", c.POINTER(c.c_int64)), ("strides", c.c_void_p), ("byte_offset", c.c_uint64)]


class Output(c.Structure):
    _fields_ = [("buffer", c.c_void_p), ("capacity", c.c_uint64), ("tensor", c.c_void_p)]


class Options(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("entry", c.c_char_p), ("cancel", c.c_void_p), ("timeout_ns", c.c_int64),
                ("state", c.c_void_p), ("stream", c.c_void_p), ("output_device", c.c_int32)]


def tensor(value):
    code = 2 if value.dtype.kind == "f" else 0
    return Tensor(value.ctypes.data, (1, 0), value.ndim, Type(code, value.itemsize * 8, 1), (c.c_int64 * max(value.ndim, 1))(*value.shape), None, 0)


def main(runtime, library):
    rt = c.CDLL(runtime)
    rt.attnrt_last_error.restype = c.c_char_p
    model, session, cancel = c.c_void_p(), c.c_void_p(), c.c_void_p()
    assert rt.attnrt_model_load(library.encode(), None, c.byref(model)) == 0
    assert rt.attnrt_session_create(model, None, c.byref(session)) == 0
    assert rt.attnrt_cancel_create(c.byref(cancel)) == 0
    values = [np.zeros((2, 24), np.float32)] * 5 + [np.ones((2, 7, 24), np.float32), np.ones((2, 7), np.int64)]

    def run(length, flag=None, timeout=0):
        given = [tensor(np.ascontiguousarray(v)) for v in values + [np.array(length)]]
        inputs = (c.POINTER(Tensor) * len(given))(*map(c.pointer, given))
        options = Options(c.sizeof(Options), b"generate", flag, timeout, None, None, 0)
        start = time.monotonic()
        status = rt.attnrt_session_run(session, c.byref(options), inputs, len(given), (Output * 3)(), 3)
        return status, time.monotonic() - start, rt.attnrt_last_error().decode()

    assert run(5)[0] == 0
    threading.Timer(0.3, lambda: rt.attnrt_cancel_request(cancel)).start()
    status, seconds, message = run(LONG, flag=cancel)
    assert status == CANCELLED and 0.2 < seconds < 20, (status, seconds, message)
    print(f"cancelled: {message}")
    status, seconds, message = run(LONG, timeout=300_000_000)
    assert status == LATE and 0.2 < seconds < 20, (status, seconds, message)
    print(f"late: {message}")
    assert run(5)[0] == 0
    print("serves again")


if __name__ == "__main__":
    main(*sys.argv[1:])
