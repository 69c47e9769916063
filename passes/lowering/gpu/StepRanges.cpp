#include "passes/lowering/gpu/StepRanges.h"
#include "passes/lowering/gpu/DeviceLoop.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace attn {

/// Appends sizes whose product is that of dimension `dim` of `buffer`, from the views that lead to it.
static bool appendFactors(Value buffer, int64_t dim, SmallVectorImpl<OpFoldResult> &factors) {
  auto type = cast<MemRefType>(buffer.getType());
  Operation *op = buffer.getDefiningOp();
  if (!type.isDynamicDim(dim)) {
    factors.push_back(Builder(buffer.getContext()).getIndexAttr(type.getDimSize(dim)));
  } else if (auto view = dyn_cast_or_null<memref::ViewOp>(op)) {
    factors.push_back(view.getSizes()[type.getDynamicDimIndex(dim)]);
  } else if (auto expand = dyn_cast_or_null<memref::ExpandShapeOp>(op)) {
    factors.push_back(expand.getMixedOutputShape()[dim]);
  } else if (auto same = dyn_cast_or_null<memref::CastOp>(op); same && isa<MemRefType>(same.getSource().getType())) {
    return appendFactors(same.getSource(), dim, factors);
  } else if (auto part = dyn_cast_or_null<memref::SubViewOp>(op)) {
    llvm::SmallBitVector dropped = part.getDroppedDims();
    for (auto [n, size] : llvm::enumerate(part.getMixedSizes()))
      if (!dropped[n] && dim-- == 0)
        factors.push_back(size);
  } else if (auto collapse = dyn_cast_or_null<memref::CollapseShapeOp>(op)) {
    return llvm::all_of(collapse.getReassociationIndices()[dim],
                        [&](int64_t from) { return appendFactors(collapse.getSrc(), from, factors); });
  } else {
    return false;
  }
  return true;
}

namespace {
/// How a value follows from others, as far as ranges go.
enum class Form {
  rises,      ///< with each of its operands
  falls,      ///< a product with a negative constant
  multiplies, ///< a product of two that may be negative
  picks,      ///< the greater or the less of two without a sign
  differs,    ///< x - y
  remains,    ///< x % constant
  chooses,    ///< select
  isLimited,  ///< select(x < limit, y, -1): a size in bytes, or more than there is
  isSize,     ///< of a view
  none
};
} // namespace

static std::optional<int64_t> constantOf(Value value) {
  APInt constant;
  return matchPattern(value, m_ConstantInt(&constant)) ? std::optional(constant.getSExtValue()) : std::nullopt;
}

static Form formOf(Operation *op) {
  if (isa<arith::AddIOp, arith::AddFOp, arith::MaxSIOp, arith::MinSIOp, arith::IndexCastOp, arith::ExtSIOp,
          arith::ExtUIOp, arith::SIToFPOp, arith::UIToFPOp>(op))
    return Form::rises;
  if (isa<arith::SubIOp>(op))
    return Form::differs;
  if (isa<arith::MaxUIOp, arith::MinUIOp>(op))
    return Form::picks;
  if (isa<arith::MulIOp, arith::MulFOp>(op)) {
    std::optional<int64_t> factor = constantOf(op->getOperand(1));
    return !factor ? Form::multiplies : *factor < 0 ? Form::falls : Form::rises;
  }
  if (isa<arith::CeilDivUIOp, arith::CeilDivSIOp, arith::DivUIOp, arith::DivSIOp>(op))
    return constantOf(op->getOperand(1)).value_or(0) > 0 ? Form::rises : Form::none;
  if (isa<arith::RemUIOp, arith::RemSIOp>(op))
    return constantOf(op->getOperand(1)).value_or(0) > 0 ? Form::remains : Form::none;
  if (auto choice = dyn_cast<arith::SelectOp>(op)) {
    if (!choice.getType().isIndex() && !choice.getType().isInteger(64))
      return Form::none;
    auto limit = choice.getCondition().getDefiningOp<arith::CmpFOp>();
    bool isLess = limit && limit.getPredicate() == arith::CmpFPredicate::OLT;
    return isLess && constantOf(choice.getFalseValue()) == -1 ? Form::isLimited : Form::chooses;
  }
  return isa<memref::DimOp>(op) ? Form::isSize : Form::none;
}

/// The values that a range of the op's result follows from; empty: none does.
static SmallVector<OpFoldResult> basesOf(Operation *op) {
  SmallVector<OpFoldResult> bases;
  switch (formOf(op)) {
  case Form::isSize: {
    auto dim = cast<memref::DimOp>(op);
    std::optional<int64_t> number = dim.getConstantIndex();
    auto type = dyn_cast<MemRefType>(dim.getSource().getType());
    if (!number || !type || *number < 0 || *number >= type.getRank() || !appendFactors(dim.getSource(), *number, bases))
      bases.clear();
    return bases;
  }
  case Form::isLimited: {
    auto choice = cast<arith::SelectOp>(op);
    auto limit = choice.getCondition().getDefiningOp<arith::CmpFOp>();
    return {limit.getLhs(), limit.getRhs(), choice.getTrueValue()};
  }
  case Form::chooses:
    return {op->getOperand(1), op->getOperand(2)};
  case Form::none:
    return bases;
  default:
    return llvm::map_to_vector(op->getOperands(), [](Value operand) { return OpFoldResult(operand); });
  }
}

