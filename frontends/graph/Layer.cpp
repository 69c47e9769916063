#include "frontends/graph/Layer.h"
#include "dialects/attn/NodeLocation.h"
#include "frontends/graph/Limits.h"
#include "frontends/graph/SizeText.h"
#include "frontends/onnx/Limits.h"
#include <utility>

using namespace mlir;
using namespace attn;
using namespace attn::graph;

const Tensor *Scope::find(StringRef name) const {
  for (const Scope *scope = this; scope; scope = scope->outer)
    if (auto it = scope->values.find(name); it != scope->values.end())
      return &it->second;
  return nullptr;
}

Location GraphBuilder::location(onnx::Reporter &reporter, Position at, const Json *layer) {
  Location place = FileLineColLoc::get(reporter.getContext(), reporter.getName(), at.line, at.column);
  const Json *name = layer ? layer->find("name") : nullptr, *type = layer ? layer->find("layer") : nullptr;
  if (!name || !name->is(Json::String))
    return place;
  std::string text = "layer '" + printableName(name->text) + "'";
  if (type && type->is(Json::String))
    text += " (" + printableName(type->text) + ")";
  return NameLoc::get(StringAttr::get(reporter.getContext(), text), place);
}

bool GraphBuilder::build(const Json &layers, Scope &scope) {
  for (const Json &json : layers.items) {
    Layer layer(*this, json, scope);
    if (++numLayers > kMaxLayers) {
      layer.error() << "is one of more than " << kMaxLayers << " layers, each round of a repeat counted";
      return false;
    }
    if (scope.find(layer.name())) {
      layer.error(json.find("name")) << "there is a value of that name already";
      return false;
    }
    findLayer(layer.type())(layer);
    if (layer.failed())
      return false;
  }
  return true;
}

Layer::Layer(GraphBuilder &graph, const Json &json, Scope &scope)
    : graph(graph), json(json), scope(scope), label(json.find("name")->text), kind(json.find("layer")->text),
      place(GraphBuilder::location(graph.reporter, json.at, &json)) {}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

// A diagnostic that is not in flight swallows its text.
InFlightDiagnostic Layer::error(const Json *at) {
  if (std::exchange(hasFailed, true))
    return {};
  return graph.reporter.invalid(GraphBuilder::location(graph.reporter, at ? at->at : json.at, &json));
}

InFlightDiagnostic Layer::unsupported(const Json *at) {
  if (std::exchange(hasFailed, true))
    return {};
  return graph.reporter.unsupported(GraphBuilder::location(graph.reporter, at ? at->at : json.at, &json));
}

//===----------------------------------------------------------------------===//
// Fields
//===----------------------------------------------------------------------===//

int64_t Layer::integer(StringRef key, int64_t fallback) const {
  const Json *field = json.find(key);
  return field ? field->integer : fallback;
}

double Layer::number(StringRef key, double fallback) const {
  const Json *field = json.find(key);
  return field ? field->number : fallback;
}

bool Layer::flag(StringRef key, bool fallback) const {
  const Json *field = json.find(key);
  return field ? field->boolean : fallback;
}

StringRef Layer::text(StringRef key, StringRef fallback) const {
  const Json *field = json.find(key);
  return field ? StringRef(field->text) : fallback;
}

SmallVector<int64_t> Layer::integers(StringRef key, int64_t count, int64_t fallback) const {
  const Json *field = json.find(key);
  if (!field || !field->is(Json::Array))
    return SmallVector<int64_t>(count, field ? field->integer : fallback);
  SmallVector<int64_t> result;
  for (const Json &item : field->items)
    result.push_back(item.integer);
  return result;
}

Tensor Layer::lookup(StringRef reference, const Json &at) {
  std::string name = reference.str();
  for (size_t hole; scope.round >= 0 && (hole = name.find("{i}")) != std::string::npos;)
    name.replace(hole, 3, std::to_string(scope.round));
  if (const Tensor *found = scope.find(name))
    return *found;
  std::string best;
  unsigned least = std::max<size_t>(2, name.size() / 3);
  for (const Scope *at = &scope; at; at = at->outer)
    for (StringRef known : at->values.keys())
      if (unsigned distance = StringRef(name).edit_distance(known, true, least);
          distance < least || (distance == least && (best.empty() || known < best))) {
        best = known.str();
        least = distance;
      }
  InFlightDiagnostic diagnostic = error(&at);
  diagnostic << "there is no value '" << printableName(name) << "' here";
  if (!best.empty())
    diagnostic << ", did you mean '" << printableName(best) << "'?";
  return scalar(DType::F32, 0);
}

Tensor Layer::value(StringRef key) {
  const Json *field = json.find(key);
  if (field)
    return lookup(*field);
  error() << "needs the key '" << key << "'";
  return scalar(DType::F32, 0);
}

