"""Models of transformers at their full size, with random weights, through the exporters' registry: what torch gives for
50 inputs, attnc gives. Minutes a model, so the classes are named one by one: architectures.py T5 Whisper
"""
import io
import logging
import pathlib
import tempfile
import unittest
from unittest import mock

import torch
import transformers
from attnc.integrations.transformers import AttncExporter, AttncModel
from transformers import GenerationMixin
from transformers.exporters.base import ExportedModel

transformers.logging.set_verbosity_error()
BATCHES = (1, 2, 5, 8, 4, 6, 9, 3, 10, 2)  # 50 rows
NEW = 12


def random(kind, settings, spread=1.0):
    """Weights that keep the size of what passes them, behind small embeddings, so that what is read before decides on the
    next token and not the last one alone."""
    torch.manual_seed(7)
    model = kind(settings).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name == "shared.weight":
                weight.normal_(std=0.02)
            elif weight.dim() > 1 and not any(part in name for part in ("embed", "shared", "wte", "wpe")):
                weight.normal_(std=spread * weight[0].numel() ** -0.5)
    return model


class Model(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.path = pathlib.Path(folder.name) / "model"
        cls.torch = cls.made()
        exporter = AttncExporter()
        export = exporter.export_for_generation if cls.torch.can_generate() else exporter.export
        logging.disable(logging.WARNING)
        with mock.patch("sys.stdout", io.StringIO()):
            export(cls.torch, cls.inputs(2)).save_pretrained(cls.path)
        logging.disable(logging.NOTSET)

    def called(self, atol):
        """Outputs of a model that is called once."""
        exported = ExportedModel.from_pretrained(self.path)
        torch.manual_seed(3)
        for rows in BATCHES:
            inputs = self.inputs(rows)
            with torch.no_grad():
                want = self.torch(**inputs)
            got = exported(**inputs)
            self.assertIsInstance(got, type(want))
            self.assertEqual(list(got.keys()), list(want.keys()))
            for name in want.keys():
                torch.testing.assert_close(got[name], want[name], atol=atol, rtol=0)


class Writer(Model):
    # What compiled searches have not: transformers' loop would call compiled steps.
    plain = dict(forced_eos_token_id=None, suppress_tokens=None, begin_suppress_tokens=None)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = AttncModel.from_pretrained(cls.path)
        # Tokens that it does write, so that sequences end at many lengths.
        torch.manual_seed(3)
        cls.torch.generation_config.update(**cls.plain, eos_token_id=None)
        written = [cls.torch.generate(**cls.inputs(rows), max_new_tokens=NEW, do_sample=False) for rows in BATCHES]
        tokens = torch.cat([each[:, -NEW:] for each in written]).tolist()
        cls.ends = sorted({row[1 + n % (NEW - 1)] for n, row in enumerate(tokens)} - {row[0] for row in tokens})

    def generated(self, **call):
        torch.manual_seed(3)
        lengths, tokens = set(), set()
        call.update(max_new_tokens=NEW, do_sample=False, eos_token_id=self.ends, pad_token_id=1, **self.plain)
        for rows in BATCHES:
            inputs = self.inputs(rows)
            want = self.torch.generate(**inputs, **call)
            with mock.patch.object(GenerationMixin, "_sample") as sample, mock.patch.object(
                GenerationMixin, "_beam_search"
            ) as beam:
                got = self.model.generate(**inputs, **call)
            self.assertFalse(sample.called or beam.called, "no compiled search")
            self.assertTrue(torch.equal(got, want), f"{got}, and by torch\n{want}")
            for row in want[:, -NEW:].tolist():
                lengths.add(next((n for n, token in enumerate(row) if token in self.ends), NEW))
                tokens.update(row)
        print(f"{type(self).__name__}: {len(lengths)} lengths of {len(tokens)} tokens")
        self.assertGreater(len(lengths), 2)
        self.assertGreater(len(tokens), 20)

    def test_greedy(self):
        self.generated()

    def test_beam(self):
        self.generated(num_beams=4)


def text(rows, words, *, left=False):
    """Rows of several lengths."""
    length = 6 + 2 * rows
    ids = torch.randint(3, words, (rows, length))
    mask = (torch.arange(length) < torch.randint(2, length + 1, (rows, 1))).long()
    return dict(input_ids=ids, attention_mask=mask.flip(1) if left else mask)


def both_sides(**sizes):
    """Of an encoder and of a decoder."""
    return {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}


class Bert(Model):
    """bert-base."""

    @staticmethod
    def made():
        return random(transformers.BertModel, transformers.BertConfig())

    @staticmethod
    def inputs(rows):
        return text(rows, 30522)

    def test_outputs(self):
        self.called(2e-5)


class ViT(Model):
    """vit-base-patch16-224."""

    @staticmethod
    def made():
        return random(transformers.ViTForImageClassification, transformers.ViTConfig(num_labels=1000))

    @staticmethod
    def inputs(rows):
        return dict(pixel_values=torch.randn(rows, 3, 224, 224))

    def test_outputs(self):
        self.called(2e-5)


class Gpt2(Writer):
    """gpt2."""

    @staticmethod
    def made():
        return random(transformers.GPT2LMHeadModel, transformers.GPT2Config(), spread=1.5)

    @staticmethod
    def inputs(rows):
        return text(rows, 50257, left=True)


class T5(Writer):
    """t5-small."""

    @staticmethod
    def made():
        settings = transformers.T5Config(d_model=512, d_kv=64, d_ff=2048, num_layers=6, num_heads=8,
                                         decoder_start_token_id=0)  # fmt: skip
        return random(transformers.T5ForConditionalGeneration, settings, spread=1.5)

    @staticmethod
    def inputs(rows):
        return text(rows, 32128)


class Bart(Writer):
    """bart-base; with tied embeddings and random weights it would write one token again and again."""

    @staticmethod
    def made():
        sizes = both_sides(layers=6, attention_heads=12, ffn_dim=3072)
        settings = transformers.BartConfig(d_model=768, tie_word_embeddings=False, **sizes)
        return random(transformers.BartForConditionalGeneration, settings, spread=0.5)

    @staticmethod
    def inputs(rows):
        return text(rows, 50265)


class Marian(Writer):
    """opus-mt, untied for the same reason."""

    @staticmethod
    def made():
        sizes = both_sides(layers=6, attention_heads=8, ffn_dim=2048)
        settings = transformers.MarianConfig(d_model=512, max_position_embeddings=512, scale_embedding=True,
                                             activation_function="swish", tie_word_embeddings=False, **sizes)  # fmt: skip
        return random(transformers.MarianMTModel, settings, spread=0.5)

    @staticmethod
    def inputs(rows):
        return text(rows, 58101)


class Whisper(Writer):
    """whisper-tiny."""

    @staticmethod
    def made():
        settings = transformers.WhisperConfig(d_model=384, **both_sides(layers=4, attention_heads=6, ffn_dim=1536))
        return random(transformers.WhisperForConditionalGeneration, settings, spread=2.5)

    @staticmethod
    def inputs(rows):
        # Sounds that change slowly, as others say other things.
        slow = torch.nn.functional.interpolate(torch.randn(rows, 80, 60), 3000, mode="linear")
        return dict(input_features=slow + 0.1 * torch.randn(rows, 80, 3000))


del Model, Writer  # what they test, their subclasses test

if __name__ == "__main__":
    unittest.main()
