#ifndef PASSES_LOWERING_CPU_INTEGERCALL_H
#define PASSES_LOWERING_CPU_INTEGERCALL_H

#include "dialects/attn/DerivedGlobals.h"
#include "dialects/attn/IntegerProductOp.h"
#include "passes/graph/ProductReport.h"
#include "passes/kernels/spec/IntegerProduct.h"
#include "passes/kernels/spec/StepOrder.h"
#include "passes/lowering/choose/Epilogue.h"
#include <optional>

namespace attn {

/// The stored matrix that is multiplied by, or null.
WeightOp storedMatrix(IntegerProductOp op);

/// The product of `op` with the elementwise op behind it.
IntegerProductSpec readIntegerProduct(IntegerProductOp op, const std::optional<Epilogue> &epilogue);

void reportIntegerProduct(mlir::ModuleOp module, const mlir::SymbolTable &symbols, IntegerProductOp op,
                          ProductVerdict verdict, llvm::StringRef text);

/// How a kernel wants what it multiplies by: #attn.byte_panels, #attn.column_sums and, where it asks for them,
/// #attn.step_order.
struct BytePanels {
  int64_t width, group;
  llvm::SmallVector<int64_t> shape, sumShape;
  std::optional<StepOrder> order = std::nullopt;
};

/// The call of a kernel in place of a product, where `rewriter` stands.
class IntegerCall {
public:
  IntegerCall(mlir::RewriterBase &rewriter, DerivedGlobals &globals, IntegerProductOp op,
              const std::optional<Epilogue> &epilogue);

  /// A, as a matrix.
  mlir::Value rows();
  /// Panels, the sums of their columns and the order of their steps, of a weight.
  llvm::SmallVector<mlir::Value> storedPanels(const BytePanels &form);
  /// The same of what the run multiplies by, packed by `kernel`.
  llvm::SmallVector<mlir::Value> packAtRun(const IntegerProductSpec &spec, const BytePanels &form,
                                           mlir::func::FuncOp kernel);
  /// Calls `kernel` on `inputs`, which A and all of the panels are, and on zero points and the epilogue's operands:
  /// what the product, or its epilogue, yields.
  mlir::Value emit(const IntegerProductSpec &spec, mlir::func::FuncOp kernel, llvm::SmallVector<mlir::Value> inputs);

  const mlir::Location loc;

private:
  mlir::Value signedZero();

  mlir::RewriterBase &rewriter;
  DerivedGlobals &globals;
  IntegerProductOp op;
  const std::optional<Epilogue> &epilogue;
};

} // namespace attn

#endif // PASSES_LOWERING_CPU_INTEGERCALL_H
