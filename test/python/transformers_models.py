"""Models of transformers, with small random weights, exported and run through attnc: what torch gives, they give."""
import contextlib
import gc
import io
import logging
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest
import warnings
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import attnc  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from attnc.integrations.transformers import AttncExporter, AttncModel  # noqa: E402
from transformers import GenerationMixin  # noqa: E402
from transformers.exporters.base import ExportedModel  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e/hub"))
import hub_models  # noqa: E402

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
torch.set_num_threads(1)
WORDS, NEW = 60, 14
# Many, so that sequences end at all lengths.
ENDS = [2, *range(6, WORDS, 4)]
TEXT = dict(vocab_size=WORDS, d_model=32, max_position_embeddings=64, encoder_layers=2, decoder_layers=2,
            encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48)
BERT = dict(vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)


def sharpened(model):
    """With weights so large that the scores of tokens lie far apart, as those of a trained model do."""
    torch.manual_seed(7)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "position" not in name:
                weight.normal_(std=0.25 if weight.shape[0] != WORDS else 0.5)
    return model.eval()


def words():
    """A tokenizer whose words are called w0, w1..."""
    model = tokenizers.models.WordLevel({f"w{n}": n for n in range(WORDS)}, unk_token="w3")
    made = tokenizers.Tokenizer(model)
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="w0", eos_token="w2")


