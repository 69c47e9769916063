#ifndef PASSES_LOWERING_CPU_NARROWVALUES_H
#define PASSES_LOWERING_CPU_NARROWVALUES_H

#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/DenseMap.h"

// Tensors of f32 that kernels read in 16 bits: what is stored so, and with `--precision=bf16` what is rounded.
namespace attn {

/// The elements of `value` as f32 or bf16.
mlir::Value convertElements(mlir::RewriterBase &rewriter, mlir::Location loc, mlir::Value value, mlir::Type element);

/// Whether `op` rounds a tensor of f32 to bf16, and does nothing else.
bool isRounding(mlir::Operation *op);

/// The tensor of bf16 or f16 that `value` is a widened view of; null for others.
mlir::Value getUnwidened(mlir::RewriterBase &rewriter, mlir::Value value);

/// Rounds tensors where they are computed, once for all views of them.
class RoundedValues {
public:
  /// Whether `value` is a view of what an op computes: no input or cache, whose
  /// rounding would cost more than it saves.
  static bool isComputed(mlir::Value value);
  /// `value` in bf16, for the ops at the insertion point on.
  mlir::Value get(mlir::RewriterBase &rewriter, mlir::Value value);

private:
  llvm::DenseMap<mlir::Value, mlir::Value> rounded;
};

} // namespace attn

#endif // PASSES_LOWERING_CPU_NARROWVALUES_H
