#include "dialects/attn/AttnOps.h"
#include "dialects/attn/RecurrentLayer.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Quantize.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

// RNN, GRU and LSTM: attn has a word for each. And DynamicQuantizeLSTM of ONNX Runtime (com.microsoft): an LSTM of
// stored bytes, whose input is rounded as it says, while the state, which it rounds in each step, is not.

using namespace mlir;

namespace attn::onnx {
namespace {

using Cell = RecurrentLayer::Cell;

struct ActivationName {
  const char *name; // in lower case: the specification's tables and its text differ in theirs
  ActivationKind kind;
  bool hasAlpha = false, hasBeta = false;
  double alpha = 0, beta = 0; // where the node gives none: those of the operator of that name
};

constexpr ActivationName activationNames[] = {
    {"sigmoid", ActivationKind::sigmoid},
    {"tanh", ActivationKind::tanh},
    {"relu", ActivationKind::relu},
    {"affine", ActivationKind::affine, true, true, 1, 0},
    {"leakyrelu", ActivationKind::leaky_relu, true, false, 0.01},
    {"thresholdedrelu", ActivationKind::thresholded_relu, true, false, 1},
    {"scaledtanh", ActivationKind::scaled_tanh, true, true, 1, 1},
    {"hardsigmoid", ActivationKind::hard_sigmoid, true, true, 0.2, 0.5},
    {"elu", ActivationKind::elu, true, false, 1},
    {"softsign", ActivationKind::softsign},
    {"softplus", ActivationKind::softplus},
};

/// One recurrent node on its way to an op.
class RecurrentImport {
public:
  RecurrentImport(Node &n, Cell cell) : n(n), b(n.builder()), cell(cell) {}

  LogicalResult run() {
    if (failed(expectInputs(n, 3)) || failed(expectFloat(n, 0)) || failed(readMatrices()) || failed(readAttributes()) ||
        failed(readSizes()) || failed(readOperands()) || failed(readLengths()))
      return failure();
    emit();
    return success();
  }

private:
  LogicalResult readAttributes();
  LogicalResult readActivations();
  LogicalResult readMatrices();
  LogicalResult readSizes();
  LogicalResult readOperands();
  LogicalResult readLengths();
  FailureOr<Value> operand(size_t i, StringRef name, ArrayRef<Expr> shape);
  FailureOr<Value> inShape(const Tensor &t, StringRef name, ArrayRef<Expr> shape);
  void emit();

  int64_t numGates() const { return cell == RecurrentLayer::Lstm ? 4 : cell == RecurrentLayer::Gru ? 3 : 1; }
  int64_t numDirections() const { return direction == Direction::bidirectional ? 2 : 1; }
  bool isLstm() const { return cell == RecurrentLayer::Lstm; }

