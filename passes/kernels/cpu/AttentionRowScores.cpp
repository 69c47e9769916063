// The scores of one query.

#include "passes/kernels/cpu/AttentionRowEmitter.h"
#include "passes/kernels/cpu/RegionVectorizer.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;

/// The key width of a query or of the alignment, as f32; 0 in lanes beyond it.
Values RowEmitter::loadRow(const HeadView &view, Value base) {
  Values loaded;
  for (int64_t n = 0; n < chunks(keyWidth); ++n) {
    if (view.isContiguous(Dim::D)) {
      loaded.push_back(loadChunk(view, base, n, keyWidth));
      continue;
    }
    Values elements;
    for (int64_t d = n * k.lanes; d < (n + 1) * k.lanes; ++d)
      elements.push_back(d < keyWidth ? k.toF32(k.load(view.flat, view.along(k, base, Dim::D, k.index(d))))
                                      : k.scalar(0));
    loaded.push_back(vector::FromElementsOp::create(k.b, k.loc, k.vectorType(), elements));
  }
  return loaded;
}

/// Stores the scores of `count` keys and returns their maximum, in every lane.
Value RowEmitter::maximumOf(Value first, Value count) {
  auto step = [&](Value n, Value before, bool isEdge) -> Values {
    Value scores = scoreTile(k.add(first, n), isEdge);
    k.store(scores, weights, n);
    return {k.maxf(scores, before)};
  };
  Value whole = k.floorTo(count, k.lanes);
  Values top = k.loop(k.index(0), whole, k.lanes, k.splat(-kInfinity),
                      [&](Value n, ValueRange carried) { return step(n, carried.front(), /*isEdge=*/false); });
  std::optional<int64_t> keys = LaneBuilder::constant(numKeys);
  if (!mask.isFull() || !lists.isFull() || !keys || *keys % k.lanes)
    top = k.branch(
        k.less(whole, count), k.vectorType(), [&] { return step(whole, top.front(), /*isEdge=*/true); },
        [&] { return top; });
  return k.acrossLanes(top.front(), [&](Value x, Value y) { return k.maxf(x, y); });
}

/// The share of one chunk of the key width, of which `rest` lanes exist, in a
/// score; added to `sum`.
Value RowEmitter::term(Value elements, Value query, Value weight, int64_t rest, Value sum) {
  auto activate = [&](Value x) -> Value {
    if (spec.isTanh()) {
      // tanh x = 1 - 2 / (1 + exp(2x))
      Value e = k.exp2(k.mulf(k.clamp(x, 20), k.splat(2 * kLog2E)));
      return k.subf(k.splat(1), k.divf(k.splat(2), k.addf(e, k.splat(1))));
    }
    if (!spec.activation)
      return x;
    x = *vectorizeBlock(k.b, *spec.activation, x, k.lanes, nullptr);
    if (rest >= k.lanes)
      return x;
    // Beyond the key width the activation may be anything.
    auto type = VectorType::get({k.lanes}, k.b.getI1Type());
    return k.select(vector::CreateMaskOp::create(k.b, k.loc, type, k.index(rest)), x, k.splat(0));
  };
  auto [left, right] = makeScoreFactors(spec.kind, k.b, k.loc, {query, elements, weight}, activate);
  return k.fma(right, left, sum);
}

/// What the kind makes of a register of keys from `first` on.
Value RowEmitter::products(Value first, bool isEdge) {
  if (!spec.formula().hasKey) {
    Value scores = k.toF32(readCapture(query, first, isEdge));
    return isa<VectorType>(scores.getType()) ? scores : k.broadcast(scores);
  }
  Values offsets;
  for (int64_t n = 0; n < k.lanes; ++n) {
    Value position = k.add(first, n);
    if (isEdge)
      position = k.min(position, lastPosition());
    offsets.push_back(key.along(k, key.base, Dim::J, keyAt(position)));
  }
  if (keyWidth == 1 && !spec.isInBytes(spec.keyOperand)) {
    auto type = VectorType::get({k.lanes}, key.elementType());
    Values elements = llvm::map_to_vector(offsets, [&](Value offset) { return k.load(key.flat, offset); });
    auto everywhere = [&](ArrayRef<Value> chunks) {
      return chunks.empty() ? Value() : k.broadcast(k.extract(chunks.front(), 0));
    };
    return term(k.toF32(vector::FromElementsOp::create(k.b, k.loc, type, elements)), everywhere(queryChunks),
                everywhere(alignmentChunks), k.lanes, k.splat(0));
  }
  // Fetched ahead: rows further on lie in other pages, which the machine does not foresee.
  int64_t line = 64 / (key.elementType().getIntOrFloatBitWidth() / 8), all = chunks(keyWidth),
          whole = keyWidth / k.lanes;
  auto step = [&](Value d, Value query, Value weight, int64_t rest, ValueRange carried) {
    Values next;
    for (auto [offset, sum] : llvm::zip_equal(offsets, carried)) {
      Value from = k.add(offset, d);
      Value elements =
          k.toF32(rest < k.lanes ? k.loadFirst(key.flat, from, k.index(rest), k.lanes) : k.loadVector(key.flat, from));
      next.push_back(term(elements, query, weight, rest, sum));
    }
    return next;
  };
  Values rows(k.lanes, k.splat(0));
  for (Value offset : offsets)
    for (int64_t d = 0; d < keyWidth && !isEdge && !isPicked && all <= kInRegisters; d += line)
      prefetch(key, k.add(key.along(k, offset, Dim::J, k.index(kAhead)), d));
  if (all > kInRegisters)
    rows = k.loop(k.index(0), k.index(whole * k.lanes), k.lanes, rows, [&](Value d, ValueRange carried) {
      Value at = k.add(place.query, d);
      Value weight = alignmentChunks.empty() ? Value() : k.loadVector(scratch.queries, k.add(at, all * k.lanes));
      return step(d, k.loadVector(scratch.queries, at), weight, k.lanes, carried);
    });
  for (int64_t n = all > kInRegisters ? whole : 0; n < all; ++n)
    rows = step(k.index(n * k.lanes), queryChunks[n], alignmentChunks.empty() ? Value() : alignmentChunks[n],
                std::min(k.lanes, keyWidth - n * k.lanes), rows);
  if (spec.isInBytes(spec.keyOperand))
    for (auto [offset, sum] : llvm::zip_equal(offsets, rows))
      sum = k.mulf(sum, k.broadcastWord(key.flat, k.add(offset, keyWidth)));
  return sumLanes(rows);
}

