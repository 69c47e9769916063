#!/usr/bin/env python3
"""Searches compiled for CUDA go on without the host, on the stand-in for libcuda.

    check_searches.py [--tools=build/bin] [--short] [NAME...]

Each search chooses what the library for the CPU chooses: as a WHILE node of a graph, and step by step where the driver has
no such nodes or refuses their module. As a node the host waits once more when the steps have doubled, no more often;
otherwise at least once a step. Rows that end early, states that grow, steps that append several positions, scores that
are no numbers in a later step.
"""
import pathlib
import re
import sys
import tempfile

import numpy as np
import onnx
import onnx.parser

import device_runs

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test/e2e/search"))
import check_caches  # noqa: E402
import check_rows  # noqa: E402
import check_search  # noqa: E402

SETTINGS = {"node": "", "seed": "seed=7", "old": "version=12030", "module": "setter=1"}
BATCH = 2

# Scores with a NaN in row `when[0]` from the step on in which the state has counted to `when[1]`.
LATE = """<ir_version: 8, opset_import: ["": 17]>
agraph (int64[b] token, float[b,1] count, float[b,40] given, float[b,1] end) => (float[b,40] logits, float[b,1] next_count) {
  one = Constant<value = float {1}>()
  number = Cast<to = 1>(token)
  axis = Constant<value = int64[1] {1}>()
  column = Unsqueeze(number, axis)
  part = Constant<value = float {0.7}>()
  wave = Mul(column, part)
  turned = Add(given, wave)
  scores = Sin(turned)
  next_count = Add(count, one)
  left = Sub(end, count)
  root = Sqrt(left)
  none = Mul(root, one)
  zero = Sub(none, none)
  logits = Add(scores, zero)
}"""


def zoo(case, flags, lengths):
    """A step of test/e2e/models, with inputs as check_search.py makes them."""
    spec = check_search.CASES[case][0]
    path = ROOT / "test/e2e/models" / spec["model"] / "model.onnx"
    given = check_search.make_inputs(spec, onnx.load(path), BATCH, np.random.default_rng(3))
    given.pop(spec.get("token", "token"), None)
    extra = [f"--alignment={spec['attention']}"] if spec["attention"] else []
    return lambda folder: (path, given, flags + extra + ["--bos=1"], lengths)


def caches(layout, flags, lengths):
    """The step with caches of check_caches.py."""

    def make(folder):
        step = check_caches.Step(**check_caches.LAYOUTS[layout])
        onnx.save(step.model(False), folder / "step.onnx")
        rng = np.random.default_rng(4)
        names = ["past_0"] if "2" in step.dims else ["past_0", "past_1"]
        element = onnx.helper.tensor_dtype_to_np_dtype(step.type)
        given = {n: rng.normal(size=step.shape(3, BATCH)).astype(element) for n in names}
        if step.each == 0:
            given["more"] = rng.normal(size=(BATCH, 2, check_caches.D)).astype(np.float32)
        return folder / "step.onnx", given, flags + ["--bos=1"], lengths

    return make


def wide(flags):
    """More scores than a block has threads; the same in each step, so that what is drawn alone differs."""

    def make(folder):
        onnx.save(onnx.parser.parse_model(check_rows.STEP), folder / "step.onnx")
        given = np.random.default_rng(6).normal(size=(BATCH, check_rows.VOCABULARY)).astype(np.float32)
        return folder / "step.onnx", {"given": given}, flags + ["--bos=1"], (40,)

    return make


def late(flags):
    def make(folder):
        onnx.save(onnx.parser.parse_model(LATE), folder / "step.onnx")
        rng = np.random.default_rng(5)
        given = {"count": np.zeros((BATCH, 1), np.float32), "given": rng.normal(size=(BATCH, 40)).astype(np.float32),
                 "end": np.array([[1000], [9.5]], np.float32)}
        return folder / "step.onnx", given, flags + ["--bos=1"], (5, 12, 30)

    return make


