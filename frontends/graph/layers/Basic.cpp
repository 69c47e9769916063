#include "frontends/graph/Layer.h"
#include "frontends/onnx/Limits.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>

// Layers that are an operator or two: projections, norms, softmax, products.

using namespace mlir;

namespace attn::graph {
namespace {

void buildLinear(Layer &l) {
  Tensor x = l.value("input");
  l.set(l.activate(l.project(x, "", l.flag("bias", true), l.integer("units", -1)), l.text("activation", "none")));
}

void buildEmbedding(Layer &l) {
  Tensor x = l.value("input");
  if (!l.failed() && onnx::isFloat(x.dtype)) {
    l.error() << "its input is " << onnx::dtypeName(x.dtype) << ", expected integers";
    return;
  }
  l.set(l.op("Gather", {l.weight("weight", {-1, -1}, dtypeFromName(l.text("dtype", "float32"))), x}));
}

void buildWeight(Layer &l) {
  // The shape is that of the file.
  std::string name = l.weightName("");
  const Safetensors::Entry *entry = l.graph.hasWeights ? l.graph.weights.find(name) : nullptr;
  SmallVector<int64_t> shape;
  if (entry)
    shape.assign(entry->shape.begin(), entry->shape.end());
  if (std::optional<onnx::Payload> payload = l.payload("", shape, std::nullopt))
    l.set(l.constant(name, *payload));
}

void buildConvolution(Layer &l) {
  Tensor x = l.value("input");
  if (!l.expectRank(x, 3, 5, "its input") || !l.expectFloat(x, "its input"))
    return;
  int64_t spatial = x.rank() - 2, groups = l.integer("groups", 1);
  int64_t channels = l.constantDim(x, 1, "its input");
  if (channels % groups) {
    l.error() << "its input has " << channels << " channels, which " << groups << " groups do not divide";
    return;
  }
  SmallVector<int64_t> kernel(spatial + 2, -1), pads;
  kernel[1] = channels / groups;
  Tensor weight = l.weight("weight", kernel, x.dtype);
  std::optional<Tensor> bias;
  if (l.flag("bias", true))
    bias = l.weight("bias", {Layer::dim(weight, 0).constant().value_or(-1)}, x.dtype);
  for (StringRef key : {"stride", "padding", "dilation"})
    if (const Json *field = l.json.find(key);
        field && field->is(Json::Array) && int64_t(field->items.size()) != spatial) {
      l.error(field) << "gives " << field->items.size() << " numbers for " << spatial << " dimensions";
      return;
    }
  pads = l.integers("padding", spatial, 0);
  pads.append(pads.begin(), pads.end());
  l.set(l.activate(l.op("Conv", {x, weight, bias},
                        {{"strides", l.integers("stride", spatial, 1)},
                         {"pads", pads},
                         {"dilations", l.integers("dilation", spatial, 1)},
                         {"group", groups}}),
                   l.text("activation", "none")));
}

void buildLayerNorm(Layer &l) {
  Tensor x = l.value("input");
  if (!l.expectRank(x, 1, onnx::kMaxRank, "its input") || !l.expectFloat(x, "its input"))
    return;
  int64_t width = l.constantDim(x, x.rank() - 1, "its input");
  std::optional<Tensor> bias;
  if (l.flag("bias", true))
    bias = l.weight("bias", {width}, x.dtype);
  l.set(l.op("LayerNormalization", {x, l.weight("weight", {width}, x.dtype), bias},
             {{"axis", int64_t(-1)}, {"epsilon", l.number("epsilon", 1e-5)}}));
}

void buildBatchNorm(Layer &l) {
  Tensor x = l.value("input");
  if (!l.expectRank(x, 2, onnx::kMaxRank, "its input") || !l.expectFloat(x, "its input"))
    return;
  int64_t channels = l.constantDim(x, 1, "its input");
  auto weight = [&](StringRef name) { return l.weight(name, {channels}, x.dtype); };
  l.set(l.op("BatchNormalization", {x, weight("weight"), weight("bias"), weight("running_mean"), weight("running_var")},
             {{"epsilon", l.number("epsilon", 1e-5)}}));
}

void buildSoftmax(Layer &l) {
  Tensor x = l.value("input");
  if (!l.expectRank(x, 1, onnx::kMaxRank, "its input") || !l.expectFloat(x, "its input"))
    return;
  int64_t axis = l.axis(l.integer("axis", -1), x.rank(), l.json.find("axis"));
  l.set(l.op(l.type() == "softmax" ? "Softmax" : "LogSoftmax", {x}, {{"axis", axis}}));
}

void buildMatMul(Layer &l) {
  std::vector<Tensor> inputs = l.values("inputs");
  for (const Tensor &t : inputs)
    l.expectRank(t, 1, onnx::kMaxRank, "a factor");
  if (!l.failed() && l.expectSame(inputs[0], inputs[1], "the factors"))
    l.set(l.op("MatMul", {inputs[0], inputs[1]}));
}

void buildEinsum(Layer &l) {
  std::vector<Tensor> inputs = l.values("inputs");
  for (const Tensor &t : inputs)
    l.expectSame(inputs[0], t, "the inputs");
  std::vector<std::optional<Tensor>> operands(inputs.begin(), inputs.end());
  l.set(l.op("Einsum", operands, {{"equation", l.text("equation").str()}}));
}

void buildReduce(Layer &l) {
  Tensor x = l.value("input");
  StringRef operation = l.text("operation");
  StringRef op = llvm::StringSwitch<StringRef>(operation)
                     .Case("sum", "ReduceSum")
                     .Case("mean", "ReduceMean")
                     .Case("max", "ReduceMax")
                     .Case("min", "ReduceMin")
                     .Default("ReduceProd");
  SmallVector<int64_t> axes;
  for (const Json &item : l.json.find("axes")->items)
    axes.push_back(l.axis(item.integer, x.rank(), &item));
  l.set(l.op(op, {x, Layer::ints(axes)}, {{"keepdims", int64_t(l.flag("keep", false))}}));
}

void buildArgMax(Layer &l) {
  Tensor x = l.value("input");
  if (!l.expectRank(x, 1, onnx::kMaxRank, "its input"))
    return;
  int64_t axis = l.axis(l.integer("axis", -1), x.rank(), l.json.find("axis"));
  l.set(l.op("ArgMax", {x}, {{"axis", axis}, {"keepdims", int64_t(l.flag("keep", false))}}));
}

/// x + PE, or PE alone for rows `offset`, `offset` + 1, ... of Vaswani et al.
void buildPositionalEncoding(Layer &l) {
  Tensor x = l.value("input");
  if (!l.expectRank(x, 3, "its input") || !l.expectFloat(x, "its input"))
    return;
  int64_t width = l.constantDim(x, 2, "its input");
  if (width % 2) {
    l.error() << "its input has an odd width, " << width;
    return;
  }
  onnx::Payload rates;
  rates.dtype = DType::F64;
  rates.shape = {1, width / 2};
  auto bytes = std::make_shared<std::vector<double>>();
  for (int64_t i = 0; i < width / 2; ++i)
    bytes->push_back(std::pow(10000.0, -2.0 * double(i) / double(width)));
  rates.data = {ArrayRef<char>(reinterpret_cast<const char *>(bytes->data()), bytes->size() * sizeof(double)), bytes};
  Tensor at = l.range(Layer::dim(x, 1));
  if (std::optional<Tensor> offset = l.optional("offset"))
    at = l.op("Add", {at, l.cast(*offset, DType::I64)});
  // In float64, then rounded: a float32 product loses digits of large positions.
  Tensor angle = l.op("Mul", {l.unsqueeze(l.cast(at, DType::F64), {1}), l.constant(l.weightName("rates"), rates)});
  Tensor pair = l.op("Concat", {l.unsqueeze(l.op("Sin", {angle}), {2}), l.unsqueeze(l.op("Cos", {angle}), {2})},
                     {{"axis", int64_t(2)}});
  Tensor table = l.cast(l.reshape(pair, {Layer::dim(x, 1), Expr(width)}), x.dtype);
  l.set(l.op("Add", {x, table}));
}

} // namespace

LayerFn findBasicLayer(StringRef type) {
  return llvm::StringSwitch<LayerFn>(type)
      .Case("linear", buildLinear)
      .Case("embedding", buildEmbedding)
      .Case("weight", buildWeight)
      .Case("convolution", buildConvolution)
      .Case("layer_norm", buildLayerNorm)
      .Case("batch_norm", buildBatchNorm)
      .Cases("softmax", "log_softmax", buildSoftmax)
      .Case("matmul", buildMatMul)
      .Case("einsum", buildEinsum)
      .Case("reduce", buildReduce)
      .Case("argmax", buildArgMax)
      .Case("positional_encoding", buildPositionalEncoding)
      .Default(nullptr);
}

} // namespace attn::graph
