#include "frontends/onnx/ops/MatMul.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"

using namespace mlir;

namespace attn::onnx {

//===----------------------------------------------------------------------===//
// Contraction of labelled dimensions
//===----------------------------------------------------------------------===//

FailureOr<LabelledTensor> dropBroadcast(Node &n, LabelledTensor t, const LabelSizes &sizes) {
  SmallVector<Expr, 4> shape;
  SmallVector<Label> labels;
  for (auto [label, dim] : llvm::zip_equal(t.labels, t.tensor.shape)) {
    if (dim.is(1) && !sizes.at(label).is(1))
      continue;
    labels.push_back(label);
    shape.push_back(dim);
  }
  if (labels.size() == t.labels.size())
    return t;
  FailureOr<Tensor> dropped = n.reshape(t.tensor, shape);
  if (failed(dropped))
    return failure();
  return LabelledTensor{*dropped, labels};
}

LogicalResult collectSizes(Node &n, const LabelledTensor &t, LabelSizes &sizes) {
  for (auto [label, dim] : llvm::zip_equal(t.labels, t.tensor.shape)) {
    auto [it, isNew] = sizes.try_emplace(label, dim);
    if (isNew || dim.is(1))
      continue;
    if (it->second.is(1)) {
      it->second = dim;
      continue;
    }
    FailureOr<Expr> joined = n.joinSizes(it->second, dim, "sizes {0} and {1} of one dimension differ");
    if (failed(joined))
      return failure();
    it->second = *joined;
  }
  return success();
}

FailureOr<Tensor> contractLabels(Node &n, DType result, LabelledTensor a, LabelledTensor b, ArrayRef<Label> out) {
  LabelSizes sizes;
  if (failed(collectSizes(n, a, sizes)) || failed(collectSizes(n, b, sizes)))
    return failure();
  for (LabelledTensor *t : {&a, &b}) {
    FailureOr<LabelledTensor> dropped = dropBroadcast(n, *t, sizes);
    if (failed(dropped))
      return failure();
    *t = *dropped;
    t->tensor = n.stretch(t->tensor, llvm::map_to_vector(t->labels, [&](Label label) { return sizes.at(label); }));
  }
  // Iteration order: the result's dimensions, then the contracted ones.
  SmallVector<Label> order(out);
  for (const LabelledTensor *t : {&a, &b})
    for (Label label : t->labels)
      if (!llvm::is_contained(order, label))
        order.push_back(label);
  MLIRContext *context = n.builder().getContext();
  auto mapOf = [&](ArrayRef<Label> labels) {
    SmallVector<AffineExpr> results;
    for (Label label : labels)
      results.push_back(getAffineDimExpr(llvm::find(order, label) - order.begin(), context));
    return AffineMap::get(order.size(), 0, results, context);
  };
  Tensor y;
  y.dtype = result;
  for (Label label : out)
    y.shape.push_back(sizes.at(label));
  y.value = n.contract(result, y.shape, a.tensor, b.tensor, {mapOf(a.labels), mapOf(b.labels), mapOf(out)});
  return y;
}

FailureOr<Tensor> withoutZeroPoint(Node &n, const Tensor &x, size_t zeroPoint, int64_t dim) {
  if (!n.hasInput(zeroPoint))
    return n.cast(x, DType::I32);
  FailureOr<Tensor> zero = n.input(zeroPoint);
  if (zero->rank() == 1) {
    SmallVector<Expr, 4> shape;
    if (!zero->shape[0].is(1) && dim >= 0) {
      shape.assign(x.rank() - dim, Expr(1));
      shape[0] = zero->shape[0];
    }
    zero = n.reshape(*zero, shape);
  }
  if (failed(zero))
    return failure();
  FailureOr<SmallVector<Expr>> shape = n.broadcast({x.shape, zero->shape});
  if (failed(shape))
    return failure();
  // As it mostly is, one a filter or column too; it would stand in the way of a filter's reshapes.
  std::optional<std::vector<char>> bytes = n.constantBytes(*zero);
  bool isZero = bytes && llvm::all_of(*bytes, [](char byte) { return byte == 0; });
  if (isZero && ArrayRef<Expr>(*shape) == ArrayRef<Expr>(x.shape))
    return n.cast(x, DType::I32);
  return formula(n, DType::I32, {x, *zero},
                 [](ArrayRef<Num> v) { return convert(v[0], DType::I32) - convert(v[1], DType::I32); });
}

namespace {

LogicalResult expectNumbers(Node &n) {
  if (failed(expectInputs(n, 2)) || failed(expectSameDType(n, 0, 1)))
    return failure();
  if (n.input(0).dtype == DType::Bool)
    return n.error() << "expects numbers, has bool";
  return success();
}

//===----------------------------------------------------------------------===//
// MatMul
//===----------------------------------------------------------------------===//

// Labels of numpy.matmul: batch dimensions count from the right, 0 upwards.
constexpr Label kRow = -1, kColumn = -2, kInner = -3;

/// Checks the inner dimension, which unlike the batch does not broadcast: where
/// one side is 1 and the other open, the other is viewed as 1, too.
LogicalResult alignInner(Node &n, LabelledTensor &a, LabelledTensor &b) {
  auto dimOf = [](LabelledTensor &t) -> Expr & {
    return t.tensor.shape[llvm::find(t.labels, kInner) - t.labels.begin()];
  };
  Expr k = dimOf(a), other = dimOf(b);
  if (failed(n.requireEqual(k, other, "A has {0} columns, B has {1} rows")))
    return failure();
  if (k.is(1) == other.is(1))
    return success();
  LabelledTensor &open = k.is(1) ? b : a;
  SmallVector<Expr, 4> shape(open.tensor.shape);
  shape[llvm::find(open.labels, kInner) - open.labels.begin()] = Expr(1);
  FailureOr<Tensor> view = n.reshape(open.tensor, shape);
  if (failed(view))
    return failure();
  open.tensor = *view;
  return success();
}

} // namespace

FailureOr<Tensor> matmul(Node &n, const Tensor &a, const Tensor &b, DType result) {
  if (a.rank() == 0 || b.rank() == 0)
    return n.error() << "expects tensors of rank at least 1, has ranks " << a.rank() << " and " << b.rank();
  LabelledTensor left{a, {}}, right{b, {}};
  SmallVector<Label> out;
  int64_t leftBatch = std::max<int64_t>(a.rank() - 2, 0), rightBatch = std::max<int64_t>(b.rank() - 2, 0);
  for (int64_t d = leftBatch - 1; d >= 0; --d)
    left.labels.push_back(d);
  for (int64_t d = rightBatch - 1; d >= 0; --d)
    right.labels.push_back(d);
  for (int64_t d = std::max(leftBatch, rightBatch) - 1; d >= 0; --d)
    out.push_back(d);
  if (a.rank() > 1) {
    left.labels.push_back(kRow);
    out.push_back(kRow);
  }
  left.labels.push_back(kInner);
  right.labels.push_back(kInner);
  if (b.rank() > 1) {
    right.labels.push_back(kColumn);
    out.push_back(kColumn);
  }
  if (failed(alignInner(n, left, right)))
    return failure();
  return contractLabels(n, result, left, right, out);
}

namespace {

LogicalResult importMatMul(Node &n) {
  if (failed(expectNumbers(n)))
    return failure();
  FailureOr<Tensor> y = matmul(n, n.input(0), n.input(1), n.input(0).dtype);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

LogicalResult importMatMulInteger(Node &n) {
  if (failed(expectInputs(n, 2)))
    return failure();
  FailureOr<Tensor> a = withoutZeroPoint(n, n.input(0), 2, n.input(0).rank() - 2);
  FailureOr<Tensor> b = withoutZeroPoint(n, n.input(1), 3, n.input(1).rank() - 1);
  if (failed(a) || failed(b))
    return failure();
  FailureOr<Tensor> y = matmul(n, *a, *b, DType::I32);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

} // namespace

//===----------------------------------------------------------------------===//
// Gemm
//===----------------------------------------------------------------------===//

FailureOr<Tensor> gemm(Node &n) {
  if (failed(expectNumbers(n)))
    return failure();
  const Tensor &a = n.input(0), &b = n.input(1);
  if (a.rank() != 2 || b.rank() != 2)
    return n.error() << "expects matrices, has ranks " << a.rank() << " and " << b.rank();
  bool transA = n.intAttr("transA", 0) != 0, transB = n.intAttr("transB", 0) != 0;
  LabelledTensor left{a, {transA ? kInner : kRow, transA ? kRow : kInner}};
  LabelledTensor right{b, {transB ? kColumn : kInner, transB ? kInner : kColumn}};
  if (failed(alignInner(n, left, right)))
    return failure();
  FailureOr<Tensor> y = contractLabels(n, a.dtype, left, right, {kRow, kColumn});
  if (failed(y))
    return failure();
  double alpha = n.floatAttr("alpha", 1.0), beta = n.floatAttr("beta", 1.0);
  std::vector<Tensor> operands{*y};
  bool hasC = n.hasInput(2) && beta != 0;
  if (hasC) {
    if (failed(expectSameDType(n, 0, 2)))
      return failure();
    if (n.input(2).rank() > 2)
      return n.error() << "expects C of rank at most 2, has rank " << n.input(2).rank();
    operands.push_back(n.input(2));
  }
  if (!hasC && alpha == 1)
    return y;
  return formula(n, a.dtype, operands, [&](ArrayRef<Num> v) {
    Num sum = alpha == 1 ? v[0] : alpha * v[0];
    return !hasC ? sum : sum + (beta == 1 ? v[1] : beta * v[1]);
  });
}

namespace {
LogicalResult importGemm(Node &n) {
  FailureOr<Tensor> y = gemm(n);
  if (failed(y))
    return failure();
  n.setOutput(0, *y);
  return success();
}

} // namespace

void registerMatMulOps(OpRegistry &registry) {
  registry.add("MatMul", {1, 9, 13}, importMatMul);
  registry.add("MatMulInteger", {10}, importMatMulInteger);
  registry.add("Gemm", {1, 6, 7, 9, 11, 13}, importGemm);
  registerEinsumOps(registry);
  registerConvolutionOps(registry);
  registerConvTransposeOps(registry);
  registerPoolingOps(registry);
}

} // namespace attn::onnx
