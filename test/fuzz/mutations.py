#!/usr/bin/env python3
"""Spoilt model files: each is compiled (and run), refused, or found invalid, with a message.

    mutations.py [--seed=1] [--count=3000] [--jobs=2]
    mutations.py --replay FILE.onnx

Seed n spoils one model of BASES, as bytes or as a message, in one to three places. Exit codes 0 to 3 are right, the
others (an internal error, a crash, no answer in time) are kept in a folder. Memory is limited, so that a size that is
taken at its word is seen.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import random
import sys
import threading

import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "onnx_backend")]
import backend  # noqa: E402
import suite  # noqa: E402

BASES = """attention_4d_gqa_with_past_and_present_fp16 attention_3d_causal_expanded averagepool_2d_ceil basic_conv_with_padding
bitcast_float32_to_int32 cast_FLOAT_to_FLOAT8E4M3FN compress_0 concat_3d_axis_1 convtranspose cumsum_2d_axis_0
dequantizelinear_axis dft_axis einsum_batch_diagonal expand_dim_changed flexattention gather_elements_0 gathernd_example_float32
gemm_all_attributes gridsample_bicubic group_normalization_example gru_seq_length if layer_normalization_3d_axis2_epsilon_expanded
linear_attention_gated loop11 loop13_seq lstm_with_peepholes matmulinteger maxunpool_export_with_output_shape mod_int64_fmod
nonmaxsuppression_two_classes nonzero_example onehot_with_axis qlinearmatmul_2D_uint8_float32 range_int32_type_negative_delta_expanded
reduce_sum_keepdims_random reshape_negative_dim resize_downsample_sizes_cubic rotary_embedding_interleaved scan9_sum
scatter_elements_with_axis sequence_map_identity_1_sequence_1_tensor_expanded slice_neg_steps softmax_axis_1
split_to_sequence_1 stft_with_window tensorscatter_circular tile top_k unique_sorted_with_axis_3d unsqueeze_two_axes
where_example""".split()

NUMBERS = (-(2**63), -(2**31), -1000, -2, -1, 0, 1, 2, 3, 4, 7, 8, 64, 1000, 2**20, 2**31 - 1, 2**31, 2**40, 2**40 + 1, 2**62, 2**63 - 1)


#===----------------------------------------------------------------------===#
# Bytes
#===----------------------------------------------------------------------===#


def spoil_bytes(r, data):
    data = bytearray(data)
    at, n = r.randrange(len(data)), r.randint(1, 16)
    how = r.choice(("flip", "set", "cut", "drop", "repeat", "insert", "varint", "swap"))
    if how == "flip":
        data[at] ^= 1 << r.randrange(8)
    elif how == "set":
        data[at] = r.choice((0, 1, 0x7F, 0x80, 0xFF, r.randrange(256)))
    elif how == "cut":
        del data[at:]
    elif how == "drop":
        del data[at:at + n]
    elif how == "repeat":
        data[at:at] = data[at:at + n] * r.choice((1, 1, 50))
    elif how == "insert":
        data[at:at] = r.randbytes(n)
    elif how == "varint":
        data[at:at + 1] = b"\xff" * r.randint(1, 11) + bytes([r.randrange(128)])
    else:
        other = r.randrange(len(data))
        data[at], data[other] = data[other], data[at]
    return bytes(data)


#===----------------------------------------------------------------------===#
# Messages
#===----------------------------------------------------------------------===#


def graphs(model):
    found = [model.graph]
    for graph in found:
        found += [a.g for node in graph.node for a in node.attribute if a.type == AttributeProto.GRAPH]
    return found


def pick(r, items):
    items = list(items)
    return r.choice(items) if items else None


def names_of(graph):
    names = [v.name for v in (*graph.input, *graph.output, *graph.initializer)]
    return names + [n for node in graph.node for n in (*node.input, *node.output)] + ["", "nothing"]


def spoil_attribute(r, node):
    attribute = pick(r, node.attribute)
    if attribute is None:
        name = r.choice(("axis", "axes", "perm", "keepdims", "to", "kernel_shape", "pads", "num_heads", "value"))
        attribute = node.attribute.add(name=name, type=AttributeProto.INT, i=r.choice(NUMBERS))
    how = r.choice(("drop", "type", "value", "value", "value", "list", "name", "copy", "ref"))
    if how == "drop":
        node.attribute.remove(attribute)
    elif how == "type":
        attribute.type = r.randrange(15)
    elif how == "value":
        attribute.i, attribute.f = r.choice(NUMBERS), r.choice((0.0, -1.0, 1e38, float("nan"), float("inf")))
        for n in range(len(attribute.ints)):
            if r.random() < 0.5:
                attribute.ints[n] = r.choice(NUMBERS)
        if attribute.s:
            attribute.s = r.choice((b"", b"linear", b"\xff\xfe", b"ij,jk->ik", b"...->i...", attribute.s * 1000))
    elif how == "list":
        attribute.ints.extend([r.choice(NUMBERS)] * r.choice((1, 3, 10000)))
    elif how == "name":
        attribute.name = r.choice(("", "axis", "mode", "x" * 5000))
    elif how == "copy":
        node.attribute.add().CopyFrom(attribute)
    else:
        attribute.ref_attr_name = "alpha"


def spoil_node(r, graph):
    node = pick(r, graph.node)
    if node is None:
        return
    how = r.choice(("op", "domain", "input", "input", "output", "more", "fewer", "fewer_outputs", "copy", "drop", "order"))
    if how == "op":
        node.op_type = r.choice([s.name for s in onnx.defs.get_all_schemas() if not s.domain])
    elif how == "domain":
        node.domain = r.choice(("ai.onnx", "com.microsoft", "ai.onnx.preview", "x", "\0"))
    elif how == "input" and node.input:
        node.input[r.randrange(len(node.input))] = r.choice(names_of(graph))
    elif how == "output" and node.output:
        node.output[r.randrange(len(node.output))] = r.choice(names_of(graph))
    elif how == "more":
        node.input.extend([r.choice(names_of(graph))] * r.choice((1, 2, 300)))
    elif how == "fewer" and node.input:
        del node.input[r.randrange(len(node.input)):]
    elif how == "fewer_outputs" and node.output:
        del node.output[r.randrange(len(node.output)):]
    elif how == "copy":
        graph.node.add().CopyFrom(node)
    elif how == "drop":
        graph.node.remove(node)
    elif how == "order":
        nodes = list(graph.node)
        r.shuffle(nodes)
        del graph.node[:]
        graph.node.extend(nodes)


def spoil_type(r, graph):
    value = pick(r, (*graph.input, *graph.output, *graph.value_info))
    if value is None:
        return
    tensor, how = value.type.tensor_type, r.choice(("elem", "dim", "dim", "param", "rank", "shape", "name", "kind"))
    dim = pick(r, tensor.shape.dim)
    if how == "elem":
        tensor.elem_type = r.choice((*range(28), -1, 2**31 - 1))
    elif how == "dim" and dim is not None:
        dim.dim_value = r.choice(NUMBERS)
    elif how == "param" and dim is not None:
        dim.dim_param = r.choice(("N", "M", "", "batch", "N*2", "x" * 5000))
    elif how == "rank":
        for _ in range(r.choice((1, 2, 9, 100))):
            tensor.shape.dim.add(dim_value=r.choice(NUMBERS))
    elif how == "shape":
        tensor.ClearField("shape")
    elif how == "name":
        value.name = r.choice(names_of(graph))
    elif how == "kind":
        value.type.sequence_type.elem_type.tensor_type.elem_type = 1


def spoil_tensor(r, graph):
    tensor = pick(r, [*graph.initializer, *(a.t for n in graph.node for a in n.attribute if a.HasField("t"))])
    if tensor is None:
        return
    how = r.choice(("dims", "type", "raw", "cut", "fields", "name", "external", "segment"))
    if how == "dims":
        tensor.dims.append(r.choice(NUMBERS)) if r.random() < 0.5 or not tensor.dims else \
            tensor.dims.__setitem__(r.randrange(len(tensor.dims)), r.choice(NUMBERS))
    elif how == "type":
        tensor.data_type = r.choice((*range(28), -1, 2**31 - 1))
    elif how == "raw":
        tensor.raw_data = r.randbytes(len(tensor.raw_data) or 8)
    elif how == "cut":
        tensor.raw_data = tensor.raw_data[:r.randrange(len(tensor.raw_data) + 1)]
    elif how == "fields":
        tensor.int32_data.extend([1, -1])
    elif how == "name":
        tensor.name = r.choice(names_of(graph))
    elif how == "external":
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", r.choice(("", "w.bin", "../w", "/dev/zero", "."))), ("offset", str(r.choice(NUMBERS)))):
            tensor.external_data.add(key=key, value=value)
    else:
        tensor.segment.begin, tensor.segment.end = r.choice(NUMBERS), r.choice(NUMBERS)


def spoil_file(r, model):
    how = r.choice(("ir", "opset", "opset", "no_opset", "graph", "sparse", "function", "metadata"))
    if how == "ir":
        model.ir_version = r.choice(NUMBERS)
    elif how == "opset" and model.opset_import:
        model.opset_import[0].version = r.choice((*NUMBERS, *range(1, 30)))
    elif how == "no_opset":
        del model.opset_import[:]
    elif how == "graph":
        model.ClearField("graph")
    elif how == "sparse":
        model.graph.sparse_initializer.add().dims.append(3)
    elif how == "function" and model.graph.node:
        node = model.graph.node[0]
        body = model.functions.add(name=node.op_type, domain=node.domain)
        body.input.extend(node.input)
        body.output.extend(node.output)
        body.node.add().CopyFrom(node)
        body.opset_import.extend(model.opset_import)
    elif how == "metadata":
        model.metadata_props.add(key="x" * 5000, value="y")


def spoil_message(r, data):
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return data
    try:
        spoil_part(r, model)
    except UnicodeDecodeError:  # of a name that the bytes spoilt
        return data
    return model.SerializeToString()


def spoil_part(r, model):
    graph = r.choice(graphs(model))
    kind = r.choice(("attribute", "attribute", "node", "node", "type", "type", "tensor", "file"))
    if kind == "attribute":
        if graph.node:
            spoil_attribute(r, r.choice(list(graph.node)))
    elif kind == "file":
        spoil_file(r, model)
    else:
        {"node": spoil_node, "type": spoil_type, "tensor": spoil_tensor}[kind](r, graph)


#===----------------------------------------------------------------------===#
# The command line
#===----------------------------------------------------------------------===#


def load_bases():
    """[(name, bytes, feeds)]: each as it is, and with its inputs as initialisers."""
    cases, bases = suite.load_cases(), []
    for name in BASES:
        case = cases.get("test_" + name)
        if case is None:
            raise SystemExit(f"the onnx package has no case test_{name}")
        inputs = case.data_sets[0][0]
        feeds = {i.name: suite.to_array(v) for i, v in zip(case.model.graph.input, inputs)}
        frozen, left = suite.freeze(case.model, feeds)
        bases += [(name, case.model.SerializeToString(), feeds), (name, frozen.SerializeToString(), left),
                  (name, suite.open_dims(case.model).SerializeToString(), feeds)]
    return bases


def spoilt(seed, bases):
    r = random.Random(seed)
    name, data, feeds = r.choice(bases)
    for _ in range(r.randint(1, 3)):
        if data:
            data = spoil_bytes(r, data) if r.random() < 0.4 else spoil_message(r, data)
    return name, data, feeds


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--count", type=int, default=3000)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--timeout", type=float, default=30)
    p.add_argument("--server", default=backend.SERVER)
    p.add_argument("--failures", type=pathlib.Path, default=pathlib.Path("mutation-failures"))
    p.add_argument("--replay", type=pathlib.Path)
    args = p.parse_args()
    local, bases = threading.local(), [] if args.replay else load_bases()

    def verdict(data, feeds):
        if not hasattr(local, "server"):
            local.server = backend.Server(os.path.abspath(args.server), args.timeout, memory=6 << 30)
        try:
            local.server.run_bytes(data, feeds)
            return 0, ""
        except backend.Refused as refusal:
            return refusal.code, refusal.message

    if args.replay:
        print(*verdict(args.replay.read_bytes(), {}))
        return 0

    def work(seed):
        name, data, feeds = spoilt(seed, bases)
        return seed, name, data, *verdict(data, feeds)

    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for seed, name, data, code, message in pool.map(work, range(args.seed, args.seed + args.count)):
            ok = code == 0 or (1 <= code <= 3 and message)
            counts[code if ok else "FAIL"] += 1
            if not ok:
                args.failures.mkdir(parents=True, exist_ok=True)
                (args.failures / f"{seed}-{name}.onnx").write_bytes(data)
                print(f"FAIL seed {seed} {name}: [{code}] {message[:300]}", flush=True)
    print(", ".join(f"exit {code}: {n}" for code, n in sorted(counts.items(), key=str)))
    print(f"{sum(counts.values()) - counts['FAIL']} of {args.count} answered, {counts['FAIL']} fail")
    return 1 if counts["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
