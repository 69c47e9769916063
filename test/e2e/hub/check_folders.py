#!/usr/bin/env python3
"""`attnc FOLDER --generate` against the same search in NumPy: check_folders.py ATTNC ATTN_RUN WORK [NAME...]"""
import pathlib
import subprocess
import sys

import numpy as np

import folders

PROCESSORS = dict(repetition_penalty=1.3, no_repeat_ngram_size=2, suppress_tokens=[5, 7], begin_suppress_tokens=[9],
                  forced_eos_token_id=folders.EOS, min_length=6)
CASES = {f"{kind}-{layout}": (layout, kind == "encoder", {}) for kind in ("decoder", "encoder")
         for layout in ("separate", "past", "merged", "single")}
CASES["decoder-processors"] = ("past", False, PROCESSORS)
CASES["encoder-processors"] = ("merged", True, dict(PROCESSORS, forced_bos_token_id=4))
# What is forced is more than a forbidden word or the least length.
CASES["encoder-forced"] = ("past", True, dict(forced_bos_token_id=4, forced_eos_token_id=folders.EOS, min_length=14,
                                              bad_words_ids=[[4], [folders.EOS], [11]], begin_suppress_tokens=[4, 19]))
# The columns of the mask are called as the batch, or as the rows of the cache: the name is none.
MISNAMED = {f"decoder-{layout}-{name}": name for layout, name in (("merged", "past_sequence_length"), ("single", "batch_size"))}
CASES |= {name: (name.split("-")[1], False, {}) for name in MISNAMED}


def process(scores, ids, prompt, length, options, hidden=0):
    """As transformers' processors do, in their order, on one row. The first `hidden` tokens of its prompt are padding."""
    scores = scores.copy()
    seen = np.array(sorted(set(ids[hidden:])))
    penalty = options.get("repetition_penalty", 1)
    scores[seen] = np.where(scores[seen] < 0, scores[seen] * penalty, scores[seen] / penalty)
    n = options.get("no_repeat_ngram_size", 0)
    if n and len(ids) + 1 >= n:
        for i in range(len(ids) - n + 1):
            if list(ids[i : i + n - 1]) == list(ids[len(ids) - n + 1 :]):
                scores[ids[i + n - 1]] = -np.inf
    for (word,) in options.get("bad_words_ids", []):
        if word != folders.EOS:
            scores[word] = -np.inf
    if len(ids) < options.get("min_length", 0) or len(ids) - prompt < options.get("min_new_tokens", 0):
        scores[folders.EOS] = -np.inf
    for forces, name in ((len(ids) == 1, "forced_bos_token_id"), (len(ids) == length - 1, "forced_eos_token_id")):
        if forces and name in options:
            scores[:] = -np.inf
            scores[options[name]] = 0
    for token in options.get("suppress_tokens", []):
        scores[token] = -np.inf
    if len(ids) == prompt + (prompt == 1 and "forced_bos_token_id" in options):
        for token in options.get("begin_suppress_tokens", []):
            scores[token] = -np.inf
    return scores


def greedy(ids, mask, states, options, length=14):
    results = []
    for row in range(len(ids)):
        tokens, seen = list(ids[row]), list(mask[row])
        while len(tokens) < length:
            scores = folders.decoder(np.array([tokens]), np.array([seen]), None if states is None else states[row : row + 1])[0]
            hidden = int((mask[row] != 0).argmax())
            tokens.append(int(process(scores, tokens, ids.shape[1], length, options, hidden).argmax()))
            seen.append(1)
            if tokens[-1] == folders.EOS:
                break
        results.append(tokens[ids.shape[1] :])
    return results


def run(attn_run, library, given, work, *more):
    command = [attn_run, library, *more]
    for name, x in given.items():
        np.save(work / f"{name}.npy", x)
        command.append(f"--input={name}=@{work}/{name}.npy")
    command += [f"--output={n}=@{work}/{n}.npy" for n in ("tokens", "lengths")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    tokens, lengths = (np.load(work / f"{n}.npy") for n in ("tokens", "lengths"))
    if tokens.ndim == 3:
        tokens, lengths = tokens[:, 0], lengths[:, 0]
    assert all((row[n:] == folders.PAD).all() for row, n in zip(tokens, lengths)), tokens
    return [row[:n].tolist() for row, n in zip(tokens, lengths)]


def check(name, attnc, attn_run, work):
    layout, has_encoder, options = CASES[name]
    folder, library = folders.write(work / name, layout, has_encoder, **options), work / f"{name}.so"
    if name in MISNAMED:
        folders.call_columns(folder, MISNAMED[name])
    # A beam of one is greedy, by the code of beams.
    for kind in ("greedy", "beam:1"):
        if kind == "beam:1" and "repetition_penalty" in options:
            continue  # counts logarithms of probabilities less
        # What writes the IR down checks it, too, after each pass.
        dump = [f"--dump-ir={work / name}-ir"] if kind == "greedy" else []
        subprocess.run([attnc, folder, f"--generate={kind}", "-o", library, *dump], check=True, stderr=subprocess.DEVNULL)
        rng = np.random.default_rng(4)
        for batch, prompt in ((1, 1), (1, 7), (3, 1), (3, 7)):
            ids = rng.integers(3, folders.VOCABULARY, (batch, prompt))
            mask, given, states = np.ones_like(ids), {}, None
            if has_encoder:
                source = rng.integers(3, folders.VOCABULARY, (batch, 5))
                given = dict(input_ids=source, attention_mask=np.ones_like(source))
                given["attention_mask"][batch - 1, 3:] = 0
                states = folders.encode(source, given["attention_mask"])
                if prompt == 1:
                    ids[:] = folders.BOS
                else:
                    given["decoder_input_ids"] = ids
            else:
                given = dict(input_ids=ids)
                if batch > 1:
                    mask[1, : prompt // 2] = 0
                    given["attention_mask"] = mask
            found, want = run(attn_run, library, given, work), greedy(ids, mask, states, options)
            assert found == want, (name, kind, batch, prompt, found, want)
    print(f"{name}: equal")


if __name__ == "__main__":
    attnc, attn_run, work = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    for each in sys.argv[4:] or CASES:
        check(each, attnc, attn_run, work)
