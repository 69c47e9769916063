#include "passes/kernels/cpu/AttentionLists.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

KeyLists::KeyLists(AttentionCode &k, const Index &batch, const Index &head, const Index &numKeys)
    : k(k), spec(k.spec), numKeys(numKeys) {
  for (const BlockList &from : spec.blockLists) {
    Buffer buffer = k.asBuffer(k.buffers[from.operand]);
    Index count = buffer.dim(buffer.memref().getRank() - 1);
    lists.push_back({k.view(from.operand, batch, head), from.rows, from.columns, count});
  }
}

int64_t KeyLists::sizeOfMarks(const AttentionSpec &spec, int64_t rows) {
  // A second list is marked on its own and then joined.
  int64_t copies = std::min<int64_t>(spec.blockLists.size(), 2);
  return copies * (spec.keyBlock / spec.keyTile) * rows;
}

KeyLists::Run KeyLists::keysOf(const List &list, const Index &base, const Index &n) {
  Index entry = loadEntry(list, base, n);
  // Compared before it is multiplied: an entry may be any number.
  Mask isBlock = (entry > -1) & (entry < ceilDiv(numKeys, list.columns));
  Index start = entry * list.columns, end = minimum(start + list.columns, numKeys);
  return {select(isBlock, start, numKeys), select(isBlock, end, k.index(0))};
}

/// By query vector, the lanes whose list is `row`, as masks of 32 bits. Lanes
/// beyond the last query repeat it.
SmallVector<Vec> KeyLists::lanesOf(const List &list, const QueryBlock &queries, const Index &row,
                                   const Index &lastRow) {
  Index all = k.index(queries.vectors * k.lanes);
  Index begin = maximum(row * list.rows - queries.first, 0);
  Index end = minimum((row + 1) * list.rows - queries.first, all);
  end = select(row < lastRow, end, all);
  Vec from = splat(begin), to = splat(end);
  SmallVector<Vec> masks;
  for (int64_t v = 0; v < queries.vectors; ++v) {
    Vec lane = k.consecutive(v * k.lanes, k.lanes);
    Mask isIn = (lane >= from) & (lane < to);
    masks.push_back(k.asVec(arith::ExtSIOp::create(k.b, k.loc, lane.type(), isIn)));
  }
  return masks;
}

/// Marks `keys` of the tile from key `corner` on for the queries of `lanes`.
void KeyLists::markTile(const Buffer &marks, const Index &at, const Index &corner, const Run &keys,
                        const SmallVector<Vec> &lanes) {
  auto [from, to] = keys;
  Index low = maximum(from - corner, 0), high = minimum(to - corner, spec.keyTile);
  Vec bits = splat((k.index(1) << high) - (k.index(1) << low));
  for (auto [v, lane] : llvm::enumerate(lanes)) {
    Index offset = at + v * k.lanes;
    marks.setVector(marks.vector(k.lanes, offset) | (bits & lane), offset);
  }
}

/// Marks what one list says, from `base` of `marks` on.
Index KeyLists::markList(const List &list, const QueryBlock &queries, const Buffer &marks, const Index &base,
                         const Index &first) {
  int64_t rows = queries.vectors * k.lanes, tiles = spec.keyBlock / spec.keyTile;
  Vec zeros = k.splat(k.i32(0));
  k.loop(0, tiles * rows, k.lanes, [&](Index n) { marks.setVector(zeros, base + n); });
  Index last = minimum(queries.first + rows, queries.numRows), windowEnd = first + spec.keyBlock;
  Index lastRow = (last - 1) / list.rows, firstRow = queries.first / list.rows;
  return k.loop(firstRow, lastRow + 1, 1, numKeys, [&](Index row, Index next) {
    SmallVector<Vec> lanes = lanesOf(list, queries, row, lastRow);
    Index entries = list.view.along(list.view.base, Dim::I, row);
    return k.loop(0, list.count, 1, next, [&](Index n, Index next) {
      auto [start, end] = keysOf(list, entries, n);
      Index from = maximum(start, first), to = minimum(end, windowEnd);
      k.when(from < to, [&] {
        Index begin = (from - first) / spec.keyTile;
        k.loop(begin, ceilDiv(to - first, spec.keyTile), 1, [&](Index tile) {
          markTile(marks, base + tile * rows, first + tile * spec.keyTile, {from, to}, lanes);
        });
      });
      return minimum(next, select(windowEnd < end, maximum(start, windowEnd), numKeys));
    });
  });
}

Index KeyLists::markKeys(const QueryBlock &queries, const Buffer &marks, const Index &first) {
  Index next = markList(lists.front(), queries, marks, k.index(0), first);
  int64_t size = queries.vectors * k.lanes * (spec.keyBlock / spec.keyTile);
  for (const List &list : llvm::drop_begin(lists)) {
    next = maximum(next, markList(list, queries, marks, k.index(size), first));
    k.loop(0, size, k.lanes, [&](Index n) {
      Vec before = marks.vector(k.lanes, n);
      marks.setVector(before & marks.vector(k.lanes, n + size), n);
    });
  }
  return next;
}

KeyLists::Run KeyLists::nextRun(const Index &query, const Index &key) {
  const List &list = lists.front();
  Index entries = entriesOf(list, query);
  return k.loop(0, list.count, 1, Run(numKeys, numKeys), [&](Index n, Index nextStart, Index nextEnd) {
    auto [start, end] = keysOf(list, entries, n);
    start = maximum(start, key);
    Mask isNext = (start < end) & (start < nextStart);
    return Run{select(isNext, start, nextStart), select(isNext, end, nextEnd)};
  });
}

Index KeyLists::entryOf(const Index &query, const Index &n) {
  return loadEntry(lists.front(), entriesOf(lists.front(), query), n);
}

Index KeyLists::countAscending(const Index &query) {
  const List &list = lists.front();
  Index entries = entriesOf(list, query);
  auto scan = [&] {
    Index last = list.count - 1;
    auto [named, greatest] = k.repeat(
        std::tuple(k.index(0), k.index(-1)),
        [&](Index n, Index before) {
          Index entry = loadEntry(list, entries, minimum(n, last));
          Mask follows = (before < entry) & (entry < numKeys);
          return (n < list.count) & follows;
        },
        [&](Index n, Index) { return std::tuple{n + 1, loadEntry(list, entries, n)}; });
    // The longest list of a graph may be much longer than most.
    Index whole = named + floorTo(list.count - named, k.lanes);
    Mask found = k.loop(named, whole, k.lanes, k.truth(false), [&](Index n, Mask found) {
      return found | any(list.view.flat.vector(k.lanes, entries + n) >= 0);
    });
    found = k.loop(whole, list.count, 1, found,
                   [&](Index n, Mask found) { return found | (list.view.flat(entries + n) >= 0); });
    return select(found, k.index(-1), named);
  };
  return k.choose(list.count > 0, scan, [&] { return k.index(0); });
}

} // namespace attn
