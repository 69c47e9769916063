#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Formula.h"
#include "frontends/onnx/ops/Loops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

// Det: elimination with partial pivoting, a matrix after the other.

using namespace mlir;

namespace attn::onnx {
namespace {

/// The row from `k` on with the greatest element of column `k`.
Value pivotRow(OpBuilder &b, Location loc, Value matrices, DType dtype, Value matrix, Value k, Value size) {
  Num none = constantNum(b, loc, dtype, -1.0);
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    Num best(b, loc, dtype, carried[1]), here = abs(load(b, loc, matrices, dtype, {matrix, at[0], k}));
    Value candidate = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, at[0], k);
    Value better = arith::AndIOp::create(b, loc, candidate, (here > best).value());
    return {arith::SelectOp::create(b, loc, better, at[0], carried[0]),
            arith::SelectOp::create(b, loc, better, here.value(), best.value())};
  };
  return sequential(b, loc, size, {k, none.value()}, body)[0];
}

Value swappedRows(OpBuilder &b, Location loc, Value matrices, DType dtype, Value matrix, Value i, Value j, Value size) {
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    Num upper = load(b, loc, carried[0], dtype, {matrix, i, at[0]});
    Num lower = load(b, loc, carried[0], dtype, {matrix, j, at[0]});
    Value next = store(b, loc, lower, carried[0], {matrix, i, at[0]});
    return {store(b, loc, upper, next, {matrix, j, at[0]})};
  };
  return sequential(b, loc, size, matrices, body)[0];
}

/// The rows below `k` minus what makes their column `k` zero (which itself stays).
Value eliminated(OpBuilder &b, Location loc, Value matrices, const Num &inverse, Value matrix, Value k, Value size) {
  DType dtype = inverse.dtype();
  auto body = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    auto element = [&](Value i, Value j) { return load(b, loc, carried[0], dtype, {matrix, i, j}); };
    auto isBehind = [&](Value i) -> Value { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, i, k); };
    Num old = element(at[0], at[1]), next = old - element(at[0], k) * inverse * element(k, at[1]);
    Num inside = old.truth(arith::AndIOp::create(b, loc, isBehind(at[0]), isBehind(at[1])));
    return {store(b, loc, select(inside, next, old), carried[0], {matrix, at[0], at[1]})};
  };
  return sequential(b, loc, {size, size}, matrices, body)[0];
}

LogicalResult importDet(Node &n) {
  if (failed(expectInputs(n, 1)) || failed(expectFloat(n, 0)))
    return failure();
  const Tensor &x = n.input(0);
  if (x.rank() < 2)
    return n.error() << "expects an input of rank 2 or more, has rank " << x.rank();
  Expr size = x.shape.back(), count = 1;
  if (failed(n.requireEqual(x.shape[x.rank() - 2], size, "a matrix has {0} rows and {1} columns")))
    return failure();
  ArrayRef<Expr> lead = ArrayRef(x.shape).drop_back(2);
  for (const Expr &dim : lead)
    count = count * dim;
  DType dtype = computeDType(x.dtype);
  FailureOr<Tensor> stack = n.reshape(n.cast(x, dtype), {count, size, size});
  if (failed(stack))
    return failure();
  OpBuilder &b = n.builder();
  Value rows = n.symbols().materialize(b, n.loc(), size);
  auto step = [&](OpBuilder &b, Location loc, ValueRange at, ValueRange carried) -> SmallVector<Value> {
    Value matrix = at[0], k = at[1];
    Value row = pivotRow(b, loc, carried[0], dtype, matrix, k, rows);
    Value work = swappedRows(b, loc, carried[0], dtype, matrix, k, row, rows);
    Num pivot = load(b, loc, work, dtype, {matrix, k, k}), so = load(b, loc, carried[1], dtype, {matrix});
    Num stayed = pivot.truth(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, row, k));
    Num next = so * select(stayed, pivot, -pivot);
    Num inverse = select(pivot == 0.0, pivot, 1.0 / pivot);
    return {eliminated(b, loc, work, inverse, matrix, k, rows), store(b, loc, next, carried[1], {matrix})};
  };
  Tensor result;
  result.dtype = dtype;
  result.shape.push_back(count);
  SmallVector<Value> inits{n.value(*stack), n.filled(dtype, result.shape, n.constant(dtype, 1))};
  Value matrices = n.symbols().materialize(b, n.loc(), count);
  result.value = sequential(b, n.loc(), {matrices, rows}, inits, step)[1];
  FailureOr<Tensor> y = n.reshape(result, lead);
  if (failed(y))
    return failure();
  n.setOutput(0, n.cast(*y, x.dtype));
  return success();
}

} // namespace

void registerDeterminantOps(OpRegistry &registry) { registry.add("Det", {11, 22}, importDet); }

} // namespace attn::onnx
