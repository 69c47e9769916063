#include "passes/graph/Formulas.h"
#include "passes/graph/attention/Normalization.h"
#include "passes/graph/element/Rows.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace attn {
namespace {

/// `x` / `row`, elements of two tensors.
Value divideRows(RewriterBase &rewriter, Location loc, const Element &x, const Element &row) {
  SmallVector<AffineExpr> place;
  for (AffineExpr expr : row.at.getResults()) {
    auto *dim = llvm::find(x.at.getResults(), expr);
    if (dim == x.at.getResults().end())
      return {};
    place.push_back(rewriter.getAffineDimExpr(dim - x.at.getResults().begin()));
  }
  unsigned rank = x.at.getNumResults();
  AffineMap rowMap = AffineMap::get(rank, 0, place, rewriter.getContext());
  Type element = getElementTypeOrSelf(x.value), compute = accumulatorType(element);
  return elementwise(rewriter, loc, tensor::getMixedSizes(rewriter, loc, x.value), element, {x.value, row.value},
                     {rewriter.getMultiDimIdentityMap(rank), rowMap}, formula([&](ArrayRef<Num> x) {
                       return convert(convert(x[0], compute) / convert(x[1], compute), element);
                     }));
}

} // namespace

LogicalResult divideFirst(RewriterBase &rewriter, linalg::LinalgOp op) {
  RowReader rows(op->getResult(0));
  std::optional<Quotient> quotient = rows.quotient(0);
  if (!quotient || !rows.isWhole(quotient->numerator))
    return failure();
  SmallVector<Operation *> views;
  Element product = rows.throughViews(quotient->numerator, &views);
  auto sum = product.value.getDefiningOp<linalg::LinalgOp>();
  if (!isContraction(sum) || !product.value.hasOneUse() || !isZeroFill(sum.getDpsInits()[0]) ||
      !llvm::all_of(views, [](Operation *view) { return view->hasOneUse(); }))
    return failure();
  SmallVector<unsigned> loops;
  sum.getReductionDims(loops);
  Places summed;
  for (unsigned loop : loops)
    summed.push_back(rows.inner({sum, loop, product.at}));
  summed = rows.parts(summed);
  Element row = rows.throughViews(quotient->denominator);
  SmallVector<Element> factors = rows.sources(product);
  for (auto [n, x] : llvm::enumerate(factors)) {
    std::optional<Total> total = isMultipleOfNonNegative(x.value) ? rows.total(row, x) : std::nullopt;
    if (!total || total->keys.size() != summed.size() ||
        !std::is_permutation(summed.begin(), summed.end(), total->keys.begin()))
      continue;
    rewriter.setInsertionPoint(op);
    Value weights = divideRows(rewriter, op.getLoc(), x, row);
    if (!weights)
      continue;
    IRMapping mapping;
    mapping.map(x.value, weights);
    Value divided = rewriter.clone(*sum, mapping)->getResult(0);
    rewriter.replaceOp(op, viewAgain(rewriter, views, product.value, divided));
    return success();
  }
  return failure();
}

} // namespace attn
