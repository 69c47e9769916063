#include "dialects/attn/DerivedGlobals.h"

#include "dialects/attn/AttnOps.h"

#include "mlir/IR/Builders.h"

using namespace mlir;

namespace attn {

FlatSymbolRefAttr DerivedGlobals::get(StringRef name, RankedTensorType type, Attribute expression, Location loc) {
  FlatSymbolRefAttr &global = known[{expression, type}];
  if (!global) {
    auto b = OpBuilder::atBlockEnd(module.getBody());
    auto op = GlobalOp::create(b, loc, name, type, expression);
    symbols.insert(op); // renames on a clash
    global = FlatSymbolRefAttr::get(op);
  }
  return global;
}

} // namespace attn
