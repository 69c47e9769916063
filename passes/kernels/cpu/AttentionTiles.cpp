#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "passes/kernels/cpu/AttentionBlockEmitter.h"
#include <algorithm>

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Predicate = arith::CmpFPredicate;

//===----------------------------------------------------------------------===//
// Queries
//===----------------------------------------------------------------------===//

void BlockEmitter::loadQueries() {
  if (!spec.formula().hasKey)
    return;
  int64_t columns = isNarrow ? keyWidth / 2 : keyWidth; // of the scratch
  if (!query.isContiguous(Dim::D) || query.isContiguous(Dim::I)) {
    auto gather = [&](Value d, int64_t vector) {
      return k.toF32(gatherRows(k, query, queries, query.along(k, query.base, Dim::D, d), vector));
    };
    k.loop(k.index(0), k.index(columns), 1, [&](Value column) {
      Value d = isNarrow ? k.mul(column, 2) : column;
      for (int64_t v = 0; v < vectors; ++v)
        storeQuery(isNarrow ? k.pack(gather(d, v), gather(k.add(d, 1), v)) : gather(d, v), column, k.index(v));
    });
  } else {
    // Whole tiles: the last one reaches back where the columns are no multiple.
    if (columns < k.lanes)
      loadQueryTile(k.index(0), columns);
    else
      k.loop(k.index(0), k.index(columns), k.lanes, [&](Value column) {
        loadQueryTile(columns % k.lanes ? k.min(column, k.index(columns - k.lanes)) : column, k.lanes);
      });
  }
  if (!spec.isTanh())
    return;
  queryMaximum = maximumOfQueries();
  Values totals =
      k.loop(k.index(0), k.index(keyWidth), 1, {k.scalar(0), k.scalar(0)}, [&](Value d, ValueRange carried) -> Values {
        Value a = k.toF32(k.load(alignment.flat, alignment.along(k, alignment.base, Dim::D, d)));
        Value magnitude = math::AbsFOp::create(k.b, k.loc, a);
        return {k.addf(carried[0], a), arith::MaximumFOp::create(k.b, k.loc, carried[1], magnitude)};
      });
  alignmentSum = k.broadcast(totals[0]);
  alignmentMaximum = totals[1];
}

void BlockEmitter::loadQueryTile(Value column, int64_t width) {
  int64_t perColumn = isNarrow ? 2 : 1;
  forVectors({}, [&](Value v, Value) {
    Values rows;
    for (int64_t n = 0; n < k.lanes; ++n) {
      Value row = queries.row(k, k.add(k.mul(v, k.lanes), n));
      Value offset = k.add(query.along(k, query.base, Dim::I, row), k.mul(column, perColumn));
      Value loaded = width < k.lanes ? k.loadFirst(query.flat, offset, k.index(perColumn * width), perColumn * k.lanes)
                                     : k.loadVector(query.flat, offset, perColumn * k.lanes);
      rows.push_back(isNarrow ? vector::BitCastOp::create(k.b, k.loc, k.vectorType(), loaded) : k.toF32(loaded));
    }
    Values columns = k.transpose(rows);
    for (int64_t n = 0; n < width; ++n)
      storeQuery(columns[n], k.add(column, n), v);
  });
}

/// `body` for each vector of queries, with its element of `values` if there are any. A loop: a transpose of its own for
/// each vector would be a third of what a small attention takes to compile.
void BlockEmitter::forVectors(ValueRange values, llvm::function_ref<void(Value vector, Value value)> body) {
  auto firstOf = [](ValueRange range) { return range.empty() ? Value() : range.front(); };
  if (vectors == 1)
    return body(k.index(0), firstOf(values));
  k.loop(k.index(0), k.index(vectors), 1, values, [&](Value vector, ValueRange carried) {
    body(vector, firstOf(carried));
    Values next(carried);
    if (!next.empty())
      std::rotate(next.begin(), next.begin() + 1, next.end());
    return next;
  });
}

