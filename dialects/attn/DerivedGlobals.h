#ifndef DIALECTS_ATTN_DERIVEDGLOBALS_H
#define DIALECTS_ATTN_DERIVEDGLOBALS_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseMap.h"

namespace attn {

/// Adds globals that are made of others to a module. One expression of one type
/// is one global; a name that is taken gets a number.
class DerivedGlobals {
public:
  explicit DerivedGlobals(mlir::ModuleOp module) : module(module), symbols(module) {}

  mlir::FlatSymbolRefAttr get(llvm::StringRef name, mlir::RankedTensorType type, mlir::Attribute expression,
                              mlir::Location loc);

private:
  mlir::ModuleOp module;
  mlir::SymbolTable symbols;
  llvm::DenseMap<std::pair<mlir::Attribute, mlir::Type>, mlir::FlatSymbolRefAttr> known;
};

} // namespace attn

#endif // DIALECTS_ATTN_DERIVEDGLOBALS_H
