"""attnc.accelerate: small models of sentence-transformers with random weights, against themselves in torch."""
import gc
import os
import pathlib
import pickle
import tempfile
import unittest
import weakref

import attnc
import numpy as np
import torch
import transformers
from sentence_transformers import CrossEncoder, SentenceTransformer, SparseEncoder, models
from sentence_transformers.sparse_encoder.modules import SpladePooling
from tokenizers import Tokenizer, models as token_models, pre_tokenizers, processors

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "rain", "river", "bread", "stock", "the", "and", "##s"]
SENTENCES = ["the rain and the rivers", "bread", "a b c d e f g h i j the end of all", "stock", "the stock and bread and rain", ""]
SMALL = {"vocab_size": len(WORDS), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 48, "max_position_embeddings": 40, "pad_token_id": 0}


def save(folder, model):
    """A folder as the hub has it: the model and its tokenizer."""
    tokenizer = Tokenizer(token_models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    names = ["input_ids", "token_type_ids", "attention_mask"]
    if model.config.model_type not in ("bert", "roberta"):
        names.remove("token_type_ids")
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=16, model_input_names=names)
    wrapped.save_pretrained(folder)
    model.save_pretrained(folder)
    return str(folder)


def bert(**changes):
    torch.manual_seed(1)
    return transformers.BertModel(transformers.BertConfig(**{**SMALL, **changes}))


