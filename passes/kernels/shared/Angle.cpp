#include "passes/kernels/shared/Angle.h"
#include "builders/Code.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace attn {

/// pi / 2, its first 33 bits: their product with a number of 20 bits is exact. Then the rest of it.
static constexpr double kHalfPi = 0x1.921fb544p+0, kHalfPiRest = 0x1.0b4611a626331p-34;
static constexpr double kPerHalfPi = 0x1.45f306dc9c883p-1;
/// Added to a number below 2^51 it leaves the nearest integer.
static constexpr double kRounder = 0x1.8p52;
static constexpr double kLargest = 0x1p20;

/// Of |x| < kLargest. A reduction in f32 loses what angles of positions (rotary embeddings) have behind the point: by
/// one constant the error is 3e-4 at 8192.
template <typename T> static T functionOfSmall(const T &x, AngleFunction function) {
  Type f32 = x.element(), f64 = x.builder().getF64Type(), i32 = x.builder().getI32Type();
  T wide = convert(x, f64);
  T turns = (wide * kPerHalfPi + kRounder) - kRounder;
  T r = convert((wide - turns * kHalfPi) - turns * kHalfPiRest, f32), square = r * r;
  // Minimax fits of (sin r / r - 1) / r^2, 3.6e-9, and (cos r - 1 + r^2 / 2) / r^4, 1e-10, in r^2 for |r| <= pi / 4.
  auto polynomial = [&](double c0, double c1, double c2) {
    return fma(fma(square, constantLike(r, c2), constantLike(r, c1)), square, constantLike(r, c0));
  };
  T sine = fma(r * square, polynomial(-1.66666552e-01, 8.33216868e-03, -1.95160115e-04), r);
  T about = fma(square, constantLike(r, -0.5), constantLike(r, 1.0));
  T cosine = fma(square * square, polynomial(4.16666456e-02, -1.38873549e-03, 2.44370076e-05), about);
  T quadrant = convert(turns, i32) + (function == AngleFunction::Cosine ? 1 : 0);
  T result = select((quadrant & 1) == 0, sine, cosine);
  result = bitcast(bitcast(result, i32) ^ ((quadrant & 2) << 30), f32);
  return function == AngleFunction::Sine ? select(x == 0.0, x, result) : result; // a zero keeps its sign
}

/// `areSmall`: of all lanes.
template <typename T> static Value functionOf(Code k, const T &x, const Mask &areSmall, AngleFunction function) {
  return k.choose(
      areSmall, [&] { return functionOfSmall(x, function); },
      [&] {
        return x.with(function == AngleFunction::Sine
                          ? LLVM::SinOp::create(k.b, k.loc, x.type(), x.value())->getResult(0)
                          : LLVM::CosOp::create(k.b, k.loc, x.type(), x.value())->getResult(0));
      });
}

Value emitAngleFunction(OpBuilder &builder, Location loc, AngleFunction function, Value x) {
  Code k(builder, loc);
  if (!isa<VectorType>(x.getType())) {
    Num angle = k.asNum(x);
    return functionOf(k, angle, abs(angle) < kLargest, function);
  }
  Vec angles = k.asVec(x);
  return functionOf(k, angles, !any(!(abs(angles) < kLargest)), function);
}

} // namespace attn
