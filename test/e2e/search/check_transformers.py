#!/usr/bin/env python3
"""Beam search of compiled libraries against transformers' `generate`, on random weights.

check_transformers.py ATTNC ATTN_RUN WORK gpt2|gpt2-small: GPT-2 with prompts of which some
are padded, a small one or one of the shape of GPT-2-small. Needs torch and transformers. Prompts where the
two differ are looked at: it is a tie if the scores of both agree within 1e-4.
"""
import pathlib
import subprocess
import sys

import numpy as np
import torch
import transformers as T

WIDTH, EOS, PAD = 5, 1, 0


def make_cache(flat):
    cache = T.DynamicCache()
    for layer in range(len(flat) // 2):
        cache.update(flat[2 * layer], flat[2 * layer + 1], layer)
    return cache


def flatten(cache):
    return [x for layer in cache.layers for x in (layer.keys, layer.values)]


class Gpt2(torch.nn.Module):
    def __init__(self, model, has_past):
        super().__init__()
        self.model, self.has_past = model, has_past
        self.eval()

    def forward(self, ids, mask, *past):
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        out = self.model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True,
                         past_key_values=make_cache(past) if self.has_past else None)
        return (out.logits, *flatten(out.past_key_values))


def randomise(model):
    torch.manual_seed(11)
    for name, p in model.named_parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.08 if "wte" in name or "shared" in name else 0.05)
    return model.eval()


def export_gpt2(size, work):
    shape = dict(n_embd=768, n_layer=12, n_head=12, vocab_size=50257) if size == "gpt2-small" else dict(
        n_embd=64, n_layer=3, n_head=4, vocab_size=300)
    config = T.GPT2Config(**shape, n_positions=128, eos_token_id=EOS, pad_token_id=PAD, bos_token_id=2)
    config._attn_implementation = "eager"
    model = randomise(T.GPT2LMHeadModel(config))
    names = [f"{l}.{kv}" for l in range(config.n_layer) for kv in ("key", "value")]
    past, present = [f"past_key_values.{n}" for n in names], [f"present.{n}" for n in names]
    ids = torch.randint(2, 100, (2, 6))
    mask = torch.ones(2, 6, dtype=torch.int64)
    with torch.no_grad():
        caches = Gpt2(model, False)(ids, mask)[1:]
    row = {0: "batch"}
    options = dict(dynamo=False, opset_version=17)
    torch.onnx.export(Gpt2(model, False), (ids, mask), work / "prefill.onnx", input_names=["input_ids", "attention_mask"],
                      output_names=["logits"] + present,
                      dynamic_axes=dict(input_ids={0: "batch", 1: "prompt"}, attention_mask={0: "batch", 1: "prompt"},
                                        **{n: {0: "batch", 2: "prompt"} for n in present}), **options)
    torch.onnx.export(Gpt2(model, True), (ids[:, :1], torch.ones(2, 7, dtype=torch.int64), *caches), work / "step.onnx",
                      input_names=["input_ids", "attention_mask"] + past, output_names=["logits"] + present,
                      dynamic_axes=dict(input_ids=row, attention_mask={0: "batch", 1: "total"},
                                        **{n: {0: "batch", 2: "past"} for n in past},
                                        **{n: {0: "batch", 2: "total"} for n in present}), **options)
    return model, [f"prefill={work}/prefill.onnx", f"step={work}/step.onnx", "--init=prefill"]


def main(attnc, attn_run, work, size):
    work = pathlib.Path(work)
    work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    model, arguments = export_gpt2(size, work)
    new, batch, prompts = 20, 8, 50
    subprocess.run([attnc, *arguments, f"--generate=beam:{WIDTH}", f"--eos={EOS}", f"--max-length={new}",
                    "--length-penalty=1", "-o", work / "m.so"], check=True)
    rng = np.random.default_rng(3)
    same = ties = 0
    for first in range(0, prompts, batch):
        count = min(batch, prompts - first)
        ids = rng.integers(3, min(model.config.vocab_size, 5000), (count, 9))
        mask = np.ones_like(ids)
        for row in range(count):
            mask[row, : row % 4] = 0  # padded on the left
        with torch.no_grad():
            out = model.generate(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask), num_beams=WIDTH,
                                 do_sample=False, max_new_tokens=new, length_penalty=1.0, early_stopping=False,
                                 return_dict_in_generate=True, output_scores=True)
        want, wanted = out.sequences[:, ids.shape[1] :].numpy(), out.sequences_scores.numpy()
        np.save(work / "ids.npy", ids)
        np.save(work / "mask.npy", mask)
        subprocess.run([attn_run, work / "m.so", "--entry=generate", f"--input=input_ids=@{work}/ids.npy",
                        f"--input=attention_mask=@{work}/mask.npy", f"--output=tokens=@{work}/tokens.npy",
                        f"--output=scores=@{work}/scores.npy", f"--output=lengths=@{work}/lengths.npy"], check=True,
                       stdout=subprocess.DEVNULL)
        tokens, scores, lengths = (np.load(work / f"{n}.npy")[:, 0] for n in ("tokens", "scores", "lengths"))
        for row in range(count):
            found = tokens[row][: lengths[row]].tolist()
            if found == want[row].tolist()[: len(found)] and (want[row][len(found) :] == PAD).all():
                same += 1
                assert abs(scores[row] - wanted[row]) < 1e-4, (scores[row], wanted[row])
            elif abs(scores[row] - wanted[row]) < 1e-4:
                ties += 1
            else:
                sys.exit(f"prompt {first + row}: {found} {scores[row]}, transformers {want[row].tolist()} {wanted[row]}")
    print(f"{size}: {same} of {prompts} prompts equal, {ties} ties")


if __name__ == "__main__":
    main(*sys.argv[1:])
