#ifndef PASSES_KERNELS_CPU_RANGE_H
#define PASSES_KERNELS_CPU_RANGE_H

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <string>

namespace attn {

/// The greatest and the least element of a whole tensor of f32.
struct RangeSpec {
  mlir::MemRefType type; ///< of the input; identity layout
  int64_t lanes = 4;     ///< f32 lanes of a register

  /// Parts that are reduced each by itself.
  static constexpr int64_t kParts = 64;

  static RangeSpec get(mlir::Value tensor, TargetAttr target);
  /// Names the kernel; equal symbols mean identical code.
  std::string symbol() const;
};

bool canBuildRange(const RangeSpec &spec, std::string *reason = nullptr);

/// Emits the kernel `spec.symbol()` with the arguments (input, parts, greatest, least): memref<2x64xf32> for what the
/// parts give, and memref<f32> twice. NaN wins; of nothing they are -inf and inf. One scf.parallel over the parts,
/// whose results are then combined: extremes are the same in any order.
mlir::func::FuncOp buildRange(mlir::OpBuilder &builder, mlir::Location loc, const RangeSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_CPU_RANGE_H
