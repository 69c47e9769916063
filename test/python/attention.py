"""Model.attention: weights of a fused model, and the page that draws them."""
import json
import pathlib
import re
import tempfile
import unittest

import attnc
import models
import numpy as np


class Attention(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = attnc.load(models.BERT, expose_attention="all", expose_attention_as=["weights", "argmax"], threads=1)
        cls.plain = attnc.load(models.BERT, threads=1)
        rng = np.random.default_rng(0)
        cls.feeds = {"input_ids": rng.integers(0, 50, (2, 7)), "attention_mask": np.ones((2, 7), np.int64)}
        cls.feeds["attention_mask"][1, 4:] = 0

    def test_weights(self):
        maps = self.model.attention(**self.feeds)
        self.assertIsInstance(maps, attnc.AttentionMaps)
        self.assertEqual(len(maps), 2)  # a layer each
        for node, weights in maps.items():
            self.assertEqual(weights.shape, (2, 4, 7, 7))
            np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
            self.assertEqual(np.abs(weights[1, :, :, 4:]).max(), 0)  # padding
            np.testing.assert_array_equal(maps.outputs[f"{node}.argmax"], weights.argmax(-1))
        name = self.plain.outputs[0].name
        np.testing.assert_array_equal(maps.outputs[name], self.plain(**self.feeds))

    def test_page(self):
        labels = [f"<{n}>" for n in range(7)]
        maps = self.model.attention(labels=labels, **self.feeds)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page.html"
            maps.save(path)
            page = path.read_text()
        text, = re.findall(r'id="data">(.*?)</script>', page, re.S)
        layers = json.loads(text)["layers"]
        self.assertEqual([layer["name"] for layer in layers], list(maps))
        self.assertEqual(layers[0]["keyLabels"], labels)
        self.assertNotIn("https://", page)
        self.assertIn("srcdoc=", maps._repr_html_())

    def test_key_labels_and_picture(self):
        queries, keys = [f"q{n}" for n in range(7)], [f"k{n}" for n in range(7)]
        maps = self.model.attention(labels=queries, key_labels=keys, image=b"\x89PNG pixels", **self.feeds)
        text, = re.findall(r'id="data">(.*?)</script>', maps.page(), re.S)
        data = json.loads(text)
        self.assertEqual((data["layers"][0]["queryLabels"], data["layers"][0]["keyLabels"]), (queries, keys))
        self.assertTrue(data["image"].startswith("data:image/png;base64,"))
        with self.assertRaisesRegex(attnc.InvalidArgument, "neither PNG nor JPEG"):
            self.model.attention(image=b"GIF89a", **self.feeds)

    def test_nothing_exposed(self):
        with self.assertRaisesRegex(attnc.InvalidArgument, "expose_attention='all'"):
            self.plain.attention(**self.feeds)
        with self.assertRaisesRegex(attnc.InvalidArgument, "no fused attention 'nothing'"):
            attnc.load(models.BERT, expose_attention="nothing", cache=False)


unittest.main()
