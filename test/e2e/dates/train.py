#!/usr/bin/env python3
"""Trains the model of dates.test and writes encode.onnx, step.onnx and expected.npz beside this file.

Bahdanau, Cho and Bengio 2015 on dates as people write them ("tuesday 3rd of may 1998") to ISO ("1998-05-03"), by
characters: a bidirectional GRU, additive attention, a GRU decoder. PyTorch on a CPU, below five minutes, seed fixed.
expected.npz holds 200 sentences that it has not seen and what a beam search in PyTorch makes of them.
"""
import pathlib
import random
import sys
import time

import numpy as np
import torch
from torch import nn

HERE = pathlib.Path(__file__).parent
MONTHS = ("january february march april may june july august september october november december").split()
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
SOURCE = " " + "abcdefghijklmnopqrstuvwxyz0123456789,./-'"  # 0 is padding and the blank
TARGET = "<>0123456789-"  # 0 begins, 1 ends
BOS, EOS, WIDTH, MAX_LENGTH, ALPHA = 0, 1, 5, 16, 1.0


def sentence(rng):
    year, month, day = rng.randrange(1900, 2100), rng.randrange(1, 13), rng.randrange(1, 29)
    name = MONTHS[month - 1]
    ordinal = f"{day}{'th' if 10 < day < 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"
    text = rng.choice([
        f"{day} {name} {year}", f"{name} {day}, {year}", f"{ordinal} of {name} {year}", f"{name[:3]} {day} {year}",
        f"{rng.choice(DAYS)} {ordinal} of {name} {year}", f"{rng.choice(DAYS)}, {day} {name} {year}",
        f"{month}/{day}/{year}", f"{day}.{month}.{year}", f"the {ordinal} of {name}, {year}",
        f"{rng.choice(DAYS)[:3]} {name[:3]} {day} {year}"])
    return text, f"{year}-{month:02}-{day:02}"


def encode_source(texts):
    lengths = np.array([len(t) for t in texts])
    ids = np.zeros((len(texts), lengths.max()), np.int64)
    for row, text in zip(ids, texts):
        row[: len(text)] = [SOURCE.index(c) for c in text]
    return ids, lengths


class Encoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embedding = nn.Embedding(len(SOURCE), 32)
        self.gru = nn.GRU(32, hidden, batch_first=True, bidirectional=True)
        self.key = nn.Linear(2 * hidden, hidden, bias=False)
        self.start = nn.Linear(hidden, hidden)

    def forward(self, source, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.embedding(source), lengths, batch_first=True,
                                                   enforce_sorted=False)
        states, last = self.gru(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
        mask = torch.arange(source.shape[1])[None] < lengths[:, None]
        return memory, self.key(memory), torch.tanh(self.start(last[1])), mask.to(torch.int64)


class Step(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embedding = nn.Embedding(len(TARGET), 32)
        self.query = nn.Linear(hidden, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.cell = nn.GRUCell(32 + 2 * hidden, hidden)
        self.out = nn.Linear(3 * hidden + 32, len(TARGET))

    def forward(self, token, state, memory, keys, mask):
        scores = self.score(torch.tanh(self.query(state)[:, None] + keys)).squeeze(2)
        alignment = torch.softmax(scores.masked_fill(mask == 0, float("-inf")), 1)
        context = torch.bmm(alignment[:, None], memory).squeeze(1)
        word = self.embedding(token)
        state = self.cell(torch.cat([word, context], 1), state)
        return torch.log_softmax(self.out(torch.cat([state, context, word], 1)), 1), state, alignment


def train(seconds):
    torch.manual_seed(5)
    rng = random.Random(5)
    encoder, step = Encoder(64), Step(64)
    optimiser = torch.optim.Adam([*encoder.parameters(), *step.parameters()], 4e-3)
    begin, total, updates = time.process_time(), 0.0, 600
    for update in range(updates):
        pairs = [sentence(rng) for _ in range(48)]
        source, lengths = map(torch.from_numpy, encode_source([p[0] for p in pairs]))
        target = torch.tensor([[BOS] + [TARGET.index(c) for c in p[1]] + [EOS] for p in pairs])
        memory, keys, state, mask = encoder(source, lengths)
        loss = 0.0
        for t in range(target.shape[1] - 1):
            logp, state, _ = step(target[:, t], state, memory, keys, mask)
            loss = loss + nn.functional.nll_loss(logp, target[:, t + 1])
        optimiser.zero_grad()
        (loss / (target.shape[1] - 1)).backward()
        nn.utils.clip_grad_norm_([*encoder.parameters(), *step.parameters()], 1.0)
        for group in optimiser.param_groups:
            group["lr"] = 4e-3 * (1 - update / updates)
        optimiser.step()
        total += loss.item() / (target.shape[1] - 1)
        if update % 100 == 99:
            print(f"{update + 1} updates, {time.process_time() - begin:.0f} s, loss {total / 100:.4f}", flush=True)
            total = 0.0
        if time.process_time() - begin > seconds:
            sys.exit("training takes too long")
    return encoder.eval(), step.eval()


def beam_search(step, memory, keys, state, mask):
    """Tokens, lengths and scores of the best of WIDTH hypotheses; the beam stays full when some end."""
    batch = len(memory)
    memory, keys, state, mask = (x.repeat_interleave(WIDTH, 0) for x in (memory, keys, state, mask))
    live = torch.full((batch, WIDTH), float("-inf"))
    live[:, 0] = 0
    history = torch.zeros(batch, WIDTH, 0, dtype=torch.int64)
    token = torch.full((batch * WIDTH,), BOS)
    done = [[] for _ in range(batch)]
    closed = torch.zeros(batch, dtype=torch.bool)
    for t in range(1, MAX_LENGTH + 1):
        logp, state, _ = step(token, state, memory, keys, mask)
        sums = (live[:, :, None] + logp.view(batch, WIDTH, -1)).view(batch, -1)
        best, flat = sums.topk(2 * WIDTH, 1)
        parent, word = flat // logp.shape[1], flat % logp.shape[1]
        ends = (word == EOS) | (t == MAX_LENGTH)
        for b in range(batch):
            for c in range(WIDTH):
                if not closed[b] and ends[b, c] and best[b, c] > float("-inf"):
                    tokens = history[b, parent[b, c]].tolist() + [word[b, c].item()]
                    done[b] = sorted(done[b] + [(best[b, c].item() / t**ALPHA, tokens)], key=lambda d: -d[0])[:WIDTH]
        order = torch.argsort(ends.to(torch.int64), dim=1, stable=True)[:, :WIDTH]
        live = best.masked_fill(ends, float("-inf")).gather(1, order)
        rows, word = parent.gather(1, order), word.gather(1, order)
        history = torch.cat([history.gather(1, rows[:, :, None].expand(-1, -1, t - 1)), word[:, :, None]], 2)
        state = state[(rows + torch.arange(batch)[:, None] * WIDTH).view(-1)]
        token = word.reshape(-1)
        for b in range(batch):
            closed[b] |= len(done[b]) == WIDTH and not live[b, 0].item() / t**ALPHA > done[b][-1][0]
        if closed.all():
            break
    return [d[0] for d in done]


def main():
    torch.set_num_threads(1)
    encoder, step = train(290)
    rng = random.Random(77)
    pairs = [sentence(rng) for _ in range(200)]
    ids, lengths = encode_source([p[0] for p in pairs])
    with torch.no_grad():
        given = (torch.from_numpy(ids), torch.from_numpy(lengths))
        memory, keys, state, mask = encoder(*given)
        found = beam_search(step, memory, keys, state, mask)
    texts = ["".join(TARGET[t] for t in tokens if t != EOS) for _, tokens in found]
    right = sum(text == pair[1] for text, pair in zip(texts, pairs))
    print(f"{right} of {len(pairs)} sentences are translated rightly")
    tokens = np.full((len(pairs), MAX_LENGTH), EOS, np.int8)
    for row, (_, sequence) in zip(tokens, found):
        row[: len(sequence)] = sequence
    np.savez_compressed(HERE / "expected.npz", source=ids.astype(np.int8), lengths=lengths.astype(np.int8),
                        tokens=tokens, scores=np.array([s for s, _ in found], np.float32), right=right)
    rows, source = {0: "batch"}, {0: "batch", 1: "source"}
    options = dict(dynamo=False, opset_version=17)
    torch.onnx.export(encoder, given, HERE / "encode.onnx", input_names=["source", "lengths"],
                      output_names=["memory", "keys", "state", "mask"],
                      dynamic_axes=dict(source=source, lengths=rows, memory=source, keys=source, state=rows, mask=source),
                      **options)
    torch.onnx.export(step, (torch.zeros(len(pairs), dtype=torch.int64), state, memory, keys, mask), HERE / "step.onnx",
                      input_names=["token", "state", "memory", "keys", "mask"],
                      output_names=["log_probs", "next_state", "alignment"],
                      dynamic_axes=dict(token=rows, state=rows, memory=source, keys=source, mask=source,
                                        log_probs=rows, next_state=rows, alignment=source), **options)


if __name__ == "__main__":
    main()
