#ifndef PASSES_LOWERING_GPU_GPUSEARCHKERNELS_H
#define PASSES_LOWERING_GPU_GPUSEARCHKERNELS_H

#include "passes/lowering/search/SearchKernels.h"

namespace attn {

/// The kernels of searches on a GPU.
class GpuSearchKernels : public SearchKernels {
public:
  bool showsTokens() const override { return false; }
  bool labelsRows() const override { return true; }
  void adapt(SearchKernelSpec &spec) const override { spec.hasVectors = false; }
  mlir::func::FuncOp rows(mlir::OpBuilder &b, llvm::StringRef symbol, const SearchKernelSpec &spec) const override;
  mlir::func::FuncOp sample(mlir::OpBuilder &b, llvm::StringRef symbol, const SearchKernelSpec &spec) const override;
  mlir::func::FuncOp move(mlir::OpBuilder &b, llvm::StringRef symbol, const SearchMoveSpec &spec) const override;
  mlir::func::FuncOp ctc(mlir::OpBuilder &b, llvm::StringRef symbol, const CtcKernelSpec &spec) const override;
  void finish(mlir::func::FuncOp kernel) const override;
};

} // namespace attn

#endif // PASSES_LOWERING_GPU_GPUSEARCHKERNELS_H
