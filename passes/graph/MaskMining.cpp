#include "passes/graph/MaskMining.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace attn {
namespace {

/// i * query + j * key + constant + scale * capture
struct Linear {
  int64_t i = 0, j = 0, constant = 0, scale = 0;
  BlockArgument capture;
};

/// Constants beyond are left alone, so that sums stay far from overflow.
constexpr int64_t kLimit = int64_t(1) << 40;

std::optional<Linear> parse(Value value, unsigned depth = 0) {
  IntegerAttr constant;
  if (depth > 16)
    return std::nullopt;
  if (matchPattern(value, m_Constant(&constant))) {
    Linear linear;
    if (constant.getValue().getSignificantBits() > 40)
      return std::nullopt;
    linear.constant = constant.getValue().getSExtValue();
    return linear;
  }
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (!isa<IntegerType, IndexType>(value.getType()) || value.getType().isInteger(1))
      return std::nullopt;
    Linear linear;
    linear.capture = argument;
    linear.scale = 1;
    return linear;
  }
  Operation *op = value.getDefiningOp();
  if (auto index = dyn_cast<IndexOp>(op)) {
    Linear linear;
    if (index.getDim() == AttentionOp::I)
      linear.i = 1;
    else if (index.getDim() == AttentionOp::J)
      linear.j = 1;
    else
      return std::nullopt;
    return linear;
  }
  if (isa<arith::IndexCastOp, arith::ExtSIOp>(op)) {
    if (value.getType().isInteger() && value.getType().getIntOrFloatBitWidth() < 32)
      return std::nullopt; // a position may be cut
    return parse(op->getOperand(0), depth + 1);
  }
  if (!isa<arith::AddIOp, arith::SubIOp>(op))
    return std::nullopt;
  std::optional<Linear> lhs = parse(op->getOperand(0), depth + 1), rhs = parse(op->getOperand(1), depth + 1);
  if (!lhs || !rhs || (lhs->capture && rhs->capture))
    return std::nullopt;
  int64_t sign = isa<arith::SubIOp>(op) ? -1 : 1;
  Linear sum{lhs->i + sign * rhs->i, lhs->j + sign * rhs->j, lhs->constant + sign * rhs->constant,
             lhs->capture ? lhs->scale : sign * rhs->scale, lhs->capture ? lhs->capture : rhs->capture};
  if (std::abs(sum.constant) > kLimit)
    return std::nullopt;
  return sum;
}

class MaskReader {
public:
  explicit MaskReader(AttentionOp op) : op(op), context(op.getContext()) {}

  ProvedMask read() {
    auto yield = cast<YieldOp>(op.getScore().front().back());
    readScore(yield.getValue());
    return std::move(mask);
  }

private:
  bool dependsOnScore(Value value) {
    if (value == op.getScore().front().getArgument(0))
      return true;
    Operation *definition = value.getDefiningOp();
    return definition && llvm::any_of(definition->getOperands(), [&](Value v) { return dependsOnScore(v); });
  }
  static bool isHidden(Value value) {
    FloatAttr number;
    return matchPattern(value, m_Constant(&number)) && number.getValue().isInfinity() && number.getValue().isNegative();
  }

  /// Follows the score from the yield down to where it is something else than
  /// selected or added to.
  void readScore(Value value) {
    while (Operation *definition = value.getDefiningOp()) {
      if (auto select = dyn_cast<arith::SelectOp>(definition)) {
        bool hidesTrue = isHidden(select.getTrueValue());
        if (!hidesTrue && !isHidden(select.getFalseValue()))
          return;
        prove(select.getCondition(), /*negated=*/hidesTrue);
        value = hidesTrue ? select.getFalseValue() : select.getTrueValue();
        continue;
      }
      auto add = dyn_cast<arith::AddFOp>(definition);
      if (!add)
        return;
      bool left = dependsOnScore(add.getLhs());
      if (left == dependsOnScore(add.getRhs()))
        return;
      readBias(left ? add.getRhs() : add.getLhs());
      value = left ? add.getLhs() : add.getRhs();
    }
  }

