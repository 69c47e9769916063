#include "passes/kernels/spec/Storage.h"

using namespace mlir;

namespace attn {

MemRefType bufferOf(Value tensor) {
  auto type = cast<RankedTensorType>(tensor.getType());
  return MemRefType::get(type.getShape(), type.getElementType());
}

std::optional<WeightStorage> WeightStorage::parse(StringRef text) {
  if (text == "f32")
    return WeightStorage();
  if (text == "bf16")
    return WeightStorage{PanelStorage::BF16};
  if (text.starts_with("int4:")) {
    WeightStorage blocks;
    bool isWhole = !text.drop_front(5).getAsInteger(10, blocks.block);
    return isWhole && llvm::is_contained({16, 32, 64, 128, 256}, blocks.block) ? std::optional(blocks) : std::nullopt;
  }
  WeightStorage result{PanelStorage::I8};
  if (text.consume_front("int8:") && !text.getAsInteger(10, result.group) && result.group > 0)
    return result;
  return text == "int8" ? std::optional(result) : std::nullopt;
}

Type elementType(PanelStorage storage, MLIRContext *context) {
  switch (storage) {
  case PanelStorage::F32:
    return Float32Type::get(context);
  case PanelStorage::F16:
    return Float16Type::get(context);
  case PanelStorage::BF16:
    return BFloat16Type::get(context);
  case PanelStorage::I8:
    return IntegerType::get(context, 8);
  }
  llvm_unreachable("covered switch");
}

bool hasNarrowProducts(TargetAttr target) {
  return target.getF32Lanes() == 16 && target.getFeatures().contains("+avx512bf16");
}

} // namespace attn
