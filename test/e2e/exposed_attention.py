"""Attention weights as outputs, against float64.

    exposed_attention.py ATTNC ATTN-RUN FOLDER
"""
import base64
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

ATTNC, RUN, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
NODE = "/layer.0/attention/Softmax"
FORMS = "weights,head-mean,argmax,entropy,top-k:3"
SUFFIXES = ["weights", "head_mean", "argmax", "entropy", "top_k_weights", "top_k_keys"]


def info(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def save_model(path, nodes, inputs, outputs, initializers=()):
    save(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, list(initializers)),
                           opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=9), path)


def node(op, inputs, output, name=None, **attributes):
    return helper.make_node(op, inputs, [output], name=name or output, **attributes)


def attention(scores, masked, values):
    """Nodes behind scaled scores."""
    return [node("Mul", [scores, "scale"], "scaled"),
            *([node("Add", ["scaled", "mask"], "biased")] if masked else []),
            node("Softmax", ["biased" if masked else "scaled"], "w", NODE, axis=-1),
            node("MatMul", ["w", values], "y")]


SCALE = numpy_helper.from_array(np.float32(0.5), "scale")


def self_attention(path):
    """Heads of their own, a mask that hides keys; all sizes open."""
    heads = ["b", "h", "n", 8]
    save_model(path, [node("Transpose", ["k"], "kt", perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], "s"),
                      *attention("s", True, "v")],
               [info("q", heads), info("k", heads), info("v", heads), info("mask", ["b", 1, 1, "n"])],
               [info("y", heads)], [SCALE])
    rng = np.random.default_rng(1)
    shape = (2, 3, 17, 8)
    mask = np.zeros((2, 1, 1, 17), np.float32)
    mask[1, ..., 11:] = -np.inf
    return {"mask": mask} | {x: rng.standard_normal(shape).astype(np.float32) for x in "qkv"}


def cross_attention(path):
    """No heads, more keys than queries, static sizes."""
    save_model(path, [node("Transpose", ["k"], "kt", perm=[0, 2, 1]), node("MatMul", ["q", "kt"], "s"),
                      *attention("s", False, "v")],
               [info("q", [2, 5, 8]), info("k", [2, 33, 8]), info("v", [2, 33, 4])], [info("y", [2, 5, 4])], [SCALE])
    rng = np.random.default_rng(2)
    return {"q": rng.standard_normal((2, 5, 8)).astype(np.float32),
            "k": rng.standard_normal((2, 33, 8)).astype(np.float32),
            "v": rng.standard_normal((2, 33, 4)).astype(np.float32)}


def given_scores(path):
    """Scores from outside, neither heads nor batch; two keys, fewer than a top-3 asks for."""
    save_model(path, attention("s", False, "v"), [info("s", ["n", 2]), info("v", [2, 4])], [info("y", ["n", 4])], [SCALE])
    rng = np.random.default_rng(3)
    return {"s": rng.standard_normal((6, 2)).astype(np.float32), "v": rng.standard_normal((2, 4)).astype(np.float32)}


def one_item(path):
    """A batch of one item, which no dimension of the compiled attention stands for."""
    heads = [1, 4, "n", 8]
    save_model(path, [node("Transpose", ["k"], "kt", perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], "s"),
                      *attention("s", False, "v")],
               [info("q", heads), info("k", heads), info("v", heads)], [info("y", heads)], [SCALE])
    rng = np.random.default_rng(4)
    return {x: rng.standard_normal((1, 4, 7, 8)).astype(np.float32) for x in "qkv"}


def one_key(path):
    """One key: neither it nor the batch has a dimension, and queries still are queries."""
    save_model(path, [node("Transpose", ["k"], "kt", perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], "s"),
                      *attention("s", False, "v")],
               [info("q", [1, 2, 17, 8]), info("k", [1, 2, 1, 8]), info("v", [1, 2, 1, 8])], [info("y", [1, 2, 17, 8])], [SCALE])
    rng = np.random.default_rng(7)
    return {"q": rng.standard_normal((1, 2, 17, 8)).astype(np.float32)} | {
        x: rng.standard_normal((1, 2, 1, 8)).astype(np.float32) for x in "kv"}


