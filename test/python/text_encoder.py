"""TextEncoder against ONNX Runtime: a small BERT in a folder as sentence-transformers writes it."""
import json
import pathlib
import sys
import tempfile
import unittest

import attnc
import eager_bert
import models
import numpy as np
import onnxruntime
from attnc.text_encoder import _pool
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models as token_models, normalizers, pre_tokenizers, processors

sys.path.insert(0, str(models.ROOT / "tools/demo"))
from minilm import write_minilm  # noqa: E402

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghij", "rain", "river", "bread", "stock", "the", "and", "##s"]
SENTENCES = ["the rain and the rivers", "bread", "a b c d e f g h i j the end", "stock", "the stock and bread and rain"]
CONFIG = {"model_type": "bert", "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
          "intermediate_size": 48, "max_position_embeddings": 24, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
          "hidden_act": "gelu", "vocab_size": len(WORDS)}


def write_folder(folder, prefix="", **changes):
    config, random = {**CONFIG, **changes}, np.random.default_rng(1)
    width, wide = config["hidden_size"], config["intermediate_size"]
    weights = {}

    def tensor(name, *shape, base=0.0):
        weights[prefix + name] = (base + 0.3 * random.standard_normal(shape)).astype(np.float32)

    def norm(name):
        tensor(f"{name}.LayerNorm.weight", width, base=1)
        tensor(f"{name}.LayerNorm.bias", width)

    def linear(name, units, inputs):
        tensor(f"{name}.weight", units, inputs)
        tensor(f"{name}.bias", units)

    for kind, rows in (("word", len(WORDS)), ("position", config["max_position_embeddings"]), ("token_type", 2)):
        tensor(f"embeddings.{kind}_embeddings.weight", rows, width)
    norm("embeddings")
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            linear(f"{at}.attention.self.{part}", width, width)
        linear(f"{at}.attention.output.dense", width, width)
        norm(f"{at}.attention.output")
        linear(f"{at}.intermediate.dense", wide, width)
        linear(f"{at}.output.dense", width, wide)
        norm(f"{at}.output")
    save_file(weights, folder / "model.safetensors")
    write_json(folder / "config.json", config)
    tokenizer = Tokenizer(token_models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.enable_padding(length=128)  # as MiniLM's own file has it: longer than the model
    tokenizer.save(str(folder / "tokenizer.json"))
    stack = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    write_json(folder / "modules.json", [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                                         for i, (kind, path) in enumerate(stack)])
    write_json(folder / "1_Pooling/config.json", {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True,
                                                  "pooling_mode_cls_token": False})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 8, "do_lower_case": False})


