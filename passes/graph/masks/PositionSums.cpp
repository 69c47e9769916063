#include "passes/graph/masks/PositionSums.h"

#include "passes/graph/Structured.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace attn {

std::optional<PositionSum> PositionSums::compute(const Element &element) {
  PositionSum linear;
  Type type = element.value.getType();
  if (auto constant = dyn_cast_or_null<IntegerAttr>(splatConstant(element.value))) {
    if (constant.getValue().getSignificantBits() > 40)
      return std::nullopt;
    linear.constant = constant.getValue().getSExtValue();
    return linear;
  }
  if (auto argument = dyn_cast<BlockArgument>(element.value)) {
    if (!isa<IntegerType, IndexType>(type) || type.isInteger(1))
      return std::nullopt;
    linear.capture = argument;
    linear.scale = 1;
    return linear;
  }
  if (auto index = dyn_cast<IndexOp>(element.getOp())) {
    linear.i = index.getDim() == AttentionOp::I;
    linear.j = index.getDim() == AttentionOp::J;
    return linear.i + linear.j == 1 ? std::optional(linear) : std::nullopt;
  }
  bool isWide = type.isIndex() || (type.isInteger() && type.getIntOrFloatBitWidth() >= 32);
  if (!isWide) // a position may be cut
    return std::nullopt;
  if (isa<arith::IndexCastOp, arith::ExtSIOp>(element.getOp()))
    return ofOperand(element, 0);
  if (isa<arith::TruncIOp>(element.getOp())) {
    // What a run brings may have more bits; positions have not.
    std::optional<PositionSum> whole = ofOperand(element, 0);
    return whole && !whole->capture && std::abs(whole->constant) <= INT32_MAX / 2 ? whole : std::nullopt;
  }
  return isa<arith::AddIOp, arith::SubIOp>(element.getOp()) ? ofSum(element) : std::nullopt;
}

std::optional<PositionSum> PositionSums::ofSum(const Element &element) {
  std::optional<PositionSum> lhs = ofOperand(element, 0), rhs = ofOperand(element, 1);
  if (!lhs || !rhs || (lhs->capture && rhs->capture))
    return std::nullopt;
  int64_t sign = isa<arith::SubIOp>(element.getOp()) ? -1 : 1;
  PositionSum sum{lhs->i + sign * rhs->i, lhs->j + sign * rhs->j, lhs->constant + sign * rhs->constant,
                  lhs->capture ? lhs->scale : sign * rhs->scale, lhs->capture ? lhs->capture : rhs->capture};
  return std::abs(sum.constant) <= PositionSum::kLimit ? std::optional(sum) : std::nullopt;
}

} // namespace attn
