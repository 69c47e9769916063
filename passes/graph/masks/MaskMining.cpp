#include "passes/graph/masks/MaskMining.h"

#include "dialects/attn/MaskTerms.h"
#include "passes/graph/Structured.h"
#include "passes/graph/element/PositionQuotient.h"
#include "passes/graph/masks/PositionSums.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SaveAndRestore.h"
#include <cmath>
#include <limits>

using namespace mlir;

namespace attn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// How integers are compared so; no quotient of positions is NaN, so oge and uge are sge.
std::optional<arith::CmpIPredicate> asIntegers(arith::CmpFPredicate predicate) {
  StringRef name = arith::stringifyCmpFPredicate(predicate).drop_front();
  std::optional<arith::CmpIPredicate> equality = arith::symbolizeCmpIPredicate(name);
  return equality ? equality : arith::symbolizeCmpIPredicate(("s" + name).str());
}

class MaskReader {
public:
  MaskReader(AttentionOp op, bool takesFinite)
      : op(op), context(op.getContext()), takesFinite(takesFinite), reader(op), sums(reader) {
    // A term takes a capture as it is.
    for (BlockArgument argument : op.getScore().getArguments())
      reader.stopAt(argument);
  }

  ProvedMask read() {
    auto yield = cast<YieldOp>(op.getScore().front().back());
    readScore(yield.getValue());
    return std::move(mask);
  }

private:
  std::optional<PositionSum> parse(Value value) { return sums.of(reader.at(value)); }
  bool dependsOnScore(Value value) {
    if (value == op.getScore().front().getArgument(0))
      return true;
    Operation *definition = value.getDefiningOp();
    return definition && llvm::any_of(definition->getOperands(), [&](Value v) { return dependsOnScore(v); });
  }
  /// The constant that `value` is in the score that the region yields, if it
  /// hides a key.
  std::optional<double> hidingConstant(Value value) const {
    FloatAttr number;
    if (!matchPattern(value, m_Constant(&number)))
      return std::nullopt;
    double fill = number.getValueAsDouble() * scale;
    double lowest =
        APFloat::getLargest(cast<FloatType>(value.getType()).getFloatSemantics(), /*Negative=*/true).convertToDouble();
    if (fill == -kInfinity ? !std::isinf(number.getValueAsDouble()) : fill < lowest)
      return std::nullopt; // finite before it is scaled
    bool hides = fill == -kInfinity || (takesFinite && fill <= kFiniteMask);
    return hides ? std::optional(fill) : std::nullopt;
  }

  /// Whether `op` multiplies or divides a score by a constant above 0: then
  /// `scale` holds it, too, and `score` is set to the score.
  bool readScale(Operation *op, Value &score) {
    FloatAttr number;
    bool divides = isa<arith::DivFOp>(op);
    if (!divides && !isa<arith::MulFOp>(op))
      return false;
    unsigned side = !divides && matchPattern(op->getOperand(0), m_Constant(&number)) ? 1 : 0;
    if (!matchPattern(op->getOperand(1 - side), m_Constant(&number)))
      return false;
    double factor = number.getValueAsDouble();
    if (!(factor > 0) || !std::isfinite(factor))
      return false;
    scale = divides ? scale / factor : scale * factor;
    score = op->getOperand(side);
    return std::isfinite(scale) && scale > 0;
  }