def one_query(path):
    """Heads that stand before a dimension of one, with one query."""
    save_model(path, [node("Transpose", ["k"], "kt", perm=[0, 1, 2, 4, 3]), node("MatMul", ["q", "kt"], "s"),
                      *attention("s", False, "v")],
               [info("q", [1, 2, 1, 1, 8]), info("k", [1, 2, 1, "n", 8]), info("v", [1, 2, 1, "n", 8])],
               [info("y", [1, 2, 1, 1, 8])], [SCALE])
    rng = np.random.default_rng(8)
    return {"q": rng.standard_normal((1, 2, 1, 1, 8)).astype(np.float32)} | {
        x: rng.standard_normal((1, 2, 1, 5, 8)).astype(np.float32) for x in "kv"}


def repeated(name):
    """Nodes that repeat two heads of keys for four of queries."""
    return [node("Unsqueeze", [name, "two"], f"{name}5"), node("Expand", [f"{name}5", "groups"], f"{name}e"),
            node("Reshape", [f"{name}e", "heads"], f"{name}r")]


GROUPS = [numpy_helper.from_array(np.array(value), name) for name, value in
          {"two": [2], "groups": [1, 1, 2, 1, 1], "heads": [0, 4, -1, 8]}.items()]


def grouped_step(path):
    """One query, whose heads share the keys in pairs: the attention has them as queries."""
    save_model(path, [*repeated("k"), *repeated("v"), node("Transpose", ["kr"], "kt", perm=[0, 1, 3, 2]),
                      node("MatMul", ["q", "kt"], "s"), *attention("s", False, "vr")],
               [info("q", ["b", 4, 1, 8]), info("k", ["b", 2, "n", 8]), info("v", ["b", 2, "n", 8])],
               [info("y", ["b", 4, 1, 8])],
               [SCALE, *GROUPS])
    rng = np.random.default_rng(5)
    return {"q": rng.standard_normal((3, 4, 1, 8)).astype(np.float32)} | {
        x: rng.standard_normal((3, 2, 9, 8)).astype(np.float32) for x in "kv"}


def grouped_item(path):
    """A batch of one item whose heads share the keys in pairs, queries before heads: the attention has both as heads."""
    save_model(path, [*repeated("k"), *repeated("v"), node("Transpose", ["kr"], "kt", perm=[0, 1, 3, 2]),
                      node("Transpose", ["x"], "q", perm=[0, 2, 1, 3]), node("MatMul", ["q", "kt"], "s"),
                      *attention("s", False, "vr")[:-1], node("MatMul", ["w", "vr"], "t"),
                      node("Transpose", ["t"], "y", perm=[0, 2, 1, 3])],
               [info("x", [1, "n", 4, 8]), info("k", [1, 2, "n", 8]), info("v", [1, 2, "n", 8])],
               [info("y", [1, "n", 4, 8])], [SCALE, *GROUPS])
    rng = np.random.default_rng(11)
    q = rng.standard_normal((1, 4, 9, 8)).astype(np.float32)
    return {"x": q.swapaxes(1, 2)} | {x: rng.standard_normal((1, 2, 9, 8)).astype(np.float32) for x in "kv"}, {"q": q}


def grouped_masked(path):
    """A mask for each item, heads that share keys in pairs: the attention may have the group as its batch."""
    save_model(path, [*repeated("k"), *repeated("v"), node("Transpose", ["kr"], "kt", perm=[0, 1, 3, 2]),
                      node("MatMul", ["q", "kt"], "s"), *attention("s", True, "vr")],
               [info("q", [3, 4, 5, 8]), info("k", [3, 2, 9, 8]), info("v", [3, 2, 9, 8]), info("mask", [3, 1, 5, 9])],
               [info("y", [3, 4, 5, 8])], [SCALE, *GROUPS])
    rng = np.random.default_rng(17)
    mask = np.where(np.arange(9) < np.array([4, 7, 9]).reshape(3, 1, 1, 1), 0, -np.inf) * np.ones((3, 1, 5, 9))
    return {"q": rng.standard_normal((3, 4, 5, 8)).astype(np.float32), "mask": mask.astype(np.float32)} | {
        x: rng.standard_normal((3, 2, 9, 8)).astype(np.float32) for x in "kv"}


