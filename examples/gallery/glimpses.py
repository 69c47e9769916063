#!/usr/bin/env python3
"""The recurrent attention model of Mnih et al. 2014 on scikit-learn's digits, each somewhere on a large picture. Two minutes on one core.

In each of six steps it sees two crops of 8 x 8 pixels, a sharp one of a place and a blurred one around it, and says from
where the next ones are to come. What it sees decides nothing about where it looks but through reinforcement: places are
drawn from a normal distribution, and those that led to the right answer become likelier. Writes glimpses.safetensors,
the weights of glimpses.json, and glimpses.npz.
"""
import time

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from layers import HERE, digits, say

SIDE, STEPS, WIDTH, DEVIATION = 20, 6, 96, 0.1


class Glimpses(nn.Module):
    """The names are those of glimpses.json."""

    def __init__(self):
        super().__init__()
        at = (torch.arange(8) * 2 + 1) / 8 - 1
        self.register_buffer("base", torch.stack(torch.meshgrid(at, at, indexing="xy"), -1))
        self.look = nn.ModuleDict({
            "what": nn.Linear(128, WIDTH), "where_": nn.Linear(2, 32), "glimpse": nn.Linear(WIDTH + 32, WIDTH),
            "into": nn.Linear(WIDTH, WIDTH), "kept": nn.Linear(WIDTH, WIDTH), "next_place": nn.Linear(WIDTH, 2)})
        self.act, self.baseline = nn.Linear(WIDTH, 10), nn.Linear(WIDTH, 1)

    def forward(self, image, location, h, noise):
        """The answer's logarithms; of each step the place, its mean before the noise, and what reward it expects."""
        places, means, expected = [], [], []
        for shake in noise.unbind(1):
            grids = [location[:, None, None] + self.base * scale for scale in (8 / SIDE, 16 / SIDE)]
            patches = [functional.grid_sample(image, grid, align_corners=False).flatten(1) for grid in grids]
            both = torch.cat([self.look["what"](torch.cat(patches, 1)), self.look["where_"](location)], 1)
            g = torch.relu(self.look["glimpse"](torch.relu(both)))
            h = torch.relu(self.look["into"](g) + self.look["kept"](h))
            expected.append(self.baseline(h.detach()).squeeze(1))
            means.append(torch.tanh(self.look["next_place"](h)))
            location = (means[-1] + DEVIATION * shake).clamp(-1, 1).detach()
            places.append(location)
        return [functional.log_softmax(self.act(h), 1), *(torch.stack(each, 1) for each in (places, means, expected))]


def placed(images):
    """Each digit somewhere on SIDE x SIDE pixels, and three scraps of other digits."""
    count = len(images)
    canvas = torch.zeros(count, SIDE, SIDE)
    for source in [images[torch.randperm(count)][:, :, 2:5, 3:6] for _ in range(3)] + [images]:
        size = source.shape[-1]
        x, y = torch.randint(0, SIDE - size + 1, (2, count))
        rows = (y[:, None] + torch.arange(size))[:, :, None].expand(-1, -1, size)
        columns = (x[:, None] + torch.arange(size))[:, None, :].expand(-1, size, -1)
        item = torch.arange(count)[:, None, None]
        canvas[item, rows, columns] = torch.maximum(canvas[item, rows, columns], source[:, 0])
    return canvas[:, None]


def start(images):
    return images, torch.zeros(len(images), 2), torch.zeros(len(images), WIDTH), torch.randn(len(images), STEPS, 2)


def train(model, images, labels, steps=24000, batch=64):
    optimiser, begin = torch.optim.Adam(model.parameters()), time.time()
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 2e-3 * (1 - step / steps)
        chosen = torch.randint(0, len(images), (batch,))
        answer, places, means, expected = model(*start(placed(images[chosen])))
        reward = answer.detach().exp().gather(1, labels[chosen, None])  # how sure it is of the right answer
        likely = -((places - means) ** 2).sum(2) / (2 * DEVIATION**2)
        better = (reward - expected).detach()
        # The place after the last glimpse is not looked at.
        loss = (functional.nll_loss(answer, labels[chosen]) - 0.3 * (likely * better)[:, :-1].sum(1).mean()
                + ((reward - expected) ** 2).mean())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimiser.step()
        if step % 500 == 0:
            print(f"step {step}, {time.time() - begin:.0f} s, sure {reward.mean().item():.2f}", flush=True)


def main():
    torch.manual_seed(5)
    images, labels, split = digits()
    model = Glimpses()
    train(model, images[:split], labels[:split])
    image, location, h, noise = start(placed(images[split:]))
    with torch.no_grad():
        for name, episode in (("glimpses", noise), ("glimpses, at the means", 0 * noise)):
            answer, places, _, _ = model(image, location, h, episode)
            say(name, (answer.argmax(1) == labels[split:]).sum().item(), len(answer))
        answer, places, _, _ = model(image, location, h, noise)
    save_file({name: value for name, value in model.state_dict().items() if "baseline" not in name}, HERE / "glimpses.safetensors")
    np.savez_compressed(HERE / "glimpses.npz", image=image.numpy(), noise=noise.numpy(), labels=labels[split:].numpy().astype(np.int8),
                        log_probs=answer.numpy(), locations=places.numpy())


if __name__ == "__main__":
    main()
