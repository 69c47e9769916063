"""Model.attention: weights of a fused model, and the page that draws them."""
import base64
import json
import pathlib
import re
import sys
import tempfile
import unittest

import attnc
import models
import numpy as np

sys.path.append(str(pathlib.Path(__file__).parents[1] / "tools/Inputs"))
import png

PICTURE = png.grey(np.full((7, 1), 128, np.uint8))


def data_of(page):
    """What a page draws."""
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])
    for layer in data["layers"]:
        layer["drawn"] = np.frombuffer(base64.b64decode(layer["weights"]), "<u2").reshape(layer["shape"]) / 65535
    return data


def layers_of(maps):
    return data_of(maps.page())["layers"]


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
        by_position = self.model.attention(*(self.feeds[info.name] for info in self.model.inputs))
        np.testing.assert_array_equal(next(iter(by_position.values())), next(iter(maps.values())))
        name = self.plain.outputs[0].name
        np.testing.assert_array_equal(maps.outputs[name], self.plain(**self.feeds))

    def test_page(self):
        labels = [f"<{n}>" for n in range(7)]
        maps = self.model.attention(labels=labels, **self.feeds)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page.html"
            maps.save(path)
            for kind in (attnc.NoSuchFile, FileNotFoundError):
                with self.assertRaisesRegex(kind, "cannot write '.*nowhere/page.html': No such file"):
                    maps.save(pathlib.Path(folder) / "nowhere" / "page.html")
            page = path.read_text()
        text, = re.findall(r'id="data">(.*?)</script>', page, re.S)
        layers = json.loads(text)["layers"]
        self.assertEqual([layer["name"] for layer in layers], list(maps))
        self.assertEqual(layers[0]["keyLabels"], labels)
        self.assertNotIn("https://", page)
        self.assertIn("srcdoc=", maps._repr_html_())

    def test_key_labels_and_picture(self):
        queries, keys = [f"q{n}" for n in range(7)], [f"k{n}" for n in range(7)]
        maps = self.model.attention(labels=queries, key_labels=keys, image=PICTURE, **self.feeds)
        text, = re.findall(r'id="data">(.*?)</script>', maps.page(), re.S)
        data = json.loads(text)
        self.assertEqual((data["layers"][0]["queryLabels"], data["layers"][0]["keyLabels"]), (queries, keys))
        self.assertTrue(data["image"].startswith("data:image/png;base64,"))
        with self.assertRaisesRegex(attnc.InvalidArgument, "neither PNG nor JPEG"):
            self.model.attention(image=b"GIF89a", **self.feeds)
        for damaged in (PICTURE[:-5], PICTURE.replace(b"IDAT", b"IDAX"), b"\x89PNG pixels", b"\xff\xd8\xff cut"):
            with self.assertRaisesRegex(attnc.InvalidArgument, "damaged or cut off"):
                self.model.attention(image=damaged, **self.feeds)

    def test_labels_of_another_length(self):
        with self.assertRaisesRegex(attnc.InvalidArgument, "labels: 3 texts for attentions of 7 queries and 7 keys"):
            self.model.attention(labels=["a", "b", "c"], **self.feeds)
        with self.assertRaisesRegex(attnc.InvalidArgument, "key_labels: 6 texts for attentions of 7 keys"):
            self.model.attention(labels=["x"] * 7, key_labels=["y"] * 6, **self.feeds)

    def test_spellings(self):
        for more in ({"expose_attention": True, "expose_attention_as": "head-mean"},
                     {"expose_attention": "all", "expose_attention_as": ["head-mean"]}):
            model = attnc.load(models.BERT, threads=1, **more)
            self.assertEqual([o.name.endswith(".head_mean") for o in model.outputs], [False, True, True])
            maps = model.attention(**self.feeds)
            self.assertEqual((len(maps), len(maps.outputs)), (0, 3))
            self.assertEqual([layer["form"] for layer in layers_of(maps)], ["mean", "mean"])
        for wrong in ({"expose_attention": 3}, {"expose_attention": "all", "expose_attention_as": [1]}):
            with self.assertRaisesRegex(attnc.InvalidArgument, "expects a text or a list of texts, not int"):
                attnc.load(models.BERT, **wrong)

    def test_reductions(self):
        """Where there are no whole weights a page draws what there is."""
        model = attnc.load(models.BERT, threads=1, expose_attention="all",
                           expose_attention_as=["argmax", "entropy", "top-k:2"])
        whole, maps = self.model.attention(**self.feeds), model.attention(**self.feeds)
        layers = layers_of(maps)
        self.assertEqual(len(layers), 6)
        for node, weights in whole.items():
            drawn = {layer["form"]: layer for layer in layers if layer["name"] == node}
            top = np.where(weights >= np.sort(weights, -1)[..., -2:-1], weights, 0)
            largest = np.arange(7) == weights.argmax(-1)[..., None]
            for form, want in (("top", top), ("argmax", largest)):
                keys = drawn[form]["shape"][3]
                np.testing.assert_allclose(drawn[form]["drawn"], want[..., :keys], atol=1e-4)
            bits = -np.where(weights > 0, weights * np.log2(np.where(weights > 0, weights, 1)), 0).sum(-1)
            np.testing.assert_allclose(drawn["entropy"]["drawn"][:, 0] * drawn["entropy"]["most"], np.swapaxes(bits, 1, 2), atol=1e-3)
            np.testing.assert_allclose(drawn["entropy"]["bits"], bits.mean(-1).ravel(), atol=1e-3)

    def test_large_page(self):
        """A page is bounded: it draws some of many items, and groups of many positions."""
        ids = np.random.default_rng(1).integers(3, 50, (5, 700))
        model = attnc.load(models.ROOT / "test/e2e/models/t5_encoder_ts17/model.onnx", threads=1, expose_attention="all")
        maps = model.attention(input_ids=ids, attention_mask=np.ones_like(ids), labels=[str(n) for n in range(700)])
        page = maps.page()
        self.assertLess(len(page), 13e6)
        data = data_of(page)
        self.assertEqual(data["items"], 5)
        for layer, weights in zip(data["layers"], maps.values()):
            self.assertEqual((layer["shape"], layer["group"], layer["positions"]), ([3, 4, 350, 350], [2, 2], [700, 700]))
            means = weights[:3].reshape(3, 4, 350, 2, 350, 2).sum(5).mean(3)
            np.testing.assert_allclose(layer["drawn"], means, atol=2e-5)
            bits = -(weights[:3] * np.log2(np.maximum(weights[:3], 1e-30))).sum(-1).mean(-1)
            np.testing.assert_allclose(layer["bits"], bits.ravel(), rtol=1e-3)
            self.assertEqual(len(layer["keyLabels"]), 700)

    def test_entries(self):
        model = attnc.load({"a": models.BERT, "b": models.BERT}, threads=1, expose_attention=f"b:{self.node()}")
        with self.assertRaisesRegex(attnc.InvalidArgument, "entry 'a' of .* exposes no attention: .*: 'b'"):
            model.attention(**self.feeds)
        maps = model.attention(entry="b", **self.feeds)
        self.assertEqual(list(maps), [self.node()])
        self.assertIn(f'"model": "{pathlib.Path(models.BERT).name}"', maps.page())

    def node(self):
        return next(iter(self.model.attention(**self.feeds)))

    def test_nothing_exposed(self):
        with self.assertRaisesRegex(attnc.InvalidArgument, "expose_attention='all'"):
            attnc.load(self.plain.path, threads=1).attention(**self.feeds)
        # A model that is given as a file is compiled once more.
        self.assertEqual(len(self.plain.attention(**self.feeds)), 2)
        with self.assertRaisesRegex(attnc.InvalidArgument, "no fused attention 'nothing'"):
            attnc.load(models.BERT, expose_attention="nothing", cache=False)


unittest.main()