def grouped_apart(path):
    """The same, with groups in a dimension of their own."""
    queries, keys = [1, 2, 2, "n", 8], [1, 2, 1, "n", 8]
    save_model(path, [node("Transpose", ["k"], "kt", perm=[0, 1, 2, 4, 3]), node("Transpose", ["x"], "q", perm=[0, 2, 3, 1, 4]),
                      node("MatMul", ["q", "kt"], "s"), *attention("s", False, "v")],
               [info("x", [1, "n", 2, 2, 8]), info("k", keys), info("v", keys)], [info("y", queries)], [SCALE])
    rng = np.random.default_rng(13)
    q = rng.standard_normal((1, 2, 2, 9, 8)).astype(np.float32)
    feeds = {"x": np.moveaxis(q, 3, 1)} | {x: rng.standard_normal((1, 2, 1, 9, 8)).astype(np.float32) for x in "kv"}
    return feeds, {"q": q.reshape(1, 4, 9, 8), "k": feeds["k"][:, :, 0]}


def by_feature(path):
    """A softmax over positions for each feature of its own, whose scores come of learned queries: features are heads."""
    rng = np.random.default_rng(6)
    queries = rng.standard_normal((12, 12)).astype(np.float32)
    save_model(path, [node("MatMul", ["x", "queries"], "s"), node("Mul", ["s", "scale"], "scaled"),
                      node("Softmax", ["scaled"], "w", NODE, axis=1), node("Mul", ["w", "x"], "p"),
                      node("ReduceSum", ["p", "one"], "y", keepdims=0)],
               [info("x", ["b", "n", 12])], [info("y", ["b", 12])],
               [SCALE, numpy_helper.from_array(queries, "queries"), numpy_helper.from_array(np.array([1]), "one")])
    return {"x": rng.standard_normal((3, 5, 12)).astype(np.float32)}, {"queries": queries}


def behind_a_sink(path):
    """One more score of each row and head, whose weight is cut off: rows sum to less than 1."""
    sinks = np.array([[[0.3]], [[-2.0]], [[4.0]]], np.float32)
    rows = {name: numpy_helper.from_array(np.array(value), name) for name, value in
            {"zero": [0], "three": [3], "one": [1], "minus": [-1]}.items()}
    heads = ["b", 3, "n", 8]
    save_model(path, [node("Transpose", ["k"], "kt", perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], "s"), node("Mul", ["s", "scale"], "scaled"),
                      node("Add", ["scaled", "mask"], "biased"), node("Shape", ["biased"], "sizes"), node("Slice", ["sizes", "zero", "three"], "lead"),
                      node("Concat", ["lead", "one"], "column", axis=0), node("Expand", ["sinks", "column"], "sink"),
                      node("Concat", ["biased", "sink"], "both", axis=-1), node("Softmax", ["both"], "all", NODE, axis=-1),
                      node("Slice", ["all", "zero", "minus", "minus"], "w"), node("MatMul", ["w", "v"], "y")],
               [info("q", heads), info("k", heads), info("v", heads), info("mask", ["b", 1, "n", "n"])], [info("y", heads)],
               [SCALE, numpy_helper.from_array(sinks, "sinks"), *rows.values()])
    rng = np.random.default_rng(9)
    mask = np.zeros((2, 1, 9, 9), np.float32)
    mask[1, ..., 6:] = mask[0, 0, 4] = -np.inf  # a row sees nothing but the sink
    return {"mask": mask} | {x: rng.standard_normal((2, 3, 9, 8)).astype(np.float32) for x in "qkv"}, {"sinks": sinks}


