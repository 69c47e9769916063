#include "dialects/attn/AttnOps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace attn;

//===----------------------------------------------------------------------===//
// KernelOp
//===----------------------------------------------------------------------===//

LogicalResult KernelOp::verify() {
  // C2
  SmallVector<Type> tensors;
  for (Value init : getInits())
    if (isa<TensorType>(init.getType()))
      tensors.push_back(init.getType());
  if (TypeRange(tensors) != getOutputs().getTypes())
    return emitOpError("expects one result a tensor in outs (")
           << tensors.size() << "), of its type, got " << getOutputs().size() << " results";
  // C3
  for (int64_t position : getElementwise())
    if (position < 0 || position >= static_cast<int64_t>(getInputs().size()))
      return emitOpError("expects elementwise to hold positions in ins, [0, ")
             << getInputs().size() << "), got " << position;
  return success();
}

LogicalResult KernelOp::verifySymbolUses(SymbolTableCollection &symbols) {
  // C1
  auto callee = symbols.lookupNearestSymbolFrom<func::FuncOp>(*this, getCalleeAttr());
  if (!callee || !callee->hasAttr(AttnDialect::kKernelAttr))
    return emitOpError("expects '") << getCallee() << "' to name a func.func with the attribute "
                                    << AttnDialect::kKernelAttr;
  if (callee.getNumArguments() != getNumOperands())
    return emitOpError("expects as many operands as '")
           << getCallee() << "' has arguments (" << callee.getNumArguments() << "), got " << getNumOperands();
  return success();
}

void KernelOp::getEffects(SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  if (hasPureTensorSemantics())
    return;
  for (OpOperand &operand : (*this)->getOpOperands()) {
    if (!isa<MemRefType>(operand.get().getType()))
      continue;
    if (isDpsInit(&operand))
      effects.emplace_back(MemoryEffects::Write::get(), &operand);
    else
      effects.emplace_back(MemoryEffects::Read::get(), &operand);
  }
}

bool KernelOp::bufferizesToMemoryRead(OpOperand &operand, const AnalysisState &) { return !isDpsInit(&operand); }
bool KernelOp::bufferizesToMemoryWrite(OpOperand &operand, const AnalysisState &) { return isDpsInit(&operand); }

AliasingValueList KernelOp::getAliasingValues(OpOperand &operand, const AnalysisState &) {
  if (isDpsInit(&operand))
    return {{getTiedOpResult(&operand), BufferRelation::Equivalent}};
  return {};
}

// Operand numbers decide, not values: with one value passed both as the matrix
// and as the residual, a test of values would let a GEMM overwrite its input.
bool KernelOp::bufferizesToElementwiseAccess(const AnalysisState &, ArrayRef<OpOperand *> operands) {
  return llvm::all_of(operands, [&](OpOperand *operand) {
    return isDpsInit(operand) ||
           llvm::is_contained(getElementwise(), static_cast<int64_t>(operand->getOperandNumber()));
  });
}

LogicalResult KernelOp::bufferize(RewriterBase &rewriter, const BufferizationOptions &options,
                                  BufferizationState &state) {
  auto buffers = [&](ValueRange operands, SmallVectorImpl<Value> &into) -> LogicalResult {
    for (Value operand : operands) {
      if (!isa<TensorType>(operand.getType())) {
        into.push_back(operand);
        continue;
      }
      FailureOr<Value> buffer = getBuffer(rewriter, operand, options, state);
      if (failed(buffer))
        return failure();
      into.push_back(*buffer);
    }
    return success();
  };
  SmallVector<Value> inputs, inits, results;
  if (failed(buffers(getInputs(), inputs)) || failed(buffers(getInits(), inits)))
    return failure();
  for (auto [init, buffer] : llvm::zip(getInits(), inits))
    if (isa<TensorType>(init.getType()))
      results.push_back(buffer);
  auto call = KernelOp::create(rewriter, getLoc(), TypeRange(), getCalleeAttr(), inputs, inits, getElementwiseAttr());
  call->setDiscardableAttrs(llvm::to_vector((*this)->getDiscardableAttrs()));
  replaceOpWithBufferizedValues(rewriter, getOperation(), results);
  return success();
}
