#include "builders/Lanes.h"

using namespace mlir;

namespace attn {

// Rows r, r + C, r + 2C... side by side in one vector make blocks of C x C that
// all transpose at once, by exchanging off-diagonal s x s blocks for s = 1, 2, 4...
SmallVector<Vec> transpose(ArrayRef<Vec> rows) {
  int64_t height = rows.size(), width = rows.front().lanes();
  SmallVector<Vec> blocks;
  for (int64_t n = 0; n < width; ++n) {
    SmallVector<Vec> column;
    for (int64_t r = n; r < height; r += width)
      column.push_back(rows[r]);
    blocks.push_back(tree<Vec>(column, [](const Vec &x, const Vec &y) {
      return attn::shuffle(x, y, llvm::to_vector(llvm::seq(2 * x.lanes())));
    }));
  }
  for (int64_t s = 1; s < width; s *= 2)
    for (int64_t n = 0; n < width; ++n) {
      if (n & s)
        continue;
      SmallVector<int64_t> low, high;
      for (int64_t k = 0; k < height; ++k) {
        low.push_back(k & s ? height + k - s : k);
        high.push_back(k & s ? height + k : k + s);
      }
      Vec upper = blocks[n], lower = blocks[n + s];
      blocks[n] = attn::shuffle(upper, lower, low);
      blocks[n + s] = attn::shuffle(upper, lower, high);
    }
  return blocks;
}

} // namespace attn
