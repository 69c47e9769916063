"""Tensors of torch: in, out and into them, of every layout and dtype, on the wrong device, with gradients."""
import unittest

import attnc
import models
import numpy as np
import torch
from onnx import TensorProto


def rows(n=3, start=0):
    return torch.arange(start, start + 4 * n, dtype=torch.float32).reshape(n, 4)


class Tensors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = attnc.load(models.scaled(), threads=1)

    def check(self, message, call, kind=attnc.InvalidArgument):
        with self.assertRaisesRegex(kind, message):
            call()

    def test_in_and_out(self):
        a, b = rows(), rows(start=5)
        for y in (self.model(a, b), self.model(a=a, b=b), self.model.run({"a": a, "b": b})["y"], self.model(a, b.numpy())):
            self.assertIs(type(y), torch.Tensor)
            self.assertTrue(torch.equal(y, 2 * a + b))
        self.assertIs(type(self.model(a.numpy(), b)), np.ndarray)
        y.add_(1)  # it is the caller's
        with torch.inference_mode():
            self.assertTrue(torch.equal(self.model(a + 0, b), 2 * a + b))
        self.assertEqual(tuple(self.model(rows(0), rows(0)).shape), (0, 4))

    def test_no_copies(self):
        """An input is read where it lies, and an output is written where it is to be."""
        n = 1 << 22
        a, b = torch.ones(n, 4), torch.ones(n, 4)
        out = torch.empty(n, 4)
        place = out.data_ptr()
        result = self.model.run({"a": a, "b": b}, out={"y": out})
        self.assertIs(result["y"], out)
        self.assertEqual((out.data_ptr(), float(out.min()), float(out.max())), (place, 3.0, 3.0))
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak is what it is now
        before = self.peak()
        self.model.run({"a": a, "b": b}, out={"y": out})
        self.assertLess(self.peak() - before, 8 << 20)  # a copy of an input takes 64 MiB

    @staticmethod
    def peak():
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))

    def test_layouts(self):
        wide, b = torch.arange(48, dtype=torch.float32).reshape(6, 8), rows()
        for a in (wide[::2, ::2], wide[:4, :3].T, torch.ones(1, 4).expand(3, 4), wide[3:, 4:], rows().detach()):
            self.assertTrue(torch.equal(self.model(a, b), 2 * a + b))
        self.check("'y' has strides; give a contiguous one",
                   lambda: self.model.run({"a": b, "b": b}, out={"y": torch.empty(4, 3).T}))
        self.check("output 'y' has shape 3x4, its buffer 2x4", lambda: self.model.run({"a": b, "b": b}, out={"y": torch.empty(2, 4)}))

    def test_dtypes(self):
        for onnx, dtype in ((TensorProto.DOUBLE, torch.float64), (TensorProto.FLOAT16, torch.float16),
                            (TensorProto.BFLOAT16, torch.bfloat16), (TensorProto.INT8, torch.int8), (TensorProto.BOOL, torch.bool),
                            (TensorProto.INT32, torch.int32), (TensorProto.INT64, torch.int64), (TensorProto.UINT8, torch.uint8)):
            with self.subTest(dtype):
                model = attnc.load(models.typed(onnx))
                x = torch.tensor([1, 0, 3]).to(dtype)
                y = model(x)
                self.assertEqual(y.dtype, dtype)
                self.assertTrue(torch.equal(y, torch.cat([x, x])))
                out = torch.empty(6, dtype=dtype)
                model.run({"x": x}, out={"y": out})
                self.assertTrue(torch.equal(out, y))
        shifted = torch.frombuffer(bytearray(49), dtype=torch.float32, offset=1, count=12).reshape(3, 4)
        self.check("input 'a' is not aligned to its elements; give a copy", lambda: self.model(shifted, rows()))
        self.check("'b' is of type float64, the model has float32", lambda: self.model(rows(), rows().double()))
        self.check("'b' is of type bfloat16, the model has float32", lambda: self.model(rows(), rows().bfloat16()))

    def test_what_cannot_be_read(self):
        b = rows()
        self.check("input 'a'.*grad.*detach", lambda: self.model(rows().requires_grad_(), b))
        self.check("input 'a'.*meta", lambda: self.model(torch.ones(3, 4, device="meta"), b))
        self.check("input 'a'.*(sparse|layout)", lambda: self.model(b.to_sparse(), b))
        self.check("input 'a'.*(conj|complex)", lambda: self.model(torch.ones(3, 4, dtype=torch.complex64).conj(), b))
        self.check("input 'a' is of type unknown .DLPack code 5, 64 bits, 1 lanes., the model has float32", lambda: self.model(torch.ones(3, 4, dtype=torch.complex64), b))

    def test_negated_views(self):
        """Their bytes are not what they say."""
        a = torch.complex(rows(), rows(start=3)).conj().imag
        self.assertTrue(a.is_neg())
        self.assertTrue(torch.equal(self.model(a, rows()), -2 * rows(start=3) + rows()))
        self.check("^output 'y' is a negated view; give a contiguous tensor", lambda: self.model.run({"a": rows(), "b": rows()}, out={"y": a}))

    @unittest.skipUnless(torch.cuda.is_available(), "no GPU")
    def test_wrong_device(self):
        self.check("input 'a' is on DLPack device type 2, not on the CPU", lambda: self.model(rows().cuda(), rows()))

    def test_states_and_weights(self):
        model = attnc.load(models.ROOT / "test/e2e/models/gpt2_decode_ts17/model.onnx", own_state=True)
        state, other = model.state(), model.state()
        tokens = torch.tensor([[3], [4]])
        for position in range(3):
            logits = model.step(state, input_ids=tokens, attention_mask=torch.ones(2, position + 1, dtype=torch.int64))
            self.assertIs(type(logits), torch.Tensor)
        name = model.entries[next(iter(model.entries))].states[0][0]
        kept = torch.from_numpy(state[name])
        other[name] = kept
        self.assertTrue(torch.equal(torch.from_numpy(other[name]), kept))
        state.gather(torch.tensor([1, 0]))
        self.assertTrue(torch.equal(torch.from_numpy(state[name]), kept.flip(0)))


if __name__ == "__main__":
    unittest.main()
