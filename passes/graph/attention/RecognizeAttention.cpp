#include "dialects/attn/BroadcastForm.h"
#include "dialects/attn/NodeLocation.h"
#include "passes/Passes.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/Structured.h"
#include "passes/graph/attention/AttentionMatch.h"
#include "passes/graph/attention/AttentionSink.h"
#include "passes/graph/attention/SegmentMatch.h"
#include "passes/graph/attention/Unfused.h"
#include "passes/graph/element/AssumeRequired.h"
#include "passes/graph/masks/MaskMining.h"
#include "passes/graph/masks/SimplifyRegions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_RECOGNIZEATTENTIONPASS
#include "passes/Passes.h.inc"

namespace {

/// Whether elementwise ops make the weights of a gate from the scores, and from what ops other than
/// sums and maxima of rows, which normalisers have, make of the scores.
bool dependsOnRow(const Normalization &gate) {
  Values scores, others;
  worklist(Values{gate.result}, [&](Value value, Values &list) {
    Operation *op = value.getDefiningOp();
    if (isContraction(op))
      scores.push_back(value);
    else if (isPerElement(op))
      llvm::append_range(list, op->getOperands());
    else if (op && !getReduction(op))
      others.push_back(value);
    return false;
  });
  return llvm::any_of(others, [&](Value other) {
    return llvm::any_of(scores, [&](Value score) { return isComputedFrom(other, score); });
  });
}

/// Whether each row of `softmax` has one score only, of which no mask can make another weight.
bool isOverOne(const Normalization &softmax) {
  return softmax.kind == Normalizer::softmax && !softmax.sink && !softmax.sinkScore &&
         cast<RankedTensorType>(softmax.result.getType()).getDimSize(softmax.dim) == 1;
}

struct RecognizeAttentionPass : impl::RecognizeAttentionPassBase<RecognizeAttentionPass> {
  RecognizeAttentionPass() = default;
  RecognizeAttentionPass(bool listsEdges) : listsEdges(listsEdges) {}

  void runOnOperation() override {
    assumeRequiredSizes(getOperation());
    for (AttentionOp op : collect<AttentionOp>())
      addFused(op, op.getLoc(), {"", op.getLoc()});
    // What is divided by its own sum, first: its terms may come from a softmax over another dimension.
    for (linalg::LinalgOp op : collect<linalg::LinalgOp>())
      if (std::optional<Normalization> sum = findSumNormalization(op))
        visit(*sum);
    SmallVector<SoftmaxOp> softmaxes = collect<SoftmaxOp>();
    findLinearAttention(softmaxes);
    for (SoftmaxOp softmax : softmaxes) {
      std::optional<Normalization> sink = findSink(softmax);
      visit(sink ? *sink : Normalization(softmax));
    }
    for (linalg::LinalgOp op : collect<linalg::LinalgOp>()) {
      OpOperand *gate = judged.contains(op) ? nullptr : findGate(op);
      if (gate)
        visit(Normalization(Normalizer::none, gate->get(), gate->get(), 0), gate);
    }
    fuseSegments();
    SmallVector<Attribute> report(verdicts);
    // A pass that runs twice adds to what it said before.
    if (auto before = getOperation()->getAttrOfType<ArrayAttr>(AttnDialect::kFusionReportAttr))
      report.insert(report.begin(), before.begin(), before.end());
    getOperation()->setAttr(AttnDialect::kFusionReportAttr, ArrayAttr::get(&getContext(), report));
  }

private:
  /// The ops of one kind, after those without use are gone.
  template <typename Op> SmallVector<Op> collect() {
    IRRewriter rewriter(&getContext());
    // A loop keeps alive what it reads, until it is gone itself.
    for (auto function : getOperation().getOps<FunctionOpInterface>())
      while (succeeded(runRegionDCE(rewriter, function->getRegions()))) {
      }
    SmallVector<Op> ops;
    getOperation().walk([&](Op op) { ops.push_back(op); });
    return ops;
  }

