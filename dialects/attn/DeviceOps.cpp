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

LogicalResult MapTilesOp::verify() {
  auto type = cast<MemRefType>(getTensor().getType());
  auto [strides, offset] = type.getStridesAndOffset();
  Type element = type.getElementType();
  // C1
  if (type.getRank() < 2 || type.getRank() > 5 || !element.isIntOrFloat() || element.getIntOrFloatBitWidth() != 16 ||
      strides.back() != 1)
    return emitOpError("expects 2 to 5 dimensions of 16-bit elements, the last one dense, got ") << type;
  // C2
  ArrayRef<int64_t> tile = getTile();
  if (static_cast<int64_t>(tile.size()) != type.getRank() || tile.back() != 64 ||
      llvm::any_of(tile, [](int64_t size) { return size < 1 || size > 256; }))
    return emitOpError("expects tiles of 1 to 256 elements along each of ")
           << type.getRank() << " dimensions, 64 along the last, got [" << tile << "]";
  return success();
}

LogicalResult ProductOp::verify() {
  constexpr uint32_t kBf16 = 2, kF16 = 3;
  uint32_t precision = getPrecision();
  // C2
  if (getNarrow() && precision != kBf16 && precision != kF16)
    return emitOpError("expects factors in 16 bits with precision 2 or 3, got ") << precision;
  // C1
  Type result = getElementTypeOrSelf(getResult());
  for (Value buffer : {Value(getLeft()), Value(getRight()), Value(getResult()), Value(getBias()), Value(getAddend())}) {
    if (!buffer)
      continue;
    Type type = getElementTypeOrSelf(buffer);
    bool isNamed = precision == kBf16 ? type.isBF16() : type.isF16();
    if (!type.isF32() && !(getNarrow() && isNamed))
      return emitOpError("expects buffers of f32, got ") << buffer.getType();
    // C3
    if (buffer != getLeft() && buffer != getRight() && type != result)
      return emitOpError("expects bias and addend in the type of the result, ")
             << result << ", got " << buffer.getType();
  }
  return verifyDense(*this);
}

LogicalResult DownloadOp::verify() { return verifyDense(*this); }
LogicalResult UploadOp::verify() { return verifyDense(*this); }

LogicalResult EndLoopOp::verify() {
  auto type = cast<MemRefType>(getState().getType());
  if (type.isDynamicDim(0) || getWord() >= static_cast<uint64_t>(type.getDimSize(0)))
    return emitOpError("expects a buffer that has a word ") << getWord() << ", got " << type;
  // Where branches have become blocks the other one may stand in any of those before.
  if (!(*this)->getBlock()->isEntryBlock())
    return verifyDense(*this);
  for (Operation *before = (*this)->getPrevNode(); before && !isa<EndLoopOp>(before); before = before->getPrevNode())
    if (isa<BeginLoopOp>(before))
      return verifyDense(*this);
  // Branches between the two that have become blocks part them.
  if (!(*this)->getBlock()->isEntryBlock())
    return verifyDense(*this);
  return emitOpError("expects 'attn.begin_loop' in front of it");
}

#define GET_OP_CLASSES
#include "dialects/attn/DeviceOps.cpp.inc"
