"""attn-opt --attn-interpret against NumPy in float64: every kind, mask term, normaliser, policy and extra result.

The same after attn-decompose, which puts the rules of linalg, tensor, arith and math to use.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../passes/graph/Inputs"))
from attention_reference import cases  # noqa: E402

wrong = 0
with tempfile.TemporaryDirectory() as folder:
    for name, attention, dynamic in cases(np.random.default_rng(11)):
        module = os.path.join(folder, "m.mlir")
        with open(module, "w") as f:
            f.write(attention.text(None, dynamic))
        inputs = []
        for n, x in enumerate(attention.inputs()):
            np.save(os.path.join(folder, f"in{n}.npy"), x)
            inputs.append(f"--input=@{folder}/in{n}.npy")
        subprocess.run(["attn-opt", module, "-attn-decompose", "-o", f"{folder}/d.mlir"], check=True)
        for form, file in (("op", module), ("decomposed", f"{folder}/d.mlir")):
            done = subprocess.run(["attn-opt", file, "--attn-interpret", *inputs, f"--output={folder}/out"],
                                  capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{name}: {done.stderr}\n{attention.text(None, dynamic)}")
            for n, want in enumerate(attention.evaluate()):
                got = np.load(f"{folder}/out{n}.npy")
                same = got.shape == want.shape and np.allclose(got, want, rtol=1e-12, atol=1e-12, equal_nan=True)
                print(f"{name} {n} {form}: {'ok' if same else 'WRONG'}")
                if not same:
                    print(got, want, sep="\n")
                    wrong += 1
sys.exit(wrong != 0)