class Accelerated(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.scratch = pathlib.Path(scratch.name)
        cls.torch = cls.sentences(bert())
        cls.fast = attnc.accelerate(cls.torch, threads=1)

    @classmethod
    def sentences(cls, model, pooling="mean", normalize=True):
        folder = save(cls.scratch / f"{type(model).__name__}-{len(os.listdir(cls.scratch))}", model)
        transformer = models.Transformer(folder, max_seq_length=12)
        stack = [transformer, models.Pooling(transformer.get_embedding_dimension(), pooling)]
        return SentenceTransformer(modules=stack + [models.Normalize()] * normalize, device="cpu")

    def test_encode(self):
        want = self.torch.encode(SENTENCES, batch_size=2)
        for options in ({}, {"batch_size": 1}, {"batch_size": 4}, {"device": "cpu"}):
            found = self.fast.encode(SENTENCES, **options)
            self.assertEqual((found.dtype, found.shape), (np.float32, (6, 32)))
            np.testing.assert_allclose(found, want, atol=2e-6, rtol=0)
        np.testing.assert_allclose(self.fast.encode("bread"), want[1], atol=2e-6, rtol=0)
        tensors = self.fast.encode(SENTENCES, convert_to_tensor=True, truncate_dim=8)
        self.assertEqual((type(tensors), tuple(tensors.shape)), (torch.Tensor, (6, 8)))
        want = self.torch.encode(SENTENCES, prompt="the rain ", output_value="token_embeddings")
        for found, expected in zip(self.fast.encode(SENTENCES, prompt="the rain ", output_value="token_embeddings"), want):
            np.testing.assert_allclose(found, expected, atol=2e-6, rtol=0)
        self.assertEqual(self.fast.encode([]).shape, (0,))
        self.assertEqual(self.fast.get_embedding_dimension(), 32)
        self.assertEqual(self.fast.device, torch.device("cpu"))

    def test_poolings(self):
        for pooling, normalize in (("cls", False), ("max", True), (("mean", "lasttoken"), False)):
            model = self.sentences(bert(), pooling, normalize)
            np.testing.assert_allclose(attnc.accelerate(model).encode(SENTENCES), model.encode(SENTENCES), atol=5e-6, rtol=0)

    def test_exported(self):
        """Each of its own kind of positions, masks and norms."""
        wide = {"vocab_size": SMALL["vocab_size"], "pad_token_id": 0}
        for model in (
            lambda: transformers.RobertaModel(transformers.RobertaConfig(**{**SMALL, "type_vocab_size": 2})),
            lambda: transformers.MPNetModel(transformers.MPNetConfig(**SMALL)),
            lambda: transformers.DistilBertModel(transformers.DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=48, **wide)),
            lambda: transformers.ModernBertModel(transformers.ModernBertConfig(local_attention=4, **SMALL)),
            lambda: transformers.T5EncoderModel(transformers.T5Config(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, **wide)),
        ):
            torch.manual_seed(2)
            slow = self.sentences(model())
            with self.subTest(type(slow[0].model).__name__):
                np.testing.assert_allclose(attnc.accelerate(slow, threads=1).encode(SENTENCES), slow.encode(SENTENCES),
                                           atol=1e-5, rtol=0)

    def test_other_families(self):
        torch.manual_seed(3)
        config = transformers.BertConfig(**SMALL, num_labels=1)
        slow = CrossEncoder(save(self.scratch / "cross", transformers.BertForSequenceClassification(config)), device="cpu")
        pairs = [("the rain", "the river s"), ("bread", "stock and bread and rain"), ("a", "a b c d e f")]
        np.testing.assert_allclose(attnc.accelerate(slow).predict(pairs), slow.predict(pairs), atol=1e-5, rtol=0)
        masked = models.Transformer(save(self.scratch / "sparse", transformers.BertForMaskedLM(config)),
                                    transformer_task="fill-mask")
        slow = SparseEncoder(modules=[masked, SpladePooling()], device="cpu")
        np.testing.assert_allclose(attnc.accelerate(slow).encode(SENTENCES).to_dense(),
                                   slow.encode(SENTENCES).to_dense(), atol=1e-5, rtol=0)

    def test_weights_are_those_in_memory(self):
        model = self.sentences(bert())
        before = attnc.accelerate(model).encode(SENTENCES)
        with torch.no_grad():
            model[0].model.encoder.layer[1].output.dense.bias.add_(torch.linspace(-1, 1, 32))
        after = attnc.accelerate(model).encode(SENTENCES)
        np.testing.assert_allclose(after, model.encode(SENTENCES), atol=2e-6, rtol=0)
        self.assertGreater(np.abs(after - before).max(), 0.01)

    def test_compiled_once(self):
        seen = []
        listener = lambda stage, seconds: seen.append(stage)  # noqa: E731
        model = self.sentences(bert(num_hidden_layers=1))
        attnc.accelerate(model, on_progress=listener)
        self.assertTrue(seen)
        seen.clear()
        attnc.accelerate(self.sentences(bert(num_hidden_layers=1)), on_progress=listener)
        self.assertFalse(seen)
        attnc.accelerate(model, on_progress=listener, weights="int8")
        self.assertTrue(seen)

    def test_the_original_goes_and_stays(self):
        model = self.sentences(bert())
        fast = attnc.accelerate(model)
        model.train()
        self.assertTrue(model.training and type(model[0].model).__name__ == "BertModel")
        weights, want = weakref.ref(model[0].model), fast.encode(SENTENCES)
        del model
        gc.collect()
        self.assertIsNone(weights())  # a second copy of the weights would be all that it is for
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(fast)).encode(SENTENCES), want)

    def test_errors(self):
        def check(kind, message, call):
            with self.assertRaisesRegex(kind, message):
                call()

        check(attnc.InvalidArgument, "expected a SentenceTransformer, not an object of type str", lambda: attnc.accelerate("a"))
        check(attnc.InvalidArgument, "accelerated already", lambda: attnc.accelerate(self.fast))
        check(attnc.InvalidArgument, "no option 'weight'", lambda: attnc.accelerate(self.torch, weight="int8"))
        check(attnc.Unsupported, "save the one given to attnc.accelerate",
              lambda: self.fast.save_pretrained(str(self.scratch / "saved")))
        bow = SentenceTransformer(modules=[models.BoW(vocab=["rain"])], device="cpu")
        check(attnc.Unsupported, "the first module is a BoW", lambda: attnc.accelerate(bow))
        features = self.fast.preprocess(["bread"])
        check(attnc.Unsupported, "'output_attentions' is not part of the compiled model, whose inputs are input_ids",
              lambda: self.fast[0].model.forward(**features, output_attentions=True))
        check(attnc.InvalidArgument, "attention_mask.* is missing",
              lambda: self.fast[0].model.forward(input_ids=features["input_ids"]))


if __name__ == "__main__":
    unittest.main()
