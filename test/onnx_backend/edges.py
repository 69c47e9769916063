#!/usr/bin/env python3
"""Sizes of 0 and 1 where a model has them, or leaves them open, against ONNX Runtime or the reference.

    edges.py [--only PART] [--server PROGRAM]

A case compiles twice, with the shapes that its inputs have and with every dimension open, those of size 1 too.
"""
import argparse
import sys
import warnings

import numpy as np
import onnx
import onnx.reference
from onnx import helper

import backend
import suite

RNG = np.random.default_rng(5)
CASES = []


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def case(name, op, inputs, outputs=1, opset=22, domain="", oracle="onnxruntime", refused="", invalid="", kind=None,
         **attributes):
    """`inputs`: arrays, None for a missing one. `refused`: what the message says where dimensions are open; `invalid`: what
    it says wherever."""
    kind = kind or (onnx.TensorProto.INT64 if op == "NonMaxSuppression" else onnx.TensorProto.FLOAT)
    CASES.append((name, op, inputs, outputs, opset, domain, oracle, refused, invalid, kind, attributes))


def build(op, inputs, outputs, opset, domain, kind, attributes, is_open):
    names = ["" if v is None else f"i{n}" for n, v in enumerate(inputs)]
    feeds = {name: v for name, v in zip(names, inputs) if name}
    declared = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype),
                                              [f"{name}_{d}" for d in range(v.ndim)] if is_open else v.shape)
                for name, v in feeds.items()]
    made = [f"o{n}" for n in range(outputs)]
    node = helper.make_node(op, names, made, name="node", domain=domain, **attributes)
    graph = helper.make_graph([node], "g", declared, [helper.make_tensor_value_info(n, kind, None) for n in made])
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=10), feeds


def answer(model, feeds, oracle):
    if oracle == "reference":
        return onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)


def signals():
    step, length = np.array(4, np.int64), np.array(8, np.int64)
    for parts in (1, 2):
        case(f"stft_{parts}", "STFT", [floats(2, 20, parts), step, None, length], opset=17, onesided=0)
        case(f"stft_window_{parts}", "STFT", [floats(1, 21, parts), step, floats(8)], opset=17, onesided=0)
        case(f"dft_{parts}", "DFT", [floats(1, 6, parts)], opset=17, oracle="reference")
        for axis in (0, 1, -2): # as an input; ONNX Runtime asks for a constant there
            for n, length in enumerate((None, np.array(3, np.int64), np.array(7, np.int64))):
                given = [floats(4, 5, 6, parts), length, np.array(axis, np.int64)]
                case(f"dft_axis_{parts}_{axis}_{n}", "DFT", given, opset=20, oracle="reference")
                case(f"dft_half_{parts}_{axis}_{n}", "DFT", given, opset=20, oracle="reference", onesided=1)
    for axis in (0, 1, -2):
        given = [floats(3, 4, 5, 2), np.array(6, np.int64), np.array(axis, np.int64)]
        case(f"dft_back_{axis}", "DFT", given, opset=20, oracle="reference", inverse=1, onesided=1)


def detection():
    limit = np.array([3], np.int64)
    case("nms_no_boxes", "NonMaxSuppression", [floats(2, 0, 4), floats(2, 3, 0), limit])
    case("nms_no_classes", "NonMaxSuppression", [floats(2, 5, 4), floats(2, 0, 5), limit])
    case("nms_one_box", "NonMaxSuppression", [floats(1, 1, 4), floats(1, 1, 1), limit])


def quantised():
    scale = np.array([0.5], np.float32)
    case("dequantize_one_scale", "DequantizeLinear", [np.arange(5, dtype=np.int8), scale], axis=0,
         refused="broadcast in this run only; compile with --dim")
    case("quantize_one_slice", "QuantizeLinear", [floats(1, 5), scale], axis=0, oracle="reference", kind=onnx.TensorProto.UINT8)


def products():
    # One of a vector's sides is not another.
    case("fused_matmul_vector", "FusedMatMul", [floats(5), floats(5, 3)], domain="com.microsoft", transA=1, alpha=2.0)
    case("fused_matmul_vectors", "FusedMatMul", [floats(3, 5), floats(5)], domain="com.microsoft", transB=1)


