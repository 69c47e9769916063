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
import ctc_reference  # noqa: E402
import reference  # noqa: E402
import registry  # noqa: E402

TOOLS = pathlib.Path(next((a.split("=")[1] for a in sys.argv if a.startswith("--tools=")), "build/bin"))
CASES = [dict(kind="greedy"), dict(kind="beam", width=4, n_best=2, length_penalty=1.0, gnmt=True), dict(kind="beam", width=3, ended="shrink"),
         dict(kind="beam", width=3, n_best=2, coverage_penalty=1.5), dict(kind="sample", seed=11, top_k=5, temperature=1.5)]
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
                                   alpha=case.get("length_penalty", 0.0), gnmt=case.get("gnmt", False), shrink=case.get("ended") == "shrink",
                                   coverage=case.get("coverage_penalty", 0.0))]
        got = library("generate", given, ["tokens", "lengths", "scores"])
        n = case.get("n_best", 1)
        tokens, lengths, scores = (got[k].reshape(len(want), n, *got["tokens"].shape[-1:] if k == "tokens" else ()) for k in ("tokens", "lengths", "scores"))
        same = all(list(tokens[b, k, :lengths[b, k]]) == list(t) and abs(scores[b, k] - s) < 1e-4 * (1 + abs(s))
                   for b, item in enumerate(want) for k, (s, t) in enumerate(item))
        failed += not same
        print(f"{case}: {'equal' if same else 'differs'}")


def run_search(system, search, given, flags=()):
    """`generate` of the system with this search: in its graph, or from the command line."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        graph = json.loads((HERE / f"{system.name}.json").read_text())
        if search:
            graph["search"] = search
        (folder / f"{system.name}.json").write_text(json.dumps(graph))
        save_file(check_systems.draw(system), folder / f"{system.name}.safetensors")
        library = check_systems.Library(folder, TOOLS, folder / f"{system.name}.json", flags=flags)
        return library("generate", given, ["tokens", "lengths", "scores"])


# The CTC head of listen, attend and spell; of some frames, as the caller says.
system = registry.SYSTEMS["listen_attend_spell"]
net = registry.net(check_systems.draw(system))
given = next(f for e, f in system.cases(rng) if e == "listen" and len(f["frames"]) == 3 or e == "listen")
scores = system.reference(net, "listen", **given)["ctc"]
for search, flags in ((dict(kind="ctc_greedy", step="listen", logits="ctc", blank=3), []),
                      (dict(kind="ctc_beam", width=6, n_best=3, step="listen", blank=3), []),
                      (None, ["--generate=ctc-beam:6", "--n-best=3", "--step=listen", "--blank=3"])):
    got = run_search(system, search, given, flags)
    n = got["scores"].size // len(scores)
    tokens, lengths, totals = (got[k].reshape(len(scores), n, *got["tokens"].shape[-1:] if k == "tokens" else ()) for k in ("tokens", "lengths", "scores"))
    want = [ctc_reference.beam(x, 3, 6)[:3] if n > 1 else [ctc_reference.greedy(x, 3)] for x in scores]
    same = all(tuple(tokens[b, k, :lengths[b, k]]) == t and abs(totals[b, k] - s) < 1e-4 * (1 + abs(s))
               for b, item in enumerate(want) for k, (t, s) in enumerate(item))
    failed += not same
    print(f"{search or flags}: {'equal' if same else 'differs'}")

# An entry that makes the states: from the graph, and from the command line.
system = registry.SYSTEMS["bahdanau"]
net = registry.net(check_systems.draw(system))
source = next(f for e, f in system.cases(rng) if e == "encode")
start = system.reference(net, "encode", **source)
source["mask"] = (np.arange(source["source"].shape[1]) < source["lengths"][:, None]).astype(np.int64)
states = [start["state"], start["memory"], start["keys"], source["mask"]]
want = reference.beam(step, states, np.ones(len(source["mask"]), np.int64), tuple(eos), 9, 4, alpha=1.0)
fields = {"kind": "beam", "width": 4, "length_penalty": 1.0, "init": "encode", "bos": 1, "eos": eos, "max_length": 9}
asked = ["--generate=beam:4", "--length-penalty=1", "--init=encode", "--bos=1", f"--eos={eos[0]}", "--max-length=9"]
bounded = f"--dim=batch:1..{len(source['mask'])}"  # of the items: their beams are more rows
for search, flags in ((fields, []), (None, asked), (fields, [bounded, "--dim=source:1..64"]), (None, asked + [bounded])):
    got = run_search(system, search, source, flags)
    same = all(list(got["tokens"][b, 0, :got["lengths"][b, 0]]) == list(item[0][1]) and abs(got["scores"][b, 0] - item[0][0]) < 1e-4 * (1 + abs(item[0][0]))
               for b, item in enumerate(want))
    failed += not same
    print(f"init, {flags}: {'equal' if same else 'differs'}")
sys.exit(bool(failed))
