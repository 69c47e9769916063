#include "passes/lowering/gpu/Float8Product.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {

/// The elementwise op that alone reads `value` takes in what makes it.
static void fuseIntoReader(RewriterBase &rewriter, Value value) {
  if (!value.hasOneUse())
    return;
  OpOperand &use = *value.use_begin();
  auto reader = dyn_cast<linalg::GenericOp>(use.getOwner());
  if (!reader || !isPointwise(reader) || !linalg::areElementwiseOpsFusable(&use))
    return;
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(reader);
  FailureOr<linalg::ElementwiseOpFusionResult> fused = linalg::fuseElementwiseOps(rewriter, &use);
  if (failed(fused))
    return;
  for (auto [given, made] : fused->replacements)
    if (given.getDefiningOp() == reader)
      rewriter.replaceAllUsesWith(given, made);
  rewriter.eraseOp(reader);
  rewriter.eraseOp(value.getDefiningOp());
}

Value readThroughMoves(Value value, AffineMap &map) {
  while (auto view = value.getDefiningOp<linalg::LinalgOp>()) {
    OpOperand *moved = getMovedInput(view);
    if (!moved)
      break;
    AffineMap result = view.getMatchingIndexingMap(view.getDpsInitOperand(0));
    map = view.getMatchingIndexingMap(moved).compose(inversePermutation(result).compose(map));
    value = moved->get();
  }
  return value;
}

StringRef matchFloat8Product(linalg::LinalgOp op, unsigned side, AffineMap map, Float8Product &product) {
  product.op = op, product.left = op.getDpsInputOperand(1 - side);
  AffineMap left = op.getMatchingIndexingMap(product.left), result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  if (map.getNumResults() != 2 || !llvm::all_of(map.getResults(), llvm::IsaPred<AffineDimExpr>) ||
      map.getResult(0) == map.getResult(1))
    return "the weight is no matrix";
  AffineExpr column = map.getResult(0), sum = map.getResult(1);
  product.isTransposed = result.getResultPosition(column).has_value();
  if (!product.isTransposed)
    std::swap(column, sum);
  if (!result.getResultPosition(column) || result.getResultPosition(sum) || left.getResultPosition(column) ||
      op.getNumReductionLoops() != 1)
    return "the sum does not run along one dimension of the weight";
  product.column = cast<AffineDimExpr>(column).getPosition(), product.sum = cast<AffineDimExpr>(sum).getPosition();
  Type element = getElementTypeOrSelf(product.left->get());
  if ((!element.isF32() && !element.isF16() && !element.isBF16()) || !getElementTypeOrSelf(op->getResult(0)).isF32())
    return "it is not summed in f32, of f32, f16 or bf16";
  return "";
}

void replaceByFloat8Product(RewriterBase &b, const Float8Product &product, Value weight) {
  linalg::LinalgOp op = product.op;
  Location loc = op.getLoc();
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(op);
  auto dim = [&](unsigned n) { return b.getAffineDimExpr(n); };
  AffineMap left = op.getMatchingIndexingMap(product.left),
            right = AffineMap::get(op.getNumLoops(), 0, {dim(product.column), dim(product.sum)}, b.getContext()),
            result = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  Type type = op->getResult(0).getType(), f32 = b.getF32Type();
  Value sums = linalg::ContractOp::create(b, loc, TypeRange(type), ValueRange{product.left->get(), weight},
                                          ValueRange(op.getDpsInits()), b.getAffineMapArrayAttr({left, right, result}))
                   .getResult(0);
  unsigned rank = result.getNumResults();
  SmallVector<Value> inputs = {sums};
  SmallVector<AffineMap> maps = {b.getMultiDimIdentityMap(rank)};
  auto constant = dyn_cast_or_null<FloatAttr>(splatConstant(product.scales));
  if (!constant) {
    AffineExpr column = dim(*result.getResultPosition(dim(product.column)));
    inputs.push_back(product.scales);
    maps.push_back(product.scaleMap.replace(dim(product.column), column, rank, 0));
  }
  auto scale = [&](OpBuilder &b, Location loc, ValueRange parts) -> Value {
    Value factor =
        constant ? floatConstant(b, loc, f32, constant.getValueAsDouble()) : convertFloat(b, loc, parts[1], f32);
    return arith::MulFOp::create(b, loc, parts[0], factor);
  };
  Value scaled = elementwise(b, loc, tensor::getMixedSizes(b, loc, sums), f32, inputs, maps, scale);
  bool isCast = scaled.getType() != type;
  b.replaceOp(op, isCast ? tensor::CastOp::create(b, loc, type, scaled).getResult() : scaled);
  if (!isCast)
    fuseIntoReader(b, scaled);
}

} // namespace attn
