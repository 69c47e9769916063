#ifndef TOOLS_INTERPRET_DATUM_H
#define TOOLS_INTERPRET_DATUM_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <memory>
#include <vector>

namespace attn::interpret {

/// One element: a float of any type as a double, an integer or index as an
/// int64_t (sign-extended; i1 holds 0 or 1). The IR's type says which.
union Scalar {
  double real;
  int64_t integer;
  static Scalar of(double x) {
    Scalar s;
    s.real = x;
    return s;
  }
  static Scalar of(int64_t x) {
    Scalar s;
    s.integer = x;
    return s;
  }
};

/// The value of an SSA value: a dense row-major tensor, or a scalar as one
/// without dimensions.
struct Datum {
  llvm::SmallVector<int64_t> shape;
  std::vector<Scalar> data;
};
using DatumRef = std::shared_ptr<const Datum>;

/// More elements than this in one tensor are refused: an interpreter serves
/// small cases, and a file must not take all memory.
constexpr int64_t kMaxElements = int64_t(1) << 26;

/// The number of elements, or -1 beyond kMaxElements or for a negative size.
inline int64_t countElements(llvm::ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape) {
    if (size < 0 || (size > 0 && count > kMaxElements / size))
      return -1;
    count *= size;
  }
  return count;
}

/// Steps `index` through the points of `shape` in row-major order; false at the end.
inline bool step(llvm::MutableArrayRef<int64_t> index, llvm::ArrayRef<int64_t> shape) {
  for (size_t n = shape.size(); n-- > 0;) {
    if (++index[n] < shape[n])
      return true;
    index[n] = 0;
  }
  return false;
}

} // namespace attn::interpret

#endif // TOOLS_INTERPRET_DATUM_H
