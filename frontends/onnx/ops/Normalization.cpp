#include "dialects/attn/AttnOps.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Loops.h"
#include "frontends/onnx/ops/Normalize.h"
#include "frontends/onnx/ops/Reduce.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

// Softmax and the normalisations. Those that attn has a word for are emitted
// as that word, the others as reductions and formulae.

using namespace mlir;

namespace attn::onnx {
namespace {

//===----------------------------------------------------------------------===//
// Softmax, LogSoftmax, Hardmax
//===----------------------------------------------------------------------===//

/// `importer` on the input seen as a matrix of prod(before axis) rows, which is
/// how opsets below 13 read `axis`.
LogicalResult onRows(Node &n, llvm::function_ref<FailureOr<Tensor>(const Tensor &, int64_t)> importer) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, 0)))
    return failure();
  const Tensor &x = n.input(0);
  bool coerces = n.version() < 13;
  // A scalar is a row of one element.
  FailureOr<int64_t> axis = 0;
  if (x.rank() > 0) {
    int64_t given = n.intAttr("axis", coerces ? 1 : -1);
    axis = n.axis(given, x.rank() + (coerces && given >= 0 ? 1 : 0));
  }
  if (failed(axis))
    return failure();
  bool isPlain = x.rank() > 0 && (!coerces || *axis + 1 == x.rank());
  Tensor view = x;
  if (!isPlain) {
    Expr rows(1), columns(1);
    for (int64_t d = 0; d < x.rank(); ++d)
      (d < *axis ? rows : columns) = (d < *axis ? rows : columns) * x.shape[d];
    FailureOr<Tensor> matrix = n.reshape(x, {rows, columns});
    if (failed(matrix))
      return failure();
    view = *matrix;
  }
  FailureOr<Tensor> y = importer(view, isPlain ? *axis : 1);
  if (succeeded(y) && !isPlain)
    y = n.reshape(*y, x.shape);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

LogicalResult importSoftmax(Node &n) {
  bool isLog = n.opType() == "LogSoftmax";
  return onRows(n, [&](const Tensor &x, int64_t axis) -> FailureOr<Tensor> {
    Value v = SoftmaxOp::create(n.builder(), n.loc(), n.value(x), axis, isLog);
    Tensor y;
    y.dtype = x.dtype;
    y.shape = x.shape;
    y.value = v;
    return y;
  });
}

LogicalResult importHardmax(Node &n) {
  return onRows(n, [&](const Tensor &x, int64_t axis) -> FailureOr<Tensor> {
    FailureOr<Tensor> first = keepDims(n, argReduce(n, x, axis, {}), axis, x.rank());
    if (failed(first))
      return failure();
    return formula(n, x.dtype, {x, *first}, [&](ArrayRef<Num> v) {
      Value at = linalg::IndexOp::create(v[0].builder(), n.loc(), axis);
      Num here = fromIndex(v[0].builder(), n.loc(), DType::I64, at);
      return select(here == v[1], v[0].constant(1), v[0].constant(0));
    });
  });
}

//===----------------------------------------------------------------------===//
// Over trailing dimensions
//===----------------------------------------------------------------------===//

/// 1 / sqrt(x + epsilon).
FailureOr<Tensor> inverseRoot(Node &n, const Tensor &x, double epsilon) {
  return formula(n, x.dtype, x, [&](ArrayRef<Num> v) { return 1.0 / sqrt(v[0] + epsilon); });
}

/// `t` under the shape of the dimensions `axis`.. of `x`, for a scale or bias
/// that may be broadcast to them.
FailureOr<Tensor> trailing(Node &n, const Tensor &t, const Tensor &x, int64_t axis) {
  ArrayRef<Expr> shape = ArrayRef<Expr>(x.shape).drop_front(axis);
  if (t.rank() > int64_t(shape.size()))
    return n.error() << "expects a scale of rank at most " << shape.size() << ", has rank " << t.rank();
  for (auto [own, dim] : llvm::zip(llvm::reverse(t.shape), llvm::reverse(shape)))
    if (!own.is(1) && failed(n.requireEqual(own, dim, "a scale of size {0} does not fit a dimension of size {1}")))
      return failure();
  return n.expand(t, shape);
}

} // namespace