class Folders(unittest.TestCase):
    """Exports into a folder that lasts as long as the class."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    @classmethod
    def export(cls, model, name="model", **inputs):
        generates = model.can_generate()
        exporter = AttncExporter()
        logging.disable(logging.WARNING)
        with mock.patch("sys.stdout", io.StringIO()):
            exported = (exporter.export_for_generation if generates else exporter.export)(model, inputs)
        logging.disable(logging.NOTSET)
        path = pathlib.Path(cls.folder.name) / name
        exported.save_pretrained(path)
        return path


class Encoders(Folders):
    def same(self, got, want, atol=2e-5):
        self.assertEqual(list(got.keys()), list(want.keys()))
        for name in want.keys():
            torch.testing.assert_close(got[name], want[name], atol=atol, rtol=0)

    def test_bert(self):
        model = sharpened(transformers.BertModel(transformers.BertConfig(**BERT)))
        ids = torch.randint(3, WORDS, (2, 7))
        types = torch.zeros_like(ids)
        path = self.export(model, input_ids=ids, attention_mask=torch.ones_like(ids), token_type_ids=types)
        exported = ExportedModel.from_pretrained(path, threads=1)
        loaded = AttncModel.from_pretrained(path, threads=1)
        self.assertEqual((exported.device.type, exported.dtype), ("cpu", torch.float32))
        self.assertEqual(type(loaded).__name__, "BertModel")
        self.assertEqual(exported.runners["model"].model.fusion.fused, 2)
        for rows in range(1, 11):
            ids = torch.randint(3, WORDS, (rows, 3 + rows))
            mask = (torch.arange(3 + rows) < torch.randint(1, 4 + rows, (rows, 1))).long()
            inputs = dict(input_ids=ids, attention_mask=mask, token_type_ids=torch.randint(0, 2, ids.shape))
            with torch.no_grad():
                want = model(**inputs)
            got = exported(**inputs)
            self.assertIsInstance(got, type(want))
            self.same(got, want)
            self.same(loaded(**inputs), want)
        with self.assertRaisesRegex(attnc.InvalidArgument, "'attention_mask'"):
            exported(input_ids=ids)
        with self.assertRaisesRegex(attnc.InvalidArgument, "on the CPU, not on cuda"):
            ExportedModel.from_pretrained(path, device="cuda")
        with self.assertRaisesRegex(attnc.InvalidArgument, "not on cuda"):
            loaded.to("cuda")
        with self.assertRaisesRegex(TypeError, "wieghts"):
            ExportedModel.from_pretrained(path, wieghts="int8")

    def test_vit(self):
        settings = transformers.ViTConfig(image_size=32, patch_size=8, num_labels=5, **{**BERT, "vocab_size": None})
        model = sharpened(transformers.ViTForImageClassification(settings))
        path = self.export(model, "vit", pixel_values=torch.randn(2, 3, 32, 32))
        exported = ExportedModel.from_pretrained(path, threads=1)
        self.assertEqual(exported.runners["model"].model.inputs[0].shape[1:], (3, 32, 32))
        for rows in range(1, 11):
            pixels = torch.randn(rows, 3, 32, 32)
            with torch.no_grad():
                self.same(exported(pixel_values=pixels), model(pixel_values=pixels))

    def test_without_a_folder(self):
        model = sharpened(transformers.BertModel(transformers.BertConfig(**{**BERT, "num_hidden_layers": 1})))
        inputs = dict(input_ids=torch.randint(3, WORDS, (2, 7)), attention_mask=torch.ones(2, 7, dtype=torch.int64))
        with mock.patch("sys.stdout", io.StringIO()):
            exported = AttncExporter().export(model, dict(inputs))
        with torch.no_grad():
            self.same(exported(**inputs), model(**inputs))


class Generators(Folders):
    """What each model of the classes below must do."""

    settings = {}

    @classmethod
    def load(cls, model, **inputs):
        cls.torch = sharpened(model)
        cls.torch.generation_config.update(eos_token_id=ENDS, **cls.settings)
        cls.path = cls.export(model, **inputs)
        cls.model = AttncModel.from_pretrained(cls.path, threads=1)

    def inputs(self, rows):
        length = 2 + rows
        seen = torch.arange(length) < torch.randint(1, length + 1, (rows, 1))
        return dict(input_ids=torch.randint(15, WORDS, (rows, length)), attention_mask=seen.long())

    def compare(self, batches=(1, 2, 5, 8, 4, 6, 9, 3, 10, 2), searches=True, **settings):
        """Over 50 rows."""
        torch.manual_seed(3)
        lengths = set()
        loop = "_beam_search" if settings.get("num_beams", 1) > 1 else "_sample"
        for rows in batches:
            inputs = self.inputs(rows)
            call = dict(max_new_tokens=NEW, do_sample=False, **settings)
            want = self.torch.generate(**inputs, **call)
            kept = getattr(GenerationMixin, loop)
            with mock.patch.object(GenerationMixin, loop, autospec=True, side_effect=kept) as looped:
                got = self.model.generate(**inputs, **call)
            self.assertTrue(torch.equal(got, want), f"{settings} of {inputs}:\n{got}, and by torch\n{want}")
            self.assertEqual(looped.called, not searches)
            for row in want[:, -NEW:].tolist():
                lengths.add(next((n for n, token in enumerate(row) if token in ENDS), NEW))
        if len(batches) > 5:
            self.assertGreater(len(lengths), 1, "all sequences of the test are equally long")

    def test_greedy(self):
        self.compare()

    def test_beam(self):
        self.compare(num_beams=4)

    def test_loop(self):
        """Transformers' own, over compiled steps: each look at the caches that the rows before it left."""
        self.compare(searches=False, no_repeat_ngram_size=2, batches=(1, 3))
        self.compare(searches=False, repetition_penalty=1.7, batches=(1, 3))
        self.compare(searches=False, use_cache=False, batches=(1, 3))
        self.compare(searches=False, use_cache=False, num_beams=2, batches=(2,))
        self.compare(searches=False, no_repeat_ngram_size=2, num_beams=3, num_return_sequences=2, batches=(1, 3))

    def test_sampling_loop(self):
        """By torch's generator, what torch draws."""
        torch.manual_seed(1)
        inputs = self.inputs(3)
        for more in (dict(no_repeat_ngram_size=2), dict(num_beams=2)):
            call = dict(do_sample=True, top_k=5, max_new_tokens=6, **more)
            torch.manual_seed(5)
            want = self.torch.generate(**inputs, **call)
            torch.manual_seed(5)
            self.assertTrue(torch.equal(self.model.generate(**inputs, **call), want))

    def probabilities(self, inputs, temperature, top_k, top_p):
        """Of the first new token, by torch's scores in float64."""
        made = self.torch.generate(**inputs, max_new_tokens=1, do_sample=False, output_logits=True,
                                   return_dict_in_generate=True)  # fmt: skip
        scores = made.logits[0][0].double() / temperature
        scores[scores < scores.topk(top_k).values[-1]] = -torch.inf
        falling, order = scores.softmax(0).sort(descending=True)
        falling[falling.cumsum(0) - falling >= top_p] = 0
        return torch.zeros_like(falling).scatter(0, order, falling / falling.sum())

    def test_sampling(self):
        """By a compiled search, with settings of each run: draws as often as they should be."""
        torch.manual_seed(1)
        inputs = self.inputs(1)
        count = 4000
        for temperature, top_k, top_p in ((1.0, WORDS, 1.0), (2.5, 9, 1.0), (4.0, WORDS, 0.8)):
            call = dict(do_sample=True, temperature=temperature, top_k=top_k, top_p=top_p, max_new_tokens=1)
            expected = self.probabilities(inputs, temperature, top_k, top_p)
            with mock.patch.object(GenerationMixin, "_sample") as looped:
                torch.manual_seed(5)
                drawn = self.model.generate(**inputs, num_return_sequences=count, **call)[:, -1]
                torch.manual_seed(5)
                again = self.model.generate(**inputs, num_return_sequences=count, **call)[:, -1]
                other = self.model.generate(**inputs, num_return_sequences=count, **call)[:, -1]
            self.assertFalse(looped.called)
            self.assertTrue(torch.equal(drawn, again))
            self.assertFalse(torch.equal(drawn, other) and expected.max() < 0.999)
            frequency = drawn.bincount(minlength=WORDS).double() / count
            self.assertEqual(frequency[expected == 0].sum(), 0)
            # Five standard deviations of each, and of what is rare a draw more.
            bound = 5 * (expected * (1 - expected) / count).sqrt() + 1 / count
            self.assertTrue((frequency - expected).abs().le(bound).all(), f"{frequency} is not {expected}")
        self.assertEqual(sum(isinstance(search, attnc.Sample) for search in self.model._searches), 1)


