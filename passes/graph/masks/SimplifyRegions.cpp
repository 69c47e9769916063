#include "passes/graph/masks/SimplifyRegions.h"

#include "passes/graph/Structured.h"
#include "passes/graph/element/Element.h"
#include "passes/graph/masks/MaskMining.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/ADT/DenseSet.h"
#include <cmath>
#include <optional>
#include <tuple>

using namespace mlir;

namespace attn {
namespace {

/// Whether scores are rounded to steps of 1/4 and more (of bf16: 2) where `number` is added.
bool isCoarse(const APFloat &number) { return number.isFinite() && std::abs(number.convertToDouble()) >= 256; }

/// Whether an element may be a finite number that hides keys: a large constant, or a float that a run, a file or an op
/// that is not followed brings.
class MayHide final : public ElementDomain<bool> {
public:
  explicit MayHide(ElementReader &reader) : ElementDomain(reader, /*unknown=*/true) {}

private:
  bool compute(const Element &element) override {
    // Integers become floats: those that a run brings may be anything, but for flags; what the file holds are
    // positions.
    Type type = getElementTypeOrSelf(element.value);
    bool isFloat = isa<FloatType>(type);
    if (type.isIndex() || type.isInteger(1))
      return false;
    if (auto number = dyn_cast_or_null<FloatAttr>(splatConstant(element.value)))
      return isCoarse(number.getValue());
    Value value = element.value;
    Operation *op = element.getOp();
    if (!op) // the score, or what a run brings
      return !isa<AttentionOp>(value.getParentRegion()->getParentOp()) && (isFloat || type.getIntOrFloatBitWidth() > 8);
    DenseElementsAttr elements;
    if (matchPattern(value, m_Constant(&elements)))
      return isFloat && llvm::any_of(elements.getValues<APFloat>(), isCoarse);
    if (isa<tensor::ExtractOp, tensor::InsertSliceOp>(op))
      return llvm::any_of(reader.sources(element), [&](const Element &source) { return of(source); });
    if (isa<RankedTensorType>(value.getType()))
      return isFloat;
    return llvm::any_of(llvm::seq(op->getNumOperands()), [&](unsigned n) { return ofOperand(element, n); });
  }
};

/// extf(truncf(x)) -> x: the fused form keeps f32 where the graph rounds to a half type between two operations. But not
/// around the sum of a score and a finite mask, which is rounded to steps of the mask's size: those are the scores of a
/// row that sees no key. Nor around what scales such a sum.
struct DropRounding : OpRewritePattern<arith::ExtFOp> {
  DropRounding(MLIRContext *context, AttentionOp op) : OpRewritePattern(context), attention(op) {}

  LogicalResult matchAndRewrite(arith::ExtFOp op, PatternRewriter &rewriter) const override {
    auto trunc = op.getIn().getDefiningOp<arith::TruncFOp>();
    if (!trunc || trunc.getIn().getType() != op.getType())
      return failure();
    if (isCoarseScore(trunc.getIn().getDefiningOp()) || llvm::any_of(op->getUsers(), [&](Operation *user) {
          return isMaskedSum(user) && llvm::any_of(user->getUsers(), llvm::IsaPred<arith::TruncFOp>);
        }))
      return failure();
    rewriter.replaceOp(op, trunc.getIn());
    return success();
  }

private:
  /// A sum of a score and a mask, or one that was rounded and is scaled.
  bool isCoarseScore(Operation *op) const {
    if (!isa_and_nonnull<arith::MulFOp, arith::DivFOp>(op))
      return isMaskedSum(op);
    return llvm::any_of(op->getOperands(), [&](Value operand) {
      auto extension = operand.getDefiningOp<arith::ExtFOp>();
      auto trunc = extension ? extension.getIn().getDefiningOp<arith::TruncFOp>() : arith::TruncFOp();
      return trunc && isCoarseScore(trunc.getIn().getDefiningOp());
    });
  }
  bool isMaskedSum(Operation *op) const {
    ElementReader reader(attention);
    return isa_and_nonnull<arith::AddFOp, arith::SubFOp>(op) && op->getParentRegion() == &attention.getScore() &&
           MayHide(reader).of(reader.at(op->getResult(0)));
  }

