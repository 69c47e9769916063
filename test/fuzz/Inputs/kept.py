"""Keeps a failure in the folder `kept`: a model with a node that attnc has no code for."""
import pathlib
import sys

import numpy as np
import onnx.parser

sys.path.insert(0, sys.argv[1])
import models  # noqa: E402

model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]> g (float[2,3] x) => (float[2,3] y) {
  a = Relu(x)
  unit = ai.onnx.ml.Normalizer<norm = "L2">(a)
  y = Add(a, unit)
}""")
models.keep(pathlib.Path("kept"), model, {"x": np.ones((2, 3), np.float32)}, "refused", "Normalizer has no code")
