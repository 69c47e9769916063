#include "passes/graph/element/PositionQuotient.h"

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

class QuotientFinder {
public:
  explicit QuotientFinder(AttentionOp op) : op(op) {}

  std::optional<PositionQuotient> find(Value scalar) {
    std::optional<Quotient> quotient = read(scalar, /*loops=*/{}, 0);
    if (!quotient || quotient->isExact || (usesReals && !isExactlyReal(quotient->dim)))
      return std::nullopt;
    return PositionQuotient{quotient->dim, quotient->divisor};
  }

private:
  struct Quotient {
    unsigned dim;
    int64_t divisor = 1;
    bool isReal = false;
    bool isExact = true; ///< position / divisor itself: of a fraction, or by 1
  };
  /// The dimension of the attention that each loop is, where it is one.
  using Loops = SmallVector<std::optional<unsigned>>;

  std::optional<Quotient> read(Value value, const Loops &loops, unsigned depth);
  std::optional<Quotient> readElement(Value tensor, ArrayRef<std::optional<unsigned>> dims, unsigned depth);
  std::optional<Quotient> divide(Quotient quotient, Value divisor);
  bool isExactlyReal(unsigned dim);

  AttentionOp op;
  bool usesReals = false;
};

std::optional<QuotientFinder::Quotient> QuotientFinder::divide(Quotient quotient, Value divisor) {
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

/// Whether the dimension is known to have few positions.
bool QuotientFinder::isExactlyReal(unsigned dim) {
  for (auto [n, operand] : llvm::enumerate(op.getMappedOperands()))
    for (auto [k, expr] : llvm::enumerate(op.getMap(n).getResults())) {
      int64_t size = cast<ShapedType>(operand.getType()).getDimSize(k);
      if (expr == getAffineDimExpr(dim, op.getContext()) && !ShapedType::isDynamic(size))
        return size <= kExactPositions;
    }
  return false;
}

/// The element of `tensor` at the dimensions `dims` of the attention.
std::optional<QuotientFinder::Quotient>
QuotientFinder::readElement(Value tensor, ArrayRef<std::optional<unsigned>> dims, unsigned depth) {
  auto generic = tensor.getDefiningOp<linalg::GenericOp>();
  if (!generic || generic.getNumResults() != 1 || generic.getNumReductionLoops() != 0)
    return std::nullopt;
  Loops loops(generic.getNumLoops());
  for (auto [expr, dim] : llvm::zip_equal(generic.getIndexingMapsArray().back().getResults(), dims)) {
    auto loop = dyn_cast<AffineDimExpr>(expr);
    if (!loop)
      return std::nullopt;
    loops[loop.getPosition()] = dim;
  }
  auto yield = cast<linalg::YieldOp>(generic.getBody()->getTerminator());
  return read(yield.getOperand(0), loops, depth + 1);
}

std::optional<QuotientFinder::Quotient> QuotientFinder::read(Value value, const Loops &loops, unsigned depth) {
  if (depth > 16)
    return std::nullopt;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    SmallVector<std::optional<unsigned>> dims;
    if (auto generic = dyn_cast<linalg::GenericOp>(argument.getOwner()->getParentOp())) {
      OpOperand *operand = generic.getMatchingOpOperand(argument);
      if (!generic.isDpsInput(operand))
        return std::nullopt;
      for (AffineExpr expr : generic.getMatchingIndexingMap(operand).getResults()) {
        auto loop = dyn_cast<AffineDimExpr>(expr);
        dims.push_back(loop ? loops[loop.getPosition()] : std::nullopt);
      }
      return readElement(operand->get(), dims, depth + 1);
    }
    if (argument.getOwner()->getParentOp() != op || argument.getArgNumber() == 0)
      return std::nullopt;
    unsigned number = argument.getArgNumber() - 1;
    for (AffineExpr expr : op.getCaptureMap(number).getResults()) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      dims.push_back(dim ? std::optional<unsigned>(dim.getPosition()) : std::nullopt);
    }
    return readElement(op.getCaptures()[number], dims, depth + 1);
  }
  Operation *definition = value.getDefiningOp();
  if (auto index = dyn_cast<IndexOp>(definition))
    return Quotient{static_cast<unsigned>(index.getDim())};
  if (auto index = dyn_cast<linalg::IndexOp>(definition)) {
    std::optional<unsigned> dim = loops[index.getDim()];
    return dim ? std::optional<Quotient>(Quotient{*dim}) : std::nullopt;
  }
  bool isNarrow = value.getType().isIntOrFloat() && value.getType().getIntOrFloatBitWidth() < 32;
  if (isNarrow || definition->getNumOperands() == 0)
    return std::nullopt;
  std::optional<Quotient> from = read(definition->getOperand(0), loops, depth + 1);
  if (!from)
    return std::nullopt;
  if (isa<arith::IndexCastOp, arith::ExtSIOp>(definition))
    return from;
  if (isa<arith::SIToFPOp, arith::UIToFPOp>(definition)) {
    from->isReal = usesReals = true;
    return from;
  }
  if (isa<arith::DivSIOp, arith::DivUIOp, arith::FloorDivSIOp, arith::DivFOp>(definition))
    return divide(*from, definition->getOperand(1));
  // Positions are not negative: cutting off the fraction is the floor.
  if (isa<math::FloorOp, math::TruncOp, arith::FPToSIOp>(definition)) {
    from->isReal = !isa<arith::FPToSIOp>(definition);
    from->isExact = from->divisor == 1;
    return from;
  }
  return std::nullopt;
}

} // namespace

std::optional<PositionQuotient> PositionQuotient::find(AttentionOp op, Value scalar) {
  return QuotientFinder(op).find(scalar);
}

} // namespace attn
