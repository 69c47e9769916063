#!/usr/bin/env python3
"""An autoencoder of scikit-learn's digits: 64 pixels become a code of 10 numbers, and the code a picture. Half a minute on one core.

Its answer is right if the picture that it makes is nearest to the one that it was given, of all in the test split.
Writes autoencoder.onnx and autoencoder.npz.
"""
import time

import torch
from torch import nn

from layers import digits, say, store


class Autoencoder(nn.Module):
    def __init__(self, code=10):
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, code))
        self.decode = nn.Sequential(nn.Linear(code, 128), nn.ReLU(), nn.Linear(128, 64), nn.Sigmoid())

    def forward(self, image):
        code = self.encode(image)
        return self.decode(code).reshape(-1, 1, 8, 8), code


def main(epochs=200):
    torch.manual_seed(4)
    images, labels, split = digits()
    model, begin = Autoencoder(), time.time()
    optimiser = torch.optim.AdamW(model.parameters(), 4e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=epochs * (split // 64))
    for epoch in range(epochs):
        for batch in torch.randperm(split)[: split // 64 * 64].view(-1, 64):
            loss = (model(images[batch] + 0.05 * torch.randn(64, 1, 8, 8))[0] - images[batch]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        if epoch % 50 == 49:
            print(f"epoch {epoch + 1}, {time.time() - begin:.0f} s, mean square {loss.item():.4f}", flush=True)
    given = images[split:]
    with torch.no_grad():
        nearest = torch.cdist(model(given)[0].flatten(1), given.flatten(1)).argmin(1)
    say("autoencoder", (nearest == torch.arange(len(given))).sum().item(), len(given))
    store("autoencoder", model.eval(), "image", given, labels[split:], ("picture", "code"))


if __name__ == "__main__":
    main()
