#include "passes/kernels/gpu/AttentionLists.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <numeric>

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;

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

BlockLists::BlockLists(BlockBuilder &k, const AttentionSpec &spec, ValueRange buffers, Value batch, Value head,
                       const TileSizes &sizes, Value marks, Value exchange)
    : k(k), sizes(sizes), windowTiles(chooseWindow(spec, sizes)), bytes(countBytes(spec, sizes)), marks(marks),
      exchange(exchange) {
  int64_t base = 0;
  for (const BlockList &from : spec.blockLists) {
    Value buffer = buffers[from.operand];
    Value count = k.b.createOrFold<memref::DimOp>(k.loc, buffer, cast<MemRefType>(buffer.getType()).getRank() - 1);
    HeadView view = viewHead(k, buffer, spec.maps[from.operand], batch, head);
    int64_t blocks = blocksTouched(windowTiles * sizes.keys, sizes.keys, from.columns);
    lists.push_back({view, from.rows, from.columns, base, blocks, count});
    base += bytesOf(from, sizes, windowTiles);
  }
}

void BlockLists::setSizes(Value first, Value numQueries, Value numKeys) {
  this->first = first, this->numQueries = numQueries, this->numKeys = numKeys;
}

static Value byte(BlockBuilder &k, int64_t value) { return arith::ConstantIntOp::create(k.b, k.loc, value, 8); }

Value BlockLists::mark(Value from) {
  begin = from;
  k.barrier(); // the marks of the window before have been read
  k.loop(k.thread, k.index(bytes), sizes.threads,
         [&](Value n) { memref::StoreOp::create(k.b, k.loc, byte(k, 0), marks, n); });
  k.barrier();
  // A key must be in all lists.
  Value next = windowEnd();
  for (const List &list : lists)
    next = k.max(next, markList(list));
  return next;
}

/// Marks what one list names; the first key behind the window that it names.
Value BlockLists::markList(const List &list) {
  Value row = k.div(first, k.index(list.rows)), end = windowEnd();
  Value lastQuery = k.min(k.add(first, sizes.queries - 1), k.sub(numQueries, k.index(1)));
  Value rows = k.add(k.sub(k.div(lastQuery, k.index(list.rows)), row), 1);
  Value blocks = k.ceilDiv(numKeys, list.columns), firstBlock = k.div(begin, k.index(list.columns));
  Value next = k.loop(k.thread, k.mul(rows, list.count), sizes.threads, {numKeys}, [&](Value n, ValueRange carried) {
    Value at = k.div(n, list.count);
    Value offset = k.add(list.view.along(k, list.view.base, Dim::I, k.add(row, at)), k.rem(n, list.count));
    Value entry = k.load(list.view.flat, offset);
    if (!entry.getType().isIndex())
      entry = arith::IndexCastOp::create(k.b, k.loc, k.b.getIndexType(), entry);
    // Compared before it is multiplied: an entry may be any number.
    Value isBlock = k.both(k.less(k.index(-1), entry), k.less(entry, blocks));
    Value start = k.select(isBlock, k.mul(entry, list.columns), numKeys);
    Value stop = k.select(isBlock, k.min(k.add(start, list.columns), numKeys), k.index(0));
    Value from = k.max(start, begin), to = k.min(stop, end);
    k.branch(k.less(from, to), [&] {
      auto set = [&](Value place) { memref::StoreOp::create(k.b, k.loc, byte(k, 1), marks, k.add(place, list.base)); };
      set(k.add(k.add(k.mul(at, list.blocks), k.sub(entry, firstBlock)), windowTiles));
      Value tile = k.div(k.sub(from, begin), k.index(sizes.keys));
      k.loop(tile, k.ceilDiv(k.sub(to, begin), sizes.keys), 1, set);
    });
    return Values{k.min(carried[0], k.select(k.less(end, stop), k.max(start, end), numKeys))};
  })[0];
  // The barriers in there are for the marks, too.
  Value narrow = arith::IndexCastOp::create(k.b, k.loc, k.b.getI32Type(), next);
  Value least = k.acrossBlock(narrow, sizes.threads, exchange,
                              [&](Value x, Value y) -> Value { return arith::MinSIOp::create(k.b, k.loc, x, y); });
  return arith::IndexCastOp::create(k.b, k.loc, k.b.getIndexType(), least);
}

Value BlockLists::isListedTile(Value key) {
  Value tile = k.div(k.max(k.sub(key, begin), k.index(0)), k.index(sizes.keys)), result;
  tile = k.min(tile, k.index(windowTiles - 1));
  for (const List &list : lists) {
    Value isNamed = markAt(list.base, tile);
    result = result ? k.both(result, isNamed) : isNamed;
  }
  return result;
}

Value BlockLists::isListed(Value i, Value j) {
  Value result;
  for (const List &list : lists) {
    Value row = k.sub(k.div(i, k.index(list.rows)), k.div(first, k.index(list.rows)));
    Value block = k.sub(k.div(j, k.index(list.columns)), k.div(begin, k.index(list.columns)));
    Value isNamed = markAt(list.base + windowTiles, k.add(k.mul(row, list.blocks), block));
    result = result ? k.both(result, isNamed) : isNamed;
  }
  return result;
}

} // namespace attn
