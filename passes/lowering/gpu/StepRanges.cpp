#include "passes/lowering/gpu/StepRanges.h"
#include "builders/Operators.h"
#include "passes/lowering/gpu/DeviceLoop.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"

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

static Form formOf(Operation *op) {
  if (isa<arith::AddIOp, arith::AddFOp, arith::MaxSIOp, arith::MinSIOp, arith::IndexCastOp, arith::ExtSIOp,
          arith::ExtUIOp, arith::SIToFPOp, arith::UIToFPOp>(op))
    return Form::rises;
  if (isa<arith::SubIOp>(op))
    return Form::differs;
  if (isa<arith::MaxUIOp, arith::MinUIOp>(op))
    return Form::picks;
  if (isa<arith::MulIOp, arith::MulFOp>(op)) {
    std::optional<int64_t> factor = getConstantIntValue(op->getOperand(1));
    return !factor ? Form::multiplies : *factor < 0 ? Form::falls : Form::rises;
  }
  if (isa<arith::CeilDivUIOp, arith::CeilDivSIOp, arith::DivUIOp, arith::DivSIOp>(op))
    return getConstantIntValue(op->getOperand(1)).value_or(0) > 0 ? Form::rises : Form::none;
  if (isa<arith::RemUIOp, arith::RemSIOp>(op))
    return getConstantIntValue(op->getOperand(1)).value_or(0) > 0 ? Form::remains : Form::none;
  if (auto choice = dyn_cast<arith::SelectOp>(op)) {
    if (!choice.getType().isIndex() && !choice.getType().isInteger(64))
      return Form::none;
    auto limit = choice.getCondition().getDefiningOp<arith::CmpFOp>();
    bool isLess = limit && limit.getPredicate() == arith::CmpFPredicate::OLT;
    return isLess && getConstantIntValue(choice.getFalseValue()) == -1 ? Form::isLimited : Form::chooses;
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

/// The range of what an op makes of operands that have ranges.
struct StepRanges::Maker {
  OpBuilder &b;
  Operation *op;
  SmallVector<Range> of;

  Location loc() const { return op->getLoc(); }
  /// The op on other operands.
  Value again(ArrayRef<Value> operands) const {
    IRMapping map;
    map.map(op->getOperands(), operands);
    return b.clone(*op, map)->getResult(0);
  }
  Value againAt(Value Range::*end) const {
    return again(llvm::map_to_vector(of, [&](Range each) { return each.*end; }));
  }

  Range multiplied() const {
    Range range;
    for (Value x : {of[0].least, of[0].most})
      for (Value y : {of[1].least, of[1].most}) {
        Num product = num(again({x, y}));
        range = range.least ? Range{minimum(num(range.least), product), maximum(num(range.most), product)}
                            : Range{product, product};
      }
    return range;
  }
  /// Of the greater or the less of two without a sign: one below 0 is the greater.
  Range picked() const {
    Range any = chosen();
    Mask isPlain = num(any.least) >= 0;
    return {select(isPlain, num(againAt(&Range::least)), num(any.least)),
            select(isPlain, num(againAt(&Range::most)), num(any.most))};
  }
  Range remaining() const {
    Num most = num(of[1].most);
    return {isa<arith::RemSIOp>(op) ? 1 - most : constantLike(most, 0), most};
  }
  Range chosen() const {
    return {minimum(num(of[0].least), num(of[1].least)), maximum(num(of[0].most), num(of[1].most))};
  }
  /// `limit`: what the op takes beyond the limit.
  Range limited(Value limit) const {
    return {of[2].least, again({num(of[0].most) < num(of[1].least), of[2].most, limit})};
  }
  Range sized() const {
    Range range = of[0];
    for (Range factor : llvm::drop_begin(of))
      range = {num(range.least) * num(factor.least), num(range.most) * num(factor.most)};
    return range;
  }

private:
  Num num(Value value) const { return Num(b, loc(), value); }
};

StepRanges::Range StepRanges::emit(OpBuilder &b, Value size, const Front &front) {
  if (!loop.isVarying(size)) {
    Value same = front.hoist(size);
    return {same, same};
  }
  if (auto known = made.find(size); known != made.end())
    return known->second;
  Location loc = size.getLoc();
  if (isa<BlockArgument>(size)) {
    Value step = arith::ConstantIndexOp::create(b, loc, loop.counterOf(size)->step);
    Value most = arith::AddIOp::create(b, loc, size, arith::MulIOp::create(b, loc, front.others, step));
    return made[size] = {size, most};
  }
  Operation *op = size.getDefiningOp();
  Maker maker{b, op, llvm::map_to_vector(basesOf(op), [&](OpFoldResult base) {
                Value constant = isa<Attribute>(base) ? getValueOrCreateConstantIndexOp(b, loc, base) : Value();
                return constant ? Range{constant, constant} : emit(b, cast<Value>(base), front);
              })};
  ArrayRef<Range> of = maker.of;
  auto make = [&]() -> Range {
    switch (formOf(op)) {
    case Form::rises:
      return {maker.againAt(&Range::least), maker.againAt(&Range::most)};
    case Form::falls:
      return {maker.again({of[0].most, of[1].most}), maker.again({of[0].least, of[1].least})};
    case Form::differs:
      return {maker.again({of[0].least, of[1].most}), maker.again({of[0].most, of[1].least})};
    case Form::multiplies:
      return maker.multiplied();
    case Form::picks:
      return maker.picked();
    case Form::remains:
      return maker.remaining();
    case Form::chooses:
      return maker.chosen();
    case Form::isLimited:
      return maker.limited(front.hoist(op->getOperand(2)));
    case Form::isSize:
      return maker.sized();
    case Form::none:
      break;
    }
    llvm_unreachable("know() has told that there is a range");
  };
  return made[size] = make();
}

} // namespace attn
