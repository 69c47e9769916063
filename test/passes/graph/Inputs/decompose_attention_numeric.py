"""attn-decompose of attention against NumPy in float64: kinds, masks, normalisers, policies, extra results."""
import sys

import numpy as np
from attention_reference import cases
from run_mlir import call

wrong = 0
for name, attention, dynamic in cases(np.random.default_rng(11)):
    for number, want in enumerate(attention.evaluate()):
        dtype = attention.query.array.dtype if number == 0 else attention.extras[number - 1][2]
        got = call(attention.text([number], dynamic), "attn-decompose", attention.inputs(), want.ndim, dtype)
        tolerance = 1e-12 if dtype == np.float64 else 2e-5
        same = got.shape == want.shape and np.allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
        print(f"{name} {number}: {'ok' if same else 'WRONG'}")
        if not same:
            print(got, want, sep="\n")
            wrong += 1
sys.exit(wrong != 0)
