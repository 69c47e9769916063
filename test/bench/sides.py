"""attnc and its peers, one class each. A peer runs in a process of its own, so that its memory is its own:

    sides.py SIDE FOLDER THREADS [CASE]   says what it loaded, then answers each number of seconds with times

FOLDER holds model.onnx (operator.onnx: the same as one Attention operator) and in_N_NAME.npy, the sets of inputs.
"""
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))


class NotAvailable(Exception):
    pass


def resident(key):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith(key))


def load_feeds(folder):
    sets = []
    for path in sorted(folder.glob("in_*.npy")):
        number, name = path.stem[3:].split("_", 1)
        while len(sets) <= int(number):
            sets.append({})
        sets[int(number)][name] = np.load(path)
    return sets


class Attnc:
    """The library, timed by attn-bench."""

    model, run_flags = "model.onnx", []

    def __init__(self, tools, folder, threads, rotate, name="attnc", options=()):
        self.tools, self.folder, self.name = tools, folder, name
        self.library = folder / f"{name}.so"
        self.flags = [f"--threads={threads}", *self.run_flags] + (["--entry=generate"] if any(o.startswith("--generate") for o in options) else []) + ([f"--rotate={rotate}"] if rotate > 1 else [])
        start = time.perf_counter()
        subprocess.run([tools / "attnc", folder / self.model, "-o", self.library, *options, f"--fusion-report={folder / 'fusion.json'}"], check=True)
        self.facts = {"load_seconds": time.perf_counter() - start}
        self.inputs = [f"--input={p.stem[5:]}=@{p}" for p in sorted(folder.glob("in_0_*.npy"))]
        self.facts["fused"] = sum(v["fused"] for v in json.loads((folder / "fusion.json").read_text()))

    def outputs(self, names):
        subprocess.run([self.tools / "attn-run", self.library, *(f for f in self.flags if not f.startswith("--rotate")), *self.inputs,
                        *(f"--output={n}=@{self.folder / f'{self.name}_{i}'}.npy" for i, n in enumerate(names))], check=True)
        return [np.load(self.folder / f"{self.name}_{i}.npy") for i in range(len(names))]

    def times(self, seconds, inputs=None):
        done = subprocess.run([self.tools / "attn-bench", self.library, *self.flags, *(inputs or self.inputs),
                               f"--min-time={seconds}", "--json"], check=True, capture_output=True, text=True)
        result = json.loads(done.stdout)
        self.facts["peak_mb"] = max(self.facts.get("peak_mb", 0), result["peak_rss_mb"])
        return result["times_ms"]

    def close(self):
        pass


class AttncF32(Attnc):
    """The f32 model that a stored one was made of."""

    model = "f32.onnx"


class AttncState(Attnc):
    """A library that owns a decoder's caches: a run appends to them, the next one forgets what was appended."""

    model, run_flags = "open.onnx", ["--own-state"]


