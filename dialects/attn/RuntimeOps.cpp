#include "dialects/attn/AttnOps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace attn;

//===----------------------------------------------------------------------===//
// OutputOp
//===----------------------------------------------------------------------===//

LogicalResult OutputOp::verify() {
  auto type = cast<MemRefType>(getType());
  // C1
  if (static_cast<size_t>(type.getNumDynamicDims()) != getSizes().size())
    return emitOpError("expects one size a dynamic dimension of ") << type << ", got " << getSizes().size();
  // C2
  if (!type.getLayout().isIdentity())
    return emitOpError("expects a result of identity layout, got ") << type;
  // C3
  if (static_cast<int32_t>(getIndex()) < 0)
    return emitOpError("expects an index that is not negative, got ") << static_cast<int32_t>(getIndex());
  return success();
}

//===----------------------------------------------------------------------===//
// ParallelForOp
//===----------------------------------------------------------------------===//

LogicalResult ParallelForOp::verifySymbolUses(SymbolTableCollection &symbols) {
  // C1
  auto task = symbols.lookupNearestSymbolFrom<func::FuncOp>(*this, getTaskAttr());
  if (!task || !task->hasAttr(AttnDialect::kTaskAttr))
    return emitOpError("expects '") << getTask() << "' to name a func.func with the attribute "
                                    << AttnDialect::kTaskAttr;
  // A lowered task has the runtime's signature; only the one with arguments is compared.
  if (task.getNumArguments() != getCaptures().size() + 2)
    return emitOpError("expects '") << getTask() << "' to take two indices and " << getCaptures().size()
                                    << " captures, got " << task.getNumArguments() << " arguments";
  for (auto [capture, type] : llvm::zip(getCaptures(), task.getArgumentTypes().drop_front(2)))
    if (capture.getType() != type)
      return emitOpError("expects a capture of type ") << type << ", got " << capture.getType();
  return success();
}

//===----------------------------------------------------------------------===//
// FetchOp
//===----------------------------------------------------------------------===//

LogicalResult FetchOp::verify() {
  auto type = cast<MemRefType>(getBuffer().getType());
  // C1
  if (static_cast<int64_t>(getIndices().size()) != type.getRank())
    return emitOpError("expects ") << type.getRank() << " indices, got " << getIndices().size();
  if (getType() != type.getElementType())
    return emitOpError("expects a result of type ") << type.getElementType() << ", got " << getType();
  return success();
}