class Gpt2(Generators):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        settings = transformers.GPT2Config(vocab_size=WORDS, n_positions=64, n_embd=32, n_layer=2, n_head=4,
                                           bos_token_id=1, eos_token_id=2, pad_token_id=0)  # fmt: skip
        ids = torch.randint(3, WORDS, (2, 7))
        cls.load(transformers.GPT2LMHeadModel(settings), input_ids=ids, attention_mask=torch.ones_like(ids))

    def inputs(self, rows):
        inputs = super().inputs(rows)
        return {**inputs, "attention_mask": inputs["attention_mask"].flip(1)}  # padded on the left

    def test_padding_on_the_right(self):
        """The last token of a prompt is where a compiled search goes on."""
        with mock.patch.object(self, "inputs", super().inputs):
            self.compare(searches=False, batches=(2, 5))
            self.compare(searches=False, batches=(3,), num_beams=2)

    def test_beams_of_other_kinds(self):
        self.compare(batches=(3, 2), num_beams=3, num_return_sequences=3, length_penalty=0.5, early_stopping=True)
        self.compare(batches=(3,), min_new_tokens=6)
        self.compare(batches=(3,), searches=False, num_beams=2, early_stopping="never")

    def test_pipeline(self):
        call = dict(max_new_tokens=8, do_sample=False)
        tokenizer = words()
        pipes = [transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)
                 for model in (self.torch, self.model)]  # fmt: skip
        want, got = (pipe(["w20 w31", "w44"], **call) for pipe in pipes)
        self.assertEqual(got, want)
        self.assertRegex(got[0][0]["generated_text"], "^w20 w31 ?w")

    def test_continues(self):
        """A look at what came, and one at what is new."""
        ids = torch.randint(3, WORDS, (2, 8))
        with torch.no_grad():
            whole = self.torch(input_ids=ids).logits
        first = self.model(input_ids=ids[:, :3])
        cache = first.past_key_values
        self.assertEqual(cache.get_seq_length(), 3)
        rest = self.model(input_ids=ids[:, 3:], cache=cache)
        torch.testing.assert_close(torch.cat([first.logits, rest.logits], 1), whole, atol=2e-5, rtol=0)
        cache.crop(-6)
        cache.batch_select_indices(torch.tensor([1, 0]))
        again = self.model(input_ids=ids.flip(0)[:, 2:4], past_key_values=cache)
        torch.testing.assert_close(again.logits, whole.flip(0)[:, 2:4], atol=2e-5, rtol=0)
        cache.batch_repeat_interleave(2)
        wide = self.model(input_ids=ids.flip(0).repeat_interleave(2, 0)[:, 4:], past_key_values=cache)
        self.assertEqual(wide.logits.shape[0], 4)

    def test_what_a_loop_tells(self):
        """Scores of each step, a streamer that sees the tokens as they come, a criterion of the user's own."""
        inputs = self.inputs(1)
        call = dict(max_new_tokens=NEW, do_sample=False, eos_token_id=None)
        told = dict(return_dict_in_generate=True, output_scores=True)
        want, got = (model.generate(**inputs, **call, **told) for model in (self.torch, self.model))
        self.assertTrue(torch.equal(got.sequences, want.sequences))
        torch.testing.assert_close(torch.stack(got.scores), torch.stack(want.scores), atol=2e-5, rtol=0)
        self.assertEqual(got.past_key_values.get_seq_length(), want.past_key_values.get_seq_length())
        came = []
        streamer = mock.Mock(put=lambda tokens: came.extend(tokens.flatten().tolist()))
        self.assertTrue(torch.equal(self.model.generate(**inputs, **call, streamer=streamer), want.sequences))
        self.assertEqual(came, want.sequences[0].tolist())
        fifth = [lambda tokens, scores, **_: tokens[:, -1] == want.sequences[0, 7]]
        want, got = (model.generate(**inputs, **call, stopping_criteria=fifth) for model in (self.torch, self.model))
        self.assertTrue(torch.equal(got, want))

    def test_names_of_a_cache(self):
        """Transformers' of the day, and the one before it; and a loop that loses it, which must not go unseen."""
        ids = torch.randint(3, WORDS, (2, 5))
        cache = self.model(input_ids=ids[:, :4]).past_key_values
        for name in ("cache", "past_key_values"):
            given = self.model.prepare_inputs_for_generation(ids, next_sequence_length=1, **{name: cache})
            self.assertTrue(torch.equal(given["input_ids"], ids[:, 4:]))
            self.assertIn(cache, [given.get("cache"), given.get("past_key_values")])
        with self.assertRaisesRegex(attnc.Unsupported, "look at 1 of 5 tokens with a cache that holds 0"):
            self.model.prepare_inputs_for_generation(ids, next_sequence_length=1)
        with self.assertRaisesRegex(attnc.Unsupported, "look at 1 of 6 tokens with a cache that holds 4"):
            longer = torch.cat([ids, ids[:, :1]], 1)
            self.model.prepare_inputs_for_generation(longer, next_sequence_length=1, cache=cache)
        whole = self.model.prepare_inputs_for_generation(ids)
        self.assertTrue(torch.equal(whole["input_ids"], ids))
        with mock.patch.object(type(self.model), "_update_model_kwargs_for_generation", lambda _, outputs, kwargs, **__: kwargs):
            with self.assertRaisesRegex(attnc.Unsupported, "with a cache that holds 0, and .* use_cache=False"):
                self.model.generate(ids, max_new_tokens=3, do_sample=False, repetition_penalty=1.5, eos_token_id=None)

    def test_one_file_of_two_branches(self):
        """And with a configuration that does not say what it is of."""
        with tempfile.TemporaryDirectory() as name:
            model, folder = hub_models.write(name, "gpt2", "merged")
            merged = AttncModel.from_pretrained(folder, threads=1)
            for rows in (1, 3):
                ids = torch.randint(3, 90, (rows, 6))
                inputs = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
                for settings in (dict(), dict(num_beams=3), dict(no_repeat_ngram_size=2)):
                    call = dict(max_new_tokens=8, do_sample=False, **settings)
                    self.assertTrue(torch.equal(merged.generate(**inputs, **call), model.generate(**inputs, **call)))

    def test_arguments(self):
        with self.assertRaisesRegex(attnc.InvalidArgument, "no argument 'attention_musk'.*attention_mask"):
            self.model.generate(torch.ones(1, 2, dtype=torch.int64), attention_musk=1)
        with self.assertRaisesRegex(attnc.InvalidArgument, "token_type_ids are not exported"):
            self.model.generate(torch.ones(1, 2, dtype=torch.int64), token_type_ids=torch.tensor([[0, 1]]))
        with self.assertRaisesRegex(attnc.Unsupported, "leave assistant_model and prompt_lookup_num_tokens out"):
            self.model.generate(torch.ones(1, 2, dtype=torch.int64), prompt_lookup_num_tokens=3, max_new_tokens=2)
        with self.assertRaisesRegex(attnc.InvalidArgument, "DynamicCache"):
            self.model.generate(torch.ones(1, 2, dtype=torch.int64), past_key_values=transformers.DynamicCache())

    def test_folders(self):
        with self.assertRaisesRegex(attnc.NoSuchFile, "nowhere"):
            AttncModel.from_pretrained("nowhere")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            shutil.copy(self.path / "config.json", folder)
            with self.assertRaisesRegex(attnc.NoSuchFile, "neither model.onnx nor decoder_model.onnx"):
                AttncModel.from_pretrained(folder)
            (folder / "decoder_model.onnx").touch()
            with self.assertRaisesRegex(attnc.Unsupported, "no decoder_with_past_model.onnx"):
                AttncModel.from_pretrained(folder)
            (folder / "decoder_model.onnx").unlink()
            shutil.copy(self.path / "model.onnx", folder / "decoder_model_merged.onnx")
            with self.assertRaisesRegex(attnc.Unsupported, "no If of its graph reads the input 'use_cache_branch'"):
                AttncModel.from_pretrained(folder)


