"""ONNX's backend interface over compiled libraries.

    from onnx.backend.test import BackendTest
    from backend import AttncBackend
    globals().update(BackendTest(AttncBackend, __name__).test_cases)

Compiles and runs happen in a long-lived onnx-case-server; a model that makes
one crash is reported, and the next one gets a new server.
"""
import json
import os
import resource
import select
import shutil
import subprocess
import tempfile
import threading

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

HERE = os.path.dirname(os.path.abspath(__file__))
SERVER = os.environ.get("ATTNC_CASE_SERVER",
                        os.path.join(os.path.dirname(os.path.dirname(HERE)), "build/bin/onnx-case-server"))
# Exit codes of attnc and attn-run.
UNSUPPORTED, INVALID, INTERNAL = 2, 3, 4


class Refused(Exception):
    """A compile or run that ended with an exit code and a message."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code, self.message = code, message


def whole_of(names):
    """The output that has all tensors of a sequence, whose own outputs are called `names`."""
    return names[0].rpartition(".")[0]


class Server:
    """One case server and the folder where its files are."""

    def __init__(self, program=SERVER, timeout=60, memory=0, gpu=""):
        self.program, self.timeout, self.memory, self.gpu, self.process = program, timeout, memory, gpu, None
        self.folder = tempfile.mkdtemp(prefix="attnc-cases-")

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdin, self.process.stdout):
                stream.close()
        self.process = None

    def __del__(self):
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, request):
        if not self.process:
            self.process = subprocess.Popen([self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL, cwd=self.folder)
            if self.memory: # bytes of addresses
                resource.prlimit(self.process.pid, resource.RLIMIT_AS, (self.memory, self.memory))
        self.process.stdin.write((json.dumps(request) + "\n").encode())
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], self.timeout)
        if not ready:
            self.close()
            raise Refused(INTERNAL, f"no answer within {self.timeout:g} s")
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            self.close()
            raise Refused(INTERNAL, f"died with status {code}")
        return json.loads(line)

    def branches(self):
        """A byte for each branch of our passes: how often it was taken since the last call. None of them in a
        build without ATTNC_COVERAGE."""
        file = os.path.join(self.folder, "branches")
        answer = self.ask({"branches": file})
        if answer["code"]:
            raise Refused(answer["code"], answer["message"])
        return np.fromfile(file, np.uint8)

    def run(self, model, feeds, names, compiled=False, is_open=False, **more):
        """Compiles `model`, unless it is `compiled`, and runs it: the outputs called `names`, and what the server says. A
        list of names stands for a sequence, by its tensors or by one that has them all, and so does its value. A list
        among `feeds` is a sequence, of tensors of these shapes, or with `is_open` of these numbers of dimensions, where
        all have one shape; None is an optional without a value."""
        sequences = {name: value for name, value in feeds.items() if isinstance(value, list)}
        items = {f"{name}.{n}": each for name, value in sequences.items() for n, each in enumerate(value)}
        is_open = is_open and all(len({each.shape for each in value}) <= 1 for value in sequences.values())
        more["shapes"] = {name: [-1 if is_open else size for size in each.shape] for name, each in items.items()}
        more["absent"] = [name for name, value in feeds.items() if value is None]
        feeds = {name: value for name, value in feeds.items() if not isinstance(value, list)} | items
        flat = [each for name in names for each in (name + [whole_of(name)] if isinstance(name, list) else [name])]
        files, answer = self.run_bytes(None if compiled else model.SerializeToString(), feeds, flat, **more)
        declared = {o.name: o.type.tensor_type.elem_type for o in model.graph.output}
        values = {name: loaded(np.load(file), declared.get(name, 0)) for name, file in files if os.path.exists(file)}
        for _, file in files:
            if os.path.exists(file):
                os.remove(file)

        def value(name):
            if not isinstance(name, list):
                return values[name]
            whole = values.get(whole_of(name))
            return [values[each] for each in name] if whole is None else list(whole)

        return [value(name) for name in names], answer

    def run_bytes(self, model, feeds, names=(), **more):
        """Likewise for the bytes of a file, None for the library that the last request said to keep: [(name, file)] of
        the outputs. `more` goes into the request (CaseServer.cpp)."""
        request = {"library": os.path.join(self.folder, "model.so"), "inputs": [], "outputs": [], "gpu": self.gpu, **more}
        if model is not None:
            request["model"] = os.path.join(self.folder, "model.onnx")
            with open(request["model"], "wb") as file:
                file.write(model)
        for i, (name, value) in enumerate(feeds.items()):
            # Strings and narrow floats cannot be given: the compile must say so.
            if not isinstance(value, np.ndarray) or not (value.dtype.kind in "biuf" or value.dtype.name in STORED):
                continue
            file = os.path.join(self.folder, f"in{i}.npy")
            np.save(file, stored(value))
            request["inputs"].append(f"{name}=@{file}")
        request["outputs"] = [[name, os.path.join(self.folder, f"out{i}.npy")] for i, name in enumerate(names)]
        answer = self.ask(request)
        if answer["code"]:
            raise Refused(answer["code"], answer["message"])
        return request["outputs"], answer


# Types that NumPy's files do not know, and what they are stored as.
STORED = {"bfloat16": "V2", "float8_e4m3fn": "u1", "float8_e4m3fnuz": "u1", "float8_e5m2": "u1", "float8_e5m2fnuz": "u1",
          "float8_e8m0fnu": "u1", "float4_e2m1fn": "u1", "int4": "i1", "uint4": "u1", "int2": "i1", "uint2": "u1"}
PACKED = ("int4", "uint4", "int2", "uint2") # a byte each


def stored(value):
    name = value.dtype.name
    if name in PACKED:
        return value.astype(STORED[name]).view("u1")
    return value.view(STORED[name]) if name in STORED else value


def loaded(value, declared):
    dtype = onnx.helper.tensor_dtype_to_np_dtype(declared) if declared else value.dtype
    if dtype.name not in STORED:
        return value
    if dtype.name in PACKED:
        return value.view(STORED[dtype.name]).astype(dtype)
    return value.view(dtype)


class AttncRep(BackendRep):
    def __init__(self, model):
        self.model = model

    def run(self, inputs, **kwargs):
        known = {t.name for t in self.model.graph.initializer}
        names = [i.name for i in self.model.graph.input if i.name not in known or len(inputs) > 1]
        feeds = dict(zip(names, inputs))
        outputs, _ = AttncBackend.server().run(self.model, feeds, [o.name for o in self.model.graph.output])
        return tuple(outputs)


class AttncBackend(Backend):
    local = threading.local()

    @classmethod
    def server(cls):
        if not hasattr(cls.local, "server"):
            cls.local.server = Server()
        return cls.local.server

    @classmethod
    def prepare(cls, model, device="CPU", **kwargs):
        super().prepare(model, device, **kwargs)
        return AttncRep(model)

    @classmethod
    def supports_device(cls, device):
        return device == "CPU"
