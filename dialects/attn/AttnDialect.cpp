#include "dialects/attn/AttnOps.h"

#include "llvm/ADT/TypeSwitch.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectImplementation.h"

using namespace mlir;
using namespace attn;

#include "dialects/attn/AttnDialect.cpp.inc"
#include "dialects/attn/AttnEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/attn/AttnAttrs.cpp.inc"

void AttnDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/attn/AttnOps.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/attn/AttnAttrs.cpp.inc"
      >();
}

TargetAttr TargetAttr::lookup(Operation *op) {
  auto module = isa<ModuleOp>(op) ? cast<ModuleOp>(op) : op->getParentOfType<ModuleOp>();
  if (module)
    if (auto target = module->getAttrOfType<TargetAttr>(AttnDialect::kTargetAttr))
      return target;
  return TargetAttr::get(op->getContext(), "", "", "", "portable", 32 << 10, 256 << 10);
}
