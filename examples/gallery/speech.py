#!/usr/bin/env python3
"""Numbers spoken by a synthesiser, spelled by a recogniser with attention and by one with CTC. Two minutes on one core.

A letter is a few frames of 12 bands, drawn towards the next one, as long as the speaker likes, under noise. A pyramid of
bidirectional GRUs listens; a GRU whose attention knows its last alignment (Chorowski et al. 2015) spells, and a layer
beside it says a letter of each frame or none. Writes speech.safetensors, the weights of speech.json and ctc.json, and
speech.npz.
"""
import time

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from layers import HERE, say

NUMBERS = "zero one two three four five six seven eight nine".split()
LETTERS = "<> " + "".join(sorted(set("".join(NUMBERS))))  # 0 ends a text and is CTC's blank, 1 begins it
BANDS, WIDTH, LONGEST = 12, 40, 20


class Attend(nn.Module):
    """Additive scores, to which a convolution of the alignment before adds."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.location, self.location_projection = nn.Conv1d(1, 6, 7, padding=3, bias=False), nn.Linear(6, WIDTH, bias=False)
        self.bias, self.score = nn.Parameter(torch.zeros(WIDTH)), nn.Linear(WIDTH, 1, bias=False)

    def forward(self, state, memory, keys, alignment, visible):
        before = self.location_projection(self.location(alignment[:, None]).transpose(1, 2))
        scores = self.score(torch.tanh(self.query(state)[:, None] + keys + before + self.bias)).squeeze(2)
        weights = torch.softmax(scores.masked_fill(~visible, float("-inf")), 1)
        return (weights[:, None] @ memory).squeeze(1), weights


class Recogniser(nn.Module):
    """The names are those of speech.json and ctc.json."""

    def __init__(self):
        super().__init__()
        self.low = nn.GRU(BANDS, WIDTH, batch_first=True, bidirectional=True)
        self.high = nn.GRU(4 * WIDTH, WIDTH, batch_first=True, bidirectional=True)
        self.ctc = nn.Linear(2 * WIDTH, len(LETTERS))
        self.words, self.attend = nn.Embedding(len(LETTERS), 16), Attend()
        self.cell, self.output = nn.GRUCell(2 * WIDTH + 16, WIDTH), nn.Linear(3 * WIDTH, len(LETTERS))

    def listen(self, sound, frames):
        """Sounds of 2 * frames each; a state for every two of them."""
        def run(layer, x, lengths):
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return pad_packed_sequence(layer(packed)[0], batch_first=True, total_length=x.shape[1])[0]
        low = run(self.low, sound, 2 * frames)
        return run(self.high, low.reshape(len(low), -1, 4 * WIDTH), frames)

    def step(self, token, state, memory, keys, alignment, visible):
        heard, alignment = self.attend(state, memory, keys, alignment, visible)
        state = self.cell(torch.cat([heard, self.words(token)], 1), state)
        return self.output(torch.cat([state, heard], 1)), state, alignment

    def start(self, sound, frames):
        memory = self.listen(sound, frames)
        visible = torch.arange(memory.shape[1]) < frames[:, None]
        first = torch.zeros(len(memory), memory.shape[1])
        first[:, 0] = 1
        return memory, self.attend.key(memory), visible, torch.zeros(len(memory), WIDTH), first

    def spelled(self, sound, frames):
        """Greedily: letters up to the first end, and the alignments."""
        memory, keys, visible, state, alignment = self.start(sound, frames)
        token = torch.ones(len(memory), dtype=torch.int64)
        tokens, alignments, over = [], [], torch.zeros(len(memory), dtype=torch.bool)
        for _ in range(LONGEST):
            logits, state, alignment = self.step(token, state, memory, keys, alignment, visible)
            token = logits.argmax(1) * ~over
            over |= token == 0
            tokens.append(token)
            alignments.append(alignment)
        return torch.stack(tokens, 1), torch.stack(alignments, 1)


def speak(rng, voice, count):
    """(sound [count, time, BANDS] in 32ths, frames, target [count, LONGEST]) of one to three numbers each."""
    sounds, target = [], np.zeros((count, LONGEST), np.int64)
    for n in range(count):
        text = " ".join(rng.choice(NUMBERS, rng.integers(1, 4)))
        ids = [LETTERS.index(letter) for letter in text]
        target[n, : len(ids)] = ids
        durations = rng.integers(3, 7, len(ids)) if rng.random() < 0.5 else rng.integers(2, 5, len(ids)) + 1
        steps = np.repeat(np.arange(len(ids)), durations)
        within = np.concatenate([np.arange(d) / d for d in durations])[:, None]
        towards = voice[ids + ids[-1:]][steps + 1]
        clean = voice[ids][steps] * (1 - 0.4 * within) + 0.4 * within * towards
        sound = clean * rng.uniform(0.7, 1.3) + 1.5 * rng.standard_normal(clean.shape)
        sounds.append(sound[: len(sound) // 2 * 2])
    time_ = max(map(len, sounds))
    padded = np.stack([np.pad(s, ((0, time_ - len(s)), (0, 0))) for s in sounds])
    frames = np.array([len(s) // 2 for s in sounds])
    return np.clip(np.round(32 * padded), -127, 127).astype(np.int8), frames, target


def tensors(sound, frames, target):
    return torch.from_numpy(sound).float() / 32, torch.from_numpy(frames), torch.from_numpy(target)


def train(model, rng, voice, steps=1000):
    optimiser, begin = torch.optim.Adam(model.parameters()), time.time()
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 4e-3 * (1 - step / steps)
        sound, frames, target = tensors(*speak(rng, voice, 48))
        memory, keys, visible, state, alignment = model.start(sound, frames)
        lengths = (target != 0).sum(1)
        loss = functional.ctc_loss(functional.log_softmax(model.ctc(memory), 2).transpose(0, 1), target, frames, lengths, zero_infinity=True)
        token, spelled = torch.ones(len(sound), dtype=torch.int64), []
        for t in range(lengths.max() + 1):
            logits, state, alignment = model.step(token, state, memory, keys, alignment, visible)
            spelled.append(logits)
            token = target[:, t] if t < LONGEST else token
        upto = target[:, : len(spelled)]
        counts = torch.arange(len(spelled)) <= lengths[:, None]
        losses = functional.cross_entropy(torch.stack(spelled, 2), upto, reduction="none")
        loss = 0.5 * loss + (losses * counts).sum() / counts.sum()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2)
        optimiser.step()
        if step % 100 == 0:
            print(f"step {step}, {time.time() - begin:.0f} s, loss {loss.item():.3f}", flush=True)


def collapsed(best, frames):
    """CTC's greedy text: a letter once as long as it lasts, and no blanks."""
    result = np.zeros((len(best), LONGEST), np.int64)
    for n, row in enumerate(best):
        row = row[: frames[n]]
        letters = [letter for t, letter in enumerate(row) if letter and (t == 0 or row[t - 1] != letter)][:LONGEST]
        result[n, : len(letters)] = letters
    return result


def main():
    torch.manual_seed(6)
    rng = np.random.default_rng(6)
    voice = rng.standard_normal((len(LETTERS), BANDS))
    voice[2] = 0  # the space is silent
    model = Recogniser()
    train(model, rng, voice)
    model.eval()
    sound, frames, target = speak(rng, voice, 200)
    x = tensors(sound, frames, target)
    with torch.no_grad():
        tokens, _ = model.spelled(*x[:2])
        best = model.ctc(model.listen(*x[:2])).argmax(2)
    labels = collapsed(best.numpy(), frames)
    for name, found in (("speech", tokens.numpy()), ("ctc", labels)):
        say(name, int((found == target).all(1).sum()), len(target))
    weights = {name: value.squeeze() if name == "attend.score.weight" else value for name, value in model.state_dict().items()}
    save_file(weights, HERE / "speech.safetensors")
    np.savez_compressed(HERE / "speech.npz", sound=sound, frames=frames.astype(np.int16), target=target.astype(np.int8),
                        letters=np.array(list(LETTERS)), tokens=tokens.numpy().astype(np.int8), labels=labels.astype(np.int8))


if __name__ == "__main__":
    main()