class Windows(Generators):
    """Layers of sliding attention beside layers of full attention: prompts and what is written are longer than the
    window. Of Gemma 2 everything, of the others a part."""

    sizes = dict(vocab_size=WORDS, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, sliding_window=5, layer_types=["sliding_attention", "full_attention"],
                 bos_token_id=1, eos_token_id=2, pad_token_id=0)  # fmt: skip
    ids = torch.randint(3, WORDS, (2, 7))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        model = transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**cls.sizes, head_dim=8))
        cls.load(model, input_ids=cls.ids, attention_mask=torch.ones_like(cls.ids))

    def inputs(self, rows):
        inputs = super().inputs(rows)
        return {**inputs, "attention_mask": inputs["attention_mask"].flip(1)}

    def test_families(self):
        """And near misses: windows in all layers, and in none."""
        experts = dict(num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=128, head_dim=8,
                       rope_parameters=dict(rope_type="default", rope_theta=10000.0))  # fmt: skip
        every, none = ({"layer_types": [f"{kind}_attention"] * 2, "head_dim": 8} for kind in ("sliding", "full"))
        for kind, settings, more in ((transformers.Gemma3ForCausalLM, transformers.Gemma3TextConfig, dict(head_dim=8)),
                                     (transformers.GptOssForCausalLM, transformers.GptOssConfig, experts),
                                     (transformers.Cohere2ForCausalLM, transformers.Cohere2Config, {}),
                                     (transformers.Gemma2ForCausalLM, transformers.Gemma2Config, every),
                                     (transformers.Gemma2ForCausalLM, transformers.Gemma2Config, none)):  # fmt: skip
            model = sharpened(kind(settings(**{**self.sizes, **more})))
            model.generation_config.update(eos_token_id=ENDS)
            path = self.export(model, f"{kind.__name__}-{len(more)}", input_ids=self.ids,
                               attention_mask=torch.ones_like(self.ids))  # fmt: skip
            with mock.patch.object(type(self), "model", AttncModel.from_pretrained(path, threads=1)), mock.patch.object(
                type(self), "torch", model
            ), self.subTest(kind.__name__, **more):
                self.compare()
                self.compare(num_beams=3, batches=(2, 7))
                self.compare(searches=False, no_repeat_ngram_size=2, batches=(1, 3))


