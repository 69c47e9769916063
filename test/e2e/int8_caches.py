#!/usr/bin/env python3
"""Caches in 8 bits beside those of f32: int8_caches.py steps MODEL.onnx WIDE.so NARROW.so LIBATTNRT
                                     int8_caches.py beam MODEL.onnx STEP.so TOKENS.npy SCORES.npy LIBATTNRT
                                     int8_caches.py halves MODEL.onnx float16|bfloat16 HALF.onnx

steps: decodes by two libraries that keep caches, one in 8 bits: the rows that it keeps are those of the first layer to
within half a step, and the scores differ by a little. beam: the score that a beam search by such caches gives its best
hypothesis is that of its tokens, one behind the other, by a step with such caches: what moved between beams was right.
halves: the model with weights, values and caches in 16 bits, and scores in f32.
"""
import ctypes
import sys

import ml_dtypes
import numpy as np
import onnx

import own_state


def inputs_of(path):
    """Those that are no caches, and caches as (name, heads, width)."""
    given, caches = [], []
    for x in onnx.load(path, load_external_data=False).graph.input:
        sizes = [d.dim_value for d in x.type.tensor_type.shape.dim]
        if len(sizes) == 4:
            caches.append((x.name, sizes[1], sizes[3]))
        else:
            given.append(x.name)
    return given, caches


class Decoder:
    def __init__(self, runtime, library):
        self.rt, self.state = own_state.Runtime(runtime, library), ctypes.c_void_p()
        self.rt.call("attnrt_state_create", self.rt.session, None, ctypes.byref(self.state))

    def run(self, given, ids, length, vocabulary):
        """The scores of one more token, which is number `length`."""
        batch = ids.shape[0]
        made = {"input_ids": ids, "attention_mask": np.ones((batch, length), np.int64),
                "position_ids": np.full((batch, 1), length - 1, np.int64)}
        logits = np.empty((batch, 1, vocabulary), np.float32)
        self.rt.run([made[name] for name in given], [logits], self.state)
        return logits

    def rows(self, name, kind):
        view = ctypes.POINTER(own_state.DLTensor)()
        self.rt.call("attnrt_state_get", self.state, name.encode(), ctypes.byref(view))
        tensor = view.contents
        shape, strides = tensor.shape[:tensor.ndim], tensor.strides[:tensor.ndim]
        assert (tensor.code, tensor.bits) == {np.float32: (2, 32), np.int8: (0, 8)}[kind], (tensor.code, tensor.bits)
        element = ctypes.c_float if kind == np.float32 else ctypes.c_int8
        flat = np.ctypeslib.as_array(ctypes.cast(tensor.data, ctypes.POINTER(element)), (strides[0] * shape[0],))
        return np.lib.stride_tricks.as_strided(flat, shape, [s * np.dtype(kind).itemsize for s in strides]).copy()


def widen(rows):
    codes = rows[..., :-4].astype(np.float64)
    return codes * np.ascontiguousarray(rows[..., -4:]).view(np.float32)


def vocabulary_of(path):
    output = next(o for o in onnx.load(path, load_external_data=False).graph.output if "logits" in o.name)
    return output.type.tensor_type.shape.dim[-1].dim_value


def steps(model, wide, narrow, runtime):
    given, caches = inputs_of(model)
    vocabulary, batch, count = vocabulary_of(model), 2, 30
    both = [Decoder(runtime, library) for library in (wide, narrow)]
    rng = np.random.default_rng(3)
    error = total = 0.0
    for n in range(1, count + 1):
        ids = rng.integers(0, vocabulary, (batch, 1))
        want, got = (decoder.run(given, ids, n, vocabulary) for decoder in both)
        error, total = error + np.square(got - want).sum(), total + np.square(want).sum()
    relative = np.sqrt(error / total)
    assert 0 < relative < 0.02, relative
    stored = next(x for x in onnx.load(model, load_external_data=False).graph.input if x.name == caches[0][0])
    is_wide = stored.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    for n, (name, heads, width) in enumerate(caches if is_wide else []):
        want, bytes_ = both[0].rows(name, np.float32), both[1].rows(name, np.int8)
        got, top = widen(bytes_), np.abs(want).max(-1, keepdims=True)
        # Behind the first layer rows are made from what attentions gave.
        bound = top / 254 * 1.0001 if n < 2 else 0.2 * top
        assert (np.abs(got - want) <= bound).all(), (name, np.abs(got - want).max())
    for name, heads, width in caches:
        assert both[1].rows(name, np.int8).shape == (batch, heads, count, width + 4), name
    length = ctypes.c_int64()
    for decoder in both:
        decoder.rt.call("attnrt_state_truncate", decoder.state, ctypes.c_int64(11))
        decoder.rt.call("attnrt_state_length", decoder.state, ctypes.byref(length))
        assert length.value == 11, length.value
    ids = np.ones((batch, 1), np.int64)
    want, got = (decoder.run(given, ids, 12, vocabulary) for decoder in both)
    np.testing.assert_allclose(got, want, atol=0.05 * np.abs(want).max(), err_msg="cut back")
    print(f"{count} steps agree")


def beam(model, library, tokens, scores, runtime, bos=1):
    given, _ = inputs_of(model)
    decoder, vocabulary = Decoder(runtime, library), vocabulary_of(model)
    best, score = np.load(tokens)[0, 0], np.load(scores)[0, 0]
    total, token = 0.0, bos
    for n, following in enumerate(best, start=1):
        logits = decoder.run(given, np.array([[token]]), n, vocabulary)[0, 0].astype(np.float64)
        total += logits[following] - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        token = following
    assert len(best) > 8 and abs(total - score) < 1e-3, (len(best), total, score)
    print("the score is that of the tokens")


def halves(path, kind, to):
    """Every f32 of the model but its scores in 16 bits."""
    model = onnx.load(path)
    half, float_ = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, kind, kind))), onnx.TensorProto.FLOAT
    graph = model.graph

    def narrow(tensor):
        if tensor.data_type == float_:
            with np.errstate(over="ignore"):
                values = onnx.numpy_helper.to_array(tensor).astype(onnx.helper.tensor_dtype_to_np_dtype(half))
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))

    for tensor in graph.initializer:
        narrow(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                narrow(attribute.t)
            elif node.op_type == "Cast" and attribute.i == float_:
                attribute.i = half
    del graph.value_info[:]
    for value in [*graph.input, *graph.output]:
        if value.type.tensor_type.elem_type == float_ and "logits" not in value.name:
            value.type.tensor_type.elem_type = half
    scores = next(o.name for o in graph.output if "logits" in o.name)
    for node in graph.node:
        node.output[:] = ["narrow_scores" if name == scores else name for name in node.output]
    graph.node.append(onnx.helper.make_node("Cast", ["narrow_scores"], [scores], name="scores", to=float_))
    onnx.save(model, to)


if __name__ == "__main__":
    {"steps": steps, "beam": beam, "halves": halves}[sys.argv[1]](*sys.argv[2:])
