#include "passes/lowering/cpu/StoreScores.h"

#include "dialects/attn/ScoreKinds.h"
#include "passes/graph/Structured.h"

#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

namespace {
/// Queries that share keys from which on one product of all is faster than one each.
constexpr int64_t kLeastQueries = 16;

/// Whether each dimension of the operand is one of the attention, whole: no part of one, nor one place of its own.
bool isWhole(AffineMap map) { return llvm::all_of(map.getResults(), llvm::IsaPred<AffineDimExpr>); }

bool sharesKeys(AttentionOp op) {
  if (!op.getKey() || !getScoreFormula(op.getKind()).isProduct || getStaticSize(op, Dim::I) != 1)
    return false;
  AffineMap query = op.getQueryMap(), key = op.getKeyMap(), value = op.getValueMap();
  if (!isWhole(query) || !isWhole(key))
    return false;
  return llvm::any_of(ArrayRef<unsigned>{Dim::B, Dim::H}, [&](unsigned dim) {
    return AttentionOp::names(query, dim) && AttentionOp::names(value, dim) && !AttentionOp::names(key, dim) &&
           getStaticSize(op, dim).value_or(kLeastQueries) >= kLeastQueries;
  });
}
} // namespace

std::optional<int64_t> getStaticSize(AttentionOp op, unsigned dim) {
  bool isNamed = false;
  SmallVector<Value> values(op->getOperands());
  llvm::append_range(values, op->getResults());
  for (auto [n, value] : llvm::enumerate(values))
    for (auto [position, expr] : llvm::enumerate(op.getMap(n).getResults())) {
      if (AttentionOp::getNamedDim(expr) != dim || AttentionOp::getDivisor(expr) > 1)
        continue;
      isNamed = true;
      if (int64_t size = cast<RankedTensorType>(value.getType()).getDimSize(position); !ShapedType::isDynamic(size))
        return size;
    }
  return isNamed ? std::nullopt : std::optional<int64_t>(1);
}

AttentionOp storeSharedScores(AttentionOp op, RewriterBase &rewriter) {
  if (!sharesKeys(op))
    return op;
  rewriter.setInsertionPoint(op);
  // The loops of the contraction are the op's dimensions but that of the values, which is its last.
  static_assert(Dim::E + 1 == AttentionOp::kDims);
  SmallVector<OpFoldResult> sizes = op.getIterationSizes(rewriter, op.getLoc()), scoreSizes;
  SmallVector<AffineExpr> exprs;
  for (unsigned dim : {Dim::I, Dim::B, Dim::H, Dim::J})
    if (dim == Dim::J || AttentionOp::names(op.getQueryMap(), dim) || AttentionOp::names(op.getKeyMap(), dim)) {
      exprs.push_back(rewriter.getAffineDimExpr(dim));
      scoreSizes.push_back(sizes[dim]);
    }
  SmallVector<unsigned> loops;
  for (unsigned dim = 0; dim != Dim::E; ++dim)
    if (dim == Dim::D || llvm::is_contained(exprs, rewriter.getAffineDimExpr(dim)))
      loops.push_back(dim);
  auto renumbered = [&](ArrayRef<AffineExpr> from) {
    return AffineMap::get(loops.size(), 0,
                          llvm::map_to_vector(from,
                                              [&](AffineExpr expr) {
                                                return rewriter.getAffineDimExpr(
                                                    llvm::find(loops, *AttentionOp::getNamedDim(expr)) - loops.begin());
                                              }),
                          rewriter.getContext());
  };
  Value scores = contraction(
      rewriter, op.getLoc(), scoreSizes, getElementTypeOrSelf(op.getQuery()), op.getQuery(), op.getKey(),
      {renumbered(op.getQueryMap().getResults()), renumbered(op.getKeyMap().getResults()), renumbered(exprs)});

  AttentionParts parts = op.getParts();
  parts.kind = ScoreKind::given;
  parts.query = scores;
  parts.key = {};
  parts.maps.erase(parts.maps.begin() + 1);
  parts.maps.front() = AffineMap::get(AttentionOp::kDims, 0, exprs, rewriter.getContext());
  auto twin = AttentionOp::create(rewriter, op.getLoc(), parts);
  twin->setDiscardableAttrs(llvm::to_vector(op->getDiscardableAttrs()));
  for (auto [to, from] : llvm::zip_equal(twin->getRegions(), op->getRegions()))
    to.takeBody(from);
  rewriter.replaceOp(op, twin->getResults());
  return twin;
}

} // namespace attn
