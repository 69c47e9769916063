#!/usr/bin/env python3
"""A row alone gives the bits that it has in a batch: batch_rows.py ATTNC ATTN_RUN MODELS FOLDER MODEL..."""
import subprocess
import sys

import numpy as np
import onnx

BATCH, LENGTH, ROW = 4, 17, 2


def inputs_of(model):
    """Each input's name, value for a batch and dimension of the batch."""
    rng = np.random.default_rng(1)
    initialisers = {t.name for t in model.graph.initializer}
    for info in model.graph.input:
        if info.name in initialisers:
            continue
        dims = info.type.tensor_type.shape.dim
        rows = [n for n, d in enumerate(dims) if d.dim_param.startswith("batch")]
        shape = [BATCH if n in rows else d.dim_value or LENGTH for n, d in enumerate(dims)]
        if info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value = rng.standard_normal(shape).astype(np.float32)
        else:
            value = (np.ones(shape) if "mask" in info.name else rng.integers(0, 2, shape)).astype(np.int64)
        yield info.name, value, rows[0]


def main(attnc, runner, models, folder, *names):
    for name in names:
        model = onnx.load(f"{models}/{name}/model.onnx", load_external_data=False)
        library = f"{folder}/{name}.so"
        subprocess.run([attnc, f"{models}/{name}/model.onnx", "-o", library], check=True)
        outputs = [o.name for o in model.graph.output]

        def run(only):
            flags = []
            for n, (key, value, rows) in enumerate(inputs_of(model)):
                np.save(f"{folder}/{n}.npy", value.take([ROW], rows) if only else value)
                flags.append(f"--input={key}=@{folder}/{n}.npy")
            flags += [f"--output={o}=@{folder}/out{n}.npy" for n, o in enumerate(outputs)]
            subprocess.run([runner, library, *flags], check=True, stdout=subprocess.DEVNULL)
            return [np.load(f"{folder}/out{n}.npy") for n in range(len(outputs))]

        for batch, alone in zip(run(False), run(True)):
            rows = [n for n in range(batch.ndim) if batch.shape[n] != alone.shape[n]]
            assert len(rows) == 1, (name, batch.shape, alone.shape)
            np.testing.assert_array_equal(batch.take([ROW], rows[0]), alone, err_msg=name)
        print(f"{name}: same bits")


if __name__ == "__main__":
    main(*sys.argv[1:])
