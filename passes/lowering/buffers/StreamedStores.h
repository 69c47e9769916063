#ifndef PASSES_LOWERING_BUFFERS_STREAMEDSTORES_H
#define PASSES_LOWERING_BUFFERS_STREAMEDSTORES_H

#include "dialects/attn/AttnOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/DenseSet.h"

namespace attn {

/// The outputs of an entry that are stored past the caches: larger than the
/// second-level cache, and only written by this run.
class StreamedOutputs {
public:
  StreamedOutputs(mlir::func::FuncOp function, TargetAttr target);

  /// True where `op` writes to such an output, as its init number `number`, in
  /// vectors of `lanes` elements that are aligned to their size.
  bool has(mlir::linalg::GenericOp op, unsigned number, int64_t lanes) const;

private:
  llvm::DenseSet<mlir::Operation *> outputs;
};

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_STREAMEDSTORES_H