  /// Softmaxes over the edges of each node, by scatters.
  void fuseSegments() {
    SegmentLists lists;
    DenseMap<Operation *, Miss> misses;
    DenseSet<Operation *> divided; ///< quotients of sums, of which one is that of the weights
    for (scf::ForOp loops : collect<scf::ForOp>()) {
      linalg::LinalgOp softmax;
      Miss miss{"", loops.getLoc()};
      std::optional<SegmentMatch> match = matchSegmentAttention(loops, softmax, miss);
      if (match && listsEdges) {
        IRRewriter rewriter(&getContext());
        addFusedSegments(buildSegmentAttention(rewriter, *match, lists), loops);
      } else if (softmax) {
        misses.insert({softmax, match ? Miss{"no kernel for GPUs goes by lists of edges", softmax.getLoc()} : miss});
        if (llvm::is_contained(softmax->getOperands(), loops.getResult(0)))
          divided.insert(softmax);
      }
    }
    for (linalg::LinalgOp op : collect<linalg::LinalgOp>()) {
      if (!isSegmentSoftmax(op) && !divided.contains(op))
        continue;
      auto miss = misses.find(op);
      std::string reason = "a softmax over the edges of each node, by scatters";
      reason += ": " + (miss == misses.end() ? "no loops sum values that it weighs" : miss->second.reason);
      addMissed(Normalization(Normalizer::softmax, op->getResult(0), op->getResult(0), 0), "missed",
                {reason + "; it runs edge by edge, without a matrix", op.getLoc()});
    }
  }

  /// Notes the softmaxes of linear attentions before one of them is fused.
  void findLinearAttention(ArrayRef<SoftmaxOp> softmaxes) {
    for (SoftmaxOp softmax : softmaxes)
      for (OpOperand *weights : findWeightedSums(softmax.getResult()))
        if (LinearPart part = findLinearPart(*weights, softmax); part != LinearPart::none)
          linearParts[softmax.getResult()] = part;
  }

  /// What became of a weighted sum.
  struct Fusion {
    AttentionOp op;                  ///< null where it was not fused
    Operation *replaced = nullptr;   ///< what `op` stands for
    std::optional<Miss> better = {}; ///< why not the best source, whose scores would not be stored
  };

  /// Fuses each sum weighted by `softmax` (of a gate: the one that it is of).
  void visit(const Normalization &softmax, OpOperand *gate = nullptr) {
    IRRewriter rewriter(&getContext());
    SmallVector<OpOperand *> sums = gate ? SmallVector<OpOperand *>{gate} : findWeightedSums(softmax.result);
    if (sums.empty() && isOverOne(softmax))
      return addOverOne(softmax);
    if (sums.empty())
      return addMissed(softmax, "none", whyNotContracted(softmax));
    dropReductions(sums, softmax.result);
    bool areLosses = !gate && llvm::all_of(sums, [&](OpOperand *sum) { return isOfItself(*sum, softmax.result); });
    bool isOnly = !gate && !areLosses && sums.size() == 1;
    if (isOnly)
      unshare(rewriter, *sums.front(), softmax.result);
    for (OpOperand *weights : sums)
      judged.insert(weights->getOwner());
    if (areLosses)
      return addMissed(
          softmax, "none",
          {"not an attention: its weights are multiplied by what is made of them alone (an entropy, a loss)",
           softmax.location});
    if (cancelOut(softmax.result))
      return addMissed(
          softmax, "none",
          {"not an attention: its weights cancel out of a hard assignment (straight-through)", softmax.location});
    if (!softmax.flaw.empty())
      return addMissed(softmax, "missed", {softmax.flaw, softmax.location});
    std::optional<Miss> first;
    Fusion last;
    SmallVector<Operation *> replaced;
    for (OpOperand *weights : sums) {
      Fusion fusion = fuse(rewriter, softmax, *weights, gate != nullptr, isOnly);
      if (fusion.op) {
        replaced.push_back(fusion.replaced);
        last = fusion;
      } else if (!first) {
        first = fusion.better;
      }
    }
    if (last.op)
      return noteFused(softmax, gate != nullptr, last, replaced);
    if (gate && dependsOnRow(softmax))
      return addMissed(softmax, "none",
                       {"not an attention: its weights depend on the other scores of their row, not by their sum alone "
                        "(a threshold as of sparsemax, a norm)",
                        softmax.location});
    if (isOverOne(softmax))
      return addOverOne(softmax);
    addMissed(softmax, StringRef(first->reason).starts_with("no contraction") ? "none" : "missed", *first);
  }

