#include "passes/Passes.h"

#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace attn {
#define GEN_PASS_DEF_EXPANDRESHAPESPASS
#include "passes/Passes.h.inc"
} // namespace attn

using namespace mlir;

namespace {
struct ExpandReshapesPass : attn::impl::ExpandReshapesPassBase<ExpandReshapesPass> {
  void runOnOperation() override {
    getOperation().walk([](memref::ExpandShapeOp op) {
      if (!op.getResultType().getLayout().isIdentity())
        return;
      OpBuilder b(op);
      SmallVector<OpFoldResult> sizes = op.getMixedOutputShape(), strides(sizes.size());
      OpFoldResult stride = b.getIndexAttr(1);
      AffineExpr x, y;
      bindSymbols(op.getContext(), x, y);
      for (size_t i = sizes.size(); i-- > 0;) {
        strides[i] = stride;
        stride = affine::makeComposedFoldedAffineApply(b, op.getLoc(), x * y, {stride, sizes[i]});
      }
      Value cast = memref::ReinterpretCastOp::create(b, op.getLoc(), op.getResultType(), op.getSrc(), b.getIndexAttr(0),
                                                     sizes, strides);
      op.replaceAllUsesWith(cast);
      op.erase();
    });
  }
};
} // namespace
