#ifndef PASSES_LOWERING_CPU_WRITTENATTENTION_H
#define PASSES_LOWERING_CPU_WRITTENATTENTION_H

#include "dialects/attn/AttnOps.h"

#include "mlir/IR/PatternMatch.h"

namespace attn {

/// An attention of given scores, f32 and without a mask, that is written out: its weights as a tensor, and loops that
/// stand for some of its dimensions; others have size 1.
class WrittenAttention {
public:
  /// Whether `op` is one.
  static bool canWrite(AttentionOp op);

  WrittenAttention(AttentionOp op, mlir::RewriterBase &rewriter);

  /// The weights, whose dimensions are these of the attention.
  mlir::Value weights(llvm::ArrayRef<unsigned> dims);
  llvm::SmallVector<mlir::OpFoldResult> sizesOf(llvm::ArrayRef<unsigned> dims);
  /// How a tensor of these dimensions is read by `loops`.
  mlir::AffineMap mapOf(llvm::ArrayRef<unsigned> dims, llvm::ArrayRef<unsigned> loops);
  /// `map`, of an operand, from `loops`.
  mlir::AffineMap renumber(mlir::AffineMap map, llvm::ArrayRef<unsigned> loops);
  /// The sum over the last of `loops` of `weights`, of these dimensions, times `values`, added to `init`, which is as
  /// the result.
  mlir::Value sum(mlir::Value weights, llvm::ArrayRef<unsigned> dims, mlir::Value values, mlir::AffineMap valueMap,
                  mlir::Value init, llvm::ArrayRef<unsigned> loops);

private:
  AttentionOp op;
  mlir::RewriterBase &rewriter;
  mlir::Location loc;
  llvm::SmallVector<mlir::OpFoldResult> sizes;
};

} // namespace attn

#endif // PASSES_LOWERING_CPU_WRITTENATTENTION_H
