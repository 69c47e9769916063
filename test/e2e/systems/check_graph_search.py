#!/usr/bin/env python3
"""A search that a graph asks for equals one in NumPy around the step's formulas: tokens, lengths and scores.

    check_graph_search.py [--tools=build/bin]
"""
import json
import pathlib
import sys
import tempfile

import numpy as np
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "search")]
import check_systems  # noqa: E402
import reference  # noqa: E402
import registry  # noqa: E402

TOOLS = pathlib.Path(next((a.split("=")[1] for a in sys.argv if a.startswith("--tools=")), "build/bin"))
CASES = [dict(kind="greedy"), dict(kind="beam", width=4, n_best=2, length_penalty=1.0, gnmt=True), dict(kind="beam", width=3, ended="shrink"),
         dict(kind="sample", seed=11, top_k=5, temperature=1.5)]
failed = 0
system = registry.SYSTEMS["bahdanau"]
weights = check_systems.draw(system)
net = registry.net(weights)
rng = np.random.default_rng(5)
given = {k: v for k, v in next(f for e, f in system.cases(rng) if e == "step").items() if k != "token"}


def step(tokens, states):
    state, memory, keys, mask = states
    out = system.reference(net, "step", token=tokens, state=state, memory=memory, keys=keys, mask=mask)
    return out["log_probs"].astype(np.float32), [out["next_state"], memory, keys, mask], out["alignment"]


states = [given[k] for k in ("state", "memory", "keys", "mask")]
first = np.ones(len(states[0]), np.int64)
free = reference.greedy(step, states, first, (), 6)[0]
eos = [int(free[0][3])]
for case in CASES:
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        graph = json.loads((HERE / "bahdanau.json").read_text())
        graph["search"] = {"step": "step", "bos": 1, "eos": eos, "max_length": 9, "alignment": "alignment", **case}
        (folder / "bahdanau.json").write_text(json.dumps(graph))
        save_file(weights, folder / "bahdanau.safetensors")
        library = check_systems.Library(folder, TOOLS, folder / "bahdanau.json")
        if case["kind"] != "beam":
            choose = reference.sampler(11, tuple(eos), case["temperature"], case["top_k"]) if case["kind"] == "sample" else None
            tokens, lengths, scores, _ = reference.greedy(step, states, first, tuple(eos), 9, choose=choose)
            want = [[(s, t)] for s, t in zip(scores, tokens)]
        else:
            want = [[(s, t) for s, t, _ in item] for item in
                    reference.beam(step, states, first, tuple(eos), 9, case["width"], case.get("n_best", 1),
                                   alpha=case.get("length_penalty", 0.0), gnmt=case.get("gnmt", False), shrink=case.get("ended") == "shrink")]
        got = library("generate", given, ["tokens", "lengths", "scores"])
        n = case.get("n_best", 1)
        tokens, lengths, scores = (got[k].reshape(len(want), n, *got["tokens"].shape[-1:] if k == "tokens" else ()) for k in ("tokens", "lengths", "scores"))
        same = all(list(tokens[b, k, :lengths[b, k]]) == list(t) and abs(scores[b, k] - s) < 1e-4 * (1 + abs(s))
                   for b, item in enumerate(want) for k, (s, t) in enumerate(item))
        failed += not same
        print(f"{case}: {'equal' if same else 'differs'}")
sys.exit(bool(failed))
