#ifndef PASSES_LOWERING_CPU_STOREDHALVES_H
#define PASSES_LOWERING_CPU_STOREDHALVES_H

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/DerivedGlobals.h"
#include "mlir/IR/SymbolTable.h"
#include "passes/kernels/cpu/Gemm.h"

namespace attn {

/// Weights in f32 that are made of numbers of 16 bits alone (attn-widen-halves).
class StoredHalves {
public:
  StoredHalves(mlir::SymbolTable &symbols, DerivedGlobals &globals) : symbols(symbols), globals(globals) {}

  /// F16 or BF16 where all of `global` is stored so and the target widens such in registers; else F32.
  PanelStorage getStorage(mlir::FlatSymbolRefAttr global, TargetAttr target);

  /// `global` as it is stored: the same expression of the numbers before they are widened.
  mlir::FlatSymbolRefAttr get(mlir::FlatSymbolRefAttr global, mlir::Location loc);

private:
  mlir::Type getType(mlir::FlatSymbolRefAttr global);

  mlir::SymbolTable &symbols;
  DerivedGlobals &globals;
};

} // namespace attn

#endif // PASSES_LOWERING_CPU_STOREDHALVES_H
