#!/usr/bin/env python3
"""What a run sets of a search, against NumPy: check_settings.py ATTNC ATTN_RUN WORK [FLAG...]"""
import pathlib
import subprocess
import sys

import numpy as np

import check_folders
import folders

BEAMS, EOS = 3, folders.EOS
# Of the decoder alone, of that behind an encoder, which begins with one token.
ALONE = [dict(repetition_penalty=1.5, max_new_tokens=9), dict(no_repeat_ngram_size=2, max_new_tokens=9),
         dict(min_new_tokens=6, max_new_tokens=6, forced_eos_token_id=EOS),
         dict(forced_eos_token_id=7, max_new_tokens=4, begin_suppress_tokens=[3, 19])]
BEHIND = [dict(min_new_tokens=6, max_new_tokens=6, forced_eos_token_id=EOS),
          dict(forced_bos_token_id=2, begin_suppress_tokens=[1, 2], max_new_tokens=4),
          dict(forced_bos_token_id=9, begin_suppress_tokens=[19, 9, 4], max_new_tokens=4),
          dict(forced_bos_token_id=9, forced_eos_token_id=EOS, max_new_tokens=1, min_new_tokens=1)]


def beams(ids, mask, states, options, length):
    """The best of BEAMS, where no hypothesis ends before the last step."""
    results = []
    for row in range(len(ids)):
        lives = [(0.0, list(ids[row]))]
        state = None if states is None else states[row : row + 1]
        for step in range(length - ids.shape[1]):
            found = []
            for total, tokens in lives:
                seen = np.array([list(mask[row]) + [1] * step])
                x = folders.decoder(np.array([tokens]), seen, state)[0]
                x = x - x.max()
                x -= np.log(np.exp(x).sum())
                x = check_folders.process(x, tokens, ids.shape[1], length, options, int((mask[row] != 0).argmax()))
                found += [(total + x[token], tokens + [token]) for token in np.argsort(-x)[: 2 * BEAMS]]
            lives = sorted(found, key=lambda each: -each[0])[:BEAMS]
        assert all(EOS not in tokens[ids.shape[1] : -1] for _, tokens in lives)
        results.append(lives[0][1][ids.shape[1] :])
    return results


def flags(options):
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        dtype = "f32" if isinstance(value, float) else "i64"
        yield f"--input={name}={len(values)}x{dtype}={','.join(map(str, values))}"


def main(attnc, attn_run, work, *more):
    rng = np.random.default_rng(4)
    source = rng.integers(3, folders.VOCABULARY, (2, 5))
    for name, has_encoder, settings in (("alone", False, ALONE), ("behind", True, BEHIND)):
        folder = folders.write(work / name, "past", has_encoder)
        for kind in ("greedy", f"beam:{BEAMS}"):
            library = work / f"{name}.so"
            subprocess.run([attnc, folder, f"--generate={kind}", "-o", library, *more], check=True, stderr=subprocess.DEVNULL)
            if has_encoder:
                ids, mask = np.full((2, 1), folders.BOS), np.ones((2, 1), np.int64)
                given = dict(input_ids=source, attention_mask=np.ones_like(source))
                states = folders.encode(source, given["attention_mask"])
            else:
                ids = rng.integers(3, folders.VOCABULARY, (2, 5))
                ids[1, :3] = 12
                mask, states = np.ones_like(ids), None
                mask[1, :3] = 0
                given = dict(input_ids=ids, attention_mask=mask)
            for options in settings:
                if kind != "greedy" and "repetition_penalty" in options:
                    options = dict(options, min_new_tokens=9)
                length = ids.shape[1] + options["max_new_tokens"]
                if kind != "greedy":  # none may end before
                    options = dict(options, suppress_tokens=[] if "forced_eos_token_id" in options else [EOS])
                    if "forced_eos_token_id" in options:
                        options["min_new_tokens"] = options["max_new_tokens"]
                search = check_folders.greedy if kind == "greedy" else beams
                want = search(ids, mask, states, options, length)
                found = check_folders.run(attn_run, library, given, work, *flags({k: v for k, v in options.items() if v != []}))
                assert found == want, (name, kind, options, found, want)
            print(f"{name} {kind}: equal")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), *sys.argv[4:])