CASES = {
    "greedy": zoo("greedy", ["--generate=greedy", "--eos=5"], (1, 3, 9, 40)),
    "greedy-bahdanau": zoo("greedy-bahdanau", ["--generate=greedy", "--min-length=3", "--eos=7,9"], (2, 18)),
    "beam": zoo("beam", ["--generate=beam:3", "--n-best=3", "--length-penalty=gnmt:0.6"], (1, 4, 19)),
    "beam-early": zoo("beam", ["--generate=beam:3", "--early-stop", "--eos=3,8,11,12"], (4, 25)),
    "beam-coverage": zoo("beam", ["--generate=beam:2", "--coverage-penalty=0.4", "--ended=shrink", "--eos=4"], (6,)),
    "sample": zoo("greedy", ["--generate=sample", "--top-k=9", "--top-p=0.9", "--sample-seed=4", "--eos=5"], (3, 17)),
    "sample-wide": wide(["--generate=sample", "--top-k=200", "--top-p=0.95", "--temperature=1.3", "--sample-seed=11"]),
    "sample-all": wide(["--generate=sample"]),
    "greedy-gpt2": zoo("greedy-gpt2", ["--generate=greedy"], (2, 22)),
    "greedy-gpt2-int8": zoo("greedy-gpt2", ["--generate=greedy", "--cache=int8"], (2, 22)),
    "beam-gpt2-int8": zoo("greedy-gpt2", ["--generate=beam:3", "--n-best=2", "--cache=int8"], (3, 14)),
    "beam-gpt2": zoo("greedy-gpt2", ["--generate=beam:3", "--n-best=2"], (3, 14)),
    "rows-first": caches("rows-first", ["--generate=beam:3"], (5, 40)),
    "heads": caches("heads", ["--generate=greedy"], (36,)),
    "pairs": caches("pairs", ["--generate=beam:2"], (20,)),
    "time-major": caches("time-major", ["--generate=beam:4"], (20,)),
    "two-a-step": caches("two-a-step", ["--generate=beam:3"], (20,)),
    "late": late(["--generate=greedy"]),
    "late-beam": late(["--generate=beam:3"]),
}
SHORT = ("greedy", "beam-early", "sample-wide", "greedy-gpt2", "beam-gpt2-int8", "two-a-step", "late-beam")


class Search:
    """The libraries cpu.so and cuda.so of a folder on one set of inputs."""

    def __init__(self, folder, tools, given, flags):
        self.folder, self.tools = folder, tools
        self.outputs = ["tokens", "lengths", "scores"] + (["alignment"] if any("--alignment" in f for f in flags) else [])
        self.inputs = []
        for key, value in given.items():
            np.save(folder / f"{key}.npy", value)
            self.inputs.append(f"--input={key}=@{folder / key}.npy")

    def run(self, target, length, setting=""):
        files = {each: self.folder / f"{each}.out.npy" for each in self.outputs}
        status, output = device_runs.run([self.tools / "attn-run", self.folder / f"{target}.so", "--entry=generate",
                                          f"--input=max_length=i64={length}", *self.inputs,
                                          *(f"--output={each}=@{path}" for each, path in files.items())],
                                         ATTN_FAKE_CUDA=setting + ",count=1")
        return status, output, {} if status else {each: np.load(path) for each, path in files.items()}


def main():
    args, checks = device_runs.arguments(__doc__, "some of the searches, in three of four settings"), device_runs.Checks()
    expect = checks.expect
    for name in args.names or (SHORT if args.short else CASES):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            step, given, flags, lengths = CASES[name](folder)
            command = [args.tools / "attnc", f"step={step}", "--max-length=input", *flags]
            for target in ("cpu", "cuda"):
                status, output = device_runs.run(command + [f"--target={target}", "-o", folder / f"{target}.so"])
                expect(not status, name, output)
            if status:
                continue
            search = Search(folder, args.tools, given, flags)
            for length in lengths:
                failed, message, want = search.run("cpu", length)
                for label, setting in SETTINGS.items():
                    # In which order blocks come, and why there is no node, is the same at each length.
                    if label == "seed" and (args.short or length != lengths[-1]) or label in ("old", "module") and length != lengths[0]:
                        continue
                    checks.runs += 1
                    status, output, got = search.run("cuda", length, setting)
                    what = f"{name}, {length} steps, {label}:"
                    if failed:
                        text = re.search(r"search: .*", message)
                        expect(status == failed and text and text[0] in output, what, output, "expected", message)
                        continue
                    counted = device_runs.waits_and_graphs(output)
                    if status or not counted:
                        expect(False, what, output)
                        continue
                    for each in search.outputs:
                        same = got[each].shape == want[each].shape and np.allclose(got[each], want[each], rtol=1e-4, atol=1e-5)
                        expect(same, what, each, got[each], "expected", want[each])
                    waits, graphs = counted
                    steps = int(want["lengths"].max()) if "beam" not in flags[0] else 1
                    if label in ("node", "seed"):
                        most = 8 + max(0, int(np.ceil(np.log2(length / 16))))
                        expect(waits <= most, what, f"the host waited {waits} times")
                        expect(graphs > 0, what, "no graph")
                    else:
                        expect(waits >= steps, what, f"the host waited {waits} times for {steps} steps")
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
