#ifndef PASSES_KERNELS_SPEC_INTEGERPRODUCT_H
#define PASSES_KERNELS_SPEC_INTEGERPRODUCT_H

#include "mlir/IR/BuiltinTypes.h"
#include "passes/kernels/spec/Regions.h"

namespace attn {

/// The zero point of B.
enum class ZeroPoint { None, Scalar, ByColumn };

/// C[m,n] = epilogue( sum_k (A[m,k] - za) (B[k,n] - zb[n]), operands at (m,n) ): A from 0 to 255, B from -128 to 127,
/// the sum in i32, modulo 2^32; the other operands and the result have the types that the epilogue says. It is exact,
/// so that its bits depend on nothing but the operands.
struct IntegerProductSpec : EpilogueSpec {
  int64_t m = mlir::ShapedType::kDynamic; ///< rows of A, or kDynamic
  int64_t k = 0, n = 0;                   ///< of a weight: fixed; else each may be kDynamic
  bool isBatched = false;                 ///< B is matrices that the run packs, each for as many rows of A; m is open
  bool hasRowZero = false;                ///< za is an operand
  ZeroPoint columnZero = ZeroPoint::None; ///< zb is one

  mlir::Type resultType(mlir::MLIRContext *context) const;
  /// What a kernel's name has of the zero points.
  std::string zeroKey() const;
};

/// Whether sizes and epilogue are those of a product; otherwise `reason`, if given, says why not.
bool isIntegerProduct(const IntegerProductSpec &spec, std::string *reason = nullptr);

} // namespace attn

#endif // PASSES_KERNELS_SPEC_INTEGERPRODUCT_H
