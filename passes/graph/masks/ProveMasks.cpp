#include "dialects/attn/MaskTerms.h"
#include "dialects/attn/NodeLocation.h"
#include "passes/Passes.h"
#include "passes/graph/Collect.h"
#include "passes/graph/Formulas.h"
#include "passes/graph/Pipeline.h"
#include "passes/graph/Structured.h"
#include "passes/graph/element/Access.h"
#include "passes/graph/element/Constants.h"
#include "passes/graph/element/Magnitude.h"
#include "passes/graph/masks/MaskMining.h"
#include "passes/graph/masks/MaskReport.h"
#include "passes/graph/masks/SimplifyRegions.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>
#include <limits>

using namespace mlir;

namespace attn {
#define GEN_PASS_DEF_PROVEMASKSPASS
#include "passes/Passes.h.inc"

namespace {

/// Added to a constant as low as this one, a score that is none leaves it as it is.
constexpr double kTakesIn = -1e30;

/// What an operand of a term is bounded to before it is scaled and shifted.
constexpr int64_t kFarthest = int64_t(1) << 40;

/// Whether `value` is 0 where the weight is 0, and 0 or NaN where that is NaN, as of a row that sees no key: codes that
/// are made of a weight and read again with the lowest code as zero point. (Another code for NaN would make every
/// hidden key count.)
bool isCodeOfWeight(ElementReader &reader, Value value, Value weight) {
  auto isWhere = [&](const APFloat &number, auto test) {
    Constants constants(reader);
    constants.assume(weight, FloatAttr::get(weight.getType(), number));
    auto code = dyn_cast_or_null<FloatAttr>(constants.of(reader.at(value)));
    return code && test(code.getValue());
  };
  const llvm::fltSemantics &type = cast<FloatType>(weight.getType()).getFloatSemantics();
  return isWhere(APFloat::getZero(type), [](const APFloat &code) { return code.isZero(); }) &&
         isWhere(APFloat::getNaN(type), [](const APFloat &code) { return code.isZero() || code.isNaN(); });
}

/// Whether a weight of 0 is 0 after the weight region, as a hidden key's is
/// whatever the region says: the weight is multiplied, divided or selected, or becomes a code.
bool keepsZero(ElementReader &reader, Value value, Value weight) {
  if (value == weight || isCodeOfWeight(reader, value, weight))
    return true;
  Operation *op = value.getDefiningOp();
  if (auto select = dyn_cast_or_null<arith::SelectOp>(op)) {
    auto isZero = [&](Value x) { return matchPattern(x, m_AnyZeroFloat()) || keepsZero(reader, x, weight); };
    return isZero(select.getTrueValue()) && isZero(select.getFalseValue());
  }
  if (isa_and_nonnull<arith::MulFOp>(op))
    return keepsZero(reader, op->getOperand(0), weight) || keepsZero(reader, op->getOperand(1), weight);
  return isa_and_nonnull<arith::DivFOp>(op) && keepsZero(reader, op->getOperand(0), weight);
}

} // namespace

bool canTakeTerms(AttentionOp op) {
  if (op.getNormalizer() != Normalizer::softmax || op.getMaskedRows() == MaskedRows::finite)
    return false;
  // Scores that are results show what the region makes of hidden keys.
  for (unsigned n = 0; n != op.getExtraResults().size(); ++n)
    if (ExtraSource source = op.getExtra(n).getSource();
        source == ExtraSource::scores || source == ExtraSource::masked_scores)
      return false;
  if (op.getWeight().empty())
    return true;
  Block &weight = op.getWeight().front();
  ElementReader reader(op);
  return keepsZero(reader, weight.getTerminator()->getOperand(0), weight.getArgument(0));
}

namespace {

/// Makes the attention that has the proved terms in its mask.
class TermWriter {
public:
  TermWriter(AttentionOp op, RewriterBase &rewriter, const ProvedMask &mask, const SymbolTable &symbols,
             const WeightStore *weights)
      : op(op), rewriter(rewriter), mask(mask), reader(op), bound(reader, symbols, weights) {}

