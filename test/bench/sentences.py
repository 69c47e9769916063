#!/usr/bin/env python3
"""SentenceTransformer with its encoder by torch, attnc, ONNX Runtime and OpenVINO, alternating: all-MiniLM-L6-v2 with its
real weights, sentences of mixed length, from text to embeddings. Tokenizer, pooling and the rest are the same code on
all sides; ONNX Runtime and OpenVINO run the file that the exporter of transformers writes, where torch's model was.

    PYTHONPATH=build/python sentences.py [--threads=2] [--rounds=9]

A ratio says how many times as long as attnc a side takes, by the clock and by the processor's time, in which a busy
machine counts less. Exit status 1 when embeddings differ by more than 1e-5.
"""
import argparse
import copy
import os
import pathlib
import statistics
import sys
import tempfile
import time

# Before torch is loaded: threads that wait take no time from the other sides.
os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "KMP_BLOCKTIME": "0", "TRANSFORMERS_VERBOSITY": "error"}

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

import attnc
from attnc.integrations.sentence_transformers import Encoder, _export

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/demo"))
WORDS = ("the rain fell all night and a river rose while people slept in their beds under old roofs so nobody saw how "
         "compilers translate programs into native instructions or why markets for fresh bread closed sharply").split()


def sentences(count):
    """Of 3 to 120 words; half of them have less than 14."""
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, int(n))) for n in np.clip(random.lognormal(2.6, 0.7, count), 3, 120)]


class OnnxRuntime(Encoder):
    def __init__(self, path, config, threads):
        import onnxruntime
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.config, self.device, self.dtype = config, torch.device("cpu"), torch.float32
        self.names = [value.name for value in self.session.get_inputs()]

    def forward(self, **given):
        (states,) = self.session.run(None, {name: given[name].numpy() for name in self.names})
        return {"last_hidden_state": torch.from_numpy(states)}


class OpenVino(OnnxRuntime):
    def __init__(self, path, config, threads):
        import openvino
        settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
        self.request = openvino.Core().compile_model(str(path), "CPU", settings).create_infer_request()
        self.config, self.device, self.dtype = config, torch.device("cpu"), torch.float32
        self.names = [port.get_any_name() for port in self.request.model_inputs]

    def forward(self, **given):
        results = self.request.infer({name: given[name].numpy() for name in self.names}, share_inputs=True)
        return {"last_hidden_state": torch.from_numpy(results[0].copy())}


def sides(folder, threads, scratch):
    slow = SentenceTransformer(str(folder), device="cpu")
    found = {"attnc": attnc.accelerate(slow, threads=threads), "torch": slow}
    features = slow.preprocess(["one", "two words"])
    inputs = {name: features[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    path = _export(slow[0].model, inputs, "last_hidden_state", scratch)
    for name, kind in (("ONNX Runtime", OnnxRuntime), ("OpenVINO", OpenVino)):
        try:
            encoder = kind(path, slow[0].config, threads)
        except ImportError as reason:
            print(f"{name} is left out: {reason}")
            continue
        found[name] = copy.copy(found["attnc"])
        first = copy.copy(found["attnc"][0])
        first.model = encoder
        found[name]._modules = {**found["attnc"]._modules, "0": first}
    return found


def measure(name, opened, batches, rounds):
    """``batches``: what encode() gets, one after the other."""
    clock, spent = ({side: [] for side in opened} for _ in range(2))
    for number in range(rounds + 1):
        for side, model in opened.items():
            start, processor = time.perf_counter(), time.process_time()
            for batch in batches:
                model.encode(batch, batch_size=32)
            if number:  # the first one warms up
                clock[side].append(time.perf_counter() - start)
                spent[side].append(time.process_time() - processor)
    print(name)
    for side in opened:
        ratios = [statistics.median(b / a for a, b in zip(times["attnc"], times[side])) for times in (clock, spent)]
        each = statistics.median(clock[side]) / len(batches) * 1e3
        print(f"  {side:14s}{each:9.2f} ms   {ratios[0]:5.2f} by the clock   {ratios[1]:5.2f} by processor time", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", type=pathlib.Path, help="a SentenceTransformer (default: all-MiniLM-L6-v2)")
    args = parser.parse_args()
    from demo import fetch_model
    folder = args.folder or fetch_model(ROOT / ".cache" / "minilm")
    torch.set_num_threads(args.threads)
    texts = sentences(256)
    with tempfile.TemporaryDirectory() as scratch:
        opened = sides(folder, args.threads, pathlib.Path(scratch))
        expected = opened["torch"].encode(texts)
        difference = max(float(np.abs(model.encode(texts) - expected).max()) for model in opened.values())
        print(f"{args.threads} threads, torch {torch.__version__}; largest difference from torch {difference:.1e}")
        measure("256 sentences of mixed length", opened, [texts], args.rounds)
        measure("8 sentences", opened, [texts[n : n + 8] for n in range(0, 64, 8)], args.rounds)
        measure("one sentence", opened, [[text] for text in texts[:32]], args.rounds)
    return difference > 1e-5


if __name__ == "__main__":
    sys.exit(main())