class T5(Generators):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        settings = transformers.T5Config(vocab_size=WORDS, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                                         decoder_start_token_id=0)  # fmt: skip
        ids = torch.randint(3, WORDS, (2, 7))
        cls.load(transformers.T5ForConditionalGeneration(settings), input_ids=ids, attention_mask=torch.ones_like(ids))

    def test_one_file_of_two_branches(self):
        with tempfile.TemporaryDirectory() as name:
            folder = shutil.copytree(self.path, pathlib.Path(name) / "merged")
            hub_models.merge(folder)
            self.assertEqual(sorted(path.name for path in folder.glob("*.onnx")),
                             ["decoder_model_merged.onnx", "encoder_model.onnx"])  # fmt: skip
            merged = AttncModel.from_pretrained(folder, threads=1)
            scratch = merged.folder.step.parent
            with mock.patch.object(type(self), "model", merged):
                self.compare()
                self.compare(num_beams=4)
                self.test_loop()
            del merged
            gc.collect()
            self.assertFalse(scratch.exists())


class Bart(Generators):
    """Its settings force an end as the last token, which compiled searches do not."""

    settings = dict(forced_eos_token_id=None)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        ids = torch.randint(3, WORDS, (2, 7))
        settings = transformers.BartConfig(**TEXT, bos_token_id=0, pad_token_id=1, decoder_start_token_id=2)
        model = transformers.BartForConditionalGeneration(settings)
        cls.load(model, input_ids=ids, attention_mask=torch.ones_like(ids))

    def test_forced_end(self):
        self.compare(searches=False, forced_eos_token_id=2)
        self.compare(searches=False, forced_eos_token_id=2, num_beams=4)


