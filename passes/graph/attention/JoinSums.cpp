#include "passes/graph/attention/RaiseContraction.h"

#include "passes/graph/Structured.h"
#include "passes/graph/attention/JoinParts.h"
#include "passes/graph/element/Access.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace attn {
namespace {

/// A sum of `values` weighed by the keys of `softmax` from `offset` on. The maps are from the dimensions of the result,
/// and the key behind them.
struct PartialSum {
  SoftmaxOp softmax;
  Value values;
  AffineMap weightMap, valueMap;
  int64_t offset, size;
};

/// The weights of some keys, and all other dimensions of the softmax.
bool readSlice(Value weights, PartialSum &term) {
  auto slice = weights.getDefiningOp<tensor::ExtractSliceOp>();
  term.softmax = slice ? slice.getSource().getDefiningOp<SoftmaxOp>() : SoftmaxOp();
  if (!term.softmax || slice.getType().getRank() != slice.getSourceType().getRank() ||
      !isWholeBeside(slice, slice.getSource(), term.softmax.getDim()))
    return false;
  std::optional<int64_t> offset = getConstantIntValue(slice.getMixedOffsets()[term.softmax.getDim()]);
  std::optional<int64_t> size = getConstantIntValue(slice.getMixedSizes()[term.softmax.getDim()]);
  if (!offset || !size)
    return false;
  term.offset = *offset;
  term.size = *size;
  return true;
}

std::optional<PartialSum> readTerm(Value value) {
  auto op = value.getDefiningOp<linalg::ContractOp>();
  if (!op || !op->hasOneUse() || !isContraction(op) || !isZeroFill(op.getDpsInits()[0]))
    return std::nullopt;
  std::optional<unsigned> key = onlyReducedLoop(op);
  if (!key)
    return std::nullopt;
  // The loops in the order of the result, and the key.
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  unsigned rank = maps[2].getNumResults();
  AffineExpr keyDim = getAffineDimExpr(*key, op.getContext());
  AffineMap renamed = inversePermutation(maps[2].insertResult(keyDim, rank));
  for (unsigned side : {0, 1}) {
    PartialSum term;
    if (!readSlice(op->getOperand(side), term))
      continue;
    term.values = op->getOperand(1 - side);
    term.weightMap = maps[side].compose(renamed);
    term.valueMap = maps[1 - side].compose(renamed);
    // The sum runs over what the softmax runs over.
    if (maps[side].getResult(term.softmax.getDim()) == keyDim && term.valueMap.isFunctionOfDim(rank))
      return term;
  }
  return std::nullopt;
}

/// The terms of `op` as an elementwise sum, in the order of their keys; none where it is another thing.
SmallVector<PartialSum> readPartialSums(linalg::LinalgOp op) {
  SmallVector<PartialSum> terms;
  bool fails = worklist(Values{op->getResult(0)}, [&](Value next, Values &list) {
    if (std::optional<PartialSum> term = readTerm(next)) {
      terms.push_back(*term);
      return false;
    }
    auto sum = next.getDefiningOp<linalg::LinalgOp>();
    if (!sum || !isPointwise(sum) || (sum != op && !sum->hasOneUse()) ||
        !llvm::all_of(sum.getIndexingMapsArray(), [](AffineMap map) { return map.isIdentity(); }))
      return true;
    // Each input is added once.
    Block *body = sum.getBlock();
    if (int64_t(body->getOperations().size()) != sum.getNumDpsInputs() ||
        !llvm::all_of(body->without_terminator(), llvm::IsaPred<arith::AddFOp>))
      return true;
    for (OpOperand *input : sum.getDpsInputOperands()) {
      if (!sum.getMatchingBlockArgument(input).hasOneUse() || input->get().getType() != op->getResult(0).getType())
        return true;
      list.push_back(input->get());
    }
    return false;
  });
  if (fails || terms.size() < 2)
    return {};
  llvm::sort(terms, [](const PartialSum &x, const PartialSum &y) { return x.offset < y.offset; });
  int64_t end = 0;
  for (const PartialSum &term : terms) {
    if (term.softmax != terms.front().softmax || term.weightMap != terms.front().weightMap || term.offset != end ||
        getElementTypeOrSelf(term.values) != getElementTypeOrSelf(terms.front().values))
      return {};
    end += term.size;
  }
  SoftmaxOp softmax = terms.front().softmax;
  return end == softmax.getType().getDimSize(softmax.getDim()) ? terms : SmallVector<PartialSum>();
}

} // namespace

bool joinSums(RewriterBase &b, linalg::LinalgOp op) {
  if (!isPointwise(op) || !isa<RankedTensorType>(op->getResult(0).getType()))
    return false;
  SmallVector<PartialSum> terms = readPartialSums(op);
  if (terms.empty())
    return false;
  b.setInsertionPoint(op);
  Location loc = op.getLoc();
  SoftmaxOp softmax = terms.front().softmax;
  unsigned rank = cast<RankedTensorType>(op->getResult(0).getType()).getRank();
  // Dimensions of the joined values: what the weights share with them, the key, and the width.
  SmallVector<AffineExpr> order;
  AffineMap weightMap = terms.front().weightMap;
  for (unsigned dim = 0; dim != rank; ++dim)
    if (weightMap.isFunctionOfDim(dim))
      order.push_back(b.getAffineDimExpr(dim));
  unsigned key = order.size();
  order.push_back(b.getAffineDimExpr(rank));
  for (unsigned dim = 0; dim != rank; ++dim)
    if (!weightMap.isFunctionOfDim(dim))
      order.push_back(b.getAffineDimExpr(dim));
  SmallVector<AffineExpr> places(rank + 1);
  for (auto [n, dim] : llvm::enumerate(order))
    places[cast<AffineDimExpr>(dim).getPosition()] = b.getAffineDimExpr(n);
  SmallVector<OpFoldResult> outer = tensor::getMixedSizes(b, loc, op.getDpsInits()[0]), sizes;
  int64_t numKeys = softmax.getType().getDimSize(softmax.getDim());
  for (AffineExpr dim : order) {
    unsigned at = cast<AffineDimExpr>(dim).getPosition();
    sizes.push_back(at == rank ? OpFoldResult(b.getIndexAttr(numKeys)) : outer[at]);
  }
  PartsJoiner joiner(sizes, key);
  std::optional<JoinedParts> joined = joiner.matchOperand(llvm::map_to_vector(terms, [&](const PartialSum &term) {
    return Part{term.values, term.valueMap.replaceDimsAndSymbols(places, {}, rank + 2, 0), term.size};
  }));
  if (!joined)
    return false;
  Part values = joiner.write(b, loc, *joined);
  order.push_back(b.getAffineConstantExpr(0)); // nothing is summed here
  AffineMap valueMap = values.map.replaceDimsAndSymbols(order, {}, rank + 1, 0);
  AffineMap written = b.getMultiDimIdentityMap(rank + 1).dropResult(rank);
  Type type = op->getResult(0).getType();
  Value whole = contraction(b, loc, outer, getElementTypeOrSelf(type), softmax.getResult(), values.value,
                            {weightMap, valueMap, written});
  remark::passed(loc, remark::RemarkOpts::name("Contraction").category("attn-raise-contraction"))
      << "sums weighted by parts of a softmax are one";
  b.replaceOp(op, castTo(b, loc, whole, type));
  return true;
}

} // namespace attn
