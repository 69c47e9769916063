#include "passes/graph/attention/Formula.h"

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/MaskTerms.h"
#include "dialects/attn/NodeLocation.h"
#include "dialects/attn/ScoreKinds.h"
#include "passes/graph/FusionVerdict.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn {
namespace {

/// How tightly the outermost operator of a text binds.
enum Strength { Choice, Or, And, Relation, Sum, Product, Atom };

struct Term {
  std::string text;
  Strength strength = Atom;

  std::string inside(Strength around) const { return strength < around ? "(" + text + ")" : text; }
};

std::string number(double value) {
  if (std::isinf(value))
    return value < 0 ? "-∞" : "∞";
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.4g", value);
  return text;
}

/// "name[b,h/4,j]", of what is read through `map`.
std::string indexed(StringRef name, AffineMap map) {
  SmallVector<std::string> places;
  for (AffineExpr part : map.getResults())
    if (std::optional<unsigned> dim = AttentionOp::getNamedDim(part)) {
      std::string place(1, "bhijde"[*dim]);
      int64_t divisor = AttentionOp::getDivisor(part);
      places.push_back(divisor > 1 ? place + "/" + std::to_string(divisor) : place);
    }
  return places.empty() ? name.str() : name.str() + "[" + llvm::join(places, ",") + "]";
}

/// Writes the value of a region of an attention, its arguments by the names they are given.
class RegionText {
public:
  RegionText(Region &region, ArrayRef<Term> arguments) : region(region), arguments(arguments) {}

  Term write() {
    if (region.empty())
      return arguments.front();
    return of(region.front().getTerminator()->getOperand(0));
  }

private:
  static constexpr unsigned kMostOps = 48; ///< what is longer is named and not spelled

  Term of(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return argument.getArgNumber() < arguments.size() ? arguments[argument.getArgNumber()] : Term{"?"};
    Operation *op = value.getDefiningOp();
    if (++ops > kMostOps)
      return {"…"};
    if (FloatAttr constant; matchPattern(value, m_Constant(&constant)))
      return {number(constant.getValueAsDouble())};
    if (IntegerAttr constant; matchPattern(value, m_Constant(&constant)))
      return {std::to_string(constant.getValue().getSExtValue())};
    return llvm::TypeSwitch<Operation *, Term>(op)
        .Case([](IndexOp index) { return Term{std::string(1, "bhij"[index.getDim()])}; })
        .Case<arith::AddFOp, arith::AddIOp>([&](auto) { return infix(op, " + ", Sum); })
        .Case<arith::SubFOp, arith::SubIOp>([&](auto) { return infix(op, " - ", Sum); })
        .Case<arith::MulFOp, arith::MulIOp>([&](auto) { return infix(op, " × ", Product); })
        .Case<arith::DivFOp, arith::DivSIOp, arith::DivUIOp>([&](auto) { return infix(op, " / ", Product); })
        .Case<arith::AndIOp>([&](auto) { return infix(op, " and ", And); })
        .Case<arith::OrIOp>([&](auto) { return infix(op, " or ", Or); })
        .Case([&](arith::NegFOp) { return Term{"-" + of(op->getOperand(0)).inside(Product), Sum}; })
        .Case<arith::MaximumFOp, arith::MaxNumFOp, arith::MaxSIOp>([&](auto) { return call("max", op); })
        .Case<arith::MinimumFOp, arith::MinNumFOp, arith::MinSIOp>([&](auto) { return call("min", op); })
        .Case([&](arith::CmpFOp compare) { return infix(op, relation(compare.getPredicate()), Relation); })
        .Case([&](arith::CmpIOp compare) { return infix(op, relation(compare.getPredicate()), Relation); })
        .Case([&](arith::SelectOp select) {
          return Term{of(select.getTrueValue()).inside(Relation) + " if " + of(select.getCondition()).inside(Relation) +
                          ", else " + of(select.getFalseValue()).inside(Choice),
                      Choice};
        })
        .Case<arith::ExtFOp, arith::TruncFOp, arith::SIToFPOp, arith::UIToFPOp, arith::FPToSIOp, arith::IndexCastOp,
              arith::ExtSIOp, arith::ExtUIOp, arith::TruncIOp>([&](auto) { return of(op->getOperand(0)); })
        .Default([&](Operation *) { return call(op->getName().stripDialect(), op); });
  }

