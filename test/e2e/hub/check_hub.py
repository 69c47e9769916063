#!/usr/bin/env python3
"""Tokens of `attnc FOLDER --generate` against transformers' `generate`: check_hub.py ATTNC ATTN_RUN MODELS ARCH[-LAYOUT]...

MODELS holds what hub_models.py wrote. For each folder and kind of search: 50 inputs, in batches of 1 and 8, prompts
of 1 and 7 tokens, some padded on the left. Rows that differ are ties if the scores of both agree within 1e-4. Needs
torch and transformers, which no test installs: run by hand.
"""
import pathlib
import subprocess
import sys

import numpy as np
import torch
import transformers

import hub_models

# A draw from the best token alone is the best token, whatever the seed.
KINDS = {"greedy": dict(num_beams=1), "beam:4": dict(num_beams=4), "sample": dict(num_beams=1)}


def inputs_of(arch, rng, batch, prompt, start):
    """What transformers' generate is given, by name."""
    draw = lambda n: rng.integers(3, hub_models.VOCABULARY, (batch, n))
    if hub_models.source(arch) is None:
        mask = np.ones((batch, prompt), np.int64)
        for row in range(batch):
            mask[row, : min(row % 4, prompt - 1)] = 0
        return dict(input_ids=draw(prompt), attention_mask=mask)
    given = {}
    for name, example, _ in hub_models.source(arch):
        if name == "attention_mask":
            given[name] = np.ones((batch, 6), np.int64)
            for row in range(batch):
                given[name][row, 6 - row % 4 :] = 0
        elif example.dtype == torch.int64:
            given[name] = draw(6)
        else:
            given[name] = rng.normal(size=(batch, *example.shape[1:])).astype(np.float32)
    if prompt > 1:
        given["decoder_input_ids"] = draw(prompt)
        given["decoder_input_ids"][:, 0] = start  # or transformers puts it in front
    return given


def generate(model, given, kind):
    more = {}
    if isinstance(model, transformers.WhisperForConditionalGeneration):
        # Its own `generate` counts the first token otherwise.
        more["max_new_tokens"] = model.generation_config.max_length - given.get("decoder_input_ids", np.ones((1, 1))).shape[1]
    with torch.no_grad():
        out = model.generate(**{n: torch.from_numpy(x) for n, x in given.items()}, do_sample=False,
                             return_dict_in_generate=True, output_scores=True, **KINDS[kind], **more)
    return out.sequences.numpy(), getattr(out, "sequences_scores", None)


def run(attn_run, library, given, work):
    command = [attn_run, library]
    for name, x in given.items():
        np.save(work / f"{name}.npy", x)
        command.append(f"--input={name}=@{work}/{name}.npy")
    names = ("tokens", "lengths", "scores")
    command += [f"--output={n}=@{work}/{n}.npy" for n in names]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [np.load(work / f"{n}.npy") for n in names]


def check(attnc, attn_run, folder, arch, kind, work, count=50):
    model = hub_models.make(arch)
    library = work / "m.so"
    subprocess.run([attnc, folder, f"--generate={kind}", "-o", library], check=True, stderr=subprocess.DEVNULL)
    same = ties = 0
    rng = np.random.default_rng(5)
    for batch, prompt in ((1, 1), (1, 7), (8, 1), (8, 7)):
        for first in range(0, count if batch == 8 else 6, batch):
            given = inputs_of(arch, rng, batch, prompt, model.generation_config.decoder_start_token_id)
            wanted, totals = generate(model, given, kind)
            best = dict(top_k=np.array([1])) if kind == "sample" else {}
            tokens, lengths, scores = run(attn_run, library, given | best, work)
            if kind == "beam:4":
                tokens, lengths, scores = tokens[:, 0], lengths[:, 0], scores[:, 0]
            begin = prompt if "decoder_input_ids" in given or hub_models.source(arch) is None else 1
            for row in range(batch):
                found, want = tokens[row][: lengths[row]].tolist(), wanted[row][begin:].tolist()
                if (tokens[row][lengths[row] :] != hub_models.PAD).any():
                    sys.exit(f"{folder.name} {kind}: row {row} is padded with {tokens[row][lengths[row] :]}")
                # transformers fills rows that ended early with the token of padding, and those of beams with their end.
                if found == want[: len(found)] and set(want[len(found) :]) <= {hub_models.PAD, hub_models.EOS}:
                    same += 1
                elif totals is not None and abs(float(totals[row]) - scores[row]) < 1e-4:
                    ties += 1
                else:
                    sys.exit(f"{folder.name} {kind}, batch {batch}, prompt {prompt}, row {row}:\n{found} {scores[row]}\n"
                             f"transformers {want} {None if totals is None else float(totals[row])}")
    print(f"{folder.name} {kind}: {same} equal, {ties} ties", flush=True)


if __name__ == "__main__":
    attnc, attn_run, models = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    work = models / "work"
    work.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    for name in sys.argv[4:]:
        for folder in sorted(models.glob(f"{name}*")):
            for kind in KINDS:
                check(attnc, attn_run, folder, folder.name.split("-")[0], kind, work)
