#include "passes/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/Transforms/Transforms.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

namespace attn {
#define GEN_PASS_DEF_PREPAREBUFFERSPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace {
void unshareFills(func::FuncOp function) {
  SmallVector<OpOperand *> inits;
  function.walk([&](DestinationStyleOpInterface op) {
    for (OpOperand &init : op.getDpsInitsMutable())
      if (auto fill = init.get().getDefiningOp<linalg::FillOp>(); fill && !fill->hasOneUse())
        inits.push_back(&init);
  });
  for (OpOperand *init : inits) {
    auto fill = init->get().getDefiningOp<linalg::FillOp>();
    auto empty = fill.getOutputs()[0].getDefiningOp<tensor::EmptyOp>();
    if (!empty || fill->hasOneUse())
      continue;
    OpBuilder b(init->getOwner());
    IRMapping map;
    b.clone(*empty, map);
    init->set(b.clone(*fill, map)->getResult(0));
  }
}

struct PrepareBuffersPass : attn::impl::PrepareBuffersPassBase<PrepareBuffersPass> {
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    tensor::populateDecomposeTensorConcatPatterns(patterns);
    walkAndApplyPatterns(getOperation(), std::move(patterns));
    unshareFills(getOperation());
  }
};
} // namespace