std::optional<Tensor> Layer::optional(StringRef key) {
  const Json *field = json.find(key);
  return field ? std::optional<Tensor>(lookup(*field)) : std::nullopt;
}

std::vector<Tensor> Layer::values(StringRef key) {
  std::vector<Tensor> result;
  if (const Json *field = json.find(key))
    for (const Json &item : field->items)
      result.push_back(lookup(item));
  return result;
}

Expr Layer::size(const Json &field) {
  if (!field.is(Json::String))
    return Expr(field.integer);
  std::string what;
  std::optional<Expr> result = readSize(field.text, graph.dimensions, what);
  if (!result)
    error(&field) << what;
  return result.value_or(Expr(1));
}

int64_t Layer::axis(int64_t axis, int64_t rank, const Json *at) {
  if (axis >= -rank && axis < rank)
    return axis < 0 ? axis + rank : axis;
  error(at) << "axis " << axis << " is outside [" << -rank << ", " << rank << ")";
  return 0;
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

std::string Layer::weightName(StringRef suffix) const {
  const Json *shared = json.find("weights");
  std::string base = shared ? shared->text : scope.path + label;
  for (size_t hole; shared && scope.round >= 0 && (hole = base.find("{i}")) != std::string::npos;)
    base.replace(hole, 3, std::to_string(scope.round));
  return suffix.empty() ? base : base + "." + suffix.str();
}

std::optional<onnx::Payload> Layer::payload(StringRef suffix, ArrayRef<int64_t> shape, std::optional<DType> dtype) {
  std::string name = weightName(suffix);
  if (hasFailed)
    return std::nullopt;
  if (!graph.hasWeights)
    return error() << "needs the weight '" << printableName(name) << "', but the graph names no file of weights",
           std::nullopt;
  const Safetensors::Entry *entry = graph.weights.find(name);
  if (!entry) {
    std::string closest = graph.weights.closest(name);
    InFlightDiagnostic diagnostic = error();
    diagnostic << "the file of weights has no tensor '" << printableName(name) << "'";
    if (!closest.empty())
      diagnostic << ", did you mean '" << printableName(closest) << "'?";
    return std::nullopt;
  }
  if (!entry->dtype)
    return unsupported() << "weight '" << printableName(name) << "' has element type " << entry->dtypeText,
           std::nullopt;
  if (dtype && *dtype != *entry->dtype)
    return error() << "weight '" << printableName(name) << "' is " << onnx::dtypeName(*entry->dtype)
                   << ", what it meets is " << onnx::dtypeName(*dtype),
           std::nullopt;
  bool fits = shape.size() == entry->shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i)
    fits = shape[i] < 0 || shape[i] == entry->shape[i];
  if (!fits) {
    std::string expected;
    for (int64_t size : shape)
      expected += (expected.empty() ? "" : "x") + (size < 0 ? "?" : std::to_string(size));
    return error() << "weight '" << printableName(name) << "' has shape " << onnx::shapeText(entry->shape)
                   << ", expected " << (shape.empty() ? "scalar" : expected),
           std::nullopt;
  }
  std::string what;
  std::optional<onnx::Payload> result = graph.weights.read(*entry, what);
  if (!result)
    error() << "weight '" << printableName(name) << "' " << what;
  return result;
}

Tensor Layer::constant(StringRef name, const onnx::Payload &payload) {
  return graph.operators.state.constant(name, payload, loc());
}

Tensor Layer::weight(StringRef suffix, ArrayRef<int64_t> shape, DType dtype) {
  std::optional<onnx::Payload> found = payload(suffix, shape, dtype);
  return found ? constant(weightName(suffix), *found) : scalar(dtype, 0);
}

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

std::vector<Tensor> Layer::ops(StringRef op, Inputs inputs, ArrayRef<OpAttribute> attributes, size_t outputs) {
  if (!hasFailed) {
    auto results = graph.operators.apply(op, inputs, attributes, outputs, weightName(""), loc());
    if (succeeded(results))
      return std::move(*results);
    hasFailed = true;
  }
  return std::vector<Tensor>(outputs, scalar(DType::F32, 0));
}

Tensor Layer::op(StringRef op, Inputs inputs, ArrayRef<OpAttribute> attributes) {
  return ops(op, inputs, attributes, 1).front();
}

Tensor Layer::sizes(ArrayRef<Expr> values) {
  Tensor result;
  result.dtype = DType::I64;
  result.shape = {Expr(int64_t(values.size()))};
  result.elements.emplace();
  for (const Expr &value : values)
    result.elements->push_back(value);
  return result;
}

Tensor Layer::ints(ArrayRef<int64_t> values) {
  SmallVector<Expr> exprs(values.begin(), values.end());
  return sizes(exprs);
}

