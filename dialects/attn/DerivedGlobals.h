#ifndef DIALECTS_ATTN_DERIVEDGLOBALS_H
#define DIALECTS_ATTN_DERIVEDGLOBALS_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseMap.h"

namespace attn {

/// Adds globals that are made of others to a module. One expression of one type
/// is one global, those that the module has already too; a name that is taken
/// gets a number.
class DerivedGlobals {
public:
  DerivedGlobals(mlir::ModuleOp module, mlir::SymbolTable &symbols);

  mlir::FlatSymbolRefAttr get(const llvm::Twine &name, mlir::RankedTensorType type, mlir::Attribute expression,
                              mlir::Location loc);

private:
  mlir::ModuleOp module;
  mlir::SymbolTable &symbols;
  llvm::DenseMap<std::pair<mlir::Attribute, mlir::Type>, mlir::FlatSymbolRefAttr> known;
};

} // namespace attn

#endif // DIALECTS_ATTN_DERIVEDGLOBALS_H
