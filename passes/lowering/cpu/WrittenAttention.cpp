#include "passes/lowering/cpu/WrittenAttention.h"
#include "passes/graph/Formulas.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

static bool isIdentity(Region &region) {
  return region.empty() || cast<YieldOp>(region.front().back()).getValue() == region.front().getArgument(0);
}

/// Of given scores; captures stand behind it.
constexpr size_t kValues = 1;

bool WrittenAttention::canWrite(AttentionOp op) {
  if (op.getKey() || op.getKind() != ScoreKind::given || op.getNormalizer() != Normalizer::softmax ||
      op.getMaskedRows() != MaskedRows::nan || !op.getMask().empty() || !op.getExtraResults().empty() ||
      op.getSoftmaxType() || !isIdentity(op.getWeight()))
    return false;
  SmallVector<Value> values(op->getOperands());
  values.push_back(op.getResult());
  for (auto [n, value] : llvm::enumerate(values)) {
    // What is read at one place of a dimension: scores of a batch of one.
    bool mayBeOnePlace = n != kValues && n + 1 != values.size();
    if (!getElementTypeOrSelf(value).isF32() || !llvm::all_of(op.getMap(n).getResults(), [&](AffineExpr expr) {
          return isa<AffineDimExpr>(expr) || (mayBeOnePlace && isa<AffineConstantExpr>(expr));
        }))
      return false;
  }
  return !op.getScore().walk([](IndexOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

WrittenAttention::WrittenAttention(AttentionOp op, RewriterBase &rewriter)
    : op(op), rewriter(rewriter), loc(op.getLoc()), sizes(op.getIterationSizes(rewriter, loc)) {}

SmallVector<OpFoldResult> WrittenAttention::sizesOf(ArrayRef<unsigned> dims) {
  return llvm::map_to_vector(dims, [&](unsigned dim) { return sizes[dim]; });
}

AffineMap WrittenAttention::mapOf(ArrayRef<unsigned> dims, ArrayRef<unsigned> loops) {
  SmallVector<AffineExpr> exprs;
  for (unsigned dim : dims) {
    auto *loop = llvm::find(loops, dim);
    exprs.push_back(loop == loops.end() ? rewriter.getAffineConstantExpr(0)
                                        : rewriter.getAffineDimExpr(loop - loops.begin()));
  }
  return AffineMap::get(loops.size(), 0, exprs, rewriter.getContext());
}

AffineMap WrittenAttention::renumber(AffineMap map, ArrayRef<unsigned> loops) {
  SmallVector<AffineExpr> exprs;
  for (AffineExpr expr : map.getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    exprs.push_back(dim ? mapOf(dim.getPosition(), loops).getResult(0) : expr);
  }
  return AffineMap::get(loops.size(), 0, exprs, rewriter.getContext());
}

Value WrittenAttention::weights(ArrayRef<unsigned> dims) {
  SmallVector<Value> inputs{op.getQuery()};
  SmallVector<AffineMap> maps{renumber(op.getQueryMap(), dims)};
  for (auto [n, capture] : llvm::enumerate(op.getCaptures())) {
    inputs.push_back(capture);
    maps.push_back(renumber(op.getCaptureMap(n), dims));
  }
  Value scores = elementwise(rewriter, loc, sizesOf(dims), rewriter.getF32Type(), inputs, maps,
                             [&](OpBuilder &b, Location, ValueRange args) {
                               IRMapping mapping;
                               Block &body = op.getScore().front();
                               mapping.map(body.getArguments(), args);
                               for (Operation &inner : body.without_terminator())
                                 b.clone(inner, mapping);
                               return mapping.lookupOrDefault(cast<YieldOp>(body.back()).getValue());
                             });
  return SoftmaxOp::create(rewriter, loc, scores.getType(), scores, llvm::find(dims, Dim::J) - dims.begin(), false);
}

Value WrittenAttention::sum(Value weights, ArrayRef<unsigned> dims, Value values, AffineMap valueMap, Value init,
                            ArrayRef<unsigned> loops) {
  return reduction(rewriter, loc, {weights, values}, {mapOf(dims, loops), valueMap}, init,
                   mapOf(loops.drop_back(), loops), formula([](ArrayRef<Num> x) { return x[2] + x[0] * x[1]; }));
}

} // namespace attn
