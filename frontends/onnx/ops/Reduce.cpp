#include "frontends/onnx/ops/Reduce.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

using namespace mlir;

namespace attn::onnx {

Num neutralOf(Combine how, const Num &x) {
  switch (how) {
  case Combine::Sum:
    return x.constant(0);
  case Combine::Product:
    return x.constant(1);
  case Combine::Max:
    return x.lowest();
  case Combine::Min:
    return x.highest();
  }
  llvm_unreachable("a way to combine");
}

Num combineTwo(Combine how, const Num &x, const Num &y) {
  switch (how) {
  case Combine::Sum:
    return x + y;
  case Combine::Product:
    return x * y;
  case Combine::Max:
    return maximum(x, y);
  case Combine::Min:
    return minimum(x, y);
  }
  llvm_unreachable("a way to combine");
}

Tensor reduce(Node &n, Combine how, const Tensor &x, ArrayRef<int64_t> dims, Prepare prepare) {
  OpBuilder &b = n.builder();
  DType stored = x.dtype == DType::Bool ? DType::U8 : x.dtype;
  Tensor out;
  out.dtype = computeDType(stored);
  SmallVector<AffineExpr> kept;
  SmallVector<utils::IteratorType> iterators(x.rank(), utils::IteratorType::parallel);
  for (int64_t d = 0; d < x.rank(); ++d) {
    if (llvm::is_contained(dims, d)) {
      iterators[d] = utils::IteratorType::reduction;
      continue;
    }
    kept.push_back(b.getAffineDimExpr(d));
    out.shape.push_back(x.shape[d]);
  }
  Num start = neutralOf(how, constantNum(b, n.loc(), out.dtype, int64_t(0)));
  Value init = n.filled(out.dtype, out.shape, start.value());
  AffineMap maps[] = {b.getMultiDimIdentityMap(x.rank()), AffineMap::get(x.rank(), 0, kept, b.getContext())};
  auto body = [&](OpBuilder &b, Location loc, ValueRange v) {
    Num element = convert(Num(b, loc, stored, v[0]), out.dtype);
    if (prepare)
      element = prepare(element);
    linalg::YieldOp::create(b, loc, combineTwo(how, Num(b, loc, out.dtype, v[1]), element).value());
  };
  out.value =
      linalg::GenericOp::create(b, n.loc(), init.getType(), n.value(x), init, maps, iterators, body).getResult(0);
  return out;
}

FailureOr<Tensor> keepDims(Node &n, const Tensor &t, ArrayRef<int64_t> dims, int64_t rank) {
  SmallVector<Expr, 4> shape;
  size_t next = 0;
  for (int64_t d = 0; d < rank; ++d)
    shape.push_back(llvm::is_contained(dims, d) ? Expr(1) : t.shape[next++]);
  return n.reshape(t, shape);
}

Expr countOf(const Tensor &x, ArrayRef<int64_t> dims) {
  Expr count(1);
  for (int64_t d : dims)
    count = count * x.shape[d];
  return count;
}

FailureOr<Tensor> divideByCount(Node &n, const Tensor &sum, const Expr &count) {
  return formula(n, sum.dtype, {sum, scalarTensor(DType::I64, count)},
                 [&](ArrayRef<Num> v) { return v[0] / convert(v[1], v[0].dtype()); });
}

FailureOr<Moments> moments(Node &n, const Tensor &x, ArrayRef<int64_t> dims) {
  Expr count = countOf(x, dims);
  auto meanOf = [&](const Tensor &t, Prepare prepare) -> FailureOr<Tensor> {
    FailureOr<Tensor> mean = divideByCount(n, reduce(n, Combine::Sum, t, dims, prepare), count);
    if (failed(mean))
      return failure();
    return keepDims(n, *mean, dims, x.rank());
  };
  FailureOr<Tensor> mean = meanOf(x, nullptr);
  if (failed(mean))
    return failure();
  // Of the differences, not mean(x^2) - mean^2, which cancels.
  FailureOr<Tensor> difference =
      formula(n, computeDType(x.dtype), {x, *mean}, [](ArrayRef<Num> v) { return v[0] - v[1]; });
  if (failed(difference))
    return failure();
  FailureOr<Tensor> variance = meanOf(*difference, [](const Num &d) { return d * d; });
  if (failed(variance))
    return failure();
  return Moments{*mean, *variance};
}

SmallVector<int64_t> dimsFrom(int64_t first, int64_t rank) {
  SmallVector<int64_t> dims;
  for (int64_t d = first; d < rank; ++d)
    dims.push_back(d);
  return dims;
}

} // namespace attn::onnx
