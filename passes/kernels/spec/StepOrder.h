#ifndef PASSES_KERNELS_SPEC_STEPORDER_H
#define PASSES_KERNELS_SPEC_STEPORDER_H

#include "mlir/IR/BuiltinTypes.h"

namespace attn {

/// Of #attn.step_order: what is stored for each panel of `k` rows in groups.
struct StepOrder {
  int64_t k = mlir::ShapedType::kDynamic;
  int64_t group = 4;

  /// What precedes the steps: how many stand in doubles, and how many more are narrow.
  static constexpr int64_t kCounts = 2;

  /// Numbers of a panel: the counts and each whole step.
  int64_t size() const { return mlir::ShapedType::isDynamic(k) ? k : kCounts + k / group; }
  /// Of a fixed number of steps 16 bits, where that fits: a step has 64 bytes with AVX2.
  mlir::Type element(mlir::MLIRContext *context) const {
    bool isShort = !mlir::ShapedType::isDynamic(k) && size() <= INT16_MAX;
    return mlir::IntegerType::get(context, isShort ? 16 : 32);
  }
};

} // namespace attn

#endif // PASSES_KERNELS_SPEC_STEPORDER_H