/// Scores of a register of keys from `first` on; -inf beyond the end.
Value RowEmitter::scoreTile(Value first, bool isEdge) {
  Value scores = products(first, isEdge);
  auto keyIndices = [&]() -> Value {
    if (isPicked)
      return k.loadVector(scratch.keys, first);
    auto type = VectorType::get({k.lanes}, k.b.getIndexType());
    return k.b.createOrFold<arith::AddIOp>(k.loc, k.broadcast(first), vector::StepOp::create(k.b, k.loc, type));
  };
  auto apply = [&](Block &block, Value result) -> Value {
    Values arguments{scores};
    for (auto [n, capture] : llvm::enumerate(captures)) {
      bool isUsed = !block.getArgument(1 + n).use_empty();
      arguments.push_back(isUsed ? readCapture(capture, first, isEdge) : Value());
    }
    auto index = [&](OpBuilder &, Location, int64_t dim) -> Value {
      return dim == Dim::B ? batch : dim == Dim::H ? head : dim == Dim::I ? row : keyIndices();
    };
    return *vectorizeBlock(k.b, block, arguments, k.lanes, index, nullptr, result);
  };
  if (!pureScale)
    scores = apply(*spec.score, spec.scoreValue);
  Value isVisible;
  // The bounds say it of keys that stand side by side.
  if (!mask.isInterval() || (takesPart && !mask.isFull()))
    isVisible = mask.visibleKeys(row, first);
  for (const HeadView &term : dense) {
    Value shows = k.isNonZero(readCapture(term, first, isEdge));
    if (!isa<VectorType>(shows.getType()))
      shows = k.broadcast(shows);
    isVisible = isVisible ? k.both(isVisible, shows) : shows;
  }
  if (isVisible) {
    Value hidden = k.splat(-kInfinity);
    if (takesPart)
      hidden = spec.masked ? apply(*spec.masked, Value()) : scores;
    scores = k.select(isVisible, scores, hidden);
  }
  if (!isEdge)
    return scores;
  auto maskType = VectorType::get({k.lanes}, k.b.getI1Type());
  Value isKey = vector::CreateMaskOp::create(k.b, k.loc, maskType, k.sub(end, first));
  return k.select(isKey, scores, k.splat(-kInfinity));
}

/// Lane n of the result is the sum of the lanes of rows[n]. Two rows become one
/// by adding neighbours at distance s, s = 1, 2, 4...; bit s of the lane tells
/// which of the two.
Value RowEmitter::sumLanes(Values rows) {
  for (int64_t s = 1; s < k.lanes; s *= 2) {
    SmallVector<int64_t> own, partner;
    for (int64_t n = 0; n < k.lanes; ++n) {
      own.push_back(n & s ? k.lanes + n : n);
      partner.push_back(n & s ? k.lanes + n - s : n + s);
    }
    Values next;
    for (size_t n = 0; n < rows.size(); n += 2)
      next.push_back(k.addf(vector::ShuffleOp::create(k.b, k.loc, rows[n], rows[n + 1], own),
                            vector::ShuffleOp::create(k.b, k.loc, rows[n], rows[n + 1], partner)));
    rows = std::move(next);
  }
  return rows.front();
}

/// The capture for this query and a register of keys.
Value RowEmitter::readCapture(const HeadView &capture, Value first, bool isEdge) {
  Value base = capture.along(k, capture.base, Dim::I, row);
  if (!capture.has(Dim::J))
    return k.load(capture.flat, base);
  if (capture.isContiguous(Dim::J) && !isPicked) {
    Value offset = k.add(base, first);
    return isEdge ? k.loadFirst(capture.flat, offset, k.sub(numKeys, first), k.lanes)
                  : k.loadVector(capture.flat, offset);
  }
  Values elements;
  for (int64_t n = 0; n < k.lanes; ++n) {
    Value position = k.add(first, n);
    if (isEdge)
      position = k.min(position, lastPosition());
    elements.push_back(k.load(capture.flat, capture.along(k, base, Dim::J, keyAt(position))));
  }
  return vector::FromElementsOp::create(k.b, k.loc, VectorType::get({k.lanes}, capture.elementType()), elements);
}

} // namespace attn
