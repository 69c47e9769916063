#include "dialects/attn/AttnOps.h"
#include "frontends/onnx/ops/Concatenate.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Quantize.h"
#include "frontends/onnx/ops/Reduce.h"
#include "frontends/onnx/ops/Window.h"

// What stands between quantised products in files of ONNX Runtime's operator form (com.microsoft.QLinear*): each
// operand is (x - zero point) * scale, and the result is quantised again. ONNX Runtime computes in f32, too, some of
// them by tables of 256 results.

using namespace mlir;

namespace attn::onnx {
namespace {

/// Input `i`, one number in a tensor of rank 0 or 1.
FailureOr<Tensor> oneNumber(Node &n, size_t i, const char *what) {
  const Tensor &t = n.input(i);
  if (t.rank() > 1 || (t.rank() == 1 && !t.shape[0].is(1)))
    return n.unsupported() << "a " << what << " of more than one number";
  return n.reshape(t, {});
}

} // namespace

FailureOr<Tensor> dequantized(Node &n, const Tensor &x, size_t scale, size_t zero) {
  if (!n.hasInput(scale))
    return n.error() << "has no input " << scale;
  if (!isQuantized(x.dtype))
    return n.error() << "expects quantised operands of 8 or 16 bits, has " << dtypeName(x.dtype);
  if (n.input(scale).dtype != DType::F32)
    return n.error() << "expects a scale of float32, has " << dtypeName(n.input(scale).dtype);
  FailureOr<Tensor> factor = oneNumber(n, scale, "scale");
  if (failed(factor))
    return failure();
  std::vector<Tensor> operands{x, *factor};
  if (n.hasInput(zero)) {
    FailureOr<Tensor> origin = oneNumber(n, zero, "zero point");
    if (failed(origin))
      return failure();
    if (origin->dtype != x.dtype)
      return n.error() << "expects a zero point of " << dtypeName(x.dtype) << ", has " << dtypeName(origin->dtype);
    operands.push_back(*origin);
  }
  return formula(n, DType::F32, operands, [](ArrayRef<Num> v) {
    Num value = convert(v[0], DType::I32);
    if (v.size() > 2)
      value = value - convert(v[2], DType::I32);
    return convert(value, DType::F32) * v[1];
  });
}

namespace {

/// Input `i` in f32, with its scale and, where there is one, its zero point behind it.
FailureOr<Tensor> dequantized(Node &n, size_t i) {
  if (!n.hasInput(i))
    return n.error() << "has no input " << i;
  return dequantized(n, n.input(i), i + 1, i + 2);
}

/// `x` quantised as the inputs `scale` and, where there is one, `scale` + 1 say; without a zero point as `fallback`.
FailureOr<Tensor> quantized(Node &n, const Tensor &x, size_t scale, DType fallback) {
  if (!n.hasInput(scale))
    return n.error() << "has no input " << scale;
  if (n.input(scale).dtype != DType::F32)
    return n.error() << "expects a scale of float32, has " << dtypeName(n.input(scale).dtype);
  FailureOr<Tensor> factor = oneNumber(n, scale, "scale");
  if (failed(factor))
    return failure();
  std::vector<Tensor> operands{x, *factor};
  DType to = fallback;
  if (n.hasInput(scale + 1)) {
    FailureOr<Tensor> zero = oneNumber(n, scale + 1, "zero point");
    if (failed(zero))
      return failure();
    to = zero->dtype;
    operands.push_back(*zero);
  }
  if (!isQuantized(to))
    return n.error() << "expects a result of 8 or 16 bits, has " << dtypeName(to);
  return formula(n, to, operands, [&](ArrayRef<Num> v) {
    return saturated(v[0] / v[1], v.size() > 2 ? std::optional(v[2]) : std::nullopt, to);
  });
}

LogicalResult setQuantized(Node &n, FailureOr<Tensor> x, size_t scale, DType fallback) {
  FailureOr<Tensor> y = failed(x) ? x : quantized(n, *x, scale, fallback);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

/// QLinearAdd, QLinearMul: A, its scale and zero point, B and its, those of the result.
LogicalResult importBinary(Node &n) {
  FailureOr<Tensor> a = dequantized(n, 0), b = failed(a) ? a : dequantized(n, 3);
  if (failed(b))
    return failure();
  bool isSum = n.opType() == "QLinearAdd";
  FailureOr<Tensor> y =
      formula(n, DType::F32, {*a, *b}, [&](ArrayRef<Num> v) { return isSum ? v[0] + v[1] : v[0] * v[1]; });
  return setQuantized(n, y, 6, n.input(0).dtype);
}

/// QLinearSigmoid, QLinearLeakyRelu.
LogicalResult importUnary(Node &n) {
  FailureOr<Tensor> x = dequantized(n, 0);
  if (failed(x))
    return failure();
  double alpha = n.floatAttr("alpha", 0.01);
  FailureOr<Tensor> y = formula(n, DType::F32, *x, [&](ArrayRef<Num> v) {
    return n.opType() == "QLinearSigmoid" ? sigmoid(v[0]) : select(v[0] < 0.0, alpha * v[0], v[0]);
  });
  return setQuantized(n, y, 3, n.input(0).dtype);
}

/// QLinearSoftmax: of the operator set `opset`, where below 13 all dimensions from `axis` on are one row.
LogicalResult importSoftmax(Node &n) {
  FailureOr<Tensor> x = dequantized(n, 0);
  if (failed(x))
    return failure();
  bool joins = n.intAttr("opset", 13) < 13;
  FailureOr<int64_t> axis = n.axis(n.intAttr("axis", -1), x->rank());
  if (failed(axis))
    return failure();
  Tensor rows = *x;
  if (joins) {
    FailureOr<Tensor> matrix = n.reshape(
        *x, {product(ArrayRef<Expr>(x->shape).take_front(*axis)), product(ArrayRef<Expr>(x->shape).drop_front(*axis))});
    if (failed(matrix))
      return failure();
    rows = *matrix;
  }
  Tensor y;
  y.dtype = rows.dtype;
  y.shape = rows.shape;
  y.value = SoftmaxOp::create(n.builder(), n.loc(), n.value(rows), joins ? 1 : *axis, /*log=*/false);
  return setQuantized(n, joins ? n.reshape(y, x->shape) : FailureOr<Tensor>(y), 3, n.input(0).dtype);
}

/// QLinearConcat: scale and zero point of the result, then three inputs per part.
LogicalResult importConcat(Node &n) {
  if (n.numInputs() < 5 || n.numInputs() % 3 != 2)
    return n.error() << "expects two inputs and three per part, has " << n.numInputs();
  if (!n.hasInput(1))
    return n.error() << "has no input 1";
  std::vector<Tensor> parts;
  for (size_t i = 2; i < n.numInputs(); i += 3) {
    FailureOr<Tensor> x = dequantized(n, i);
    FailureOr<Tensor> part = failed(x) ? x : quantized(n, *x, 0, n.input(i).dtype);
    if (failed(part))
      return failure();
    parts.push_back(*part);
  }
  int64_t rank = parts.front().rank();
  FailureOr<int64_t> axis = n.axis(n.intAttr("axis", 0), rank);
  if (failed(axis))
    return failure();
  SmallVector<Expr> shape(parts.front().shape.begin(), parts.front().shape.end());
  for (const Tensor &part : ArrayRef<Tensor>(parts).drop_front()) {
    if (part.rank() != rank)
      return n.error() << "expects parts of rank " << rank << ", has one of rank " << part.rank();
    for (int64_t d = 0; d < rank; ++d)
      if (d == *axis)
        shape[d] = shape[d] + part.shape[d];
      else if (failed(n.requireEqual(shape[d], part.shape[d], "concatenates dimensions of sizes {0} and {1}")))
        return failure();
  }
  n.setOutput(0, parts.size() == 1 ? parts.front() : concatenate(n, parts, *axis, shape));
  return success();
}

LogicalResult importAveragePool(Node &n) {
  FailureOr<Tensor> x = dequantized(n, 0);
  if (failed(x))
    return failure();
  bool isLast = n.intAttr("channels_last", 0) != 0;
  FailureOr<Tensor> y = averagePool(n, isLast ? channelsFirst(n, *x) : *x);
  return setQuantized(n, failed(y) || !isLast ? y : channelsLast(n, *y), 3, n.input(0).dtype);
}

LogicalResult importGlobalAveragePool(Node &n) {
  FailureOr<Tensor> x = dequantized(n, 0);
  if (failed(x))
    return failure();
  int64_t rank = x->rank();
  if (rank < 3)
    return n.error() << "expects a tensor of rank at least 3, has rank " << rank;
  bool last = n.intAttr("channels_last", 0) != 0;
  SmallVector<int64_t> dims = dimsFrom(last ? 1 : 2, last ? rank - 1 : rank);
  FailureOr<Tensor> y = divideByCount(n, reduce(n, Combine::Sum, *x, dims), countOf(*x, dims));
  return setQuantized(n, failed(y) ? y : keepDims(n, *y, dims, rank), 3, n.input(0).dtype);
}

/// QLinearWhere: the condition, X, its scale and zero point, Y and its, those of the result.
LogicalResult importQuantizedWhere(Node &n) {
  if (failed(expectInputs(n, 9)))
    return failure();
  if (n.input(0).dtype != DType::Bool)
    return n.error() << "expects a condition of bool, has " << dtypeName(n.input(0).dtype);
  FailureOr<Tensor> x = dequantized(n, 1), y = failed(x) ? x : dequantized(n, 4);
  if (failed(y))
    return failure();
  FailureOr<Tensor> z =
      formula(n, DType::F32, {n.input(0), *x, *y}, [](ArrayRef<Num> v) { return select(v[0], v[1], v[2]); });
  return setQuantized(n, z, 7, n.input(1).dtype);
}

LogicalResult importQuantizedMean(Node &n) {
  FailureOr<Tensor> x = dequantized(n, 0);
  if (failed(x))
    return failure();
  int64_t rank = x->rank();
  SmallVector<int64_t> dims = dimsFrom(0, rank);
  if (std::optional<SmallVector<int64_t>> axes = n.intsAttr("axes"); axes && !axes->empty()) {
    dims.clear();
    for (int64_t given : *axes) {
      FailureOr<int64_t> dim = n.axis(given, rank);
      if (failed(dim))
        return failure();
      if (!llvm::is_contained(dims, *dim))
        dims.push_back(*dim);
    }
    llvm::sort(dims);
  }
  FailureOr<Tensor> y = divideByCount(n, reduce(n, Combine::Sum, *x, dims), countOf(*x, dims));
  if (succeeded(y) && n.intAttr("keepdims", 1))
    y = keepDims(n, *y, dims, rank);
  return setQuantized(n, y, 3, n.input(0).dtype);
}

} // namespace

void registerContribQLinearOps(OpRegistry &registry) {
  const char *domain = "com.microsoft";
  for (const char *name : {"QLinearAdd", "QLinearMul"})
    registry.add(name, {1}, importBinary, domain);
  for (const char *name : {"QLinearSigmoid", "QLinearLeakyRelu"})
    registry.add(name, {1}, importUnary, domain);
  registry.add("QLinearSoftmax", {1}, importSoftmax, domain);
  registry.add("QLinearWhere", {1}, importQuantizedWhere, domain);
  registry.add("QLinearReduceMean", {1}, importQuantizedMean, domain);
  registry.add("QLinearConcat", {1}, importConcat, domain);
  registry.add("QLinearAveragePool", {1}, importAveragePool, domain);
  registry.add("QLinearGlobalAveragePool", {1}, importGlobalAveragePool, domain);
}

} // namespace attn::onnx
