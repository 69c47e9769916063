#ifndef PASSES_LOWERING_SEARCH_SEARCHKERNELS_H
#define PASSES_LOWERING_SEARCH_SEARCHKERNELS_H

#include "passes/kernels/shared/Search.h"
#include "passes/lowering/choose/KernelCall.h"

namespace attn {

/// The kernels of searches, as a target makes them: these are for the host.
class SearchKernels {
public:
  virtual ~SearchKernels() = default;

  /// Whether the host sees tokens while the loop runs, and may tell them.
  virtual bool showsTokens() const { return true; }
  /// Whether a greedy labelling has the best label of each frame found by the kernel for rows.
  virtual bool labelsRows() const { return false; }

  /// What every kernel of one search has to know.
  virtual void adapt(SearchKernelSpec &) const {}
  virtual mlir::func::FuncOp rows(mlir::OpBuilder &b, llvm::StringRef symbol, const SearchKernelSpec &spec) const {
    return buildSearchRows(b, symbol, spec);
  }
  virtual mlir::func::FuncOp sample(mlir::OpBuilder &b, llvm::StringRef symbol, const SearchKernelSpec &spec) const {
    return buildSearchSample(b, symbol, spec);
  }
  virtual mlir::func::FuncOp move(mlir::OpBuilder &b, llvm::StringRef symbol, const SearchMoveSpec &spec) const {
    return buildSearchMove(b, symbol, spec);
  }
  virtual mlir::func::FuncOp ctc(mlir::OpBuilder &b, llvm::StringRef symbol, const CtcKernelSpec &spec) const {
    return buildCtc(b, symbol, spec);
  }
  /// Makes of a kernel that is written for one thread what the target runs.
  virtual void finish(mlir::func::FuncOp) const {}
};

/// On the call of a kernel that moves a state: width, rowsDim and growDim of its spec.
inline constexpr llvm::StringLiteral kMoveAttr = "attn.move";

/// The kernel of `spec`, built where the module lacks it.
mlir::func::FuncOp getMoveKernel(KernelTable &kernels, const SearchKernels &target, const SearchMoveSpec &spec);

} // namespace attn

#endif // PASSES_LOWERING_SEARCH_SEARCHKERNELS_H