  void readBias(Value bias) {
    Operation *definition = bias.getDefiningOp();
    if (auto add = dyn_cast_or_null<arith::AddFOp>(definition)) {
      readBias(add.getLhs());
      readBias(add.getRhs());
    } else if (auto select = dyn_cast_or_null<arith::SelectOp>(definition)) {
      bool hidesTrue = isHidden(select.getTrueValue());
      if (hidesTrue || isHidden(select.getFalseValue()))
        prove(select.getCondition(), hidesTrue);
    }
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
    if (negated ? isAnd : isOr) {
      provePrefix(definition->getOperand(0), definition->getOperand(1), negated);
      return;
    }
    std::optional<SmallVector<ProvedTerm>> terms;
    if (auto compare = dyn_cast_or_null<arith::CmpIOp>(definition))
      terms = termsOf(compare, negated);
    if (terms)
      llvm::append_range(mask.terms, *terms);
    else
      mask.hasOther = true;
  }

  /// j <= i + offset, or j < n: causal with a prefix.
  void provePrefix(Value lhs, Value rhs, bool negated) {
    for (auto [band, prefix] : {std::pair(lhs, rhs), std::pair(rhs, lhs)}) {
      auto bandTest = band.getDefiningOp<arith::CmpIOp>(), prefixTest = prefix.getDefiningOp<arith::CmpIOp>();
      if (!bandTest || !prefixTest)
        break;
      std::optional<SmallVector<ProvedTerm>> terms = termsOf(bandTest, negated);
      std::optional<Linear> difference = visibleWhereNotPositive(prefixTest, negated);
      if (!terms || !difference || terms->size() != 1 || !isa<CausalAttr, WindowAttr>(terms->front().term) ||
          difference->i != 0 || difference->j != 1 || difference->capture || -difference->constant < 0)
        continue;
      // More than one prefix would widen each other's terms.
      if (llvm::any_of(mask.terms, [](const ProvedTerm &term) { return !isa<LengthsAttr, DenseMaskAttr>(term.term); }))
        break;
      mask.terms.push_back(terms->front());
      mask.terms.push_back({PrefixAttr::get(context, 1 - difference->constant), {}});
      return;
    }
    mask.hasOther = true;
  }

  /// x such that the key is visible where x <= 0.
  static std::optional<Linear> visibleWhereNotPositive(arith::CmpIOp compare, bool negated) {
    using Predicate = arith::CmpIPredicate;
    Predicate predicate = negated ? arith::invertPredicate(compare.getPredicate()) : compare.getPredicate();
    std::optional<Linear> lhs = parse(compare.getLhs()), rhs = parse(compare.getRhs());
    if (!lhs || !rhs || (lhs->capture && rhs->capture))
      return std::nullopt;
    if (predicate == Predicate::sgt || predicate == Predicate::sge)
      std::swap(lhs, rhs);
    else if (predicate != Predicate::slt && predicate != Predicate::sle)
      return std::nullopt;
    bool strict = predicate == Predicate::slt || predicate == Predicate::sgt;
    Linear x{lhs->i - rhs->i, lhs->j - rhs->j, lhs->constant - rhs->constant + strict,
             lhs->capture ? lhs->scale : -rhs->scale, lhs->capture ? lhs->capture : rhs->capture};
    if (!x.capture)
      x.scale = 0;
    return std::abs(x.constant) <= kLimit ? std::optional(x) : std::nullopt;
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
      std::optional<Linear> inner = parse(absolute.getOperand()), width = parse(compare.getRhs());
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
    std::optional<Linear> x = visibleWhereNotPositive(compare, negated);
    if (!x)
      return std::nullopt;
    int64_t bound = -x->constant;
    if (x->i == -1 && x->j == 1) // j <= i + bound - scale * capture
      return SmallVector<ProvedTerm>{
          {CausalAttr::get(context, x->capture ? ShapedType::kDynamic : bound), x->capture, -x->scale, bound}};
    if (x->i == 1 && x->j == -1 && !x->capture) // j >= i - bound
      return SmallVector<ProvedTerm>{{WindowAttr::get(context, bound, inf, WindowBase::diagonal), {}}};
    if (x->i == 0 && x->j == 1 && x->capture) // j < bound + 1 - scale * capture
      return SmallVector<ProvedTerm>{{LengthsAttr::get(context), x->capture, -x->scale, bound + 1}};
    return std::nullopt;
  }

  AttentionOp op;
  MLIRContext *context;
  ProvedMask mask;
};

} // namespace

ProvedMask proveMask(AttentionOp op) { return MaskReader(op).read(); }

} // namespace attn
