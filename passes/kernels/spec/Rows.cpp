#include "passes/kernels/spec/Rows.h"
#include "passes/kernels/spec/Regions.h"
#include "passes/kernels/spec/Storage.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn {

SoftmaxSpec SoftmaxSpec::get(SoftmaxOp op, TargetAttr target) {
  return {bufferOf(op.getInput()), static_cast<int64_t>(op.getDim()), op.getLog(), target.getF32Lanes()};
}

std::string SoftmaxSpec::symbol() const {
  return llvm::formatv("{0}softmax_{1}_{2}{3}_v{4}", log ? "log_" : "", type.getElementType(), shapeText(type),
                       isOverLast() ? "" : "_d" + std::to_string(dim), lanes);
}

bool canBuildSoftmax(const SoftmaxSpec &spec, std::string *reason) {
  if (!spec.type.getElementType().isF32())
    return fail(reason, "only f32 has a kernel so far");
  if (spec.dim < 0 || spec.dim >= spec.type.getRank())
    return fail(reason,
                "dimension " + Twine(spec.dim) + " is outside of a tensor of rank " + Twine(spec.type.getRank()));
  return true;
}

LayerNormSpec LayerNormSpec::get(LayerNormOp op, TargetAttr target) {
  LayerNormSpec spec;
  spec.type = bufferOf(op.getInput());
  spec.scaleType = bufferOf(op.getScale());
  if (op.getBias())
    spec.biasType = bufferOf(op.getBias());
  spec.axis = op.getAxis();
  spec.epsilon = op.getEpsilon().convertToFloat();
  spec.lanes = target.getF32Lanes();
  return spec;
}

std::string LayerNormSpec::symbol() const {
  return llvm::formatv("layer_norm_{0}_{1}_a{2}_s{3}_{4}_eps{5:x-}_v{6}", type.getElementType(), shapeText(type), axis,
                       shapeText(scaleType), biasType ? "b" + shapeText(biasType) : "nobias",
                       APFloat(epsilon).bitcastToAPInt().getZExtValue(), lanes);
}

bool canBuildLayerNorm(const LayerNormSpec &spec, std::string *reason) {
  for (MemRefType type : {spec.type, spec.scaleType, spec.biasType})
    if (type && !type.getElementType().isF32())
      return fail(reason, "only f32 has a kernel so far");
  if (spec.axis < 0 || spec.axis >= spec.type.getRank())
    return fail(reason, "axis " + Twine(spec.axis) + " is outside of a tensor of rank " + Twine(spec.type.getRank()));
  return true;
}

NarrowRowsSpec NarrowRowsSpec::get(NarrowRowsOp op, TargetAttr target) {
  bool isFloat8 = isa<Float8E4M3FNType>(cast<RankedTensorType>(op.getType()).getElementType());
  return {bufferOf(op.getRows()), target.getF32Lanes(), isFloat8};
}

MemRefType NarrowRowsSpec::resultType() const {
  MLIRContext *context = type.getContext();
  Type element = isFloat8 ? Type(Float8E4M3FNType::get(context)) : IntegerType::get(context, 8);
  RankedTensorType bytes = getNarrowType(RankedTensorType::get(type.getShape(), type.getElementType()), element);
  return MemRefType::get(bytes.getShape(), bytes.getElementType());
}

std::string NarrowRowsSpec::symbol() const {
  return llvm::formatv("narrow_rows_{0}_{1}_v{2}{3}", type.getElementType(), shapeText(type), lanes,
                       isFloat8 ? "_e4m3" : "");
}

bool canBuildNarrowRows(const NarrowRowsSpec &spec, std::string *reason) {
  Type element = spec.type.getElementType();
  if (!element.isF32() && !element.isF16() && !element.isBF16())
    return fail(reason, "only rows of f32, f16 and bf16 have a kernel");
  if (spec.type.getRank() == 0 || spec.type.isDynamicDim(spec.type.getRank() - 1))
    return fail(reason, "the length of a row is dynamic");
  return true;
}

} // namespace attn
