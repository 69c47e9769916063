// The product with the values, and what goes out of a block beside the result.

#include "passes/kernels/cpu/AttentionBlockEmitter.h"

#include <algorithm>

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

//===----------------------------------------------------------------------===//
// Queries
//===----------------------------------------------------------------------===//

/// What the scores of a tanh ask of all queries of the block.
void BlockEmitter::measureQueries() {
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
  auto addTiles = [&](int64_t width, bool skipsZeros) {
    int64_t whole = valueWidth / width * width;
    k.loop(0, whole, width, [&](Index column) { addValueTile(from, corner, begin, end, column, width, skipsZeros); });
    if (whole < valueWidth)
      addValueTile(from, corner, begin, end, k.index(whole), valueWidth - whole, skipsZeros);
  };
  auto all = [&] { addTiles(spec.valueTile, /*skipsZeros=*/false); };
  // Results that are not finite are rare, and this is much code; rows that see no key are not.
  auto live = [&] { addTiles(again ? spec.valueTile : 1, /*skipsZeros=*/true); };
  if (!isCareful.value())
    all();
  else
    isAlwaysAgain() ? live() : k.when(unlikely(isCareful), live, all);
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
      Vec chunk = k.toF32(value.flat.first(valueWidth - e, lanes, from + e));
      scratch.values.setVector(scale.value() ? chunk * scale : chunk, to + e);
    }
  });
}

/// The values of key `key` + `n`, which is even, beside those of the next one, or 0.
void BlockEmitter::stageValuePair(const Index &key, const Index &n, bool hasOther) {
  int64_t width = 2 * lanes;
  Index row = value.along(value.base, Dim::J, key + n), other = value.along(row, Dim::J, 1);
  for (int64_t e = 0; e < valueWidth; e += width) {
    auto load = [&](const Index &from) { return value.flat.first(valueWidth - e, width, from + e); };
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
Vecs BlockEmitter::valueProducts(const OperandView &from, const Index &corner, const Index &begin, const Index &end,
                                 int64_t width, bool skipsZeros) {
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
                                const Index &column, int64_t width, bool skipsZeros) {
  Vecs sums = valueProducts(from, from.along(corner, Dim::E, column), begin, end, width, skipsZeros);
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
    view.flat.prefetch(offset + n, isWrite);
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
      Num hidden = extra.source == ExtraSource::masked_scores ? k.f32(-k.kInfinity) : scratch.tile(row - queries.first);
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
      scratch.tile.setVector(select(isEmptyRow(state.sum[v]), k.splat(-k.kInfinity), sum), v * lanes);
    }
    OperandView to = view(extra.operand);
    k.loop(begin, endOfRows(), 1, [&](Index row) {
      Num element = convert(scratch.tile(row - queries.first), to.elementType());
      to.flat.set(element, to.along(to.base, Dim::I, row));
    });
  }
}

} // namespace attn
