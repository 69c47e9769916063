#include "dialects/attn/BlockProductOps.h"
#include "dialects/attn/CacheOps.h"
#include "dialects/attn/DeviceOps.h"
#include "dialects/attn/IntegerProductOp.h"
#include "dialects/attn/LoopOps.h"
#include "dialects/attn/SearchOp.h"
#include "dialects/attn/SegmentAttentionOp.h"
#include "dialects/attn/TopKOp.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Transforms/InliningUtils.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace attn;

#include "dialects/attn/AttnDialect.cpp.inc"
#include "dialects/attn/AttnEnums.cpp.inc"

// An integer, or `?` for one that an operand gives.
static ParseResult parseDynamicOrInteger(AsmParser &parser, int64_t &value) {
  if (succeeded(parser.parseOptionalQuestion())) {
    value = ShapedType::kDynamic;
    return success();
  }
  return parser.parseInteger(value);
}

static void printDynamicOrInteger(AsmPrinter &printer, int64_t value) {
  if (ShapedType::isDynamic(value))
    printer << '?';
  else
    printer << value;
}

// An integer, or `inf`.
static ParseResult parseBound(AsmParser &parser, int64_t &value) {
  if (succeeded(parser.parseOptionalKeyword("inf"))) {
    value = WindowAttr::kInf;
    return success();
  }
  return parser.parseInteger(value);
}

static void printBound(AsmPrinter &printer, int64_t value) {
  if (value == WindowAttr::kInf)
    printer << "inf";
  else
    printer << value;
}

#define GET_ATTRDEF_CLASSES
#include "dialects/attn/AttnAttrs.cpp.inc"

namespace {
/// No op of the dialect depends on the function around it.
struct Inlining : DialectInlinerInterface {
  using DialectInlinerInterface::DialectInlinerInterface;
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final { return true; }
  bool isLegalToInline(Region *, Region *, bool, IRMapping &) const final { return true; }
};
} // namespace

void AttnDialect::initialize() {
  addInterfaces<Inlining>();
  addOperations<
#define GET_OP_LIST
#include "dialects/attn/AttnOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/attn/LoopOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/attn/DeviceOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/attn/CacheOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/attn/SearchOp.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/attn/SegmentAttentionOp.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/attn/TopKOp.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/attn/IntegerProductOp.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/attn/BlockProductOps.cpp.inc"
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
  return TargetAttr::get(op->getContext(), "", "", "", "portable", 32 << 10, 256 << 10, /*dividesFast=*/false);
}