  mutable AttentionOp attention;
};

/// A comparison of `select c, x, y` with z, all constants, or of an i1 widened
/// to an integer: c, its opposite, or known. Masks stored as 0 and 1 are tested
/// so; what hides a key then is the comparison of positions itself.
template <typename CompareOp> struct SkipStoredBool : OpRewritePattern<CompareOp> {
  using OpRewritePattern<CompareOp>::OpRewritePattern;

  LogicalResult matchAndRewrite(CompareOp op, PatternRewriter &rewriter) const override {
    constexpr bool isFloat = std::is_same_v<CompareOp, arith::CmpFOp>;
    using Number = std::conditional_t<isFloat, FloatAttr, IntegerAttr>;
    Value condition;
    Number whenTrue, whenFalse, other;
    if (!matchPattern(op.getRhs(), m_Constant(&other)))
      return failure();
    if (auto select = op.getLhs().template getDefiningOp<arith::SelectOp>()) {
      condition = select.getCondition();
      if (!matchPattern(select.getTrueValue(), m_Constant(&whenTrue)) ||
          !matchPattern(select.getFalseValue(), m_Constant(&whenFalse)))
        return failure();
    } else if (auto extension = op.getLhs().template getDefiningOp<arith::ExtUIOp>()) {
      condition = extension.getIn();
      if constexpr (!isFloat) {
        whenTrue = rewriter.getIntegerAttr(op.getLhs().getType(), 1);
        whenFalse = rewriter.getIntegerAttr(op.getLhs().getType(), 0);
      }
    }
    if (!condition || !condition.getType().isInteger(1))
      return failure();
    bool ifTrue = arith::applyCmpPredicate(op.getPredicate(), whenTrue.getValue(), other.getValue());
    bool ifFalse = arith::applyCmpPredicate(op.getPredicate(), whenFalse.getValue(), other.getValue());
    if (ifTrue == ifFalse) {
      rewriter.replaceOpWithNewOp<arith::ConstantOp>(op, rewriter.getBoolAttr(ifTrue));
    } else if (ifTrue) {
      rewriter.replaceOp(op, condition);
    } else {
      Value one = arith::ConstantOp::create(rewriter, op.getLoc(), rewriter.getBoolAttr(true));
      rewriter.replaceOpWithNewOp<arith::XOrIOp>(op, condition, one);
    }
    return success();
  }
};

/// A change of the float type of a select that has a constant is one of what it selects: a mask that is added in a half
/// type hides as one in f32 does.
template <typename ConvertOp> struct ConvertSelected : OpRewritePattern<ConvertOp> {
  using OpRewritePattern<ConvertOp>::OpRewritePattern;

  LogicalResult matchAndRewrite(ConvertOp op, PatternRewriter &rewriter) const override {
    auto select = op.getIn().template getDefiningOp<arith::SelectOp>();
    if (!select ||
        (!matchPattern(select.getTrueValue(), m_Constant()) && !matchPattern(select.getFalseValue(), m_Constant())))
      return failure();
    Value whenTrue = ConvertOp::create(rewriter, op.getLoc(), op.getType(), select.getTrueValue());
    Value whenFalse = ConvertOp::create(rewriter, op.getLoc(), op.getType(), select.getFalseValue());
    rewriter.replaceOpWithNewOp<arith::SelectOp>(op, select.getCondition(), whenTrue, whenFalse);
    return success();
  }
};

/// A bool as a number, also by an integer -> c ? 1 : 0.
template <typename ConvertOp> struct SelectNumber : OpRewritePattern<ConvertOp> {
  using OpRewritePattern<ConvertOp>::OpRewritePattern;

  LogicalResult matchAndRewrite(ConvertOp op, PatternRewriter &rewriter) const override {
    Value condition = op.getIn();
    if (auto extension = condition.getDefiningOp<arith::ExtUIOp>())
      condition = extension.getIn();
    else if (std::is_same_v<ConvertOp, arith::SIToFPOp>)
      return failure(); // of a bit itself: -1
    if (!condition.getType().isInteger(1))
      return failure();
    Value one = floatConstant(rewriter, op.getLoc(), op.getType(), 1);
    Value zero = floatConstant(rewriter, op.getLoc(), op.getType(), 0);
    rewriter.replaceOpWithNewOp<arith::SelectOp>(op, condition, one, zero);
    return success();
  }
};

/// A sum or product of a select of constants and a constant is one of what it selects: (1 - adjacent) * -1e9 hides.
template <typename Op> struct ComputeSelected : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;

  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    for (unsigned side : {0, 1}) {
      auto select = op->getOperand(side).template getDefiningOp<arith::SelectOp>();
      FloatAttr other, whenTrue, whenFalse;
      if (!select || !matchPattern(op->getOperand(1 - side), m_Constant(&other)) ||
          !matchPattern(select.getTrueValue(), m_Constant(&whenTrue)) ||
          !matchPattern(select.getFalseValue(), m_Constant(&whenFalse)))
        continue;
      auto compute = [&](Value chosen) {
        return side == 0 ? rewriter.createOrFold<Op>(op.getLoc(), chosen, op.getRhs())
                         : rewriter.createOrFold<Op>(op.getLoc(), op.getLhs(), chosen);
      };
      Value first = compute(select.getTrueValue()), second = compute(select.getFalseValue());
      rewriter.replaceOpWithNewOp<arith::SelectOp>(op, select.getCondition(), first, second);
      return success();
    }
    return failure();
  }
};