FailureOr<Tensor> layerNormalized(Node &n, const Tensor &x, const Tensor &scale, const std::optional<Tensor> &bias,
                                  int64_t axis, double epsilon) {
  FailureOr<Tensor> factor = trailing(n, scale, x, axis);
  if (failed(factor))
    return failure();
  Value shift;
  if (bias) {
    FailureOr<Tensor> fitted = trailing(n, *bias, x, axis);
    if (failed(fitted))
      return failure();
    shift = n.value(*fitted);
  }
  OpBuilder &b = n.builder();
  Tensor y;
  y.dtype = x.dtype;
  y.shape = x.shape;
  Value v = LayerNormOp::create(b, n.loc(), n.value(x).getType(), n.value(x), n.value(*factor), shift,
                                b.getI64IntegerAttr(axis), b.getF32FloatAttr(float(epsilon)));
  y.value = v;
  return y;
}

FailureOr<Tensor> rmsNormalized(Node &n, const Tensor &x, const Tensor &scale, int64_t axis, double epsilon,
                                DType result) {
  // A scale a head has dimensions in front of the normalised ones; it is one more factor in any case.
  FailureOr<Tensor> factor = trailing(n, scale, x, std::max<int64_t>(0, std::min(axis, x.rank() - scale.rank())));
  if (failed(factor))
    return failure();
  SmallVector<int64_t> dims = dimsFrom(axis, x.rank());
  Tensor sum = reduce(n, Combine::Sum, x, dims, [](const Num &v) { return v * v; });
  FailureOr<Tensor> mean = divideByCount(n, sum, countOf(x, dims));
  if (failed(mean))
    return failure();
  FailureOr<Tensor> inverse = inverseRoot(n, *mean, epsilon);
  if (succeeded(inverse))
    inverse = keepDims(n, *inverse, dims, x.rank());
  if (failed(inverse))
    return failure();
  return formula(n, result, {x, *inverse, *factor},
                 [&](ArrayRef<Num> v) { return convert(v[0] * v[1], computeDType(result)) * v[2]; });
}

FailureOr<Tensor> standardized(Node &n, const Tensor &x, ArrayRef<int64_t> dims, double epsilon) {
  FailureOr<Moments> m = moments(n, x, dims);
  if (failed(m))
    return failure();
  FailureOr<Tensor> inverse = inverseRoot(n, m->variance, epsilon);
  if (failed(inverse))
    return failure();
  return formula(n, computeDType(x.dtype), {x, m->mean, *inverse},
                 [](ArrayRef<Num> v) { return (v[0] - v[1]) * v[2]; });
}

namespace {

LogicalResult importLayerNormalization(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)) || failed(expectSameDType(n, 0, 1)))
    return failure();
  const Tensor &x = n.input(0);
  FailureOr<int64_t> axis = n.axis(n.intAttr("axis", -1), x.rank());
  if (failed(axis))
    return failure();
  double epsilon = n.floatAttr("epsilon", 1e-5);
  std::optional<Tensor> bias;
  if (n.hasInput(2)) {
    if (failed(expectSameDType(n, 0, 2)))
      return failure();
    bias = n.input(2);
  }
  FailureOr<Tensor> y = layerNormalized(n, x, n.input(1), bias, *axis, epsilon);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  if (!n.hasOutput(1) && !n.hasOutput(2))
    return success();
  FailureOr<Moments> m = moments(n, x, dimsFrom(*axis, x.rank()));
  if (failed(m))
    return failure();
  FailureOr<Tensor> inverse = inverseRoot(n, m->variance, epsilon);
  if (failed(inverse))
    return failure();
  // Both have the type of the first stage, float unless stash_type says other.
  DType stash = dtypeFromProto(n.intAttr("stash_type", 1)).value_or(DType::F32);
  if (n.hasOutput(1))
    n.setOutput(1, n.cast(m->mean, stash));
  if (n.hasOutput(2))
    n.setOutput(2, n.cast(*inverse, stash));
  return success();
}

