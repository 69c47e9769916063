#!/usr/bin/env python3
"""How much kernels do between two looks whether their run is to end: kernel_polls.py ATTNC FOLDER

In the place of the runtime, this counts the looks of a task: there is one for each 2^23 multiplications at least, some
milliseconds. Told that the run is to end, the kernel comes back with no more than a look for each that was left.
"""
import ctypes as c
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto as T, helper as h

MOST = 1 << 23
TASK = c.CFUNCTYPE(None, c.c_void_p, c.c_int64, c.c_int64)
SIZES = c.POINTER(c.c_int64)
VOID = c.CFUNCTYPE(None)


class Buffer(c.Structure):
    _fields_ = [("data", c.c_void_p), ("shape", SIZES)]


class Run(c.Structure):
    """attnrt_run of abi.h."""
    _fields_ = [("struct_size", c.c_uint32), ("num_threads", c.c_int32), ("weights", c.c_void_p),
                ("error_message", c.c_int32), ("has_tiles", c.c_int32), ("error_index", c.c_int64),
                ("error_size", c.c_int64), ("workspace", c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_uint64)),
                ("output", c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_int32, c.c_int32, SIZES)),
                ("parallel_for", c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_void_p, c.c_void_p, c.c_int64)),
                ("fail", VOID), ("mark", VOID), ("cache", VOID), ("device", c.c_void_p), ("token", VOID)]


class Library(c.Structure):
    _fields_ = [("numbers", c.c_uint32 * 4), ("entries", c.POINTER(c.POINTER(c.c_void_p * 9)))]


class Runtime:
    """Runs an entry of the library at `path`; stops it at the first look of a task where `stops`."""

    def __init__(self, path, stops):
        self.looks, self.stops, self.inTask, self.kept = 0, stops, False, []
        file = np.fromfile(path, np.uint8)
        footer = file[-int(file[-16:-8].view(np.uint64)[0]):]
        offset, size = footer[24:40].view(np.uint64)
        library = c.CDLL(path)
        library.attnrt_library_query.restype = c.POINTER(Library)
        entry = library.attnrt_library_query(1 << 30).contents.entries[0].contents
        self.entry = c.CFUNCTYPE(c.c_int32, c.POINTER(Run), c.POINTER(Buffer))(entry[4])
        weights = self.memory(int(size))
        c.memmove(weights, file[int(offset):].ctypes.data, int(size))
        fields = dict(Run._fields_)
        self.run = Run(c.sizeof(Run), 1, weights, 0, 0, 0, 0, fields["workspace"](lambda _, size: self.memory(size)),
                       fields["output"](self.output), fields["parallel_for"](self.parallel_for))

    def memory(self, size):
        self.kept.append(np.empty(size + 4096, np.uint8))
        return (self.kept[-1].ctypes.data + 4095) // 4096 * 4096

    def output(self, _, index, rank, shape):
        return self.memory(8 * int(np.prod([shape[n] for n in range(rank)])))

    def parallel_for(self, _, task, argument, count):
        if count == 0:
            self.looks += 1
            return int(self.stops)
        TASK(task)(argument, 0, count)
        return int(self.stops and self.looks > 0)

    def __call__(self, inputs):
        shapes = [(c.c_int64 * x.ndim)(*x.shape) for x in inputs]
        buffers = (Buffer * len(inputs))(*(Buffer(x.ctypes.data, shape) for x, shape in zip(inputs, shapes)))
        return self.entry(c.byref(self.run), buffers)


def attention(queries, keys, width):
    node = h.make_node("Attention", ["q", "k", "v"], ["y"])
    shapes = [[1, 1, queries, width], [1, 1, keys, width], [1, 1, keys, width]]
    return node, {}, shapes, 2 * queries * keys * width


def recurrent(op, gates, steps, batch, width, **more):
    shape = (2 if more else 1, gates * width, width)
    weights = {n: np.full(shape, 1 / 64, np.float32) for n in "wr"}
    node = h.make_node(op, ["q", "w", "r"], ["y"], hidden_size=width, **more)
    # Of the states alone: the inputs are a product in front.
    return node, weights, [[steps, batch, width]], steps * shape[0] * batch * gates * width * width


def product(sums):
    """Of inputs: the right one is packed into a panel of 16 columns at least."""
    return h.make_node("MatMul", ["q", "k"], ["y"]), {}, [[2, sums], [sums, 4]], sums * 16


def tiles(rows, sums):
    """Of inputs, on tiles of 16 columns."""
    return h.make_node("MatMul", ["q", "k"], ["y"]), {}, [[rows, sums], [sums, 16]], rows * sums * 16


def byte_tiles(rows, sums):
    nodes = [h.make_node("Cast", [n], [n + "8"], to=T.UINT8) for n in "qk"]
    nodes += [h.make_node("MatMulInteger", ["q8", "k8"], ["n"]), h.make_node("Cast", ["n"], ["y"], to=T.FLOAT)]
    return nodes, {}, [[rows, sums], [sums, 16]], rows * sums * 16


CASES = {
    "one query": attention(1, 1 << 18, 128),
    "queries": attention(40, 1 << 16, 128),
    "wide heads": attention(40, 1 << 14, 512),
    "LSTM": recurrent("LSTM", 4, 5000, 1, 64),
    "LSTM of a large state": recurrent("LSTM", 4, 200, 1, 256),
    "LSTM of two directions": recurrent("LSTM", 4, 2000, 3, 64, direction="bidirectional"),
    "GRU": recurrent("GRU", 3, 5000, 1, 64),
    "RNN": recurrent("RNN", 1, 20000, 1, 64),
    "packed panel": product(1 << 20),
    "long sums": tiles(80, 1 << 20),
    "long sums of bytes": byte_tiles(80, 1 << 20),
}


def main(attnc, folder, *flags):
    rng = np.random.default_rng(3)
    for number, (name, (node, weights, shapes, work)) in enumerate(CASES.items()):
        graph = h.make_graph(node if isinstance(node, list) else [node], "g", [h.make_tensor_value_info(n, T.FLOAT, s) for n, s in zip("qkv", shapes)],
                             [h.make_tensor_value_info("y", T.FLOAT, None)],
                             [onnx.numpy_helper.from_array(w, n) for n, w in weights.items()])
        path = f"{folder}/{number}.onnx"
        onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 23)], ir_version=10), path)
        subprocess.run([attnc, path, "-o", path + ".so", *flags], check=True)
        inputs = [rng.standard_normal(s).astype(np.float32) for s in shapes]
        whole, stopped = Runtime(path + ".so", False), Runtime(path + ".so", True)
        assert whole(inputs) == 0, name
        print(f"{name}: {work} multiplications, {whole.looks} looks", flush=True)
        assert work / max(whole.looks, 1) <= MOST, name
        assert stopped(inputs) != 0 and stopped.looks <= whole.looks + 2, (name, stopped.looks)


if __name__ == "__main__":
    main(*sys.argv[1:])
