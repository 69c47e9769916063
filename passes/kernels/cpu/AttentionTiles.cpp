// What goes into a block and out of it, and the product with the values.

#include "passes/kernels/cpu/AttentionBlockEmitter.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <algorithm>

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

//===----------------------------------------------------------------------===//
// Queries
//===----------------------------------------------------------------------===//

void BlockEmitter::loadQueries() {
  if (!spec.formula().hasKey)
    return;
  int64_t columns = isNarrow ? keyWidth / 2 : keyWidth; // of the scratch
  if (!query.isContiguous(Dim::D) || query.isContiguous(Dim::I)) {
    auto gather = [&](const Index &d, int64_t vector) {
      return k.toF32(gatherRows(query, queries, query.along(query.base, Dim::D, d), vector));
    };
    k.loop(0, columns, 1, [&](Index column) {
      Index d = isNarrow ? column * 2 : column;
      for (int64_t v = 0; v < vectors; ++v) {
        Vec elements = gather(d, v);
        storeQuery(isNarrow ? k.pack(elements, gather(d + 1, v)) : elements, column, k.index(v));
      }
    });
  } else {
    // Whole tiles: the last one reaches back where the columns are no multiple.
    if (columns < lanes)
      loadQueryTile(k.index(0), columns);
    else
      k.loop(0, columns, lanes,
             [&](Index column) { loadQueryTile(columns % lanes ? minimum(column, columns - lanes) : column, lanes); });
  }
  if (!spec.isTanh())
    return;
  queryMaximum = maximumOfQueries();
  auto [total, greatest] =
      k.loop(0, keyWidth, 1, std::tuple(k.f32(0), k.f32(0)), [&](Index d, Num total, Num greatest) {
        Num a = k.toF32(alignment.flat(alignment.along(alignment.base, Dim::D, d)));
        Num magnitude = abs(a);
        return std::tuple(total + a, maximum(greatest, magnitude));
      });
  alignmentSum = k.splat(total);
  alignmentMaximum = greatest;
}

void BlockEmitter::loadQueryTile(const Index &column, int64_t width) {
  int64_t perColumn = isNarrow ? 2 : 1;
  forVectors({}, [&](Index v, Vec) {
    Vecs rows;
    for (int64_t n = 0; n < lanes; ++n) {
      Index row = queries.row(v * lanes + n);
      Index offset = query.along(query.base, Dim::I, row) + column * perColumn;
      Vec loaded = width < lanes ? query.flat.first(k.index(perColumn * width), perColumn * lanes, offset)
                                 : query.flat.vector(perColumn * lanes, offset);
      rows.push_back(isNarrow ? bitcast(loaded, k.f32Type()) : k.toF32(loaded));
    }
    Vecs columns = transpose(rows);
    for (int64_t n = 0; n < width; ++n)
      storeQuery(columns[n], column + n, v);
  });
}

/// `body` for each vector of queries, with its element of `values` if there are any. A loop: a transpose of its own for
/// each vector would be a third of what a small attention takes to compile.
void BlockEmitter::forVectors(const Vecs &values, llvm::function_ref<void(Index vector, Vec value)> body) {
  auto firstOf = [](const Vecs &range) { return range.empty() ? Vec() : range.front(); };
  if (vectors == 1)
    return body(k.index(0), firstOf(values));
  k.loop(0, vectors, 1, values, [&](Index vector, Vecs next) {
    body(vector, firstOf(next));
    if (!next.empty())
      std::rotate(next.begin(), next.begin() + 1, next.end());
    return next;
  });
}

/// Column `d` of a vector of queries, as the scores read it.
void BlockEmitter::storeQuery(Vec raw, const Index &d, const Index &vector) {
  if (pureScale && !isNarrow)
    raw = raw * (*pureScale * kLog2E);
  if (spec.isTanh()) {
    scratch.rawQueries.setVector(raw, at(d, vector));
    raw = expTwice(raw);
  }
  scratch.queries.setVector(raw, at(d, vector));
}

