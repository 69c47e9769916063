#!/usr/bin/env python3
"""Loads and runs stored libraries: check.py LIBATTNRT FOLDER"""
import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "compiler/modules"))
import library as runtime_library

runtime, folder = runtime_library.Runtime(sys.argv[1]), pathlib.Path(sys.argv[2])


def arrays(tensors):
    return [np.array(t["data"], t["dtype"]).reshape(t["shape"]) for t in tensors]


runs = 0
for case in json.loads((folder / "cases.json").read_text()):
    name = f"{case['library']}, entry {case['entry']}"
    for threads in (1, 3):
        library = runtime.load(str(folder / f"{case['library']}.so"), threads)
        state = library.state(case["entry"]) if case["state"] else None
        for run in case["runs"]:
            wanted = arrays(run["outputs"])
            got = library.run(arrays(run["inputs"]), len(wanted), case["entry"], state)
            for have, want in zip(got, wanted):
                assert have.dtype == want.dtype and have.shape == want.shape, (name, have.dtype, have.shape, want.shape)
                np.testing.assert_allclose(have, want, rtol=2e-5, atol=2e-5, err_msg=name)
            runs += 1
        if state:
            runtime.lib.attnrt_state_destroy(state)
        library.close()
print(f"{runs} runs as they were")
