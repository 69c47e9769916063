#include "frontends/onnx/ops/Quantize.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Diagnostics.h"
#include <cstring>

using namespace mlir;

namespace attn::onnx {

void warnOfScales(Node &n, bool divides) {
  const Tensor &scale = n.input(1);
  auto type = dyn_cast<FloatType>(elementType(n.builder().getContext(), scale.dtype));
  size_t width = dtypeBytes(scale.dtype);
  if (!type || type.getWidth() != width * 8)
    return;
  std::optional<std::vector<char>> bytes = n.constantBytes(scale);
  size_t count = bytes ? bytes->size() / width : 0;
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes->data() + i * width, width); // little endian
    llvm::APFloat value(type.getFloatSemantics(), llvm::APInt(type.getWidth(), bits));
    if (value.isFinite() && !(divides && value.isZero()))
      continue;
    llvm::SmallString<16> text;
    value.toString(text);
    auto warning = mlir::emitWarning(n.loc());
    warning << "has the scale " << text;
    if (count > 1)
      warning << " as number " << i << " of " << count;
    warning
        << ", expected a finite number" << (divides ? " other than 0" : "")
        << "; the numbers that it scales are lost, as with ONNX Runtime, and all that depends on them; calibrate the "
           "model again";
    return;
  }
}

} // namespace attn::onnx
