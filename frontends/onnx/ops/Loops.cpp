#include "frontends/onnx/ops/Loops.h"
#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace attn::onnx {

static SmallVector<Value> nest(OpBuilder &b, Location loc, ArrayRef<Value> bounds, SmallVector<Value> &indices,
                               ValueRange carried, LoopBody body) {
  if (indices.size() == bounds.size())
    return body(b, loc, indices, carried);
  Value zero = arith::ConstantIndexOp::create(b, loc, 0), one = arith::ConstantIndexOp::create(b, loc, 1);
  auto loop = scf::ForOp::create(b, loc, zero, bounds[indices.size()], one, carried,
                                 [&](OpBuilder &b, Location loc, Value i, ValueRange inner) {
                                   indices.push_back(i);
                                   scf::YieldOp::create(b, loc, nest(b, loc, bounds, indices, inner, body));
                                   indices.pop_back();
                                 });
  return SmallVector<Value>(loop.getResults());
}

SmallVector<Value> sequential(OpBuilder &b, Location loc, ArrayRef<Value> bounds, ValueRange inits, LoopBody body) {
  SmallVector<Value> indices;
  return nest(b, loc, bounds, indices, inits, body);
}

SmallVector<Value> sizeValues(Node &n, ArrayRef<Expr> shape) {
  SmallVector<Value> sizes;
  for (const Expr &size : shape)
    sizes.push_back(n.symbols().materialize(n.builder(), n.loc(), size));
  return sizes;
}

Num load(OpBuilder &b, Location loc, Value tensor, DType dtype, ValueRange at) {
  Value element = tensor::ExtractOp::create(b, loc, tensor, at);
  if (dtype == DType::Bool)
    return convert(Num(b, loc, DType::U8, element), DType::Bool);
  return Num(b, loc, dtype, element);
}

Value store(OpBuilder &b, Location loc, const Num &element, Value tensor, ValueRange at) {
  Value stored = element.value();
  if (element.dtype() == DType::Bool)
    stored = arith::ExtUIOp::create(b, loc, b.getI8Type(), stored);
  return tensor::InsertOp::create(b, loc, stored, tensor, at);
}

Value checkedIndex(Node &n, OpBuilder &b, Location loc, Value element, Value size) {
  Value index = element;
  if (!element.getType().isIndex())
    index = arith::IndexCastOp::create(b, loc, b.getIndexType(), element);
  return CheckIndexOp::create(b, loc, b.getIndexType(), index, size, b.getStringAttr(n.describe()));
}

Value placeIn(Node &n, OpBuilder &b, Location loc, Value element, Value size) {
  Value index = arith::IndexCastOp::create(b, loc, b.getIndexType(), element);
  return CheckIndexOp::create(b, loc, b.getIndexType(), index, size, n.describe(), /*nonnegative=*/true);
}

FailureOr<Tensor> expandInRun(Node &n, const Tensor &t, int64_t dim, const Expr &size) {
  const Expr own = t.shape[dim];
  if (own.is(1) || n.symbols().isEqual(own, size) == true)
    return t;
  // own is size or 1: one of the factors is 0.
  if (failed(n.requireEqual((own - size) * (own - Expr(1)), 0,
                            "a size is neither 1 nor " + n.symbols().print(size) + " (off by {0})")))
    return failure();
  Tensor out;
  out.dtype = t.dtype;
  out.shape = t.shape;
  out.shape[dim] = size;
  Value source = n.value(t);
  Value last = n.symbols().materialize(n.builder(), n.loc(), own - Expr(1));
  out.value = n.generate(t.dtype, out.shape, [&](OpBuilder &b, Location loc, ValueRange at) -> Value {
    SmallVector<Value> from(at.begin(), at.end());
    from[dim] = arith::MinSIOp::create(b, loc, at[dim], last);
    return tensor::ExtractOp::create(b, loc, source, from);
  });
  return out;
}

} // namespace attn::onnx
