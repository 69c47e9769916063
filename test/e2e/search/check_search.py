#!/usr/bin/env python3
"""Compares `generate` of a compiled library with the search of reference.py around the same step in ONNX Runtime.

check_search.py ATTNC ATTN_RUN MODELS WORK [NAME...]: MODELS is test/e2e/models; NAME... are cases of CASES, with
"cuda:" in front for a GPU.
"""
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime as ort

import reference

LUONG = dict(model="luong_dot_step_ts17", states=["feed", "h1", "c1", "h2", "c2"], constants=["memory", "mask"],
             outputs=["next_feed", "next_h1", "next_c1", "next_h2", "next_c2"], logits="logits", attention="alignment")
BAHDANAU = dict(model="bahdanau_step_ts13", states=["state"], constants=["memory", "keys", "mask"],
                outputs=["next_state"], logits="log_probs", attention="alignment")
GPT2 = dict(model="gpt2_decode_ts17", states=["past_0_key", "past_0_value", "past_1_key", "past_1_value"],
            constants=[], outputs=["present_0_key", "present_0_value", "present_1_key", "present_1_value"],
            logits="logits", attention=None, mask="attention_mask", token="input_ids")

CASES = {
    "greedy": (LUONG, dict(), 12),
    "greedy-min": (LUONG, dict(min_length=5), 9),
    "greedy-bahdanau": (BAHDANAU, dict(), 15),
    "greedy-gpt2": (GPT2, dict(), 26),
    "beam": (LUONG, dict(width=4), 12),
    "beam-best": (LUONG, dict(width=4, n_best=4, alpha=1.0), 12),
    "beam-gnmt": (LUONG, dict(width=5, n_best=3, alpha=0.6, gnmt=True, min_length=3), 15),
    "beam-shrink": (LUONG, dict(width=4, n_best=4, shrink=True), 12),
    "beam-early": (LUONG, dict(width=3, n_best=3, early_stop=True), 14),
    "beam-coverage": (LUONG, dict(width=4, n_best=4, alpha=0.8, coverage=0.7), 12),
    "beam-coverage-early": (BAHDANAU, dict(width=3, n_best=3, gnmt=True, alpha=0.6, coverage=3.0, early_stop=True), 12),
    "beam-coverage-shrink": (LUONG, dict(width=4, n_best=2, coverage=2.0, shrink=True), 12),
    "greedy-argmax": (BAHDANAU, dict(argmax=True), 9),
    "beam-argmax": (LUONG, dict(width=4, n_best=3, argmax=True), 12),
    "beam-one": (LUONG, dict(width=1), 8),
    "beam-wide": (BAHDANAU, dict(width=50, n_best=7), 5),
    "beam-bahdanau": (BAHDANAU, dict(width=5, n_best=2, alpha=1.0), 12),
    "beam-gpt2": (GPT2, dict(width=4, n_best=2, alpha=1.0), 26),
    "beam-no-end": (BAHDANAU, dict(width=3, eos=()), 6),
    "sample": (LUONG, dict(seed=7), 12),
    "sample-k": (LUONG, dict(seed=8, top_k=5, temperature=1.5), 12),
    "sample-p": (BAHDANAU, dict(seed=9, top_p=0.7, temperature=0.8, min_length=4), 12),
    "sample-kp": (GPT2, dict(seed=2**40 + 3, top_k=10, top_p=0.9), 12),
}


