#ifndef PASSES_GRAPH_CELLS_CELLBUILDER_H
#define PASSES_GRAPH_CELLS_CELLBUILDER_H

#include "dialects/attn/DerivedGlobals.h"
#include "passes/graph/cells/CellMatch.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/PatternMatch.h"

namespace attn {

/// Writes matched cells as recurrent layers of one step.
class CellBuilder {
public:
  explicit CellBuilder(mlir::ModuleOp module) : symbols(module), globals(module, symbols), b(module.getContext()) {}

  /// Replaces the results of `cell`, whose old state is `state`. False, and nothing changed, where a gate has not
  /// one product with each input.
  bool build(CellMatch &cell, mlir::Value state);
  mlir::IRRewriter &getRewriter() { return b; }

private:
  /// One input with its product in each gate.
  struct Column {
    mlir::Value input;
    llvm::SmallVector<GateTerm> terms;
  };
  bool sortTerms(const CellMatch &cell, mlir::Value state);
  bool projectInputs();
  static bool areStored(llvm::ArrayRef<Column> columns);
  static bool isSmall(llvm::ArrayRef<Column> columns);
  mlir::Value weightOf(llvm::ArrayRef<Column> columns);
  mlir::Value smallWeightOf(llvm::ArrayRef<Column> columns, mlir::RankedTensorType type);
  mlir::FlatSymbolRefAttr derive(llvm::StringRef name, llvm::ArrayRef<int64_t> shape, mlir::Attribute expression);
  mlir::Value biasOf(const CellMatch &cell);
  mlir::Value sumOf(llvm::ArrayRef<GateBias> biases);
  mlir::Value add(mlir::Value first, mlir::Value second);
  mlir::Value flatten(mlir::Value value);
  mlir::Value inputOf();
  mlir::Value projectedInput();
  void replace(mlir::linalg::LinalgOp op, mlir::Value state);

  mlir::SymbolTable symbols;
  DerivedGlobals globals;
  mlir::IRRewriter b;
  mlir::Location loc = mlir::UnknownLoc::get(b.getContext());
  // Of the cell at hand.
  int64_t units = 0;
  llvm::SmallVector<Column> inputs;
  llvm::SmallVector<llvm::SmallVector<CellElement>> projected; ///< instead of `inputs`: what each gate adds up
  Column recurrence;
};

} // namespace attn

#endif // PASSES_GRAPH_CELLS_CELLBUILDER_H
