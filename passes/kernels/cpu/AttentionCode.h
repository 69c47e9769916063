#ifndef PASSES_KERNELS_CPU_ATTENTIONCODE_H
#define PASSES_KERNELS_CPU_ATTENTIONCODE_H

#include "builders/Code.h"
#include "builders/Lanes.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/shared/AttentionMask.h"
#include "passes/kernels/shared/AttentionOperands.h"
#include "passes/kernels/shared/Exponential.h"
#include "passes/kernels/spec/Regions.h"

namespace attn {

/// Where both hold; `x` may be null.
inline Mask joined(const Mask &x, const Mask &y) { return x.value() ? x & y : y; }

/// The kernel of an attention where it is written, in registers of f32.
class AttentionCode : public Code {
public:
  AttentionCode(const Code &code, const AttentionSpec &spec, mlir::ValueRange buffers)
      : Code(code), spec(spec), buffers(buffers), lanes(spec.lanes) {}

  static constexpr float kLog2E = 1.44269504f;

  const AttentionSpec &spec;
  const mlir::ValueRange buffers; ///< the kernel's arguments
  const int64_t lanes;            ///< of a register

  /// Whether a block of queries has `region` in a loop. Of one rounding, or of a soft cap, a loop takes 1.04 and 1.2
  /// times as long (512 queries and keys; 16 of them, Zen 4), and spares little.
  bool isDear(mlir::Block *region) const {
    constexpr int64_t kDirectCost = 32;
    return getCost(region) > kDirectCost;
  }

  //===--- operands -------------------------------------------------------===//
  Index size(int64_t dim) { return getDimSize(*this, spec, buffers, dim); }
  OperandView view(size_t operand, const Index &batch, const Index &head) {
    return viewHead(*this, buffers[operand], spec.maps[operand], batch, head);
  }

  //===--- registers ------------------------------------------------------===//
  mlir::Type f32Type() { return b.getF32Type(); }
  Vec splat(double value) { return attn::splat(f32(value), lanes); }
  Vec splat(const Num &x) { return attn::splat(x, lanes); }
  Num toF32(const Num &x) { return convert(x, f32Type()); }
  Vec toF32(const Vec &x) { return convert(x, f32Type()); }
  /// As f32: a number for all lanes, or one each.
  Vec toLanes(const Term &x) { return isVector(x) ? toF32(asVec(x)) : splat(toF32(asNum(x))); }
  Mask toLanes(const Mask &x) { return isVector(x) ? x : attn::splat(x, lanes); }
  Mask isNonZero(const Term &x) { return isVector(x) ? asVec(x) != 0 : asNum(x) != 0; }
  static bool isVector(const Term &x) { return mlir::isa<mlir::VectorType>(x.type()); }
  /// The 32 bits from `at` on, as f32 in every lane.
  Vec word(const Buffer &flat, const Index &at) {
    return splat(extract(bitcast(flat.vector(32 / flat.memref().getElementTypeBitWidth(), at), f32Type()), 0));
  }
  /// `first`, `first` + 1...
  Vec indicesFrom(const Index &first) {
    auto type = mlir::VectorType::get({lanes}, b.getIndexType());
    return splat(asNum(first)) + asVec(mlir::vector::StepOp::create(b, loc, type));
  }
  Buffer scratch(int64_t elements) { return scratch(elements, f32Type()); }
  Buffer scratch(int64_t elements, mlir::Type type) { return Code::scratch({elements}, type); }

  //===--- arithmetic -----------------------------------------------------===//
  Vec exp2(const Vec &x) { return attn::exp2(*this, x); }
  /// x within [-bound, bound]; NaN stays.
  Vec clamp(const Vec &x, double bound) { return greaterOf(splat(-bound), atMost(x, splat(bound))); }
  /// The greater of x and |y|; infinity where y is NaN.
  Vec greaterMagnitude(const Vec &x, const Vec &y) {
    Vec magnitude = abs(y);
    return greaterOf(x, select(y == y, magnitude, splat(kInfinity)));
  }
  /// sum + x / y by vrcp14ps (16 lanes) and a step of Newton's: relative error of
  /// the quotient 2e-7 where y is normal and at most 2^126.
  Vec addEstimatedQuotient(const Vec &sum, const Vec &x, const Vec &y);

  //===--- pairs of bf16 (AVX512-BF16) ------------------------------------===//
  // Two in each word of a register of f32, whose bits they are.
  /// `low` and `high`, f32, rounded; denormals become 0.
  Vec pack(const Vec &low, const Vec &high);
  /// As f32: low, then high.
  std::pair<Vec, Vec> unpack(const Vec &pairs);
  /// sum + low * low + high * high, in f32; denormals are 0.
  Vec addProducts(const Vec &sum, const Vec &x, const Vec &y);
  /// The pairs (x[n], y[n]) of two vectors of 2 * lanes bf16, in two registers.
  std::pair<Vec, Vec> interleave(const Vec &x, const Vec &y);

  /// `body` where denormal numbers are read and given as 0 (AVX2, AVX-512). An operation on one takes an Intel core
  /// 150 cycles: attentions of sharp scores, whose weights run through all exponents, took 15 to 100 times as long.
  void withoutDenormals(llvm::function_ref<void()> body);
};

} // namespace attn

#endif // PASSES_KERNELS_CPU_ATTENTIONCODE_H
