"""Tiny settings of any architecture of transformers, for zoo.py."""
import torch
from transformers import PreTrainedConfig

VALUES = {
    32: "hidden_size d_model n_embd dim embed_dim embedding_size emb_dim hidden_dim encoder_hidden_dim projection_dim "
        "decoder_hidden_size q_hidden_size fpn_hidden_size decoder_hidden_dim out_hidden_size attention_hidden_size "
        "hidden_width d_latents d_model_encoder conv_dim output_hidden_size",
    1: "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers "
       "num_encoder_layers num_blocks num_parallel_samples decoder_num_hidden_layers encoder_num_hidden_layers "
       "num_self_attends_per_block n_group topk_group num_nextn_predict_layers first_k_dense_replace",
    4: "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts "
       "n_routed_experts num_local_experts sliding_window attention_window window_size local_attention "
       "decoder_num_attention_heads num_encoder_attention_heads num_decoder_attention_heads moe_num_experts "
       "num_self_attention_heads num_cross_attention_heads encoder_num_attention_heads index_n_heads "
       "linear_num_value_heads chunk_size attention_chunk_size",
    2: "num_key_value_heads num_experts_per_tok moe_topk moe_top_k n_shared_experts encoder_num_key_value_heads "
       "decoder_num_key_value_heads linear_num_key_heads num_codebooks mamba_n_groups n_groups num_groups index_topk",
    8: "head_dim d_kv patch_size qk_nope_head_dim v_head_dim attention_head_dim kv_channels linear_key_head_dim "
       "linear_value_head_dim mamba_d_state ssm_state_size state_size num_queries num_latents index_head_dim "
       "mamba_d_head mamba_headdim mamba_head_dim d_head qk_head_dim",
    48: "intermediate_size encoder_ffn_dim decoder_ffn_dim d_ff ffn_dim d_inner ffn_hidden_size "
        "decoder_intermediate_size encoder_intermediate_size mlp_dim",
    24: "moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size q_lora_rank kv_lora_rank",
    97: "vocab_size text_vocab_size encoder_vocab_size decoder_vocab_size src_vocab_size tgt_vocab_size n_words "
        "vocab_size_per_layer_input",
    64: "max_position_embeddings n_positions max_source_positions max_target_positions max_seq_len n_ctx block_size "
        "max_encoder_position_embeddings max_decoder_position_embeddings max_2d_position_embeddings seq_length "
        "max_sequence_length original_max_position_embeddings",
    16: "hidden_size_per_layer_input num_mel_bins feature_size num_conv_pos_embeddings channels num_feat_extract "
        "image_seq_length mamba_expand_dim conv_bias_dim",
}
SMALL = {name: value for value, names in VALUES.items() for name in names.split()}
SMALL.update(image_size=32, qk_rope_head_dim=4, num_conv_pos_embedding_groups=4, mamba_n_heads=8, time_step_rank=8)
LISTS = {"depths": 1, "encoder_depths": 1, "num_layers_per_stage": 1, "num_heads": 2, "num_attention_heads": 2,
         "encoder_num_heads": 2, "conv_dim": 16, "tdnn_dim": 16, "neck_hidden_sizes": 16}  # of each element
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers")


def kinds(values):
    """Where each kind of layer stands first."""
    return [values.index(v) for v in dict.fromkeys(values)][:3]


def at_least(value, small):
    return value if value is not None and value < small else small


def small(config, **settings):
    """`config` with few and narrow layers, one of each kind; `settings` win."""
    have = {k: v for k, v in vars(config).items() if not k.startswith("_")}
    layers = next((have[k] for k in LAYERS if isinstance(have.get(k), int)), 0)
    lists = {k: v for k, v in have.items()
             if isinstance(v, (list, tuple)) and layers > 2 and len(v) == layers and k != "hidden_sizes"}
    types = next((lists[k] for k in ("layer_types", "layers_block_type", "block_types") if k in lists), None)
    chosen = kinds(list(types)) if types is not None else [0]
    changed = {}
    for name, value in have.items():
        if isinstance(value, PreTrainedConfig):
            changed[name] = small(value)
        elif name in lists:
            changed[name] = [value[n] for n in chosen]
        elif isinstance(value, bool) or value is None:
            continue
        elif isinstance(value, int) and name in SMALL:
            changed[name] = len(chosen) if name in LAYERS else at_least(value, SMALL[name])
        elif isinstance(value, int) and name.endswith("token_id") and value > 96:
            changed[name] = 5
        elif isinstance(value, (list, tuple)) and name in LISTS:
            changed[name] = [min(LISTS[name], n) if isinstance(n, int) else n for n in value]
        elif isinstance(value, (list, tuple)) and name in ("hidden_sizes", "embed_dims", "encoder_hidden_sizes"):
            changed[name] = [16 * 2**min(n, 1) for n in range(len(value))]
    heads, groups = (have.get(k) for k in ("num_attention_heads", "num_key_value_heads"))
    if isinstance(heads, int) and heads == groups:
        changed["num_key_value_heads"] = changed["num_attention_heads"]
    return type(config)(**{**changed, **settings})


class Count(torch.overrides.TorchFunctionMode):
    """The softmaxes of rank 3 and more, and the attentions that torch has as one function."""

    def __init__(self):
        super().__init__()
        self.softmaxes = self.inside = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        whole = name in ("scaled_dot_product_attention", "multi_head_attention_forward", "softmax")
        if whole and not self.inside and (name != "softmax" or args[0].dim() > 2):
            self.softmaxes += 1
        self.inside += whole
        try:
            return function(*args, **(kwargs or {}))
        finally:
            self.inside -= whole