  /// Fuses the sum that `weights` weigh, with the first of the sources of scores, and the most views followed, of which
  /// an attention can be built. With `takesUses`, other uses of the weights become the attention's.
  Fusion fuse(RewriterBase &rewriter, const Normalization &softmax, OpOperand &weights, bool isGate, bool takesUses) {
    Fusion found;
    Miss miss{"", softmax.location};
    bool sawDot = false;
    for (const ScoreSource &source : findScoreSources(softmax)) {
      if (isGate && source.kind == ScoreKind::given)
        break;
      if (StringRef why = whyNoScores(linearParts.lookup(softmax.result), source); !why.empty()) {
        found.better = {why.str(), softmax.location};
        continue;
      }
      bool isDot = source.kind == ScoreKind::dot;
      auto attempt = [&](Follow follow, unsigned valueViews = ~0u) {
        FailureOr<AttentionMatch> match = matchAttention(softmax, weights, source, follow, miss, valueViews);
        if (succeeded(match) && replace(rewriter, *match, takesUses, found, miss)) {
          simplifyRegions(rewriter, found.op);
          found.op->setLoc(softmax.location); // what later verdicts and diagnostics name
          return true;
        }
        if (!found.better || (isDot && !sawDot)) // a dot product is the best, if there is one
          found.better = miss;
        sawDot |= isDot;
        return false;
      };
      if (attempt(Follow::everything) || attempt(Follow::operands))
        return found;
      // Of windows that were cut from an image only the last views say what a key is.
      for (unsigned views = countValueViews(weights); source.kind == ScoreKind::given && views != 0; --views)
        if (attempt(Follow::values, views))
          return found;
      for (Follow follow : {Follow::result, Follow::captures, Follow::nothing})
        if (attempt(follow))
          return found;
      if (source.kind == ScoreKind::given && attempt(Follow::transposed))
        return found;
    }
    if (!found.better)
      found.better = miss;
    return found;
  }

  /// Builds the attention of `match`, and moves what else uses its weights behind it.
  static bool replace(RewriterBase &rewriter, AttentionMatch &match, bool takesUses, Fusion &found, Miss &miss) {
    SmallVector<Operation *> early;
    if (takesUses)
      early = takeOtherUses(match);
    Operation *last = match.result.value.getDefiningOp();
    FailureOr<AttentionOp> op = buildAttention(rewriter, match, miss);
    if (failed(op))
      return false;
    found.op = *op;
    found.replaced = last;
    for (Operation *user : early) {
      rewriter.moveOpAfter(user, last);
      last = user;
    }
    return true;
  }

  /// The verdict of a fused softmax; `last` is the last of its attentions.
  void noteFused(const Normalization &softmax, bool isGate, const Fusion &last, ArrayRef<Operation *> replaced) {
    Miss note{"", softmax.location};
    if (AttentionOp op = last.op; !op.getKey() && last.better)
      note = {"its scores are stored before: " + last.better->reason, last.better->location};
    // What replaces the score matrix is dead unless the weights are used elsewhere too.
    DenseSet<Operation *> seen;
    if (!isGate && isLive(softmax.result.getDefiningOp(), seen))
      note.reason += (note.reason.empty() ? "" : "; ") +
                     std::string("its weights are used elsewhere too, where they are computed again");
    addFused(last.op, softmax.location, note, softmax.assumption, findReplaced(replaced));
  }

  void addOverOne(const Normalization &softmax) {
    addMissed(softmax, "none", {"not an attention: it is over one score, whose weight is always 1", softmax.location});
  }

  /// The factor beside the weights in a weighted sum.
  static OpOperand &otherFactor(OpOperand &sum) { return sum.getOwner()->getOpOperand(1 - sum.getOperandNumber()); }

  /// Leaves out sums of products of the weights with what is made of them element
  /// by element (an entropy, a sum of squares), where another one sums values.
  static void dropReductions(SmallVector<OpOperand *> &sums, Value weights) {
    auto isReduction = [&](OpOperand *sum) {
      return isMadeOf(otherFactor(*sum).get(), [&](Value source) { return source == weights; });
    };
    if (!llvm::all_of(sums, isReduction))
      llvm::erase_if(sums, isReduction);
  }

  /// Whether `sum` is of products of the weights, element by element, with what is made of them and of constants alone.
  static bool isOfItself(OpOperand &sum, Value weights) {
    OpOperand &other = otherFactor(sum);
    auto op = cast<linalg::LinalgOp>(sum.getOwner());
    ArrayRef<AffineExpr> own = op.getMatchingIndexingMap(&sum).getResults();
    if (isStatic(other.get()) || !llvm::all_of(op.getMatchingIndexingMap(&other).getResults(),
                                               [&](AffineExpr place) { return llvm::is_contained(own, place); }))
      return false;
    return !worklist(Values{other.get()}, [&](Value value, Values &list) {
      Operation *made = value.getDefiningOp();
      if (value == weights || isStatic(value))
        return false;
      if (!followTensors(made, list))
        return true;
      visitUsedValuesDefinedAbove(made->getRegions(), [&](OpOperand *used) { list.push_back(used->get()); });
      return false;
    });
  }

