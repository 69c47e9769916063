#include "passes/kernels/gpu/AttentionLists.h"

#include <numeric>

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

/// Blocks of `size` that `count` places may touch which begin at a multiple of `step`.
static int64_t blocksTouched(int64_t count, int64_t step, int64_t size) {
  int64_t most = size - std::gcd(step, size); // places of the first block in front of them
  return (most + count - 1) / size + 1;
}

/// Bytes of a list's marks of `tiles` tiles.
static int64_t bytesOf(const BlockList &list, const TileSizes &sizes, int64_t tiles) {
  int64_t rows = blocksTouched(sizes.queries, sizes.queries, list.rows);
  return tiles + rows * blocksTouched(tiles * sizes.keys, sizes.keys, list.columns);
}

static int64_t bytesOfAll(const AttentionSpec &spec, const TileSizes &sizes, int64_t tiles) {
  int64_t bytes = 0;
  for (const BlockList &list : spec.blockLists)
    bytes += bytesOf(list, sizes, tiles);
  return bytes;
}

/// As many tiles as few bytes take, and one at least.
int64_t BlockLists::chooseWindow(const AttentionSpec &spec, const TileSizes &sizes) {
  constexpr int64_t kMost = 512, kBytes = 4096;
  int64_t tiles = kMost;
  while (tiles > 1 && bytesOfAll(spec, sizes, tiles) > kBytes)
    tiles /= 2;
  return tiles;
}

int64_t BlockLists::countBytes(const AttentionSpec &spec, const TileSizes &sizes) {
  return bytesOfAll(spec, sizes, chooseWindow(spec, sizes));
}

BlockLists::BlockLists(ThreadCode &k, const AttentionSpec &spec, ValueRange buffers, const Index &batch,
                       const Index &head, const TileSizes &sizes, const Buffer &marks, const Buffer &exchange)
    : k(k), sizes(sizes), windowTiles(chooseWindow(spec, sizes)), bytes(countBytes(spec, sizes)), marks(marks),
      exchange(exchange) {
  int64_t base = 0;
  for (const BlockList &from : spec.blockLists) {
    Buffer buffer = k.asBuffer(buffers[from.operand]);
    Index count = buffer.dim(buffer.memref().getRank() - 1);
    OperandView view = viewHead(k, buffer, spec.maps[from.operand], batch, head);
    int64_t blocks = blocksTouched(windowTiles * sizes.keys, sizes.keys, from.columns);
    lists.push_back({view, from.rows, from.columns, base, blocks, count});
    base += bytesOf(from, sizes, windowTiles);
  }
}

void BlockLists::setSizes(const Index &first, const Index &numQueries, const Index &numKeys) {
  this->first = first, this->numQueries = numQueries, this->numKeys = numKeys;
}

Index BlockLists::mark(const Index &from) {
  begin = from;
  k.barrier(); // the marks of the window before have been read
  k.loop(k.thread, bytes, sizes.threads, [&](Index n) { marks.set(byte(0), n); });
  k.barrier();
  // A key must be in all lists.
  Index next = windowEnd();
  for (const List &list : lists)
    next = maximum(next, markList(list));
  return next;
}

/// Marks what one list names; the first key behind the window that it names.
Index BlockLists::markList(const List &list) {
  Index row = first / list.rows, end = windowEnd();
  Index lastQuery = minimum(first + (sizes.queries - 1), numQueries - 1);
  Index rows = lastQuery / list.rows - row + 1;
  Index blocks = ceilDiv(numKeys, list.columns), firstBlock = begin / list.columns;
  Index next = k.loop(k.thread, rows * list.count, sizes.threads, numKeys, [&](Index n, Index next) {
    Index at = n / list.count;
    Index entry = toIndex(list.view.flat(list.view.at({{Dim::I, row + at}}) + n % list.count));
    // Compared before it is multiplied: an entry may be any number.
    Mask isBlock = (-1 < entry) & (entry < blocks);
    Index start = select(isBlock, entry * list.columns, numKeys);
    Index stop = select(isBlock, minimum(start + list.columns, numKeys), k.index(0));
    Index from = maximum(start, begin), to = minimum(stop, end);
    k.when(from < to, [&] {
      auto set = [&](const Index &place) { marks.set(byte(1), place + list.base); };
      set(at * list.blocks + (entry - firstBlock) + windowTiles);
      Index tile = (from - begin) / sizes.keys;
      k.loop(tile, ceilDiv(to - begin, sizes.keys), 1, set);
    });
    return minimum(next, select(end < stop, maximum(start, end), numKeys));
  });
  // The barriers in there are for the marks, too.
  auto least = [](Num x, Num y) { return minimum(x, y); };
  return toIndex(k.acrossBlock(toNum(next, k.b.getI32Type()), sizes.threads, exchange, least));
}

Mask BlockLists::all(llvm::function_ref<Mask(const List &)> isNamed) {
  Mask result = isNamed(lists.front());
  for (const List &list : llvm::drop_begin(lists))
    result = result & isNamed(list);
  return result;
}

Mask BlockLists::isListedTile(const Index &key) {
  Index tile = minimum(maximum(key - begin, 0) / sizes.keys, windowTiles - 1);
  return all([&](const List &list) { return markAt(list.base, tile); });
}

Mask BlockLists::isListed(const Index &i, const Index &j) {
  return all([&](const List &list) {
    Index row = i / list.rows - first / list.rows, block = j / list.columns - begin / list.columns;
    return markAt(list.base + windowTiles, row * list.blocks + block);
  });
}

} // namespace attn
