"""Compiles a module on tensors with attn-opt and clang and calls @main on NumPy arrays."""
import ctypes
import os
import subprocess
import tempfile

import numpy as np

LOWER = ("one-shot-bufferize{bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map "
         "unknown-type-conversion=identity-layout-map},canonicalize,cse,convert-linalg-to-loops,"
         "func.func(attn-expand-reshapes),expand-strided-metadata,lower-affine,convert-scf-to-cf,convert-math-to-llvm,convert-math-to-libm,"
         "func.func(arith-expand{include-bf16=true}),convert-to-llvm,reconcile-unrealized-casts")
BUILD = os.environ.get("CC", "clang")


def run(*command, text):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[:4000]}\n{text[:6000]}")
    return done.stdout


def memref(array):
    class Descriptor(ctypes.Structure):
        _fields_ = [("allocated", ctypes.c_void_p), ("aligned", ctypes.c_void_p), ("offset", ctypes.c_int64),
                    ("sizes", ctypes.c_int64 * array.ndim), ("strides", ctypes.c_int64 * array.ndim)]
    strides = [s // array.itemsize for s in array.strides]
    return Descriptor(array.ctypes.data, array.ctypes.data, 0, (ctypes.c_int64 * array.ndim)(*array.shape),
                      (ctypes.c_int64 * array.ndim)(*strides))


def call(text, passes, inputs, result_rank, dtype=np.float32):
    """The tensor that @main returns; `passes` run before the lowering to LLVM."""
    lowered = run("attn-opt", "-", f"--pass-pipeline=builtin.module({passes},canonicalize,cse,func.func(llvm-request-c-wrappers),{LOWER})",
                  text=text)
    ir = run("mlir-translate", "--mlir-to-llvmir", text=lowered)
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "m.so")
        run(BUILD, "-O1", "-w", "-shared", "-fPIC", "-x", "ir", "-", "-o", library, "-lm", text=ir)
        module = ctypes.CDLL(library)
        arrays = [np.ascontiguousarray(x) for x in inputs]
        result = memref(np.zeros([1] * result_rank, dtype))
        module._mlir_ciface_main(ctypes.byref(result), *[ctypes.byref(memref(a)) for a in arrays])
        count = int(np.prod(list(result.sizes)))
        data = (ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(result.aligned)
        return np.frombuffer(bytes(data), dtype).reshape(list(result.sizes))