LogicalResult importRMSNormalization(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)) || failed(expectFloat(n, 1)))
    return failure();
  const Tensor &x = n.input(0);
  FailureOr<int64_t> axis = n.axis(n.intAttr("axis", -1), x.rank());
  if (failed(axis))
    return failure();
  FailureOr<Tensor> y = rmsNormalized(n, x, n.input(1), *axis, n.floatAttr("epsilon", 1e-5), n.input(1).dtype);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

//===----------------------------------------------------------------------===//
// Per channel
//===----------------------------------------------------------------------===//

/// A vector of channels as [C, 1, 1, ...] for a tensor of rank `rank` that has
/// its channels in dimension 1.
FailureOr<Tensor> perChannel(Node &n, size_t input, const Expr &channels, int64_t rank) {
  const Tensor &t = n.input(input);
  if (t.rank() != 1)
    return n.error() << "expects a vector for input " << input << ", has rank " << t.rank();
  if (failed(n.requireEqual(t.shape[0], channels, "a vector of size {0} does not fit {1} channels")))
    return failure();
  SmallVector<Expr, 4> shape(rank - 1, Expr(1));
  shape[0] = t.shape[0];
  return n.reshape(t, shape);
}

LogicalResult setScaledPerChannel(Node &n, const Tensor &x, const Tensor &y) {
  FailureOr<Tensor> scale = perChannel(n, 1, x.shape[1], x.rank()), bias = perChannel(n, 2, x.shape[1], x.rank());
  if (failed(scale) || failed(bias))
    return failure();
  return setFormula(n, x.dtype, {y, *scale, *bias}, [](ArrayRef<Num> v) { return v[0] * v[1] + v[2]; });
}

LogicalResult expectChannels(Node &n, size_t inputs, int64_t rank) {
  if (failed(expectInputs(n, inputs)) || failed(expectFloat(n, 0)))
    return failure();
  if (n.input(0).rank() < rank)
    return n.error() << "expects a tensor of rank at least " << rank << ", has rank " << n.input(0).rank();
  return success();
}

LogicalResult importInstanceNormalization(Node &n) {
  if (failed(expectChannels(n, 3, 2)))
    return failure();
  const Tensor &x = n.input(0);
  FailureOr<Tensor> y = standardized(n, x, dimsFrom(2, x.rank()), n.floatAttr("epsilon", 1e-5));
  return failed(y) ? failure() : setScaledPerChannel(n, x, *y);
}

LogicalResult importGroupNormalization(Node &n) {
  if (failed(expectChannels(n, 3, 2)))
    return failure();
  const Tensor &x = n.input(0);
  int64_t groups = n.intAttr("num_groups", 0);
  if (groups < 1)
    return n.error() << "expects num_groups of at least 1, has " << groups;
  Expr width = n.symbols().floorDiv(x.shape[1], groups);
  if (failed(n.requireEqual(width * Expr(groups), x.shape[1], "groups cover {0} of {1} channels")))
    return failure();
  SmallVector<Expr, 4> grouped{x.shape[0], Expr(groups), width};
  grouped.append(x.shape.begin() + 2, x.shape.end());
  FailureOr<Tensor> view = n.reshape(x, grouped);
  if (failed(view))
    return failure();
  FailureOr<Tensor> y = standardized(n, *view, dimsFrom(2, view->rank()), n.floatAttr("epsilon", 1e-5));
  if (failed(y))
    return failure();
  if (n.version() < 21) { // one scale and bias a group
    Tensor first = *y;
    FailureOr<Tensor> scale = perChannel(n, 1, Expr(groups), view->rank());
    FailureOr<Tensor> bias = perChannel(n, 2, Expr(groups), view->rank());
    if (failed(scale) || failed(bias))
      return failure();
    y = formula(n, x.dtype, {first, *scale, *bias}, [](ArrayRef<Num> v) { return v[0] * v[1] + v[2]; });
  }
  if (succeeded(y))
    y = n.reshape(*y, x.shape);
  if (failed(y))
    return failure();
  if (n.version() >= 21)
    return setScaledPerChannel(n, x, *y);
  n.setOutput(0, *y);
  return success();
}

