"""The attentions of a BERT in a folder of the hub, as its eager form has them, in NumPy and float64.

    eager_bert.py FOLDER ATTN_RUN WORK      compares what attnc shows of the model there: from Python, and by one command
"""
import json
import math
import pathlib
import subprocess
import sys

import numpy as np
from safetensors.numpy import load_file


def attentions(folder, ids):
    """[batch, head, query, key] of each layer, for tokens [batch, sequence] without padding, all of part 0."""
    config = json.loads((folder / "config.json").read_text())
    w = {name.removeprefix("bert."): value.astype(np.float64) for name, value in load_file(folder / "model.safetensors").items()}
    heads, width = config["num_attention_heads"], config["hidden_size"]

    def linear(name, x):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name, x):
        x = x - x.mean(-1, keepdims=True)
        x /= np.sqrt((x * x).mean(-1, keepdims=True) + config["layer_norm_eps"])
        return x * w[f"{name}.weight"] + w[f"{name}.bias"]

    gelu = np.vectorize(lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))))
    table = {part: w[f"embeddings.{part}_embeddings.weight"] for part in ("word", "position", "token_type")}
    x = norm("embeddings.LayerNorm", table["word"][ids] + table["position"][:ids.shape[1]] + table["token_type"][0])
    shown = []
    for n in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{n}"
        q, k, v = (linear(f"{at}.attention.self.{part}", x).reshape(*ids.shape, heads, -1).swapaxes(1, 2) for part in ("query", "key", "value"))
        e = q @ k.swapaxes(2, 3) / math.sqrt(width // heads)
        e = np.exp(e - e.max(-1, keepdims=True))
        shown.append(e / e.sum(-1, keepdims=True))
        mixed = (shown[-1] @ v).swapaxes(1, 2).reshape(x.shape)
        x = norm(f"{at}.attention.output.LayerNorm", x + linear(f"{at}.attention.output.dense", mixed))
        x = norm(f"{at}.output.LayerNorm", x + linear(f"{at}.output.dense", gelu(linear(f"{at}.intermediate.dense", x))))
    return shown


def main():
    import attnc
    sys.path.append(str(pathlib.Path(__file__).parents[2] / "tools/demo"))
    from minilm import write_minilm
    folder, attn_run, work = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    work.mkdir(parents=True, exist_ok=True)
    text = "A compiler that fuses attention still shows what each word looks at."
    encoder = attnc.TextEncoder(folder)
    encoding, = encoder.tokenize([text])
    ids = np.array([encoding.ids])
    want, maps = attentions(folder, ids), encoder.attention(text)
    # The same by one command, of the model as an ONNX file.
    write_minilm(folder, work / "bert.onnx")
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    for name, value in feeds.items():
        np.save(work / f"{name}.npy", value)
    (work / "tokens.txt").write_text("".join(token + "\n" for token in encoding.tokens))
    subprocess.run([attn_run, work / "bert.onnx", *(f"--input={name}=@{work}/{name}.npy" for name in feeds),
                    f"--attention-maps={work}/maps", f"--attention-labels={work}/tokens.txt"], check=True)
    files = sorted((work / "maps").glob("*.npy"), key=lambda file: int(file.name.partition("-")[0]))
    for shown in (list(maps.values()), [np.load(file) for file in files]):
        assert len(shown) == len(want), (len(shown), len(want))
        for got, one in zip(shown, want):
            assert got.shape == one.shape, (got.shape, one.shape)
            np.testing.assert_allclose(got, one, rtol=0, atol=1e-5)
    assert json.dumps(encoding.tokens[1]) in maps.page()
    print(f"{len(want)} layers of {want[0].shape[1]} heads and {ids.shape[1]} tokens, as in float64")


if __name__ == "__main__":
    main()
