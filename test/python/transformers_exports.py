"""What an export for generation refuses, and what it says; and near misses, which it serves."""
import contextlib
import io
import os
import tempfile
import unittest
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import attnc  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from attnc.integrations.transformers import AttncExporter, AttncModel  # noqa: E402
from transformers.exporters import ExportedModel  # noqa: E402

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
BERT = dict(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
HEADS = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
ENDS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
TEXT = dict(vocab_size=60, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, decoder_start_token_id=1,
            **ENDS)  # fmt: skip
VISION = dict(**HEADS, image_size=32, patch_size=8)


def sharpened(model):
    torch.manual_seed(7)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.3)
    return model.eval()


def tokens(rows=2, length=8):
    ids = torch.randint(3, 50, (rows, length))
    return dict(input_ids=ids, attention_mask=torch.ones_like(ids))


class Exports(unittest.TestCase):
    def refused(self, model, said, inputs):
        """And nothing is printed beside what is said."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            with self.assertRaisesRegex(attnc.InvalidArgument, f"^{type(model).__name__} {said}") as caught:
                AttncExporter().export_for_generation(model.eval(), inputs)
        self.assertEqual(out.getvalue(), "")
        self.assertNotIn("\n", str(caught.exception))
        self.assertTrue(caught.exception.__suppress_context__ or caught.exception.__context__ is None)

    def served(self, model, example, *inputs):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with contextlib.redirect_stdout(io.StringIO()):
            AttncExporter().export_for_generation(model, example).save_pretrained(folder.name)
        compiled = AttncModel.from_pretrained(folder.name, threads=1)
        call = dict(max_new_tokens=8, do_sample=False, eos_token_id=None)
        for given in inputs:
            for more in (dict(), dict(repetition_penalty=1.5)):
                want, got = (each.generate(**given, **call, **more) for each in (model, compiled))
                self.assertTrue(torch.equal(got, want), f"{got}, and by torch\n{want}")
        return compiled

    def test_images_beside_text(self):
        pixels = torch.randn(2, 3, 32, 32)
        settings = transformers.GitConfig(vocab_size=60, **HEADS, **ENDS, vision_config=VISION)
        model = sharpened(transformers.GitForCausalLM(settings))
        said = r"reads the input 'pixel_values' .* reads attention_mask, input_ids, position_ids\. .*export\(model, inputs\)"
        self.refused(model, said, dict(tokens(), pixel_values=pixels))
        compiled = self.served(model, tokens(), tokens(3, 5))
        with self.assertRaisesRegex(attnc.InvalidArgument, "no argument 'pixel_values'"):
            compiled.generate(**tokens(), pixel_values=pixels)
        stages = dict(embed_dim=[8, 16, 16, 32], num_heads=[1, 2, 2, 4], num_groups=[1, 2, 2, 4], depths=[1, 1, 1, 1])
        settings = transformers.Florence2Config(text_config=transformers.BartConfig(**TEXT), image_token_id=55,
                                                vision_config=dict(**stages, window_size=4, projection_dim=32))  # fmt: skip
        example = dict(tokens(2, 12), pixel_values=torch.randn(2, 3, 64, 64))
        example["input_ids"][:, :5] = 55
        self.refused(transformers.Florence2ForConditionalGeneration(settings), "reads the input 'pixel_values'", example)

    def test_masks_of_sound(self):
        """Whisper ignores them, and the others shorten them on the way to the decoder."""
        sizes = dict(num_mel_bins=8, max_source_positions=30, max_target_positions=40, begin_suppress_tokens=None,
                     suppress_tokens=None)  # fmt: skip
        model = sharpened(transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**TEXT, **sizes)))
        sound = torch.randn(2, 8, 60)
        mask = torch.ones(2, 60, dtype=torch.int64)
        self.served(model, dict(input_features=sound, attention_mask=mask), dict(input_features=sound))
        sides = {f"{side}_{name}": size for side in ("encoder", "decoder")
                 for name, size in (("num_hidden_layers", 1), ("num_attention_heads", 4))}  # fmt: skip
        settings = transformers.MoonshineConfig(vocab_size=60, hidden_size=32, intermediate_size=48,
                                                decoder_start_token_id=1, **sides, **ENDS)  # fmt: skip
        model = sharpened(transformers.MoonshineForConditionalGeneration(settings))
        sound = torch.randn(2, 4000)
        mask = torch.ones(2, 4000, dtype=torch.int64)
        self.refused(model, "reads the input 'attention_mask'", dict(input_values=sound, attention_mask=mask))
        given = dict(input_values=sound)
        compiled = self.served(model, given, given, dict(input_values=torch.randn(1, 5000)))
        mask[0, 2000:] = 0
        for more in (dict(), dict(repetition_penalty=1.5)):
            with self.assertRaisesRegex(attnc.InvalidArgument, "attention_mask hides inputs of the encoder"):
                compiled.generate(**given, attention_mask=mask, max_new_tokens=2, **more)

    def test_what_cannot_be_traced(self):
        said = r"cannot be exported with its caches: .+; AttncExporter\(\)\.export\(model, inputs\)"
        sides = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in (("ffn_dim", 48),)}
        sides |= {f"num_{side}_{name}": size for side in ("encoder", "decoder")
                  for name, size in (("layers", 1), ("attention_heads", 4))}  # fmt: skip
        settings = transformers.ProphetNetConfig(vocab_size=60, hidden_size=32, decoder_start_token_id=1, **sides, **ENDS)
        self.refused(transformers.ProphetNetForConditionalGeneration(settings), said, tokens())
        settings = transformers.LEDConfig(**TEXT, attention_window=4, max_encoder_position_embeddings=64,
                                          max_decoder_position_embeddings=64)  # fmt: skip
        self.refused(transformers.LEDForConditionalGeneration(settings), said, tokens())
        text = dict(vocab_size=60, **HEADS, **ENDS, encoder_hidden_size=32, sep_token_id=2)
        settings = transformers.BlipConfig(text_config=text, vision_config=VISION)
        example = dict(tokens(), pixel_values=torch.randn(2, 3, 32, 32))
        said = (r"cannot write tokens from tokens alone: each call needs pixel_values, .*export\(model, inputs\) exports one look "
                r"at all inputs; .* parts of the model, model\.vision_model and model\.text_decoder, and their inputs")
        model = transformers.BlipForConditionalGeneration(settings).eval()
        self.refused(model, said, example)
        # What the message offers.
        seen = model.vision_model(pixel_values=example["pixel_values"]).last_hidden_state.detach()
        for part, given in ((model.vision_model, dict(pixel_values=example["pixel_values"])),
                            (model.text_decoder, dict(tokens(), encoder_hidden_states=seen))):  # fmt: skip
            with tempfile.TemporaryDirectory() as folder:
                AttncExporter().export(part, given).save_pretrained(folder)
                outputs = ExportedModel.from_pretrained(folder)(**given)
            with torch.no_grad():
                want = part(**given)
            name = "last_hidden_state" if part is model.vision_model else "logits"
            torch.testing.assert_close(torch.as_tensor(outputs[name]), want[name], rtol=1e-4, atol=1e-4)

    def test_a_model_that_does_not_generate(self):
        model = transformers.BertModel(transformers.BertConfig(**BERT)).eval()
        ids = {"input_ids": torch.ones(1, 4, dtype=torch.int64)}
        with self.assertRaisesRegex(attnc.InvalidArgument, r"BertModel does not generate: AttncExporter\(\)\.export\(model, inputs\)"):
            AttncExporter().export_for_generation(model, ids)
        alone = transformers.BertLMHeadModel(transformers.BertConfig(**BERT)).eval()
        with self.assertRaisesRegex(attnc.InvalidArgument, "BertLMHeadModel returns no cache .*config.is_decoder = True"):
            AttncExporter().export_for_generation(alone, ids)

    def test_caches_that_cannot_be_exported(self):
        small = dict(hidden_size=32, num_hidden_layers=2, vocab_size=64)
        heads = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=8, intermediate_size=48)
        linear = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8)
        experts = dict(num_experts=2, num_experts_per_tok=1, moe_intermediate_size=16, shared_expert_intermediate_size=16)
        ids = {"input_ids": torch.ones(2, 9, dtype=torch.int64)}
        settings = transformers.Qwen3NextConfig(**small, **heads, **linear, **experts,
                                                layer_types=["linear_attention", "full_attention"])  # fmt: skip
        mixed = transformers.Qwen3NextForCausalLM(settings).eval()
        said = r"Qwen3NextForCausalLM .* other than keys and values \(linear_attention\); .*export\(model, inputs\)"
        with self.assertRaisesRegex(attnc.InvalidArgument, said):
            AttncExporter().export_for_generation(mixed, ids)
        state = transformers.MambaForCausalLM(transformers.MambaConfig(**small)).eval()
        with self.assertRaisesRegex(attnc.InvalidArgument, "a state other than keys and values"):
            AttncExporter().export_for_generation(state, ids)


if __name__ == "__main__":
    unittest.main()