def grouped_sink(path):
    """GroupQueryAttention with a sink and a batch of one item: 2 heads of keys, 4 of queries."""
    sinks = np.array([0.3, -2, 4, 1], np.float32)
    group = helper.make_node("GroupQueryAttention", [*"qkv", "", "", "last", "total", *[""] * 4, "sinks"], [*"y", "keys", "values"],
                             NODE, domain="com.microsoft", num_heads=4, kv_num_heads=2, scale=0.5)
    counts = [numpy_helper.from_array(np.array([value], np.int32), name) for name, value in (("last", 8), ("total", 9))]
    save_model(path, [group], [info("q", [1, 9, 32]), info("k", [1, 9, 16]), info("v", [1, 9, 16])], [info("y", [1, 9, 32])],
               [*counts, numpy_helper.from_array(sinks, "sinks")])
    rng = np.random.default_rng(12)
    feeds = {x: rng.standard_normal((1, 9, 8 * n)).astype(np.float32) for x, n in (("q", 4), ("k", 2), ("v", 2))}
    split = {x: value.reshape(1, 9, -1, 8).swapaxes(1, 2) for x, value in feeds.items()}
    later = np.where(np.tri(9, dtype=bool), 0, -np.inf)
    return feeds, split | {"mask": later, "sinks": sinks[:, None, None]}


def over_more_than_their_sum(path):
    """exp(s - max(s)) over the sum of a row and 0.5."""
    half = numpy_helper.from_array(np.float32(0.5), "half")
    heads = ["b", "h", "n", 8]
    save_model(path, [node("Transpose", ["k"], "kt", perm=[0, 1, 3, 2]), node("MatMul", ["q", "kt"], "s"), node("Mul", ["s", "half"], "scaled"),
                      node("ReduceMax", ["scaled"], "max", axes=[-1], keepdims=1), node("Sub", ["scaled", "max"], "shifted"),
                      node("Exp", ["shifted"], "e"), node("ReduceSum", ["e", "last"], "sum", keepdims=1), node("Add", ["sum", "half"], "total"),
                      node("Div", ["e", "total"], "w", NODE), node("MatMul", ["w", "v"], "y")],
               [info("q", heads), info("k", heads), info("v", heads)], [info("y", heads)],
               [half, numpy_helper.from_array(np.array([-1]), "last")])
    rng = np.random.default_rng(10)
    return {x: rng.standard_normal((2, 3, 7, 8)).astype(np.float32) for x in "qkv"}, {"more": np.float32(0.5)}


def scores_of(f):
    """Of the feeds: [.., query, key]."""
    if "s" in f:
        return f["s"]
    if "queries" in f:
        return np.swapaxes(f["x"] @ f["queries"], 1, 2)[:, :, None]
    k = f["k"] if f["k"].ndim != 4 else np.repeat(f["k"], f["q"].shape[1] // f["k"].shape[1], axis=1)
    return f["q"] @ np.swapaxes(k, -1, -2)


def reference(feeds):
    """Weights [batch, head, query, key] in float64."""
    f = {name: np.asarray(value, np.float64) for name, value in feeds.items()}
    s = scores_of(f)
    s = 0.5 * s + f.get("mask", 0)
    most = s.max(-1, keepdims=True)
    most = np.maximum(most, f["sinks"]) if "sinks" in f else most
    w = np.exp(s - most)
    w /= w.sum(-1, keepdims=True) + f.get("more", 0) + (np.exp(f["sinks"] - most) if "sinks" in f else 0)
    if w.ndim == 3:
        return w[:, None]
    if w.ndim == 5:
        return w[:, :, 0]
    return w.reshape((1,) * (4 - w.ndim) + w.shape)


def expected(w, is_open):
    """`is_open`: the number of keys is not fixed, and a top-3 always has three."""
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(w > 0, w * np.log(w), 0).sum(-1)
    keys = np.argsort(-w, axis=-1, kind="stable")[..., :3]
    top = np.take_along_axis(w, keys, -1)
    missing = [(0, 0)] * (w.ndim - 1) + [(0, 3 - keys.shape[-1] if is_open else 0)]
    return {"weights": w, "head_mean": w.mean(1), "argmax": w.argmax(-1), "entropy": entropy,
            "top_k_weights": np.pad(top, missing), "top_k_keys": np.pad(keys, missing)}


def call(*arguments, status=0):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    assert done.returncode == status, (arguments, done.returncode, done.stderr)
    return done


def run(library, feeds, outputs, folder, *more):
    folder.mkdir(exist_ok=True)
    for name, value in feeds.items():
        np.save(folder / f"{name}.npy", value)
    call(RUN, library, *(f"--input={n}=@{folder}/{n}.npy" for n in feeds),
         *(f"--output={o}=@{folder}/out-{k}.npy" for k, o in enumerate(outputs)), *more)
    return [np.load(folder / f"out-{k}.npy") for k in range(len(outputs))]


def check(name, write):
    folder = FOLDER / name
    folder.mkdir()
    model = folder / "model.onnx"
    feeds, learned = made if isinstance(made := write(model), tuple) else (made, {})
    call(ATTNC, model, "-o", folder / "plain.so", "--require-fused=1")
    call(ATTNC, model, "-o", folder / "exposed.so", f"--expose-attention={NODE}", f"--expose-attention-as={FORMS}",
         f"--fusion-report={folder}/report.json")
    verdict, = json.loads((folder / "report.json").read_text())
    assert verdict["exposed"] == [f"{NODE}.{suffix}" for suffix in SUFFIXES], verdict
    plain, = run(folder / "plain.so", feeds, ["y"], folder)
    y, *shown = run(folder / "exposed.so", feeds, ["y", *verdict["exposed"]], folder)
    assert y.tobytes() == plain.tobytes(), "the output has other bits"
    for (what, want), got in zip(expected(reference(feeds | learned), name not in ("cross", "scores", "key")).items(), shown):
        assert got.shape == want.shape, (what, got.shape, want.shape)
        assert got.dtype == (np.int64 if want.dtype.kind == "i" else np.float32), (what, got.dtype)
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-7, err_msg=what)
    print(f"{name}: {len(shown)} outputs agree")
    return model, folder, feeds