  Term infix(Operation *op, StringRef sign, Strength strength) {
    // Sums and products associate to the left; the right one of a difference needs parentheses.
    bool associates = !isa<arith::SubFOp, arith::SubIOp, arith::DivFOp, arith::DivSIOp, arith::DivUIOp>(op);
    Term left = of(op->getOperand(0)), right = of(op->getOperand(1));
    if (isa<arith::MulFOp>(op) && matchPattern(op->getOperand(1), m_Constant()))
      std::swap(left, right); // 0.125 × q·k
    auto behind = static_cast<Strength>(associates ? strength : std::min(strength + 1, int(Atom)));
    return {left.inside(strength) + sign.str() + right.inside(behind), strength};
  }

  Term call(StringRef name, Operation *op) {
    SmallVector<std::string> operands;
    for (Value operand : op->getOperands())
      operands.push_back(of(operand).text);
    return {name.str() + "(" + llvm::join(operands, ", ") + ")"};
  }

  static StringRef relation(arith::CmpFPredicate predicate) {
    StringRef name = arith::stringifyCmpFPredicate(predicate);
    return relation(name.starts_with("o") || name.starts_with("u") ? name.drop_front() : name);
  }
  static StringRef relation(arith::CmpIPredicate predicate) {
    StringRef name = arith::stringifyCmpIPredicate(predicate);
    return relation(name.size() == 3 ? name.drop_front() : name);
  }
  static StringRef relation(StringRef name) {
    return llvm::StringSwitch<StringRef>(name)
        .Case("eq", " = ")
        .Case("ne", " ≠ ")
        .Case("lt", " < ")
        .Case("le", " ≤ ")
        .Case("gt", " > ")
        .Case("ge", " ≥ ")
        .Default(" compared with ");
  }

