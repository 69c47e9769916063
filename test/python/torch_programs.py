"""Programs of torch.export: results as of torch, and names as in the module."""
import collections
import dataclasses
import tempfile
import unittest
import warnings

import attnc
import torch
from torch.export import Dim

Pair = collections.namedtuple("Pair", "total rest")


@dataclasses.dataclass
class Scores:
    best: torch.Tensor
    others: list


torch.export.register_dataclass(Scores)


class Module(torch.nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)
        self.result = forward

    def forward(self, x, mask):
        return self.result(self.linear(x), mask)


FORMS = {
    "dict": (lambda y, mask: {"scores": y, "mean": (y * mask[..., None]).mean(1)}, ["scores", "mean"]),
    "dataclass": (lambda y, mask: Scores(y + 1, [y * 2, mask + 1]), ["best", "others.0", "others.1"]),
    "named tuple": (lambda y, mask: Pair(y.sum(1), {"y": y}), ["total", "rest.y"]),
    "tuple": (lambda y, mask: (y + 1, {"a": y * 2}, None), ["output_0", "output_1.a"]),
    "one": (lambda y, mask: y, ["output_0"]),
    # Names that inputs have, or values within the graph.
    "taken": (lambda y, mask: {"x": y, "linear": y * 2, "mask": mask, "add": (y * 3 + 1) * 2}, ["x_output", "linear", "mask_output", "add"]),
    "no name": (lambda y, mask: {"b": y * 2, "": y}, ["b", "output_1"]),
    "one twice": (lambda y, mask: {"a": y, "b": y}, ["a", "b"]),
}  # fmt: skip


class Counting(torch.nn.Module):
    """Adds up what it is given over all calls where it `remembers`."""

    def __init__(self, remembers):
        super().__init__()
        self.register_buffer("seen", torch.ones(2, 5))
        self.remembers = remembers

    def forward(self, x, mask):
        if self.remembers:
            self.seen.add_(mask)
        return self.seen + mask + x.sum()


class Programs(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.x, self.mask = torch.randn(2, 5, 8), torch.ones(2, 5)

    def export(self, module, sizes):
        return torch.export.export(module, (self.x, self.mask), dynamic_shapes={"x": sizes, "mask": sizes})

    def check(self, module, program, names, x, mask, **options):
        model = attnc.load(program, cache=False, threads=1, **options)
        self.assertEqual([info.name for info in model.inputs], ["x", "mask"])
        self.assertEqual([info.name for info in model.outputs], names)
        with torch.no_grad():
            want = torch.utils._pytree.tree_leaves(module(x, mask))
        for value, result in zip((v for v in want if v is not None), model.run({"x": x, "mask": mask}).values()):
            torch.testing.assert_close(result, value, rtol=1e-5, atol=1e-5)
        return model

    def test_names(self):
        sizes = {0: Dim("batch"), 1: Dim("length", max=512)}
        for form, (forward, names) in FORMS.items():
            with self.subTest(form):
                module = Module(forward).eval()
                model = self.check(module, self.export(module, sizes), names, torch.randn(3, 7, 8), torch.rand(3, 7))
                self.assertEqual([info.shape for info in model.inputs], [("batch", "length", 8), ("batch", "length")])
                if form in ("dict", "one"):
                    self.assertEqual(model.outputs[0].shape, ("batch", "length", 4))

    def test_sizes_by_name(self):
        module = Module(lambda y, mask: {"twice": torch.cat([y, y], 1)}).eval()
        program = self.export(module, {0: Dim("batch"), 1: Dim("length")})
        model = self.check(module, program, ["twice"], self.x, self.mask, dims={"batch": 2, "length": (1, 64)})
        self.assertEqual(model.inputs[0].shape, (2, "length", 8))
        self.assertEqual(model.outputs[0].shape[2:], (4,))

    def test_without_names(self):
        """Sizes keep the symbols of the trace."""
        forward, names = FORMS["dict"]
        module = Module(forward).eval()
        model = self.check(module, self.export(module, {0: Dim.AUTO, 1: Dim.AUTO}), names, torch.randn(3, 7, 8), torch.rand(3, 7))
        batch, length = model.inputs[1].shape
        self.assertTrue(batch and length and batch != length)
        with tempfile.NamedTemporaryFile(suffix=".pt2") as file:
            torch.export.save(self.export(module, {0: Dim("batch"), 1: Dim("length")}), file.name)
            self.check(module, torch.export.load(file.name), names, torch.randn(3, 7, 8), torch.rand(3, 7))

    def test_a_buffer_that_calls_change(self):
        """The first call is as of the module, and whoever compiles is told that later ones are the same again."""
        for remembers in (True, False):
            program = torch.export.export(Counting(remembers), (self.x, self.mask))
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                model = self.check(Counting(remembers), program, ["output_0"], self.x, self.mask)
            about = [str(w.message) for w in told if issubclass(w.category, attnc.CompileWarning)]
            self.assertEqual(len(about), remembers, about)
            if remembers:
                self.assertIn("changes its buffer 'seen' for the calls after it", about[0])
                torch.testing.assert_close(model(self.x, self.mask), Counting(remembers)(self.x, self.mask))

    def test_an_exported_program_keeps_its_names(self):
        module = Module(lambda y, mask: y).eval()
        program = torch.onnx.export(self.export(module, {0: Dim("batch"), 1: Dim("length")}), dynamo=True, verbose=False,
                                    output_names=["mine"])  # fmt: skip
        self.check(module, program, ["mine"], self.x, self.mask)


if __name__ == "__main__":
    unittest.main()
