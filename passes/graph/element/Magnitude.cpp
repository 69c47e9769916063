#include "passes/graph/element/Magnitude.h"

#include "passes/graph/Structured.h"
#include "passes/graph/element/ConstantTable.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <algorithm>
#include <cmath>

using namespace mlir;

namespace attn {
namespace {

using Bound = std::optional<double>;

Bound finite(double bound) { return std::isfinite(bound) ? Bound(bound) : std::nullopt; }

double magnitude(const APInt &number) { return std::abs(number.roundToDouble(/*isSigned=*/true)); }

double magnitude(TypedAttr number) {
  if (auto floating = dyn_cast<FloatAttr>(number))
    return std::abs(floating.getValueAsDouble());
  return magnitude(cast<IntegerAttr>(number).getValue());
}

bool isInteger(Value value) { return isa<IntegerType, IndexType>(getElementTypeOrSelf(value)); }

} // namespace

Bound Magnitude::ofTable(Value tensor) {
  ConstantTable table = ConstantTable::read(tensor, symbols, weights);
  if (table.bytes.empty())
    return std::nullopt;
  auto floating = dyn_cast<FloatType>(getElementTypeOrSelf(tensor));
  double most = 0;
  for (int64_t n = 0; n != table.size(); ++n) {
    APInt bits(table.width * 8, table.bitsAt(n));
    double size = floating ? std::abs(APFloat(floating.getFloatSemantics(), bits).convertToDouble()) : magnitude(bits);
    if (!std::isfinite(size))
      return std::nullopt;
    most = std::max(most, size);
  }
  return most;
}

/// A running sum and the like: as large as what goes into it.
Bound Magnitude::ofLoop(Operation *loop) {
  double most = 1;
  WalkResult result = loop->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands()) {
      if (loop->isAncestor(operand.getParentRegion()->getParentOp()) || !isInteger(operand))
        continue;
      Bound bound = isa<RankedTensorType>(operand.getType()) ? of(reader.somewhere(operand)) : Bound(1);
      if (!bound)
        return WalkResult::interrupt();
      most = std::max(most, *bound);
    }
    if (auto constant = dyn_cast<arith::ConstantOp>(inner))
      if (auto number = dyn_cast<IntegerAttr>(constant.getValue()))
        most = std::max(most, magnitude(number));
    return WalkResult::advance();
  });
  return result.wasInterrupted() ? std::nullopt : Bound(most);
}

Bound Magnitude::compute(const Element &element) {
  Value value = element.value;
  if (TypedAttr constant = splatConstant(value))
    return finite(magnitude(constant));
  Operation *op = element.getOp();
  if (!op) // an input of the entry: a float one may be a mask
    return isInteger(value) ? Bound(1) : std::nullopt;
  Type type = value.getType();
  if (type.isIndex() || type.isInteger(1)) // positions, sizes, tests
    return 1;
  if (isa<tensor::ExtractOp, tensor::InsertSliceOp>(op)) {
    double most = 0;
    for (const Element &source : reader.sources(element)) {
      Bound bound = of(source);
      if (!bound)
        return std::nullopt;
      most = std::max(most, *bound);
    }
    return most;
  }
  if (!isa<RankedTensorType>(type))
    return ofScalar(element);
  if (isa<arith::ConstantOp, WeightOp>(op))
    return ofTable(value);
  if (isa<tensor::EmptyOp>(op))
    return 0;
  if (isContraction(op))
    return 1;
  return isa<scf::ForOp>(op) && isInteger(value) ? ofLoop(op) : std::nullopt;
}

Bound Magnitude::ofScalar(const Element &element) {
  Operation *op = element.getOp();
  if (isa<math::TanhOp, math::SinOp, math::CosOp, math::ErfOp>(op))
    return 1;
  SmallVector<double> of;
  bool isSelect = isa<arith::SelectOp>(op);
  for (unsigned n = isSelect; n != op->getNumOperands(); ++n) {
    Bound bound = ofOperand(element, n);
    if (!bound)
      return std::nullopt;
    of.push_back(*bound);
  }
  if (isa<arith::ExtFOp, arith::TruncFOp, arith::SIToFPOp, arith::UIToFPOp, arith::FPToSIOp, arith::FPToUIOp,
          arith::ExtSIOp, arith::ExtUIOp, arith::TruncIOp, arith::IndexCastOp, arith::NegFOp, math::AbsFOp,
          math::AbsIOp, math::FloorOp, math::CeilOp>(op))
    return of[0];
  if (isSelect || isa<arith::MinimumFOp, arith::MaximumFOp, arith::MinNumFOp, arith::MaxNumFOp, arith::MinSIOp,
                      arith::MaxSIOp, arith::MinUIOp, arith::MaxUIOp>(op))
    return std::max(of[0], of[1]);
  if (isa<arith::AddFOp, arith::SubFOp, arith::AddIOp, arith::SubIOp>(op))
    return finite(of[0] + of[1]);
  if (isa<arith::MulFOp, arith::MulIOp>(op))
    return finite(of[0] * of[1]);
  // By a constant only: what is divided by may be close to 0.
  if (isa<arith::DivFOp, arith::DivSIOp, arith::DivUIOp>(op) && splatConstant(op->getOperand(1)) && of[1] > 0)
    return finite(of[0] / of[1]);
  return std::nullopt;
}

} // namespace attn