class Peer:
    """A process that runs one of the classes below."""

    def __init__(self, name, folder, threads, case):
        self.name, self.folder = name, folder
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OMP_WAIT_POLICY="PASSIVE", KMP_BLOCKTIME="0")
        self.log = open(folder / f"{name}.log", "w")
        self.process = subprocess.Popen([sys.executable, "-W", "ignore", __file__, name, str(folder), str(threads), case],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment)
        self.facts = self.answer()
        if "skip" in self.facts:
            raise NotAvailable(self.facts["skip"])

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise NotAvailable(f"it died, see {self.folder / self.name}.log")
        return json.loads(line)

    def outputs(self, names):
        return [np.load(self.folder / f"{self.name}_{i}.npy") for i in range(len(names))]

    def times(self, seconds):
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        answer = self.answer()
        self.facts["peak_mb"] = answer["peak_mb"]
        return answer["times"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.log.close()


class OnnxRuntime:
    model = "model.onnx"

    def __init__(self, folder, threads, case):
        try:
            import onnxruntime as ort
        except ImportError as error:
            raise NotAvailable("not installed") from error
        if not (folder / self.model).exists():
            raise NotAvailable("no operator for this case")
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        # Its workers would spin into the other sides' turns.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.session = ort.InferenceSession(str(folder / self.model), options, providers=["CPUExecutionProvider"])

    def call(self, feeds):
        return self.session.run(None, feeds)


class OnnxRuntimeBeam(OnnxRuntime):
    def call(self, feeds):
        import sequence
        return sequence.search_in_python(self.session, feeds)


class OnnxRuntimeOperator(OnnxRuntime):
    model = "operator.onnx"


class OpenVino:
    precision = "f32"

    def __init__(self, folder, threads, case):
        try:
            import openvino as ov
        except ImportError as error:
            raise NotAvailable("not installed") from error
        graph = ov.Core().read_model(str(folder / "model.onnx"))
        graph.reshape({n: ov.PartialShape(list(v.shape)) for n, v in load_feeds(folder)[0].items()})
        self.names = [o.any_name for o in graph.outputs]
        compiled = ov.Core().compile_model(graph, "CPU", {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1,
                                                          "INFERENCE_PRECISION_HINT": self.precision})
        self.request = compiled.create_infer_request()

    def call(self, feeds):
        result = self.request.infer(feeds, share_inputs=True, share_outputs=True)
        return [result[n] for n in self.names]


class OpenVinoBf16(OpenVino):
    precision = "bf16"


class Torch:
    mode = "eager"

    def __init__(self, folder, threads, case):
        try:
            import torch
        except ImportError as error:
            raise NotAvailable("not installed") from error
        import attention
        import layers
        if case not in attention.CASES and case not in layers.NAMES:
            raise NotAvailable("only for the attention cases and the layers")
        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        if case in layers.NAMES:
            self.names, self.function = layers.torch_function(case, self.mode)
        else:
            self.names, self.function = "qkv", attention.torch_function(attention.CASES[case], self.mode)
        if self.function is None:
            raise NotAvailable("no such form of this case")
        self.torch = torch

    def call(self, feeds):
        return [self.function(*(self.torch.from_numpy(feeds[n]) for n in self.names))]


class TorchCompiled(Torch):
    mode = "compiled"


class TorchFlex(Torch):
    mode = "flex"


class LlamaCpp:
    """llama.cpp on model.gguf, by llama-cpp-python built from source for this machine."""

    def __init__(self, folder, threads, case):
        if not (folder / "model.gguf").exists():
            raise NotAvailable("no GGUF file of this case")
        try:
            import llamacpp
            self.decoder = llamacpp.Decoder(folder, threads)
        except ImportError as error:
            raise NotAvailable("not installed") from error

    def call(self, feeds):
        return self.decoder.run(feeds)


PEERS = {"onnxruntime": OnnxRuntime, "onnxruntime-beam": OnnxRuntimeBeam, "onnxruntime-operator": OnnxRuntimeOperator, "openvino": OpenVino, "openvino-bf16": OpenVinoBf16, "torch": Torch,
         "torch-compiled": TorchCompiled, "torch-flex": TorchFlex, "llama-cpp": LlamaCpp}


def main(name, folder, threads, case):
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the libraries print

    def say(**facts):
        pipe.write(json.dumps(facts) + "\n")
        pipe.flush()

    folder = pathlib.Path(folder)
    sets = load_feeds(folder)
    try:
        start = time.perf_counter()
        side = PEERS[name](folder, int(threads), case)
        base = resident("VmRSS:")
        outputs = side.call(sets[0])
    except NotAvailable as error:
        return say(skip=str(error))
    except Exception as error:  # noqa: BLE001: whatever a peer fails with is its answer
        return say(skip=f"{type(error).__name__}: {str(error)[:200]}")
    load = time.perf_counter() - start
    for i, value in enumerate(outputs):
        np.save(folder / f"{name}_{i}.npy", np.asarray(value))
    say(load_seconds=load, base_mb=base, peak_mb=resident("VmHWM:"))
    for line in sys.stdin:
        times, end, runs = [], time.perf_counter() + float(line), 0
        while runs < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            side.call(sets[runs % len(sets)])
            times.append((time.perf_counter() - start) * 1e3)
            runs += 1
        say(times=times, peak_mb=resident("VmHWM:"))


if __name__ == "__main__":
    main(*sys.argv[1:])