  Region &region;
  ArrayRef<Term> arguments;
  unsigned ops = 0;
};

/// "i + 3", "i", "i - 1".
std::string shifted(const std::string &text, int64_t by) {
  return by == 0 ? text : text + (by < 0 ? " - " : " + ") + std::to_string(std::abs(by));
}

/// Where a bound stands: "i + n + 3", "n - 1", "4".
std::string describePlace(const KeyBound &bound, const std::string &operand) {
  SmallVector<std::string> parts;
  if (bound.movesWithQuery)
    parts.push_back(bound.step == 1 ? "i" : llvm::formatv("{0}⌊i/{0}⌋", bound.step).str());
  if (!operand.empty())
    parts.push_back(operand);
  return parts.empty() ? std::to_string(bound.offset) : shifted(llvm::join(parts, " + "), bound.offset);
}

/// Where the keys of a term stand: "i - 2 ≤ j ≤ i", "j < n".
std::string describeBounds(ArrayRef<KeyBound> bounds, const std::string &operand) {
  std::string text = "j";
  for (KeyBound bound : bounds) {
    bool isCount = bound.isUpper && !bound.movesWithQuery && (operand.empty() || bound.offset == -1);
    bound.offset += isCount;
    std::string place = describePlace(bound, operand);
    text = bound.isUpper ? text + (isCount ? " < " : " ≤ ") + place : place + " ≤ " + text;
  }
  return text;
}

/// Which keys query i sees; "" for all of them.
std::string describeMask(AttentionOp op) {
  SmallVector<std::string> all, near, prefixes;
  unsigned operands = 0;
  for (const MaskTerm &mask : op.getMaskTerms()) {
    std::string operand =
        mask.operand ? indexed("n" + (operands++ ? std::to_string(operands) : std::string()), mask.map) : "";
    MaskJoin join = getMaskJoin(mask.term);
    auto &list = join == MaskJoin::near ? near : join == MaskJoin::prefix ? prefixes : all;
    if (!isTable(mask.term))
      list.push_back(describeBounds(getKeyBounds(mask.term), operand));
    else if (auto blocks = dyn_cast<BlocksAttr>(mask.term))
      all.push_back("its tile of " + std::to_string(blocks.getRows()) + " × " + std::to_string(blocks.getColumns()) +
                    " listed in " + operand);
    else
      all.push_back(operand + " ≠ 0");
  }
  if (!near.empty()) {
    std::string joined = llvm::join(near, " and ");
    all.push_back(prefixes.empty() ? joined : "(" + joined + " or " + llvm::join(prefixes, " or ") + ")");
  }
  return llvm::join(all, " and ");
}

SmallVector<Term> arguments(AttentionOp op, Term first) {
  SmallVector<Term> names{std::move(first)};
  for (unsigned n = 0; n != op.getCaptures().size(); ++n)
    names.push_back({indexed(op.getCaptures().size() == 1 ? "c" : "c" + std::to_string(n + 1), op.getCaptureMap(n))});
  return names;
}

Term rawScore(AttentionOp op) {
  if (!op.getKey())
    return {indexed("r", op.getQueryMap())};
  auto activate = [&](StringRef sum) {
    return RegionText(op.getActivation(), Term{sum.str(), Sum}).write().inside(Atom);
  };
  return {describeScore(op.getKind(), activate), Product};
}

ArrayAttr formulaOf(AttentionOp op, Builder &b) {
  std::string score = "s = " + RegionText(op.getScore(), arguments(op, rawScore(op))).write().text;
  std::string weights = op.getNormalizer() == Normalizer::softmax ? "w = softmax[j](s)"
                        : op.getNormalizer() == Normalizer::sum   ? "w = s / Σ[j] s"
                                                                  : "w = s";
  if (std::string mask = describeMask(op); !mask.empty())
    weights += " over the keys with " + mask;
  std::string result =
      "y = Σ[j] " + RegionText(op.getWeight(), arguments(op, {"w"})).write().inside(Product) + " × v[j]";
  return b.getStrArrayAttr({score, weights, result});
}

/// Sizes of batch, head, query and key; kDynamic where a size is open, 1 where no operand has the dimension.
SmallVector<int64_t> scoreShape(AttentionOp op) {
  SmallVector<int64_t> sizes(4, 1);
  if (ArrayAttr axes = op.getAxesAttr()) {
    for (auto part : axes.getAsRange<AxisPartAttr>()) {
      int64_t &size = sizes[static_cast<unsigned>(part.getAxis())];
      bool isOpen = ShapedType::isDynamic(size) || ShapedType::isDynamic(part.getSize());
      size = isOpen ? ShapedType::kDynamic : size * part.getSize();
    }
    return sizes;
  }
  for (auto [n, operand] : llvm::enumerate(op.getMappedOperands())) {
    AffineMap map = op.getMap(n);
    auto type = dyn_cast<RankedTensorType>(operand.getType());
    for (auto [place, part] : llvm::enumerate(map.getResults())) {
      std::optional<unsigned> dim = AttentionOp::getNamedDim(part);
      if (!type || !dim || *dim > AttentionOp::J || AttentionOp::getDivisor(part) != 1 ||
          place >= size_t(type.getRank()))
        continue;
      int64_t size = type.getDimSize(place);
      if (sizes[*dim] <= 1)
        sizes[*dim] = size;
      else if (!ShapedType::isDynamic(size))
        sizes[*dim] = std::max(sizes[*dim], size);
    }
  }
  return sizes;
}

} // namespace

void noteFormulas(ModuleOp module) {
  Builder b(module.getContext());
  module.walk([&](AttentionOp op) {
    SmallVector<Attribute> shape;
    for (int64_t size : scoreShape(op))
      shape.push_back(b.getI64IntegerAttr(ShapedType::isDynamic(size) ? -1 : size));
    completeVerdict(
        module, VerdictName(op),
        {b.getNamedAttr("formula", formulaOf(op, b)), b.getNamedAttr("score_shape", b.getArrayAttr(shape))});
  });
}

} // namespace attn
