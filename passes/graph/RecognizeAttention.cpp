#include "dialects/attn/NodeLocation.h"
#include "passes/Passes.h"
#include "passes/graph/AssumeRequired.h"
#include "passes/graph/AttentionMatch.h"
#include "passes/graph/MaskMining.h"
#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_RECOGNIZEATTENTIONPASS
#include "passes/Passes.h.inc"

namespace {

/// Whether a body multiplies what it reads by what it reads elsewhere.
bool multiplies(linalg::LinalgOp op) {
  auto varies = [](Value value) { return !value.getDefiningOp<arith::ConstantOp>(); };
  return op.getNumDpsInputs() > 1 && op.getBlock() &&
         llvm::any_of(op.getBlock()->getOps<arith::MulFOp>(),
                      [&](arith::MulFOp product) { return varies(product.getLhs()) && varies(product.getRhs()); });
}

/// Whether a sum over some dimension reads `value`, through views and changes
/// of the float type at most.
bool isSummed(Value value) {
  SmallVector<Value> front{value};
  DenseSet<Value> seen;
  while (!front.empty()) {
    Value next = front.pop_back_val();
    if (!seen.insert(next).second)
      continue;
    for (Operation *user : next.getUsers()) {
      if (getReduction(user) == Combiner::sum)
        return true;
      bool converts = isPointwise(user) && llvm::all_of(user->getRegion(0).front().without_terminator(),
                                                        llvm::IsaPred<arith::ExtFOp, arith::TruncFOp>);
      if (isView(user) || converts)
        front.push_back(user->getResult(0));
    }
  }
  return false;
}

/// What a softmax is whose weights reach no contraction through elementwise ops
/// and views: a miss if they reach one in another way, a gate over features if
/// they are multiplied by values, otherwise a classifier.
Miss whyNotContracted(SoftmaxOp softmax) {
  SmallVector<Value> front{softmax.getResult()};
  DenseSet<Value> seen;
  bool gates = false;
  std::optional<Location> between;
  while (!front.empty()) {
    Value value = front.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    for (Operation *user : value.getUsers()) {
      if (isContraction(user))
        return {"an operation that is not elementwise stands between the softmax and the weighted sum",
                between.value_or(user->getLoc())};
      if (auto op = dyn_cast<linalg::LinalgOp>(user); op && isPointwise(user) && multiplies(op)) {
        if (isSummed(user->getResult(0)))
          return {"the weighted sum is a product and a sum that were not joined", user->getLoc()};
        gates = true;
        continue;
      }
      if (!between && !isView(user) && !isPointwise(user))
        between = user->getLoc();
      if (isMemoryEffectFree(user)) // numbers only: what an index selects is not weighted
        llvm::copy_if(user->getResults(), std::back_inserter(front),
                      [](Value result) { return isa<FloatType>(getElementTypeOrSelf(result)); });
    }
  }
  return {gates ? "no contraction: its weights multiply values, and are not summed over them"
                : "not an attention: its result is not contracted",
          softmax.getLoc()};
}

struct RecognizeAttentionPass : impl::RecognizeAttentionPassBase<RecognizeAttentionPass> {
  void runOnOperation() override {
    assumeRequiredSizes(getOperation());
    SmallVector<AttentionOp> present;
    SmallVector<SoftmaxOp> softmaxes;
    getOperation().walk([&](Operation *op) {
      if (auto attention = dyn_cast<AttentionOp>(op))
        present.push_back(attention);
      else if (auto softmax = dyn_cast<SoftmaxOp>(op))
        softmaxes.push_back(softmax);
    });
    for (AttentionOp op : present)
      addFused(op, op.getLoc(), {"", op.getLoc()});
    for (SoftmaxOp softmax : softmaxes)
      visit(softmax);
    SmallVector<Attribute> report(verdicts);
    // A pass that runs twice adds to what it said before.
    if (auto before = getOperation()->getAttrOfType<ArrayAttr>(AttnDialect::kFusionReportAttr))
      report.insert(report.begin(), before.begin(), before.end());
    getOperation()->setAttr(AttnDialect::kFusionReportAttr, ArrayAttr::get(&getContext(), report));
  }

private:
  void visit(SoftmaxOp softmax) {
    IRRewriter rewriter(&getContext());
    SmallVector<OpOperand *> sums = findWeightedSums(softmax);
    if (sums.empty())
      return addMissed(softmax, "none", whyNotContracted(softmax));
    std::optional<Miss> first;
    std::optional<Miss> stored;
    AttentionOp fused;
    for (OpOperand *weights : sums) {
      Miss miss{"", softmax.getLoc()};
      FailureOr<AttentionOp> op = failure();
      // Why not the best source, whose scores would not be stored: a dot product if there is one.
      std::optional<Miss> better;
      bool sawDot = false;
      for (const ScoreSource &source : findScoreSources(softmax))
        for (bool wholeCaptures : {false, true}) {
          if (succeeded(op))
            break;
          FailureOr<AttentionMatch> match = matchAttention(softmax, *weights, source, wholeCaptures, miss);
          if (succeeded(match))
            op = buildAttention(rewriter, *match, miss);
          bool isDot = source.kind == ScoreKind::dot;
          if (failed(op) && (!better || (isDot && !sawDot)))
            better = miss;
          sawDot |= isDot;
        }
      if (failed(op)) {
        if (!first)
          first = better.value_or(miss);
        continue;
      }
      simplifyRegions(rewriter, *op);
      (*op)->setLoc(softmax.getLoc()); // what later verdicts and diagnostics name
      fused = *op;
      stored = op->getKind() == ScoreKind::given ? better : std::nullopt;
    }
    if (!fused)
      return addMissed(softmax, "missed", *first);
    // What replaces the score matrix is dead unless the weights are used elsewhere too.
    DenseSet<Operation *> seen;
    Miss note{"", softmax.getLoc()};
    if (stored)
      note = {"its scores are stored before: " + stored->reason, stored->location};
    if (isLive(softmax, seen))
      note.reason += (note.reason.empty() ? "" : "; ") +
                     std::string("its weights are used elsewhere too, where they are computed again");
    addFused(fused, softmax.getLoc(), note);
  }

