#include "passes/kernels/gpu/Float8.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;

namespace attn {

LaneBuilder::Values fromFloat8(BlockBuilder &k, Value pair) {
  OpBuilder &b = k.b;
  Value bytes = k.bitcast(pair, VectorType::get({2}, b.getI8Type()));
  Value halves = NVVM::ConvertF8x2ToF16x2Op::create(b, k.loc, VectorType::get({2}, b.getF16Type()), bytes,
                                                    /*relu=*/false, Float8E4M3FNType::get(b.getContext()));
  return k.unpacked(halves, Precision::f16);
}

Nums fromFloat8Word(ThreadCode &k, const Num &word) {
  constexpr int64_t kPairBits = 16;
  Nums four;
  for (const Num &pair : {word, word >> kPairBits})
    llvm::append_range(four, k.nums(fromFloat8(k.raw, convert(pair, k.b.getI16Type()))));
  return four;
}

} // namespace attn