  Node &n;
  OpBuilder &b;
  const Cell cell;
  Direction direction = Direction::forward;
  bool batchFirst = false;
  SmallVector<Attribute> activations;
  FloatAttr clip;
  int64_t hidden = 0;
  Tensor x, matrices[2]; // X, W and R
  Expr steps, batch, inputs;
  SmallVector<Expr, 4> stateShape, sequenceShape;
  Value input, weight, recurrence, bias, lengths, initialH, initialC, peephole;
};

LogicalResult RecurrentImport::readAttributes() {
  std::string name = n.stringAttr("direction", "forward");
  std::optional<Direction> known = symbolizeDirection(name);
  if (!known)
    return n.error() << "direction '" << name << "' is not forward, reverse or bidirectional";
  direction = *known;
  int64_t layout = n.intAttr("layout", 0);
  if (layout != 0 && layout != 1)
    return n.error() << "layout " << layout << " is not 0 or 1";
  batchFirst = layout == 1;
  if (n.hasAttr("clip")) {
    double bound = n.floatAttr("clip", 0);
    if (!(bound > 0))
      return n.error() << "clip " << bound << " is not greater than 0";
    clip = b.getF64FloatAttr(bound);
  }
  return readActivations();
}

/// Names, and the lists of constants: each function that has one takes the next.
LogicalResult RecurrentImport::readActivations() {
  SmallVector<std::string> names;
  if (std::optional<SmallVector<std::string>> given = n.stringsAttr("activations"))
    names = *given;
  if (names.empty())
    for (int64_t d = 0; d < numDirections(); ++d) {
      if (cell != RecurrentLayer::Rnn)
        names.push_back("Sigmoid");
      names.push_back("Tanh");
      if (isLstm())
        names.push_back("Tanh");
    }
  size_t expected = numDirections() * (isLstm() ? 3 : cell == RecurrentLayer::Gru ? 2 : 1);
  if (names.size() != expected)
    return n.error() << "has " << names.size() << " activations, expects " << expected;
  SmallVector<double> alphas = n.floatsAttr("activation_alpha").value_or(SmallVector<double>());
  SmallVector<double> betas = n.floatsAttr("activation_beta").value_or(SmallVector<double>());
  size_t nextAlpha = 0, nextBeta = 0;
  for (StringRef name : names) {
    const ActivationName *row =
        llvm::find_if(activationNames, [&](const ActivationName &a) { return name.lower() == a.name; });
    if (row == std::end(activationNames))
      return n.error() << "activation '" << name << "' is not one of ONNX";
    FloatAttr alpha, beta;
    if (row->hasAlpha)
      alpha = b.getF64FloatAttr(nextAlpha < alphas.size() ? alphas[nextAlpha++] : row->alpha);
    if (row->hasBeta)
      beta = b.getF64FloatAttr(nextBeta < betas.size() ? betas[nextBeta++] : row->beta);
    activations.push_back(ActivationAttr::get(b.getContext(), row->kind, alpha, beta));
  }
  return success();
}

/// W or R of a DynamicQuantizeLSTM, input `i` [directions, K, 4 * units], as an LSTM has it. Its scale and its zero
/// point, inputs `scale` and `scale` + 1, are one a direction, or one a direction and column.
FailureOr<Tensor> dequantizedMatrix(Node &n, size_t i, size_t scale) {
  const Tensor &bytes = n.input(i);
  if (bytes.dtype != DType::I8 && bytes.dtype != DType::U8)
    return n.error() << "expects weights of int8 or uint8, has " << dtypeName(bytes.dtype);
  std::vector<Tensor> operands{bytes};
  for (size_t at : {scale, scale + 1}) {
    if (!n.hasInput(at))
      return n.error() << "has no input " << at;
    const Tensor &t = n.input(at);
    DType expected = at == scale ? DType::F32 : bytes.dtype;
    if (t.dtype != expected || t.rank() < 1 || t.rank() > 2)
      return n.error() << "expects input " << at << " as " << dtypeName(expected) << " of rank 1 or 2, has "
                       << dtypeName(t.dtype) << " of rank " << t.rank();
    for (int64_t d = 0; d < t.rank(); ++d)
      if (failed(n.requireEqual(t.shape[d], bytes.shape[d ? 2 : 0],
                                "a scale or zero point has {0} elements in a dimension, the weights {1}")))
        return failure();
    FailureOr<Tensor> upright = n.reshape(t, {t.shape[0], Expr(1), t.rank() > 1 ? t.shape[1] : Expr(1)});
    if (failed(upright))
      return failure();
    operands.push_back(*upright);
  }
  FailureOr<Tensor> numbers = formula(n, DType::F32, operands, [](ArrayRef<Num> v) {
    return convert(convert(v[0], DType::I32) - convert(v[2], DType::I32), DType::F32) * v[1];
  });
  return failed(numbers) ? numbers : FailureOr<Tensor>(n.transpose(*numbers, {0, 2, 1}));
}

LogicalResult RecurrentImport::readMatrices() {
  for (size_t i : {0, 1, 2})
    if (n.input(i).rank() != 3)
      return n.error() << "expects input " << i << " of rank 3, has rank " << n.input(i).rank();
  x = n.input(0);
  if (n.opType() != "DynamicQuantizeLSTM") {
    for (size_t i : {0, 1})
      matrices[i] = n.input(i + 1);
    return success(succeeded(expectSameDType(n, 0, 1)) && succeeded(expectSameDType(n, 0, 2)));
  }
  if (x.dtype != DType::F32)
    return n.error() << "expects X of float32, has " << dtypeName(x.dtype);
  FailureOr<Tensor> w = dequantizedMatrix(n, 1, 8), r = failed(w) ? w : dequantizedMatrix(n, 2, 10);
  FailureOr<Quantized> rounded = failed(r) ? FailureOr<Quantized>(failure()) : quantizeDynamically(n, x);
  if (failed(rounded))
    return failure();
  FailureOr<Tensor> back = formula(n, DType::F32, {rounded->bytes, rounded->scale, rounded->zero}, [](ArrayRef<Num> v) {
    return convert(convert(v[0], DType::I32) - convert(v[2], DType::I32), DType::F32) * v[1];
  });
  if (failed(back))
    return failure();
  x = *back;
  matrices[0] = *w;
  matrices[1] = *r;
  return success();
}

LogicalResult RecurrentImport::readSizes() {
  steps = x.shape[batchFirst ? 1 : 0];
  batch = x.shape[batchFirst ? 0 : 1];
  inputs = x.shape[2];
  std::optional<int64_t> size = matrices[1].shape[2].constant();
  if (n.hasAttr("hidden_size"))
    size = n.intAttr("hidden_size", 0);
  if (!size)
    return n.unsupported() << "a number of units that is not known when the model is compiled is not supported";
  // Beyond the limit no tensor of the shapes below exists.
  constexpr int64_t kMaxUnits = int64_t(1) << 31;
  if (*size < 1 || *size > kMaxUnits)
    return n.error() << "hidden_size " << *size << " is not in [1, " << kMaxUnits << "]";
  hidden = *size;
  Expr directions(numDirections());
  stateShape = {directions, batch, Expr(hidden)};
  sequenceShape = {steps, directions, batch, Expr(hidden)};
  if (batchFirst) {
    stateShape = {batch, directions, Expr(hidden)};
    sequenceShape = {batch, steps, directions, Expr(hidden)};
  }
  return success();
}

/// Input `i` in exactly this shape, or null where the node has none.
FailureOr<Value> RecurrentImport::operand(size_t i, StringRef name, ArrayRef<Expr> shape) {
  if (!n.hasInput(i))
    return Value();
  if (failed(expectSameDType(n, 0, i)))
    return failure();
  return inShape(n.input(i), name, shape);
}

FailureOr<Value> RecurrentImport::inShape(const Tensor &t, StringRef name, ArrayRef<Expr> shape) {
  if (t.rank() != int64_t(shape.size()))
    return n.error() << "expects " << name << " of rank " << shape.size() << ", has rank " << t.rank(), failure();
  for (auto [dim, size] : llvm::enumerate(shape))
    if (failed(n.requireEqual(t.shape[dim], size,
                              (name + " has size {0} in dimension " + Twine(dim) + ", expects {1}").str())))
      return failure();
  Value value = n.value(t);
  RankedTensorType type = n.type(t.dtype, shape);
  return value.getType() == type ? value : Value(tensor::CastOp::create(b, n.loc(), type, value));
}

LogicalResult RecurrentImport::readOperands() {
  Expr directions(numDirections());
  int64_t rows = numGates() * hidden;
  auto read = [&](Value &into, size_t i, StringRef name, ArrayRef<Expr> shape) {
    FailureOr<Value> value = operand(i, name, shape);
    if (succeeded(value))
      into = *value;
    return LogicalResult(value);
  };
  input = n.value(x);
  FailureOr<Value> w = inShape(matrices[0], "W", {directions, Expr(rows), inputs});
  FailureOr<Value> r = failed(w) ? w : inShape(matrices[1], "R", {directions, Expr(rows), Expr(hidden)});
  if (failed(r))
    return failure();
  weight = *w;
  recurrence = *r;
  if (failed(read(bias, 3, "B", {directions, Expr(2 * rows)})) || failed(read(initialH, 5, "initial_h", stateShape)))
    return failure();
  if (!isLstm())
    return success();
  return failure(failed(read(initialC, 6, "initial_c", stateShape)) ||
                 failed(read(peephole, 7, "P", {directions, Expr(3 * hidden)})));
}

/// Lengths of which each is in [0, steps], or the run ends.
LogicalResult RecurrentImport::readLengths() {
  if (!n.hasInput(4))
    return success();
  const Tensor &t = n.input(4);
  if (t.dtype != DType::I32)
    return n.error() << "expects sequence_lens of int32, has " << dtypeName(t.dtype);
  if (t.rank() != 1)
    return n.error() << "expects sequence_lens of rank 1, has rank " << t.rank();
  if (failed(n.requireEqual(t.shape[0], batch, "there are {0} sequence_lens for a batch of {1}")))
    return failure();
  Value end = n.symbols().materialize(b, n.loc(), steps + Expr(1));
  Tensor whole = t; // as a tensor also where its elements are known
  whole.value = n.value(t);
  whole.elements.reset();
  lengths = n.elementwise(DType::I32, {batch}, whole, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
    Value length = arith::IndexCastOp::create(b, loc, b.getIndexType(), args[0]);
    Value checked = CheckIndexOp::create(b, loc, b.getIndexType(), length, end, n.describe() + ": sequence_lens",
                                         /*nonnegative=*/true);
    return arith::IndexCastOp::create(b, loc, b.getI32Type(), checked);
  });
  return success();
}

void RecurrentImport::emit() {
  Location loc = n.loc();
  DType dtype = n.input(0).dtype;
  SmallVector<Type> types{n.type(dtype, sequenceShape), n.type(dtype, stateShape)};
  ArrayAttr functions = b.getArrayAttr(activations);
  Operation *op = nullptr;
  if (isLstm()) {
    types.push_back(types.back());
    op = LstmOp::create(b, loc, types, input, weight, recurrence, bias, lengths, initialH, initialC, peephole,
                        n.intAttr("input_forget", 0) != 0, direction, functions, clip, batchFirst);
  } else if (cell == RecurrentLayer::Gru) {
    op = GruOp::create(b, loc, types, input, weight, recurrence, bias, lengths, initialH,
                       n.intAttr("linear_before_reset", 0) != 0, /*mirrored=*/false, direction, functions, clip,
                       batchFirst);
  } else {
    op = RnnOp::create(b, loc, types, input, weight, recurrence, bias, lengths, initialH, direction, functions, clip,
                       batchFirst);
  }
  for (auto [i, result] : llvm::enumerate(op->getResults()))
    n.setOutput(i, result, dtype, i == 0 ? sequenceShape : stateShape);
}

template <Cell cell> LogicalResult importRecurrent(Node &n) { return RecurrentImport(n, cell).run(); }

} // namespace

void registerRecurrentOps(OpRegistry &registry) {
  registry.add("RNN", {7, 14, 22}, importRecurrent<RecurrentLayer::Rnn>);
  registry.add("GRU", {7, 14, 22}, importRecurrent<RecurrentLayer::Gru>);
  registry.add("LSTM", {7, 14, 22}, importRecurrent<RecurrentLayer::Lstm>);
  registry.add("DynamicQuantizeLSTM", {1}, importRecurrent<RecurrentLayer::Lstm>, "com.microsoft");
}

} // namespace attn::onnx