/// Whether `a` holds where `b` does (true), or where it does not (false).
std::optional<bool> agree(Value a, Value b) {
  if (a == b)
    return true;
  auto first = a.getDefiningOp<arith::CmpIOp>(), second = b.getDefiningOp<arith::CmpIOp>();
  if (first && second && first.getLhs() == second.getLhs() && first.getRhs() == second.getRhs() &&
      first.getPredicate() == arith::invertPredicate(second.getPredicate()))
    return false;
  auto isNot = [](Value x, Value of) {
    auto flip = x.getDefiningOp<arith::XOrIOp>();
    return flip && flip.getLhs() == of && matchPattern(flip.getRhs(), m_One());
  };
  return isNot(a, b) || isNot(b, a) ? std::optional(false) : std::nullopt;
}

/// `c ? x : 0` as `select` or as a product of x with a number and 0; x is null where `value` is no such.
struct KeptPart {
  Value condition, kept;
  bool whenTrue = true; ///< where the condition holds; else where it does not
  Value factor;         ///< of x; null for 1

  static KeptPart of(Value value) {
    if (auto product = value.getDefiningOp<arith::MulFOp>())
      for (unsigned side : {0, 1})
        if (auto factor = product->getOperand(side).getDefiningOp<arith::SelectOp>())
          for (bool whenTrue : {true, false}) {
            Value kept = whenTrue ? factor.getTrueValue() : factor.getFalseValue();
            if (matchPattern(kept, m_Constant()) &&
                matchPattern(whenTrue ? factor.getFalseValue() : factor.getTrueValue(), m_AnyZeroFloat()))
              return {factor.getCondition(), product->getOperand(1 - side), whenTrue,
                      matchPattern(kept, m_OneFloat()) ? Value() : kept};
          }
    if (auto select = value.getDefiningOp<arith::SelectOp>())
      for (bool whenTrue : {true, false})
        if (matchPattern(whenTrue ? select.getFalseValue() : select.getTrueValue(), m_AnyZeroFloat()))
          return {select.getCondition(), whenTrue ? select.getTrueValue() : select.getFalseValue(), whenTrue, {}};
    return {};
  }
};

/// k where `value` is a constant k, or x + k, that hides a key.
std::optional<double> hiddenBy(Value value, Value x) {
  FloatAttr number;
  double sign = 1;
  if (auto sum = value.getDefiningOp<arith::AddFOp>(); sum && sum.getLhs() == x)
    value = sum.getRhs();
  else if (auto difference = value.getDefiningOp<arith::SubFOp>(); difference && difference.getLhs() == x)
    std::tie(value, sign) = std::pair(difference.getRhs(), -1.0);
  if (!matchPattern(value, m_Constant(&number)) || !(sign * number.getValueAsDouble() <= kFiniteMask))
    return std::nullopt;
  return sign * number.getValueAsDouble();
}

