"""What an export for generation refuses, and what it says."""
import os
import unittest
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import attnc  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from attnc.integrations.transformers import AttncExporter  # noqa: E402

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
BERT = dict(vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)


class Refused(unittest.TestCase):
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
