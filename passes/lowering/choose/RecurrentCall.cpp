#include "passes/lowering/choose/RecurrentCall.h"
#include "passes/graph/Structured.h"
#include "passes/lowering/choose/KernelCall.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace attn {

bool hasEqualDirections(const RecurrentLayer &layer) {
  for (int64_t d = 1; d < layer.numDirections(); ++d)
    for (int64_t n = 0; n < layer.numFunctions(); ++n)
      if (layer.activation(0, n) != layer.activation(d, n))
        return false;
  return true;
}

/// The biases that are added to the projected input, D x G*H, or null. Not the
/// one inside the reset of a GRU.
static Value inputBias(OpBuilder &b, const RecurrentLayer &layer) {
  Location loc = layer.op->getLoc();
  if (!layer.bias)
    return {};
  int64_t directions = layer.numDirections(), rows = layer.numGates() * layer.hiddenSize();
  // In a loop a sum of constants would be taken in each round.
  if (DenseElementsAttr known; matchPattern(layer.bias, m_Constant(&known)) && known.getElementType().isF32()) {
    auto values = known.getValues<float>();
    SmallVector<float> sums;
    for (int64_t d = 0; d < directions; ++d)
      for (int64_t n = 0; n < rows; ++n) {
        bool isInReset = layer.linearBeforeReset && n >= 2 * layer.hiddenSize();
        sums.push_back(values[2 * d * rows + n] + (isInReset ? 0 : values[(2 * d + 1) * rows + n]));
      }
    auto type = RankedTensorType::get({directions, rows}, b.getF32Type());
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, ArrayRef<float>(sums)));
  }
  auto part = [&](int64_t first) -> Value {
    return sliceAlong(b, loc, layer.bias, 1, b.getIndexAttr(first), b.getIndexAttr(rows));
  };
  AffineMap identity = b.getMultiDimIdentityMap(2);
  return elementwise(b, loc, {b.getIndexAttr(directions), b.getIndexAttr(rows)}, b.getF32Type(), {part(0), part(rows)},
                     {identity, identity}, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                       Value second = args[1];
                       if (layer.linearBeforeReset) {
                         Value limit = arith::ConstantIndexOp::create(b, loc, 2 * layer.hiddenSize());
                         Value gate = linalg::IndexOp::create(b, loc, 1);
                         Value isOther = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, gate, limit);
                         Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
                         second = arith::SelectOp::create(b, loc, isOther, second, zero);
                       }
                       return arith::AddFOp::create(b, loc, args[0], second);
                     });
}

Value projectInput(OpBuilder &b, const RecurrentLayer &layer) {
  Location loc = layer.op->getLoc();
  int64_t rows = layer.numGates() * layer.hiddenSize();
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, loc, layer.input);
  sizes.pop_back();
  sizes.append({b.getIndexAttr(layer.numDirections()), b.getIndexAttr(rows)});
  AffineExpr s, i, d, n, k;
  bindDims(b.getContext(), s, i, d, n, k);
  auto map = [&](ArrayRef<AffineExpr> exprs) { return AffineMap::get(5, 0, exprs, b.getContext()); };
  Value product;
  if (layer.weight) {
    product = contraction(b, loc, sizes, b.getF32Type(), layer.input, layer.weight,
                          {map({s, i, k}), map({d, n, k}), map({s, i, d, n})});
  } else {
    SmallVector<int64_t> shape(cast<RankedTensorType>(layer.input.getType()).getShape().drop_back());
    shape.append({layer.numDirections(), rows});
    SmallVector<ReassociationIndices> groups{{0}, {1}, {2, 3}};
    product =
        tensor::ExpandShapeOp::create(b, loc, RankedTensorType::get(shape, b.getF32Type()), layer.input, groups, sizes);
  }
  Value bias = inputBias(b, layer);
  if (!bias)
    return product;
  AffineMap identity = b.getMultiDimIdentityMap(4), perColumn = identity.getMinorSubMap(2);
  return elementwise(b, loc, sizes, b.getF32Type(), {product, bias}, {identity, perColumn},
                     [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
                       return arith::AddFOp::create(b, loc, args[0], args[1]);
                     });
}

void appendRecurrentOperands(OpBuilder &b, const RecurrentLayer &layer, SmallVectorImpl<Value> &operands) {
  if (layer.linearBeforeReset && layer.bias) {
    int64_t hidden = layer.hiddenSize();
    operands.push_back(
        sliceAlong(b, layer.op->getLoc(), layer.bias, 1, b.getIndexAttr(5 * hidden), b.getIndexAttr(hidden)));
  }
  for (Value operand : {layer.peephole, layer.lengths, layer.initialH, layer.initialC})
    if (operand)
      operands.push_back(operand);
}

void callRecurrent(RewriterBase &b, const RecurrentLayer &layer, func::FuncOp kernel, ValueRange inputs) {
  Location loc = layer.op->getLoc();
  ReifiedRankedShapedTypeDims shapes;
  layer.reifyShapes(b, shapes);
  OpFoldResult batch = tensor::getMixedSize(b, loc, layer.input, layer.batchDim());
  SmallVector<Value> operands(inputs), inits;
  castToArguments(b, loc, kernel, operands);
  for (auto [n, argument] : llvm::enumerate(kernel.getArgumentTypes().drop_front(inputs.size()))) {
    auto type = cast<MemRefType>(argument);
    SmallVector<OpFoldResult> shape;
    if (n < shapes.size()) {
      shape = shapes[n];
    } else {
      for (int64_t size : type.getShape())
        shape.push_back(ShapedType::isDynamic(size) ? batch : OpFoldResult(b.getIndexAttr(size)));
    }
    inits.push_back(castTo(b, loc, tensor::EmptyOp::create(b, loc, shape, type.getElementType()),
                           RankedTensorType::get(type.getShape(), type.getElementType())));
  }
  KernelOp call = callKernel(b, loc, kernel, operands, inits);
  SmallVector<Value> results;
  for (auto [n, result] : llvm::enumerate(layer.op->getResults()))
    results.push_back(castTo(b, loc, call.getResult(n), result.getType()));
  b.replaceOp(layer.op, results);
}

} // namespace attn
