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

} // namespace attn::onnx
