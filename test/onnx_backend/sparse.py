#!/usr/bin/env python3
"""Sparse initialisers and constants against the product with the dense matrix, by NumPy in f64.

    sparse.py FOLDER [--server PROGRAM]

Models whose values and indices lie in files of their own go to FOLDER.
"""
import argparse
import os
import sys

import numpy as np
import onnx
from onnx import SparseTensorProto, helper, numpy_helper

import backend

RNG = np.random.default_rng(11)


def sparse(dense, wide, name="w"):
    places = np.argwhere(dense) if wide else np.flatnonzero(dense)
    result = SparseTensorProto(dims=dense.shape, indices=numpy_helper.from_array(places.astype(np.int64), name + "_places"))
    result.values.CopyFrom(numpy_helper.from_array(dense[dense != 0], name))
    return result


def matrix(rows, columns, share, dtype=np.float32):
    return np.where(RNG.random((rows, columns)) < share, RNG.integers(1, 9, (rows, columns)), 0).astype(dtype)


def model(nodes, dtype=np.float32, sparse_initializers=()):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", kind, ["n", 24])],
                              [helper.make_tensor_value_info("y", kind, None)])
    graph.sparse_initializer.extend(sparse_initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def product(weight="w"):
    return helper.make_node("MatMul", ["x", weight], ["y"], "product")


def cases():
    for wide in (False, True):
        for dtype in (np.float32, np.float64, np.float16, np.int32):
            for share in (0, 0.2, 1):
                dense = matrix(24, 40, share, dtype)
                label = f"{np.dtype(dtype)}_{share}_{'wide' if wide else 'flat'}"
                yield "initialiser_" + label, model([product()], dtype, [sparse(dense, wide)]), dense
                constant = helper.make_node("Constant", [], ["w"], "c", sparse_value=sparse(dense, wide))
                yield "constant_" + label, model([constant, product()], dtype), dense
        small = matrix(24, 2, 0.3)
        yield f"few_elements_{wide}", model([product()], sparse_initializers=[sparse(small, wide)]), small
    dense = matrix(24, 40, 0.2)
    branches = [helper.make_graph([helper.make_node("Identity", [name], [f"{name}_out"])], name, [],
                                  [helper.make_tensor_value_info(f"{name}_out", onnx.TensorProto.FLOAT, [24, 40])])
                for name in ("a", "b")]
    for branch, held in zip(branches, (dense, matrix(24, 40, 0.5))):
        branch.sparse_initializer.append(sparse(held, True, branch.name))
    count = helper.make_node("Size", ["x"], ["size"])
    some = helper.make_node("Cast", ["size"], ["some"], to=onnx.TensorProto.BOOL)
    choice = helper.make_node("If", ["some"], ["w"], "choice", then_branch=branches[0], else_branch=branches[1])
    yield "branches", model([count, some, choice, product()]), dense


def outside(part, data, path):
    """Moves what a tensor holds to the end of a file."""
    part.ClearField("raw_data")
    part.data_location = onnx.TensorProto.EXTERNAL
    with open(path, "ab") as file:
        part.external_data.add(key="location", value=os.path.basename(path))
        part.external_data.add(key="offset", value=str(file.tell()))
        part.external_data.add(key="length", value=str(len(data)))
        file.write(data)


def write_external(folder):
    os.makedirs(folder, exist_ok=True)
    dense = matrix(24, 40, 0.2)
    tensor = sparse(dense, True)
    for part in (tensor.values, tensor.indices):
        outside(part, part.raw_data, f"{folder}/outside.data")
    onnx.save(model([product()], sparse_initializers=[tensor]), f"{folder}/outside.onnx")
    x = RNG.standard_normal((3, 24)).astype(np.float32)
    np.save(f"{folder}/x.npy", x)
    np.save(f"{folder}/y.npy", (x.astype(np.float64) @ dense).astype(np.float32))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("--server", default=backend.SERVER)
    args = p.parse_args()
    write_external(args.folder)
    server, passed, failed = backend.Server(args.server), 0, 0
    for name, asked, dense in cases():
        x = RNG.integers(-4, 5, (3, 24)).astype(dense.dtype)  # sums are exact in each type
        try:
            got, _ = server.run(asked, {"x": x}, ["y"])
            np.testing.assert_array_equal(got[0], (x.astype(np.float64) @ dense.astype(np.float64)).astype(dense.dtype))
            passed += 1
        except (backend.Refused, AssertionError) as error:
            failed += 1
            print(f"FAIL {name}: " + " ".join(str(error).split())[:300])
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
