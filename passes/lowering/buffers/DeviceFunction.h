#ifndef PASSES_LOWERING_BUFFERS_DEVICEFUNCTION_H
#define PASSES_LOWERING_BUFFERS_DEVICEFUNCTION_H

#include "dialects/attn/DeviceOps.h"
#include "passes/lowering/buffers/RuntimeFunction.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace attn {

/// A function of the runtime whose ops on a GPU become calls of its attnrt_device.
class DeviceFunction : protected RuntimeFunction {
protected:
  using RuntimeFunction::RuntimeFunction;

  mlir::LogicalResult lower(ExactArchOp op);
  mlir::LogicalResult lower(DeviceLimitsOp op);
  mlir::LogicalResult lower(DeviceErrorOp op);
  mlir::LogicalResult lower(FetchOp op);
  mlir::LogicalResult lower(DownloadOp op);
  mlir::LogicalResult lower(UploadOp op);
  mlir::LogicalResult lower(ProductOp op);
  mlir::LogicalResult lower(MapTilesOp op);
  mlir::LogicalResult lower(BeginLoopOp op);
  mlir::LogicalResult lower(EndLoopOp op);
  mlir::LogicalResult lower(mlir::gpu::LaunchFuncOp op);

private:
  /// A copy of a dense buffer by the function at `offset`.
  template <typename OpTy> mlir::LogicalResult lowerCopy(OpTy op, int64_t offset);
  /// The parts of a kernel's argument as its PTX parameters take them: of a buffer its address and `openFields`.
  mlir::LogicalResult appendParameters(mlir::Operation *op, mlir::Value operand,
                                       llvm::SmallVectorImpl<mlir::Value> &parts);
  mlir::Value descriptorField(mlir::Value buffer, llvm::ArrayRef<int64_t> field);
  mlir::Value addressOf(mlir::Value buffer);
  mlir::Value firstOf(mlir::Value buffer); ///< of any layout
  mlir::Value sizeOf(mlir::Value buffer, int64_t dim);
};

} // namespace attn

#endif // PASSES_LOWERING_BUFFERS_DEVICEFUNCTION_H