  /// The new op in the place of the old one, or null where nothing was proved.
  AttentionOp run();
  /// What the new op takes for granted; "" for nothing.
  std::string assumption;

private:
  Value withoutTerms(OpBuilder &b, Value condition, bool negated);
  void stripScore(Block &block, const IRMapping &mapping);
  void writeMasked(AttentionOp to);
  bool isBounded(AttentionOp to, double limit);
  bool bringsBack(double limit);
  bool seesSomeKey(AttentionOp to);
  Value makeOperand(const ProvedTerm &term, AffineMap &map);

  AttentionOp op;
  RewriterBase &rewriter;
  ProvedMask mask;
  ElementReader reader;
  Magnitude bound;
};

/// `condition` with what is a term replaced by its value for visible keys.
Value TermWriter::withoutTerms(OpBuilder &b, Value condition, bool negated) {
  Location loc = condition.getLoc();
  if (mask.conditions.contains({condition, negated}))
    return arith::ConstantOp::create(b, loc, b.getBoolAttr(!negated));
  Operation *definition = condition.getDefiningOp();
  if (isa_and_nonnull<arith::AndIOp, arith::OrIOp>(definition)) {
    // Only conjunctions were taken apart.
    if (isa<arith::OrIOp>(definition) != negated)
      return condition;
    Value lhs = withoutTerms(b, definition->getOperand(0), negated),
          rhs = withoutTerms(b, definition->getOperand(1), negated);
    return negated ? arith::OrIOp::create(b, loc, lhs, rhs).getResult()
                   : arith::AndIOp::create(b, loc, lhs, rhs).getResult();
  }
  if (auto flip = dyn_cast_or_null<arith::XOrIOp>(definition); flip && matchPattern(flip.getRhs(), m_One()))
    return arith::XOrIOp::create(b, loc, withoutTerms(b, flip.getLhs(), !negated), flip.getRhs());
  return condition;
}

/// Takes the terms out of `block`, a copy of the score region.
void TermWriter::stripScore(Block &block, const IRMapping &mapping) {
  llvm::DenseSet<std::pair<Value, unsigned>> conditions;
  for (auto [condition, negated] : mask.conditions)
    conditions.insert({mapping.lookupOrDefault(condition), negated});
  std::swap(mask.conditions, conditions);
  for (const MaskStep &step : mask.steps) {
    Operation *copy = mapping.lookup(step.op);
    if (step.kind == MaskStep::Clamp) {
      copy->getResult(0).replaceAllUsesWith(copy->getOperand(0));
      continue;
    }
    OpBuilder b(copy);
    copy->setOperand(0, withoutTerms(b, copy->getOperand(0), step.hidesTrue));
  }
  std::swap(mask.conditions, conditions);
}

/// What hidden keys score where they take part: the steps, on the score that
/// the stripped region yields.
void TermWriter::writeMasked(AttentionOp to) {
  Block &from = op.getScore().front();
  Block &block = to.getMasked().emplaceBlock();
  IRMapping mapping;
  for (BlockArgument argument : from.getArguments())
    mapping.map(argument, block.addArgument(argument.getType(), argument.getLoc()));
  OpBuilder b = OpBuilder::atBlockEnd(&block);
  // Conditions depend on captures and positions, not on the score.
  llvm::unique_function<Value(Value)> clone = [&](Value value) {
    if (Value known = mapping.lookupOrNull(value))
      return known;
    Operation *definition = value.getDefiningOp();
    for (Value operand : definition->getOperands())
      clone(operand);
    b.clone(*definition, mapping);
    return mapping.lookup(value);
  };
  Value score = block.getArgument(0);
  Location loc = op.getLoc();
  for (const MaskStep &step : llvm::reverse(mask.steps)) {
    Value fill = floatConstant(b, loc, cast<FloatType>(score.getType()), step.fill);
    if (step.kind == MaskStep::Clamp) {
      score = arith::MaximumFOp::create(b, loc, score, fill);
      continue;
    }
    Value condition = clone(step.op->getOperand(0));
    Value shown = step.kind == MaskStep::Select ? score : floatConstant(b, loc, cast<FloatType>(score.getType()), 0);
    Value chosen = step.hidesTrue ? arith::SelectOp::create(b, loc, condition, fill, shown)
                                  : arith::SelectOp::create(b, loc, condition, shown, fill);
    if (step.kind == MaskStep::Select) {
      score = chosen;
      continue;
    }
    // In the steps of the mask's size, as in the graph; and the score itself before.
    auto round = [&](Value x) {
      return step.rounded ? convertFloat(b, loc, convertFloat(b, loc, x, step.rounded), x.getType()) : x;
    };
    score = round(arith::AddFOp::create(b, loc, round(score), chosen));
  }
  YieldOp::create(b, loc, score);
}

/// Whether `number`, which the region of an attention reads, only scales what is
/// made of the score, as a temperature does.
bool onlyScales(BlockArgument number, Value score) {
  SetVector<Operation *> ofScore;
  getForwardSlice(score, &ofScore);
  return llvm::all_of(number.getUses(), [&](OpOperand &use) {
    Operation *user = use.getOwner();
    if (!isa<arith::MulFOp>(user) && !(isa<arith::DivFOp>(user) && use.getOperandNumber() == 1))
      return false;
    Value other = user->getOperand(1 - use.getOperandNumber());
    return other == score || ofScore.contains(other.getDefiningOp());
  });
}

/// Whether what is left of the score can't be a mask of its own: no constant is
/// one, and neither is what it adds to the score, as far as Magnitude tells: below
/// `limit`, no more than the score itself is assumed to be.
/// (Otherwise a row may see keys that are masked in another way, and hidden ones
/// would count beside them; a mask of whole rows brings all of its keys down to
/// where the constant is.)
bool TermWriter::isBounded(AttentionOp to, double limit) {
  Block &block = to.getScore().front();
  BlockArgument score = block.getArgument(0);
  bool adds = false;
  bound.assume(score, 1);
  for (size_t n = 0; n != to.getCaptures().size(); ++n) {
    BlockArgument argument = block.getArgument(1 + n);
    bool mayAdd = !argument.use_empty() && (AttentionOp::names(to.getCaptureMap(n), AttentionOp::J) ||
                                            (isa<FloatType>(argument.getType()) && !onlyScales(argument, score)));
    std::optional<double> size = mayAdd ? bound.of(reader.at(argument)) : std::optional<double>(1);
    if (!size)
      return false;
    bound.assume(argument, *size);
    adds |= mayAdd;
  }
  if (adds) {
    std::optional<double> size = bound.of(reader.at(block.getTerminator()->getOperand(0)));
    if (!size || *size >= limit)
      return false;
  }
  bool isBounded = true;
  block.walk([&](arith::ConstantOp constant) {
    if (auto number = dyn_cast<FloatAttr>(constant.getValue()))
      isBounded &= std::isfinite(number.getValueAsDouble()) && number.getValueAsDouble() > kFiniteMask;
  });
  // What visible keys get besides, hidden ones have too then: no matter where the
  // constant takes it in.
  for (const MaskStep &step : mask.steps)
    if (step.kind == MaskStep::Bias && step.fill > kTakesIn &&
        !matchPattern(step.op->getOperand(step.hidesTrue ? 2 : 1), m_AnyZeroFloat()))
      return false;
  return isBounded;
}

/// Whether a constant of the region may be `limit` or more in the score of a hidden key, beside what hides it.
bool TermWriter::bringsBack(double limit) {
  Block &block = op.getScore().front();
  DenseSet<Value> fills;
  for (const MaskStep &step : mask.steps) {
    if (step.kind != MaskStep::Clamp)
      fills.insert(step.op->getOperand(step.hidesTrue ? 1 : 2));
    else
      fills.insert_range(
          llvm::make_filter_range(step.op->getOperands(), [](Value x) { return matchPattern(x, m_Constant()); }));
  }
  bool isLarge = false;
  block.walk([&](arith::ConstantOp constant) {
    auto number = dyn_cast<FloatAttr>(constant.getValue());
    // A limit of the score is none of the score's parts.
    isLarge |= number && number.getValue().isFinite() && std::abs(number.getValueAsDouble()) >= limit &&
               !fills.contains(constant) &&
               !llvm::all_of(constant->getUsers(), llvm::IsaPred<arith::MinimumFOp, arith::MaximumFOp>);
  });
  if (!isLarge)
    return false;
  for (Value fill : fills)
    bound.assume(fill, 0);
  bound.assume(block.getArgument(0), 1);
  for (BlockArgument argument : block.getArguments().drop_front())
    if (isa<IntegerType>(argument.getType()) && !bound.of(reader.at(argument)))
      bound.assume(argument, 1); // a number that a run gives
  std::optional<double> size = bound.of(reader.at(block.getTerminator()->getOperand(0)));
  return !size || *size >= limit;
}

/// Whether every row is proved to see a key (if there are any).
bool TermWriter::seesSomeKey(AttentionOp to) {
  bool first = true, own = true;
  for (Attribute term : to.getMask()) {
    if (getMaskJoin(term) == MaskJoin::prefix)
      continue;
    if (isTable(term) || takesMaskOperand(term))
      return false;
    for (const KeyBound &bound : getKeyBounds(term)) {
      first &= bound.isUpper && bound.offset >= 0;
      own &= bound.isUpper ? bound.offset >= bound.step - 1 : bound.offset <= 0;
    }
  }
  if (first || !own)
    return first;
  // The key at the query's own position: there are as many of them.
  std::optional<Extent> queries, keys;
  for (auto [n, operand] : llvm::enumerate(to.getMappedOperands()))
    for (auto [k, expr] : llvm::enumerate(to.getMap(n).getResults())) {
      if (n < 3 && expr == rewriter.getAffineDimExpr(AttentionOp::I))
        queries = Extent::of(operand, k);
      if (n < 3 && expr == rewriter.getAffineDimExpr(AttentionOp::J))
        keys = Extent::of(operand, k);
    }
  return queries && keys && *queries == *keys;
}

/// The integer that limits positions as `x`, a float, does.
Num roundLimit(Num x, const ProvedTerm &term) {
  x = term.roundsUp ? ceil(x) : floor(x);
  Num high = constantLike(x, kFarthest), low = constantLike(x, -kFarthest);
  auto limit = [&](bool isHigh) { // NaN becomes the limit
    return isHigh ? select(x < high, x, high) : select(x > low, x, low);
  };
  x = limit(term.showsNaN);
  x = limit(!term.showsNaN);
  return convert(x, x.builder().getI64Type());
}

/// The operand of a term as a tensor that is read through `map`.
Value TermWriter::makeOperand(const ProvedTerm &term, AffineMap &map) {
  Location loc = op.getLoc();
  Type type = rewriter.getI64Type();
  map = AffineMap::get(AttentionOp::kDims, 0, {}, op.getContext());
  if (!term.capture)
    return arith::ConstantOp::create(
        rewriter, loc,
        DenseElementsAttr::get(RankedTensorType::get({}, type), rewriter.getI64IntegerAttr(term.constant)));
  unsigned number = term.capture.getArgNumber() - 1;
  Value capture = op.getCaptures()[number];
  map = op.getCaptureMap(number);
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(capture));
  if (isa<DenseMaskAttr>(term.term) || (!isFloat && term.scale == 1 && term.constant == 0))
    return capture;
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(rewriter, loc, capture);
  AffineMap identity = rewriter.getMultiDimIdentityMap(sizes.size());
  return elementwise(rewriter, loc, sizes, type, capture, identity, formula([&](ArrayRef<Num> args) {
                       Num x = isFloat ? roundLimit(args.front(), term) : convert(args.front(), type);
                       // Beyond any position and the term's constant one value is as good as
                       // another, and the sum does not wrap.
                       return minimum(maximum(x, -kFarthest), kFarthest) * term.scale + term.constant;
                     }));
}

/// Whether the score of a hidden key is finite where what is hidden is: two masks that each add the least f32 make
/// -inf.
static bool staysFinite(const ProvedMask &mask, FloatType type) {
  double least = 0;
  for (const MaskStep &step : llvm::reverse(mask.steps)) {
    least = step.kind == MaskStep::Bias     ? least + step.fill
            : step.kind == MaskStep::Select ? std::min(least, step.fill)
                                            : std::max(least, step.fill);
    APFloat rounded(least);
    bool isInexact;
    rounded.convert((step.rounded ? step.rounded : type).getFloatSemantics(), APFloat::rmNearestTiesToEven, &isInexact);
    if (!rounded.isFinite())
      return false;
  }
  return true;
}

AttentionOp TermWriter::run() {
  if (mask.conditions.empty())
    return {};
  rewriter.setInsertionPoint(op);
  AttentionParts parts = op.getParts();
  unsigned nextMap = op.getNumOperands();
  for (const ProvedTerm &term : mask.terms) {
    parts.mask.push_back(term.term);
    if (!takesMaskOperand(term.term))
      continue;
    AffineMap map;
    parts.maskOperands.push_back(makeOperand(term, map));
    parts.maps.insert(parts.maps.begin() + nextMap++, map);
  }
  auto to = AttentionOp::create(rewriter, op.getLoc(), parts);
  for (auto [from, into] : llvm::zip_equal(op->getRegions(), to->getRegions())) {
    IRMapping mapping;
    from.cloneInto(&into, mapping);
    if (&from == &op.getScore())
      stripScore(into.front(), mapping);
  }
  simplifyRegions(rewriter, to);
  // The finite constant closest to 0.
  double nearest = -std::numeric_limits<double>::infinity();
  for (const MaskStep &step : mask.steps)
    if (std::isfinite(step.fill))
      nearest = std::max(nearest, step.fill);
  if (std::isfinite(nearest)) {
    bool seesKey = seesSomeKey(to);
    // A guard that makes rows without any finite score zero has none to find
    // where all constants are finite, and whatever else is added is, too.
    auto type = cast<FloatType>(op.getScore().front().getTerminator()->getOperand(0).getType());
    bool hasIdleGuard = op.getMaskedRows() == MaskedRows::zero && staysFinite(mask, type);
    double limit = -std::max(nearest / 4, kFiniteMask);
    if (!isBounded(to, limit) || bringsBack(limit) ||
        (!seesKey && op.getMaskedRows() != MaskedRows::nan && !hasIdleGuard)) {
      rewriter.eraseOp(to);
      return {};
    }
    if (!seesKey) {
      to.setMaskedRows(MaskedRows::finite);
      writeMasked(to);
    }
    assumption = llvm::formatv("|score| < {0:e2}, a quarter of the mask's {1:e2}", -nearest / 4, nearest);
  }
  rewriter.replaceOp(op, to->getResults());
  return dropUnusedCaptures(rewriter, to);
}

struct ProveMasksPass : impl::ProveMasksPassBase<ProveMasksPass> {
  using ProveMasksPassBase::ProveMasksPassBase;
  ProveMasksPass(bool isExact, const WeightStore *weights) : weights(weights) { exact = isExact; }

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    IRRewriter rewriter(&getContext());
    MaskReport report(getOperation());
    for (AttentionOp op : collect<AttentionOp>(getOperation())) {
      if (!canTakeTerms(op))
        continue;
      std::string assumption;
      AttentionOp with;
      for (bool finite : {true, false}) {
        if (with || (finite && exact))
          continue;
        TermWriter writer(op, rewriter, proveMask(op, finite), symbols, weights);
        with = writer.run();
        assumption = with ? writer.assumption : "";
      }
      if (!with)
        continue;
      std::string mask = nameMask(with);
      report.set(with, mask, assumption);
      remark::passed(with.getLoc(), remark::RemarkOpts::name("Mask").category("attn-prove-masks"))
          << ("proved the mask: " + mask);
    }
  }

private:
  const WeightStore *weights = nullptr;
};

} // namespace

std::unique_ptr<Pass> createProveMasksPass(bool exact, const WeightStore *weights) {
  return std::make_unique<ProveMasksPass>(exact, weights);
}

} // namespace attn
