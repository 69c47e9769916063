# has OPERATOR MODEL.onnx: whether ONNX Runtime can load the model and it has such a node.
import sys

import onnx
import onnxruntime

model = onnx.load(sys.argv[2])
onnxruntime.InferenceSession(sys.argv[2], providers=["CPUExecutionProvider"])


def operators(graph):
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from operators(attribute.g)


sys.exit(sys.argv[1] not in operators(model.graph))
