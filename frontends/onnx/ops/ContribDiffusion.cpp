#include "dialects/attn/AttnOps.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Normalize.h"
#include "frontends/onnx/ops/Reduce.h"
#include <cmath>

// Elementwise ops and normalisations as ONNX Runtime's optimiser joins them in diffusion models (com.microsoft).

using namespace mlir;

namespace attn::onnx {
namespace {

/// A vector of channels for a tensor of rank `rank` whose channels are last, or in dimension 1.
FailureOr<Tensor> channelVector(Node &n, size_t i, const Expr &channels, int64_t rank, bool isLast) {
  const Tensor &t = n.input(i);
  if (t.rank() != 1)
    return n.error() << "expects a vector for input " << i << ", has rank " << t.rank();
  if (failed(n.requireEqual(t.shape[0], channels, "a vector of size {0} does not fit {1} channels")))
    return failure();
  SmallVector<Expr, 4> shape(isLast ? 1 : rank - 1, Expr(1));
  shape[0] = t.shape[0];
  return n.reshape(t, shape);
}

/// x + skip + bias of a SkipGroupNorm, where skip is [N, C], or broadcasts to x.
FailureOr<Tensor> skipSum(Node &n, const Expr &channels, bool isLast) {
  const Tensor &x = n.input(0);
  FailureOr<Tensor> skip = n.input(3);
  if (skip->rank() == 2 && x.rank() > 2) {
    SmallVector<Expr, 4> shape(x.rank(), Expr(1));
    shape[0] = skip->shape[0];
    shape[isLast ? x.rank() - 1 : 1] = skip->shape[1];
    skip = n.reshape(*skip, shape);
  }
  std::vector<Tensor> terms{x};
  if (succeeded(skip))
    terms.push_back(*skip);
  FailureOr<Tensor> bias = failure();
  if (n.hasInput(4)) {
    bias = channelVector(n, 4, channels, x.rank(), isLast);
    if (failed(bias))
      return failure();
    terms.push_back(*bias);
  }
  if (failed(skip))
    return failure();
  FailureOr<Tensor> sum =
      formula(n, x.dtype, terms, [](ArrayRef<Num> v) { return v.size() > 2 ? v[0] + v[1] + v[2] : v[0] + v[1]; });
  if (failed(sum))
    return failure();
  if (sum->rank() != x.rank())
    return n.error() << "expects skip of rank 2 or " << x.rank() << ", has rank " << n.input(3).rank();
  for (int64_t d = 0; d < x.rank(); ++d)
    if (failed(n.requireEqual(sum->shape[d], x.shape[d], "the sum has {0} elements in a dimension, X {1}")))
      return failure();
  return sum;
}

LogicalResult importGroupNorm(Node &n) {
  bool isSum = n.opType() == "SkipGroupNorm", isLast = n.intAttr("channels_last", 1) != 0;
  if (failed(expectInputs(n, isSum ? 4 : 3)) || failed(expectFloat(n, 0)))
    return failure();
  int64_t rank = n.input(0).rank(), groups = n.intAttr("groups", 0), activation = n.intAttr("activation", 0);
  if (rank < 3 || groups < 1)
    return n.error() << "expects X of rank at least 3 and groups of at least 1, has " << rank << " and " << groups;
  if (activation != 0 && activation != 1)
    return n.unsupported() << "activation = " << activation << ", which is neither 0 (none) nor 1 (SiLU)";
  Expr channels = n.input(0).shape[isLast ? rank - 1 : 1], width = n.symbols().floorDiv(channels, groups);
  if (failed(n.requireEqual(width * Expr(groups), channels, "groups cover {0} of {1} channels")))
    return failure();
  FailureOr<Tensor> x = isSum ? skipSum(n, channels, isLast) : FailureOr<Tensor>(n.input(0));
  if (failed(x))
    return failure();
  if (isSum)
    n.setOutput(1, *x);
  ArrayRef<Expr> spatial = ArrayRef<Expr>(x->shape).drop_front(isLast ? 1 : 2).drop_back(isLast ? 1 : 0);
  SmallVector<Expr, 4> shape{x->shape[0]};
  shape.append(spatial.begin(), spatial.end());
  int64_t at = isLast ? rank - 1 : 1;
  shape.insert(shape.begin() + at, {Expr(groups), width});
  FailureOr<Tensor> view = n.reshape(*x, shape);
  if (failed(view))
    return failure();
  SmallVector<int64_t> dims = dimsFrom(1, rank + 1); // all but the batch and the groups
  dims.erase(dims.begin() + at - 1);
  FailureOr<Tensor> y = standardized(n, *view, dims, n.floatAttr("epsilon", 1e-5));
  if (succeeded(y))
    y = n.reshape(*y, x->shape);
  FailureOr<Tensor> gamma = channelVector(n, 1, channels, rank, isLast);
  FailureOr<Tensor> beta = channelVector(n, 2, channels, rank, isLast);
  if (failed(y) || failed(gamma) || failed(beta))
    return failure();
  return setFormula(n, x->dtype, {*y, *gamma, *beta}, [&](ArrayRef<Num> v) {
    Num scaled = v[0] * v[1] + v[2];
    return activation ? scaled * sigmoid(scaled) : scaled;
  });
}

/// The first half of x + bias, times the GELU of the second.
LogicalResult importBiasSplitGelu(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)) || failed(expectSameDType(n, 0, 1)))
    return failure();
  const Tensor &x = n.input(0);
  int64_t last = x.rank() - 1;
  if (last < 0)
    return n.error() << "expects X of rank at least 1";
  FailureOr<Tensor> bias = channelVector(n, 1, x.shape[last], x.rank(), /*isLast=*/true);
  if (failed(bias))
    return failure();
  Expr half = n.symbols().floorDiv(x.shape[last], 2);
  if (failed(n.requireEqual(half * Expr(2), x.shape[last], "halves cover {0} of {1} elements")))
    return failure();
  std::vector<Tensor> parts;
  for (const Expr &begin : {Expr(0), half}) {
    parts.push_back(n.slice(x, last, begin, half));
    parts.push_back(n.slice(*bias, 0, begin, half));
  }
  return setFormula(n, x.dtype, parts, [](ArrayRef<Num> v) {
    Num left = v[0] + v[1], right = v[2] + v[3];
    return left * (0.5 * right * (1.0 + erf(right * std::sqrt(0.5))));
  });
}