  /// Follows the score from the yield down to where it is something else than
  /// selected, added to, scaled or bounded from below.
  void readScore(Value value) {
    while (true) {
      auto narrow = dyn_cast<FloatType>(value.getType());
      if (auto extension = value.getDefiningOp<arith::ExtFOp>())
        narrow = cast<FloatType>(extension.getIn().getType());
      value = stripConversions(value);
      Operation *definition = value.getDefiningOp();
      if (!definition)
        return;
      if (auto select = dyn_cast<arith::SelectOp>(definition)) {
        if (!readSelect(select, MaskStep::Select))
          return;
        value = mask.steps.back().hidesTrue ? select.getFalseValue() : select.getTrueValue();
        continue;
      }
      if (isa<arith::MaximumFOp, arith::MaxNumFOp>(definition)) {
        std::optional<double> fill = hidingConstant(definition->getOperand(1));
        if (!fill || !std::isfinite(*fill) || !definition->hasOneUse())
          return;
        mask.steps.push_back({MaskStep::Clamp, definition, *fill});
        value = definition->getOperand(0);
        continue;
      }
      if (readScale(definition, value))
        continue;
      auto add = dyn_cast<arith::AddFOp>(definition);
      if (!add)
        return;
      bool left = dependsOnScore(add.getLhs());
      if (left == dependsOnScore(add.getRhs()))
        return;
      size_t before = mask.steps.size();
      bool rounds = narrow != value.getType();
      // Steps say what a sum is rounded to, and not what is made of it then.
      llvm::SaveAndRestore keep(takesFinite, takesFinite && (!rounds || scale == 1));
      readBias(left ? add.getRhs() : add.getLhs());
      if (mask.steps.size() != before && rounds && scale == 1)
        mask.steps[before].rounded = narrow; // the last that is added, as steps go
      value = left ? add.getLhs() : add.getRhs();
    }
  }

  void readBias(Value bias) {
    Operation *definition = stripConversions(bias).getDefiningOp();
    if (auto add = dyn_cast_or_null<arith::AddFOp>(definition)) {
      readBias(add.getLhs());
      readBias(add.getRhs());
    } else if (auto select = dyn_cast_or_null<arith::SelectOp>(definition)) {
      if (readSelect(select, MaskStep::Bias))
        readBias(mask.steps.back().hidesTrue ? select.getFalseValue() : select.getTrueValue());
    }
  }

  bool readSelect(arith::SelectOp select, MaskStep::Kind kind) {
    std::optional<double> whenTrue = hidingConstant(select.getTrueValue());
    std::optional<double> fill = whenTrue ? whenTrue : hidingConstant(select.getFalseValue());
    if (!fill || !select->hasOneUse())
      return false;
    mask.steps.push_back({kind, select, *fill, whenTrue.has_value()});
    prove(select.getCondition(), /*negated=*/whenTrue.has_value());
    return true;
  }

  void accept(Value condition, bool negated, ArrayRef<ProvedTerm> terms) {
    llvm::append_range(mask.terms, terms);
    mask.conditions.insert({condition, negated});
  }

  /// Keys are visible only where `condition` (or, `negated`, its opposite) holds.
  void prove(Value condition, bool negated) {
    Operation *definition = condition.getDefiningOp();
    bool isAnd = isa_and_nonnull<arith::AndIOp>(definition), isOr = isa_and_nonnull<arith::OrIOp>(definition);
    if (negated ? isOr : isAnd) {
      prove(definition->getOperand(0), negated);
      prove(definition->getOperand(1), negated);
      return;
    }
    if (auto flip = dyn_cast_or_null<arith::XOrIOp>(definition); flip && matchPattern(flip.getRhs(), m_One()))
      return prove(flip.getLhs(), !negated);
    if (negated ? isAnd : isOr)
      return provePrefix(definition, negated);
    std::optional<SmallVector<ProvedTerm>> terms;
    if (std::optional<ProvedTerm> chunks = chunksTerm(definition, negated))
      terms = {*chunks};
    else if (auto compare = dyn_cast_or_null<arith::CmpIOp>(definition))
      terms = termsOf(compare, negated);
    else if (auto compare = dyn_cast_or_null<arith::CmpFOp>(definition))
      terms = lengthsTerm(compare, negated);
    // A prefix would widen another band's terms, too.
    if (terms && hasTerm(MaskJoin::prefix) && llvm::any_of(*terms, isNear))
      terms = std::nullopt;
    if (terms)
      accept(condition, negated, *terms);
    else
      mask.hasOther = true;
  }