/// Column `d` of a vector of queries, as the scores read it.
void BlockEmitter::storeQuery(Value raw, Value d, Value vector) {
  if (pureScale && !isNarrow)
    raw = k.mulf(raw, k.splat(*pureScale * kLog2E));
  if (spec.isTanh()) {
    k.store(raw, scratch.rawQueries, at(d, vector));
    raw = k.expTwice(raw);
  }
  k.store(raw, scratch.queries, at(d, vector));
}

/// The greatest |q| of the block, or infinity where one is no number.
Value BlockEmitter::maximumOfQueries() {
  Value zero = k.splat(0);
  Values tops = k.loop(k.index(0), k.index(keyWidth), 1, Values(vectors, zero), [&](Value d, ValueRange carried) {
    Values next;
    for (int64_t v = 0; v < vectors; ++v)
      next.push_back(k.maxAbs(carried[v], k.loadVector(scratch.rawQueries, at(d, v))));
    return next;
  });
  Value top = k.tree(tops, [&](Value x, Value y) { return k.maxf(x, y); });
  return k.extract(k.acrossLanes(top, [&](Value x, Value y) { return k.maxf(x, y); }), 0);
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// results += V^T weights over rows [begin, end) of the weights, which are the
/// keys from `key` + begin on.
void BlockEmitter::addValues(Value key, Value begin, Value end) {
  HeadView from = value;
  Value corner = isPacked ? value.base : value.along(k, value.base, Dim::J, key);
  if (scratch.values.value()) {
    if (isNarrow) {
      stageValuePairs(key, begin, end);
      begin = k.div(begin, k.index(2));
      end = k.ceilDiv(end, 2);
    } else {
      stageValues(key, begin, end);
    }
    from = HeadView{scratch.values, k.index(0), {}};
    from.strides[Dim::J] = k.index(paddedValueWidth);
    from.strides[Dim::E] = k.index(1);
    corner = k.index(0);
  }
  int64_t whole = valueWidth / spec.valueTile * spec.valueTile;
  k.loop(k.index(0), k.index(whole), spec.valueTile,
         [&](Value column) { addValueTile(from, corner, begin, end, column, spec.valueTile); });
  if (whole < valueWidth)
    addValueTile(from, corner, begin, end, k.index(whole), valueWidth - whole);
}

/// The key of `row` of the weights, where the rows stand for keys from `key` on.
Value BlockEmitter::keyOfRow(Value key, Value row) {
  if (!isPacked)
    return k.add(key, row);
  return k.add(k.load(scratch.tileKeys, k.div(row, k.index(spec.keyTile))), k.rem(row, k.index(spec.keyTile)));
}

/// The values as f32, where they are stored in fewer bits.
void BlockEmitter::stageValues(Value key, Value begin, Value end) {
  k.loop(begin, end, 1, [&](Value n) {
    Value from = value.along(k, value.base, Dim::J, keyOfRow(key, n)), to = k.mul(n, paddedValueWidth);
    if (!value.isContiguous(Dim::E)) {
      k.loop(k.index(0), k.index(valueWidth), 1, [&](Value e) {
        Value element = k.toF32(k.load(value.flat, value.along(k, from, Dim::E, e)));
        memref::StoreOp::create(k.b, k.loc, element, scratch.values, k.add(to, e));
      });
      return;
    }
    bool isInBytes = spec.isInBytes(spec.value);
    Value scale = isInBytes ? k.broadcastWord(value.flat, k.add(from, valueWidth)) : Value();
    for (int64_t e = 0; e < valueWidth; e += k.lanes) {
      int64_t rest = valueWidth - e;
      Value chunk = rest < k.lanes ? k.loadFirst(value.flat, k.add(from, e), k.index(rest), k.lanes)
                                   : k.loadVector(value.flat, k.add(from, e));
      chunk = k.toF32(chunk);
      k.store(isInBytes ? k.mulf(chunk, scale) : chunk, scratch.values, k.add(to, e));
    }
  });
}

/// The values of two keys side by side, from the even key `begin` on; 0 beyond `end`.
void BlockEmitter::stageValuePairs(Value key, Value begin, Value end) {
  int64_t width = 2 * k.lanes;
  auto stage = [&](Value n, bool hasOther) {
    Value row = value.along(k, value.base, Dim::J, k.add(key, n)), other = value.along(k, row, Dim::J, k.index(1));
    for (int64_t e = 0; e < valueWidth; e += width) {
      auto load = [&](Value from) {
        return e + width <= valueWidth ? k.loadVector(value.flat, k.add(from, e), width)
                                       : k.loadFirst(value.flat, k.add(from, e), k.index(valueWidth - e), width);
      };
      Value x = load(row), y;
      if (hasOther)
        y = load(other);
      else
        y = arith::ConstantOp::create(k.b, k.loc, k.b.getZeroAttr(x.getType()));
      auto [first, second] = k.interleave(x, y);
      Value to = k.add(k.mul(k.div(n, k.index(2)), paddedValueWidth), e);
      k.store(first, scratch.values, to);
      if (e + k.lanes < paddedValueWidth)
        k.store(second, scratch.values, k.add(to, k.lanes));
    }
  };
  end = k.max(begin, end);
  Value whole = k.add(begin, k.floorTo(k.sub(end, begin), 2));
  k.loop(begin, whole, 2, [&](Value n) { stage(n, true); });
  k.branch(k.less(whole, end), [&] { stage(whole, false); });
}

void BlockEmitter::addValueTile(const HeadView &from, Value corner, Value begin, Value end, Value column,
                                int64_t width) {
  corner = from.along(k, corner, Dim::E, column);
  Value zero = k.splat(0);
  auto products = [&](bool skipsZeros) {
    return k.loop(begin, end, 1, Values(width * vectors, zero), [&](Value n, ValueRange carried) {
      Values weights, next;
      for (int64_t v = 0; v < vectors; ++v)
        weights.push_back(k.loadVector(scratch.weights, at(n, v)));
      auto addLive = [&](Value sum, Value element, Value weight) {
        return k.select(k.compare(Predicate::UNE, weight, zero), k.fma(element, weight, sum), sum);
      };
      Value row = from.along(k, corner, Dim::J, isPacked && !scratch.values.value() ? keyOfRow({}, n) : n);
      for (int64_t e = 0; e < width; ++e) {
        Value element = k.broadcast(k.load(from.flat, from.along(k, row, Dim::E, k.index(e))));
        for (int64_t v = 0; v < vectors; ++v) {
          Value sum = carried[e * vectors + v];
          if (!skipsZeros) {
            next.push_back(isNarrow ? k.addProducts(sum, element, weights[v]) : k.fma(element, weights[v], sum));
          } else if (isNarrow) {
            auto [low, high] = k.unpack(element);
            auto [lowWeight, highWeight] = k.unpack(weights[v]);
            next.push_back(addLive(addLive(sum, low, lowWeight), high, highWeight));
          } else {
            next.push_back(addLive(sum, element, weights[v]));
          }
        }
      }
      return next;
    });
  };
  Values sums;
  if (isCareful)
    sums = k.branch(
        k.unlikely(isCareful), SmallVector<Type>(width * vectors, k.vectorType()), [&] { return products(true); },
        [&] { return products(false); });
  else
    sums = products(false);
  // A block's sum first, then the total: short sums keep 128k keys accurate.
  for (int64_t e = 0; e < width; ++e)
    for (int64_t v = 0; v < vectors; ++v) {
      Value offset = at(k.add(column, e), v);
      k.store(k.addf(k.loadVector(scratch.results, offset), sums[e * vectors + v]), scratch.results, offset);
    }
}

/// Into L2: a row of `elements`.
void BlockEmitter::prefetchRow(const HeadView &view, unsigned dim, unsigned width, int64_t elements, Value row,
                               bool isWrite) {
  if (!view.has(dim) || !view.isContiguous(width))
    return;
  Value offset = view.along(k, view.base, dim, row);
  int64_t line = 64 / std::max<int64_t>(view.elementType().getIntOrFloatBitWidth() / 8, 1);
  for (int64_t n = 0; n < elements; n += line)
    memref::PrefetchOp::create(k.b, k.loc, view.flat, k.add(offset, n), isWrite, /*localityHint=*/2,
                               /*isDataCache=*/true);
}

/// A row of each operand that the next block of a window adds, one a tile of
/// keys; this one starts at `first`.
void BlockEmitter::prefetchNext(Value first) {
  int64_t rows = vectors * k.lanes;
  Value tile = k.div(k.sub(first, bounds.lower), k.index(spec.keyTile));
  k.branch(k.less(tile, k.index(rows)), [&] {
    Value last = k.sub(numKeys, k.index(1)), newKey = k.min(k.add(bounds.upper, tile), last);
    Value lastQuery = k.sub(queries.numRows, k.index(1));
    prefetchRow(key, Dim::J, Dim::D, keyWidth, newKey, false);
    prefetchRow(value, Dim::J, Dim::E, valueWidth, newKey, false);
    prefetchRow(query, Dim::I, Dim::D, keyWidth, k.min(k.add(k.add(begin, rows), tile), lastQuery), false);
    prefetchRow(result, Dim::I, Dim::E, valueWidth, k.min(k.add(begin, tile), lastQuery), true);
  });
}

/// The queries of the next block, and in a head's last block the keys and values
/// of the next head: products computed them, and weights that went by since have
/// pushed them out of L2. Waiting for the queries alone took a sixth of MiniLM's
/// attention. `first`: the tile of keys at hand.
void BlockEmitter::prefetchNextBlock(Value first) {
  bool isMoving = llvm::any_of(spec.limits, [](const KeyLimit &limit) { return limit.movesWithQuery; });
  // Blocks come in another order, or wait for arithmetic.
  if (isMoving || !spec.formula().isProduct)
    return;
  constexpr int64_t kRows = 2; // of queries, a tile: 128 keys suffice for a block
  int64_t rows = vectors * k.lanes;
  Value next = k.add(begin, rows), isHere = k.less(next, queries.numRows);
  Value last = k.sub(getDimSize(k, spec, buffers, Dim::H), k.index(1));
  Value nextHead = k.select(isHere, head, k.min(k.add(head, 1), last));
  auto nextView = [&](size_t n) { return viewHead(k, buffers[n], spec.maps[n], batch, nextHead); };
  next = k.select(isHere, next, k.index(0));
  Value row = k.mul(k.div(k.sub(first, bounds.lower), k.index(spec.keyTile)), k.index(kRows));
  k.branch(k.less(row, k.index(rows)), [&] {
    for (int64_t n = 0; n < kRows; ++n)
      prefetchRow(nextView(spec.query), Dim::I, Dim::D, keyWidth,
                  k.min(k.add(k.add(next, row), n), k.sub(queries.numRows, k.index(1))), false);
  });
  k.branch(
      isHere, TypeRange(), [] { return Values(); },
      [&] {
        for (int64_t n = 0; n < spec.keyTile; ++n) {
          prefetchRow(nextView(spec.keyOperand), Dim::J, Dim::D, keyWidth, k.add(first, n), false);
          prefetchRow(nextView(spec.value), Dim::J, Dim::E, valueWidth, k.add(first, n), false);
        }
        return Values();
      });
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

/// The result, times the factors, to the rows that this block owns.
void BlockEmitter::storeResult(ArrayRef<Value> factors) {
  // Row by row into the scratch of the weights, which are used up.
  Value rowsT = scratch.weights;
  k.loop(k.index(0), k.index(paddedValueWidth), k.lanes, [&](Value e) {
    forVectors(factors, [&](Value v, Value factor) {
      Values columns;
      for (int64_t n = 0; n < k.lanes; ++n) {
        Value column = k.loadVector(scratch.results, at(k.add(e, n), v));
        columns.push_back(factor ? k.mulf(column, factor) : column);
      }
      Value first = k.add(e, k.mul(v, k.lanes * paddedValueWidth));
      for (auto [n, row] : llvm::enumerate(k.transpose(columns)))
        k.store(row, rowsT, k.add(first, n * paddedValueWidth));
    });
  });
  Type type = result.elementType();
  Value end = k.min(k.add(begin, vectors * k.lanes), queries.numRows);
  k.loop(begin, end, 1, [&](Value row) {
    Value source = k.mul(k.sub(row, queries.first), paddedValueWidth);
    Value target = result.along(k, result.base, Dim::I, row);
    if (!result.isContiguous(Dim::E)) {
      k.loop(k.index(0), k.index(valueWidth), 1, [&](Value e) {
        Value element = k.fromF32(k.load(rowsT, k.add(source, e)), type);
        memref::StoreOp::create(k.b, k.loc, element, result.flat, result.along(k, target, Dim::E, e));
      });
      return;
    }
    auto chunk = [&](int64_t e) { return k.fromF32(k.loadVector(rowsT, k.add(source, e)), type); };
    int64_t whole = valueWidth / k.lanes * k.lanes;
    for (int64_t e = 0; e < whole; e += k.lanes)
      k.store(chunk(e), result.flat, k.add(target, e));
    if (valueWidth < k.lanes)
      k.storeFirst(chunk(0), result.flat, target, k.index(valueWidth));
    else if (whole < valueWidth)
      k.store(chunk(valueWidth - k.lanes), result.flat, k.add(target, valueWidth - k.lanes));
  });
}

/// Whether the result holds an infinity or a NaN.
Value BlockEmitter::anyNotFinite() {
  Values zeros(vectors, k.splat(0));
  Values sums = k.loop(k.index(0), k.index(valueWidth), 1, zeros, [&](Value e, ValueRange carried) {
    Values next;
    for (int64_t v = 0; v < vectors; ++v)
      next.push_back(k.fma(k.loadVector(scratch.results, at(e, v)), zeros[v], carried[v]));
    return next;
  });
  return k.any(k.tree(llvm::map_to_vector(sums, [&](Value sum) { return k.compare(Predicate::UNE, sum, zeros[0]); }),
                      [&](Value x, Value y) { return k.either(x, y); }));
}

//===----------------------------------------------------------------------===//
// Extra results
//===----------------------------------------------------------------------===//

/// A tile of the keys from `first` on goes to the rows of `to` that this block owns.
void BlockEmitter::storeExtra(const HeadView &to, Value first, bool isEdge, const Values &tile) {
  Value end = k.min(k.add(begin, vectors * k.lanes), queries.numRows), count = k.sub(numKeys, first);
  bool isDense = to.isContiguous(Dim::J);
  // Keys side by side: a square of keys and queries at a time is transposed.
  for (int64_t lane = 0; lane < vectors * k.lanes; lane += isDense ? spec.keyTile : k.lanes) {
    int64_t v = lane / k.lanes;
    Values columns;
    for (int64_t r = 0; r < spec.keyTile; ++r) {
      Value scores = tile[r * vectors + v];
      if (isDense)
        columns.push_back(vector::ExtractStridedSliceOp::create(k.b, k.loc, scores, {lane % k.lanes}, {spec.keyTile},
                                                                ArrayRef<int64_t>{1}));
      else
        k.store(scores, scratch.tile, at(k.index(r), v));
    }
    if (isDense)
      for (auto [n, row] : llvm::enumerate(k.transpose(columns)))
        k.store(row, scratch.tile, k.index((lane + n) * spec.keyTile));
  }
  Type type = to.elementType();
  k.loop(begin, end, 1, [&](Value row) {
    Value lane = k.sub(row, queries.first), target = to.along(k, to.base, Dim::I, row);
    if (isDense) {
      Value keys = k.fromF32(k.loadVector(scratch.tile, k.mul(lane, spec.keyTile), spec.keyTile), type);
      target = k.add(target, first);
      if (isEdge)
        k.storeFirst(keys, to.flat, target, count);
      else
        k.store(keys, to.flat, target);
      return;
    }
    k.loop(k.index(0), isEdge ? k.min(k.index(spec.keyTile), count) : k.index(spec.keyTile), 1, [&](Value n) {
      Value element = k.load(scratch.tile, k.add(k.mul(n, vectors * k.lanes), lane));
      memref::StoreOp::create(k.b, k.loc, k.fromF32(element, type), to.flat,
                              to.along(k, target, Dim::J, k.add(first, n)));
    });
  });
}

/// Extra results of the keys outside the bounds; the weights are NaN where a score of the row is.
void BlockEmitter::fillExtras(const State &state) {
  if (spec.extras.empty() || mask.isFull())
    return;
  Value zero = k.splat(0);
  for (auto [v, sum] : llvm::enumerate(state.sum))
    k.store(k.select(k.compare(Predicate::UNO, sum, sum), sum, zero), scratch.tile, k.index(v * k.lanes));
  Value end = k.min(k.add(begin, vectors * k.lanes), queries.numRows);
  for (const AttentionSpec::Extra &extra : spec.extras) {
    if (extra.source == ExtraSource::lse)
      continue;
    HeadView to = view(extra.operand);
    k.loop(begin, end, 1, [&](Value row) {
      Value hidden = extra.source == ExtraSource::masked_scores ? k.scalar(-kInfinity)
                                                                : k.load(scratch.tile, k.sub(row, queries.first));
      Value target = to.along(k, to.base, Dim::I, row), all = k.fromF32(k.broadcast(hidden), to.elementType());
      auto fill = [&](Value from, Value upTo) {
        if (to.isContiguous(Dim::J)) {
          k.loop(from, upTo, k.lanes,
                 [&](Value key) { k.storeFirst(all, to.flat, k.add(target, key), k.sub(upTo, key)); });
          return;
        }
        k.loop(from, upTo, 1, [&](Value key) {
          memref::StoreOp::create(k.b, k.loc, k.extract(all, 0), to.flat, to.along(k, target, Dim::J, key));
        });
      };
      fill(k.index(0), k.min(bounds.lower, numKeys));
      fill(k.max(bounds.upper, k.min(bounds.lower, numKeys)), numKeys);
    });
  }
}

void BlockEmitter::storeLogSums(const State &state) {
  for (const AttentionSpec::Extra &extra : spec.extras) {
    if (extra.source != ExtraSource::lse)
      continue;
    for (int64_t v = 0; v < vectors; ++v) {
      Value top = pureScale ? k.mulf(state.maximum[v], k.splat(-1 / kLog2E)) : state.maximum[v];
      Value sum = k.addf(top, math::LogOp::create(k.b, k.loc, state.sum[v]));
      k.store(k.select(isEmptyRow(state.sum[v]), k.splat(-kInfinity), sum), scratch.tile, k.index(v * k.lanes));
    }
    HeadView to = view(extra.operand);
    Value end = k.min(k.add(begin, vectors * k.lanes), queries.numRows);
    k.loop(begin, end, 1, [&](Value row) {
      Value element = k.fromF32(k.load(scratch.tile, k.sub(row, queries.first)), to.elementType());
      memref::StoreOp::create(k.b, k.loc, element, to.flat, to.along(k, to.base, Dim::I, row));
    });
  }
}

} // namespace attn
