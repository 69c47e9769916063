#ifndef FRONTENDS_GRAPH_LAYER_H
#define FRONTENDS_GRAPH_LAYER_H

#include "frontends/graph/Json.h"
#include "frontends/graph/Safetensors.h"
#include "frontends/onnx/Entry.h"
#include "llvm/ADT/StringMap.h"

namespace attn::graph {

using onnx::DType;
using onnx::Expr;
using onnx::OpAttribute;
using onnx::Tensor;

/// The values that layers can name: those of an entry, of one round of a repeat
/// or of the body of a loop, and all further out.
struct Scope {
  Scope *outer = nullptr;
  std::string path;   // in front of the weights' names: "decode."
  int64_t round = -1; // of the innermost repeat
  llvm::StringMap<Tensor> values;

  const Tensor *find(llvm::StringRef name) const;
};

/// What the layers of one file share: its weights, the operators, the place of
/// errors.
class GraphBuilder {
public:
  GraphBuilder(onnx::Reporter &reporter, onnx::Operators &operators, Safetensors &weights)
      : reporter(reporter), operators(operators), weights(weights) {}

  /// Builds `layers` in order; false after a diagnostic.
  bool build(const Json &layers, Scope &scope);

  /// "model.json:12:7", with "layer 'enc' (lstm)" for a layer.
  static mlir::Location location(onnx::Reporter &reporter, Position at, const Json *layer = nullptr);

  onnx::Reporter &reporter;
  onnx::Operators &operators;
  Safetensors &weights;
  /// Weights in another order than the file's, by name.
  llvm::StringMap<onnx::Payload> reordered;
  /// Sizes that a graph can name.
  llvm::StringMap<Expr> dimensions;
  size_t numLayers = 0;
  bool hasWeights = false;
};

/// One layer: its fields, which fit the schema, and what it is built with. The
/// first error of a layer is reported; from then on values are a harmless
/// scalar, and the layer is not used. Sizes are asked for with `dim`, which
/// answers for any rank.
class Layer {
public:
  Layer(GraphBuilder &graph, const Json &json, Scope &scope);

  GraphBuilder &graph;
  const Json &json;
  Scope &scope;

  llvm::StringRef type() const { return kind; }
  llvm::StringRef name() const { return label; }
  mlir::Location loc() const { return place; }
  bool failed() const { return hasFailed; }
  /// Reports at `at`, or at the layer.
  mlir::InFlightDiagnostic error(const Json *at = nullptr);
  mlir::InFlightDiagnostic unsupported(const Json *at = nullptr);

  /// Fails after an error that something inside it has reported.
  void abandon() { hasFailed = true; }

  //--- fields
  bool has(llvm::StringRef key) const { return json.find(key); }
  int64_t integer(llvm::StringRef key, int64_t fallback) const;
  double number(llvm::StringRef key, double fallback) const;
  bool flag(llvm::StringRef key, bool fallback) const;
  llvm::StringRef text(llvm::StringRef key, llvm::StringRef fallback = "") const;
  llvm::SmallVector<int64_t> integers(llvm::StringRef key, int64_t count, int64_t fallback) const;
  /// The value that field `key` names.
  Tensor value(llvm::StringRef key);
  std::optional<Tensor> optional(llvm::StringRef key);
  Tensor lookup(llvm::StringRef name, const Json &at);
  Tensor lookup(const Json &reference) { return lookup(reference.text, reference); }
  std::vector<Tensor> values(llvm::StringRef key);
  /// "batch * 4 + 1", or an integer.
  Expr size(const Json &json);
  /// `axis` of a tensor of `rank` dimensions, from either end.
  int64_t axis(int64_t axis, int64_t rank, const Json *at = nullptr);

  //--- weights: "<path><name>.<suffix>", or "<weights>.<suffix>" of the field
  std::string weightName(llvm::StringRef suffix) const;
  /// The weight, which has `shape` (-1: any size).
  Tensor weight(llvm::StringRef suffix, llvm::ArrayRef<int64_t> shape, DType dtype);
  /// Its payload, checked likewise.
  std::optional<onnx::Payload> payload(llvm::StringRef suffix, llvm::ArrayRef<int64_t> shape,
                                       std::optional<DType> dtype);
  Tensor constant(llvm::StringRef name, const onnx::Payload &payload);

