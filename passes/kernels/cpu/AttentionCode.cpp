#include "passes/kernels/cpu/AttentionCode.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace attn {

Vec AttentionCode::addEstimatedQuotient(const Vec &sum, const Vec &x, const Vec &y) {
  Num all = number(b.getI16Type(), int64_t(-1));
  Vec r = asVec(intrinsic("llvm.x86.avx512.rcp14.ps.512", y.type(), {y, splat(0), all}));
  // r + r (1 - y r), which squares the error.
  Vec left = fma(-y, r, splat(1));
  return fma(x, fma(r, left, r), sum);
}

Vec AttentionCode::pack(const Vec &low, const Vec &high) {
  Type pairs = VectorType::get({2 * lanes}, b.getBF16Type());
  Vec halves = asVec(intrinsic("llvm.x86.avx512bf16.cvtne2ps2bf16.512", pairs, {high, low}));
  SmallVector<int64_t> order;
  for (int64_t n = 0; n < lanes; ++n)
    order.append({n, lanes + n});
  return bitcast(attn::shuffle(halves, halves, order), f32Type());
}

std::pair<Vec, Vec> AttentionCode::unpack(const Vec &pairs) {
  Vec words = bitcast(pairs, b.getI32Type());
  return {bitcast(words << 16, f32Type()), bitcast(words & 0xffff0000, f32Type())};
}

Vec AttentionCode::addProducts(const Vec &sum, const Vec &x, const Vec &y) {
  Type bf16 = b.getBF16Type();
  return asVec(intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", sum.type(), {sum, bitcast(x, bf16), bitcast(y, bf16)}));
}

std::pair<Vec, Vec> AttentionCode::interleave(const Vec &x, const Vec &y) {
  auto half = [&](int64_t first) {
    SmallVector<int64_t> order;
    for (int64_t n = 0; n < lanes; ++n)
      order.append({first + n, 2 * lanes + first + n});
    return bitcast(attn::shuffle(x, y, order), f32Type());
  };
  return {half(0), half(lanes)};
}

void AttentionCode::withoutDenormals(llvm::function_ref<void()> body) {
  if (lanes == 4) // no x86, or one of which no more is known
    return body();
  // What the control register held, and what it holds meanwhile: denormals are zeros (6), flush to zero (15).
  Buffer control = scratch(2, b.getI32Type());
  Index address = control.address();
  auto call = [&](StringRef intrinsic, int64_t word) {
    Num place = toNum(address + 4 * word, b.getI64Type());
    Value pointer = LLVM::IntToPtrOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), place.value());
    LLVM::CallIntrinsicOp::create(b, loc, b.getStringAttr(intrinsic), ValueRange{pointer});
  };
  call("llvm.x86.sse.stmxcsr", 0);
  control.set(control(0) | i32(0x8040), 1);
  call("llvm.x86.sse.ldmxcsr", 1);
  body();
  call("llvm.x86.sse.ldmxcsr", 0);
}

} // namespace attn