  /// Whether a result of `op` reaches an op that has an effect or ends a block.
  static bool isLive(Operation *op, DenseSet<Operation *> &seen) {
    if (!isMemoryEffectFree(op) || op->hasTrait<OpTrait::IsTerminator>())
      return true;
    if (!seen.insert(op).second)
      return false;
    return llvm::any_of(op->getUsers(), [&](Operation *user) { return isLive(user, seen); });
  }

  void add(Location softmax, bool fused, StringRef kind, StringRef mask, StringRef reason, StringRef reasonNode) {
    Builder b(&getContext());
    verdicts.push_back(b.getDictionaryAttr({
        b.getNamedAttr("node", b.getStringAttr(nodeName(softmax))),
        b.getNamedAttr("fused", b.getBoolAttr(fused)),
        b.getNamedAttr("kind", b.getStringAttr(kind)),
        b.getNamedAttr("mask", b.getStringAttr(mask)),
        b.getNamedAttr("reason", b.getStringAttr(reason)),
        b.getNamedAttr("reason_node", b.getStringAttr(reasonNode)),
    }));
  }

  void addFused(AttentionOp op, Location softmax, const Miss &note) {
    std::string mask = nameMask(op);
    add(softmax, true, stringifyScoreKind(op.getKind()), mask, note.reason,
        note.reason.empty() ? "" : nodeName(note.location));
    remark::passed(softmax, remark::RemarkOpts::name("Attention").category("attn-recognize-attention"))
        << "fused into one attention, mask: " << mask;
  }

  void addMissed(SoftmaxOp softmax, StringRef kind, const Miss &miss) {
    add(softmax.getLoc(), false, kind, "", miss.reason, nodeName(miss.location));
    remark::missed(softmax.getLoc(), remark::RemarkOpts::name("Attention").category("attn-recognize-attention"))
        << "not fused: " << miss.reason;
  }

  SmallVector<Attribute> verdicts;
};

} // namespace
} // namespace attn
