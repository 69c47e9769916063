#!/usr/bin/env python3
"""Loops whose condition is computed from data, compiled for CUDA and run on the stand-in for libcuda.

    check_loops.py [--tools=build/bin] [NAME...]

Each model runs on every one of its cases as a WHILE node of a graph, and step by step where the driver has no such
nodes, refuses one or its module, or the run has a deadline. Results equal ONNX Runtime's. The host waits for the device
as often for many steps as for few, but for buffers that grow: there once more when steps have doubled; without the node
once a step. Seeds of the interpreter's scheduler differ.
"""
import pathlib
import sys
import tempfile

import numpy as np
import onnx
import onnx.parser
import onnxruntime

import device_runs

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'

# Every model counts its steps in `steps`. (text, the cases' inputs, the most waits a run)
DRIVE = np.linspace(0.5, 1.5, 150, dtype=np.float32)
START = np.array([1, 2, 3, 4, 5], np.float32) / 8


def case(limit, most, start=START, go=True, **others):
    return dict(m=np.array(limit, np.int64), c=np.array(go), t=np.array(most, np.float32), x=start, **others)


CASES = [case(m, t) for m, t in
         ((0, 100), (1, 100), (2, 100), (7, 100), (7, 0.9), (90, 100), (90, 3), (2**40, 60), (15, 100), (16, 100),
          (17, 100), (32, 100), (33, 100), (5, 0))] + [case(9, 100, go=False), case(20, 100, np.ones(300, np.float32) / 4)]

MODELS = {
    # A state of one size: any number of steps at once.
    "state": ("""
agraph (int64 m, bool c, float t, float[n] x) => (float[n] y, int64 steps)
{
  zero = Constant<value = int64 {0}>()
  y, steps = Loop (m, c, x, zero) <body = b (int64 i, bool more, float[n] v, int64 k) => (bool go, float[n] w, int64 kk) {
    one = Constant<value = int64 {1}>()
    part = Constant<value = float {0.125}>()
    fi = Cast<to=1>(i)
    add = Mul(fi, part)
    w0 = Add(v, add)
    w = Sqrt(w0)
    kk = Add(k, one)
    sum = ReduceSum<keepdims=0>(w0)
    fk = Cast<to=1>(kk)
    both = Add(sum, fk)
    go = Less(both, t) }>
}""", CASES, 8),
    # A row of a table each step, which is the step's number; the condition is what the step before left.
    "row": ("""
agraph (int64 m, bool c, float t, float[n] x, float[p] drive) => (float[n] y, int64 steps)
{
  zero = Constant<value = int64 {0}>()
  y, steps = Loop (m, c, x, zero) <body = b (int64 i, bool more, float[n] v, int64 k) => (bool go, float[n] w, int64 kk) {
    one = Constant<value = int64 {1}>()
    d = Gather<axis=0>(drive, i)
    w0 = Mul(v, d)
    w = Tanh(w0)
    kk = Add(k, one)
    fk = Cast<to=1>(kk)
    go = Less(fk, t) }>
}""", [dict(each, drive=DRIVE) for each in CASES], 8),
    # Goes on beyond the number of steps that half of its condition names.
    "either": ("""
agraph (int64 m, bool c, float t, float[n] x) => (float[n] y, int64 steps, float[k,n] all)
{
  zero = Constant<value = int64 {0}>()
  y, steps, all = Loop (m, c, x, zero) <body = b (int64 i, bool more, float[n] v, int64 k) => (bool go, float[n] w, int64 kk, float[n] out) {
    one = Constant<value = int64 {1}>()
    few = Constant<value = int64 {3}>()
    w = Cos(v)
    kk = Add(k, one)
    isFew = Less(kk, few)
    sum = ReduceSum<keepdims=0>(w)
    rest = Sub(sum, sum)
    fk = Cast<to=1>(kk)
    both = Add(fk, rest)
    isLess = Less(both, t)
    go = Or(isFew, isLess)
    out = Identity(w) }>
}""", CASES, 12),
    # Results of all steps, in buffers that grow.
    "rows": ("""
agraph (int64 m, bool c, float t, float[n] x) => (float[n] y, int64 steps, float[k,n] all, int64[k] numbers)
{
  zero = Constant<value = int64 {0}>()
  y, steps, all, numbers = Loop (m, c, x, zero) <body = b (int64 i, bool more, float[n] v, int64 k) => (bool go, float[n] w, int64 kk, float[n] out, int64 number) {
    one = Constant<value = int64 {1}>()
    w = Cos(v)
    kk = Add(k, one)
    out = Add(w, v)
    number = Mul(kk, i)
    fk = Cast<to=1>(kk)
    sum = ReduceSum<keepdims=0>(out)
    rest = Sub(sum, sum)
    both = Add(fk, rest)
    go = Less(both, t) }>
}""", CASES, 12),
    # A size that falls, is 0 and grows: the square of one that a quotient takes through 0.
    "squares": ("""
agraph (int64 m, bool c, float t, float[n] x) => (float[n] y, int64 steps)
{
  zero = Constant<value = int64 {0}>()
  y, steps = Loop (m, c, x, zero) <body = b (int64 i, bool more, float[n] v, int64 k) => (bool go, float[n] w, int64 kk) {
    one = Constant<value = int64 {1}>()
    two = Constant<value = int64 {2}>()
    far = Constant<value = int64 {20}>()
    times = Constant<value = int64 {16}>()
    axis = Constant<value = int64[1] {0}>()
    left = Sub(i, far)
    half = Div(left, two)
    square = Mul(half, half)
    size = Mul(square, times)
    sizes = Unsqueeze(size, axis)
    many = ConstantOfShape<value = float[1] {0.25}>(sizes)
    row = Unsqueeze(many, axis)
    weights = Softmax<axis = 1>(row)
    table = Cos(weights)
    all = ReduceSum<keepdims = 0>(table)
    scale = Constant<value = float {0.0001}>()
    part = Mul(all, scale)
    turned = Add(v, part)
    w = Sin(turned)
    kk = Add(k, one)
    fk = Cast<to=1>(kk)
    sum = ReduceSum<keepdims=0>(w)
    rest = Sub(sum, sum)
    both = Add(fk, rest)
    go = Less(both, t) }>
}""", [case(m, t) for m, t in ((3, 100), (12, 100), (30, 17))], 8),
}

