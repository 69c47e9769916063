"""Layers of x_transformers and models of vit_pytorch and timm, for zoo.py: CASES has what makes a module and its
inputs."""
import importlib

import torch
from torch import nn

WIDTH = 32


class Wrapped(nn.Module):
    """One tensor in, the first one out."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        y = self.inner(x)
        return y[0] if isinstance(y, tuple) else y


def layers(kind="Encoder", **settings):
    import x_transformers
    made = getattr(x_transformers, kind)(dim=WIDTH, depth=1, heads=4, attn_dim_head=8, **settings)
    return Wrapped(made), [{"x": torch.randn(2, 12, WIDTH)}, {"x": torch.randn(3, 7, WIDTH)}]


SETTINGS = {
    "talking_before": dict(attn_pre_talking_heads=True), "talking_behind": dict(attn_post_talking_heads=True),
    "scaled_heads": dict(attn_head_scale=True), "sparse": dict(attn_sparse_topk=3), "memory": dict(attn_num_mem_kv=4),
    "on_attention": dict(attn_on_attn=True), "gated": dict(attn_gate_values=True),
    "gated_heads": dict(attn_gate_value_heads=True), "qk_norm": dict(attn_qk_norm=True),
    "qk_groups": dict(attn_qk_norm=True, attn_qk_norm_groups=2), "distance": dict(attn_l2_distance=True),
    "sigmoid": dict(attn_sigmoid=True), "selective": dict(attn_selective=True, kind="Decoder"),
    "signed": dict(attn_cog_signed=True), "one_head": dict(attn_one_kv_head=True), "grouped": dict(attn_kv_heads=2),
    "zero_key": dict(attn_add_zero_kv=True), "sink": dict(attn_head_learned_sink=True),
    "forgetting": dict(attn_data_dependent_alibi=True, kind="Decoder"),
    "cope": dict(attn_use_cope=True, kind="Decoder"),
    "clamped": dict(attn_softclamp_logits=True), "laser": dict(attn_laser=True), "alibi": dict(alibi_pos_bias=True),
    "t5_bias": dict(rel_pos_bias=True), "rotary": dict(rotary_pos_emb=True), "causal": dict(kind="Decoder"),
    "xpos": dict(rotary_xpos=True, kind="Decoder"), "dynamic_bias": dict(dynamic_pos_bias=True),
    "past_window": dict(attn_max_attend_past=4, kind="Decoder"), "residual": dict(residual_attn=True),
    "inverted": dict(attn_inverted_attention=True), "flash": dict(attn_flash=True), "hard": dict(attn_hard=True),
    "orthogonal": dict(attn_orthog_projected_values=True),
    "latent": dict(attn_use_latent_kv=True, attn_dim_latent_kv=16),
    "flash_alibi": dict(attn_flash=True, alibi_pos_bias=True, kind="Decoder"), "macaron": dict(macaron=True),
    "shifted": dict(shift_tokens=1, kind="Decoder"), "sandwich": dict(sandwich_norm=True),
    "value_norm": dict(attn_value_rmsnorm=True), "wide_values": dict(attn_value_dim_head=16),
    "projected_bias": dict(attn_use_rel_proj_pos_bias=True), "output_gate": dict(attn_output_gate=True),
}

IMAGE = dict(image_size=32, patch_size=8, num_classes=10, dim=WIDTH, depth=1, heads=4, mlp_dim=48)
STAGES = dict(num_classes=10, dim=16, dim_head=8, depth=(1, 1), window_size=4)
VIT = {
    "deepvit": ("DeepViT", IMAGE), "rvt": ("RvT", IMAGE), "normalized_vit": ("nViT", IMAGE),
    "vit_detpool": ("ViTDetPool", IMAGE), "simple_vit_with_sparse_gating": ("SimpleViTWithSparseGating", IMAGE),
    "cait": ("CaiT", dict(IMAGE, cls_depth=1)), "simple_uvit": ("SimpleUViT", dict(IMAGE, depth=2)),
    "xcit": ("XCiT", dict(IMAGE, cls_depth=1, local_patch_kernel_size=3)),
    "vit_with_patch_merger": ("ViT", dict(IMAGE, depth=2, patch_merge_layer=1, patch_merge_num_tokens=4)),
    "jumbo_vit": ("JumboViT", dict(IMAGE, num_jumbo_cls=1, jumbo_cls_k=2, jumbo_ff_mult=2)),
    "look_vit": ("LookViT", dict(image_size=32, patch_size=8, highres_patch_size=4, num_classes=10, dim=WIDTH, depth=1,
                                 heads=4)),
    "looped_vit": ("LoopedViT", dict(num_classes=10, dim=WIDTH, image_size=32, patch_size=8, pre_loop_depth=1, heads=4,
                                     num_looped_blocks=1, post_loop_depth=1, loop_depth=2, mlp_dim=48)),
    "levit": ("LeViT", dict(image_size=64, num_classes=10, dim=(16, 24, 32), depth=1, heads=(2, 3, 4), mlp_mult=2)),
    "cross_vit": ("CrossViT", dict(image_size=32, num_classes=10, depth=1, sm_dim=16, lg_dim=24, sm_patch_size=4,
                                   sm_enc_depth=1, lg_patch_size=8, lg_enc_depth=1, cross_attn_depth=1)),
    "pit": ("PiT", dict(IMAGE, depth=(1, 1), heads=2)),
    "cvt": ("CvT", dict(num_classes=10, s1_emb_dim=16, s2_emb_dim=16, s2_depth=1, s3_emb_dim=24, s3_depth=1)),
    "scalable_vit": ("ScalableViT", dict(num_classes=10, dim=16, heads=(1, 2, 2, 4), depth=(1, 1, 1, 1), ssa_dim_key=8,
                                         ssa_dim_value=8, reduction_factor=(2, 2, 1, 1),
                                         window_size=(4, 2, None, None))),
    "max_vit": ("MaxViT", dict(STAGES, dim_conv_stem=16)),
    "nest": ("NesT", dict(image_size=32, patch_size=4, dim=16, heads=2, num_hierarchies=2, block_repeats=(1, 1),
                          num_classes=10)),
    "regionvit": ("RegionViT", dict(dim=(16, 16, 16, 16), depth=(1, 1, 1, 1), window_size=4, num_classes=10)),
    "t2t": ("T2TViT", dict(dim=WIDTH, image_size=32, depth=1, heads=4, mlp_dim=48, num_classes=10,
                           t2t_layers=((7, 4), (3, 2)))),
    "cct": ("CCT", dict(img_size=32, embedding_dim=WIDTH, n_conv_layers=1, num_layers=1, num_heads=4, mlp_ratio=2,
                        num_classes=10, positional_embedding="learnable")),
}
VIT |= {module: ("ViT", IMAGE) for module in ("vit", "vit_for_small_dataset", "parallel_vit", "learnable_memory_vit",
                                              "vit_with_decorr", "vit_5")}
VIT |= {f"simple_{module}": ("SimpleViT", IMAGE)
        for module in ("vit", "vit_with_qk_norm", "vit_with_register_tokens", "flash_attn_vit",
                       "vit_with_specialized_cls", "vit_with_value_residual", "vit_with_hyper_connections",
                       "vit_with_relative_proj_pos_bias")}
VIT["simple_vit_with_fft"] = ("SimpleViT", dict(IMAGE, freq_patch_size=8))

TIMM = (
    "beit_base_patch16_224", "coat_lite_tiny", "crossvit_tiny_240", "davit_tiny", "edgenext_xx_small",
    "eva02_tiny_patch14_224", "efficientvit_m0", "efficientvit_b0", "fastvit_sa12", "gcvit_xxtiny", "hiera_tiny_224",
    "levit_128s", "maxvit_pico_rw_256", "mobilevitv2_050", "mvitv2_tiny", "nest_tiny", "nextvit_small", "pit_ti_224",
    "pvt_v2_b0", "shvit_s1", "swin_tiny_patch4_window7_224", "swinv2_cr_tiny_224", "tiny_vit_5m_224",
    "tnt_s_legacy_patch16_224", "twins_svt_small", "visformer_tiny", "volo_d1_224", "vit_relpos_small_patch16_224",
    "xcit_nano_12_p16_224", "swiftformer_xs", "mobilenetv4_hybrid_medium", "lambda_resnet26t", "halonet26t",
    "botnet26t_256", "sebotnet33ts_256", "bat_resnext26ts", "convformer_s18", "caformer_s18", "efficientformer_l1",
    "vit_base_patch16_siglip_224", "lowformer_b0", "cpubone_nano", "samvit_base_patch16", "deepseek_vit_base",
    "csatv2")


def of_vit(module, name, settings):
    made = getattr(importlib.import_module(f"vit_pytorch.{module}"), name)(**settings)
    side = settings.get("image_size", settings.get("img_size", 64))
    return Wrapped(made), [{"x": torch.randn(1, 3, side, side)}, {"x": torch.randn(2, 3, side, side)}]


def of_timm(name):
    import timm
    for settings in (dict(img_size=64), dict()):
        try:
            made = timm.create_model(name, pretrained=False, num_classes=10, **settings)
            break
        except TypeError:
            continue
    side = settings.get("img_size", made.pretrained_cfg["input_size"][-1])
    return Wrapped(made), [{"x": torch.randn(1, 3, side, side)}, {"x": torch.randn(2, 3, side, side)}]


CASES = {f"x_{name}": (lambda settings=settings: layers(**settings)) for name, settings in SETTINGS.items()}
CASES |= {f"vit_{module}": (lambda a=(module, *args): of_vit(*a)) for module, args in VIT.items()}
CASES |= {f"timm_{name}": (lambda name=name: of_timm(name)) for name in TIMM}
