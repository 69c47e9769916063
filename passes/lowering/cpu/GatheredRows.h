#ifndef PASSES_LOWERING_CPU_GATHEREDROWS_H
#define PASSES_LOWERING_CPU_GATHEREDROWS_H

#include "passes/lowering/choose/ContractionMatch.h"

#include "mlir/IR/Builders.h"
#include <optional>

namespace attn {

/// Rows of a product that a copy makes of overlapping windows. Each element of theirs lies in the tensor that is
/// copied, at a place of the row plus a place of the depth.
struct GatheredRows {
  mlir::linalg::GenericOp copy;
  LoopDims rowLoops, depthLoops; ///< of the copy, in the order of the product's

  /// Of the activation of `match`, whose depth is `depth`; none where another op needs the copy or windows do not
  /// overlap, so that a kernel had better read it, or where the run alone knows the depth.
  static std::optional<GatheredRows> find(const Contraction &match, int64_t depth);

  /// The places of all rows and of the whole depth, in i64, and the tensor in one dimension.
  struct Operands {
    mlir::Value rowsAt, depthAt, source;
  };
  Operands emit(mlir::OpBuilder &b, mlir::Location loc);
};

} // namespace attn

#endif // PASSES_LOWERING_CPU_GATHEREDROWS_H
