#include "passes/lowering/cpu/SpreadBatch.h"

#include "passes/graph/Structured.h"
#include "passes/lowering/cpu/StoreScores.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

namespace {
/// Scores of a batch up to which its own rows are too short, and batches from which on they fill registers.
constexpr int64_t kMostScores = 512, kLeastBatches = 32;

bool isIdentity(Region &region) {
  return region.empty() || cast<YieldOp>(region.front().back()).getValue() == region.front().getArgument(0);
}

/// The batch dimension that stands innermost in values and result of a softmax over few scores, with nothing beside it.
std::optional<unsigned> findSpread(AttentionOp op) {
  if (op.getKey() || op.getKind() != ScoreKind::given || op.getNormalizer() != Normalizer::softmax ||
      op.getMaskedRows() != MaskedRows::nan || !op.getMask().empty() || !op.getCaptures().empty() ||
      !op.getExtraResults().empty() || op.getSoftmaxType() || !isIdentity(op.getWeight()))
    return std::nullopt;
  std::optional<int64_t> queries = getStaticSize(op, Dim::I), keys = getStaticSize(op, Dim::J);
  if (!queries || !keys || *queries > kMostScores || *keys > kMostScores / std::max<int64_t>(*queries, 1))
    return std::nullopt;
  for (unsigned n : {0, 1, 2})
    if (!llvm::all_of(op.getMap(n).getResults(), llvm::IsaPred<AffineDimExpr>) ||
        !getElementTypeOrSelf(n == 2 ? op.getResult() : op->getOperand(n)).isF32())
      return std::nullopt;
  std::optional<unsigned> last = findInnermost(op, op.getValueMap());
  bool isSpread = last && (*last == Dim::B || *last == Dim::H) && findInnermost(op, op.getResultMap()) == last &&
                  AttentionOp::names(op.getQueryMap(), *last) && AttentionOp::names(op.getQueryMap(), Dim::J) &&
                  AttentionOp::names(op.getValueMap(), Dim::J) &&
                  getStaticSize(op, *last).value_or(kLeastBatches) >= kLeastBatches;
  bool isNumbered = op.getScore().walk([](IndexOp) { return WalkResult::interrupt(); }).wasInterrupted();
  return isSpread && !isNumbered ? last : std::nullopt;
}
} // namespace

std::optional<unsigned> findInnermost(AttentionOp op, AffineMap map) {
  for (int64_t n = map.getNumResults(); n-- > 0;) {
    std::optional<unsigned> dim = AttentionOp::getNamedDim(map.getResult(n));
    if (dim && getStaticSize(op, *dim) != 1)
      return dim;
  }
  return std::nullopt;
}

bool spreadBatch(AttentionOp op, RewriterBase &rewriter) {
  std::optional<unsigned> last = findSpread(op);
  if (!last)
    return false;
  rewriter.setInsertionPoint(op);
  Location loc = op.getLoc();
  SmallVector<OpFoldResult> sizes = op.getIterationSizes(rewriter, loc);
  // `map` from loops that stand for these dimensions of the attention.
  auto renumber = [&](AffineMap map, ArrayRef<unsigned> loops) {
    SmallVector<AffineExpr> exprs;
    for (AffineExpr expr : map.getResults())
      exprs.push_back(
          rewriter.getAffineDimExpr(llvm::find(loops, cast<AffineDimExpr>(expr).getPosition()) - loops.begin()));
    return AffineMap::get(loops.size(), 0, exprs, rewriter.getContext());
  };
  auto mapOf = [&](ArrayRef<unsigned> dims) {
    SmallVector<AffineExpr> exprs;
    for (unsigned dim : dims)
      exprs.push_back(rewriter.getAffineDimExpr(dim));
    return AffineMap::get(AttentionOp::kDims, 0, exprs, rewriter.getContext());
  };
  auto pick = [&](ArrayRef<unsigned> dims) {
    return llvm::map_to_vector(dims, [&](unsigned dim) { return sizes[dim]; });
  };

  SmallVector<unsigned> rows;
  for (unsigned dim : {Dim::B, Dim::H, Dim::I, Dim::J})
    if (dim != *last && AttentionOp::names(op.getQueryMap(), dim))
      rows.push_back(dim);
  rows.push_back(*last);
  Type element = rewriter.getF32Type();
  Value scores = elementwise(rewriter, loc, pick(rows), element, op.getQuery(), renumber(op.getQueryMap(), rows),
                             [&](OpBuilder &b, Location, ValueRange args) {
                               IRMapping mapping;
                               Block &body = op.getScore().front();
                               mapping.map(body.getArgument(0), args.front());
                               for (Operation &inner : body.without_terminator())
                                 b.clone(inner, mapping);
                               return mapping.lookupOrDefault(cast<YieldOp>(body.back()).getValue());
                             });
  Value weights =
      SoftmaxOp::create(rewriter, loc, scores.getType(), scores, llvm::find(rows, Dim::J) - rows.begin(), false);

  SmallVector<unsigned> loops, results;
  for (AffineExpr expr : op.getResultMap().getResults())
    results.push_back(cast<AffineDimExpr>(expr).getPosition());
  loops = results;
  loops.push_back(Dim::J);
  Value sum = reduction(rewriter, loc, {weights, op.getValue()},
                        {renumber(mapOf(rows), loops), renumber(op.getValueMap(), loops)},
                        filledTensor(rewriter, loc, pick(results), element, 0), renumber(op.getResultMap(), loops),
                        [](OpBuilder &b, Location loc, ValueRange args) -> Value {
                          Value product = arith::MulFOp::create(b, loc, args[0], args[1]);
                          return arith::AddFOp::create(b, loc, args[2], product);
                        });
  if (sum.getType() != op.getResult().getType())
    sum = tensor::CastOp::create(rewriter, loc, op.getResult().getType(), sum);
  rewriter.replaceOp(op, sum);
  return true;
}

} // namespace attn