  static bool isNear(const ProvedTerm &term) { return getMaskJoin(term.term) == MaskJoin::near; }
  bool hasTerm(MaskJoin join) {
    auto joins = [&](Attribute term) { return getMaskJoin(term) == join; };
    return llvm::any_of(mask.terms, [&](const ProvedTerm &term) { return joins(term.term); }) ||
           llvm::any_of(op.getMask(), joins);
  }

  /// The terms of comparisons all of which are to hold.
  std::optional<SmallVector<ProvedTerm>> termsOfAll(Value condition, bool negated) {
    Operation *test = condition.getDefiningOp();
    if (negated ? isa_and_nonnull<arith::OrIOp>(test) : isa_and_nonnull<arith::AndIOp>(test)) {
      std::optional<SmallVector<ProvedTerm>> first = termsOfAll(test->getOperand(0), negated),
                                             second = termsOfAll(test->getOperand(1), negated);
      if (first && second)
        llvm::append_range(*first, *second);
      return second ? first : second;
    }
    auto compare = dyn_cast_or_null<arith::CmpIOp>(test);
    return compare ? termsOf(compare, negated) : std::nullopt;
  }

  /// j <= i + offset, or j < n: causal, or a window, with a prefix.
  void provePrefix(Operation *either, bool negated) {
    for (int64_t n : {0, 1}) {
      auto prefixTest = either->getOperand(1 - n).getDefiningOp<arith::CmpIOp>();
      // More than one prefix would widen each other's terms.
      if (!prefixTest || hasTerm(MaskJoin::near) || hasTerm(MaskJoin::prefix))
        continue;
      std::optional<SmallVector<ProvedTerm>> terms = termsOfAll(either->getOperand(n), negated);
      std::optional<PositionSum> difference = visibleWhereNotPositive(prefixTest, negated);
      if (!terms || !difference || terms->empty() || !llvm::all_of(*terms, isNear) || difference->i != 0 ||
          difference->j != 1 || !namesNoKey(difference->capture))
        continue;
      int64_t size = 1 - difference->constant;
      if (difference->capture)
        terms->push_back(
            {PrefixAttr::get(context, ShapedType::kDynamic), difference->capture, -difference->scale, size});
      else
        terms->push_back({PrefixAttr::get(context, size), {}});
      return accept(either->getResult(0), negated, *terms);
    }
    mask.hasOther = true;
  }

  /// Whether the capture, if there is one, is the same for all keys of a row.
  bool namesNoKey(BlockArgument capture) {
    return !capture || !AttentionOp::names(op.getCaptureMap(capture.getArgNumber() - 1), AttentionOp::J);
  }

  /// x such that the key is visible where x <= 0.
  std::optional<PositionSum> visibleWhereNotPositive(arith::CmpIOp compare, bool negated) {
    using Predicate = arith::CmpIPredicate;
    Predicate predicate = negated ? arith::invertPredicate(compare.getPredicate()) : compare.getPredicate();
    std::optional<PositionSum> lhs = parse(compare.getLhs()), rhs = parse(compare.getRhs());
    if (!lhs || !rhs || (lhs->capture && rhs->capture))
      return std::nullopt;
    if (predicate == Predicate::sgt || predicate == Predicate::sge)
      std::swap(lhs, rhs);
    else if (predicate != Predicate::slt && predicate != Predicate::sle)
      return std::nullopt;
    bool strict = predicate == Predicate::slt || predicate == Predicate::sgt;
    PositionSum x{lhs->i - rhs->i, lhs->j - rhs->j, lhs->constant - rhs->constant + strict,
                  lhs->capture ? lhs->scale : -rhs->scale, lhs->capture ? lhs->capture : rhs->capture};
    if (!x.capture)
      x.scale = 0;
    return std::abs(x.constant) <= PositionSum::kLimit ? std::optional(x) : std::nullopt;
  }

