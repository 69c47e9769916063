#include "passes/graph/masks/RaiseEdges.h"

#include "passes/graph/Formulas.h"
#include "passes/graph/element/EdgeTable.h"
#include "passes/graph/masks/MaskMining.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;

namespace attn {
namespace {

/// Whether a comparison of entries with a number tells one edge or more of `step` each, a number above 0, from none: it
/// says of two edges what it says of one.
template <typename Compare, typename Number> bool tellsEdges(Compare compare, Number step) {
  Number bound;
  if (!matchPattern(compare.getRhs(), m_Constant(&bound)))
    return false;
  auto holds = [&](decltype(step.getValue()) entry) {
    return arith::applyCmpPredicate(compare.getPredicate(), entry, bound.getValue());
  };
  auto one = step.getValue(), none = one - one;
  return holds(none) != holds(one) && holds(one + one) == holds(one);
}

/// Whether all that is done with `table`, in which edges add up, is to tell whether there are any.
bool onlyTellsEdges(Value table, TypedAttr step) {
  return llvm::all_of(table.getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (isa<tensor::DimOp>(user))
      return true;
    if (isView(user))
      return onlyTellsEdges(user->getResult(0), step);
    auto op = dyn_cast<linalg::LinalgOp>(user);
    if (!op || !isPointwise(op) || !op.isDpsInput(&use))
      return false;
    return llvm::all_of(op.getMatchingBlockArgument(&use).getUses(), [&](OpOperand &read) {
      auto real = dyn_cast<arith::CmpFOp>(read.getOwner());
      auto integer = dyn_cast<arith::CmpIOp>(read.getOwner());
      if (read.getOperandNumber() != 0)
        return false;
      return real ? tellsEdges(real, cast<FloatAttr>(step)) : integer && tellsEdges(integer, cast<IntegerAttr>(step));
    });
  });
}

/// Puts bytes that say where edges are, and what the graph had there, in the place of `target`: the table itself, or
/// its rows where it is one row after the other.
void raise(const EdgeTable &table, Value target, RewriterBase &rewriter) {
  if (!reachesScores(target))
    return;
  rewriter.setInsertionPointAfterValue(target);
  Location loc = target.getLoc();
  auto rows = target.getDefiningOp<tensor::ExpandShapeOp>();
  SmallVector<OpFoldResult> sizes = rows ? rows.getMixedOutputShape() : table.getSizes(rewriter);
  Value none = filledTensor(rewriter, loc, sizes, rewriter.getI8IntegerAttr(0));
  Value columns = getValueOrCreateConstantIndexOp(rewriter, loc, sizes.back());
  auto mark = [&](OpBuilder &b, Location loc, ValueRange place, ValueRange carried) -> SmallVector<Value> {
    Code k(b, loc);
    SmallVector<Value> at(place);
    if (at.size() == 1) {
      // An index into no columns at all has ended the run by then.
      Index number = k.asIndex(place[0]), size = k.asIndex(arith::MaxUIOp::create(b, loc, columns, k.index(1)));
      at = {number / size, number % size};
    }
    return {tensor::InsertOp::create(b, loc, k.number(b.getI8Type(), int64_t(1)), carried.front(), at)};
  };
  Value edges = table.forEachEdge(rewriter, none, mark).front();
  AffineMap identity = rewriter.getMultiDimIdentityMap(2);
  Value entries = elementwise(
      rewriter, loc, sizes, getElementTypeOrSelf(target), edges, identity, formula([&](Code &k, ArrayRef<Num> x) {
        return select(x[0] != 0, constantOf(k, table.getMark()), constantOf(k, table.getBase()));
      }));
  target.replaceUsesWithIf(entries, [](OpOperand &use) { return !isa<tensor::DimOp>(use.getOwner()); });
}

} // namespace

void raiseEdges(Operation *root, const SymbolTable &symbols, const WeightStore *weights) {
  SmallVector<scf::ForOp> loops;
  root->walk([&](scf::ForOp loop) { loops.push_back(loop); });
  IRRewriter rewriter(root->getContext());
  for (scf::ForOp loop : loops) {
    if (loop.getNumResults() != 1)
      continue;
    Value value = loop.getResult(0);
    auto type = dyn_cast<RankedTensorType>(value.getType());
    std::optional<EdgeTable> table =
        type && type.getRank() <= 2 ? EdgeTable::match(value, symbols, weights) : std::nullopt;
    if (!table || (table->addsUp() && !onlyTellsEdges(value, table->getMark())))
      continue;
    if (type.getRank() == 2) {
      if (!table->isMarked())
        raise(*table, value, rewriter);
      continue;
    }
    SmallVector<tensor::ExpandShapeOp> rows;
    for (Operation *user : value.getUsers())
      if (auto expand = dyn_cast<tensor::ExpandShapeOp>(user); expand && expand.getResultType().getRank() == 2)
        rows.push_back(expand);
    for (tensor::ExpandShapeOp expand : rows)
      raise(*table, expand.getResult(), rewriter);
  }
}

} // namespace attn
