#include "dialects/attn/TopKOp.h"
#include "frontends/onnx/ops/Families.h"
#include "frontends/onnx/ops/Reduce.h"
#include "frontends/onnx/ops/RuntimeAxes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <limits>

// Reductions that keep more than a value: positions, running sums, the largest.

using namespace mlir;

namespace attn::onnx {

namespace {

/// The result of argReduce without its value: x's shape without `dim`.
Tensor positionsOf(const Tensor &x, int64_t dim) {
  Tensor out;
  out.dtype = DType::I64;
  for (int64_t d = 0; d < x.rank(); ++d)
    if (d != dim)
      out.shape.push_back(x.shape[d]);
  return out;
}

/// `body` over all of x, with dimension `dim` reduced, and `more` operands that have no such.
linalg::GenericOp reduceWith(Node &n, const Tensor &x, int64_t dim, ValueRange more, ValueRange inits,
                             function_ref<void(OpBuilder &, Location, ValueRange)> body) {
  OpBuilder &b = n.builder();
  SmallVector<utils::IteratorType> iterators(x.rank(), utils::IteratorType::parallel);
  iterators[dim] = utils::IteratorType::reduction;
  AffineMap identity = b.getMultiDimIdentityMap(x.rank());
  SmallVector<AffineMap> maps(1 + more.size() + inits.size(), identity.dropResult(dim));
  maps[0] = identity;
  SmallVector<Value> inputs{n.value(x)};
  llvm::append_range(inputs, more);
  return linalg::GenericOp::create(b, n.loc(), TypeRange(inits), inputs, inits, maps, iterators, body);
}

/// The last one, found in one pass that carries value and position.
Tensor lastPosition(Node &n, const Tensor &x, int64_t dim, bool least) {
  OpBuilder &b = n.builder();
  DType stored = x.dtype == DType::Bool ? DType::U8 : x.dtype, wide = computeDType(stored);
  Tensor out = positionsOf(x, dim);
  Num zero = constantNum(b, n.loc(), wide, int64_t(0));
  Value inits[] = {n.filled(wide, out.shape, (least ? zero.highest() : zero.lowest()).value()),
                   n.filled(DType::I64, out.shape, constantNum(b, n.loc(), DType::I64, int64_t(0)).value())};
  auto body = [&](OpBuilder &b, Location loc, ValueRange v) {
    Num element = convert(Num(b, loc, stored, v[0]), wide), best(b, loc, wide, v[1]);
    Num at(b, loc, DType::I64, v[2]);
    Num here = fromIndex(b, loc, DType::I64, linalg::IndexOp::create(b, loc, dim));
    Num better = least ? element <= best : element >= best;
    if (element.isFloating())
      better = (better & !isNaN(best)) | (isNaN(element) & !isNaN(best));
    linalg::YieldOp::create(b, loc, {select(better, element, best).value(), select(better, here, at).value()});
  };
  out.value = reduceWith(n, x, dim, {}, inits, body).getResult(1);
  return out;
}

} // namespace

Tensor argReduce(Node &n, const Tensor &x, int64_t dim, ArgChoice choice) {
  if (choice.last)
    return lastPosition(n, x, dim, choice.least);
  // The value first, then the first place that holds it: each pass has one
  // result and no order, so that it runs on vectors.
  OpBuilder &b = n.builder();
  DType stored = x.dtype == DType::Bool ? DType::U8 : x.dtype;
  Tensor best = reduce(n, choice.least ? Combine::Min : Combine::Max, x, {dim}), out = positionsOf(x, dim);
  Num far = constantNum(b, n.loc(), DType::I64, std::numeric_limits<int64_t>::max());
  Num size = fromIndex(b, n.loc(), DType::I64, n.symbols().materialize(b, n.loc(), x.shape[dim]));
  Value init = n.filled(DType::I64, out.shape, maximum(size - 1, far.constant(0)).value());
  auto body = [&](OpBuilder &b, Location loc, ValueRange v) {
    Num element = convert(Num(b, loc, stored, v[0]), best.dtype), wanted(b, loc, best.dtype, v[1]);
    Num found = element == wanted;
    if (element.isFloating())
      found = found | (isNaN(element) & isNaN(wanted));
    Num here = fromIndex(b, loc, DType::I64, linalg::IndexOp::create(b, loc, dim));
    linalg::YieldOp::create(b, loc, minimum(Num(b, loc, DType::I64, v[2]), select(found, here, far)).value());
  };
  out.value = reduceWith(n, x, dim, n.value(best), init, body).getResult(0);
  return out;
}

namespace {

LogicalResult importArg(Node &n) {
  if (failed(expectInputs(n, 1)))
    return failure();
  const Tensor &x = n.input(0);
  FailureOr<int64_t> dim = n.axis(n.intAttr("axis", 0), x.rank());
  if (failed(dim))
    return failure();
  if (failed(n.requireAtMost(1, x.shape[*dim], "chooses from a dimension of size {1}")))
    return failure();
  ArgChoice choice{n.opType() == "ArgMin", n.intAttr("select_last_index", 0) != 0};
  Tensor position = argReduce(n, x, *dim, choice);
  if (!n.intAttr("keepdims", 1)) {
    n.setOutput(0, position);
    return success();
  }
  FailureOr<Tensor> kept = keepDims(n, position, *dim, x.rank());
  if (failed(kept))
    return failure();
  n.setOutput(0, *kept);
  return success();
}

//===----------------------------------------------------------------------===//
// CumSum, CumProd
//===----------------------------------------------------------------------===//

struct Running {
  int64_t dim;
  bool exclusive, reverse, product;
};

/// A loop over dimension `dim` that carries the row so far and the result.
Value runningRows(Node &n, const Tensor &x, const Running &how) {
  OpBuilder &b = n.builder();
  Location loc = n.loc();
  SmallVector<Expr, 4> rowShape(x.shape);
  rowShape[how.dim] = Expr(1);
  SmallVector<OpFoldResult> sizes, offsets(x.rank(), b.getIndexAttr(0)), strides(x.rank(), b.getIndexAttr(1));
  for (const Expr &dim : rowShape)
    sizes.push_back(n.symbols().size(b, loc, dim));
  Value input = n.value(x), zero = arith::ConstantIndexOp::create(b, loc, 0);
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  Value size = n.symbols().materialize(b, loc, x.shape[how.dim]);
  Num start = constantNum(b, loc, x.dtype, int64_t(how.product ? 1 : 0));
  Value inits[] = {n.filled(x.dtype, rowShape, start.value()), n.empty(x.dtype, x.shape)};
  AffineMap identity = b.getMultiDimIdentityMap(x.rank());
  SmallVector<utils::IteratorType> iterators(x.rank(), utils::IteratorType::parallel);
  auto combine = [&](OpBuilder &b, Location loc, ValueRange v) {
    Num element(b, loc, x.dtype, v[0]), sum(b, loc, x.dtype, v[1]);
    linalg::YieldOp::create(b, loc, (how.product ? sum * element : sum + element).value());
  };
  auto loop =
      scf::ForOp::create(b, loc, zero, size, one, inits, [&](OpBuilder &b, Location loc, Value k, ValueRange carried) {
        Value at = k;
        if (how.reverse)
          at = arith::SubIOp::create(b, loc, arith::SubIOp::create(b, loc, size, one), k);
        SmallVector<OpFoldResult> here(offsets);
        here[how.dim] = at;
        Value row = tensor::ExtractSliceOp::create(b, loc, cast<RankedTensorType>(carried[0].getType()), input, here,
                                                   sizes, strides);
        // Written before the sum is, which is then updated in place.
        Value result = carried[1];
        if (how.exclusive)
          result = tensor::InsertSliceOp::create(b, loc, carried[0], result, here, sizes, strides);
        Value sum = linalg::GenericOp::create(b, loc, carried[0].getType(), row, carried[0],
                                              ArrayRef<AffineMap>{identity, identity}, iterators, combine)
                        .getResult(0);
        if (!how.exclusive)
          result = tensor::InsertSliceOp::create(b, loc, sum, result, here, sizes, strides);
        scf::YieldOp::create(b, loc, {sum, result});
      });
  return loop.getResult(1);
}

Tensor running(Node &n, const Tensor &x, const Running &how) {
  Tensor y = x;
  y.elements.reset();
  y.weight.clear();
  y.value = runningRows(n, x, how);
  return y;
}

LogicalResult importRunning(Node &n) {
  if (failed(expectInputs(n, 2)))
    return failure();
  DType dtype = n.input(0).dtype;
  if (dtype == DType::Bool)
    return n.error() << "expects numbers, has bool";
  std::optional<SmallVector<int64_t>> axis = n.constantInts(1);
  Tensor x = n.cast(n.input(0), computeDType(dtype));
  if (!axis) {
    FailureOr<SmallVector<Expr>> flags = axisFlags(n, 1, x.rank(), 0);
    if (failed(flags))
      return failure();
    n.setOutput(0, n.cast(runningFlagged(n, x, *flags, n.intAttr("exclusive", 0), n.intAttr("reverse", 0),
                                         n.opType() == "CumProd"),
                          dtype));
    return success();
  }
  if (axis->size() != 1)
    return n.error() << "expects one axis, has " << axis->size();
  FailureOr<int64_t> dim = n.axis(axis->front(), x.rank());
  if (failed(dim))
    return failure();
  Running how{*dim, n.intAttr("exclusive", 0) != 0, n.intAttr("reverse", 0) != 0, n.opType() == "CumProd"};
  n.setOutput(0, n.cast(running(n, x, how), dtype));
  return success();
}

//===----------------------------------------------------------------------===//
// TopK
//===----------------------------------------------------------------------===//

LogicalResult importTopK(Node &n) {
  if (failed(expectInputs(n, n.version() < 10 ? 1 : 2)))
    return failure();
  const Tensor &x = n.input(0);
  FailureOr<int64_t> dim = n.axis(n.intAttr("axis", -1), x.rank());
  if (failed(dim))
    return failure();
  Expr count = n.intAttr("k", 1);
  if (n.version() >= 10) {
    std::optional<SmallVector<Expr>> k = exprsOfLength(n, 1, 1);
    if (!k)
      return n.error() << "expects one number for K (input 1), has rank " << n.input(1).rank();
    count = k->front();
  }
  if (failed(n.requireAtMost(0, count, "K is {1}")) ||
      failed(n.requireAtMost(count, x.shape[*dim], "K is {0}, the dimension has {1} elements")))
    return failure();
  OpBuilder &b = n.builder();
  SmallVector<Expr, 4> shape(x.shape);
  shape[*dim] = count;
  auto op = TopKOp::create(b, n.loc(), n.type(x.dtype, shape), n.type(DType::I64, shape), n.value(x),
                           n.symbols().materialize(b, n.loc(), count), *dim,
                           /*smallest=*/n.intAttr("largest", 1) == 0,
                           /*is_unsigned=*/!isFloat(x.dtype) && !isSigned(x.dtype));
  n.setOutput(0, op.getValues(), x.dtype, shape);
  n.setOutput(1, op.getPositions(), DType::I64, shape);
  return success();
}

} // namespace

Tensor runningSum(Node &n, const Tensor &x, int64_t dim) { return running(n, x, {dim, false, false, false}); }

void registerScanReductionOps(OpRegistry &registry) {
  registry.add("ArgMax", {1, 11, 12, 13}, importArg);
  registry.add("ArgMin", {1, 11, 12, 13}, importArg);
  registry.add("CumSum", {11, 14}, importRunning);
  registry.add("CumProd", {26}, importRunning);
  registry.add("TopK", {1, 10, 11, 24}, importTopK);
}

} // namespace attn::onnx
