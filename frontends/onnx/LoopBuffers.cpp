#include "dialects/attn/LoopOps.h"
#include "frontends/onnx/LoopImport.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn;
using namespace attn::onnx;

SmallVector<OpFoldResult> attn::onnx::sizesOf(Node &node, ArrayRef<Expr> shape) {
  return llvm::map_to_vector(shape,
                             [&](const Expr &size) { return node.symbols().size(node.builder(), node.loc(), size); });
}

Value attn::onnx::castTo(Node &node, Value value, Type type) {
  if (value.getType() == type)
    return value;
  return tensor::CastOp::create(node.builder(), node.loc(), type, value);
}

RankedTensorType attn::onnx::bufferType(Node &node, DType dtype, ArrayRef<Expr> shape, int64_t dim) {
  SmallVector<Expr> open(shape);
  open[dim] = Expr::overflow(); // no constant
  return node.type(dtype, open);
}

// A tensor.cast would not do: upstream folds it into
// the loop, whose argument then has the size of the first iteration for ever.
Value attn::onnx::toBuffer(Node &node, Value tensor, DType dtype, ArrayRef<Expr> shape, int64_t dim) {
  OpBuilder &b = node.builder();
  RankedTensorType type = bufferType(node, dtype, shape, dim);
  Value size = node.symbols().materialize(b, node.loc(), shape[dim]);
  return GrowOp::create(b, node.loc(), type, castTo(node, tensor, type), size, dim);
}

Tensor attn::onnx::frontOf(Node &node, Value buffer, DType dtype, ArrayRef<Expr> shape) {
  OpBuilder &b = node.builder();
  SmallVector<OpFoldResult> offsets(shape.size(), b.getIndexAttr(0)), strides(shape.size(), b.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes = sizesOf(node, shape);
  Tensor result;
  result.dtype = dtype;
  result.shape.assign(shape.begin(), shape.end());
  result.value =
      tensor::ExtractSliceOp::create(b, node.loc(), node.type(dtype, shape), buffer, offsets, sizes, strides);
  return result;
}

Value attn::onnx::appendRows(Node &node, Value buffer, const Expr &length, ArrayRef<Tensor> rows,
                             ArrayRef<Expr> element) {
  OpBuilder &b = node.builder();
  Location loc = node.loc();
  Value wanted = node.symbols().materialize(b, loc, length + Expr(int64_t(rows.size())));
  buffer = GrowOp::create(b, loc, buffer.getType(), buffer, wanted, 0);
  SmallVector<OpFoldResult> sizes = sizesOf(node, element), strides(element.size() + 1, b.getIndexAttr(1));
  sizes.insert(sizes.begin(), b.getIndexAttr(1));
  for (auto [n, row] : llvm::enumerate(rows)) {
    SmallVector<OpFoldResult> offsets(element.size() + 1, b.getIndexAttr(0));
    offsets[0] = node.symbols().size(b, loc, length + Expr(int64_t(n)));
    Value value = castTo(node, node.value(row), node.type(row.dtype, element));
    buffer = tensor::InsertSliceOp::create(b, loc, value, buffer, offsets, sizes, strides);
  }
  return buffer;
}