/// x * (c ? 1 : 0) + (c ? 0 : hidden) -> c ? x : hidden, of a sum or a difference, where hidden is a constant or x and
/// one: what is hidden is not -1e4 where x is NaN or infinite, but no key, as behind other masks.
template <typename Op> struct SelectScore : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;

  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    constexpr bool isSum = std::is_same_v<Op, arith::AddFOp>;
    for (unsigned side : {0, 1}) {
      KeptPart score = KeptPart::of(op->getOperand(side)), other = KeptPart::of(op->getOperand(1 - side));
      if ((side == 1 && !isSum) || !score.kept || !other.kept || other.factor || matchPattern(score.kept, m_Constant()))
        continue;
      std::optional<bool> agrees = agree(score.condition, other.condition);
      if (!agrees || *agrees == (score.whenTrue == other.whenTrue))
        continue;
      Value hidden = other.kept;
      FloatAttr number;
      if (!isSum) { // a constant alone
        if (!matchPattern(hidden, m_Constant(&number)))
          continue;
        hidden = arith::ConstantOp::create(rewriter, op.getLoc(),
                                           FloatAttr::get(cast<FloatType>(op.getType()), neg(number.getValue())));
      }
      if (!hiddenBy(hidden, score.factor ? Value() : score.kept))
        continue;
      Value kept = score.kept;
      if (score.factor)
        kept = arith::MulFOp::create(rewriter, op.getLoc(), kept, score.factor);
      rewriter.replaceOpWithNewOp<arith::SelectOp>(op, score.condition, score.whenTrue ? kept : hidden,
                                                   score.whenTrue ? hidden : kept);
      return success();
    }
    return failure();
  }
};

/// c ? x : x + hidden -> x + (c ? 0 : hidden)
struct AddSelected : OpRewritePattern<arith::SelectOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::SelectOp op, PatternRewriter &rewriter) const override {
    for (bool whenTrue : {true, false}) {
      Value x = whenTrue ? op.getTrueValue() : op.getFalseValue();
      Value shifted = whenTrue ? op.getFalseValue() : op.getTrueValue();
      std::optional<double> hidden = hiddenBy(shifted, x);
      if (!hidden || matchPattern(shifted, m_Constant()))
        continue;
      auto constant = [&](double number) -> Value {
        return arith::ConstantOp::create(rewriter, op.getLoc(), rewriter.getFloatAttr(op.getType(), number));
      };
      Value shown = constant(0), fill = constant(*hidden);
      Value bias = arith::SelectOp::create(rewriter, op.getLoc(), op.getCondition(), whenTrue ? shown : fill,
                                           whenTrue ? fill : shown);
      rewriter.replaceOpWithNewOp<arith::AddFOp>(op, x, bias);
      return success();
    }
    return failure();
  }
};

/// x + 0 -> x: what is left of a mask that became a term.
struct DropZero : OpRewritePattern<arith::AddFOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(arith::AddFOp op, PatternRewriter &rewriter) const override {
    bool isRight = matchPattern(op.getRhs(), m_AnyZeroFloat());
    if (!isRight && !matchPattern(op.getLhs(), m_AnyZeroFloat()))
      return failure();
    rewriter.replaceOp(op, isRight ? op.getLhs() : op.getRhs());
    return success();
  }
};

bool isNaNTest(Value condition, Value x) {
  if (auto test = condition.getDefiningOp<math::IsNaNOp>())
    return test.getOperand() == x;
  auto compare = condition.getDefiningOp<arith::CmpFOp>();
  if (!compare || compare.getLhs() != x)
    return false;
  // x != x, or an unordered comparison with x itself or any number.
  if (compare.getRhs() == x)
    return compare.getPredicate() == arith::CmpFPredicate::UNE || compare.getPredicate() == arith::CmpFPredicate::UNO;
  FloatAttr number;
  return compare.getPredicate() == arith::CmpFPredicate::UNO && matchPattern(compare.getRhs(), m_Constant(&number)) &&
         !number.getValue().isNaN();
}