  /// j < n or j <= n, both floats (which hold each position below 2^24, of which no score has more).
  std::optional<SmallVector<ProvedTerm>> lengthsTerm(arith::CmpFOp compare, bool negated) {
    using P = arith::CmpFPredicate;
    P predicate = compare.getPredicate();
    Value position = compare.getLhs(), size = compare.getRhs();
    bool swapped = isa<BlockArgument>(position);
    if (swapped)
      std::swap(position, size);
    // As position < size: where that is to hold, or not to.
    bool less = llvm::is_contained({P::OLT, P::ULT, P::OLE, P::ULE}, predicate);
    bool greater = llvm::is_contained({P::OGT, P::UGT, P::OGE, P::UGE}, predicate);
    bool showsLess = swapped ? greater : less;
    if ((!less && !greater) || showsLess == negated)
      return std::nullopt;
    bool isOrdered = llvm::is_contained({P::OLT, P::OLE, P::OGT, P::OGE}, predicate);
    bool isStrict = llvm::is_contained({P::OLT, P::ULT, P::OGT, P::UGT}, predicate) != negated;
    auto capture = dyn_cast<BlockArgument>(size);
    auto cast = position.getDefiningOp<arith::SIToFPOp>();
    std::optional<PositionSum> at = cast ? parse(cast.getIn()) : std::nullopt;
    if (!capture || capture == op.getScore().front().getArgument(0) || !namesNoKey(capture) || !at || at->i != 0 ||
        at->j != 1 || at->capture || position.getType().getIntOrFloatBitWidth() < 32)
      return std::nullopt;
    ProvedTerm term{LengthsAttr::get(context), capture, 1, (isStrict ? 0 : 1) - at->constant};
    term.roundsUp = isStrict;
    term.showsNaN = isOrdered == negated;
    return SmallVector<ProvedTerm>{term};
  }

  std::optional<SmallVector<ProvedTerm>> termsOf(arith::CmpIOp compare, bool negated) {
    constexpr int64_t inf = WindowAttr::kInf;
    // A stored mask: not 0 where visible.
    auto predicate = negated ? arith::invertPredicate(compare.getPredicate()) : compare.getPredicate();
    auto argument = dyn_cast<BlockArgument>(compare.getLhs());
    if (predicate == arith::CmpIPredicate::ne && argument && isa<IntegerType>(argument.getType()) &&
        matchPattern(compare.getRhs(), m_Zero()))
      return SmallVector<ProvedTerm>{{DenseMaskAttr::get(context), argument}};
    // |i - j| <= width
    if (auto absolute = compare.getLhs().getDefiningOp<math::AbsIOp>()) {
      std::optional<PositionSum> inner = parse(absolute.getOperand()), width = parse(compare.getRhs());
      bool strict = predicate == arith::CmpIPredicate::slt;
      if (inner && width && !inner->capture && !width->capture && inner->i * inner->j == -1 && width->i == 0 &&
          width->j == 0 && (strict || predicate == arith::CmpIPredicate::sle)) {
        int64_t reach = width->constant - strict, shift = inner->i == 1 ? inner->constant : -inner->constant;
        // i - j + shift in [-reach, reach]
        return SmallVector<ProvedTerm>{
            {WindowAttr::get(context, reach - shift, reach + shift, WindowBase::diagonal), {}}};
      }
      return std::nullopt;
    }
    if (predicate == arith::CmpIPredicate::eq)
      return equalityTerm(compare);
    std::optional<PositionSum> x = visibleWhereNotPositive(compare, negated);
    if (!x || !namesNoKey(x->capture))
      return std::nullopt;
    if (!x->capture && x->i <= 0 && x->j <= 0 && x->constant <= 0)
      return SmallVector<ProvedTerm>(); // i >= 0 and the like: hides nothing
    int64_t bound = -x->constant;
    auto one = [](Attribute term, BlockArgument capture, int64_t scale, int64_t constant) {
      return SmallVector<ProvedTerm>{{term, capture, scale, constant}};
    };
    if (x->i == -1 && x->j == 1) // j <= i + bound - scale * capture
      return one(CausalAttr::get(context, x->capture ? ShapedType::kDynamic : bound), x->capture, -x->scale, bound);
    if (x->i == 1 && x->j == -1 && !x->capture) // j >= i - bound
      return one(WindowAttr::get(context, bound, inf, WindowBase::diagonal), {}, 1, 0);
    if (x->i == 1 && x->j == -1) // j >= i - bound + scale * capture
      return one(WindowAttr::get(context, 0, inf, WindowBase::offset), x->capture, x->scale, -bound);
    if (x->i == 0 && x->j == 1) // j < bound + 1 - scale * capture
      return one(LengthsAttr::get(context), x->capture, -x->scale, bound + 1);
    if (x->i == 0 && x->j == -1) // j >= scale * capture - bound
      return one(WindowAttr::get(context, 0, inf, WindowBase::centre), x->capture, x->scale, -bound);
    return std::nullopt;
  }

