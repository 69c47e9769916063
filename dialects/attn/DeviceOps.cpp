#include "dialects/attn/DeviceOps.h"

using namespace mlir;
using namespace attn;

// C1 of all of them.
static LogicalResult verifyDense(Operation *op) {
  for (Type type : op->getOperandTypes())
    if (auto buffer = dyn_cast<MemRefType>(type); buffer && !buffer.getLayout().isIdentity())
      return op->emitOpError("expects dense buffers, got ") << buffer;
  return success();
}

LogicalResult ProductOp::verify() {
  for (Value buffer : getOperands())
    if (auto type = dyn_cast<MemRefType>(buffer.getType()); type && !type.getElementType().isF32())
      return emitOpError("expects buffers of f32, got ") << type;
  return verifyDense(*this);
}

LogicalResult DownloadOp::verify() { return verifyDense(*this); }
LogicalResult UploadOp::verify() { return verifyDense(*this); }

#define GET_OP_CLASSES
#include "dialects/attn/DeviceOps.cpp.inc"
