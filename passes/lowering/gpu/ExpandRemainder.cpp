#include "passes/lowering/gpu/ExpandRemainder.h"

#include "builders/Code.h"
#include "builders/Operators.h"
#include "passes/graph/Collect.h"
#include <limits>

using namespace mlir;

namespace attn {
namespace {

/// x - n y for the whole number n that makes it smallest with the sign of x, of f32 or f64. Each
/// step takes one bit of n, with differences that are exact: t <= r < 2t.
Num remainder(Code &k, const Num &x, const Num &y) {
  bool isDouble = x.type().isF64();
  Type bits = k.b.getIntegerType(isDouble ? 64 : 32);
  int64_t sign = isDouble ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int32_t>::min();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  auto magnitude = [&](const Num &value) { return bitcast(bitcast(value, bits) & ~sign, x.type()); };
  Num rest = magnitude(x), divisor = magnitude(y);
  Mask isSound = (rest >= 0.0) & (rest < kInfinity) & (divisor > 0.0) & (divisor < kInfinity);
  auto ofSound = [&] {
    Num largest =
        k.repeat(divisor, [&](const Num &t) { return t * 2.0 <= rest; }, [](const Num &t) { return t * 2.0; });
    auto [last, t] = k.repeat(
        std::tuple(rest, largest), [&](const Num &, const Num &t) { return t >= divisor; },
        [](const Num &r, const Num &t) { return std::tuple(select(r >= t, r - t, r), t * 0.5); });
    return bitcast(bitcast(last, bits) | (bitcast(x, bits) & sign), x.type());
  };
  // Not so of 0 and what is not finite: x stays if only y is infinite.
  auto ofOthers = [&] {
    Mask stays = (rest < kInfinity) & (divisor == kInfinity);
    return select(stays, x, k.number(x.type(), std::numeric_limits<double>::quiet_NaN()));
  };
  return k.choose(isSound, ofSound, ofOthers);
}

} // namespace

void expandRemainders(gpu::LaunchOp launch) {
  for (arith::RemFOp op : collect<arith::RemFOp>(launch)) {
    auto type = dyn_cast<FloatType>(op.getType());
    if (!type)
      continue;
    OpBuilder b(op);
    Code k(b, op.getLoc());
    // That of f32 is one of the narrower type, too.
    Type wide = type.getWidth() < 32 ? b.getF32Type() : type;
    Num result = remainder(k, convert(k.asNum(op.getLhs()), wide), convert(k.asNum(op.getRhs()), wide));
    op.replaceAllUsesWith(convert(result, type).value());
    op.erase();
  }
}

} // namespace attn
