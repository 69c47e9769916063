#include "dialects/attn/BlockProductOps.h"
#include "dialects/attn/DerivedGlobals.h"
#include "passes/graph/Collect.h"
#include "passes/graph/ProductReport.h"
#include "passes/graph/Structured.h"
#include "passes/lowering/gpu/ChooseGpuRows.h"
#include "passes/lowering/gpu/Float8Product.h"
#include "passes/lowering/gpu/GpuKernelCall.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {
namespace {

/// Whether `op` is a contraction onto zeros whose input number `side` is a matrix in e4m3, and why it stays, if it
/// does.
bool match(linalg::LinalgOp op, unsigned side, Float8Product &found, DequantizeBlocksOp &matrix, std::string &reason) {
  OpOperand *right = op.getDpsInputOperand(side);
  AffineMap map = op.getMatchingIndexingMap(right);
  matrix = readThroughMoves(right->get(), map).getDefiningOp<DequantizeBlocksOp>();
  if (!matrix || !matrix.getIsE4m3())
    return false;
  auto stays = [&](const Twine &text) {
    reason = text.str();
    return true;
  };
  if (!matrix.getCodes().getDefiningOp<WeightOp>())
    return stays("the matrix is no weight");
  if (StringRef obstacle = matchFloat8Product(op, side, map, found); !obstacle.empty())
    return stays(obstacle);
  int64_t axis = matrix.getAxis();
  if (cast<RankedTensorType>(matrix.getResult().getType()).getDimSize(axis) > static_cast<int64_t>(matrix.getBlock()))
    return stays("it has scales of blocks");
  SmallVector<AffineExpr> place(map.getResults());
  place[axis] = getAffineConstantExpr(0, op.getContext());
  found.scales = matrix.getScales();
  found.scaleMap = AffineMap::get(op.getNumLoops(), 0, place, op.getContext());
  if (!splatConstant(found.scales) && place[1 - axis] != getAffineDimExpr(found.column, op.getContext()))
    return stays("its scales do not lie along the columns");
  return true;
}

/// The weight as N x K of f8E4M3FN.
Value readWeight(OpBuilder &b, DerivedGlobals &globals, DequantizeBlocksOp matrix, bool isTransposed) {
  auto weight = matrix.getCodes().getDefiningOp<WeightOp>();
  Location loc = weight.getLoc();
  FlatSymbolRefAttr source = weight.getGlobalAttr();
  auto type = cast<RankedTensorType>(weight.getResult().getType());
  if (!isTransposed) {
    type = type.clone({type.getDimSize(1), type.getDimSize(0)});
    source = globals.get(source.getValue() + "_t", type, TransposeAttr::get(b.getContext(), source, {1, 0}), loc);
  }
  type = type.clone(Float8E4M3FNType::get(b.getContext()));
  source = globals.get(source.getValue() + "_e4m3", type, ReshapeAttr::get(b.getContext(), source), loc);
  return WeightOp::create(b, loc, type, source);
}

} // namespace

void chooseGpuFloat8(ModuleOp module, StringRef category) {
  SymbolTable symbols(module);
  DerivedGlobals globals(module, symbols);
  IRRewriter rewriter(module.getContext());
  for (linalg::LinalgOp op : getContractions(module)) {
    if (op->getNumResults() != 1 || !op.hasPureTensorSemantics() || !isZeroFill(op.getDpsInits()[0]))
      continue;
    Float8Product product;
    DequantizeBlocksOp matrix;
    std::string reason;
    if (!match(op, 1, product, matrix, reason) && !match(op, 0, product, matrix, reason))
      continue;
    if (!reason.empty()) {
      noteMissed(op, category, "float8", reason);
      reportProduct(module, op.getLoc(), "e4m3", "f32, dequantised", ProductVerdict::reason, reason);
      continue;
    }
    rewriter.setInsertionPoint(op);
    replaceByFloat8Product(rewriter, product, readWeight(rewriter, globals, matrix, product.isTransposed));
  }
}

} // namespace attn
