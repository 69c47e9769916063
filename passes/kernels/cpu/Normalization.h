#ifndef PASSES_KERNELS_CPU_NORMALIZATION_H
#define PASSES_KERNELS_CPU_NORMALIZATION_H

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <string>

namespace attn {

/// A softmax over the last dimension.
struct RowSoftmaxSpec {
  mlir::MemRefType type; ///< of input and result; identity layout
  bool log = false;
  int64_t lanes = 4; ///< f32 lanes of a register

  /// `op` for `target`; its `dim` must be the last one.
  static RowSoftmaxSpec get(SoftmaxOp op, TargetAttr target);
  /// Names the kernel; equal symbols mean identical code.
  std::string symbol() const;
};

bool canBuildRowSoftmax(const RowSoftmaxSpec &spec, std::string *reason = nullptr);

/// Emits the kernel `spec.symbol()` with the arguments (input, result). Maximum,
/// exponentials and their sum, quotient: three sweeps over a row that stays in
/// L1. NaN and infinities give what the formula gives. Reads an element before
/// it writes the same one and nothing afterwards: input and result may be one
/// buffer. One scf.parallel over the rows.
mlir::FailureOr<mlir::func::FuncOp> buildRowSoftmax(mlir::OpBuilder &builder, mlir::Location loc,
                                                    const RowSoftmaxSpec &spec);

/// A layer normalisation over the dimensions from `axis` on.
struct LayerNormSpec {
  mlir::MemRefType type; ///< of input and result; identity layout
  mlir::MemRefType scaleType;
  mlir::MemRefType biasType; ///< null: no bias
  int64_t axis = 0;
  float epsilon = 0;
  int64_t lanes = 4;

  static LayerNormSpec get(LayerNormOp op, TargetAttr target);
  std::string symbol() const;
};

bool canBuildLayerNorm(const LayerNormSpec &spec, std::string *reason = nullptr);

/// Emits the kernel `spec.symbol()` with the arguments (input, scale, bias if
/// any, result). Mean, then the variance about it, then the result: the sum of
/// squares is never taken about 0, where it would cancel. Input and result may
/// be one buffer. One scf.parallel over the rows.
mlir::FailureOr<mlir::func::FuncOp> buildLayerNorm(mlir::OpBuilder &builder, mlir::Location loc,
                                                   const LayerNormSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_CPU_NORMALIZATION_H
