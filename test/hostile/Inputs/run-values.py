"""Models that read sizes, lengths, positions and scales, and runs of them: what
is in range works, what is not ends with a status and a text.

run-values.py ATTNC ATTN-RUN, in the folder to write to.
"""
import subprocess
import sys

import onnx
from onnx import TensorProto as T, helper as h

M = 2**63 - 1
MS = "com.microsoft"
F, I, I32 = T.FLOAT, T.INT64, T.INT32
X = ("x", F, ["n", 4])
SUM = h.make_node("ReduceSum", ["z"], ["y"], keepdims=0)


def model(nodes, inputs, out=F, opset=19):
    values = [h.make_tensor_value_info(*i) for i in inputs]
    for node in nodes:
        node.name = "the_node" if node is nodes[0] else "after"
    graph = h.make_graph(nodes, "g", values, [h.make_tensor_value_info("y", out, None)])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", opset), h.make_opsetid(MS, 1)], ir_version=8)


def node(op, inputs, out="z", **attributes):
    return h.make_node(op, inputs.split(), [out], **attributes)


def ints(*values):
    return f"{len(values)}xi64={','.join(map(str, values))}"


def floats(*values):
    return f"{len(values)}xf32={','.join(map(str, values))}"


WIDE = f"a dimension of size 9200000000000000000 is outside [0, {2**40}]"
X3 = "x=3x4xf32=" + ",".join(map(str, range(12)))
GQA = ["query", "key", "value"]
ROTARY = ["x=1x2x8xf32=0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0"] + [f"{k}=3x4xf32=" + ",".join(["1"] * 12) for k in "cs"]

# name, model, runs: (inputs, None or what the message says)
CASES = []
for mode in ["constant", "edge", "reflect", "wrap"]:
    runs = [([X3, "s=" + ints(1, 0, 1, 0)], None), ([X3, "s=" + ints(M, 0, M, 0)], WIDE),
            ([X3, "s=" + ints(2**62, 0, 2**62, 0)], WIDE),
            ([X3, "s=" + ints(-M, 0, -M, 0)], "negative pads leave"),
            ([X3, "s=" + ints(2**38, 0, 2**38, 2**38)], "is larger than the limit of")]
    CASES.append(("pad_" + mode, model([node("Pad", "x s", mode=mode), SUM], [X, ("s", I, [4])]), runs))
CASES.append(("concat", model([node("Tile", "x t"), node("Concat", "z z z", "c", axis=1), node("Shape", "c", "y")],
                              [X, ("t", I, [2])], I),
              [(["x=0x4xf32=", "t=" + ints(1, 3)], None),
               (["x=0x4xf32=", "t=" + ints(1, 2**60)], f"a dimension of size {2**60} is outside")]))
CASES.append(("fill", model([node("ConstantOfShape", "s"), SUM], [("s", I, [2])]),
              [(["s=" + ints(2, 3)], None), (["s=" + ints(2**40, 2**40)], "is larger than the limit of"),
               (["s=" + ints(2**32, 2**32)], "is larger than the limit of")]))
CASES.append(("slice", model([node("Slice", "x b e"), SUM], [X, ("b", I, [2]), ("e", I, [2])]),
              [([X3, "b=" + ints(0, -M), "e=" + ints(M, M)], None)]))
RANGE = [(k, I, []) for k in "abc"]
CASES.append(("range", model([node("Range", "a b c"), node("Size", "z", "y")], RANGE, I),
              [([f"a=i64={-M - 1}", f"b=i64={M}", "c=i64=1"], "limits 9200000000000000000 apart"),
               ([f"a=i64={-M}", f"b=i64={M}", f"c=i64={2**62}"], "limits 9200000000000000000 apart"),
               ([f"a=i64={M}", f"b=i64={-M}", f"c=i64={-2**62}"], "limits -9200000000000000000 apart"),
               (["a=i64=5", "b=i64=1", "c=i64=-2"], None)]))
CASES.append(("frange", model([node("Range", "a b c"), node("Size", "z", "y")], [(k, F, []) for k in "abc"], I),
              [([f"a=f32={a}", f"b=f32={b}", f"c=f32={c}"], text) for a, b, c, text in
               [(0, "inf", 1, "is not finite"), (0, "nan", 1, "is not finite"), (0, 1, 0, "is not finite"),
                (0, 1, "1e-30", "above"), (0, 3, 1, None), (3, 0, 1, None)]]))
CASES.append(("resize", model([h.make_node("Resize", ["x", "", "s"], ["z"]), SUM], [X, ("s", F, [2])]),
              [([X3, "s=" + floats(1, 2)], None), ([X3, "s=" + floats(-1, 2)], "scale 0 is not above 0"),
               ([X3, "s=" + floats(1, 0)], "scale 1 is not above 0"), ([X3, "s=" + floats(1, "nan")], "scale 1"),
               ([X3, "s=" + floats(1, "inf")], "scale 1"), ([X3, "s=" + floats("1e8", "1e8")], "is larger than")]))
