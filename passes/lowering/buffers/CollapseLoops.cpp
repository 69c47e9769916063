#include "passes/lowering/buffers/CollapseLoops.h"

#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace attn;

namespace {

/// True where the elements of loops `loop` - 1 and `loop`, which `map` reads side by side if at all, lie one after the
/// other in a buffer of this type.
bool isDense(MemRefType type, AffineMap map, unsigned loop) {
  std::optional<unsigned> inner = map.getResultPosition(getAffineDimExpr(loop, map.getContext()));
  if (!inner || type.getLayout().isIdentity())
    return true;
  SmallVector<int64_t> strides;
  int64_t offset, size = type.getDimSize(*inner);
  return succeeded(type.getStridesAndOffset(strides, offset)) && !ShapedType::isDynamic(size) &&
         !ShapedType::isDynamic(strides[*inner]) && strides[*inner - 1] == strides[*inner] * size;
}

} // namespace

linalg::GenericOp attn::collapseLoops(RewriterBase &rewriter, linalg::GenericOp op) {
  int64_t loops = op.getNumLoops();
  SmallVector<bool> indexed(loops, false);
  op.getRegion().walk([&](linalg::IndexOp index) { indexed[index.getDim()] = true; });
  for (AffineMap map : op.getIndexingMapsArray())
    if (!map.isProjectedPermutation())
      return op;
  auto iterators = op.getIteratorTypesArray();
  SmallVector<ReassociationIndices> groups;
  for (int64_t loop = 0; loop < loops; ++loop) {
    bool joins = loop && !indexed[loop] && !indexed[loop - 1] && iterators[loop] == iterators[loop - 1];
    if (joins) {
      ReassociationIndices pair{loop - 1, loop};
      joins = llvm::all_of(op.getIndexingMapsArray(),
                           [&](AffineMap map) { return linalg::isDimSequencePreserved(map, pair); });
      for (OpOperand &operand : op->getOpOperands()) {
        auto type = dyn_cast<MemRefType>(operand.get().getType());
        joins = joins && (!type || isDense(type, op.getMatchingIndexingMap(&operand), loop));
      }
    }
    if (joins)
      groups.back().push_back(loop);
    else
      groups.push_back({loop});
  }
  if (static_cast<int64_t>(groups.size()) == loops)
    return op;
  rewriter.setInsertionPoint(op);
  FailureOr<linalg::CollapseResult> collapsed = linalg::collapseOpIterationDims(op, groups, rewriter);
  if (failed(collapsed))
    return op;
  auto result = cast<linalg::GenericOp>(collapsed->collapsedOp);
  rewriter.eraseOp(op);
  return result;
}
