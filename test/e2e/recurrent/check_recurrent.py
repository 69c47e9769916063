#!/usr/bin/env python3
"""Recurrent layers with random attributes against reference.py and ONNX Runtime.

    check_recurrent.py [--count=60] [--seed=1] [--tools=build/bin] [-O0] [--mcpu=x86-64-v3] [--weights=bf16] [--mostly-quick]

Each model holds a few layers that read inputs of one dtype with open dimensions;
weights are initialisers or inputs. Sizes cover single steps, no step, single
items and units that fill no vector. ONNX Runtime judges the models it can run.
With --weights the reference computes with weights rounded as the library's are, with --mostly-quick LLVM optimises the
code of every seventh model alone.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from reference import recurrent

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "onnx_backend"))
import backend  # noqa: E402

LAYERS_A_MODEL = 6
# relative, absolute; the reference computes in float64 from the same numbers.
TOLERANCE = {np.float32: (1e-4, 2e-5), np.float64: (1e-9, 1e-10), np.float16: (5e-3, 5e-3)}
ORT_TOLERANCE = (1e-3, 1e-3)  # its activations are approximations of their own
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
# With the constants that stand in for what a node does not give.
FUNCTIONS = {"Sigmoid": (), "Tanh": (), "Relu": (), "Affine": (1, 0), "LeakyRelu": (0.01,), "ThresholdedRelu": (1,),
             "ScaledTanh": (1, 1), "HardSigmoid": (0.2, 0.5), "Elu": (1,), "Softsign": (), "Softplus": ()}
HAS_DEFAULT = {"LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Elu"}


def narrowed(weights, how):
    """W or R [directions, gates * units, columns] as `--weights` stores it: bf16, or int8 with a scale for each row,
    which is a column of the product, and as many columns as a group has."""
    if how == "bf16":
        words = weights.view(np.uint32)
        return ((words + 0x7FFF + (words >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    result, group = weights.copy(), int(how.partition(":")[2] or weights.shape[-1])
    for first in range(0, weights.shape[-1], group):
        part = result[..., first:first + group]
        scale = np.abs(part).max(-1, keepdims=True) / np.float32(127)
        part[:] = np.rint(part / np.where(scale > 0, scale, 1)) * scale
    return result


def pick_activations(rng, op, directions):
    """Names, (name, alpha, beta), and the lists of the node."""
    if rng.random() < 0.5:
        return None, [(f, 0, 0) for f in DEFAULTS[op]] * directions, [], []
    names = [str(rng.choice(list(FUNCTIONS))) for _ in range(len(DEFAULTS[op]) * directions)]
    give = rng.random() < 0.7 or any(FUNCTIONS[f] and f not in HAS_DEFAULT for f in names)
    alphas, betas, known = [], [], []
    for name in names:
        constants = list(FUNCTIONS[name])
        if give and constants:
            constants = [float(np.float32(v)) for v in rng.uniform(0.1, 0.9, len(constants))]
            alphas.append(constants[0])
            betas += constants[1:]
        known.append((name, *(constants + [0, 0])[:2]))
    return names, known, alphas, betas


def make_layer(rng, number, dtype, S, B, I, lens_values, weights):
    op = str(rng.choice(["RNN", "GRU", "LSTM"]))
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    D, G = (2 if direction == "bidirectional" else 1), GATES[op]
    H = int(rng.choice([1, 3, 8, 16, 17, 24, 33, 64, 80, 150, 192, 270][4 * bool(weights):]))  # from 128 on steps are cut, too
    names, functions, alphas, betas = pick_activations(rng, op, D)
    if weights:  # what has no kernel, or is small, stays f32
        names, functions, alphas, betas = None, [(f, 0, 0) for f in DEFAULTS[op]] * D, [], []
    layer = dict(op=op, direction=direction, activations=functions, layout=int(rng.random() < 0.3),
                 clip=float(np.float32(rng.uniform(0.3, 2))) if rng.random() < 0.3 else None,
                 linear_before_reset=int(rng.random() < 0.5), input_forget=int(rng.random() < 0.2))
    attributes = dict(hidden_size=H, direction=direction, layout=layer["layout"])
    if names:
        attributes["activations"] = names
    if alphas:
        attributes["activation_alpha"] = alphas
    if betas:
        attributes["activation_beta"] = betas
    if layer["clip"]:
        attributes["clip"] = layer["clip"]
    if op == "GRU":
        attributes["linear_before_reset"] = layer["linear_before_reset"]
    if op == "LSTM":
        attributes["input_forget"] = layer["input_forget"]
    some = lambda *shape: (rng.standard_normal(shape) * 0.5 / np.sqrt(max(shape[-1], 1)) * 2).astype(dtype)
    state = (B, D, H) if layer["layout"] else (D, B, H)
    maybe = lambda chance, value: value if rng.random() < chance else None
    operands = dict(X=None, W=some(D, G * H, I), R=some(D, G * H, H), B=maybe(0.7, some(D, 2 * G * H)),
                    lens=maybe(0.4, lens_values), h=maybe(0.5, some(*state)))
    if op == "LSTM":
        operands.update(c=maybe(0.5, some(*state)), P=maybe(0.4, some(D, 3 * H)))
    outputs = ["Y", "H", "C"][:3 if op == "LSTM" else 2]
    kept = [o if rng.random() < 0.8 else "" for o in outputs]
    if not any(kept):
        kept[0] = "Y"
    return layer, attributes, operands, [f"{o}{number}" if o else "" for o in kept], bool(weights) or rng.random() < 0.8


def sensitivity(layer, operands, results, dtype):
    """How far each element of `results` moves when the operands are off by some units in the last place: states that
    grow from step to step carry the rounding of the first one along."""
    rng, moved = np.random.default_rng(0), [np.zeros(r.shape) for r in results]
    for _ in range(3):
        near = [v if v is None or v.dtype.kind != "f" else
                v.astype(np.float64) * (1 + 4 * np.finfo(dtype).eps * rng.choice([-1, 1], v.shape))
                for v in operands.values()]
        for most, result, other in zip(moved, results, recurrent(layer, *near)):
            np.maximum(most, np.nan_to_num(np.abs(other - result), nan=np.inf), out=most)
    return moved


def make_model(rng, dtype, weights):
    """The model, its feeds, the expected outputs by name, and how sensitive each element of them is."""
    S, B, I = int(rng.choice([0, 1, 2, 5, 9])), int(rng.choice([1, 1, 2, 5, 7, 14, 19])), int(rng.choice([17, 32] if weights else [1, 4, 17, 32]))
    X = rng.standard_normal((S, B, I)).astype(dtype)
    lens = rng.integers(0 if rng.random() < 0.3 else min(S, 1), S + 1, B).astype(np.int32)
    feeds, nodes, initializers, inputs, outputs, want, moves = {}, [], [], [], [], {}, {}
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def feed(name, value, dims):
        if name not in feeds:
            feeds[name] = value
            inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), dims))

    for number in range(LAYERS_A_MODEL):
        layer, attributes, operands, names, constant = make_layer(rng, number, dtype, S, B, I, lens, weights)
        operands["X"] = X.transpose(1, 0, 2).copy() if layer["layout"] else X
        given = []
        for key, value in operands.items():
            if value is None:
                given.append("")
            elif key == "X":
                given.append(f"x{layer['layout']}")
                feed(given[-1], value, ["b", "s", I] if layer["layout"] else ["s", "b", I])
            elif key == "lens":
                given.append("lens")
                feed("lens", value, ["b"])
            elif key in "hc":
                given.append(f"{key}{number}")
                dims = list(value.shape)
                dims[0 if layer["layout"] else 1] = "b"
                feed(given[-1], value, dims)
            elif constant:
                given.append(f"{key}{number}")
                initializers.append(numpy_helper.from_array(value, given[-1]))
            else:
                given.append(f"{key}{number}")
                feed(given[-1], value, list(value.shape))
        while given[-1] == "":
            given.pop()
        nodes.append(helper.make_node(layer["op"], given, names, f"layer{number}", **attributes))
        if weights:
            operands |= {key: narrowed(operands[key], weights) for key in "WR"}
        results = recurrent(layer, *operands.values())
        for name, result, moved in zip(names, results, sensitivity(layer, operands, results, dtype)):
            if name:
                want[name], moves[name] = result, moved
                outputs.append(helper.make_tensor_value_info(name, element, None))
    graph = helper.make_graph(nodes, "recurrent", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), feeds, want, moves


def compare(got, want, tolerance, moved=0):
    if got.shape != want.shape:
        return f"shape {got.shape}, expected {want.shape}"
    error = np.abs(got.astype(np.float64) - want)
    bad = ~(error <= tolerance[1] + tolerance[0] * np.abs(want) + 4 * moved)
    return f"{bad.sum()} of {want.size} differ, by up to {np.nanmax(error):.2e}" if bad.any() else None


def ort_outputs(model, feeds, dtype):
    """By name what ONNX Runtime gives, layer by layer; it refuses some, and an item of no step ends its process."""
    import onnxruntime
    results = {}
    if dtype == np.float16 or any(0 in v.shape for v in feeds.values()) or np.any(feeds.get("lens", 1) == 0):
        return results
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for node in model.graph.node:
        if "ThresholdedRelu" in str(node.attribute):  # a jump, which rounding may cross
            continue
        inputs = [i for i in model.graph.input if i.name in node.input]
        outputs = [o for o in model.graph.output if o.name in node.output]
        constants = [t for t in model.graph.initializer if t.name in node.input]
        graph = helper.make_graph([node], "layer", inputs, outputs, constants)
        single = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        try:
            session = onnxruntime.InferenceSession(single.SerializeToString(), options, providers=["CPUExecutionProvider"])
            names = [o.name for o in outputs]
            results.update(zip(names, session.run(names, {i.name: feeds[i.name] for i in inputs})))
        except Exception:
            pass
    return results


def ran(args, folder, model, feeds, want):
    """What attn-run gives: (outputs by name, what is wrong)."""
    onnx.save(model, f"{folder}/m.onnx")
    command = [args.tools / "attn-run", f"{folder}/m.onnx"] + (["-O0"] if args.plain else [])
    command += [f"--mcpu={args.mcpu}"] if args.mcpu else []
    command += [f"--weights={args.weights}"] if args.weights else []
    for name, value in feeds.items():
        np.save(f"{folder}/{name}.npy", value)
        command.append(f"--input={name}=@{folder}/{name}.npy")
    command += [f"--output={name}=@{folder}/{name}.npy" for name in want]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace")
    if done.returncode:
        return {}, f"exit status {done.returncode}: {done.stderr.strip()}"
    return {name: np.load(f"{folder}/{name}.npy") for name in want}, None


def ran_quick(server, model, feeds, want):
    """Likewise, of code that LLVM does not optimise."""
    try:
        return dict(zip(want, server.run(model, feeds, list(want), quick=True)[0])), None
    except backend.Refused as refusal:
        return {}, f"exit status {refusal.code}: {refusal.message}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="layers")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tools", type=pathlib.Path, default=pathlib.Path("build/bin"))
    parser.add_argument("--keep", help="write failing models to this folder")
    parser.add_argument("-O0", dest="plain", action="store_true")
    parser.add_argument("--mcpu", help="for attn-run")
    parser.add_argument("--weights", help="for attn-run: bf16, int8 or int8:GROUP")
    parser.add_argument("--mostly-quick", action="store_true")
    args = parser.parse_args()
    if args.mostly_quick and (args.plain or args.mcpu or args.weights):
        parser.error("--mostly-quick compiles and runs most models in one process, which takes no -O0, --mcpu or --weights")
    server = backend.Server(str((args.tools / "onnx-case-server").resolve()))
    failed = judged = layers = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(-(-args.count // LAYERS_A_MODEL)):
            rng = np.random.default_rng([args.seed, number])
            dtype = [np.float32] * 6 + [np.float64, np.float16] * (not args.weights)
            dtype = dtype[number % len(dtype)]
            model, feeds, want, moves = make_model(rng, dtype, args.weights)
            layers += LAYERS_A_MODEL
            quick = args.mostly_quick and number % 7  # kinds of floats come in eights
            outputs, text = ran_quick(server, model, feeds, want) if quick else ran(args, folder, model, feeds, want)
            problems = [text] if text else []
            if not problems:
                ort = {} if args.weights else ort_outputs(model, feeds, dtype)
                judged += len(ort)
                for name, value in want.items():
                    got = outputs[name]
                    if got.dtype != dtype:
                        problems.append(f"{name}: dtype {got.dtype}")
                    for other, reference, limits in (("the reference", value, TOLERANCE[dtype]),
                                                     ("ONNX Runtime", ort.get(name), ORT_TOLERANCE)):
                        # A layer that explodes says nothing, and least about approximations.
                        if reference is None or not np.abs(value).max(initial=0) <= (1e5 if reference is value else 1e3):
                            continue
                        text = compare(got, reference, limits, moves[name])
                        if text:
                            problems.append(f"{name} against {other}: {text}")
            if problems:
                failed += 1
                if args.keep:
                    onnx.save(model, f"{args.keep}/m{number}.onnx")
                print(f"model {number} of seed {args.seed} ({np.dtype(dtype)}):\n  " + "\n  ".join(problems))
                for node in model.graph.node:
                    if any(o and any(p.startswith(o + " ") for p in problems) for o in node.output):
                        print("   ", helper.printable_node(node))
    print(f"{layers} layers, {judged} outputs judged by ONNX Runtime, {failed} models failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
