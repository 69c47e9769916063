"""python calibrated.py RESULT.json WANT.npz: the errors of attnc --json --calibrate are those of float64."""

import json
import sys

import numpy as np

(found,) = json.load(open(sys.argv[1]))["calibrated"]
want = np.load(sys.argv[2])
assert found["name"] == "y" and found["same_shape"] and found["not_finite"] == 0, found
np.testing.assert_allclose(found["relative_error"], want["relative"], rtol=1e-3)
np.testing.assert_allclose(found["max_error"], want["most"], rtol=1e-3)
