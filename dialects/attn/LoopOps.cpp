#include "dialects/attn/LoopOps.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace attn;

//===----------------------------------------------------------------------===//
// GrowOp
//===----------------------------------------------------------------------===//

LogicalResult GrowOp::verify() {
  // C1
  auto type = cast<ShapedType>(getResult().getType());
  int64_t dim = getDim();
  if (dim < 0 || dim >= type.getRank() || !type.isDynamicDim(dim))
    return emitOpError("expects dim to be a dynamic dimension of ") << type << ", got " << dim;
  return success();
}

void GrowOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (isa<TensorType>(getBuffer().getType()))
    return;
  effects.emplace_back(MemoryEffects::Read::get(), &getBufferMutable());
  effects.emplace_back(MemoryEffects::Write::get(), &getBufferMutable());
}

bool GrowOp::bufferizesToMemoryRead(OpOperand &, const AnalysisState &) { return true; }
bool GrowOp::bufferizesToMemoryWrite(OpOperand &, const AnalysisState &) { return true; }
AliasingValueList GrowOp::getAliasingValues(OpOperand &, const AnalysisState &) {
  return {{getResult(), BufferRelation::Equivalent}};
}

LogicalResult GrowOp::bufferize(RewriterBase &rewriter, const BufferizationOptions &options,
                                BufferizationState &state) {
  FailureOr<Value> buffer = ::mlir::bufferization::getBuffer(rewriter, getBuffer(), options, state);
  if (failed(buffer))
    return failure();
  replaceOpWithNewBufferizedOp<GrowOp>(rewriter, getOperation(), buffer->getType(), *buffer, getSize(), getDim());
  return success();
}

#define GET_OP_CLASSES
#include "dialects/attn/LoopOps.cpp.inc"
