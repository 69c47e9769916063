#!/usr/bin/env python3
"""A vision transformer on scikit-learn's digits (8 x 8 pixels): 16 patches of 2 x 2 and a class token. A minute or two on two cores.

Writes digits.onnx and digits.npz.
"""
import torch
from torch import nn

from layers import EncoderLayer, digits, store, train


class Vit(nn.Module):
    def __init__(self, width=48, heads=4, depth=3):
        super().__init__()
        self.patches = nn.Conv2d(1, width, 2, 2)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(depth))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, image):
        patches = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(image.shape[0], -1, -1), patches], 1) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x)[:, 0])


def shifted(images):
    """Each image moved by up to a pixel, and a little noise."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    x, y = torch.randint(0, 3, (2,))
    return padded[:, :, y : y + 8, x : x + 8] + 0.03 * torch.randn_like(images)


def main():
    torch.manual_seed(1)
    images, labels, split = digits()
    model = train(Vit(), images[:split], labels[:split], 60, 3e-3, shifted)
    store("digits", model, "image", images[split:], labels[split:])


if __name__ == "__main__":
    main()
