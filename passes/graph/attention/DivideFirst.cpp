#include "passes/graph/Structured.h"
#include "passes/graph/attention/AttentionMatch.h"
#include "passes/graph/attention/Normalization.h"
#include "passes/graph/element/RowReduction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace attn {
namespace {

/// `x` / `row`, both of which are read at one point.
Value divideRows(RewriterBase &rewriter, Location loc, const Read &x, const Read &row) {
  SmallVector<AffineExpr> place;
  for (const Atoms &atoms : row.access) {
    auto *dim = llvm::find(x.access, atoms);
    if (atoms.empty() || dim == x.access.end())
      return {};
    place.push_back(rewriter.getAffineDimExpr(dim - x.access.begin()));
  }
  unsigned rank = x.access.size();
  AffineMap rowMap = AffineMap::get(rank, 0, place, rewriter.getContext());
  Type element = getElementTypeOrSelf(x.value), compute = accumulatorType(element);
  return elementwise(
      rewriter, loc, tensor::getMixedSizes(rewriter, loc, x.value), element, {x.value, row.value},
      {rewriter.getMultiDimIdentityMap(rank), rowMap}, [&](OpBuilder &b, Location loc, ValueRange args) -> Value {
        Value dividend = convertFloat(b, loc, args[0], compute), divisor = convertFloat(b, loc, args[1], compute);
        return convertFloat(b, loc, arith::DivFOp::create(b, loc, dividend, divisor), element);
      });
}

} // namespace

LogicalResult divideFirst(RewriterBase &rewriter, linalg::LinalgOp op) {
  AtomSpace space;
  std::optional<Quotient> quotient = readQuotient(op, 0, space);
  if (!quotient || quotient->numerator->get().getType() != op->getResult(0).getType() ||
      !op.getMatchingIndexingMap(quotient->numerator).isIdentity())
    return failure();
  Read product{quotient->numerator->get(), quotient->result};
  SmallVector<Operation *> views;
  while (isView(product.value.getDefiningOp())) {
    views.push_back(product.value.getDefiningOp());
    if (!product.value.hasOneUse() || !space.stepUp(product.value, product.access))
      return failure();
  }
  auto sum = product.value.getDefiningOp<linalg::LinalgOp>();
  if (!isContraction(sum) || !product.value.hasOneUse() || !isZeroFill(sum.getDpsInits()[0]))
    return failure();
  for (unsigned n : {0, 1}) {
    if (!isMultipleOfNonNegative(sum->getOperand(n)))
      continue;
    SmallVector<AffineMap> maps = sum.getIndexingMapsArray();
    SmallVector<Atoms> loops = AtomSpace::loopAtoms(sum, product.access);
    SmallVector<bool> known(sum.getNumLoops(), true);
    SmallVector<unsigned> sums;
    sum.getReductionDims(sums);
    for (unsigned loop : sums)
      known[loop] = false;
    std::optional<Access> at = nameLoops(space, sum->getOperand(n), maps[n], loops, known);
    if (!at)
      continue;
    Read x{sum->getOperand(n), *at}, row = quotient->denominator;
    std::optional<unsigned> unitDim;
    auto total = findTotal(space, row, x, unitDim);
    Atoms summed;
    for (unsigned loop : sums)
      llvm::append_range(summed, loops[loop]);
    if (!total || unitDim)
      continue;
    space.walkUp(row.value, row.access);
    Atoms keys = total->second;
    for (Atoms *atoms : {&keys, &summed}) {
      space.resolve(*atoms);
      llvm::sort(*atoms);
    }
    space.resolve(x.access);
    space.resolve(row.access);
    rewriter.setInsertionPoint(op);
    Value weights = keys == summed ? divideRows(rewriter, op.getLoc(), x, row) : Value();
    if (!weights)
      continue;
    IRMapping mapping;
    mapping.map(x.value, weights);
    Operation *last = rewriter.clone(*sum, mapping);
    for (Operation *view : llvm::reverse(views)) {
      mapping.map(view->getOperand(0), last->getResult(0));
      last = rewriter.clone(*view, mapping);
    }
    rewriter.replaceOp(op, last->getResult(0));
    return success();
  }
  return failure();
}

} // namespace attn