def check_errors(model, folder):
    target = folder / "refused.so"
    done = call(ATTNC, model, "-o", target, "--expose-attention=Nothing", status=1)
    assert f"no fused attention 'Nothing'; there are: {NODE}" in done.stderr, done
    for arguments in (["--expose-attention", "-O0"], ["--expose-attention", "--expose-attention-as=top-k:0"],
                      ["--expose-attention-as=weights"], ["--expose-attention", "--verify-fusion"]):
        done = call(ATTNC, model, "-o", target, *arguments, status=1)
        assert "--expose-attention" in done.stderr, done
    plain = folder / "relu.onnx"
    save_model(plain, [node("Relu", ["x"], "y")], [info("x", ["n"])], [info("y", ["n"])])
    done = call(ATTNC, plain, "-o", target, "--expose-attention", status=1)
    assert "there is no fused attention" in done.stderr, done
    assert not target.exists()
    done = call(RUN, folder / "plain.so", f"--attention-maps={folder}/maps", status=1)
    assert "--expose-attention" in done.stderr, done
    for more, message in (([f"--attention-image={model}"], "is neither a PNG nor a JPEG file"),
                          ([f"--attention-image={folder}/gone.png"], "--attention-image: cannot read"),
                          ([f"--attention-labels={model}"] * 3, "not 3 files")):
        done = call(RUN, folder / "exposed.so", f"--attention-maps={folder}/maps", *more, status=1)
        assert message in done.stderr, done
    cut = folder / "cut.png"
    cut.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(30))
    done = call(RUN, folder / "exposed.so", f"--attention-maps={folder}/maps", f"--attention-image={cut}", status=1)
    assert "is damaged or cut off" in done.stderr, done
    done = call(RUN, folder / "exposed.so", "--attention-maps=", status=1)
    assert "--attention-maps expects a folder" in done.stderr, done
    done = call(RUN, folder / "exposed.so", f"--attention-image={model}", status=1)
    assert "--attention-image belongs to --attention-maps" in done.stderr, done
    print("errors agree")


