"""Runs models by turns for long, and says whether memory stays flat: soak.py [RUNS]

Twenty models of test/e2e/models. Beside the runs, libraries are loaded anew, runs are cancelled or out of time, weights
are replaced by themselves, and a decoder goes through states. Every result has the bits of the model's first one, which
is near the float64 reference. From the half on, the process may grow by 1 MiB.
"""
import ctypes
import gc
import json
import os
import pathlib
import random
import sys
import tempfile

import numpy as np
import onnx

import attnc
import attnc_runtime

MODELS = pathlib.Path(__file__).parents[1] / "e2e/models"
COUNT, LIMIT = 20, 1 << 20


def resident():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


class Soaked:
    """A model with its inputs, and what it gives."""

    def __init__(self, folder, work):
        self.name, self.path = folder.name, str(work / f"{folder.name}.so")
        attnc.compile(folder / "model.onnx", self.path)
        self.inputs = dict(np.load(folder / "inputs_0.npz"))
        self.load()
        self.wanted = self.model.run(self.inputs)
        meta = json.loads((folder / "meta.json").read_text())
        for name, value in np.load(folder / "outputs_0.npz").items():
            np.testing.assert_allclose(self.wanted[name], value, meta["rtol"], meta["atol"], err_msg=self.name)
        stored = {x.name: onnx.numpy_helper.to_array(x) for x in onnx.load(folder / "model.onnx").graph.initializer}
        self.weights, self.replaced = {}, 0
        for weight in self.model.weights:
            if weight.name in stored:
                self.weights[weight.name] = stored[weight.name].copy()

    def load(self):
        self.model = attnc_runtime.Model(self.path, threads=2, sessions=1)

    def run(self):
        for name, value in self.model.run(self.inputs).items():
            assert np.array_equal(value, self.wanted[name], equal_nan=value.dtype.kind == "f"), f"{self.name}: {name}"

    def cancel(self):
        cancel = attnc_runtime.Cancel()
        cancel.request()
        try:
            self.model.run(self.inputs, cancel=cancel)
        except attnc_runtime.Cancelled:
            return
        raise AssertionError(f"{self.name}: was not cancelled")

    def run_out_of_time(self):
        try:
            self.model.run(self.inputs, timeout=1e-9)
        except attnc_runtime.DeadlineExceeded:
            return
        raise AssertionError(f"{self.name}: ended in a nanosecond")

    def replace(self):
        for name, value in self.weights.items():
            try:
                self.model.set_weight(name, np.zeros_like(value))
                self.model.set_weight(name, value)
                self.replaced += 1
            except attnc_runtime.Unsupported:  # folded with others
                pass


class Decoder:
    """States that grow, are copied and shortened."""

    def __init__(self, work):
        path = str(work / "decoder.so")
        attnc.compile(MODELS / "gpt2_decode_ts17/model.onnx", path, own_state=True)
        self.model, self.wanted = attnc_runtime.Model(path, threads=2, sessions=1), None

    def run(self):
        state, results = self.model.state(), []
        for n in range(1, 9):
            ids, mask = np.full((2, 1), n, np.int64), np.ones((2, n), np.int64)
            results.append(self.model.step(state, input_ids=ids, attention_mask=mask))
        copy = state.clone()
        copy.truncate(7)
        again = self.model.step(copy, input_ids=ids, attention_mask=mask)
        assert np.array_equal(again, results[-1]), "a copy, one row shorter, goes another way"
        self.wanted = self.wanted or results
        assert all(map(np.array_equal, results, self.wanted)), "the decoder's results differ"


def main(runs):
    draw = random.Random(24)
    folders = sorted(path.parent for path in MODELS.glob("*_ts1*/model.onnx"))
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        models, decoder = [Soaked(folder, work) for folder in draw.sample(folders, COUNT)], Decoder(work)
        middle = 0
        for n in range(runs):
            model = models[n % COUNT]
            model.run()
            chance = draw.randrange(100)
            if chance < 2:
                model.load()
            elif chance < 10:
                draw.choice((model.cancel, model.run_out_of_time, model.replace))()
            elif chance < 12:
                decoder.run()
            if n == runs // 2:
                middle = resident()
        grown = resident() - middle
    replaced = sum(model.replaced for model in models)
    assert replaced, "no weight was replaced"
    print(f"{runs} runs of {COUNT} models, {replaced} weights replaced, memory grew by {grown / 1024:.0f} KiB in the second half")
    sys.exit(grown > LIMIT)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20000)
