"""Nodes and constants of an ONNX graph, in the order in which they are written."""
import numpy as np
from onnx import helper, numpy_helper


class Writer:
    def __init__(self, r, dtype, opset):
        self.r, self.dtype, self.opset = r, dtype, opset
        self.nodes, self.inits, self.inputs, self.outputs = [], [], [], []
        self.count = 0

    def op(self, op_type, *inputs, n=1, name=None, **attributes):
        outputs = [name] if name else [f"{op_type.lower()}_{self.count}" + (f"_{i}" if n > 1 else "") for i in range(n)]
        self.nodes.append(helper.make_node(op_type, list(inputs), outputs, name=f"/{op_type}_{self.count}", **attributes))
        self.count += 1
        return outputs[0] if n == 1 else outputs

    def const(self, value, dtype=None):
        value = np.asarray(value, dtype or self.dtype)
        name = f"c{self.count}"
        self.count += 1
        tensor = numpy_helper.from_array(value, name)
        if self.r.random() < 0.5:
            self.inits.append(tensor)
        else:
            self.nodes.append(helper.make_node("Constant", [], [name], name=f"/Constant_{self.count}", value=tensor))
        return name

    def scalar(self, value):
        return self.const(np.full([1] * self.r.choice([0, 0, 1]), value))

    def ints(self, *values):
        return self.const(values, np.int64)

    def commute(self, op_type, a, b):
        return self.op(op_type, b, a) if self.r.random() < 0.3 else self.op(op_type, a, b)

    def unsqueeze(self, x, *axes):
        return self.op("Unsqueeze", x, self.ints(*axes))

    def squeeze(self, x, *axes):
        return self.op("Squeeze", x, self.ints(*axes))

    def reduce_sum(self, x, axis, keepdims):
        return self.op("ReduceSum", x, self.ints(axis), keepdims=keepdims)

    def reduce(self, op_type, x, axis, keepdims):
        if self.opset >= 18:
            return self.op(op_type, x, self.ints(axis), keepdims=keepdims)
        return self.op(op_type, x, axes=[axis], keepdims=keepdims)