# Reads beyond `x` in the step of its length.
BEYOND = """
agraph (int64 m, bool c, float t, float[n] x) => (float[n] y, int64 steps)
{
  zero = Constant<value = int64 {0}>()
  y, steps = Loop (m, c, x, zero) <body = b (int64 i, bool more, float[n] v, int64 k) => (bool go, float[n] w, int64 kk) {
    one = Constant<value = int64 {1}>()
    read = Gather(x, i)
    sum = Add(v, read)
    w = Cos(sum)
    kk = Add(k, one)
    all = ReduceSum<keepdims=0>(w)
    rest = Sub(all, all)
    fk = Cast<to=1>(kk)
    both = Add(fk, rest)
    go = Less(both, t) }>
}"""

SETTINGS = {"node": "", "seed": "seed=5", "old": "version=12030", "refused": "conditional=801", "module": "setter=1",
            "neither": "version=12030,capture=900"}


def end_at_error(tools, checks):
    """An index out of range ends a loop of any number of steps, with its own message."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        onnx.save(onnx.parser.parse_model(HEADER + BEYOND), folder / "m.onnx")
        status, output = device_runs.run([tools / "attnc", folder / "m.onnx", "--target=cuda", "-o", folder / "m.so"])
        checks.expect(not status, "beyond:", output)
        feeds = case(10**7, 1e9, START)
        command = [tools / "attn-run", folder / "m.so"]
        for key, value in feeds.items():
            np.save(folder / f"{key}.npy", value)
            command.append(f"--input={key}=@{folder / key}.npy")
        for label in ("node", "old"):
            checks.runs += 1
            status, output = device_runs.run(command, ATTN_FAKE_CUDA=SETTINGS[label] + ",count=1")
            counted = device_runs.waits_and_graphs(output)
            message = "(Gather): an index is out of range: 5 in a dimension of size 5"
            checks.expect(status and message in output, "beyond,", label, output)
            checks.expect(not counted or counted[0] <= 30, "beyond,", label, "the host waited", counted)


def main():
    args, checks = device_runs.arguments(__doc__, "every third case, and three of six settings"), device_runs.Checks()
    expect = checks.expect
    for name in args.names or MODELS:
        text, cases, most_waits = MODELS[name]
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            model = onnx.parser.parse_model(HEADER + text)
            onnx.save(model, folder / "m.onnx")
            status, output = device_runs.run([args.tools / "attnc", folder / "m.onnx", "--target=cuda",
                                              "--max-loop-iterations=99", "-o", folder / "m.so"])
            if status:
                expect(False, name, output)
                continue
            session = onnxruntime.InferenceSession(str(folder / "m.onnx"), providers=["CPUExecutionProvider"])
            outputs = [each.name for each in model.graph.output]
            for number, feeds in enumerate(cases[::3] if args.short else cases):
                command = [args.tools / "attn-run", folder / "m.so"]
                for key, value in feeds.items():
                    np.save(folder / f"{key}.npy", value)
                    command.append(f"--input={key}=@{folder / key}.npy")
                command += [f"--output={each}=@{folder / each}.out.npy" for each in outputs]
                want = dict(zip(outputs, session.run(outputs, feeds)))
                steps = int(want["steps"])
                for label, setting in SETTINGS.items():
                    if args.short and label not in ("node", "old", "module"):
                        continue
                    checks.runs += 1
                    status, output = device_runs.run(command, ATTN_FAKE_CUDA=f"{setting},count=1")
                    what = f"{name}, case {number} of {steps} steps, {label}:"
                    counted = device_runs.waits_and_graphs(output)
                    if status or not counted:
                        expect(False, what, output)
                        continue
                    for each in outputs:
                        got = np.load(folder / f"{each}.out.npy")
                        # Of no steps ONNX Runtime does not know the shape.
                        same = got.size == 0 if not want[each].size else got.shape == want[each].shape and np.allclose(
                            got, want[each], rtol=1e-5, atol=1e-6)
                        expect(same, what, each, got, "expected", want[each])
                    waits, graphs = counted
                    if label in ("node", "seed"):
                        expect(waits <= most_waits, what, f"the host waited {waits} times")
                        expect(graphs >= (steps > 0), what, "no graph")
                    else:
                        expect(waits >= steps, what, f"the host waited {waits} times for {steps} steps")
                        expect(graphs >= steps - 8 if label != "neither" else graphs == 0, what, graphs, "graphs")
            # Too many iterations end the run with the message of a loop on the host.
            np.save(folder / "m.npy", np.array(101, np.int64))
            np.save(folder / "t.npy", np.array(1e9, np.float32))
            np.save(folder / "c.npy", np.array(True))
            for setting in ("", "version=12030"):
                checks.runs += 1
                status, output = device_runs.run(command, ATTN_FAKE_CUDA=setting)
                expect(status and "runs 100 iterations, the limit is 99" in output, name, "no limit:", output)
    if not args.names:
        end_at_error(args.tools, checks)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
