#!/usr/bin/env python3
"""Attention in the steps of a search, given by --expose-attention, against float64.

check_exposed.py ATTNC ATTN_RUN WORK [NAME...]: what the returned tokens attended to is computed again in NumPy from
those tokens, for each hypothesis by itself; names are of CASES, with "cuda:" in front for a GPU.
"""
import base64
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

VOCABULARY, WIDTH, HEADS, SOURCE, PLACES = 11, 8, 2, 6, 5
EOS, BOS, LENGTH, PROMPT = (2, 5, 8), 1, 9, 3
SELF, CROSS, PLACE = "self/Softmax", "cross/Softmax", "place/Softmax"
FORMS = {"weights": "weights", "head-mean": "head_mean", "argmax": "argmax", "entropy": "entropy"}
CASES = {
    "greedy": ["--generate=greedy"],
    "sample": ["--generate=sample", "--sample-seed=5"],
    "beam": ["--generate=beam:4", "--n-best=3"],
    "shrink": ["--generate=beam:3", "--n-best=3", "--ended=shrink"],
    "prompt": ["--generate=beam:3", "--n-best=2", "--init=prefill"],
    "prompt-greedy": ["--generate=greedy", "--init=prefill"],
}
RNG = np.random.default_rng(4)
WEIGHTS = {"embed": 2 * RNG.standard_normal((VOCABULARY, WIDTH)), "places": RNG.standard_normal((40, WIDTH)),
           "landmarks": RNG.standard_normal((1, PLACES, WIDTH)), "out": RNG.standard_normal((WIDTH, VOCABULARY)),
           **{name: RNG.standard_normal((WIDTH, WIDTH)) for name in ("wq", "wk", "wv", "wc")}}
WEIGHTS = {name: value.astype(np.float32) for name, value in WEIGHTS.items()}


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def node(op, inputs, output, name=None, **attributes):
    return helper.make_node(op, inputs.split(), [output], name=name or output, **attributes)


def save_model(path, nodes, inputs, outputs):
    numbers = {"heads": np.array([0, 0, HEADS, -1]), "flat": np.array([0, -1, WIDTH]), "one": np.array([1]),
               "two": np.array([2]), "three": np.array([3]), "last": np.array([-1]), "half": np.float32(0.5)}
    initializers = [numpy_helper.from_array(v, k) for k, v in {**numbers, **WEIGHTS}.items()]
    save(helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, initializers),
                           opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def split_heads(x, out):
    return [node("Reshape", f"{x} heads", f"{out}_s"), node("Transpose", f"{out}_s", out, perm=[0, 2, 1, 3])]


def attend(query, key_transposed, value, name, out):
    return [node("MatMul", f"{query} {key_transposed}", f"{out}_s"), node("Mul", f"{out}_s half", f"{out}_h"),
            node("Softmax", f"{out}_h", f"{out}_w", name, axis=-1), node("MatMul", f"{out}_w {value}", out)]


