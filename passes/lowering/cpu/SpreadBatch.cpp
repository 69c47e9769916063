#include "passes/lowering/cpu/SpreadBatch.h"

#include "passes/graph/Structured.h"
#include "passes/lowering/cpu/StoreScores.h"
#include "passes/lowering/cpu/WrittenAttention.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

namespace {
/// Scores of a batch up to which its own rows are too short, and batches from which on they fill registers.
constexpr int64_t kMostScores = 512, kLeastBatches = 32;

/// The batch dimension that stands innermost in values and result of a softmax over few scores, with nothing beside it.
std::optional<unsigned> findSpread(AttentionOp op) {
  if (!WrittenAttention::canWrite(op) || !op.getCaptures().empty())
    return std::nullopt;
  std::optional<int64_t> queries = getStaticSize(op, Dim::I), keys = getStaticSize(op, Dim::J);
  if (!queries || !keys || *queries > kMostScores || *keys > kMostScores / std::max<int64_t>(*queries, 1))
    return std::nullopt;
  std::optional<unsigned> last = findInnermost(op, op.getValueMap());
  bool isSpread = last && (*last == Dim::B || *last == Dim::H) && findInnermost(op, op.getResultMap()) == last &&
                  AttentionOp::names(op.getQueryMap(), *last) && AttentionOp::names(op.getQueryMap(), Dim::J) &&
                  AttentionOp::names(op.getValueMap(), Dim::J) &&
                  getStaticSize(op, *last).value_or(kLeastBatches) >= kLeastBatches;
  return isSpread ? last : std::nullopt;
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
  WrittenAttention written(op, rewriter);
  SmallVector<unsigned> rows, results;
  for (unsigned dim : {Dim::B, Dim::H, Dim::I, Dim::J})
    if (dim != *last && AttentionOp::names(op.getQueryMap(), dim))
      rows.push_back(dim);
  rows.push_back(*last);
  for (AffineExpr expr : op.getResultMap().getResults())
    results.push_back(cast<AffineDimExpr>(expr).getPosition());
  SmallVector<unsigned> loops(results);
  loops.push_back(Dim::J);
  Location loc = op.getLoc();
  Value zero = filledTensor(rewriter, loc, written.sizesOf(results), rewriter.getF32Type(), 0);
  Value sum =
      written.sum(written.weights(rows), rows, op.getValue(), written.renumber(op.getValueMap(), loops), zero, loops);
  rewriter.replaceOp(op, castTo(rewriter, loc, sum, op.getResult().getType()));
  return true;
}

} // namespace attn
