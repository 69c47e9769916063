"""Layers of ./dev bench layers: attentions whose batch dimensions and windows are unlike a Transformer's, and scans in
chunks, at the sizes of the models that they come from, as PyTorch's exporters write them. Random weights.

    deformable  encoder of deformable DETR: 8,500 queries sample four maps of an image of 640 x 640
    outlook     VOLO-D1: windows of 3 x 3 over 28 x 28 places, four images
    longformer  Longformer-base: one layer on 4,096 tokens, a window of 512, one global token
    mamba2      Mamba-2 130M: the mixer of one layer on 1,024 tokens, in chunks of 256
    gated-delta a gated delta rule (Qwen3-Next) of 8 heads of 64 on 1,024 tokens, in chunks of 64
    sliding-chunks, delta-rule  what longformer and gated-delta do between their projections, alone
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e" / "wild"))
NAMES = ("deformable", "outlook", "longformer", "mamba2", "gated-delta", "sliding-chunks", "delta-rule")
UNROLLED = ("mamba2", "gated-delta", "delta-rule")  # which the exporter that traces scripts cannot write
MAPS = ((80, 80), (40, 40), (20, 20), (10, 10))
OPSET = 18  # the first with Col2Im, which outlook attention ends with


def deformable(torch):
    from literature import Deformable
    places = sum(u * v for u, v in MAPS)
    return Deformable(heads=8, points=4, maps=MAPS, width=256), {
        "x": torch.randn(1, places, 256), "memory": torch.randn(1, places, 256), "places": torch.rand(1, places, 2)}


def outlook(torch):
    from literature import Outlook
    return Outlook(heads=6, kernel=3, width=192), {"x": torch.randn(4, 28, 28, 192)}


def longformer(torch):
    import transformers
    config = transformers.LongformerConfig(attention_window=[512], num_hidden_layers=1, max_position_embeddings=4098,
                                           pad_token_id=1, vocab_size=1000, attn_implementation="eager")

    class Text(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = transformers.LongformerModel(config, add_pooling_layer=False)

        def forward(self, ids, mask, first):
            return self.model(input_ids=ids, attention_mask=mask, global_attention_mask=first)[0]

    first = torch.zeros(1, 4096, dtype=torch.int64)
    first[:, 0] = 1
    return Text(), {"ids": torch.randint(3, 1000, (1, 4096)), "mask": torch.ones(1, 4096, dtype=torch.int64), "first": first}


def mamba2(torch):
    import transformers
    config = transformers.Mamba2Config(hidden_size=768, num_heads=24, head_dim=64, state_size=128, n_groups=1, expand=2,
                                       num_hidden_layers=1, chunk_size=256, vocab_size=97)
    return transformers.Mamba2Model(config).layers[0].mixer, {"x": torch.randn(1, 1024, 768)}


def gated_delta(torch):
    from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet
    config = Qwen3NextConfig(hidden_size=768, linear_num_key_heads=8, linear_num_value_heads=8, linear_key_head_dim=64,
                             linear_value_head_dim=64)
    return Qwen3NextGatedDeltaNet(config, 0), {"x": torch.randn(1, 1024, 768)}


def sliding_chunks(torch):
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    class Chunks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = LongformerSelfAttention(LongformerConfig(attention_window=[512]), 0)
            self.attention.config.onnx_export = True

        def forward(self, query, key, value):
            scores = self.attention._sliding_chunks_query_key_matmul(query / 8, key, 256)
            return self.attention._sliding_chunks_matmul_attn_probs_value(torch.softmax(scores, -1), value, 256)

    return Chunks(), {n: torch.randn(1, 4096, 12, 64) for n in ("query", "key", "value")}


def delta_rule(torch):
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    class Rule(torch.nn.Module):
        def forward(self, query, key, value, decay, beta):
            gate = -torch.nn.functional.softplus(decay)
            return torch_chunk_gated_delta_rule(query, key, value, gate, torch.sigmoid(beta),
                                                use_qk_l2norm_in_kernel=True)[0]

    return Rule(), {n: torch.randn(1, 1024, 8, 64) for n in ("query", "key", "value")} | {
        n: torch.randn(1, 1024, 8) for n in ("decay", "beta")}


def make(name):
    """The layer as a torch module, and its inputs by name; the same in each process."""
    import torch
    torch.manual_seed(3)
    module, inputs = globals()[name.replace("-", "_")](torch)
    return module.eval(), inputs


def write(name, folder):
    """model.onnx; returns the inputs."""
    import torch
    module, inputs = make(name)
    if name == "longformer":  # exporters misread the strides of its overlapping chunks
        module.model.config.onnx_export = True
    with torch.no_grad():
        torch.onnx.export(module, tuple(inputs.values()), folder / "model.onnx", input_names=list(inputs),
                          output_names=["y"], opset_version=OPSET, dynamo=name in UNROLLED)
    return {n: x.numpy() for n, x in inputs.items()}


def torch_function(name, mode):
    """The names of the layer's inputs and the layer in PyTorch: 'eager' or 'compiled'; None where there is no such form."""
    import torch
    module, inputs = make(name)
    forms = {"eager": lambda: module, "compiled": lambda: torch.compile(module, dynamic=False), "flex": lambda: None}
    return list(inputs), forms[mode]()
