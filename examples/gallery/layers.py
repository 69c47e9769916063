"""What the models of the gallery share: an encoder of transformers, training, and how they are stored."""
import pathlib
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

HERE = pathlib.Path(__file__).parent


class EncoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, visible=None):
        """`visible` [batch, key]: which keys are words."""
        batch, places, width = x.shape
        parts = self.project(self.first(x)).view(batch, places, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        if visible is not None:
            scores = scores.masked_fill(~visible[:, None, None, :], float("-inf"))
        y = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, places, width)
        x = x + self.out(y)
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


def train(model, inputs, labels, epochs, rate, change=lambda x: x):
    """Adam with a falling rate, over batches of 64 in an order from a seed."""
    optimiser = torch.optim.AdamW(model.parameters(), rate, weight_decay=0.05)
    steps = epochs * (len(labels) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps, pct_start=0.1)
    begin, model = time.time(), model.train()
    for epoch in range(epochs):
        total = 0.0
        for batch in torch.randperm(len(labels))[: len(labels) // 64 * 64].view(-1, 64):
            loss = nn.functional.cross_entropy(model(change(inputs[batch])), labels[batch], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item()
        if epoch % 5 == 4 or epoch + 1 == epochs:
            print(f"epoch {epoch + 1}, {time.time() - begin:.0f} s, loss {total / (len(labels) // 64):.3f}", flush=True)
    return model.eval()


def digits():
    """scikit-learn's digits [1797, 1, 8, 8] from 0 to 1, their labels, and how many of them are for training.

    The test split is the last fifth, by other writers than the rest.
    """
    found = load_digits()
    images = torch.from_numpy(found.images).float()[:, None] / 16
    return images, torch.from_numpy(found.target), len(images) * 4 // 5


def say(name, right, count):
    print(f"{name}: {right} of {count} right ({100 * right / count:.1f} %)")


def store(name, model, input_name, inputs, labels, outputs=("logits",), opset=17):
    """NAME.onnx, and NAME.npz: the test split, and what PyTorch makes of it."""
    with torch.no_grad():
        made = model(inputs)
    made = dict(zip(outputs, made if isinstance(made, tuple) else (made,)))
    if "logits" in made:
        say(name, (made["logits"].argmax(1) == labels).sum().item(), len(labels))
    small = inputs.numpy()
    if small.dtype == np.int64:
        small = small.astype(np.int16)
    np.savez_compressed(HERE / f"{name}.npz", **{input_name: small}, labels=labels.numpy().astype(np.int8),
                        **{output: value.numpy() for output, value in made.items()})
    torch.onnx.export(model, (inputs[:2],), HERE / f"{name}.onnx", input_names=[input_name], output_names=list(made),
                      dynamic_axes={each: {0: "batch"} for each in (input_name, *made)}, dynamo=False, opset_version=opset)
