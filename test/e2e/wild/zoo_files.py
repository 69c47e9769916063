"""What tools make of an exported model, for zoo.py: each rewrites the file at `path`."""
import os

import ml_dtypes
import numpy as np
import onnx
import onnxruntime


def strip(path):
    """Without notes of where the exporter found what."""
    model = onnx.load(path)
    functions = list(model.functions)
    graphs = [model.graph]
    for graph in graphs:
        for node in graph.node:
            graphs += [a.g for a in node.attribute if a.HasField("g")]
    parts = [model, *graphs, *functions]
    for whole in (*graphs, *functions):
        parts += [*whole.node, *whole.value_info]
    for graph in graphs:
        parts += [*graph.input, *graph.output, *graph.initializer]
    for part in parts:
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    onnx.save(model, path)


class Reader:
    def __init__(self, draws):
        self.draws = iter(draws)

    def get_next(self):
        return next(self.draws, None)


def quantize_dynamic(path, draws):
    from onnxruntime.quantization import quantize_dynamic as quantize
    quantize(path, path)


def quantize_static(path, draws):
    from onnxruntime.quantization import quantize_static as quantize
    from onnxruntime.quantization.shape_inference import quant_pre_process
    quant_pre_process(path, path, skip_symbolic_shape=True)
    taken = {i.name for i in onnx.load(path).graph.input}
    quantize(path, path, Reader([{k: v for k, v in d.items() if k in taken} for d in draws]))


def optimise(path, draws):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = f"{path}.optimised"
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    os.replace(f"{path}.optimised", path)


def slim(path, draws):
    import onnxslim
    onnx.save(onnxslim.slim(onnx.load(path)), path)


def halve(path, draws):
    """f16 between inputs and outputs of float."""
    from onnxruntime.transformers.float16 import convert_float_to_float16
    onnx.save(convert_float_to_float16(onnx.load(path), keep_io_types=True), path)


def widened(path):
    """The model's bytes with f32 wherever it has bf16."""
    model = onnx.load(path)
    wide, narrow = onnx.TensorProto.FLOAT, onnx.TensorProto.BFLOAT16

    def store(tensor):
        if tensor.data_type == narrow:
            values = onnx.numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))

    graphs, nodes = [model.graph], [node for function in model.functions for node in function.node]
    for graph in graphs:
        nodes += graph.node
        graphs += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
        for tensor in graph.initializer:
            store(tensor)
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.tensor_type.elem_type == narrow:
                value.type.tensor_type.elem_type = wide
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                store(attribute.t)
            if attribute.name in ("to", "dtype") and attribute.i == narrow:
                attribute.i = wide
    return model.SerializeToString()


def narrowed(values):
    return values.astype(ml_dtypes.bfloat16)


REWRITES = {"dynamic": quantize_dynamic, "qdq": quantize_static, "fused": optimise, "slim": slim,
            "half": halve}
