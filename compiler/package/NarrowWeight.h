#ifndef COMPILER_PACKAGE_NARROWWEIGHT_H
#define COMPILER_PACKAGE_NARROWWEIGHT_H

#include "compiler/package/WeightExpression.h"

namespace attn {

/// What storing a weight in fewer bits does to its elements.
struct Narrowing {
  uint64_t elements = 0;    ///< of the model, without what panels are filled up with
  double maxError = 0;      ///< greatest |w' - w|
  double maxValue = 0;      ///< greatest |w|
  double squaredError = 0;  ///< sum of (w' - w)^2
  double squaredValue = 0;  ///< sum of w^2
  double meanError() const; ///< root of the ratio of the sums: relative
  /// Counts that `value` is stored as `stored`; not where that stays an infinity or a NaN.
  void note(float value, double stored);
  void merge(const Narrowing &other);
};

/// The shape of #attn.narrow_panels or #attn.panel_scales, or a diagnostic.
mlir::FailureOr<llvm::SmallVector<int64_t>> narrowShape(GlobalOp global, mlir::RankedTensorType source);

/// The bytes of such a global, or of a reshape to 16 bits, from those of its source, in f32, or of a reshape to f32
/// from those in 16 bits; none, with a diagnostic, where an element is not finite and i8 shall hold it.
WeightBytes narrowWeight(GlobalOp global, mlir::RankedTensorType type, const WeightBytes &source, Narrowing *narrowing);

} // namespace attn

#endif // COMPILER_PACKAGE_NARROWWEIGHT_H
