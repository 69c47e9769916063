#ifndef BUILDERS_LANES_H
#define BUILDERS_LANES_H

#include "builders/Operators.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SmallVectorExtras.h"

/// Many values to one, in an order that does not make them wait for each other, and
/// vectors to those of their lanes.
namespace attn {

/// `combine(T, T)` over all of them, pairwise: of n values, log2(n) deep.
template <typename T, typename Combine> T tree(llvm::ArrayRef<T> values, Combine combine) {
  llvm::SmallVector<T> level(values);
  while (level.size() > 1) {
    llvm::SmallVector<T> next;
    for (size_t n = 0; n + 1 < level.size(); n += 2)
      next.push_back(combine(level[n], level[n + 1]));
    if (level.size() % 2)
      next.push_back(level.back());
    level = std::move(next);
  }
  return level.front();
}

/// `combine(Vec, Vec)` over all lanes, a power of two, in each of them; the order is that of a butterfly.
template <typename Combine> Vec acrossLanes(Vec x, Combine combine) {
  for (int64_t distance = x.lanes() / 2; distance; distance /= 2)
    x = combine(
        x, attn::shuffle(x, x, llvm::map_to_vector(llvm::seq(x.lanes()), [&](int64_t n) { return n ^ distance; })));
  return x;
}

/// The transpose of `rows`, R vectors of C lanes (powers of two, R >= C): C vectors of R lanes.
llvm::SmallVector<Vec> transpose(llvm::ArrayRef<Vec> rows);

} // namespace attn

#endif // BUILDERS_LANES_H