bool StepRanges::know(Value size) {
  if (!loop.isVarying(size))
    return loop.canHoist(size);
  if (auto argument = dyn_cast<BlockArgument>(size)) {
    if (!loop.counterOf(size))
      return false;
    found.insert(argument.getArgNumber());
    return true;
  }
  SmallVector<OpFoldResult> bases = basesOf(size.getDefiningOp());
  return !bases.empty() &&
         llvm::all_of(bases, [&](OpFoldResult base) { return isa<Attribute>(base) || know(cast<Value>(base)); });
}

StepRanges::Range StepRanges::emit(OpBuilder &b, Value size, const Front &front) {
  if (!loop.isVarying(size)) {
    Value same = front.hoist(size);
    return {same, same};
  }
  if (auto known = made.find(size); known != made.end())
    return known->second;
  Location loc = size.getLoc();
  Range range;
  if (isa<BlockArgument>(size)) {
    Value step = arith::ConstantIndexOp::create(b, loc, loop.counterOf(size)->step);
    range = {size, arith::AddIOp::create(b, loc, size, arith::MulIOp::create(b, loc, front.others, step))};
    return made[size] = range;
  }
  Operation *op = size.getDefiningOp();
  SmallVector<Range> of = llvm::map_to_vector(basesOf(op), [&](OpFoldResult base) {
    Value constant = isa<Attribute>(base) ? getValueOrCreateConstantIndexOp(b, loc, base) : Value();
    return constant ? Range{constant, constant} : emit(b, cast<Value>(base), front);
  });
  auto again = [&](ArrayRef<Value> operands) {
    IRMapping map;
    map.map(op->getOperands(), operands);
    return b.clone(*op, map)->getResult(0);
  };
  auto ends = [&](Value Range::*end) { return llvm::map_to_vector(of, [&](Range each) { return each.*end; }); };
  switch (formOf(op)) {
  case Form::rises:
    range = {again(ends(&Range::least)), again(ends(&Range::most))};
    break;
  case Form::falls:
    range = {again({of[0].most, of[1].most}), again({of[0].least, of[1].least})};
    break;
  case Form::differs:
    range = {again({of[0].least, of[1].most}), again({of[0].most, of[1].least})};
    break;
  case Form::multiplies: {
    Value least, most;
    for (Value x : {of[0].least, of[0].most})
      for (Value y : {of[1].least, of[1].most}) {
        Value product = again({x, y});
        bool isFloat = isa<FloatType>(product.getType());
        auto either = [&](Value one, bool greater) -> Value {
          if (!one)
            return product;
          if (isFloat)
            return greater ? arith::MaximumFOp::create(b, loc, one, product).getResult()
                           : arith::MinimumFOp::create(b, loc, one, product);
          return greater ? arith::MaxSIOp::create(b, loc, one, product).getResult()
                         : arith::MinSIOp::create(b, loc, one, product);
        };
        least = either(least, false), most = either(most, true);
      }
    range = {least, most};
    break;
  }
  case Form::picks: {
    // One below 0 is the greater one.
    Value least = arith::MinSIOp::create(b, loc, of[0].least, of[1].least);
    Value most = arith::MaxSIOp::create(b, loc, of[0].most, of[1].most);
    Value zero = arith::ConstantOp::create(b, loc, b.getIntegerAttr(size.getType(), 0));
    Value isPlain = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, least, zero);
    range = {arith::SelectOp::create(b, loc, isPlain, again(ends(&Range::least)), least),
             arith::SelectOp::create(b, loc, isPlain, again(ends(&Range::most)), most)};
    break;
  }
  case Form::remains: {
    Value least = arith::ConstantOp::create(b, loc, b.getIntegerAttr(size.getType(), isa<arith::RemSIOp>(op) ? 1 : 0));
    if (isa<arith::RemSIOp>(op))
      least = arith::SubIOp::create(b, loc, least, of[1].most);
    range = {least, of[1].most};
    break;
  }
  case Form::chooses:
    range = {arith::MinSIOp::create(b, loc, of[0].least, of[1].least),
             arith::MaxSIOp::create(b, loc, of[0].most, of[1].most)};
    break;
  case Form::isLimited: {
    Value fits = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, of[0].most, of[1].least);
    range = {of[2].least, again({fits, of[2].most, front.hoist(op->getOperand(2))})};
    break;
  }
  case Form::isSize:
    range = of[0];
    for (Range factor : llvm::drop_begin(of))
      range = {arith::MulIOp::create(b, loc, range.least, factor.least),
               arith::MulIOp::create(b, loc, range.most, factor.most)};
    break;
  case Form::none:
    llvm_unreachable("know() has told that there is a range");
  }
  return made[size] = range;
}

} // namespace attn