  //--- building
  using Inputs = llvm::ArrayRef<std::optional<Tensor>>;
  Tensor op(llvm::StringRef op, Inputs inputs, llvm::ArrayRef<OpAttribute> attributes = {});
  std::vector<Tensor> ops(llvm::StringRef op, Inputs inputs, llvm::ArrayRef<OpAttribute> attributes, size_t outputs);
  static Tensor ints(llvm::ArrayRef<int64_t> values);
  static Tensor sizes(llvm::ArrayRef<Expr> values);
  static Tensor scalar(DType dtype, double value);
  Tensor reshape(const Tensor &t, llvm::ArrayRef<Expr> shape) { return op("Reshape", {t, sizes(shape)}); }
  Tensor transpose(const Tensor &t, llvm::ArrayRef<int64_t> order);
  Tensor unsqueeze(const Tensor &t, llvm::ArrayRef<int64_t> axes) { return op("Unsqueeze", {t, ints(axes)}); }
  Tensor squeeze(const Tensor &t, llvm::ArrayRef<int64_t> axes) { return op("Squeeze", {t, ints(axes)}); }
  Tensor slice(const Tensor &t, int64_t axis, const Expr &begin, const Expr &end);
  Tensor cast(const Tensor &t, DType dtype);
  /// x W^T + b of the weights "<suffix>weight" and "<suffix>bias".
  Tensor project(const Tensor &x, llvm::StringRef suffix, bool bias, int64_t units = -1);
  Tensor activate(const Tensor &x, llvm::StringRef activation);
  /// 0, 1, ... size - 1 as int64.
  Tensor range(const Expr &size);

  //--- checks
  static Expr dim(const Tensor &t, int64_t i);
  /// The size of dimension `i`, which the compiler must know.
  int64_t constantDim(const Tensor &t, int64_t i, llvm::StringRef what);
  bool expectRank(const Tensor &t, int64_t rank, llvm::StringRef what) { return expectRank(t, rank, rank, what); }
  bool expectRank(const Tensor &t, int64_t least, int64_t most, llvm::StringRef what);
  bool expectFloat(const Tensor &t, llvm::StringRef what);
  bool expectSame(const Tensor &a, const Tensor &b, llvm::StringRef what);
  std::string shapeText(const Tensor &t) const;

  /// Names `t` "<name>", or "<name>.<suffix>".
  void set(const Tensor &t, llvm::StringRef suffix = "");

private:
  std::string label, kind;
  mlir::Location place;
  bool hasFailed = false;
};

/// The dtype that a graph calls `name`; the schema lists them.
DType dtypeFromName(llvm::StringRef name);
/// TensorProto.DataType's number.
int64_t protoOf(DType dtype);

using LayerFn = void (*)(Layer &);
/// The builder of a layer; null for a name that the schema does not have.
LayerFn findLayer(llvm::StringRef type);

// The families, one file each in frontends/graph/layers/.
LayerFn findBasicLayer(llvm::StringRef type);     // Basic.cpp: linear, embedding, conv, norms, softmax, products
LayerFn findRecurrentLayer(llvm::StringRef type); // Recurrent.cpp: lstm, gru, rnn and their cells
LayerFn findAttentionLayer(llvm::StringRef type); // Attention.cpp, MultiHead.cpp
LayerFn findShapeLayer(llvm::StringRef type);     // Shape.cpp: reshape, concat, slice ...
LayerFn findImageLayer(llvm::StringRef type);     // Image.cpp: pooling, grids
LayerFn findFormulaLayer(llvm::StringRef type);   // Formula.cpp
LayerFn findControlLayer(llvm::StringRef type);   // Control.cpp: repeat, loop

} // namespace attn::graph

#endif // FRONTENDS_GRAPH_LAYER_H
