"""Two gathers of one length with nothing but bad indices, told apart by their
values: the message of each run is of one of them."""
import re
import subprocess
import sys

import numpy as np

ROWS = 4000
np.save("i.npy", np.arange(ROWS, dtype=np.int64) + 1000)
np.save("j.npy", -np.arange(ROWS, dtype=np.int64) - 10000)
np.save("x.npy", np.zeros((5, 64), np.float32))
np.save("z.npy", np.zeros((7, 64), np.float32))
inputs = [f"--input={name}=@{name}.npy" for name in "xzij"]
for threads in [1] + 20 * [2]:
    run = subprocess.run(["attn-run", sys.argv[1], *inputs, f"--threads={threads}"], capture_output=True, text=True)
    assert run.returncode == 3, run
    found = re.search(r"node 'gather_([01])' \(Gather\): an index is out of range: (-?\d+) in a dimension of size (\d)",
                      run.stderr)
    assert found, run.stderr
    node, index, size = map(int, found.groups())
    assert (node, size, index < 0) in [(0, 5, False), (1, 7, True)], run.stderr
    assert 1000 <= index < 1000 + ROWS or -10000 - ROWS < index <= -10000, run.stderr
