#include "dialects/attn/DerivedGlobals.h"

#include "dialects/attn/AttnOps.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace attn {

DerivedGlobals::DerivedGlobals(ModuleOp module, SymbolTable &symbols) : module(module), symbols(symbols) {
  for (auto global : module.getOps<GlobalOp>())
    known.try_emplace({global.getExpression(), global.getType()}, FlatSymbolRefAttr::get(global));
}

FlatSymbolRefAttr DerivedGlobals::get(const Twine &name, RankedTensorType type, Attribute expression, Location loc) {
  FlatSymbolRefAttr &global = known[{expression, type}];
  if (!global) {
    auto b = OpBuilder::atBlockEnd(module.getBody());
    auto op = GlobalOp::create(b, loc, name.str(), type, expression);
    symbols.insert(op); // renames on a clash
    global = FlatSymbolRefAttr::get(op);
  }
  return global;
}

} // namespace attn
