"""Continuous batching beside one sequence at a time, on GPT-2 small with random weights: decoding.py [STREAMS [TOKENS]]

Needs torch, which writes the model. Prints tokens per second of both, and whether they are equal.
"""
import concurrent.futures
import pathlib
import sys
import tempfile
import time

import fixtures
import numpy as np

sys.path.insert(0, str(fixtures.ROOT / "test/e2e/hub"))
import hub_models  # noqa: E402
import transformers  # noqa: E402

import attnc  # noqa: E402
from attnc.serve import Decoder, Request  # noqa: E402

STREAMS, TOKENS = (int(given) for given in (sys.argv[1:] + ["8", "48"][len(sys.argv) - 1 :]))


def main():
    hub_models.ARCHS["gpt2"] = lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config())
    with tempfile.TemporaryDirectory(dir=fixtures.ROOT / "build") as name:
        hub_models.write(pathlib.Path(name) / "gpt2", "gpt2", "single")
        model = attnc.load(next(pathlib.Path(name).rglob("model.onnx")), own_state=True, cache=False)
        draw = np.random.default_rng(1)
        prompts = [draw.integers(0, 50000, int(draw.integers(4, 24))).tolist() for _ in range(STREAMS)]
        rates, tokens = {}, {}
        for slots in (1, STREAMS, 1, STREAMS):
            decoder = Decoder(model, slots=slots, places=1024)
            decoder.generate(Request(prompts[0], max_new_tokens=4))
            begin = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
                got = list(pool.map(lambda p: decoder.generate(Request(p, max_new_tokens=TOKENS)), prompts))
            rate = STREAMS * TOKENS / (time.monotonic() - begin)
            rates[slots], tokens[slots] = max(rate, rates.get(slots, 0)), got
            decoder.close()
            print(f"{slots} at a time: {rate:.1f} tokens a second", flush=True)
        print(f"{STREAMS} streams: {rates[STREAMS] / rates[1]:.2f} times the tokens, {'equal' if tokens[1] == tokens[STREAMS] else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