def check_entries(model, folder):
    """Entries with nodes of one name: one of them, or both, each with its own output."""
    library = folder / "entries.so"
    for nodes, shown in ((f"two:{NODE}", [[], [f"{NODE}.weights"]]), ("all", [[f"{NODE}.weights"]] * 2)):
        call(ATTNC, f"one={model}", f"two={model}", "-o", library, f"--expose-attention={nodes}",
             f"--fusion-report={folder}/report.json")
        verdicts = json.loads((folder / "report.json").read_text())
        assert [v.get("exposed", []) for v in verdicts] == shown, verdicts
        maps = folder / f"maps-{len(shown[0])}"
        call(RUN, library, "--entry=two", f"--attention-maps={maps}", "--dim=n:5")
        assert len(list(maps.glob("*.npy"))) == 1
        done = call(RUN, library, "--entry=one", f"--attention-maps={maps}", "--dim=n:5", status=0 if shown[0] else 1)
        assert shown[0] or "--entry=NAME takes another one: two" in done.stderr, done
    print("entries agree")


def check_long_names(folder):
    """The file of a long name says what it shows, and goes with the next run."""
    maps = folder / "long"
    for name in ("x" * 300 + "é", "y/z"):
        path = folder / "long.onnx"
        save_model(path, [node("Softmax", ["s"], "w", name, axis=-1), node("MatMul", ["w", "v"], "y")],
                   [info("s", ["n", 2]), info("v", [2, 4])], [info("y", ["n", 4])])
        call(RUN, path, f"--attention-maps={maps}", "--dim=n:3")
        stored, = maps.glob("*.npy")
        assert stored.name.endswith(".weights.npy") and len(stored.name) < 210, stored
    print("long names agree")


def check_unchanged(model):
    """What exposes nothing is the same code, beside an entry that exposes all, and every kernel that was there."""
    def functions(*options):
        ir = call(ATTNC, f"one={model}", f"two={model}", "--emit=llvm", "-o", "-", *options).stdout
        groups = dict(re.findall(r"^attributes (#\d+) = (.*)$", ir, re.M))  # numbered as they come
        ir = re.sub(r"#\d+", lambda number: groups.get(number[0], number[0]), ir)
        return {found[1]: found[0] for found in re.finditer(r"^define [^@]*@([^(]+)\(.*?^}", ir, re.S | re.M)}

    plain, exposed = functions(), functions(f"--expose-attention=two:{NODE}")
    changed = {name for name in plain if exposed.get(name) != plain[name]}
    assert changed == {"attn.entry.two", "attnrt_library_query"}, changed
    print("code unchanged")


def layers_of(page):
    """What a page draws, and it itself: rows of words, 65535 being 1."""
    text, = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    data = json.loads(text)
    for layer in data["layers"]:
        layer["drawn"] = np.frombuffer(base64.b64decode(layer["weights"]), "<u2").reshape(layer["shape"]) / 65535
    return data


def check_page(model, folder, feeds):
    labels = folder / "labels.txt"
    labels.write_text("".join(f"token {n} </script>\n" for n in range(17)))
    maps = folder / "maps"
    run(model, feeds, [], folder, f"--attention-maps={maps}", f"--attention-labels={labels}")
    stored, = maps.glob("*.npy")
    want = reference(feeds)
    np.testing.assert_allclose(np.load(stored), want, rtol=2e-6, atol=2e-7)
    page = (maps / "attention.html").read_text()
    assert "http://" not in page and "https://" not in page and " src=" not in page, "the page needs a network"
    layer, = layers_of(page)["layers"]
    assert layer["name"] == NODE and layer["shape"] == list(want.shape), layer["name"]
    assert layer["keyLabels"][16] == "token 16 </script>"
    np.testing.assert_allclose(layer["drawn"], want, atol=1 / 65535)
    np.testing.assert_allclose(np.reshape(layer["bits"], (2, 3)), expected(want, True)["entropy"].mean(-1) / np.log(2), atol=1e-5)
    # What an earlier run has left goes; what is not its own stays.
    (maps / "9-other.weights.npy").write_bytes(b"")
    (maps / "9-other.npy").write_bytes(b"")
    few = folder / "few.txt"
    few.write_text("a\nb\n")
    done = call(RUN, folder / "exposed.so", f"--attention-maps={maps}", "--dim=n:5", f"--attention-labels={few}")
    assert "2 labels are not shown: attentions have 5 keys" in done.stderr, done
    assert not (maps / "9-other.weights.npy").exists() and (maps / "9-other.npy").exists()
    print("page agrees")


