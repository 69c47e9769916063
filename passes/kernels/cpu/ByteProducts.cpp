#include "passes/kernels/cpu/ByteProducts.h"

using namespace mlir;

namespace attn {

ByteDot byteDotOf(TargetAttr target) {
  StringRef features = target.getFeatures();
  int64_t lanes = target.getF32Lanes();
  bool hasQuads = features.contains(lanes == 16 ? "+avx512vnni" : "+avxvnni");
  return lanes == 4 ? ByteDot::Single : hasQuads ? ByteDot::Quads : ByteDot::Pairs;
}

/// Of vectors of 64 bytes, or of 32.
Vec ByteProducts::call(StringRef wide, StringRef narrow, Type type, ArrayRef<Value> operands) {
  int64_t lanes = cast<VectorType>(type).getNumElements();
  int64_t bytes = lanes * cast<VectorType>(type).getElementTypeBitWidth() / 8;
  return k.asVec(k.intrinsic(bytes == 64 ? wide : narrow, type, operands));
}

/// The sums of two products of words side by side.
Vec ByteProducts::addWords(const Vec &left, const Vec &right) {
  Type sums = VectorType::get({left.lanes() / 2}, k.b.getI32Type());
  return call("llvm.x86.avx512.pmaddw.d.512", "llvm.x86.avx2.pmadd.wd", sums, {left, right});
}

/// Of pairs: those at even and those at odd places, widened to 16 bits. A word of four bytes comes into all lanes by
/// its load alone, which a word of two does by a shuffle, and a mask and a shift are cheaper than two shuffles that
/// widen (Zen 3).
Vecs ByteProducts::unsignedFactors(const Vec &bytes) {
  if (dot != ByteDot::Pairs)
    return {bytes};
  Vec words = bitcast(bytes, k.b.getI16Type());
  return {words & 0xff, words >> 8};
}

Vecs ByteProducts::signedFactors(const Vec &bytes) {
  if (dot != ByteDot::Pairs)
    return {bytes};
  Vec words = bitcast(bytes, k.b.getI16Type());
  return {shiftRightSigned(words << 8, 8), shiftRightSigned(words, 8)};
}

Vec ByteProducts::add(const Vec &sum, const Vecs &left, const Vecs &right) {
  switch (dot) {
  case ByteDot::Quads:
    return addNarrow(sum, left, right);
  case ByteDot::Pairs:
    return sum + addWords(left[0], right[0]) + addWords(left[1], right[1]);
  case ByteDot::Single:
    return sum + convertUnsigned(left[0], k.b.getI32Type()) * convert(right[0], k.b.getI32Type());
  }
  llvm_unreachable("covered switch");
}

Vec ByteProducts::addNarrow(const Vec &sum, ArrayRef<Vec> left, ArrayRef<Vec> right) {
  Vec result = sum, pairs;
  for (auto [number, x, y] : llvm::enumerate(left, right)) {
    if (dot == ByteDot::Quads) {
      result = call("llvm.x86.avx512.vpdpbusd.512", "llvm.x86.avx512.vpdpbusd.256", sum.type(), {result, x, y});
      continue;
    }
    Type words = VectorType::get({x.lanes() / 2}, k.b.getI16Type());
    Vec products = call("llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx2.pmadd.ub.sw", words, {x, y});
    pairs = number ? pairs + products : products;
  }
  return dot == ByteDot::Quads ? result : sum + addWords(pairs, constantLike(pairs, 1));
}

/// 255 times what two bytes have in common above or below 0: up to 128 of it, 32640, fit.
Mask ByteProducts::hasWide(const Vec &bytes) {
  Vec words = bitcast(bytes, k.b.getI16Type());
  Vec even = shiftRightSigned(words << 8, 8), odd = shiftRightSigned(words, 8);
  Vec most = maximum(even, 0) + maximum(odd, 0), least = minimum(even, 0) + minimum(odd, 0);
  return any((most > 128) | (least < -128));
}

} // namespace attn
