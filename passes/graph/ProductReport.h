#ifndef PASSES_GRAPH_PRODUCTREPORT_H
#define PASSES_GRAPH_PRODUCTREPORT_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/Twine.h"

namespace attn {

/// Whether a line of the product report ends with a kernel's name or with the reason why there is none.
enum class ProductVerdict { kernel, reason };

/// Adds a line to the module's `attn.product_report`: how the product at `location` is computed.
void reportProduct(mlir::ModuleOp module, mlir::Location location, const llvm::Twine &storage,
                   llvm::StringRef arithmetic, ProductVerdict verdict, llvm::StringRef text);

} // namespace attn

#endif // PASSES_GRAPH_PRODUCTREPORT_H
