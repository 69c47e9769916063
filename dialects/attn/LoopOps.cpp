#include "dialects/attn/LoopOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

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
  // C2
  if (auto memref = dyn_cast<MemRefType>(type); memref && !memref.getLayout().isIdentity())
    return emitOpError("expects a dense buffer, got ") << type;
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

FailureOr<BufferLikeType> GrowOp::getBufferType(Value value, const BufferizationOptions &, const BufferizationState &,
                                                SmallVector<Value> &) {
  return cast<BufferLikeType>(getMemRefTypeWithStaticIdentityLayout(cast<TensorType>(value.getType())));
}

LogicalResult GrowOp::bufferize(RewriterBase &rewriter, const BufferizationOptions &options,
                                BufferizationState &state) {
  FailureOr<Value> buffer = ::mlir::bufferization::getBuffer(rewriter, getBuffer(), options, state);
  if (failed(buffer))
    return failure();
  auto type = getMemRefTypeWithStaticIdentityLayout(cast<TensorType>(getBuffer().getType()));
  if (buffer->getType() != type) { // a part of another buffer, which has no room behind it
    SmallVector<Value> sizes;
    for (int64_t dim = 0; dim < type.getRank(); ++dim)
      if (type.isDynamicDim(dim))
        sizes.push_back(memref::DimOp::create(rewriter, getLoc(), *buffer, dim));
    FailureOr<Value> own = options.createAlloc(rewriter, getLoc(), cast<MemRefType>(type), sizes);
    if (failed(own) || failed(options.createMemCpy(rewriter, getLoc(), *buffer, *own)))
      return failure();
    buffer = own;
  }
  replaceOpWithNewBufferizedOp<GrowOp>(rewriter, getOperation(), type, *buffer, getSize(), getDim());
  return success();
}

#define GET_OP_CLASSES
#include "dialects/attn/LoopOps.cpp.inc"
