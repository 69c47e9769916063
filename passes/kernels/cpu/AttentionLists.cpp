#include "passes/kernels/cpu/AttentionLists.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;

KeyLists::KeyLists(LaneBuilder &k, const AttentionSpec &spec, ValueRange buffers, Value batch, Value head,
                   Value numKeys)
    : k(k), spec(spec), numKeys(numKeys) {
  for (const BlockList &from : spec.blockLists) {
    Value buffer = buffers[from.operand];
    auto type = cast<MemRefType>(buffer.getType());
    Value count = k.b.createOrFold<memref::DimOp>(k.loc, buffer, type.getRank() - 1);
    lists.push_back({viewHead(k, buffer, spec.maps[from.operand], batch, head), from.rows, from.columns, count});
  }
}

int64_t KeyLists::sizeOfMarks(const AttentionSpec &spec, int64_t rows) {
  // A second list is marked on its own and then joined.
  int64_t copies = std::min<int64_t>(spec.blockLists.size(), 2);
  return copies * (spec.keyBlock / spec.keyTile) * rows;
}

/// An i32 of an index, in every lane.
Value KeyLists::splat(Value number) {
  return k.broadcast(arith::IndexCastOp::create(k.b, k.loc, k.b.getI32Type(), number));
}

Value KeyLists::rowOf(const List &list, Value query) { return k.div(query, k.index(list.rows)); }

Value KeyLists::loadEntry(const List &list, Value base, Value n) {
  Value entry = k.load(list.view.flat, k.add(base, n));
  if (!entry.getType().isIndex())
    entry = arith::IndexCastOp::create(k.b, k.loc, k.b.getIndexType(), entry);
  return entry;
}

std::pair<Value, Value> KeyLists::keysOf(const List &list, Value base, Value n) {
  Value entry = loadEntry(list, base, n), zero = k.index(0);
  // Compared before it is multiplied: an entry may be any number.
  Value isBlock = k.both(k.less(k.index(-1), entry), k.less(entry, k.ceilDiv(numKeys, list.columns)));
  Value start = k.mul(entry, list.columns);
  Value end = k.min(k.add(start, list.columns), numKeys);
  return {k.select(isBlock, start, numKeys), k.select(isBlock, end, zero)};
}

/// By query vector, the lanes whose list is `row`, as masks of 32 bits. Lanes
/// beyond the last query repeat it.
Values KeyLists::lanesOf(const List &list, const QueryBlock &queries, Value row, Value lastRow) {
  auto ints = VectorType::get({k.lanes}, k.b.getI32Type());
  Value zero = k.index(0), all = k.index(queries.vectors * k.lanes);
  Value begin = k.max(k.sub(k.mul(row, list.rows), queries.first), zero);
  Value end = k.min(k.sub(k.mul(k.add(row, 1), list.rows), queries.first), all);
  end = k.select(k.less(row, lastRow), end, all);
  Value from = splat(begin), to = splat(end);
  Values masks;
  for (int64_t v = 0; v < queries.vectors; ++v) {
    auto iota = llvm::to_vector(llvm::seq<int32_t>(v * k.lanes, (v + 1) * k.lanes));
    Value lane = arith::ConstantOp::create(k.b, k.loc, k.b.getI32VectorAttr(iota));
    Value isIn = k.both(arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::sge, lane, from),
                        arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::slt, lane, to));
    masks.push_back(arith::ExtSIOp::create(k.b, k.loc, ints, isIn));
  }
  return masks;
}