/// Mean and variance of the batch itself, which the running ones move towards.
LogicalResult trainBatchNormalization(Node &n) {
  const Tensor &x = n.input(0);
  SmallVector<int64_t> dims = dimsFrom(0, x.rank());
  dims.erase(dims.begin() + 1);
  double epsilon = n.floatAttr("epsilon", 1e-5), momentum = n.floatAttr("momentum", 0.9);
  FailureOr<Moments> own = moments(n, x, dims);
  if (failed(own))
    return failure();
  for (auto [i, moment] : {std::pair(1, &own->mean), std::pair(2, &own->variance)}) {
    const Tensor &running = n.input(i + 2);
    if (running.rank() != 1)
      return n.error() << "expects running values of rank 1, one per channel, input " << i + 2 << " has rank "
                       << running.rank();
    FailureOr<Tensor> batch = n.reshape(*moment, {x.shape[1]});
    if (failed(batch))
      return failure();
    FailureOr<Tensor> next = formula(n, running.dtype, {running, *batch}, [&](ArrayRef<Num> v) {
      Num before = convert(v[0], v[1].dtype());
      return convert(before * momentum + v[1] * (1 - momentum), v[0].dtype());
    });
    if (failed(next) || failed(n.requireEqual(running.shape[0], x.shape[1], "{0} running values for {1} channels")))
      return failure();
    n.setOutput(i, *next);
  }
  FailureOr<Tensor> y = formula(n, own->mean.dtype, {x, own->mean, own->variance}, [&](ArrayRef<Num> v) {
    return (convert(v[0], v[1].dtype()) - v[1]) / sqrt(v[2] + epsilon);
  });
  return failed(y) ? failure() : setScaledPerChannel(n, x, *y);
}

LogicalResult importBatchNormalization(Node &n) {
  if (failed(expectChannels(n, 5, 2)))
    return failure();
  if (n.version() < 7 && !n.intAttr("is_test", 0))
    return n.unsupported() << "is_test = 0";
  if (n.intAttr("training_mode", 0))
    return trainBatchNormalization(n);
  if (n.version() < 9 && n.intAttr("spatial", 1) == 0)
    return n.unsupported() << "spatial = 0";
  for (size_t i = 1; i < 5; ++i)
    if (n.hasOutput(i))
      return n.unsupported() << "output " << i << ", which only training has";
  const Tensor &x = n.input(0);
  double epsilon = n.floatAttr("epsilon", 1e-5);
  FailureOr<Tensor> inverse = formula(n, computeDType(x.dtype), {n.input(1), n.input(4)},
                                      [&](ArrayRef<Num> v) { return v[0] / sqrt(v[1] + epsilon); });
  if (failed(inverse))
    return failure();
  std::vector<Tensor> operands{x};
  for (size_t i : {2, 3}) {
    FailureOr<Tensor> vector = perChannel(n, i, x.shape[1], x.rank());
    if (failed(vector))
      return failure();
    operands.push_back(*vector);
  }
  SmallVector<Expr, 4> shape(operands[1].shape);
  FailureOr<Tensor> factor = n.reshape(*inverse, shape);
  if (failed(factor))
    return failure();
  operands.push_back(*factor);
  return setFormula(n, x.dtype, operands, [](ArrayRef<Num> v) { return (v[0] - v[2]) * v[3] + v[1]; });
}

//===----------------------------------------------------------------------===//
// LpNormalization, MeanVarianceNormalization
//===----------------------------------------------------------------------===//

LogicalResult importLpNormalization(Node &n) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, 0)))
    return failure();
  const Tensor &x = n.input(0);
  int64_t p = n.intAttr("p", 2);
  if (p != 1 && p != 2)
    return n.error() << "expects p = 1 or 2, has " << p;
  FailureOr<int64_t> axis = n.axis(n.intAttr("axis", -1), x.rank());
  if (failed(axis))
    return failure();
  Tensor sum = reduce(n, Combine::Sum, x, *axis, [&](const Num &v) { return p == 1 ? abs(v) : v * v; });
  FailureOr<Tensor> norm = formula(n, sum.dtype, sum, [&](ArrayRef<Num> v) { return p == 1 ? v[0] : sqrt(v[0]); });
  if (succeeded(norm))
    norm = keepDims(n, *norm, *axis, x.rank());
  if (failed(norm))
    return failure();
  return setFormula(n, x.dtype, {x, *norm}, [](ArrayRef<Num> v) {
    Num zero = v[0].constant(0);
    return select(v[1] == zero, zero, v[0] / v[1]);
  });
}

