#include "passes/kernels/gpu/ByteProducts.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;

namespace attn {

Num multiplyFours(ThreadCode &k, const Num &left, const Num &right, const Num &sum) {
  auto four = VectorType::get({4}, k.b.getI8Type());
  return k.asNum(NVVM::DotAccumulate4WayOp::create(k.b, k.loc, k.b.getI32Type(), k.bitsAs(left, four),
                                                   NVVM::DotAccumulateType::UNSIGNED, k.bitsAs(right, four),
                                                   NVVM::DotAccumulateType::SIGNED, sum));
}

Nums multiplyBytes(ThreadCode &k, ArrayRef<Num> left, ArrayRef<Num> right, ArrayRef<Num> sums) {
  using Types = std::array<NVVM::MMATypes, 2>;
  using Layouts = std::array<NVVM::MMALayout, 2>;
  auto result = LLVM::LLVMStructType::getLiteral(k.b.getContext(), SmallVector<Type>(4, k.b.getI32Type()));
  Value product = NVVM::MmaOp::create(k.b, k.loc, result, ThreadCode::values(left), ThreadCode::values(right),
                                      ThreadCode::values(sums), {16, 8, 32}, std::nullopt,
                                      NVVM::MMAIntOverflow::wrapped, Types{NVVM::MMATypes::u8, NVVM::MMATypes::s8},
                                      Layouts{NVVM::MMALayout::row, NVVM::MMALayout::col});
  Nums parts;
  for (int64_t n = 0; n < 4; ++n)
    parts.push_back(k.asNum(LLVM::ExtractValueOp::create(k.b, k.loc, product, n)));
  return parts;
}

} // namespace attn