Tensor Layer::scalar(DType dtype, double value) {
  Tensor result;
  result.dtype = dtype;
  result.elements.emplace();
  if (onnx::isFloat(dtype))
    result.elements->push_back(onnx::roundTo(dtype, value));
  else
    result.elements->push_back(Expr(int64_t(value)));
  return result;
}

Tensor Layer::transpose(const Tensor &t, ArrayRef<int64_t> order) {
  return op("Transpose", {t}, {{"perm", SmallVector<int64_t>(order)}});
}

Tensor Layer::slice(const Tensor &t, int64_t axis, const Expr &begin, const Expr &end) {
  return op("Slice", {t, sizes({begin}), sizes({end}), ints({axis})});
}

Tensor Layer::cast(const Tensor &t, DType dtype) {
  return t.dtype == dtype ? t : op("Cast", {t}, {{"to", protoOf(dtype)}});
}

Tensor Layer::project(const Tensor &x, StringRef suffix, bool bias, int64_t units) {
  if (!expectRank(x, 1, onnx::kMaxRank, "what is projected") || !expectFloat(x, "what is projected"))
    return x;
  int64_t width = constantDim(x, x.rank() - 1, "what is projected");
  Tensor matrix = weight((suffix + "weight").str(), {units, width}, x.dtype);
  Tensor result = op("MatMul", {x, transpose(matrix, {1, 0})});
  if (bias)
    result = op("Add", {result, weight((suffix + "bias").str(), {dim(matrix, 0).constant().value_or(-1)}, x.dtype)});
  return result;
}

Tensor Layer::activate(const Tensor &x, StringRef activation) {
  static constexpr std::pair<StringLiteral, StringLiteral> known[] = {
      {"tanh", "Tanh"}, {"sigmoid", "Sigmoid"}, {"relu", "Relu"}, {"elu", "Elu"}, {"softplus", "Softplus"}};
  for (auto [name, operation] : known)
    if (activation == name)
      return op(operation, {x});
  if (activation == "gelu" || activation == "gelu_tanh")
    return op("Gelu", {x}, {{"approximate", std::string(activation == "gelu" ? "none" : "tanh")}});
  if (activation == "leaky_relu")
    return op("LeakyRelu", {x}, {{"alpha", 0.01}});
  return x; // "none"
}

Tensor Layer::range(const Expr &size) {
  auto number = [](const Expr &value) {
    Tensor t;
    t.dtype = DType::I64;
    t.elements.emplace(1, onnx::Scalar(value));
    return t;
  };
  return op("Range", {number(Expr(0)), number(size), number(Expr(1))});
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

Expr Layer::dim(const Tensor &t, int64_t i) { return i >= 0 && i < t.rank() ? t.shape[i] : Expr(1); }

int64_t Layer::constantDim(const Tensor &t, int64_t i, StringRef what) {
  std::optional<int64_t> size = dim(t, i).constant();
  if (!size)
    error() << what << " of shape " << shapeText(t) << " needs a constant size in dimension " << i;
  return size.value_or(1);
}

std::string Layer::shapeText(const Tensor &t) const {
  std::string text;
  for (const Expr &size : t.shape)
    text += (text.empty() ? "" : ", ") + graph.operators.state.symbols.print(size);
  return "[" + text + "]";
}

bool Layer::expectRank(const Tensor &t, int64_t least, int64_t most, StringRef what) {
  if (hasFailed || (t.rank() >= least && t.rank() <= most))
    return !hasFailed;
  InFlightDiagnostic diagnostic = error();
  diagnostic << what << " has " << t.rank() << " dimensions " << shapeText(t) << ", expected " << least;
  if (most != least)
    diagnostic << (most == int64_t(onnx::kMaxRank) ? std::string(" or more") : " to " + std::to_string(most));
  return false;
}

bool Layer::expectFloat(const Tensor &t, StringRef what) {
  if (!hasFailed && !onnx::isFloat(t.dtype))
    error() << what << " is " << onnx::dtypeName(t.dtype) << ", expected floats";
  return !hasFailed;
}

bool Layer::expectSame(const Tensor &a, const Tensor &b, StringRef what) {
  if (!hasFailed && a.dtype != b.dtype)
    error() << what << " are " << onnx::dtypeName(a.dtype) << " and " << onnx::dtypeName(b.dtype);
  return !hasFailed;
}

void Layer::set(const Tensor &t, StringRef suffix) {
  if (!hasFailed)
    scope.values[suffix.empty() ? label : label + "." + suffix.str()] = t;
}

LayerFn attn::graph::findLayer(StringRef type) {
  for (auto family : {findBasicLayer, findRecurrentLayer, findAttentionLayer, findShapeLayer, findImageLayer,
                      findFormulaLayer, findControlLayer})
    if (LayerFn found = family(type))
      return found;
  return nullptr;
}
