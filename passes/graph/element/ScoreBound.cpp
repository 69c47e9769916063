#include "passes/graph/element/ScoreBound.h"

#include "dialects/attn/AttnOps.h"
#include "passes/graph/Structured.h"
#include "passes/graph/element/ConstantTable.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <algorithm>
#include <cmath>

using namespace mlir;

namespace attn {
namespace {

/// Longer chains of ops have no bound.
constexpr unsigned kMaxDepth = 200;

using Bound = std::optional<double>;

Bound finite(double bound) { return std::isfinite(bound) ? Bound(bound) : std::nullopt; }

double magnitude(TypedAttr number) {
  if (auto floating = dyn_cast<FloatAttr>(number))
    return std::abs(floating.getValueAsDouble());
  return std::abs(cast<IntegerAttr>(number).getValue().roundToDouble(/*isSigned=*/true));
}

bool isInteger(Value value) { return isa<IntegerType, IndexType>(getElementTypeOrSelf(value)); }

} // namespace

Bound ScoreBound::ofTensor(Value tensor) {
  if (auto it = known.find(tensor); it != known.end())
    return it->second;
  if (depth == kMaxDepth)
    return std::nullopt;
  ++depth;
  Bound bound = computeTensor(tensor);
  --depth;
  return known[tensor] = bound;
}

Bound ScoreBound::ofScalar(Value scalar) {
  if (auto it = known.find(scalar); it != known.end())
    return it->second;
  if (depth == kMaxDepth)
    return std::nullopt;
  ++depth;
  Bound bound = computeScalar(scalar);
  --depth;
  return known[scalar] = bound;
}

Bound ScoreBound::ofConstant(Value tensor) {
  ConstantTable table = ConstantTable::read(tensor, symbols, weights);
  if (table.bytes.empty())
    return std::nullopt;
  Type element = getElementTypeOrSelf(tensor);
  double most = 0;
  for (int64_t n = 0; n != table.size(); ++n) {
    APInt bits(table.width * 8, table.bitsAt(n));
    TypedAttr number = IntegerAttr::get(IntegerType::get(element.getContext(), bits.getBitWidth()), bits);
    if (auto floating = dyn_cast<FloatType>(element))
      number = FloatAttr::get(floating, APFloat(floating.getFloatSemantics(), bits));
    double size = magnitude(number);
    if (!std::isfinite(size))
      return std::nullopt;
    most = std::max(most, size);
  }
  return most;
}

/// A running sum and the like: as large as what goes into it.
Bound ScoreBound::ofLoop(Operation *loop) {
  double most = 1;
  WalkResult result = loop->walk([&](Operation *inner) {
    for (Value operand : inner->getOperands()) {
      if (loop->isAncestor(operand.getParentRegion()->getParentOp()) || !isInteger(operand))
        continue;
      Bound bound = isa<RankedTensorType>(operand.getType()) ? ofTensor(operand) : Bound(1);
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

Bound ScoreBound::computeTensor(Value tensor) {
  if (TypedAttr constant = splatConstant(tensor))
    return finite(magnitude(constant));
  Operation *op = tensor.getDefiningOp();
  if (!op) // an input of the entry: a float one may be a mask
    return isInteger(tensor) ? Bound(1) : std::nullopt;
  if (isa<arith::ConstantOp>(op) || op->getName().getStringRef() == WeightOp::getOperationName())
    return ofConstant(tensor);
  if (isa<tensor::EmptyOp>(op))
    return 0;
  if (isa<tensor::ExtractSliceOp, tensor::CollapseShapeOp, tensor::ExpandShapeOp, tensor::CastOp>(op))
    return ofTensor(op->getOperand(0));
  if (auto insert = dyn_cast<tensor::InsertSliceOp>(op)) {
    Bound piece = ofTensor(insert.getSource()), rest = ofTensor(insert.getDest());
    return piece && rest ? Bound(std::max(*piece, *rest)) : std::nullopt;
  }
  if (isContraction(op))
    return 1;
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op); linalgOp && (isPointwise(op) || isView(op)))
    return ofScalar(linalgOp.getBlock()->getTerminator()->getOperand(cast<OpResult>(tensor).getResultNumber()));
  if (isa<scf::ForOp>(op) && isInteger(tensor))
    return ofLoop(op);
  return std::nullopt;
}

Bound ScoreBound::computeScalar(Value scalar) {
  if (TypedAttr constant = splatConstant(scalar))
    return finite(magnitude(constant));
  if (auto argument = dyn_cast<BlockArgument>(scalar)) {
    auto owner = dyn_cast_or_null<linalg::LinalgOp>(argument.getOwner()->getParentOp());
    if (!owner)
      return isInteger(scalar) ? Bound(1) : std::nullopt;
    return ofTensor(owner.getMatchingOpOperand(argument)->get());
  }
  Operation *op = scalar.getDefiningOp();
  if (scalar.getType().isIndex() || scalar.getType().isInteger(1)) // positions, sizes, tests
    return 1;
  if (auto extract = dyn_cast<tensor::ExtractOp>(op))
    return ofTensor(extract.getTensor());
  if (isa<math::TanhOp, math::SinOp, math::CosOp, math::ErfOp>(op))
    return 1;
  SmallVector<double> of;
  bool isSelect = isa<arith::SelectOp>(op);
  for (Value operand : op->getOperands().drop_front(isSelect ? 1 : 0)) {
    Bound bound = ofScalar(operand);
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
