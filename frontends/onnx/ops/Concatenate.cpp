#include "frontends/onnx/ops/Concatenate.h"
#include "dialects/attn/ManyParts.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace attn::onnx;

Tensor attn::onnx::concatenate(Node &node, ArrayRef<Tensor> parts, int64_t dim, ArrayRef<Expr> shape) {
  OpBuilder &b = node.builder();
  if (parts.size() == 1 && ArrayRef<Expr>(parts[0].shape) == shape)
    return parts[0];
  bool areOpen = llvm::any_of(parts, [&](const Tensor &part) { return !part.shape[dim].constant(); });
  Tensor result;
  result.dtype = parts[0].dtype;
  result.shape.assign(shape.begin(), shape.end());
  if (parts.size() > attn::kFewParts && areOpen) {
    SmallVector<Value> values;
    for (const Tensor &part : parts)
      if (!part.shape[dim].is(0))
        values.push_back(node.value(part));
    result.value = tensor::ConcatOp::create(b, node.loc(), node.type(result.dtype, shape), dim, values);
    return result;
  }
  result.value = node.empty(result.dtype, shape);
  SmallVector<OpFoldResult> offsets(shape.size(), b.getIndexAttr(0)), strides(shape.size(), b.getIndexAttr(1));
  Expr offset(0);
  for (const Tensor &part : parts) {
    if (part.shape[dim].is(0))
      continue;
    // Sizes are the part's own where its type is static, so that they agree.
    SmallVector<OpFoldResult> sizes;
    for (const Expr &size : part.shape)
      sizes.push_back(node.symbols().size(b, node.loc(), size));
    offsets[dim] = node.symbols().size(b, node.loc(), offset);
    result.value =
        tensor::InsertSliceOp::create(b, node.loc(), node.value(part), result.value, offsets, sizes, strides);
    offset = offset + part.shape[dim];
  }
  return result;
}