/// The greatest |q| of the block, or infinity where one is no number.
Num BlockEmitter::maximumOfQueries() {
  Vecs tops = k.loop(0, keyWidth, 1, Vecs(vectors, k.splat(0)), [&](Index d, Vecs tops) {
    for (auto [v, top] : llvm::enumerate(tops))
      top = k.greaterMagnitude(top, scratch.rawQueries.vector(lanes, at(d, v)));
    return tops;
  });
  return extract(acrossLanes(tree<Vec>(tops, greaterOf<Vec>), greaterOf<Vec>), 0);
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// results += V^T weights over rows [begin, end) of the weights, which are the
/// keys from `key` + begin on.
void BlockEmitter::addValues(const Index &key, Index begin, Index end) {
  OperandView from = value;
  Index corner = isPacked ? value.base : value.along(value.base, Dim::J, key);
  if (scratch.values.value()) {
    if (isNarrow) {
      stageValuePairs(key, begin, end);
      begin = begin / 2;
      end = ceilDiv(end, 2);
    } else {
      stageValues(key, begin, end);
    }
    from = {scratch.values, k.index(0), {}};
    from.strides[Dim::J] = k.index(paddedValueWidth);
    from.strides[Dim::E] = k.index(1);
    corner = k.index(0);
  }
  int64_t whole = valueWidth / spec.valueTile * spec.valueTile;
  k.loop(0, whole, spec.valueTile,
         [&](Index column) { addValueTile(from, corner, begin, end, column, spec.valueTile); });
  if (whole < valueWidth)
    addValueTile(from, corner, begin, end, k.index(whole), valueWidth - whole);
}

/// The key of `row` of the weights, where the rows stand for keys from `key` on.
Index BlockEmitter::keyOfRow(const Index &key, const Index &row) {
  return isPacked ? toIndex(scratch.tileKeys(row / spec.keyTile)) + row % spec.keyTile : key + row;
}

/// The values as f32, where they are stored in fewer bits.
void BlockEmitter::stageValues(const Index &key, const Index &begin, const Index &end) {
  k.loop(begin, end, 1, [&](Index n) {
    Index from = value.along(value.base, Dim::J, keyOfRow(key, n)), to = n * paddedValueWidth;
    if (!value.isContiguous(Dim::E)) {
      k.loop(0, valueWidth, 1, [&](Index e) {
        Num element = k.toF32(value.flat(value.along(from, Dim::E, e)));
        scratch.values.set(element, to + e);
      });
      return;
    }
    Vec scale;
    if (spec.isInBytes(spec.value))
      scale = k.word(value.flat, from + valueWidth);
    for (int64_t e = 0; e < valueWidth; e += lanes) {
      int64_t rest = valueWidth - e;
      Vec chunk =
          k.toF32(rest < lanes ? value.flat.first(k.index(rest), lanes, from + e) : value.flat.vector(lanes, from + e));
      scratch.values.setVector(scale.value() ? chunk * scale : chunk, to + e);
    }
  });
}

/// The values of key `key` + `n`, which is even, beside those of the next one, or 0.
void BlockEmitter::stageValuePair(const Index &key, const Index &n, bool hasOther) {
  int64_t width = 2 * lanes;
  Index row = value.along(value.base, Dim::J, key + n), other = value.along(row, Dim::J, 1);
  for (int64_t e = 0; e < valueWidth; e += width) {
    auto load = [&](const Index &from) {
      return e + width <= valueWidth ? value.flat.vector(width, from + e)
                                     : value.flat.first(k.index(valueWidth - e), width, from + e);
    };
    Vec x = load(row), y = hasOther ? load(other) : constantLike(x, 0.0);
    auto [first, second] = k.interleave(x, y);
    Index to = n / 2 * paddedValueWidth + e;
    scratch.values.setVector(first, to);
    if (e + lanes < paddedValueWidth)
      scratch.values.setVector(second, to + lanes);
  }
}

/// The values of two keys side by side, from the even key `begin` on; 0 beyond `end`.
void BlockEmitter::stageValuePairs(const Index &key, const Index &begin, const Index &end) {
  Index last = maximum(begin, end), whole = begin + floorTo(last - begin, 2);
  k.loop(begin, whole, 2, [&](Index n) { stageValuePair(key, n, true); });
  k.when(whole < last, [&] { stageValuePair(key, whole, false); });
}

/// Sums of `width` columns of values, from `corner` on, times the weights in rows [begin, end).
BlockEmitter::Vecs BlockEmitter::valueProducts(const OperandView &from, const Index &corner, const Index &begin,
                                               const Index &end, int64_t width, bool skipsZeros) {
  auto addLive = [&](const Vec &sum, const Vec &element, const Vec &weight) {
    Mask isLive = weight != 0;
    return select(isLive, fma(element, weight, sum), sum);
  };
  return k.loop(begin, end, 1, Vecs(width * vectors, k.splat(0)), [&](Index n, Vecs sums) {
    Vecs weights = rowOf(scratch.weights, n);
    Index row = from.along(corner, Dim::J, isPacked && !scratch.values.value() ? keyOfRow({}, n) : n);
    for (int64_t e = 0; e < width; ++e) {
      Vec element = k.splat(from.flat(from.along(row, Dim::E, e)));
      for (int64_t v = 0; v < vectors; ++v) {
        Vec &sum = sums[e * vectors + v];
        if (!skipsZeros) {
          sum = isNarrow ? k.addProducts(sum, element, weights[v]) : fma(element, weights[v], sum);
        } else if (isNarrow) {
          auto [low, high] = k.unpack(element);
          auto [lowWeight, highWeight] = k.unpack(weights[v]);
          sum = addLive(addLive(sum, low, lowWeight), high, highWeight);
        } else {
          sum = addLive(sum, element, weights[v]);
        }
      }
    }
    return sums;
  });
}

void BlockEmitter::addValueTile(const OperandView &from, const Index &corner, const Index &begin, const Index &end,
                                const Index &column, int64_t width) {
  Index first = from.along(corner, Dim::E, column);
  auto all = [&] { return valueProducts(from, first, begin, end, width, /*skipsZeros=*/false); };
  auto live = [&] { return valueProducts(from, first, begin, end, width, /*skipsZeros=*/true); };
  Vecs sums = isCareful.value() ? k.choose(unlikely(isCareful), live, all) : all();
  // A block's sum first, then the total: short sums keep 128k keys accurate.
  for (int64_t e = 0; e < width; ++e)
    for (int64_t v = 0; v < vectors; ++v) {
      Index offset = at(column + e, v);
      scratch.results.setVector(scratch.results.vector(lanes, offset) + sums[e * vectors + v], offset);
    }
}

/// Into L2: a row of `elements`.
void BlockEmitter::prefetchRow(const OperandView &view, unsigned dim, unsigned width, int64_t elements,
                               const Index &row, bool isWrite) {
  if (!view.has(dim) || !view.isContiguous(width))
    return;
  Index offset = view.along(view.base, dim, row);
  int64_t line = 64 / std::max<int64_t>(view.elementBytes(), 1);
  for (int64_t n = 0; n < elements; n += line)
    memref::PrefetchOp::create(k.b, k.loc, view.flat, ValueRange{offset + n}, isWrite, /*localityHint=*/2,
                               /*isDataCache=*/true);
}

/// A row of each operand that the next block of a window adds, one a tile of
/// keys; this one starts at `first`.
void BlockEmitter::prefetchNext(const Index &first) {
  int64_t rows = vectors * lanes;
  Index tile = (first - bounds.lower) / spec.keyTile;
  k.when(tile < rows, [&] {
    Index newKey = minimum(bounds.upper + tile, numKeys - 1), lastQuery = queries.numRows - 1;
    prefetchRow(key, Dim::J, Dim::D, keyWidth, newKey, false);
    prefetchRow(value, Dim::J, Dim::E, valueWidth, newKey, false);
    prefetchRow(query, Dim::I, Dim::D, keyWidth, minimum(begin + rows + tile, lastQuery), false);
    prefetchRow(result, Dim::I, Dim::E, valueWidth, minimum(begin + tile, lastQuery), true);
  });
}

/// The queries of the next block, and in a head's last block the keys and values
/// of the next head: products computed them, and weights that went by since have
/// pushed them out of L2. Waiting for the queries alone took a sixth of MiniLM's
/// attention. `first`: the tile of keys at hand.
void BlockEmitter::prefetchNextBlock(const Index &first) {
  bool isMoving = llvm::any_of(spec.limits, [](const KeyLimit &limit) { return limit.movesWithQuery; });
  // Blocks come in another order, or wait for arithmetic.
  if (isMoving || !spec.formula().isProduct)
    return;
  constexpr int64_t kRows = 2; // of queries, a tile: 128 keys suffice for a block
  int64_t rows = vectors * lanes;
  Index next = begin + rows;
  Mask isHere = next < queries.numRows;
  Index last = k.size(Dim::H) - 1, nextHead = select(isHere, head, minimum(head + 1, last));
  auto nextView = [&](size_t operand) { return k.view(operand, batch, nextHead); };
  next = select(isHere, next, k.index(0));
  Index row = (first - bounds.lower) / spec.keyTile * kRows;
  k.when(row < rows, [&] {
    for (int64_t n = 0; n < kRows; ++n) {
      OperandView view = nextView(spec.query);
      prefetchRow(view, Dim::I, Dim::D, keyWidth, minimum(next + row + n, queries.numRows - 1), false);
    }
  });
  k.when(
      isHere, [] {},
      [&] {
        for (int64_t n = 0; n < spec.keyTile; ++n) {
          prefetchRow(nextView(spec.keyOperand), Dim::J, Dim::D, keyWidth, first + n, false);
          prefetchRow(nextView(spec.value), Dim::J, Dim::E, valueWidth, first + n, false);
        }
      });
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

/// The result, times the factors, to the rows that this block owns.
void BlockEmitter::storeResult(const Vecs &factors) {
  // Row by row into the scratch of the weights, which are used up.
  const Buffer &rowsT = scratch.weights;
  k.loop(0, paddedValueWidth, lanes, [&](Index e) {
    forVectors(factors, [&](Index v, Vec factor) {
      Vecs columns;
      for (int64_t n = 0; n < lanes; ++n) {
        Vec column = scratch.results.vector(lanes, at(e + n, v));
        columns.push_back(factor.value() ? column * factor : column);
      }
      Index first = e + v * (lanes * paddedValueWidth);
      for (auto [n, row] : llvm::enumerate(transpose(columns)))
        rowsT.setVector(row, first + n * paddedValueWidth);
    });
  });
  Type type = result.elementType();
  k.loop(begin, endOfRows(), 1, [&](Index row) {
    Index source = (row - queries.first) * paddedValueWidth, target = result.along(result.base, Dim::I, row);
    if (!result.isContiguous(Dim::E)) {
      k.loop(0, valueWidth, 1, [&](Index e) {
        Num element = convert(rowsT(source + e), type);
        result.flat.set(element, result.along(target, Dim::E, e));
      });
      return;
    }
    auto chunk = [&](int64_t e) { return convert(rowsT.vector(lanes, source + e), type); };
    int64_t whole = valueWidth / lanes * lanes;
    for (int64_t e = 0; e < whole; e += lanes)
      result.flat.setVector(chunk(e), target + e);
    if (valueWidth < lanes)
      result.flat.setFirst(chunk(0), k.index(valueWidth), target);
    else if (whole < valueWidth)
      result.flat.setVector(chunk(valueWidth - lanes), target + (valueWidth - lanes));
  });
}

/// Whether the result holds an infinity or a NaN.
Mask BlockEmitter::anyNotFinite() {
  Vec zero = k.splat(0);
  Vecs sums = k.loop(0, valueWidth, 1, Vecs(vectors, zero), [&](Index e, Vecs sums) {
    for (auto [v, sum] : llvm::enumerate(sums))
      sum = fma(scratch.results.vector(lanes, at(e, v)), zero, sum);
    return sums;
  });
  return anyOf(llvm::map_to_vector(sums, [](const Vec &sum) { return sum != 0; }));
}

//===----------------------------------------------------------------------===//
// Extra results
//===----------------------------------------------------------------------===//

/// A tile of the keys from `first` on goes to the rows of `to` that this block owns.
void BlockEmitter::storeExtra(const OperandView &to, const Index &first, bool isEdge, const Vecs &tile) {
  Index end = endOfRows(), count = numKeys - first;
  bool isDense = to.isContiguous(Dim::J);
  // Keys side by side: a square of keys and queries at a time is transposed.
  for (int64_t lane = 0; lane < vectors * lanes; lane += isDense ? spec.keyTile : lanes) {
    int64_t v = lane / lanes;
    Vecs columns;
    for (auto [r, scores] : llvm::enumerate(columnOf(tile, v))) {
      if (isDense)
        columns.push_back(k.asVec(vector::ExtractStridedSliceOp::create(k.b, k.loc, scores, {lane % lanes},
                                                                        {spec.keyTile}, ArrayRef<int64_t>{1})));
      else
        scratch.tile.setVector(scores, at(k.index(r), v));
    }
    if (isDense)
      for (auto [n, row] : llvm::enumerate(transpose(columns)))
        scratch.tile.setVector(row, static_cast<int64_t>(lane + n) * spec.keyTile);
  }
  Type type = to.elementType();
  k.loop(begin, end, 1, [&](Index row) {
    Index lane = row - queries.first, target = to.along(to.base, Dim::I, row);
    if (isDense) {
      Vec keys = convert(scratch.tile.vector(spec.keyTile, lane * spec.keyTile), type);
      if (isEdge)
        to.flat.setFirst(keys, count, target + first);
      else
        to.flat.setVector(keys, target + first);
      return;
    }
    Index some = isEdge ? minimum(k.index(spec.keyTile), count) : k.index(spec.keyTile);
    k.loop(0, some, 1, [&](Index n) {
      Num element = convert(scratch.tile(n * (vectors * lanes) + lane), type);
      to.flat.set(element, to.along(target, Dim::J, first + n));
    });
  });
}

/// Extra results of the keys outside the bounds; the weights are NaN where a score of the row is.
void BlockEmitter::fillExtras(const State &state) {
  if (spec.extras.empty() || mask.isFull())
    return;
  for (auto [v, sum] : llvm::enumerate(state.sum))
    scratch.tile.setVector(select(isNaN(sum), sum, k.splat(0)), static_cast<int64_t>(v) * lanes);
  Index end = endOfRows();
  for (const AttentionSpec::Extra &extra : spec.extras) {
    if (extra.source == ExtraSource::lse)
      continue;
    OperandView to = view(extra.operand);
    k.loop(begin, end, 1, [&](Index row) {
      Num hidden = extra.source == ExtraSource::masked_scores ? k.f32(-kInfinity) : scratch.tile(row - queries.first);
      Index target = to.along(to.base, Dim::I, row);
      Vec all = convert(k.splat(hidden), to.elementType());
      auto fill = [&](const Index &from, const Index &upTo) {
        if (to.isContiguous(Dim::J))
          k.loop(from, upTo, lanes, [&](Index key) { to.flat.setFirst(all, upTo - key, target + key); });
        else
          k.loop(from, upTo, 1, [&](Index key) { to.flat.set(extract(all, 0), to.along(target, Dim::J, key)); });
      };
      Index first = minimum(bounds.lower, numKeys);
      fill(k.index(0), first);
      fill(maximum(bounds.upper, first), numKeys);
    });
  }
}

void BlockEmitter::storeLogSums(const State &state) {
  for (const AttentionSpec::Extra &extra : spec.extras) {
    if (extra.source != ExtraSource::lse)
      continue;
    for (int64_t v = 0; v < vectors; ++v) {
      Vec top = pureScale ? state.maximum[v] * (-1 / kLog2E) : state.maximum[v];
      Vec sum = top + log(state.sum[v]);
      scratch.tile.setVector(select(isEmptyRow(state.sum[v]), k.splat(-kInfinity), sum), v * lanes);
    }
    OperandView to = view(extra.operand);
    k.loop(begin, endOfRows(), 1, [&](Index row) {
      Num element = convert(scratch.tile(row - queries.first), to.elementType());
      to.flat.set(element, to.along(to.base, Dim::I, row));
    });
  }
}

} // namespace attn
