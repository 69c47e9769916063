"""The whole models of ./dev bench stored: those of models.py as people store them, quantised and in half precision.

    int8-dynamic  quantize_dynamic of ONNX Runtime: DynamicQuantizeLinear and MatMulInteger, int8 weights a channel
    int8-qdq      quantize_static: QuantizeLinear and DequantizeLinear around products, u8 activations, s8 weights a channel
    fp16          weights and values in half precision, inputs and outputs in f32
    int4          MatMulNBits of com.microsoft, symmetric blocks of 32

All sides run the same file; attnc-f32 runs the model that it was made of. attnc-int8 runs an int4 file with
--precision=int8, which rounds the rows of its products, too.
"""
import dataclasses
import logging
import warnings

import numpy as np


SOURCES = ["minilm-b1-s32", "minilm-b1-s128", "minilm-b16-s128", "bert-base-b1-s128", "vit-base-16-b1", "gpt2-prefill-s256",
           "gpt2-decode-past512", "llama4l-decode-past1024"]
BLOCK = 32


@dataclasses.dataclass
class Target:
    """Least ratios that count: to the fastest peer on the file, and to our own f32."""
    peers: float
    own: float = None


def target(source, variant):
    decodes = "decode" in source
    if variant == "int8-dynamic":
        return Target(1.3, 2.5 if source.startswith("bert") else None)
    if variant == "int8-qdq":
        return Target(1.1)
    if variant == "fp16":
        return Target(1.2, 1.7 if decodes else 1 / 1.05)
    return Target(1.5 if decodes else 1.1)


TARGETS = {f"{source}.{variant}": target(source, variant)
           for source in SOURCES for variant in ("int8-dynamic", "int8-qdq", "fp16", "int4")}


def write(path, variant, feeds, to):
    """The f32 model at `path` as `variant`; `feeds` calibrate."""
    logging.disable(logging.WARNING)
    warnings.filterwarnings("ignore")
    {"int8-dynamic": write_dynamic, "int8-qdq": write_qdq, "fp16": write_half, "int4": write_blocks}[variant](path, feeds, to)


def write_dynamic(path, feeds, to):
    from onnxruntime.quantization import QuantType, quantize_dynamic
    quantize_dynamic(path, to, weight_type=QuantType.QInt8, per_channel=True, extra_options={"MatMulConstBOnly": True})


def write_qdq(path, feeds, to):
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Once(CalibrationDataReader):
        def __init__(self):
            self.sets = iter([feeds])

        def get_next(self):
            return next(self.sets, None)

    quantize_static(path, to, Once(), quant_format=QuantFormat.QDQ, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
                    per_channel=True, op_types_to_quantize=["MatMul", "Gemm", "Conv"])


def write_half(path, feeds, to):
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16
    from onnxruntime.transformers.onnx_model import OnnxModel
    model = OnnxModel(convert_float_to_float16(onnx.load(path), keep_io_types=True))
    model.topological_sort()  # the converter leaves casts behind their uses
    onnx.save(model.model, to)


def quantise_blocks(weight, block=BLOCK, bits=4):
    """K x N in f32 as codes of 4 or 8 bits [N, blocks, block * bits / 8] and scales [N, blocks]; the zero point is 8 or 128."""
    k, n = weight.shape
    blocks = -(-k // block)
    padded = np.zeros((n, blocks * block), np.float32)
    padded[:, :k] = weight.T
    grouped = padded.reshape(n, blocks, block)
    at = np.abs(grouped).argmax(-1, keepdims=True)
    middle = 1 << bits - 1
    scales = np.take_along_axis(grouped, at, -1)[..., 0] / np.float32(-middle)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(scales[..., None] != 0, grouped / scales[..., None], 0)
    codes = np.clip(np.rint(steps) + middle, 0, 2 * middle - 1).astype(np.uint8)
    return codes if bits == 8 else codes[..., ::2] | codes[..., 1::2] << 4, scales


def write_blocks(path, feeds, to, bits=4):
    """Every MatMul by a stored matrix, also by the transpose of one, as MatMulNBits."""
    import onnx
    from onnx import helper, numpy_helper
    model = onnx.load(path)
    graph = model.graph
    stored = {t.name: t for t in graph.initializer}
    transposed = {node.output[0]: node.input[0] for node in graph.node
                  if node.op_type == "Transpose" and node.input[0] in stored and len(stored[node.input[0]].dims) == 2}
    nodes = []
    for node in graph.node:
        name = node.input[1] if node.op_type == "MatMul" else ""
        source = transposed.get(name, name)
        if source not in stored or len(stored[source].dims) != 2:
            nodes.append(node)
            continue
        weight = numpy_helper.to_array(stored[source])
        weight = weight.T if name in transposed else weight
        codes, scales = quantise_blocks(weight, bits=bits)
        parts = {f"{name}_codes": codes, f"{name}_scales": scales.reshape(-1)}
        for part, value in parts.items():
            if part not in stored:
                stored[part] = numpy_helper.from_array(value, part)
        nodes.append(helper.make_node("MatMulNBits", [node.input[0], *parts], node.output, node.name or f"blocks_{len(nodes)}",
                                      domain="com.microsoft", K=weight.shape[0], N=weight.shape[1], bits=bits, block_size=BLOCK))
    used = {name for node in nodes for name in node.input} | {output.name for output in graph.output}
    nodes = [node for node in nodes if node.op_type != "Transpose" or node.output[0] in used]
    used = {name for node in nodes for name in node.input}
    made = helper.make_graph(nodes, graph.name, graph.input, graph.output, [t for name, t in stored.items() if name in used])
    domains = [*model.opset_import, helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(made, opset_imports=domains, ir_version=model.ir_version), to)


def judge(result):
    """Adds "targets" to a result, as verdict.judge does."""
    import verdict
    target = TARGETS[result["case"]]
    wanted = [("attnc", verdict.FP32_PEERS, target.peers), ("attnc", ("attnc-f32",), target.own)]
    if result["case"].endswith(".int4"):
        # Like with like: OpenVINO rounds the rows to 8 bits, as its error shows; ONNX Runtime computes in f32.
        wanted = [("attnc", ("onnxruntime",), target.peers), ("attnc-int8", ("openvino",), target.peers)]
    verdict.judge_sides(result, wanted)
