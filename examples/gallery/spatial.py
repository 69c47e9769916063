#!/usr/bin/env python3
"""A spatial transformer on scikit-learn's digits that were turned, scaled and moved. A minute on one core.

Jaderberg et al. 2015: a small network says where to look, a grid is laid there, and a classifier that could not do it
alone reads the 8 x 8 pixels at that grid. Writes spatial.onnx and spatial.npz.
"""
import math

import torch
from torch import nn
from torch.nn import functional

from layers import digits, store, train


class Spatial(nn.Module):
    def __init__(self):
        super().__init__()
        self.locate = nn.Sequential(nn.Conv2d(1, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
                                    nn.Flatten(), nn.Linear(512, 64), nn.ReLU())
        self.theta = nn.Linear(64, 6)
        nn.init.zeros_(self.theta.weight)
        self.theta.bias.data = torch.tensor([0.6, 0, 0, 0, 0.6, 0])
        self.read = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, image):
        theta = self.theta(self.locate(image)).reshape(-1, 2, 3)
        grid = functional.affine_grid(theta, [image.shape[0], 1, 8, 8], align_corners=False)
        warped = functional.grid_sample(image, grid, align_corners=False)
        return self.read(warped), theta, warped


def placed(images):
    """Each digit on 16 x 16 pixels: turned by up to 60 degrees, 0.7 to 1.2 times as large, moved by up to 4 pixels."""
    count = len(images)
    angle, scale = math.pi / 3 * (2 * torch.rand(count) - 1), 0.5 * (0.7 + 0.5 * torch.rand(count))
    turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1).view(count, 2, 2) / scale.view(-1, 1, 1)
    move = turn @ (torch.rand(count, 2, 1) - 0.5)
    grid = functional.affine_grid(torch.cat([turn, move], 2), [count, 1, 16, 16], align_corners=False)
    return (functional.grid_sample(images, grid, align_corners=False) * 16).round() / 16


class First(nn.Module):
    """Of several outputs the first, for the training."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)[0]


def main():
    torch.manual_seed(3)
    images, labels, split = digits()
    model = Spatial()
    train(First(model), images[:split], labels[:split], 300, 4e-3, placed)
    store("spatial", model.eval(), "image", placed(images[split:]), labels[split:], ("logits", "theta", "warped"), opset=20)  # AffineGrid


if __name__ == "__main__":
    main()
