#include "frontends/graph/Layer.h"
#include "frontends/onnx/Limits.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>

// Layers that move elements, and values made of sizes.

using namespace mlir;

namespace attn::graph {

int64_t protoOf(DType dtype) {
  for (int64_t type = 0; type < 64; ++type)
    if (onnx::dtypeFromProto(type) == dtype)
      return type;
  llvm_unreachable("each element type has a number");
}

DType dtypeFromName(StringRef name) {
  for (DType dtype : {DType::F32, DType::F64, DType::F16, DType::BF16, DType::I8, DType::I16, DType::I32, DType::I64,
                      DType::U8, DType::U16, DType::U32, DType::U64, DType::Bool})
    if (onnx::dtypeName(dtype) == name)
      return dtype;
  llvm_unreachable("the schema lists the element types");
}

namespace {

SmallVector<Expr> readShape(Layer &l, StringRef key = "shape") {
  SmallVector<Expr> shape;
  for (const Json &item : l.json.find(key)->items)
    shape.push_back(l.size(item));
  return shape;
}

void buildReshape(Layer &l) {
  Tensor x = l.value("input");
  l.set(l.op("Reshape", {x, Layer::sizes(readShape(l))}));
}

void buildTranspose(Layer &l) {
  Tensor x = l.value("input");
  const Json *order = l.json.find("order");
  SmallVector<int64_t> axes;
  if (!l.failed() && int64_t(order->items.size()) != x.rank())
    l.error(order) << "gives " << order->items.size() << " axes for " << x.rank() << " dimensions";
  for (const Json &item : order->items)
    if (axes.push_back(l.axis(item.integer, x.rank(), &item)); !l.failed() && llvm::count(axes, axes.back()) > 1)
      l.error(&item) << "names axis " << axes.back() << " twice";
  l.set(l.transpose(x, axes));
}

void buildConcat(Layer &l) {
  std::vector<Tensor> inputs = l.values("inputs");
  for (const Tensor &t : inputs)
    if (!l.expectRank(t, std::max<int64_t>(1, inputs[0].rank()), "an input") ||
        !l.expectSame(inputs[0], t, "the inputs"))
      return;
  int64_t axis = l.axis(l.integer("axis", -1), inputs[0].rank(), l.json.find("axis"));
  std::vector<std::optional<Tensor>> operands(inputs.begin(), inputs.end());
  l.set(l.op("Concat", operands, {{"axis", axis}}));
}

void buildStack(Layer &l) {
  std::vector<Tensor> inputs = l.values("inputs");
  int64_t axis = l.axis(l.integer("axis", 0), inputs[0].rank() + 1, l.json.find("axis"));
  std::vector<std::optional<Tensor>> operands;
  for (const Tensor &t : inputs) {
    if (!l.expectRank(t, inputs[0].rank(), "an input") || !l.expectSame(inputs[0], t, "the inputs"))
      return;
    operands.push_back(l.unsqueeze(t, {axis}));
  }
  l.set(l.op("Concat", operands, {{"axis", axis}}));
}

void buildSlice(Layer &l) {
  Tensor x = l.value("input");
  if (!l.expectRank(x, 1, onnx::kMaxRank, "its input"))
    return;
  int64_t axis = l.axis(l.integer("axis", 0), x.rank(), l.json.find("axis"));
  const Json *start = l.json.find("start"), *stop = l.json.find("stop");
  int64_t step = l.integer("step", 1);
  if (step == 0) {
    l.error(l.json.find("step")) << "a step of 0 goes nowhere";
    return;
  }
  Expr begin = start ? l.size(*start) : step > 0 ? Expr(0) : Expr(INT64_MAX);
  Expr end = stop ? l.size(*stop) : step > 0 ? Expr(INT64_MAX) : Expr(INT64_MIN);
  l.set(l.op("Slice", {x, Layer::sizes({begin}), Layer::sizes({end}), Layer::ints({axis}), Layer::ints({step})}));
}

void buildReverse(Layer &l) {
  Tensor x = l.value("input");
  if (!l.expectRank(x, 1, onnx::kMaxRank, "its input"))
    return;
  int64_t axis = l.axis(l.integer("axis", 1), x.rank(), l.json.find("axis"));
  l.set(l.op("Slice", {x, Layer::ints({-1}), Layer::ints({INT64_MIN}), Layer::ints({axis}), Layer::ints({-1})}));
}

void buildAxes(Layer &l) {
  Tensor x = l.value("input");
  const std::vector<Json> &items = l.json.find("axes")->items;
  bool expands = l.type() == "expand_dims";
  int64_t rank = x.rank() + (expands ? int64_t(items.size()) : 0);
  SmallVector<int64_t> axes;
  for (const Json &item : items)
    if (axes.push_back(l.axis(item.integer, rank, &item)); !l.failed() && llvm::count(axes, axes.back()) > 1)
      l.error(&item) << "names axis " << axes.back() << " twice";
  l.set(expands ? l.unsqueeze(x, axes) : l.squeeze(x, axes));
}

void buildGather(Layer &l) {
  Tensor x = l.value("input"), indices = l.value("indices");
  if (!l.expectRank(x, 1, onnx::kMaxRank, "its input"))
    return;
  if (onnx::isFloat(indices.dtype)) {
    l.error() << "its indices are " << onnx::dtypeName(indices.dtype) << ", expected integers";
    return;
  }
  int64_t axis = l.axis(l.integer("axis", 0), x.rank(), l.json.find("axis"));
  if (l.flag("per_batch", false)) { // row b of the result comes from row b of the input
    if (!l.expectRank(x, 2, onnx::kMaxRank, "its input") || !l.expectRank(indices, 1, "its indices"))
      return;
    l.set(l.op("GatherND", {x, l.unsqueeze(l.cast(indices, DType::I64), {1})}, {{"batch_dims", int64_t(1)}}));
    return;
  }
  l.set(l.op("Gather", {x, indices}, {{"axis", axis}}));
}

void buildPad(Layer &l) {
  Tensor x = l.value("input");
  if (!l.expectRank(x, 1, onnx::kMaxRank, "its input"))
    return;
  int64_t axis = l.axis(l.integer("axis", -1), x.rank(), l.json.find("axis"));
  l.set(l.op("Pad", {x, Layer::ints({l.integer("before", 0), l.integer("after", 0)}),
                     Layer::scalar(x.dtype, l.number("value", 0)), Layer::ints({axis})}));
}

void buildBroadcast(Layer &l) {
  Tensor x = l.value("input");
  l.set(l.op("Expand", {x, Layer::sizes(readShape(l))}));
}

void buildOneHot(Layer &l) {
  Tensor x = l.value("input");
  if (!l.failed() && onnx::isFloat(x.dtype)) {
    l.error() << "its input is " << onnx::dtypeName(x.dtype) << ", expected integers";
    return;
  }
  Tensor classes = Layer::sizes({l.size(*l.json.find("classes"))});
  Tensor at = l.unsqueeze(l.cast(x, DType::I64), {x.rank()});
  Tensor range = l.op("Range", {Layer::scalar(DType::I64, 0), l.squeeze(classes, {0}), Layer::scalar(DType::I64, 1)});
  l.set(l.cast(l.op("Equal", {at, range}), dtypeFromName(l.text("dtype", "float32"))));
}

void buildRange(Layer &l) {
  l.set(l.cast(l.range(l.size(*l.json.find("size"))), dtypeFromName(l.text("dtype", "int64"))));
}

void buildFill(Layer &l) {
  DType dtype = dtypeFromName(l.text("dtype", "float32"));
  double value = l.number("value", 0);
  if (!onnx::isFloat(dtype) && value != std::trunc(value)) {
    l.error(l.json.find("value")) << "a fill of " << onnx::dtypeName(dtype) << " is an integer";
    return;
  }
  l.set(l.op("Expand", {Layer::scalar(dtype, value), Layer::sizes(readShape(l))}));
}

void buildCast(Layer &l) { l.set(l.cast(l.value("input"), dtypeFromName(l.text("dtype")))); }

} // namespace

LayerFn findShapeLayer(StringRef type) {
  return llvm::StringSwitch<LayerFn>(type)
      .Case("reshape", buildReshape)
      .Case("transpose", buildTranspose)
      .Case("concat", buildConcat)
      .Case("stack", buildStack)
      .Case("slice", buildSlice)
      .Case("reverse", buildReverse)
      .Cases("expand_dims", "squeeze", buildAxes)
      .Case("gather", buildGather)
      .Case("pad", buildPad)
      .Case("broadcast", buildBroadcast)
      .Case("one_hot", buildOneHot)
      .Case("range", buildRange)
      .Case("fill", buildFill)
      .Case("cast", buildCast)
      .Default(nullptr);
}

} // namespace attn::graph