for domain, order in [(MS, "x p c s"), ("", "x c s p")]:
    rotary = h.make_node("RotaryEmbedding", order.split(), ["z"], domain=domain, num_heads=1)
    CASES.append(("rotary" + domain[:3], model([rotary, SUM], [("x", F, [1, 2, 8]), ("p", I, [1, 2]), ("c", F, [3, 4]),
                                                               ("s", F, [3, 4])], opset=23),
                  [([*ROTARY, "p=1x2xi64=0,2"], None), ([*ROTARY, "p=1x2xi64=0,-1"], "an index is out of range: -1 in a dimension of size 3"),
                   ([*ROTARY, "p=1x2xi64=0,3"], "an index is out of range: 3 in a dimension of size 3")]))
past = [(k, F, [1, 1, "past", 8]) for k in ["pk", "pv"]]
gqa = h.make_node("GroupQueryAttention", "query key value pk pv lengths total".split(), ["z", "u", "v"], domain=MS,
                  num_heads=1, kv_num_heads=1)
zeros = [f"{k}=1x1x8xf32=0,0,0,0,0,0,0,0" for k in GQA] + [f"{k}=1x1x2x8xf32=" + ",".join(["0"] * 16) for k in ["pk", "pv"]]
CASES.append(("gqa", model([gqa, SUM], [(k, F, [1, 1, 8]) for k in GQA] + past + [("lengths", I32, [1]), ("total", I32, [1])],
                           opset=17),
              [([*zeros, f"lengths=1xi32={n}", f"total=1xi32={total}"], text) for n, total, text in
               [(2, 3, None), (-9, 3, "out of range"), (999, 3, "out of range"), (2, 2, "out of range"),
                (0, -3, "total_sequence_length of -3")]]))
CASES.append(("reshape", model([node("Reshape", "x s"), SUM], [X, ("s", I, [2])]),
              [([X3, "s=" + ints(0, -1)], None),
               (["x=0x4xf32=", "s=" + ints(0, -1)], "shape has -1 beside a dimension of size 0")]))
CASES.append(("argmax", model([node("ArgMax", "x", "y", axis=0)], [X], I),
              [([X3], None), (["x=0x4xf32="], "chooses from a dimension of size 0")]))
reverse = node("ReverseSequence", "x l", time_axis=1, batch_axis=0)
CASES.append(("reverse", model([reverse, SUM], [X, ("l", I, ["n"])]),
              [([X3, "l=" + ints(0, 4, 1)], None), ([X3, "l=" + ints(0, 5, 1)], "sequence_lens: an index is out of range: 5"),
               ([X3, "l=" + ints(0, -1, 1)], "sequence_lens: an index is out of range: -1")]))
lengths = h.make_node("Attention", ["q", "k", "v", "", "", "", "l"], ["z"])
short = [f"{k}=1x1x2x4xf32=0,0,0,0,0,0,0,0" for k in "qkv"]
CASES.append(("lengths", model([lengths, SUM], [(k, F, [1, 1, "n", 4]) for k in "qkv"] + [("l", I, [1])], opset=24),
              [([*short, "l=" + ints(n)], text) for n, text in
               [(0, None), (2, None), (3, "nonpad_kv_seqlen: an index is out of range: 3"),
                (-1, "nonpad_kv_seqlen: an index is out of range: -1")]]))
roi = ["x=1x1x2x2xf32=1,2,3,4", "b=1xi64=0"]
CASES.append(("roi", model([node("RoiAlign", "x r b"), SUM], [("x", F, [1, 1, 2, 2]), ("r", F, [1, 4]), ("b", I, [1])]),
              [([*roi, "r=1x4xf32=0,0,2,2"], None),
               ([*roi, "r=1x4xf32=0,0,1e9,1e9"], "a roi takes more than 16777216 samples"),
               ([*roi, "r=1x4xf32=0,0,nan,inf"], "")]))


def main(attnc, run):
    wrong = 0
    for name, onnx_model, runs in CASES:
        onnx.save(onnx_model, name + ".onnx")
        built = subprocess.run([attnc, name + ".onnx", "-o", name + ".so"], capture_output=True, text=True)
        if built.returncode:
            print(f"{name}: {built.stderr}")
            wrong += 1
            continue
        for inputs, message in runs:
            got = subprocess.run([run, name + ".so"] + ["--input=" + i for i in inputs], capture_output=True, text=True,
                                 timeout=60)
            ok = got.returncode == 0 if message is None else (
                message == "" and got.returncode in (0, 3) or
                got.returncode == 3 and "'the_node'" in got.stderr and message in got.stderr)
            if not ok:
                wrong += 1
                print(f"{name} {inputs}: expected {message!r}, exit {got.returncode}: {got.stderr}")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main(*sys.argv[1:]) else 0)
