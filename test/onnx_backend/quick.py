"""Code that LLVM does not optimise: another library of the same model, with the same results but for roundings."""
import pathlib
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import backend

rng = np.random.default_rng(1)
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 24), ("y", 40)))
weight = numpy_helper.from_array(rng.standard_normal((24, 40)).astype(np.float32), "w")
nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Softmax", ["p"], ["y"])]
model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], [weight]), opset_imports=[helper.make_opsetid("", 17)])
server = backend.Server(sys.argv[1])
feeds = {"x": rng.standard_normal((5, 24)).astype(np.float32)}


def run(**more):
    (values,), _ = server.run(model, feeds, ["y"], keep=True, **more)
    return values, pathlib.Path(server.folder, "model.so").read_bytes()


(plain, library), (again, same), (quick, other) = run(), run(), run(quick=True)
print("libraries:", "one" if library == same else "not the same", "and", "another" if library != other else "the same")
print("results:", "close" if np.allclose(plain, quick, rtol=1e-5) and np.array_equal(plain, again) else "apart")