def write_json(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


class Encoders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name) / "bert"
        cls.folder.mkdir()
        write_folder(cls.folder)
        cls.onnx = pathlib.Path(cls.scratch.name) / "whole.onnx"
        write_minilm(cls.folder, cls.onnx)
        cls.encoder = attnc.TextEncoder(cls.folder, threads=1)
        cls.session = onnxruntime.InferenceSession(str(cls.onnx), providers=["CPUExecutionProvider"])

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def expected(self, sentence):
        """By ONNX Runtime, alone: no padding."""
        ids = [2] + [WORDS.index(w) if w in WORDS else 1 for w in sentence.replace("rivers", "river ##s").split()] + [3]
        ids = np.array([ids if len(ids) <= 8 else ids[:7] + [3]], np.int64)
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        return self.session.run(["sentence_embedding"], feeds)[0][0]

    def test_embeddings(self):
        found = self.encoder.encode(SENTENCES, batch_size=2)
        self.assertEqual((found.dtype, found.shape), (np.float32, (5, 32)))
        np.testing.assert_allclose(found, [self.expected(s) for s in SENTENCES], atol=1e-5, rtol=0)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
        self.assertGreater(np.abs(found[0] - found[1]).max(), 0.05)
        np.testing.assert_allclose(self.encoder.encode(SENTENCES[0]), found[0], atol=1e-6)
        np.testing.assert_allclose(self.encoder.encode("rain", prompt="the "), self.expected("the rain"), atol=1e-5)
        self.assertEqual(self.encoder.encode([]).shape, (0, 32))
        np.testing.assert_array_equal(self.encoder.embed(self.encoder.tokenize(SENTENCES[:2])), found[:2])
        self.assertEqual((self.encoder.dimension, self.encoder.max_length, self.encoder.normalizes), (32, 8, True))
        self.assertEqual(self.encoder.model.fusion.fused, 2)
        self.assertIn("mean_tokens, normalised, 32 wide", repr(self.encoder))

    def test_an_onnx_file_in_the_folder(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write_folder(folder, prefix="bert.", layer_norm_eps=1e-6)
            graph = attnc.TextEncoder(folder).encode(SENTENCES)  # another epsilon and prefix
            np.testing.assert_allclose(graph, self.encoder.encode(SENTENCES), atol=1e-4)
            (folder / "onnx").mkdir()
            (folder / "onnx/model.onnx").write_bytes(self.onnx.read_bytes())
            encoder = attnc.TextEncoder(folder, threads=1)
            np.testing.assert_allclose(encoder.encode(SENTENCES), self.encoder.encode(SENTENCES), atol=1e-5)

    def test_attention(self):
        """Weights of one text, named by its tokens, against float64."""
        maps = self.encoder.attention("the rain and bread")
        ids = np.array([[2, 18, 14, 19, 16, 3]])
        for ours, eager in zip(maps.values(), eager_bert.attentions(self.folder, ids), strict=True):
            np.testing.assert_allclose(ours, eager, rtol=0, atol=1e-5)
        tokens = json.dumps(["[CLS]", "the", "rain", "and", "bread", "[SEP]"])
        self.assertIn(f'"keyLabels": {tokens}', maps.page())
        named = self.encoder.attention("rain", labels=["a", "b", "c"])
        self.assertIn('"keyLabels": ["a", "b", "c"]', named.page())
        means = attnc.TextEncoder(self.folder, threads=1, expose_attention="all", expose_attention_as="head-mean")
        self.assertEqual([name.rpartition(".")[2] for name in list(means.attention("rain").outputs)[1:]], ["head_mean"] * 2)
        with self.assertRaisesRegex(attnc.InvalidArgument, "attention expects a str, not list"):
            self.encoder.attention(["rain"])

    def test_poolings(self):
        states = np.arange(24, dtype=np.float32).reshape(2, 4, 3) ** 1.5 * np.float32([1, -1, 1])
        mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0]])
        for row, count in ((0, 3), (1, 1)):
            x = states[row, :count].astype(np.float64)
            weights = np.arange(1, count + 1)[:, None]
            for mode, expected in (("cls_token", x[0]), ("lasttoken", x[-1]), ("max_tokens", x.max(0)), ("mean_tokens", x.mean(0)),
                                   ("mean_sqrt_len_tokens", x.sum(0) / np.sqrt(count)),
                                   ("weightedmean_tokens", (weights * x).sum(0) / weights.sum())):
                np.testing.assert_allclose(_pool(mode, states, mask)[row], expected, rtol=1e-6)

    def change(self, name, value, message, kind):
        path = self.folder / name
        before = path.read_text()
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        try:
            with self.assertRaisesRegex(kind, message):
                attnc.TextEncoder(self.folder)
        finally:
            path.write_text(before)

    def test_joined_poolings(self):
        pooling = self.folder / "1_Pooling/config.json"
        before = pooling.read_text()
        for text in ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, {"pooling_mode": ["mean", "cls"]}):
            pooling.write_text(json.dumps(text))
            encoder = attnc.TextEncoder(self.folder, threads=1)
            found = encoder.encode(SENTENCES)
            self.assertEqual((encoder.dimension, found.shape), (64, (5, 64)))
            mean = found[:, 32:] / np.linalg.norm(found[:, 32:], axis=1, keepdims=True)
            np.testing.assert_allclose(mean, self.encoder.encode(SENTENCES), atol=1e-5)
        pooling.write_text(before)

    def test_errors(self):
        self.change("modules.json", "[", "modules.json: ", attnc.InvalidArgument)
        self.change("modules.json", [{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}],
                    "a module of type 'Dense' is not supported", attnc.Unsupported)
        self.change("1_Pooling/config.json", {"pooling_mode": "other"}, "pooling 'other'", attnc.Unsupported)
        self.change("config.json", {**CONFIG, "model_type": "xlnet"}, "type 'xlnet'.*onnx/model.onnx", attnc.Unsupported)
        self.change("config.json", {**CONFIG, "hidden_act": "swish"}, "activation 'swish'", attnc.Unsupported)
        with self.assertRaisesRegex(attnc.NoSuchFile, "no such folder"):
            attnc.TextEncoder("nowhere")
        with tempfile.TemporaryDirectory() as empty, self.assertRaisesRegex(attnc.NoSuchFile, "tokenizer.json"):
            attnc.TextEncoder(empty)
        with self.assertRaisesRegex(attnc.InvalidArgument, "sentence 1 is of type int"):
            self.encoder.encode(["a", 1])
        for size in (0, 1.5, "8", None):
            with self.assertRaisesRegex(attnc.InvalidArgument, f"batch_size expects .* not {size!r}"):
                self.encoder.encode(["a"], batch_size=size)
        for sentences in (None, 3, {"a": "b"}):
            with self.assertRaisesRegex(attnc.InvalidArgument, f"expects a str .* not {type(sentences).__name__}"):
                self.encoder.encode(sentences)


if __name__ == "__main__":
    unittest.main()
