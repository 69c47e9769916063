#ifndef PASSES_KERNELS_CPU_SEGMENTATTENTION_H
#define PASSES_KERNELS_CPU_SEGMENTATTENTION_H

#include "dialects/attn/SegmentAttentionOp.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include <optional>
#include <string>

namespace attn {

/// attn.segment_attention.
struct SegmentAttentionSpec {
  /// Identity layouts; of the operands in the op's order, rows if there are any, then the result.
  llvm::SmallVector<mlir::MemRefType> types;
  bool hasRows = false;
  float epsilon = 0;
  std::optional<float> floor;
  int64_t lanes = 4; ///< f32 lanes of a register

  static SegmentAttentionSpec get(SegmentAttentionOp op, TargetAttr target);
  int64_t heads() const { return types.back().getDimSize(1); }
  int64_t width() const { return types.back().getDimSize(2); }
  /// Lanes of a register of heads, and of one of a head's elements: no wider than they fill.
  int64_t headLanes() const;
  int64_t valueLanes() const;
  /// Names the kernel; equal symbols mean identical code.
  std::string symbol() const;
};

bool canBuildSegmentAttention(const SegmentAttentionSpec &spec, std::string *reason = nullptr);

/// Emits the kernel `spec.symbol()` with the arguments of `spec.types`. Heads stand side by side in registers. A node's
/// edges are swept for their maximum, then in blocks: the weights of a block go to scratch, and its values, fetched
/// meanwhile, are added in as many registers as there are, so that each result is touched once a block. The sum of a
/// block joins that of the blocks before it: a node may have 100,000 edges. One scf.parallel over the nodes.
mlir::func::FuncOp buildSegmentAttention(mlir::OpBuilder &builder, mlir::Location loc,
                                         const SegmentAttentionSpec &spec);

} // namespace attn

#endif // PASSES_KERNELS_CPU_SEGMENTATTENTION_H
