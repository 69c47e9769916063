"""What models of transformers attend to, by one command each: the files that --attention-maps writes are torch's eager
attentions, to 1e-5. attended.py FOLDER MINILM

MINILM: the folder of all-MiniLM-L6-v2, where it is there; a small random BERT stands in for it elsewhere.
"""
import logging
import pathlib
import subprocess
import sys
import warnings

import numpy as np
import torch
import transformers

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "test/tools/Inputs"))
import png

FOLDER, MINILM = map(pathlib.Path, sys.argv[1:])
logging.disable(logging.WARNING)
warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()


class Plain(torch.nn.Module):
    """A model that takes and returns tensors in order."""

    def __init__(self, model, names, result):
        super().__init__()
        self.model, self.names, self.result = model, names, result

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs)))[self.result]


def attended(name, model, feeds, dims, *more, result="last_hidden_state"):
    """Compares each attention of torch's with the one file that is it. The number of them."""
    model = model.eval()
    path, maps = FOLDER / f"{name}.onnx", FOLDER / f"{name}-maps"
    with torch.no_grad():
        torch.onnx.export(Plain(model, list(feeds), result).eval(), tuple(feeds.values()), path, input_names=list(feeds),
                          dynamic_axes=dims, dynamo=False)
        out = model(**feeds, output_attentions=True)
    for feed, value in feeds.items():
        np.save(FOLDER / f"{name}-{feed}.npy", value.numpy())
    command = ["attn-run", path, *(f"--input={feed}=@{FOLDER}/{name}-{feed}.npy" for feed in feeds), f"--attention-maps={maps}", *more]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, (name, done.stderr)
    assert (maps / "attention.html").exists()
    shown = [np.load(file) for file in sorted(maps.glob("*.npy"))]
    wanted = [tensor.numpy() for key, tensors in out.items() if key.endswith("attentions") for tensor in tensors]
    assert len(shown) == len(wanted), (name, len(shown), len(wanted))
    for want in wanted:
        near = [n for n, got in enumerate(shown) if got.shape == want.shape and np.abs(got - want).max() <= 1e-5]
        assert len(near) == 1, (name, want.shape, [got.shape for got in shown], near)
        shown.pop(near[0])
    return len(wanted)


def random(kind, config):
    torch.manual_seed(5)
    model = kind(config)
    with torch.no_grad():  # so that attentions differ from uniform ones
        for key, weight in model.named_parameters():
            if weight.dim() > 1 and "embed" not in key:
                weight.normal_(std=1.5 * weight[0].numel() ** -0.5)
    return model


def bert():
    if (MINILM / "config.json").exists():
        model = transformers.AutoModel.from_pretrained(MINILM, attn_implementation="eager")
    else:
        model = random(transformers.BertModel, transformers.BertConfig(
            vocab_size=99, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64,
            attn_implementation="eager"))
    ids = torch.randint(3, 90, (2, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    labels = FOLDER / "tokens.txt"
    labels.write_text("".join(f"token {n}\n" for n in range(9)))
    sizes = {0: "batch", 1: "sequence"}
    return attended("bert", model, {"input_ids": ids, "attention_mask": mask}, {"input_ids": sizes, "attention_mask": sizes},
                    f"--attention-labels={labels}")


def vit():
    digit = np.load(ROOT / "examples/gallery/digits.npz")["image"][3, 0]
    picture = np.round(255 * np.kron(digit, np.ones((8, 12)))).astype(np.uint8)
    (FOLDER / "digit.png").write_bytes(png.grey(picture))
    pixels = torch.tensor(picture / 255 - 0.5, dtype=torch.float32)[None, None]
    config = transformers.ViTConfig(image_size=(64, 96), num_channels=1, patch_size=16, hidden_size=48, num_hidden_layers=3,
                                    num_attention_heads=4, intermediate_size=64, attn_implementation="eager")
    return attended("vit", random(transformers.ViTModel, config), {"pixel_values": pixels}, {"pixel_values": {0: "batch"}},
                    f"--attention-image={FOLDER}/digit.png")


def whisper():
    config = transformers.WhisperConfig(
        vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=12, max_source_positions=20, max_target_positions=16,
        decoder_start_token_id=1, pad_token_id=0, bos_token_id=1, eos_token_id=2, suppress_tokens=None,
        begin_suppress_tokens=None, attn_implementation="eager")
    heard = torch.randn(2, 12, 40, generator=torch.Generator().manual_seed(2))
    said = torch.randint(3, 90, (2, 7), generator=torch.Generator().manual_seed(3))
    return attended("whisper", random(transformers.WhisperModel, config), {"input_features": heard, "decoder_input_ids": said},
                    {"input_features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "tokens"}})


for model in (bert, vit, whisper):
    print(f"{model.__name__}: {model()} attentions as torch has them")