  /// The number by which the positions of query and key are divided in `first` and `second`.
  std::optional<int64_t> chunkOf(Value first, Value second) {
    std::optional<PositionQuotient> query = PositionQuotient::find(op, first), key = PositionQuotient::find(op, second);
    bool fits =
        query && key && query->divisor == key->divisor && query->dim == AttentionOp::I && key->dim == AttentionOp::J;
    return fits ? std::optional(query->divisor) : std::nullopt;
  }

  /// floor(i / n) compared with floor(j / n), or |floor(i / n) - floor(j / n)| with a constant.
  std::optional<ProvedTerm> chunksTerm(Operation *test, bool negated) {
    using Predicate = arith::CmpIPredicate;
    auto integers = dyn_cast_or_null<arith::CmpIOp>(test);
    auto reals = dyn_cast_or_null<arith::CmpFOp>(test);
    std::optional<Predicate> predicate;
    if (integers)
      predicate = integers.getPredicate();
    else if (reals)
      predicate = asIntegers(reals.getPredicate());
    if (!predicate)
      return std::nullopt;
    if (negated)
      predicate = arith::invertPredicate(*predicate);
    Value lhs = test->getOperand(0), rhs = test->getOperand(1);
    bool isStrict = predicate == Predicate::slt || predicate == Predicate::sgt;
    bool isLess = predicate == Predicate::slt || predicate == Predicate::sle;
    auto make = [&](int64_t size, int64_t left, int64_t right) {
      return ProvedTerm{ChunksAttr::get(context, size, left, right, WindowBase::diagonal), {}};
    };
    if (auto absolute = lhs.getDefiningOp<math::AbsIOp>()) {
      auto difference = absolute.getOperand().getDefiningOp<arith::SubIOp>();
      IntegerAttr width;
      if (!isLess || !difference || !matchPattern(rhs, m_Constant(&width)) ||
          width.getValue().getSignificantBits() > 16)
        return std::nullopt;
      int64_t reach = width.getValue().getSExtValue() - isStrict;
      std::optional<int64_t> size = chunkOf(difference.getLhs(), difference.getRhs());
      if (!size)
        size = chunkOf(difference.getRhs(), difference.getLhs());
      return size && reach >= 0 ? std::optional(make(*size, reach, reach)) : std::nullopt;
    }
    bool isGreater = predicate == Predicate::sgt || predicate == Predicate::sge;
    if (!isLess && !isGreater && predicate != Predicate::eq)
      return std::nullopt;
    std::optional<int64_t> size = chunkOf(lhs, rhs);
    bool isKeyLess = size ? isGreater : isLess;
    if (!size)
      size = chunkOf(rhs, lhs);
    if (!size)
      return std::nullopt;
    if (predicate == Predicate::eq)
      return make(*size, 0, 0);
    return isKeyLess ? make(*size, WindowAttr::kInf, -isStrict) : make(*size, -isStrict, WindowAttr::kInf);
  }

