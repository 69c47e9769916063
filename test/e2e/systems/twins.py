"""The weights of ONNX models under the names of their graphs."""
import numpy as np
import onnx
from onnx import numpy_helper

TWINS = {}


class Initialisers(dict):
    def __init__(self, path):
        super().__init__((i.name, numpy_helper.to_array(i)) for i in onnx.load(path).graph.initializer)

    def transposed(self, width, units, n=0):
        """The n-th nameless factor [width, units] of a MatMul, as a linear layer has it."""
        found = [v for k, v in self.items() if k.startswith(("onnx::MatMul", "val_")) and v.shape == (width, units)]
        return np.ascontiguousarray(found[n].T)

    def recurrent(self, kind, name, n=0, layer=0):
        """The n-th nameless LSTM or GRU under PyTorch's names."""
        mine = [v for k, v in self.items() if k.startswith("onnx::" + kind)]
        three = mine[3 * n:3 * n + 3]
        w, r = [v for v in three if v.ndim == 3][:2]
        b = next(v for v in three if v.ndim == 2)
        order = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2]}[kind]
        result = {}
        for direction, end in enumerate((f"_l{layer}", f"_l{layer}_reverse")[:w.shape[0]]):
            for what, value in (("weight_ih", w[direction]), ("weight_hh", r[direction]),
                                ("bias_ih", np.split(b[direction], 2)[0]), ("bias_hh", np.split(b[direction], 2)[1])):
                gates = np.split(value, len(order))
                result[f"{name}.{what}{end}"] = np.concatenate([gates[g] for g in order])
        return result

    def renamed(self, **names):
        """What has a name, under another first part: new="old"."""
        return {f"{new}.{k[len(old) + 1:]}": v for new, old in names.items() for k, v in self.items()
                if k.startswith(old + ".")}


def twin(system, model):
    def register(convert):
        TWINS.setdefault(system, []).append((model, convert))
        return convert
    return register
