#ifndef PASSES_LOWERING_GPU_STEPRANGES_H
#define PASSES_LOWERING_GPU_STEPRANGES_H

#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"

namespace attn {

class DeviceLoop;

/// How small and how large sizes of a loop's step are in the steps that are made
/// at once: counters are between what they are now and what they are in the last
/// of them, and sizes follow from counters. What they follow through may be negative.
class StepRanges {
public:
  explicit StepRanges(DeviceLoop &loop) : loop(loop) {}

  /// Whether there is a range of `size`; notes the counters that it comes from.
  bool know(mlir::Value size);
  /// Arguments of the body.
  llvm::ArrayRef<unsigned> counters() const { return found.getArrayRef(); }

  /// What becomes of a value that is the same in all the steps, and how many steps follow the first.
  struct Front {
    llvm::function_ref<mlir::Value(mlir::Value)> hoist;
    mlir::Value others;
  };
  /// The greatest that a size which is known can be, computed at `b`.
  mlir::Value most(mlir::OpBuilder &b, mlir::Value size, const Front &front) { return emit(b, size, front).most; }

private:
  struct Range {
    mlir::Value least, most;
  };
  struct Maker;
  Range emit(mlir::OpBuilder &b, mlir::Value size, const Front &front);

  DeviceLoop &loop;
  llvm::SetVector<unsigned> found;
  llvm::DenseMap<mlir::Value, Range> made;
};

} // namespace attn

#endif // PASSES_LOWERING_GPU_STEPRANGES_H
