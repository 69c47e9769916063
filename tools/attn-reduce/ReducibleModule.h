#ifndef TOOLS_ATTN_REDUCE_REDUCIBLEMODULE_H
#define TOOLS_ATTN_REDUCE_REDUCIBLEMODULE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <memory>
#include <string>
#include <utility>

namespace attn::tools {

/// A module that can be made smaller operation by operation; the form of attn::onnx::ReducibleModel.
class ReducibleModule {
public:
  enum Part : unsigned {
    Symbols,    ///< functions, globals, … that nothing names
    Operations, ///< an operand of the same type stands in the place of a result, or a new argument of the function
    Results,    ///< of functions, all but one
    NumParts
  };

  /// Null after a diagnostic.
  static std::unique_ptr<ReducibleModule> read(mlir::MLIRContext *context, llvm::StringRef path);

  size_t count(unsigned part) const;
  /// Makes a candidate without those in [first, last). False where it would not verify.
  bool leaveOut(unsigned part, size_t first, size_t last);
  /// The candidate's text, or the module's before the first one.
  std::string candidate() const;
  void accept() { module = next.get().clone(); }

  /// Operations, and arguments of functions with bytes of text.
  std::pair<size_t, size_t> size() const { return sizeOf(module.get()); }
  std::pair<size_t, size_t> candidateSize() const { return sizeOf(next.get()); }

private:
  ReducibleModule() = default;
  static std::pair<size_t, size_t> sizeOf(mlir::ModuleOp module);

  mlir::OwningOpRef<mlir::ModuleOp> module, next;
};

} // namespace attn::tools

#endif // TOOLS_ATTN_REDUCE_REDUCIBLEMODULE_H
