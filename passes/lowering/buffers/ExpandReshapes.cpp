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
      OpBuilder b(op);
      Location loc = op.getLoc();
      MemRefType type = op.getResultType();
      bool isContiguous = type.getLayout().isIdentity();
      OpFoldResult offset = b.getIndexAttr(0), stride = b.getIndexAttr(1);
      SmallVector<OpFoldResult> sizes = op.getMixedOutputShape(), strides(sizes.size(), stride), ofSource;
      if (!isContiguous) {
        auto source = memref::ExtractStridedMetadataOp::create(b, loc, op.getSrc());
        offset = source.getConstifiedMixedOffset();
        ofSource = source.getConstifiedMixedStrides();
      }
      AffineExpr x, y;
      bindSymbols(op.getContext(), x, y);
      SmallVector<ReassociationIndices> groups = op.getReassociationIndices();
      for (size_t n = groups.size(); n-- > 0;) {
        if (!isContiguous)
          stride = ofSource[n];
        for (int64_t i : llvm::reverse(groups[n])) {
          strides[i] = stride;
          stride = affine::makeComposedFoldedAffineApply(b, loc, x * y, {stride, sizes[i]});
        }
      }
      Value cast = memref::ReinterpretCastOp::create(b, loc, type, op.getSrc(), offset, sizes, strides);
      op.replaceAllUsesWith(cast);
      op.erase();
    });
  }
};
} // namespace
