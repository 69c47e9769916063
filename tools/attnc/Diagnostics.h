// MLIR's diagnostics as a user reads them:
//     error: model.onnx: node 'h.0/attn' (MatMul): expects ...
#ifndef TOOLS_ATTNC_DIAGNOSTICS_H
#define TOOLS_ATTNC_DIAGNOSTICS_H

#include "mlir/IR/Diagnostics.h"
#include <string>

namespace attn::tools {

/// Prints what a context reports while it lives: errors, warnings and their
/// notes. Remarks are left to --fusion-report; dumps of operations and the pass
/// manager's own words are left out.
class DiagnosticPrinter {
public:
  DiagnosticPrinter(mlir::MLIRContext *context, std::string file);
  unsigned errors() const { return numErrors; }
  /// Whether one of the errors is about a node, and not about the file.
  bool hasNamedNode() const { return namedNode; }

private:
  void print(mlir::Diagnostic &diagnostic);

  std::string file;
  unsigned numErrors = 0;
  bool namedNode = false;
  mlir::ScopedDiagnosticHandler handler;
};

} // namespace attn::tools

#endif // TOOLS_ATTNC_DIAGNOSTICS_H