/// Marks what one list says, from `base` of `marks` on.
Value KeyLists::markList(const List &list, const QueryBlock &queries, Value marks, Value base, Value first) {
  int64_t rows = queries.vectors * k.lanes, tiles = spec.keyBlock / spec.keyTile;
  Value zeros = arith::ConstantOp::create(k.b, k.loc, k.b.getZeroAttr(VectorType::get({k.lanes}, k.b.getI32Type())));
  k.loop(k.index(0), k.index(tiles * rows), k.lanes, [&](Value n) { k.store(zeros, marks, k.add(base, n)); });
  Value last = k.min(k.add(queries.first, rows), queries.numRows), windowEnd = k.add(first, spec.keyBlock);
  Value lastRow = rowOf(list, k.sub(last, k.index(1)));
  auto markTile = [&](Value tile, Value from, Value to, const Values &lanes) {
    Value corner = k.add(first, k.mul(tile, spec.keyTile)), one = k.index(1);
    Value low = k.max(k.sub(from, corner), k.index(0)), high = k.min(k.sub(to, corner), k.index(spec.keyTile));
    auto power = [&](Value n) -> Value { return arith::ShLIOp::create(k.b, k.loc, one, n); };
    Value bits = splat(k.sub(power(high), power(low)));
    for (int64_t v = 0; v < queries.vectors; ++v) {
      Value offset = k.add(base, k.add(k.mul(tile, rows), v * k.lanes));
      k.store(k.either(k.loadVector(marks, offset), k.both(bits, lanes[v])), marks, offset);
    }
  };
  return k
      .loop(rowOf(list, queries.first), k.add(lastRow, 1), 1, numKeys,
            [&](Value row, ValueRange outer) {
              Values lanes = lanesOf(list, queries, row, lastRow);
              Value entries = list.view.along(k, list.view.base, Dim::I, row);
              return k.loop(k.index(0), list.count, 1, outer, [&](Value n, ValueRange carried) -> Values {
                auto [start, end] = keysOf(list, entries, n);
                Value from = k.max(start, first), to = k.min(end, windowEnd);
                k.branch(k.less(from, to), [&] {
                  Value begin = k.div(k.sub(from, first), k.index(spec.keyTile));
                  k.loop(begin, k.ceilDiv(k.sub(to, first), spec.keyTile), 1,
                         [&](Value tile) { markTile(tile, from, to, lanes); });
                });
                Value later = k.select(k.less(windowEnd, end), k.max(start, windowEnd), numKeys);
                return {k.min(carried.front(), later)};
              });
            })
      .front();
}

Value KeyLists::markKeys(const QueryBlock &queries, Value marks, Value first) {
  Value next = markList(lists.front(), queries, marks, k.index(0), first);
  int64_t size = queries.vectors * k.lanes * (spec.keyBlock / spec.keyTile);
  for (const List &list : llvm::drop_begin(lists)) {
    next = k.max(next, markList(list, queries, marks, k.index(size), first));
    k.loop(k.index(0), k.index(size), k.lanes,
           [&](Value n) { k.store(k.both(k.loadVector(marks, n), k.loadVector(marks, k.add(n, size))), marks, n); });
  }
  return next;
}

std::pair<Value, Value> KeyLists::nextRun(Value query, Value key) {
  const List &list = lists.front();
  Value entries = entriesOf(list, query);
  Values run = k.loop(k.index(0), list.count, 1, {numKeys, numKeys}, [&](Value n, ValueRange carried) -> Values {
    auto [start, end] = keysOf(list, entries, n);
    start = k.max(start, key);
    Value isNext = k.both(k.less(start, end), k.less(start, carried[0]));
    return {k.select(isNext, start, carried[0]), k.select(isNext, end, carried[1])};
  });
  return {run[0], run[1]};
}

Value KeyLists::entryOf(Value query, Value n) { return loadEntry(lists.front(), entriesOf(lists.front(), query), n); }

Value KeyLists::countAscending(Value query) {
  const List &list = lists.front();
  Value entries = entriesOf(list, query), none = arith::ConstantOp::create(k.b, k.loc, k.b.getBoolAttr(false));
  auto scan = [&]() -> Values {
    Value last = k.sub(list.count, k.index(1));
    Values run = k.repeat(
        {k.index(0), k.index(-1)},
        [&](ValueRange carried) {
          Value entry = loadEntry(list, entries, k.min(carried[0], last));
          Value follows = k.both(k.less(carried[1], entry), k.less(entry, numKeys));
          return k.both(k.less(carried[0], list.count), follows);
        },
        [&](ValueRange carried) -> Values { return {k.add(carried[0], 1), loadEntry(list, entries, carried[0])}; });
    // The longest list of a graph may be much longer than most.
    auto isNamed = [&](Value entry) -> Value {
      Value zero = arith::ConstantOp::create(k.b, k.loc, k.b.getZeroAttr(entry.getType()));
      return arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::sge, entry, zero);
    };
    Value whole = k.add(run[0], k.floorTo(k.sub(list.count, run[0]), k.lanes));
    Value found = k.loop(run[0], whole, k.lanes, none, [&](Value n, ValueRange carried) -> Values {
                     return {k.either(carried[0], k.any(isNamed(k.loadVector(list.view.flat, k.add(entries, n)))))};
                   }).front();
    found = k.loop(whole, list.count, 1, found, [&](Value n, ValueRange carried) -> Values {
               return {k.either(carried[0], isNamed(k.load(list.view.flat, k.add(entries, n))))};
             }).front();
    return {k.select(found, k.index(-1), run[0])};
  };
  return k.branch(k.less(k.index(0), list.count), k.b.getIndexType(), scan, [&] { return Values{k.index(0)}; }).front();
}

} // namespace attn
