#include "passes/lowering/gpu/ExpandRemainder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/graph/Collect.h"

using namespace mlir;

namespace attn {
namespace {

/// x - n y for the whole number n that makes it smallest with the sign of x. Each
/// step takes one bit of n, with differences that are exact: t <= r < 2t.
Value emitRemainder(OpBuilder &b, Location loc, Value x, Value y) {
  auto type = cast<FloatType>(x.getType());
  unsigned width = type.getWidth();
  auto bits = b.getIntegerType(width);
  auto integer = [&](const APInt &value) -> Value {
    return arith::ConstantOp::create(b, loc, b.getIntegerAttr(bits, value));
  };
  auto number = [&](double value) -> Value { return arith::ConstantOp::create(b, loc, b.getFloatAttr(type, value)); };
  auto compare = [&](arith::CmpFPredicate predicate, Value x, Value y) -> Value {
    return arith::CmpFOp::create(b, loc, predicate, x, y);
  };
  auto asBits = [&](Value value) -> Value { return arith::BitcastOp::create(b, loc, bits, value); };
  auto masked = [&](Value value, const APInt &mask) -> Value {
    return arith::AndIOp::create(b, loc, value, integer(mask));
  };
  Value sign = masked(asBits(x), APInt::getSignMask(width));
  auto magnitude = [&](Value value) -> Value {
    return arith::BitcastOp::create(b, loc, type, masked(asBits(value), ~APInt::getSignMask(width)));
  };
  Value rest = magnitude(x), divisor = magnitude(y);
  Value infinity = arith::ConstantOp::create(b, loc, b.getFloatAttr(type, APFloat::getInf(type.getFloatSemantics())));
  Value nan = arith::ConstantOp::create(b, loc, b.getFloatAttr(type, APFloat::getQNaN(type.getFloatSemantics())));
  Value zero = number(0), two = number(2), half = number(0.5);
  auto isIn = [&](Value value, bool orZero) -> Value {
    Value above = compare(orZero ? arith::CmpFPredicate::OGE : arith::CmpFPredicate::OGT, value, zero);
    return arith::AndIOp::create(b, loc, above, compare(arith::CmpFPredicate::OLT, value, infinity));
  };
  Value isSound = arith::AndIOp::create(b, loc, isIn(rest, true), isIn(divisor, false));
  auto branch = scf::IfOp::create(b, loc, type, isSound, /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&branch.getThenRegion().front());
    auto largest = scf::WhileOp::create(
        b, loc, TypeRange{type}, ValueRange{divisor},
        [&](OpBuilder &b, Location loc, ValueRange t) {
          Value twice = arith::MulFOp::create(b, loc, t[0], two);
          scf::ConditionOp::create(b, loc, compare(arith::CmpFPredicate::OLE, twice, rest), t);
        },
        [&](OpBuilder &b, Location loc, ValueRange t) {
          scf::YieldOp::create(b, loc, arith::MulFOp::create(b, loc, t[0], two).getResult());
        });
    auto loop = scf::WhileOp::create(
        b, loc, TypeRange{type, type}, ValueRange{rest, largest.getResult(0)},
        [&](OpBuilder &b, Location loc, ValueRange values) {
          scf::ConditionOp::create(b, loc, compare(arith::CmpFPredicate::OGE, values[1], divisor), values);
        },
        [&](OpBuilder &b, Location loc, ValueRange values) {
          Value less = arith::SubFOp::create(b, loc, values[0], values[1]);
          Value fits = compare(arith::CmpFPredicate::OGE, values[0], values[1]);
          Value next = arith::SelectOp::create(b, loc, fits, less, values[0]);
          scf::YieldOp::create(b, loc, ValueRange{next, arith::MulFOp::create(b, loc, values[1], half)});
        });
    Value result = arith::OrIOp::create(b, loc, asBits(loop.getResult(0)), sign);
    scf::YieldOp::create(b, loc, arith::BitcastOp::create(b, loc, type, result).getResult());
    // Not so of 0 and what is not finite: x stays if only y is infinite.
    b.setInsertionPointToStart(&branch.getElseRegion().front());
    Value stays = arith::AndIOp::create(b, loc, compare(arith::CmpFPredicate::OLT, rest, infinity),
                                        compare(arith::CmpFPredicate::OEQ, divisor, infinity));
    scf::YieldOp::create(b, loc, arith::SelectOp::create(b, loc, stays, x, nan).getResult());
  }
  return branch.getResult(0);
}

} // namespace

void expandRemainders(gpu::LaunchOp launch) {
  for (arith::RemFOp op : collect<arith::RemFOp>(launch)) {
    auto type = dyn_cast<FloatType>(op.getType());
    if (!type)
      continue;
    OpBuilder b(op);
    Location loc = op.getLoc();
    // That of f32 is one of the narrower type, too.
    bool isNarrow = type.getWidth() < 32;
    auto wide = [&](Value x) { return isNarrow ? arith::ExtFOp::create(b, loc, b.getF32Type(), x).getResult() : x; };
    Value result = emitRemainder(b, loc, wide(op.getLhs()), wide(op.getRhs()));
    if (isNarrow)
      result = arith::TruncFOp::create(b, loc, type, result);
    op.replaceAllUsesWith(result);
    op.erase();
  }
}

} // namespace attn
