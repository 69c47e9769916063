#!/usr/bin/env python3
"""Beam search of compiled libraries against transformers' `generate`, on random weights.

check_transformers.py ATTNC ATTN_RUN WORK gpt2|gpt2-small|marian|marian-base: GPT-2 with prompts of which some
are padded, or Marian with sources of several lengths; small, or of the shape of GPT-2-small or Transformer-base.
Batches of 8, 5 beams, 50 prompts. Needs torch and transformers, which no test installs: it is run by hand. Prompts
where the two differ are looked at: it is a tie if the scores of both agree within 1e-4.
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


class MarianStep(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.eval()

    def forward(self, token, states, mask, *past):
        cache = T.EncoderDecoderCache(make_cache(past), T.DynamicCache())
        out = self.model.model.decoder(input_ids=token, encoder_hidden_states=states, encoder_attention_mask=mask,
                                       past_key_values=cache, use_cache=True)
        logits = self.model.lm_head(out.last_hidden_state) + self.model.final_logits_bias
        return (logits, *flatten(out.past_key_values.self_attention_cache))


class MarianEncoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.encoder = model.model.encoder
        self.eval()

    def forward(self, ids, mask):
        return self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state


def export_marian(size, work):
    d, layers, vocabulary = (512, 6, 32000) if size == "marian-base" else (64, 2, 300)
    config = T.MarianConfig(vocab_size=vocabulary, d_model=d, encoder_layers=layers, decoder_layers=layers,
                            encoder_attention_heads=8, decoder_attention_heads=8, encoder_ffn_dim=4 * d, decoder_ffn_dim=4 * d,
                            max_position_embeddings=128, eos_token_id=EOS, pad_token_id=PAD, decoder_start_token_id=PAD,
                            forced_eos_token_id=None, bad_words_ids=None, scale_embedding=True)
    config._attn_implementation = "eager"
    model = randomise(T.MarianMTModel(config))
    past = [f"past_key_values.{l}.{kv}" for l in range(layers) for kv in ("key", "value")]
    present = [n.replace("past_key_values", "present") for n in past]
    ids, mask = torch.randint(2, 100, (2, 6)), torch.ones(2, 6, dtype=torch.int64)
    source = {0: "batch", 1: "source"}
    options = dict(dynamo=False, opset_version=17)
    names = ["encoder_hidden_states", "encoder_attention_mask"]
    torch.onnx.export(MarianEncoder(model), (ids, mask), work / "encode.onnx", input_names=["input_ids", names[1]],
                      output_names=names[:1], dynamic_axes={"input_ids": source, names[0]: source, names[1]: source}, **options)
    states = torch.randn(2, 6, d)
    caches = [torch.randn(2, 8, 3, d // 8) for _ in past]
    torch.onnx.export(MarianStep(model), (ids[:, :1], states, mask, *caches), work / "step.onnx",
                      input_names=["token"] + names + past, output_names=["logits"] + present,
                      dynamic_axes=dict({"token": {0: "batch"}, names[0]: source, names[1]: source},
                                        **{n: {0: "batch", 2: "past"} for n in past},
                                        **{n: {0: "batch", 2: "total"} for n in present}), **options)
    empty = np.zeros((1, 8, 0, d // 8), np.float32)
    return model, [f"encode={work}/encode.onnx", f"step={work}/step.onnx", "--init=encode", f"--bos={PAD}"], {n: empty for n in past}


def main(attnc, attn_run, work, size):
    work = pathlib.Path(work)
    work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    is_marian = size.startswith("marian")
    model, arguments, states = export_marian(size, work) if is_marian else (*export_gpt2(size, work), {})
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
            if is_marian:
                mask[row, 9 - row % 4 :] = 0  # padded on the right
            else:
                mask[row, : row % 4] = 0
        with torch.no_grad():
            out = model.generate(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask), num_beams=WIDTH,
                                 do_sample=False, max_new_tokens=new, length_penalty=1.0, early_stopping=False,
                                 return_dict_in_generate=True, output_scores=True)
        want, wanted = out.sequences[:, 1 if is_marian else ids.shape[1] :].numpy(), out.sequences_scores.numpy()
        np.save(work / "ids.npy", ids)
        np.save(work / "mask.npy", mask)
        more = []
        for name, value in states.items():
            np.save(work / f"{name}.npy", np.repeat(value, count, 0))
            more.append(f"--input={name}=@{work}/{name}.npy")
        mask_name = "encoder_attention_mask" if is_marian else "attention_mask"
        subprocess.run([attn_run, work / "m.so", "--entry=generate", f"--input=input_ids=@{work}/ids.npy", *more,
                        f"--input={mask_name}=@{work}/mask.npy", f"--output=tokens=@{work}/tokens.npy",
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
