#include "passes/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"
#include "llvm/ADT/DenseMap.h"

namespace attn {
#define GEN_PASS_DEF_PREPAREBUFFERSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace {
/// Operands that an op may write to: inits, and what a loop carries.
void destinationsOf(func::FuncOp function, SmallVector<OpOperand *> &destinations) {
  function.walk([&](Operation *op) {
    if (auto writer = dyn_cast<DestinationStyleOpInterface>(op)) {
      for (OpOperand &init : writer.getDpsInitsMutable())
        destinations.push_back(&init);
    } else if (auto loop = dyn_cast<LoopLikeOpInterface>(op)) {
      for (OpOperand &init : loop.getInitsMutable())
        destinations.push_back(&init);
    }
  });
}

/// A value that two ops may write to is two values. Bufferisation would copy it
/// for one of them, too, but only after the buffer of an output may have been
/// chosen for it: then the other one's result would be lost when the output is
/// written.
void unshareDestinations(func::FuncOp function) {
  SmallVector<OpOperand *> destinations;
  destinationsOf(function, destinations);
  llvm::DenseMap<Value, unsigned> writers;
  for (OpOperand *destination : destinations)
    if (isa<RankedTensorType>(destination->get().getType()))
      ++writers[destination->get()];
  for (OpOperand *destination : destinations) {
    Value value = destination->get();
    auto writer = writers.find(value);
    if (writer == writers.end() || writer->second < 2 || value.getDefiningOp<tensor::EmptyOp>())
      continue;
    --writer->second; // the last one keeps the value
    OpBuilder b(destination->getOwner());
    Location loc = value.getLoc();
    auto fill = value.getDefiningOp<linalg::FillOp>();
    auto empty = fill ? fill.getOutputs()[0].getDefiningOp<tensor::EmptyOp>() : tensor::EmptyOp();
    if (empty) {
      IRMapping map;
      b.clone(*empty, map);
      destination->set(b.clone(*fill, map)->getResult(0));
      continue;
    }
    auto type = cast<RankedTensorType>(value.getType());
    Value fresh = tensor::EmptyOp::create(b, loc, tensor::getMixedSizes(b, loc, value), type.getElementType());
    destination->set(linalg::CopyOp::create(b, loc, value, fresh).getResult(0));
  }
}

struct PrepareBuffersPass : attn::impl::PrepareBuffersPassBase<PrepareBuffersPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    tensor::populateDecomposeTensorConcatPatterns(patterns);
    walkAndApplyPatterns(getOperation(), std::move(patterns));
    unshareDestinations(getOperation());
  }
};
} // namespace