def write_step(path):
    """Self-attention over caches that grow, attention to a source without heads, and one that is of the position alone and
    therefore the same in all rows."""
    nodes = [
        node("Gather", "embed token", "x2"), node("Unsqueeze", "x2 one", "x"),
        *(n for w in "qkv" for n in (node("MatMul", f"x w{w}", f"{w}_flat"), *split_heads(f"{w}_flat", f"{w}_new"))),
        node("Concat", "past_key k_new", "key", axis=2), node("Concat", "past_value v_new", "value", axis=2),
        node("Transpose", "key", "key_t", perm=[0, 1, 3, 2]), *attend("q_new", "key_t", "value", SELF, "mixed"),
        node("Transpose", "mixed", "mixed_t", perm=[0, 2, 1, 3]), node("Reshape", "mixed_t flat", "h"),
        node("MatMul", "h wc", "asked"), node("Transpose", "memory", "memory_t", perm=[0, 2, 1]),
        *attend("asked", "memory_t", "memory", CROSS, "read"),
        node("Shape", "past_key", "sizes"), node("Slice", "sizes two three", "position"),
        node("Gather", "places position", "p2"), node("Unsqueeze", "p2 one", "p"),
        node("Transpose", "landmarks", "landmarks_t", perm=[0, 2, 1]),
        *attend("p", "landmarks_t", "landmarks", PLACE, "seen"),
        node("Add", "h read", "y"), node("Add", "y seen", "z"), node("MatMul", "z out", "logits3"),
        node("Squeeze", "logits3 one", "logits"),
    ]
    cache, grown = (["batch", HEADS, size, WIDTH // HEADS] for size in ("past", "total"))
    save_model(path, nodes,
               [info("token", ["batch"], TensorProto.INT64), info("memory", ["batch", "source", WIDTH]),
                info("past_key", cache), info("past_value", cache)],
               [info("logits", ["batch", VOCABULARY]), info("key", grown), info("value", grown)])


def write_prefill(path):
    """Caches of a prompt, and scores of the first token."""
    nodes = [
        node("Gather", "embed ids", "x"),
        *(n for w, name in (("k", "key"), ("v", "value"))
          for n in (node("MatMul", f"x w{w}", f"{w}_flat"), *split_heads(f"{w}_flat", name))),
        node("Slice", "x last large one", "x_last"),
        node("Squeeze", "x_last one", "x_row"), node("MatMul", "x_row out", "logits"),
    ]
    nodes.insert(0, helper.make_node("Constant", [], ["large"], value_ints=[1 << 40]))
    cache = ["batch", HEADS, "prompt", WIDTH // HEADS]
    save_model(path, nodes, [info("ids", ["batch", "prompt"], TensorProto.INT64)],
               [info("logits", ["batch", VOCABULARY]), info("key", cache), info("value", cache)])


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attended(tokens, memory, prompt):
    """For each of the tokens of one hypothesis: what the step of its choice showed, [head, key] of each attention; None
    for a token that was chosen before the first step."""
    w = {name: value.astype(np.float64) for name, value in WEIGHTS.items()}
    keys = [(w["embed"][t] @ w["wk"]).reshape(HEADS, -1) for t in prompt]
    values = [(w["embed"][t] @ w["wv"]).reshape(HEADS, -1) for t in prompt]
    shown = [None] if len(prompt) else []
    given = list(tokens[:-1]) if len(prompt) else [BOS, *tokens[:-1]]
    for token in given:
        x = w["embed"][token]
        place = len(keys)
        keys.append((x @ w["wk"]).reshape(HEADS, -1))
        values.append((x @ w["wv"]).reshape(HEADS, -1))
        own = softmax(0.5 * np.einsum("hd,khd->hk", (x @ w["wq"]).reshape(HEADS, -1), np.array(keys)))
        h = np.einsum("hk,khd->hd", own, np.array(values)).reshape(-1)
        cross = softmax(0.5 * memory @ (h @ w["wc"]))
        shown.append({SELF: own, CROSS: cross[None],
                      PLACE: softmax(0.5 * w["landmarks"][0] @ w["places"][place])[None]})
    return shown


def table_of(shown, name, length, keys):
    """[head, token, key], 0 where there is nothing."""
    heads = HEADS if name == SELF else 1
    table = np.zeros((heads, length, keys))
    for t, step in enumerate(shown):
        if step is not None:
            table[:, t, : step[name].shape[-1]] = step[name]
    return table


def reduced(table, form):
    if form == "head-mean":
        return table.mean(0)
    if form == "entropy":
        with np.errstate(divide="ignore", invalid="ignore"):
            return -np.where(table > 0, table * np.log(table), 0).sum(-1)
    return table


def run(attn_run, library, given, outputs, work):
    command = [attn_run, library, "--entry=generate"]
    for key, value in given.items():
        np.save(work / f"{key}.npy", value)
        command.append(f"--input={key}=@{work / key}.npy")
    files = [work / f"out-{n}.npy" for n in range(len(outputs))]
    command += [f"--output={o}=@{f}" for o, f in zip(outputs, files)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [np.load(f) for f in files]


def check(case, attnc, attn_run, work):
    target, _, name = case.rpartition(":")
    flags = [*CASES[name], f"--eos={','.join(map(str, EOS))}", f"--max-length={LENGTH}", *([f"--target={target}"] if target else [])]
    has_prompt = "--init=prefill" in flags
    models = [f"step={work}/step.onnx", *([f"prefill={work}/prefill.onnx"] if has_prompt else [])]
    maps = ["--map=prefill.key:step.past_key", "--map=prefill.value:step.past_value"] if has_prompt else []
    flags += ["--state=past_key:key", "--state=past_value:value"] + maps + ([] if has_prompt else [f"--bos={BOS}"])
    plain, exposed, report = work / f"{name}.so", work / f"{name}-exposed.so", work / f"{name}.json"
    subprocess.run([attnc, *models, *flags, "-o", plain], check=True)
    subprocess.run([attnc, *models, *flags, "-o", exposed, *(f"--expose-attention=generate:{n}" for n in (SELF, CROSS, PLACE)),
                    f"--expose-attention-as={','.join(FORMS)}", f"--fusion-report={report}"], check=True)
    verdicts = [v for v in json.loads(report.read_text()) if v.get("entry") == "generate"]
    outputs = [o for v in verdicts for o in v.get("exposed", [])]
    assert set(outputs) == {f"{n}.{s}" for n in (SELF, CROSS, PLACE) for s in FORMS.values()}, verdicts
    ended = 0
    for batch in (1, 4):
        rng = np.random.default_rng(batch + len(name))
        given = {"memory": rng.standard_normal((batch, SOURCE, WIDTH)).astype(np.float32)}
        if has_prompt:
            given["ids"] = rng.integers(3, VOCABULARY, (batch, PROMPT))
        else:
            given |= {p: np.zeros((batch, HEADS, 0, WIDTH // HEADS), np.float32) for p in ("past_key", "past_value")}
        chosen = ["tokens", "lengths", "scores"]
        before = run(attn_run, plain, given, chosen, work)
        got = run(attn_run, exposed, given, chosen + outputs, work)
        for x, y in zip(before, got):
            assert x.tobytes() == y.tobytes(), f"{name}: the search has other results"
        tokens, lengths = got[0], got[1]
        length = tokens.shape[-1]
        for item in np.ndindex(lengths.shape):
            count = lengths[item]
            ended += count < length
            shown = attended(tokens[item][:count], given["memory"][item[0]].astype(np.float64),
                             given["ids"][item[0]] if has_prompt else [])
            for output, values in zip(outputs, got[3:]):
                node_name, suffix = output.rsplit(".", 1)
                form = next(f for f, s in FORMS.items() if s == suffix)
                longest = (PROMPT if has_prompt else 0) + length - has_prompt
                table = table_of(shown, node_name, length, {SELF: longest, CROSS: SOURCE, PLACE: PLACES}[node_name])
                if form == "argmax":  # equal tokens have equal keys
                    assert values[item].shape == table.shape[:-1], (output, values.shape)
                    picked = np.take_along_axis(table, values[item][..., None], -1)[..., 0]
                    assert (picked >= table.max(-1) - 1e-5).all(), (case, output, item)
                    continue
                want = reduced(table, form)
                assert values[item].shape == want.shape, (output, values.shape, want.shape)
                np.testing.assert_allclose(values[item], want, rtol=1e-4, atol=1e-5, err_msg=f"{case} {output} {item}")
    check_page(attn_run, exposed, given, got[3 + outputs.index(f"{SELF}.weights")], work)
    print(f"{case}: {len(outputs)} outputs agree, {ended} ended early")


def check_page(attn_run, library, given, weights, work):
    """Draws each hypothesis as an item."""
    maps = work / "maps"
    files = [f"--input={key}=@{work / key}.npy" for key in given]
    subprocess.run([attn_run, library, "--entry=generate", *files, f"--attention-maps={maps}"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    text, = re.findall(r'<script type="application/json" id="data">(.*?)</script>',
                       (maps / "attention.html").read_text(), re.S)
    layer = next(one for one in json.loads(text)["layers"] if one["name"] == SELF)
    items = weights.reshape(-1, *weights.shape[-3:])
    assert layer["shape"] == list(items.shape), (layer["shape"], weights.shape)
    assert layer.get("hypotheses", 1) == (weights.shape[1] if weights.ndim == 5 else 1), layer["hypotheses"]
    drawn = np.frombuffer(base64.b64decode(layer["weights"]), "<u2").reshape(items.shape) / 65535
    np.testing.assert_allclose(drawn, items, atol=1 / 65535)


if __name__ == "__main__":
    attnc, attn_run, work = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    work.mkdir(parents=True, exist_ok=True)
    write_step(work / "step.onnx")
    write_prefill(work / "prefill.onnx")
    for each in sys.argv[4:] or CASES:
        check(each, attnc, attn_run, work)
