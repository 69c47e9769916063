#include "dialects/attn/AttnOps.h"

#include "mlir/IR/OpImplementation.h"

using namespace mlir;
using namespace attn;

#define GET_OP_CLASSES
#include "dialects/attn/AttnOps.cpp.inc"

//===----------------------------------------------------------------------===//
// AttentionOp
//===----------------------------------------------------------------------===//

LogicalResult AttentionOp::verify() { return success(); }
