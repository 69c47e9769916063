"""The ONNX backend interface, run by the official tests of the onnx package: a node case of each of some families.
test/onnx_backend/full.test has all cases, by the same compiler and runtime.
"""
import unittest

import attnc
import attnc.onnx_backend as backend
import models
import numpy as np
import onnx
import onnx.backend.test

CASES = r"test_(softmax_axis_1|matmul_2d|layer_normalization_2d_axis1|gather_0|attention_4d|where_example|cast_FLOAT_to_DOUBLE)_cpu"


class Interface(unittest.TestCase):
    def test_prepare_and_run(self):
        a = np.ones((2, 4), np.float32)
        prepared = backend.prepare(models.scaled(), "CPU", threads=1)
        (y,) = prepared.run([a, a])
        np.testing.assert_array_equal(y, 3 * a)
        self.assertEqual(prepared.run({"a": a, "b": a})[0].shape, (2, 4))
        np.testing.assert_array_equal(backend.run_model(models.scaled(), [a, a])[0], 3 * a)
        with self.assertRaisesRegex(attnc.InvalidArgument, "takes 2 inputs, not 3"):
            prepared.run([a, a, a])

    def test_run_node(self):
        x = np.array([[-1, 2]], np.float32)
        node = onnx.helper.make_node("Relu", ["x"], ["y"])
        np.testing.assert_array_equal(backend.run_node(node, [x])[0], [[0, 2]])
        np.testing.assert_array_equal(backend.run_node(node, [x], outputs_info=[(np.float32, (1, 2))])[0], [[0, 2]])

    def test_devices(self):
        self.assertTrue(backend.supports_device("CPU"))
        self.assertTrue(backend.supports_device("CUDA:0"))
        self.assertFalse(backend.supports_device("TPU"))
        with self.assertRaisesRegex(attnc.InvalidArgument, "not 'TPU'"):
            backend.prepare(models.scaled(), "TPU")


official = onnx.backend.test.BackendTest(backend.AttncBackend, __name__)
official.include(CASES)
globals().update({name: case for name, case in official.test_cases.items() if "Node" in name})

if __name__ == "__main__":
    unittest.main()