/// x / (bias + alpha / size * sum of x^2 over `size` channels around)^beta.
LogicalResult importLRN(Node &n) {
  if (failed(expectChannels(n, 1, 2)))
    return failure();
  const Tensor &x = n.input(0);
  int64_t size = n.intAttr("size", 0);
  if (size < 1 || size > (1 << 20))
    return n.error() << "expects size of at least 1, has " << size;
  double alpha = n.floatAttr("alpha", 1e-4), beta = n.floatAttr("beta", 0.75), bias = n.floatAttr("bias", 1.0);
  DType wide = computeDType(x.dtype);
  Value source = n.value(x), channels = n.symbols().materialize(n.builder(), n.loc(), x.shape[1]);
  Value result = n.generate(x.dtype, x.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    Num center = fromIndex(b, loc, DType::I64, at[1]), zero = center.constant(0);
    Num last = fromIndex(b, loc, DType::I64, channels) - center.constant(1);
    auto body = [&](OpBuilder &b, Location loc, ValueRange k, ValueRange carried) -> SmallVector<Value> {
      Num channel = center + fromIndex(b, loc, DType::I64, k[0]) - center.constant((size - 1) / 2);
      Num inside = (channel >= zero) & (channel <= last), safe = maximum(zero, minimum(channel, last));
      SmallVector<Value> place(at);
      place[1] = arith::IndexCastOp::create(b, loc, b.getIndexType(), safe.value());
      Num element = convert(load(b, loc, source, x.dtype, place), wide), sum(b, loc, wide, carried[0]);
      return {select(inside, sum + element * element, sum).value()};
    };
    Value count = arith::ConstantIndexOp::create(b, loc, size);
    Num sum(b, loc, wide, sequential(b, loc, count, constantNum(b, loc, wide, 0.0).value(), body)[0]);
    Num own = convert(load(b, loc, source, x.dtype, at), wide);
    return convert(own / pow(bias + alpha / double(size) * sum, sum.constant(beta)), x.dtype).value();
  });
  n.setOutput(0, result, x.dtype, x.shape);
  return success();
}

LogicalResult importMeanVarianceNormalization(Node &n) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, 0)))
    return failure();
  const Tensor &x = n.input(0);
  SmallVector<int64_t> dims;
  for (int64_t axis : n.intsAttr("axes").value_or(SmallVector<int64_t>{0, 2, 3})) {
    FailureOr<int64_t> dim = n.axis(axis, x.rank());
    if (failed(dim))
      return failure();
    dims.push_back(*dim);
  }
  FailureOr<Moments> m = moments(n, x, dims);
  if (failed(m))
    return failure();
  return setFormula(n, x.dtype, {x, m->mean, m->variance},
                    [](ArrayRef<Num> v) { return (v[0] - v[1]) / (sqrt(v[2]) + 1e-9); });
}

} // namespace

void registerNormalizationOps(OpRegistry &registry) {
  registry.add("Softmax", {1, 11, 13}, importSoftmax);
  registry.add("LogSoftmax", {1, 11, 13}, importSoftmax);
  registry.add("Hardmax", {1, 11, 13}, importHardmax);
  // ONNX Runtime writes version 17 into models of older opsets, too.
  registry.add("LayerNormalization", {1, 17}, importLayerNormalization);
  registry.add("SimplifiedLayerNormalization", {1}, importRMSNormalization); // ONNX Runtime's, of no domain
  registry.add("RMSNormalization", {23}, importRMSNormalization);
  registry.add("InstanceNormalization", {1, 6, 22}, importInstanceNormalization);
  registry.add("GroupNormalization", {18, 21}, importGroupNormalization);
  registry.add("BatchNormalization", {1, 6, 7, 9, 14, 15}, importBatchNormalization);
  registry.add("LRN", {1, 13}, importLRN);
  registry.add("LpNormalization", {1, 22}, importLpNormalization);
  registry.add("MeanVarianceNormalization", {9, 13}, importMeanVarianceNormalization);
}

} // namespace attn::onnx