bool isNumberTest(Value condition, Value x) {
  auto compare = condition.getDefiningOp<arith::CmpFOp>();
  return compare && compare.getLhs() == x && compare.getRhs() == x &&
         (compare.getPredicate() == arith::CmpFPredicate::ORD || compare.getPredicate() == arith::CmpFPredicate::OEQ);
}

/// `weight` where it is a number and 0 where it is NaN.
bool isGuard(arith::SelectOp select, Value weight) {
  if (select.getFalseValue() == weight)
    return isNaNTest(select.getCondition(), weight) && matchPattern(select.getTrueValue(), m_AnyZeroFloat());
  return select.getTrueValue() == weight && matchPattern(select.getFalseValue(), m_AnyZeroFloat()) &&
         isNumberTest(select.getCondition(), weight);
}

void simplify(Region &region, const FrozenRewritePatternSet &patterns) {
  SmallVector<Operation *> ops;
  region.walk([&](Operation *op) {
    if (!isa<YieldOp>(op))
      ops.push_back(op);
  });
  (void)applyOpPatternsGreedily(ops, patterns);
}

} // namespace

void simplifyRegions(RewriterBase &rewriter, AttentionOp op) {
  RewritePatternSet patterns(op.getContext());
  patterns.add<AddSelected, SelectNumber<arith::UIToFPOp>, SelectNumber<arith::SIToFPOp>,
               ConvertSelected<arith::ExtFOp>, ConvertSelected<arith::TruncFOp>, ComputeSelected<arith::AddFOp>,
               ComputeSelected<arith::SubFOp>, ComputeSelected<arith::MulFOp>, SelectScore<arith::AddFOp>,
               SelectScore<arith::SubFOp>, DropZero, SkipStoredBool<arith::CmpFOp>, SkipStoredBool<arith::CmpIOp>>(
      op.getContext());
  patterns.add<DropRounding>(op.getContext(), op);
  op.getContext()->getLoadedDialect<arith::ArithDialect>()->getCanonicalizationPatterns(patterns);
  for (RegisteredOperationName name : op.getContext()->getRegisteredOperationsByDialect("arith"))
    name.getCanonicalizationPatterns(patterns, op.getContext());
  FrozenRewritePatternSet frozen(std::move(patterns));
  for (int round = 0; round != 2; ++round) { // the second for roundings of sums of which a mask was a part
    // What a mask tells apart is one value then, however often the graph makes it.
    DominanceInfo dominance(op);
    eliminateCommonSubExpressions(rewriter, dominance, op);
    simplify(op.getScore(), frozen);
    simplify(op.getWeight(), frozen);
  }
  if (op.getWeight().empty())
    return;

  // Whoever takes the weights themselves sees what the guard hides.
  bool givesWeights = false;
  for (unsigned n = 0; n != op.getExtraResults().size(); ++n)
    givesWeights |= op.getExtra(n).getSource() == ExtraSource::weights;
  // The weight is NaN in rows without a visible key (and where a score is NaN). So it is where exponentials that are
  // not of differences overflow, and then the row is no empty one.
  bool mayOverflow = op.getNormalizer() == Normalizer::sum && llvm::any_of(op.getScore().front(), [](Operation &inner) {
                       return isa<math::ExpOp, math::Exp2Op, math::PowFOp, math::ExpM1Op>(inner);
                     });
  Block &block = op.getWeight().front();
  for (Operation *user : llvm::make_early_inc_range(block.getArgument(0).getUsers()))
    if (auto select = dyn_cast<arith::SelectOp>(user);
        select && !givesWeights && !mayOverflow && isGuard(select, block.getArgument(0))) {
      rewriter.replaceOp(select, block.getArgument(0));
      op.setMaskedRows(MaskedRows::zero);
      break;
    }
  simplify(op.getWeight(), frozen);
  if (cast<YieldOp>(block.back()).getValue() == block.getArgument(0))
    rewriter.eraseBlock(&block);
}

} // namespace attn