  /// Gives the weighted sum that reads `sum` its own copies of what makes it from `weights`, so that what else reads
  /// those ops may move behind the attention (a decoder gives back the reshaped weights that it sums with).
  static void unshare(RewriterBase &rewriter, OpOperand &sum, Value weights) {
    OpOperand *use = &sum;
    while (use->get() != weights) {
      Operation *op = use->get().getDefiningOp();
      if (!isPerElement(op))
        return;
      // Where several operands depend on the weights, copies of what they share would multiply.
      auto isFrom = [&](OpOperand &operand) { return isComputedFrom(operand.get(), weights); };
      if (llvm::count_if(op->getOpOperands(), isFrom) != 1)
        return;
      OpOperand *next = llvm::find_if(op->getOpOperands(), isFrom);
      if (!op->hasOneUse()) {
        rewriter.setInsertionPoint(use->getOwner());
        op = rewriter.clone(*op);
        rewriter.modifyOpInPlace(use->getOwner(), [&] { use->set(op->getResult(0)); });
      }
      use = &op->getOpOperand(next->getOperandNumber());
    }
  }

  /// The uses of the weights besides the weighted sum become the attention's: then nothing else needs the normaliser.
  /// Gives the ops that must move behind the attention for it. Where one of them feeds the weighted sum, or has an
  /// effect, the normaliser stays for all.
  static SmallVector<Operation *> takeOtherUses(AttentionMatch &match) {
    Operation *end = match.result.value.getDefiningOp();
    if (match.normalizer == Normalizer::none || match.divisor ||
        getElementTypeOrSelf(match.weights.value) != match.computeType)
      return {};
    SmallVector<OpOperand *> uses;
    llvm::SetVector<Operation *> early;
    bool isFree = true;
    auto follow = [&](Operation *user) {
      user = end->getBlock()->findAncestorOpInBlock(*user);
      isFree &= user && user != end;
      if (!isFree || end->isBeforeInBlock(user))
        return;
      isFree &= isMemoryEffectFree(user);
      early.insert(user);
    };
    for (OpOperand &use : match.weights.value.getUses()) {
      // What lives only through the weighted sum dies with it.
      DenseSet<Operation *> seen{end};
      if (!isLive(use.getOwner(), seen))
        continue;
      follow(use.getOwner());
      uses.push_back(&use);
    }
    for (size_t n = 0; isFree && n < early.size(); ++n)
      for (Operation *user : early[n]->getUsers())
        follow(user);
    if (!isFree)
      return {};
    match.weightUses = std::move(uses);
    SmallVector<Operation *> moved = early.takeVector();
    llvm::sort(moved, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
    return moved;
  }

  /// Whether a result of `op` reaches an op that has an effect or ends a block.
  static bool isLive(Operation *op, DenseSet<Operation *> &seen) {
    if (!isMemoryEffectFree(op) || op->hasTrait<OpTrait::IsTerminator>())
      return true;
    if (!seen.insert(op).second)
      return false;
    return llvm::any_of(op->getUsers(), [&](Operation *user) { return isLive(user, seen); });
  }

  /// The name of the entry that `region` is in, if there are several.
  StringRef entryOf(Region *region) {
    auto isEntry = [](FunctionOpInterface function) {
      return function->hasAttr(AttnDialect::kEntryAttr) && !function->hasAttr(kBroadcastFormAttr);
    };
    auto function = region ? region->getParentOfType<FunctionOpInterface>() : FunctionOpInterface();
    if (!function || llvm::count_if(getOperation().getOps<FunctionOpInterface>(), isEntry) < 2)
      return "";
    auto name = function->getAttrOfType<StringAttr>(AttnDialect::kEntryAttr);
    return name ? name.getValue() : "";
  }

  void add(Location softmax, Region *region, bool fused, StringRef kind, Normalizer normalizer, StringRef mask,
           StringRef reason, StringRef reasonNode, StringRef assumption = "", ArrayRef<StringRef> nodes = {}) {
    if (auto function = region ? region->getParentOfType<FunctionOpInterface>() : FunctionOpInterface();
        function && function->hasAttr(kBroadcastFormAttr))
      return; // the entry that it is a form of has told
    Builder b(&getContext());
    NamedAttrList list({
        b.getNamedAttr("node", b.getStringAttr(nodeName(softmax))),
        b.getNamedAttr("fused", b.getBoolAttr(fused)),
        b.getNamedAttr("kind", b.getStringAttr(kind)),
        b.getNamedAttr("mask", b.getStringAttr(mask)),
        b.getNamedAttr("reason", b.getStringAttr(reason)),
        b.getNamedAttr("reason_node", b.getStringAttr(reasonNode)),
    });
    if (StringRef entry = entryOf(region); !entry.empty())
      list.set("entry", b.getStringAttr(entry));
    if (normalizer != Normalizer::softmax)
      list.set("normalizer", b.getStringAttr(stringifyNormalizer(normalizer)));
    if (!assumption.empty())
      list.set("assumes", b.getStrArrayAttr({assumption}));
    if (!nodes.empty())
      list.set("nodes", b.getStrArrayAttr(nodes));
    verdicts.push_back(list.getDictionary(&getContext()));
  }

  /// The nodes of what only `sums`, which nobody needs any more, were computed from, but those that an attention before
  /// has: a mask's view may be called after its first user.
  SmallVector<StringRef> findReplaced(ArrayRef<Operation *> sums) {
    SmallVector<StringRef> nodes;
    StringRef entry = sums.empty() ? "" : entryOf(sums.front()->getParentRegion());
    worklist(SmallVector<Operation *>(sums), [&](Operation *op, SmallVector<Operation *> &list) {
      DenseSet<Operation *> seen;
      // What holds no elements of its own may be shared with another attention's, and called after it.
      if (isLive(op, seen) || isa<tensor::DimOp, tensor::EmptyOp, linalg::FillOp>(op))
        return false;
      op->getLoc()->walk([&](Location part) {
        StringRef name = isa<NameLoc>(part) ? nodeName(part) : StringRef();
        if (!name.empty() && taken.insert({entry, name}).second)
          nodes.push_back(name);
        return WalkResult::advance();
      });
      for (Value operand : op->getOperands())
        if (Operation *source = operand.getDefiningOp())
          list.push_back(source);
      return false;
    });
    std::reverse(nodes.begin(), nodes.end());
    return nodes;
  }

  void addFused(AttentionOp op, Location softmax, const Miss &note, StringRef assumption = "",
                ArrayRef<StringRef> nodes = {}) {
    std::string mask = nameMask(op);
    add(softmax, op->getParentRegion(), true, stringifyScoreKind(op.getKind()), op.getNormalizer(), mask, note.reason,
        note.reason.empty() ? "" : nodeName(note.location), assumption, nodes);
    remark::passed(softmax, remark::RemarkOpts::name("Attention").category("attn-recognize-attention"))
        << "fused into one attention, mask: " << mask;
  }

  void addFusedSegments(SegmentAttentionOp op, scf::ForOp sums) {
    add(op.getLoc(), op->getParentRegion(), true, stringifyScoreKind(ScoreKind::given), Normalizer::softmax, "edges",
        "its scores are stored before, one for each edge and head", nodeName(op.getLoc()), "", findReplaced({sums}));
    remark::passed(op.getLoc(), remark::RemarkOpts::name("Attention").category("attn-recognize-attention"))
        << "fused into one attention over the edges of each node";
  }

  void addMissed(const Normalization &softmax, StringRef kind, const Miss &miss) {
    add(softmax.location, Value(softmax.result).getParentRegion(), false, kind, softmax.kind, "", miss.reason,
        nodeName(miss.location), softmax.assumption);
    remark::missed(softmax.location, remark::RemarkOpts::name("Attention").category("attn-recognize-attention"))
        << "not fused: " << miss.reason;
  }

  bool listsEdges = true; ///< kernels go by lists of the edges of each node
  SmallVector<Attribute> verdicts;
  DenseSet<std::pair<StringRef, StringRef>> taken; ///< entries and nodes that an attention took in
  DenseSet<Operation *> judged;                    ///< weighted sums that have a verdict
  DenseMap<Value, LinearPart> linearParts;         ///< of the softmaxes of linear attentions
};

} // namespace

std::unique_ptr<Pass> createRecognizeAttentionPass(bool listsEdges) {
  return std::make_unique<RecognizeAttentionPass>(listsEdges);
}

} // namespace attn
