#include "passes/kernels/cpu/HalfParts.h"

using namespace mlir;

namespace attn {

constexpr int64_t kHalfBits = 16, kUpperHalf = -(int64_t(1) << kHalfBits);

static Vec wordsOf(const Vec &x) { return bitcast(x, x.builder().getI32Type()); }

SmallVector<Vec> splitIntoHalves(const Vec &x, int64_t count) {
  SmallVector<Vec> parts;
  Vec left = x, none = constantLike(x, 0.0);
  Mask isInfinite = abs(x) == Code::kInfinity;
  for (int64_t n = 0; n < count; ++n) {
    parts.push_back(bitcast(wordsOf(left) & kUpperHalf, x.element()));
    left = select(isInfinite, none, left - parts.back());
  }
  return parts;
}

Vec toHalves(const Vec &x) {
  OpBuilder &b = x.builder();
  return bitcast(convert(wordsOf(x) >> kHalfBits, b.getI16Type()), b.getBF16Type());
}

Vec toPairs(const Vec &first, const Vec &second) { return (wordsOf(first) >> kHalfBits) | wordsOf(second); }

Vec widened(const Vec &stored, PanelStorage storage, int64_t part) {
  Type f32 = stored.builder().getF32Type();
  switch (storage) {
  case PanelStorage::F32:
  case PanelStorage::F16: // one instruction, with the load
    return convert(stored, f32);
  case PanelStorage::BF16: { // the first row is low
    Vec words = wordsOf(stored);
    return bitcast(part == 0 ? words << kHalfBits : words & kUpperHalf, f32);
  }
  case PanelStorage::I8:
    return convert(convert(stored, stored.builder().getI32Type()), f32);
  }
  llvm_unreachable("covered switch");
}

} // namespace attn
