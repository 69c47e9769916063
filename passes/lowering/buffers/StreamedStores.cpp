#include "passes/lowering/buffers/StreamedStores.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;
using namespace attn;

namespace {

/// True where elementwise ops write to `buffer` and to views of it, and nothing else has to do with them.
bool isOnlyWritten(Value buffer) {
  return llvm::all_of(buffer.getUses(), [](OpOperand &use) {
    Operation *user = use.getOwner();
    if (isa<memref::DimOp>(user))
      return true;
    if (auto view = dyn_cast<ViewLikeOpInterface>(user))
      return isOnlyWritten(view.getViewDest());
    auto writer = dyn_cast<linalg::LinalgOp>(user);
    return writer && writer.isDpsInit(&use) && !writer.payloadUsesValueFromOperand(&use);
  });
}

} // namespace

StreamedOutputs::StreamedOutputs(func::FuncOp function, TargetAttr target) {
  function.walk([&](OutputOp output) {
    MemRefType type = output.getType();
    if (type.hasStaticShape() && type.getElementType().isFloat() &&
        type.getNumElements() * static_cast<int64_t>(type.getElementTypeBitWidth() / 8) > target.getL2() &&
        isOnlyWritten(output.getResult()))
      outputs.insert(output);
  });
}

bool StreamedOutputs::has(linalg::GenericOp op, unsigned number, int64_t lanes) const {
  Value buffer = op.getDpsInitOperand(number)->get();
  SmallVector<int64_t> strides;
  int64_t offset;
  if (!outputs.contains(memref::skipViewLikeOps(cast<MemrefValue>(buffer)).getDefiningOp()) ||
      failed(cast<MemRefType>(buffer.getType()).getStridesAndOffset(strides, offset)) || strides.empty())
    return false;
  auto isWhole = [&](int64_t step) { return !ShapedType::isDynamic(step) && step % lanes == 0; };
  return isWhole(offset) && strides.back() == 1 && llvm::all_of(ArrayRef(strides).drop_back(), isWhole);
}
