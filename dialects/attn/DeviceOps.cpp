#include "dialects/attn/DeviceOps.h"

using namespace mlir;
using namespace attn;

#define GET_OP_CLASSES
#include "dialects/attn/DeviceOps.cpp.inc"
