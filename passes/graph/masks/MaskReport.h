#ifndef PASSES_GRAPH_MASKS_MASKREPORT_H
#define PASSES_GRAPH_MASKS_MASKREPORT_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringRef.h"

namespace attn {

/// Writes masks into the fusion report of a module, each attention's once.
class MaskReport {
public:
  explicit MaskReport(mlir::ModuleOp module) : module(module) {}
  /// `attention` has `mask`, which takes `assumption` for granted ("": nothing).
  void set(mlir::Operation *attention, llvm::StringRef mask, llvm::StringRef assumption = "");

private:
  mlir::ModuleOp module;
  llvm::DenseSet<size_t> reported; ///< verdicts that have their mask
};

} // namespace attn

#endif // PASSES_GRAPH_MASKS_MASKREPORT_H
