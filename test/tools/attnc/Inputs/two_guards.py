"""Weights behind an attention, NaN of both replaced by 0: two_guards.py FILE"""
import sys

import onnx
from onnx import parser

onnx.save(parser.parse_model("""<ir_version: 9, opset_import: ["" : 18]>
g (float[2, 4, 16] x, float[1, 4, 4] bias) => (float[2, 4, 4] w) {
  zero = Constant<value = float {0}>()
  hidden = Constant<value = float {-inf}>()
  ones = Constant<value = float[4, 4] {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}>()
  lower = Trilu<upper = 0>(ones)
  isHidden = Equal(lower, zero)
  mask = Where(isHidden, hidden, zero)
  xt = Transpose<perm = [0, 2, 1]>(x)
  s = MatMul(x, xt)
  biased = Add(s, bias)
  masked = Add(biased, mask)
  p = Softmax<axis = -1>(masked)
  none = IsNaN(p)
  guarded = Where(none, zero, p)
  y = MatMul(guarded, x)
  yt = Transpose<perm = [0, 2, 1]>(y)
  s2 = MatMul(y, yt)
  masked2 = Add(s2, mask)
  p2 = Softmax<axis = -1>(masked2)
  none2 = IsNaN(p2)
  w = Where(none2, zero, p2)
}"""), sys.argv[1])