class Marian(Generators):
    settings = dict(forced_eos_token_id=None)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        ids = torch.randint(3, WORDS, (2, 7))
        sizes = {**TEXT, "encoder_layers": 1, "decoder_layers": 1}
        settings = transformers.MarianConfig(**sizes, eos_token_id=0, pad_token_id=59, decoder_start_token_id=59)
        cls.load(transformers.MarianMTModel(settings), input_ids=ids, attention_mask=torch.ones_like(ids))


class Whisper(Generators):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        sizes = {name: size for name, size in TEXT.items() if name != "max_position_embeddings"}
        sizes |= dict(num_mel_bins=16, max_source_positions=30, max_target_positions=40)
        tokens = dict(bos_token_id=1, eos_token_id=2, pad_token_id=2, decoder_start_token_id=3)
        settings = transformers.WhisperConfig(**sizes, **tokens, begin_suppress_tokens=None, suppress_tokens=None)
        cls.load(transformers.WhisperForConditionalGeneration(settings), input_features=torch.randn(2, 16, 60))

    def inputs(self, rows):
        return dict(input_features=torch.randn(rows, 16, 60))

    def test_sampling(self):
        """Transformers cuts what Whisper writes into segments, and fails on a sequence that ends with its first token,
        torch's own, too: no frequencies of first tokens can be had from it."""
        call = dict(do_sample=True, num_return_sequences=4000, max_new_tokens=1, temperature=1.0)
        inputs = self.inputs(1)
        for model in (self.torch, self.model):
            torch.manual_seed(5)
            with self.subTest(type(model).__name__), self.assertRaises(IndexError):
                model.generate(**inputs, **call)


class Page(unittest.TestCase):
    def test_blocks(self):
        page = pathlib.Path(__file__).parents[2] / "docs/transformers.md"
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
        ids = torch.randint(3, WORDS, (2, 7))
        given = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
        settings = transformers.GPT2Config(vocab_size=WORDS, n_embd=32, n_layer=1, n_head=4, eos_token_id=2)
        model = sharpened(transformers.BertModel(transformers.BertConfig(**BERT)))
        writer = sharpened(transformers.GPT2LMHeadModel(settings))
        scope = dict(model=model, inputs=given, writer=writer, prompt=given, tokenizer=words())
        with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
            for block in blocks:
                exec(compile(block, str(page), "exec"), scope)
        self.assertEqual(len(blocks), 4)


del Generators  # what it tests, its subclasses test

if __name__ == "__main__":
    unittest.main()
