#include "dialects/attn/AttnOps.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace attn;

//===----------------------------------------------------------------------===//
// GlobalOp
//===----------------------------------------------------------------------===//

LogicalResult GlobalOp::verify() {
  // C1
  if (!isa<InitializerAttr, TransposeAttr, ReshapeAttr, SliceAttr, ConcatAttr, PackPanelsAttr, NarrowPanelsAttr,
           PanelScalesAttr, BlockCodesAttr, BlockScalesAttr, BytePanelsAttr, ColumnSumsAttr, StepOrderAttr>(
          getExpression()))
    return emitOpError("expects a weight expression, got ") << getExpression();
  // C2
  auto type = dyn_cast<RankedTensorType>(getType());
  if (!type || !type.hasStaticShape())
    return emitOpError("expects a tensor type of static shape, got ") << getType();
  return success();
}

//===----------------------------------------------------------------------===//
// WeightOp
//===----------------------------------------------------------------------===//

LogicalResult WeightOp::verifySymbolUses(SymbolTableCollection &symbols) {
  // C1
  auto global = symbols.lookupNearestSymbolFrom<GlobalOp>(*this, getGlobalAttr());
  if (!global)
    return emitOpError("expects '") << getGlobal() << "' to name an attn.global";
  auto type = cast<ShapedType>(getType()), declared = cast<ShapedType>(global.getType());
  if (type.getShape() != declared.getShape() || type.getElementType() != declared.getElementType())
    return emitOpError("expects the type of '") << getGlobal() << "' (" << declared << "), got " << getType();
  return success();
}

bool WeightOp::isWritable(Value, const AnalysisState &) { return false; } // a writer gets a copy

LogicalResult WeightOp::bufferize(RewriterBase &rewriter, const BufferizationOptions &, BufferizationState &) {
  auto type = cast<RankedTensorType>(getType());
  replaceOpWithNewBufferizedOp<WeightOp>(rewriter, getOperation(),
                                         MemRefType::get(type.getShape(), type.getElementType()), getGlobalAttr());
  return success();
}
