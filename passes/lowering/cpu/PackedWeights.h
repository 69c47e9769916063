#ifndef PASSES_LOWERING_CPU_PACKEDWEIGHTS_H
#define PASSES_LOWERING_CPU_PACKEDWEIGHTS_H

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/DerivedGlobals.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/SymbolTable.h"
#include "passes/kernels/cpu/Gemm.h"
#include "passes/lowering/choose/ContractionMatch.h"
#include "passes/lowering/cpu/StoredHalves.h"

namespace attn {

/// The globals that hold weights in panels: one for each expression.
class PackedWeights {
public:
  PackedWeights(mlir::ModuleOp module, mlir::SymbolTable &symbols)
      : symbols(symbols), globals(module, symbols), halves(symbols, globals) {}

  /// In which type the weight `global`, in f32, is stored in the model.
  PanelStorage getStorage(mlir::FlatSymbolRefAttr global, TargetAttr target) {
    return halves.getStorage(global, target);
  }

  /// Columns of the weights that stand side by side in what `match` reads; none
  /// where it is one weight.
  llvm::SmallVector<int64_t> getParts(const Contraction &match);

  /// The packed weight, and its scales where it has some. Weights side by side
  /// are packed each by itself where none ends within a panel.
  llvm::SmallVector<mlir::Value> get(mlir::OpBuilder &builder, const Contraction &match, const GemmSpec &spec,
                                     mlir::Location loc);

private:
  ConcatAttr getConcat(mlir::FlatSymbolRefAttr source, bool transposed);

  mlir::SymbolTable &symbols;
  DerivedGlobals globals;
  StoredHalves halves;
};

} // namespace attn

#endif // PASSES_LOWERING_CPU_PACKEDWEIGHTS_H