def check_reductions(model, folder, feeds):
    """Reductions are drawn where there are no whole weights."""
    call(ATTNC, model, "-o", folder / "few.so", "--expose-attention", "--expose-attention-as=head-mean,argmax,entropy,top-k:3")
    maps = folder / "few"
    run(folder / "few.so", feeds, [], folder, f"--attention-maps={maps}")
    layers = {layer["form"]: layer for layer in layers_of((maps / "attention.html").read_text())["layers"]}
    want = expected(reference(feeds), True)
    w, rows = want["weights"], np.indices((2, 3, 17))
    largest, top = np.zeros_like(w), np.zeros_like(w)
    largest[(*rows, want["argmax"])] = 1
    for n in range(3):
        top[(*rows, want["top_k_keys"][..., n])] = want["top_k_weights"][..., n]
    entropy = np.swapaxes(want["entropy"], 1, 2)[:, None] / np.log(2)
    for form, drawn in {"mean": want["head_mean"][:, None], "argmax": largest, "top": top,
                        "entropy": entropy / entropy.max()}.items():
        np.testing.assert_allclose(layers[form]["drawn"], drawn[..., : layers[form]["shape"][3]], atol=2e-5, err_msg=form)
    assert len(layers) == 4 and all(layer["name"] == NODE for layer in layers.values()), layers.keys()
    np.testing.assert_allclose(layers["entropy"]["most"], entropy.max(), rtol=1e-5)
    np.testing.assert_allclose(np.reshape(layers["entropy"]["bits"], (2, 3)), entropy[:, 0].mean(1), atol=1e-5)
    assert "bits" not in layers["mean"] and "bits" not in layers["top"]
    print("reductions agree")


def check_large(model, folder):
    """A page is bounded: it draws some of many items, and groups of many positions."""
    maps = folder / "large"
    for sizes, shape, group, items in (({"b": 2, "h": 3, "n": 1030}, [2, 3, 344, 344], 3, 2),
                                       ({"b": 300, "h": 2, "n": 150}, [75, 2, 150, 150], 1, 300)):
        done = call(RUN, folder / "exposed.so", f"--attention-maps={maps}", *(f"--dim={n}:{size}" for n, size in sizes.items()))
        assert "draws a part of them" in done.stderr, done
        page = (maps / "attention.html").read_text()
        data = layers_of(page)
        layer, = data["layers"]
        assert layer["shape"] == shape and layer["group"] == [group] * 2 and data["items"] == items, (layer["shape"], layer["group"])
        assert layer["positions"] == [sizes["n"]] * 2 and len(page) < 13e6
        w, = (np.load(file)[: shape[0]].astype(np.float64) for file in maps.glob("*.weights.npy"))
        starts = range(0, sizes["n"], group)
        sums = np.add.reduceat(np.add.reduceat(w, starts, 2), starts, 3)
        sums /= np.diff([*starts, sizes["n"]])[:, None]
        np.testing.assert_allclose(layer["drawn"], sums, atol=1 / 65535)
        np.testing.assert_allclose(layer["bits"], expected(w, True)["entropy"].mean(-1).ravel() / np.log(2), rtol=1e-4)
    print("large page agrees")


model, folder, feeds = check("self", self_attention)
check("cross", cross_attention)
check("scores", given_scores)
check("one", one_item)
check("key", one_key)
check("query", one_query)
check("grouped", grouped_step)
check("grouped-item", grouped_item)
check("grouped-masked", grouped_masked)
check("grouped-apart", grouped_apart)
check("feature", by_feature)
check("sink", behind_a_sink)
check("grouped-sink", grouped_sink)
check("more", over_more_than_their_sum)
check_errors(model, folder)
check_entries(model, folder)
check_long_names(folder)
check_unchanged(model)
check_page(model, folder, feeds)
check_reductions(model, folder, feeds)
check_large(model, folder)