def resizes():
    doubled, sizes = np.array([1, 1, 2, 2], np.float32), np.array([1, 1, 0, 6], np.int64)
    for mode in ("nearest", "linear", "cubic"):
        case(f"resize_no_rows_{mode}", "Resize", [floats(1, 2, 0, 3), None, doubled], mode=mode)
        case(f"resize_no_batch_{mode}", "Resize", [floats(0, 2, 4, 3), None, doubled], mode=mode)
        case(f"resize_to_no_rows_{mode}", "Resize", [floats(1, 1, 0, 3), None, None, sizes], mode=mode)
        case(f"resize_to_rows_{mode}", "Resize", [floats(1, 1, 0, 3), None, None, np.array([1, 1, 4, 6], np.int64)],
             mode=mode, invalid="to one with elements")
    case("resize_no_rows_shrunk", "Resize", [floats(1, 1, 0, 3), None, np.array([1, 1, 0.7, 0.7], np.float32)], mode="linear", antialias=1)
    case("resize_policy", "Resize", [floats(1, 1, 0, 3), None, None, np.array([0, 6], np.int64)], axes=[2, 3],
         keep_aspect_ratio_policy="not_larger", invalid="to one with elements")
    case("upsample_no_rows", "Upsample", [floats(1, 2, 0, 3), doubled], opset=9)


def windows():
    # One too long for its input has no position; ONNX Runtime takes those with greater strides, too, of which it rounds
    # the number of positions towards 0, against the standard.
    short = "expected at least {}: the input is too short"
    for op in ("MaxPool", "AveragePool", "LpPool"):
        case(f"{op}_none", op, [floats(1, 2, 2)], kernel_shape=[3])
        case(f"{op}_none_ceil", op, [floats(1, 2, 2)], kernel_shape=[3], ceil_mode=1)
        case(f"{op}_none_rows", op, [floats(1, 2, 2, 5)], kernel_shape=[3, 2], dilations=[1, 2], strides=[1, 2])
        case(f"{op}_padded", op, [floats(1, 2, 2)], kernel_shape=[4], pads=[1, 0])
        case(f"{op}_short", op, [floats(1, 2, 1)], kernel_shape=[3], invalid=short.format(-1))
        case(f"{op}_short_strides", op, [floats(1, 2, 2)], kernel_shape=[3], strides=[2], invalid=short.format(0))
    case("MaxPool_none_indices", "MaxPool", [floats(1, 2, 2)], outputs=1, kernel_shape=[3])
    case("convolution_short", "Conv", [floats(1, 2, 2), floats(4, 2, 3)], invalid=short.format(0))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", default="")
    p.add_argument("--server", default=backend.SERVER)
    args = p.parse_args()
    warnings.simplefilter("ignore")
    for family in (signals, detection, quantised, products, resizes, windows):
        family()
    server, passed, failed = backend.Server(args.server), 0, 0
    for name, op, inputs, outputs, opset, domain, oracle, refused, invalid, kind, attributes in CASES:
        if args.only not in name:
            continue
        closed, feeds = build(op, inputs, outputs, opset, domain, kind, attributes, False)
        expected = None if invalid else answer(closed, feeds, oracle)
        for is_open in (False, True):
            model, _ = build(op, inputs, outputs, opset, domain, kind, attributes, is_open)
            try:
                got, _ = server.run(model, feeds, [o.name for o in model.graph.output])
                wrong = "is not refused" if invalid else next(
                    filter(None, (suite.complaint(g, w, 1e-3) for g, w in zip(got, expected))), None)
            except backend.Refused as refusal:
                meant = is_open and refused and refused in refusal.message and refusal.code == backend.UNSUPPORTED
                meant = meant or invalid and invalid in refusal.message and refusal.code != backend.UNSUPPORTED
                wrong = None if meant else f"[{refusal.code}] {refusal.message}"
            passed += not wrong
            failed += bool(wrong)
            if wrong:
                print(f"FAIL {name} {'open' if is_open else 'as declared'}: " + " ".join(wrong.split())[:300])
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
