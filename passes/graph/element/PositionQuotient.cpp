#include "passes/graph/element/PositionQuotient.h"

#include "passes/graph/element/Element.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace attn {
namespace {

/// Below this f32 holds positions, and the floor of their quotients is exact:
/// one that rounds up to the next integer k has k * divisor beyond 2^24.
constexpr int64_t kExactPositions = int64_t(1) << 23;

/// Such a quotient, or on the way to one.
struct PartOfPosition {
  unsigned dim;
  int64_t divisor = 1;
  bool isReal = false;
  bool isExact = true;    ///< position / divisor itself: of a fraction, or by 1
  bool usesReals = false; ///< somewhere on the way
};

class Quotients final : public ElementDomain<std::optional<PartOfPosition>> {
public:
  explicit Quotients(ElementReader &reader) : ElementDomain(reader, std::nullopt) {}

private:
  std::optional<PartOfPosition> compute(const Element &element) override;
};

std::optional<PartOfPosition> divide(PartOfPosition quotient, Value divisor) {
  int64_t number = 0;
  IntegerAttr integer;
  FloatAttr real;
  if (matchPattern(divisor, m_Constant(&integer))) {
    if (integer.getValue().getSignificantBits() <= 32)
      number = integer.getValue().getSExtValue();
  } else if (matchPattern(divisor, m_Constant(&real))) {
    double value = real.getValueAsDouble();
    if (value >= 1 && value < kExactPositions && value == static_cast<double>(static_cast<int64_t>(value)))
      number = static_cast<int64_t>(value);
  }
  // Of a rounded quotient nothing is known.
  if (number < 1 || quotient.divisor > kExactPositions || (quotient.isReal && quotient.divisor != 1))
    return std::nullopt;
  quotient.divisor *= number;
  quotient.isExact = quotient.isReal || quotient.divisor == 1;
  return quotient;
}

/// Whether dimension `dim` of `op` is known to have few positions.
bool isExactlyReal(AttentionOp op, unsigned dim) {
  for (auto [n, operand] : llvm::enumerate(op.getMappedOperands()))
    for (auto [k, expr] : llvm::enumerate(op.getMap(n).getResults())) {
      int64_t size = cast<ShapedType>(operand.getType()).getDimSize(k);
      if (expr == getAffineDimExpr(dim, op.getContext()) && !ShapedType::isDynamic(size))
        return size <= kExactPositions;
    }
  return false;
}

std::optional<PartOfPosition> Quotients::compute(const Element &element) {
  Operation *op = element.getOp();
  Type type = element.value.getType();
  std::optional<uint64_t> loop;
  if (auto index = dyn_cast_or_null<IndexOp>(op))
    loop = index.getDim();
  else if (auto index = dyn_cast_or_null<linalg::IndexOp>(op))
    loop = index.getDim();
  if (loop) {
    auto dim = dyn_cast<AffineDimExpr>(element.at.getResult(*loop));
    return dim && dim.getPosition() < AttentionOp::kDims ? std::optional(PartOfPosition{dim.getPosition()})
                                                         : std::nullopt;
  }
  bool isNarrow = type.isIntOrFloat() && type.getIntOrFloatBitWidth() < 32;
  if (!op || isNarrow || op->getNumOperands() == 0 || isa<RankedTensorType>(type))
    return std::nullopt;
  std::optional<PartOfPosition> from = ofOperand(element, 0);
  if (!from)
    return std::nullopt;
  if (isa<arith::IndexCastOp, arith::ExtSIOp>(op))
    return from;
  if (isa<arith::SIToFPOp, arith::UIToFPOp>(op)) {
    from->isReal = from->usesReals = true;
    return from;
  }
  if (isa<arith::DivSIOp, arith::DivUIOp, arith::FloorDivSIOp, arith::DivFOp>(op))
    return divide(*from, reader.resolve(reader.operand(element, 1)).value);
  // Positions are not negative: cutting off the fraction is the floor.
  if (isa<math::FloorOp, math::TruncOp, arith::FPToSIOp>(op)) {
    from->isReal = !isa<arith::FPToSIOp>(op);
    from->isExact = from->divisor == 1;
    return from;
  }
  return std::nullopt;
}

} // namespace

std::optional<PositionQuotient> PositionQuotient::find(AttentionOp op, Value scalar) {
  ElementReader reader(op);
  std::optional<PartOfPosition> quotient = Quotients(reader).of(reader.at(scalar));
  if (!quotient || quotient->isExact || (quotient->usesReals && !isExactlyReal(op, quotient->dim)))
    return std::nullopt;
  return PositionQuotient{quotient->dim, quotient->divisor};
}

} // namespace attn
