"""What the graphs of softmax_spellings.py have in common: a case, its masks, and the lines that they share."""
import json
import subprocess

import numpy as np
import onnx
from onnx import numpy_helper, parser

B, H, S, D = 2, 2, 20, 16
HEAD = f"float[{B},{H},s,{D}]"
STATIC = f"float[{B},{H},{S},{D}]"
BESIDE = ("missed", "none", "the weights are not divided by the sum of their row alone")
REPEATED = "an operation that is not elementwise stands between the scores and the softmax"


def softmax(s):
    e = np.exp(s - np.max(s, -1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Case:
    """A graph from q, k, v and m to y; `body` makes y of s = q k^T / 4, `weights` are those of the values."""

    def __init__(self, name, body, weights, says=("dot", None), mask=None, tables=None, declared=HEAD, scale=1.0):
        self.name, self.weights, self.says, self.scale = name, weights, says, scale
        self.mask = np.ones((1, 1, 1, S), np.float32) if mask is None else mask.astype(np.float32)
        self.tables = tables or {}
        shape = str(list(self.mask.shape)).replace(" ", "")
        self.text = f"""<ir_version: 9, opset_import: ["" : 18]>
g ({declared} q, {declared} k, {declared} v, float{shape} m) => ({declared} y) {{
  last = Constant<value = int64[1] {{-1}}>()
  zero = Constant<value = float {{0}}>()
  one = Constant<value = float {{1}}>()
  four = Constant<value = float {{4}}>()
  kt = Transpose<perm = [0, 1, 3, 2]>(k)
  product = MatMul(q, kt)
  s = Div(product, four)
{body}
}}"""

    def expected(self, weights, v):
        return weights @ v

    def check(self, tool, folder):
        path, report, result = f"{folder}/{self.name}.onnx", f"{folder}/{self.name}.json", f"{folder}/y.npy"
        model = parser.parse_model(self.text)
        for name, value in self.tables.items():
            model.graph.initializer.append(numpy_helper.from_array(value, name))
        onnx.checker.check_model(model)
        onnx.save(model, path)
        rng = np.random.default_rng(11)
        given = {n: (rng.standard_normal((B, H, S, D)) * (self.scale if n == "q" else 1)).astype(np.float32)
                 for n in "qkv"}
        given["m"] = self.mask
        for name, value in given.items():
            np.save(f"{folder}/{name}.npy", value)
        subprocess.run([tool, path, f"--fusion-report={report}", f"--output=y=@{result}",
                        *(f"--input={n}=@{folder}/{n}.npy" for n in given)], check=True, stdout=subprocess.DEVNULL)
        said = [(v["kind"], v.get("normalizer"), *([v["reason"]] if v["reason"] else []))
                for v in json.load(open(report))]
        says = self.says if isinstance(self.says, list) else [self.says] if self.says else []
        assert said == says, (self.name, said)
        q, k, v = (given[n].astype(np.float64) for n in "qkv")
        with np.errstate(all="ignore"):
            want = self.expected(self.weights(q @ k.swapaxes(2, 3) / 4, self.mask.astype(np.float64), q, k), v)
        np.testing.assert_allclose(np.load(result), want, rtol=1e-3, atol=1e-4, err_msg=self.name)


def hidden(rows):
    """0, or -inf for the keys of these rows and for some others."""
    mask = np.where(np.arange(S)[None, :] % 3 == 1, -np.inf, 0) * np.ones((S, 1))
    mask[rows] = -np.inf
    return mask.reshape(1, 1, S, S)


def shown():
    """Some keys, and none of the second item."""
    mask = (np.arange(S) % 3 != 1)[None, :] * np.array([[1], [0]])
    return mask.reshape(B, 1, 1, S)


MASKED = "  z = Add(s, m)\n"
MAXIMUM = "  top = ReduceMax<keepdims = 1>({0}, last)\n  shifted = Sub({0}, top)\n"
SUM = "  total = ReduceSum<keepdims = 1>({0}, last)\n"
WEIGH = "\n  y = MatMul(p, v)"
