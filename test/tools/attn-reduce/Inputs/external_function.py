"""f.onnx, a function with a constant in f.bin."""
import pathlib

import onnx
import onnx.parser

model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
g (float[2] x) => (float[2] y) <float[2] h> {
  h = Relu(x)
  y = local.F(h)
}
<domain: "local", opset_import: ["" : 17]>
F (a) => (b) {
  w = Constant<value = float[2] {1.0, 2.0}>()
  b = Add(a, w)
}""")
tensor = model.functions[0].node[0].attribute[0].t
pathlib.Path("f.bin").write_bytes(onnx.numpy_helper.to_array(tensor).tobytes())
del tensor.float_data[:]
tensor.ClearField("raw_data")
tensor.data_location = onnx.TensorProto.EXTERNAL
tensor.external_data.add(key="location", value="f.bin")
pathlib.Path("f.onnx").write_bytes(model.SerializeToString())
