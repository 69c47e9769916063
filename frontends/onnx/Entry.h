#ifndef FRONTENDS_ONNX_ENTRY_H
#define FRONTENDS_ONNX_ENTRY_H

#include "frontends/onnx/ImportOnnx.h"
#include "frontends/onnx/State.h"
#include "llvm/ADT/STLFunctionalExtras.h"

// What importers share beneath the file format: an entry around whatever
// builds its values, and operators applied to tensors.

namespace attn::onnx {

void loadImportDialects(mlir::MLIRContext *context);

/// One entry of `module` (made if there is none): the inputs of `graph` with the
/// options applied, its initialisers, what `body` writes, the outputs of
/// `graph`. False after a diagnostic.
bool buildEntry(Reporter &reporter, const ImportOptions &options, const Graph &graph,
                mlir::OwningOpRef<mlir::ModuleOp> &module, WeightStore &weights,
                llvm::function_ref<bool(ImportState &)> body);

/// An attribute of an operator.
struct OpAttribute {
  llvm::StringRef name;
  std::variant<int64_t, double, std::string, llvm::SmallVector<int64_t>, llvm::SmallVector<std::string>> value;
};

/// Operators applied to tensors, at the place of the state's builder.
class Operators {
public:
  Operators(ImportState &state, const OpRegistry &registry) : state(state), registry(registry) {}

  /// The outputs of operator `op` (of the default domain at kOperatorOpset);
  /// nullopt inputs are left out. Failure after a diagnostic.
  mlir::FailureOr<std::vector<Tensor>> apply(llvm::StringRef op, llvm::ArrayRef<std::optional<Tensor>> inputs,
                                             llvm::ArrayRef<OpAttribute> attributes, size_t numOutputs,
                                             llvm::StringRef name, mlir::Location loc);
  /// Calls `fn` with a node that has no operands: for building blocks that are
  /// not operators. Failure when `fn` fails or reports.
  mlir::LogicalResult with(llvm::StringRef op, llvm::StringRef name, mlir::Location loc,
                           llvm::function_ref<mlir::LogicalResult(Node &)> fn);

  /// The opset whose operators `apply` knows.
  static constexpr int kOperatorOpset = 23;

  ImportState &state;

private:
  const OpRegistry &registry;
};

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_ENTRY_H