/// X + bias + skip.
LogicalResult importBiasAdd(Node &n) {
  if (failed(expectInputs(n, 3)) || failed(expectFloat(n, 0)) || failed(expectSameDType(n, 0, 1)) ||
      failed(expectSameDType(n, 0, 2)))
    return failure();
  return setFormula(n, n.input(0).dtype, {n.input(0), n.input(1), n.input(2)},
                    [](ArrayRef<Num> v) { return v[0] + v[1] + v[2]; });
}

/// softmax(data + bias), where all dimensions from `axis` on are one row.
LogicalResult importBiasSoftmax(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectFloat(n, 0)) || failed(expectSameDType(n, 0, 1)))
    return failure();
  FailureOr<Tensor> x =
      formula(n, n.input(0).dtype, {n.input(0), n.input(1)}, [](ArrayRef<Num> v) { return v[0] + v[1]; });
  if (failed(x))
    return failure();
  FailureOr<int64_t> axis = n.axis(n.intAttr("axis", 1), x->rank());
  if (failed(axis))
    return failure();
  SmallVector<Expr, 4> shape(x->shape.begin(), x->shape.begin() + *axis);
  shape.push_back(product(ArrayRef<Expr>(x->shape).drop_front(*axis)));
  FailureOr<Tensor> rows = n.reshape(*x, shape);
  if (failed(rows))
    return failure();
  Tensor y = *rows;
  y.elements.reset();
  y.weight.clear();
  y.value = SoftmaxOp::create(n.builder(), n.loc(), n.value(*rows), *axis, /*log=*/false);
  FailureOr<Tensor> result = n.reshape(y, x->shape);
  if (failed(result))
    return failure();
  n.setOutput(0, *result);
  return success();
}

} // namespace

void registerContribDiffusionOps(OpRegistry &registry) {
  const char *domain = "com.microsoft";
  for (const char *name : {"GroupNorm", "SkipGroupNorm"})
    registry.add(name, {1}, importGroupNorm, domain);
  registry.add("BiasSplitGelu", {1}, importBiasSplitGelu, domain);
  registry.add("BiasAdd", {1}, importBiasAdd, domain);
  registry.add("BiasSoftmax", {1}, importBiasSoftmax, domain);
}

} // namespace attn::onnx
