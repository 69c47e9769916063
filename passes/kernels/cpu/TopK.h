#ifndef PASSES_KERNELS_CPU_TOPK_H
#define PASSES_KERNELS_CPU_TOPK_H

#include "dialects/attn/TopKOp.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <string>

namespace attn {

/// attn.top_k over the last dimension.
struct TopKSpec {
  mlir::MemRefType input;     ///< identity layout, as the others
  mlir::MemRefType values;    ///< of the input's element type
  mlir::MemRefType positions; ///< of i64
  bool smallest = false, isUnsigned = false;
  int64_t lanes = 4; ///< f32 lanes of a register

  /// `op` for `target`; its `dim` must be the last one.
  static TopKSpec get(TopKOp op, TargetAttr target);
  /// Names the kernel; equal symbols mean identical code.
  std::string symbol() const;
};

bool canBuildTopK(const TopKSpec &spec, std::string *reason = nullptr);

/// Emits the kernel `spec.symbol()` with the arguments (input, values,
/// positions). What is found so far is a heap whose root is the last of it in
/// order, in the buffers of the results themselves. A register of
/// elements at a time is compared with that root, so that nearly all of a row
/// costs one comparison; n log k steps at worst. The heap is sorted in its place
/// at the end. Elements are compared as integers of one order with them, so that
/// NaN, -0 and the direction cost nothing there. One scf.parallel over the rows.
mlir::func::FuncOp buildTopK(mlir::OpBuilder &builder, mlir::Location loc, const TopKSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_CPU_TOPK_H