def make_inputs(spec, model, batch, rng):
    """Random inputs, with ragged masks and states of ones and twos so that ends come at different times."""
    sizes = {"batch": batch, "source": 7, "past": 3, "total": 4}
    result = {}
    for value in model.graph.input:
        shape = [d.dim_value or sizes[d.dim_param] for d in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            result[value.name] = rng.normal(size=shape).astype(np.float32)
        elif value.name in ("mask", "attention_mask"):
            result[value.name] = np.ones(shape, np.int64)
            for row in range(1, batch):
                result[value.name][row, shape[1] - row % 3 :] = 0 if value.name == "mask" else 1
                if value.name == "attention_mask":
                    result[value.name][row, : row % 3] = 0
    return result


def reference_of(spec, session, given, options, length, eos, bos):
    token = spec.get("token", "token")
    wide = len(next(i for i in session.get_inputs() if i.name == token).shape) == 2
    names = spec["outputs"] + [spec["logits"]] + ([spec["attention"]] if spec["attention"] else [])
    mask = spec.get("mask")

    def step(tokens, states):
        feed = dict(zip(spec["states"] + spec["constants"] + ([mask] if mask else []), states))
        feed[token] = tokens.reshape(-1, 1) if wide else tokens
        out = dict(zip(names, session.run(names, feed)))
        scores = out[spec["logits"]]
        after = [out[n] for n in spec["outputs"]] + [feed[n] for n in spec["constants"]]
        if mask:
            after.append(np.concatenate([feed[mask], np.ones_like(feed[mask][:, :1])], 1))
        return scores.reshape(len(scores), -1), after, out.get(spec["attention"])

    states = [given[n] for n in spec["states"] + spec["constants"] + ([mask] if mask else [])]
    first = np.full(len(states[0]), bos, np.int64)
    options = {k: v for k, v in options.items() if k not in ("eos", "argmax")}
    if "width" in options:
        return reference.beam(step, states, first, eos, length, **options)
    choose = None
    if "seed" in options:
        knobs = {k: v for k, v in options.items() if k != "min_length"}
        choose = reference.sampler(knobs.pop("seed"), eos, **knobs)
    return reference.greedy(step, states, first, eos, length, options.get("min_length", 0), choose)


def flags(options, length, eos, bos):
    if "width" in options:
        result = [f"--generate=beam:{options['width']}", f"--n-best={options.get('n_best', 1)}"]
    else:
        result = ["--generate=sample" if "seed" in options else "--generate=greedy"]
    result += [f"--bos={bos}", f"--max-length={length}", f"--min-length={options.get('min_length', 0)}"]
    if eos:
        result.append("--eos=" + ",".join(map(str, eos)))
    if "alpha" in options:
        result.append(f"--length-penalty={'gnmt:' if options.get('gnmt') else ''}{options['alpha']}")
    if "coverage" in options:
        result.append(f"--coverage-penalty={options['coverage']}")
    if options.get("shrink"):
        result.append("--ended=shrink")
    if options.get("early_stop"):
        result.append("--early-stop")
    for name in ("top_k", "top_p", "temperature"):
        if name in options:
            result.append(f"--{name.replace('_', '-')}={options[name]}")
    if "seed" in options:
        result.append(f"--sample-seed={options['seed']}")
    return result


def check(case, attnc, attn_run, models, work):
    target, _, name = case.rpartition(":")
    spec, options, length = CASES[name]
    if target:  # an interpreter of its code takes its time
        length = min(length, 7)
    path = models / spec["model"] / "model.onnx"
    model = onnx.load(path)
    session = ort.InferenceSession(path)
    bos = 1
    ends = 0
    for batch in (1, 5):
        rng = np.random.default_rng(len(name) * 100 + batch)
        given = make_inputs(spec, model, batch, rng)
        # Ends that do come: tokens that a search without ends chooses early.
        eos = options.get("eos")
        if eos is None:
            if batch == 1:
                rows = make_inputs(spec, model, 6, rng)
                free = reference_of(spec, session, rows, {}, 6, (), bos)
                flat = [t for tokens in free[0] for t in tokens[2:]]
                chosen = sorted(set(flat), key=lambda t: -flat.count(t))[:2]
            eos = tuple(chosen[:1] if "no-two" in name else chosen)
        library = work / f"{name}.so"
        if batch == 1:
            extra = [f"--alignment={spec['attention']}"] if spec["attention"] else []
            extra += ["--alignment-argmax"] if "argmax" in options else []
            extra += [f"--target={target}"] if target else []
            subprocess.run([attnc, f"step={path}", "-o", library] + flags(options, length, eos, bos) + extra, check=True)
        want = reference_of(spec, session, given, options, length, eos, bos)
        command = [attn_run, library, "--entry=generate"]
        for key, value in given.items():
            if key != spec.get("token", "token"):
                np.save(work / f"{key}.npy", value)
                command.append(f"--input={key}=@{work / key}.npy")
        outputs = ["tokens", "lengths", "scores"] + (["alignment"] if spec["attention"] else [])
        command += [f"--output={o}=@{work / o}.out.npy" for o in outputs]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        got = {o: np.load(work / f"{o}.out.npy") for o in outputs}
        if "width" in options:
            rows = [(got["tokens"][b, n], got["lengths"][b, n], got["scores"][b, n],
                     got["alignment"][b, n] if spec["attention"] else None, *want[b][n])
                    for b in range(batch) for n in range(options.get("n_best", 1)) if n < len(want[b])]
        else:
            rows = [(got["tokens"][r], got["lengths"][r], got["scores"][r],
                     got["alignment"][r] if spec["attention"] else None, want[2][r], want[0][r], want[3][r])
                    for r in range(batch)]
        for tokens, count, score, weights, wanted, sequence, extras in rows:
            assert list(tokens[:count]) == sequence, (name, list(tokens), count, sequence, score, wanted)
            assert (tokens[count:] == (eos[0] if eos else 0)).all(), (name, tokens, count)
            assert abs(score - wanted) <= 1e-4 * max(1, abs(wanted)), (name, score, wanted)
            ends += count < length
            if weights is not None and "argmax" in options:
                assert weights[:count].tolist() == [e.argmax() for e in extras], (name, weights, extras)
                assert (weights[count:] == -1).all()
            elif weights is not None:
                np.testing.assert_allclose(weights[:count], np.stack(extras), atol=1e-5, err_msg=name)
                assert (weights[count:] == 0).all()
    print(f"{case}: equal, {ends} ended early")


if __name__ == "__main__":
    attnc, attn_run, models, work = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4])
    work.mkdir(parents=True, exist_ok=True)
    for each in sys.argv[5:] or CASES:
        check(each, attnc, attn_run, models, work)
