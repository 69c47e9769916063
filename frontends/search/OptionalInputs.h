#ifndef FRONTENDS_SEARCH_OPTIONALINPUTS_H
#define FRONTENDS_SEARCH_OPTIONALINPUTS_H

#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLFunctionalExtras.h"

// Inputs of a search's entry that a caller may leave out.

namespace attn {

using AddInputFn = llvm::function_ref<mlir::Value(mlir::Type, mlir::DictionaryAttr)>;

/// A list of any length.
mlir::Value addOptionalList(mlir::OpBuilder &b, AddInputFn addInput, llvm::StringRef name, mlir::Type element,
                            llvm::StringRef dtype);
/// A list of one number, or of none: the run requires it.
mlir::Value addOptionalNumber(mlir::OpBuilder &b, mlir::Location loc, AddInputFn addInput, llvm::StringRef name,
                              mlir::Type element, llvm::StringRef dtype);

/// Whether `list` has an element.
mlir::Value isThere(mlir::OpBuilder &b, mlir::Location loc, mlir::Value list);
/// The first element of `list`, or `fallback` where it has none.
mlir::Value firstOr(mlir::OpBuilder &b, mlir::Location loc, mlir::Value list, mlir::Value fallback);

} // namespace attn

#endif // FRONTENDS_SEARCH_OPTIONALINPUTS_H