  /// j == i + constant, or j == scale * capture + constant.
  std::optional<SmallVector<ProvedTerm>> equalityTerm(arith::CmpIOp compare) {
    std::optional<PositionSum> lhs = parse(compare.getLhs()), rhs = parse(compare.getRhs());
    if (!lhs || !rhs)
      return std::nullopt;
    if (lhs->j == 0)
      std::swap(lhs, rhs);
    if (lhs->j != 1 || lhs->i != 0 || lhs->capture || rhs->j != 0 || !namesNoKey(rhs->capture))
      return std::nullopt;
    int64_t shift = rhs->constant - lhs->constant;
    if (rhs->i == 1 && !rhs->capture)
      return SmallVector<ProvedTerm>{{WindowAttr::get(context, -shift, shift, WindowBase::diagonal), {}}};
    if (rhs->i == 0 && rhs->capture)
      return SmallVector<ProvedTerm>{
          {WindowAttr::get(context, 0, 0, WindowBase::centre), rhs->capture, rhs->scale, shift}};
    return std::nullopt;
  }

  AttentionOp op;
  MLIRContext *context;
  bool takesFinite;
  ElementReader reader;
  PositionSums sums;
  double scale = 1; ///< of the score at hand in what the region yields
  ProvedMask mask;
};

} // namespace

ProvedMask proveMask(AttentionOp op, bool takesFinite) { return MaskReader(op, takesFinite).read(); }

bool reachesScores(Value value) {
  auto isFound = [](OpOperand &use) {
    if (auto attention = dyn_cast<AttentionOp>(use.getOwner()))
      return llvm::is_contained(attention.getCaptures(), use.get()) ||
             llvm::is_contained(attention.getMaskOperands(), use.get());
    return isa<SoftmaxOp>(use.getOwner());
  };
  return hasUse(value, isFound,
                [](Operation *user) { return isPerElement(user) || isa<tensor::ExtractSliceOp>(user); });
}

std::string nameMask(AttentionOp op) {
  ProvedMask mask = proveMask(op);
  SmallVector<StringRef> names;
  auto add = [&](StringRef name) {
    if (!llvm::is_contained(names, name))
      names.push_back(name);
  };
  for (Attribute term : op.getMask())
    add(getMaskName(term));
  DenseSet<Value> explained;
  for (const ProvedTerm &term : mask.terms) {
    add(getMaskName(term.term));
    explained.insert(term.capture);
  }
  for (size_t n = 0; n != op.getCaptures().size(); ++n) {
    BlockArgument argument = op.getScore().front().getArgument(1 + n);
    if (AttentionOp::names(op.getCaptureMap(n), AttentionOp::J) && !argument.use_empty() &&
        !explained.contains(argument))
      add("dense");
  }
  bool onPositions = false;
  op.getScore().walk([&](IndexOp index) { onPositions |= index.getDim() == AttentionOp::J; });
  if (mask.hasOther || (names.empty() && onPositions))
    add("computed");
  return names.empty() ? "none" : llvm::join(names, "+");
}

AttentionOp dropUnusedCaptures(RewriterBase &rewriter, AttentionOp to) {
  SmallVector<Block *> blocks;
  for (Region *region : {&to.getScore(), &to.getWeight(), &to.getMasked()})
    if (!region->empty())
      blocks.push_back(&region->front());
  AttentionParts parts = to.getParts();
  size_t firstMap = to.getNumOperands() - parts.maskOperands.size() - parts.captures.size();
  bool changed = false;
  for (size_t n = parts.captures.size(); n-- > 0;) {
    if (llvm::any_of(blocks, [&](Block *block) { return !block->getArgument(1 + n).use_empty(); }))
      continue;
    for (Block *block : blocks)
      block->eraseArgument(1 + n);
    parts.captures.erase(parts.captures.begin() + n);
    parts.maps.erase(parts.maps.begin() + firstMap + n);
    changed = true;
  }
  if (!changed)
    return to;
  rewriter.setInsertionPoint(to);
  auto fewer = AttentionOp::create(rewriter, to.getLoc(), parts);
  for (auto [from, into] : llvm::zip_equal(to->getRegions(), fewer->getRegions()))
    into.takeBody(from);
  rewriter.replaceOp(to, fewer->getResults());
  return fewer;
}

} // namespace attn
