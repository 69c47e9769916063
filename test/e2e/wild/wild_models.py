#!/usr/bin/env python3
"""Writes models that nobody tuned for, tiny, with random weights: wild_models.py OUT [NAME...]

Each becomes OUT/NAME.onnx beside OUT/NAME.json, which holds the number of its true softmax attentions, and
OUT/NAME.npz: inputs and ONNX Runtime's outputs at each of its sizes. Needs torch, transformers, torch_geometric and
onnxruntime, which no test installs.
"""
import json
import pathlib
import sys
import warnings

import numpy as np
import onnxruntime
import torch
import transformers as T

import literature

SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, vocab_size=97)
SIDES = dict(d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
             encoder_ffn_dim=48, decoder_ffn_dim=48, vocab_size=97, max_position_embeddings=64)


class Text(torch.nn.Module):
    """A language model that takes ids and a mask and gives one tensor."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask)[0]


class Sides(torch.nn.Module):
    """An encoder and a decoder that reads the same ids."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask, decoder_input_ids=ids, use_cache=False)[0]


class Pixels(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, pixels):
        return self.model(pixels)[0]


def tokens(batch, length):
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, length - 3:] = 0
    return torch.randint(3, 97, (batch, length)), mask


def text(model, attentions, length=16, other=16, wrap=Text):
    """ids and mask [batch, length]"""
    axes = {"ids": {0: "batch"}, "mask": {0: "batch"}}
    if other != length:
        for dims in axes.values():
            dims[1] = "sequence"
    return wrap(model), [tokens(2, length), tokens(3, other)], axes, attentions


def image(model, attentions, side=32):
    return (Pixels(model), [(torch.randn(1, 3, side, side),), (torch.randn(2, 3, side, side),)],
            {"pixels": {0: "batch"}}, attentions)


def of(config, model, **settings):
    return getattr(T, model)(getattr(T, config)(**{"attn_implementation": "eager", **settings}))


TRANSFORMERS = {
    "longformer": lambda: text(of("LongformerConfig", "LongformerModel", attention_window=[4, 4],
                                  max_position_embeddings=64, pad_token_id=1, **SMALL), 2),
    "led": lambda: text(of("LEDConfig", "LEDModel", attention_window=4, max_encoder_position_embeddings=64,
                           max_decoder_position_embeddings=64, **{k: v for k, v in SIDES.items()
                                                                  if k != "max_position_embeddings"}), 3, wrap=Sides),
    "pegasus_x": lambda: text(of("PegasusXConfig", "PegasusXModel", block_size=4, num_global_tokens=4, **SIDES), 3,
                              wrap=Sides),
    "longt5_local": lambda: text(of("LongT5Config", "LongT5Model", vocab_size=97, d_model=32, d_kv=8, d_ff=48,
                                    num_layers=1, num_heads=4, local_radius=3), 3, wrap=Sides),
    "longt5_global": lambda: text(of("LongT5Config", "LongT5Model", vocab_size=97, d_model=32, d_kv=8, d_ff=48,
                                     num_layers=1, num_heads=4, local_radius=3, global_block_size=4,
                                     encoder_attention_type="transient-global"), 3, wrap=Sides),
    "openai_gpt": lambda: text(of("OpenAIGPTConfig", "OpenAIGPTModel", n_embd=32, n_layer=2, n_head=4, n_positions=64,
                                  vocab_size=97), 2, other=9),
    "gemma2": lambda: text(of("Gemma2Config", "Gemma2Model", num_key_value_heads=2, head_dim=8, sliding_window=4,
                              use_cache=False, **SMALL), 2, other=9),
    "deberta_v2": lambda: text(of("DebertaV2Config", "DebertaV2Model", relative_attention=True,
                                  pos_att_type=["c2p", "p2c"], max_position_embeddings=64, **SMALL), 2),
    "mpnet": lambda: text(of("MPNetConfig", "MPNetModel", max_position_embeddings=64, **SMALL), 2),
    "bloom": lambda: text(of("BloomConfig", "BloomModel", hidden_size=32, n_layer=2, n_head=4, vocab_size=97,
                             use_cache=False), 2, other=9),
    "squeezebert": lambda: text(of("SqueezeBertConfig", "SqueezeBertModel", embedding_size=32, **SMALL), 2, other=9),
    "convbert": lambda: text(of("ConvBertConfig", "ConvBertModel", embedding_size=32, max_position_embeddings=64,
                                **SMALL), 2),
    "efficientformer": lambda: timm_image("efficientformerv2_s0", 5, side=64),
    "cait": lambda: timm_image("cait_xxs24_224", 3, side=32, patch_size=8, depth=2, embed_dim=32, num_heads=4,
                               depth_token_only=1),
    "convit": lambda: timm_image("convit_tiny", 2, side=32, patch_size=8, depth=2, embed_dim=32, num_heads=4,
                                 local_up_to_layer=1),
    "swin": lambda: image(of("SwinConfig", "SwinModel", image_size=32, patch_size=2, embed_dim=16, depths=[2, 1],
                             num_heads=[2, 4], window_size=4), 3),
    "beit": lambda: image(of("BeitConfig", "BeitModel", image_size=32, patch_size=8, **SMALL), 2),
}


def timm_image(name, attentions, side, **settings):
    import timm
    model = timm.create_model(name, pretrained=False, num_classes=10, img_size=side, **settings)
    return (model, [(torch.randn(1, 3, side, side),), (torch.randn(2, 3, side, side),)], {"pixels": {0: "batch"}},
            attentions)


def write(folder, name, case):
    torch.manual_seed(sum(map(ord, name)))
    model, sizes, axes, attentions = case()
    model.eval()
    names = list(axes)
    path = folder / f"{name}.onnx"
    # Models of opset 18 in their turn: it is the first that has Col2Im.
    torch.onnx.export(model, sizes[0], path, input_names=names, output_names=["y"], dynamic_axes=axes,
                      opset_version=17 + len(name) % 2, dynamo=False)
    session = onnxruntime.InferenceSession(path)
    arrays = {}
    for at, values in enumerate(sizes):
        feeds = {n: v.numpy() for n, v in zip(names, values)}
        arrays.update({f"{at}.{n}": v for n, v in feeds.items()})
        arrays[f"{at}.y"] = session.run(["y"], {i.name: feeds[i.name] for i in session.get_inputs()})[0]
    np.savez(folder / f"{name}.npz", **arrays)
    used = [i.name for i in session.get_inputs()]
    (folder / f"{name}.json").write_text(json.dumps({"inputs": used, "sizes": len(sizes), "attentions": attentions}))


def main():
    warnings.simplefilter("ignore")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    cases = {**TRANSFORMERS, **literature.CASES}
    for name in sys.argv[2:] or cases:
        try:
            write(folder, name, cases[name])
            print(name, flush=True)
        except Exception as error:
            print(f"{name}: cannot be exported: {type(error).__name__}: {str(error)[:200]}", flush=True)


if __name__ == "__main__":
    main()
