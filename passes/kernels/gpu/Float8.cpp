#include "passes/kernels/gpu/Float8.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;

namespace attn {

Nums fromFloat8(ThreadCode &k, const Num &pair) {
  OpBuilder &b = k.b;
  Value bytes = k.bitsAs(pair, VectorType::get({2}, b.getI8Type()));
  Value halves = NVVM::ConvertF8x2ToF16x2Op::create(b, k.loc, VectorType::get({2}, b.getF16Type()), bytes,
                                                    /*relu=*/false, Float8E4M3FNType::get(b.getContext()));
  return k.unpacked(k.asNum(halves), Precision::f16);
}

Nums fromFloat8Word(ThreadCode &k, const Num &word) {
  constexpr int64_t kPairBits = 16;
  Nums four;
  for (const Num &pair : {word, word >> kPairBits})
    llvm::append_range(four, fromFloat8(k, convert(pair, k.b.getI16Type())));
  return four;
}

Num toFloat8(ThreadCode &k, const Num &x) {
  // An f32's exponent counts from 120 more, and its fraction has 20 bits more; the least step of e4m3 is 2^-9.
  constexpr int64_t kRest = 20, kFractionBits = 3, kBias = 120 << kFractionBits, kSign = 24;
  constexpr double kLeastNormal = 0x1p-6, kSteps = 0x1p9;
  Num size = abs(x), bits = bitcast(size, k.b.getI32Type());
  Num rounded = bits + ((bits >> kRest) & 1) + ((int64_t(1) << (kRest - 1)) - 1);
  Num normal = ((rounded >> kRest) - kBias) & 0x7f;
  Num code = select(size < kLeastNormal, convert(roundEven(size * kSteps), k.b.getI32Type()), normal);
  return code | ((bitcast(x, k.b.getI32Type()) >> kSign) & 0x80);
}

} // namespace attn
