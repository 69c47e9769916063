// The scores of a tile of keys.

#include "passes/kernels/cpu/AttentionBlockEmitter.h"
#include "passes/kernels/cpu/RegionVectorizer.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

/// Columns share a division where |q| + |k| is at most this, and no weight is above 2^(126 / columns): the product of
/// their 1 + exp(2q) exp(2k) stays below 2^126, and that of all but one with a weight is finite.
static float rangeOf(int64_t columns) { return 42.0f / columns; }

/// Scores of keyTile keys from `first` on, by key, then by query vector: in
/// units of log 2 and less the maximum with a pure scale, after the region
/// otherwise. Hidden keys and those beyond the last one score -inf (0 without
/// softmax). `row` is their place in the block of keys.
Vecs BlockEmitter::scoreTile(const Index &first, const Index &row, bool isEdge, const State &state) {
  ScoreFormula formula = spec.formula();
  Vecs scores = formula.isProduct ? dotTile(first, isEdge, state)
                : formula.hasKey  ? sumTile(first, isEdge)
                                  : givenTile(first, isEdge);
  keepScores(ExtraSource::raw_scores, first, isEdge, scores);
  if (!pureScale)
    applyRegion(*spec.score, scores, first, isEdge);
  keepScores(ExtraSource::scores, first, isEdge, scores);
  if (!mask.isFull() || !dense.empty() || !lists.isFull())
    scores = maskTile(first, isEdge, scores);
  keepScores(ExtraSource::masked_scores, first, isEdge, scores);
  for (Vec &score : scores)
    score = roundToSoftmaxType(score);
  if (!isEdge)
    return scores;
  return k.choose(
      numKeys < first + spec.keyTile, [&] { return hideBeyondKeys(first, scores); }, [&] { return scores; });
}

/// What hidden keys score.
static double hiddenScore(const AttentionSpec &spec) {
  return spec.normalizer == Normalizer::softmax ? -AttentionCode::kInfinity : 0;
}

/// Hides the keys of a tile that are none.
Vecs BlockEmitter::hideBeyondKeys(const Index &first, const Vecs &scores) {
  Vec hidden = k.splat(hiddenScore(spec));
  Vecs shown = scores;
  for (int64_t r = 1; r < spec.keyTile; ++r) {
    Mask isKey = first + r < numKeys;
    for (int64_t v = 0; v < vectors; ++v)
      shown[r * vectors + v] = select(isKey, shown[r * vectors + v], hidden);
  }
  return shown;
}

/// scoreTile whose scores the first sweep leaves in scratch.scores, where there are not too many keys, and the sweep
/// for weights takes from there: a product, what the region and the mask make of it, and a result of scores are made
/// once.
Vecs BlockEmitter::storedTile(Sweep sweep, const Index &first, const Index &row, bool isEdge, const State &state) {
  std::optional<int64_t> keys = getConstantIntValue(numKeys.value());
  Mask fits; // null: they do
  if (!keys || *keys > spec.storedKeys)
    fits = numKeys < spec.storedKeys + 1;
  auto place = [&](int64_t n) { return at(first + n / vectors, n % vectors); };
  if (sweep == Sweep::Reduce) {
    Vecs scores = scoreTile(first, row, isEdge, state);
    auto store = [&] {
      for (auto [n, score] : llvm::enumerate(scores))
        scratch.scores.setVector(score, place(n));
    };
    fits.value() ? k.when(fits, store) : store();
    return scores;
  }
  auto load = [&] {
    return llvm::map_to_vector(llvm::seq(spec.keyTile * vectors),
                               [&](int64_t n) { return scratch.scores.vector(lanes, place(n)); });
  };
  if (seesAll.value()) // the sweep before may have left this tile out
    fits = joined(fits, !seesAll);
  if (!fits.value())
    return load();
  return k.choose(fits, load, [&] { return scoreTile(first, row, isEdge, state); });
}

/// Scores of a stage that is asked for as a result.
void BlockEmitter::keepScores(ExtraSource stage, const Index &first, bool isEdge, const Vecs &scores) {
  for (const AttentionSpec::Extra &extra : spec.extras)
    if (extra.source == stage)
      storeExtra(view(extra.operand), first, isEdge, scores);
}

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

/// Offsets of the rows of a tile of keys.
Indices BlockEmitter::keyRows(const Index &first, bool isEdge) {
  Indices rows;
  for (int64_t r = 0; r < spec.keyTile; ++r) {
    Index row = first + r;
    rows.push_back(key.along(key.base, Dim::J, isEdge ? minimum(row, numKeys - 1) : row));
  }
  return rows;
}

Num BlockEmitter::stageKeys(const Indices &rows, bool isTanh) {
  int64_t padded = llvm::alignTo(keyWidth, lanes), whole = keyWidth / lanes * lanes;
  Vec top = k.splat(0), scale;
  auto stage = [&](const Vec &elements, int64_t r, const Index &d) {
    Vec x = k.toF32(elements);
    if (scale.value())
      x = x * scale;
    if (isTanh) {
      scratch.rawKeys.setVector(x, d + r * padded);
      top = k.greaterMagnitude(top, x);
      x = expTwice(x);
    }
    scratch.keys.setVector(x, d + r * padded);
    return top;
  };
  for (int64_t r = 0; r < spec.keyTile; ++r) {
    if (spec.isInBytes(spec.keyOperand))
      scale = k.word(key.flat, rows[r] + keyWidth);
    if (!key.isContiguous(Dim::D)) {
      for (int64_t d = 0; d < padded; d += lanes) {
        SmallVector<Num> elements;
        for (int64_t n = 0; n < lanes; ++n)
          elements.push_back(key.flat(key.along(rows[r], Dim::D, std::min(d + n, keyWidth - 1))));
        stage(vectorOf(elements), r, k.index(d));
      }
      continue;
    }
    top = k.loop(0, whole, lanes, top, [&](Index d, Vec before) {
      top = before;
      return stage(key.flat.vector(lanes, rows[r] + d), r, d);
    });
    if (whole < keyWidth)
      stage(key.flat.first(keyWidth - whole, lanes, rows[r] + whole), r, k.index(whole));
  }
  return isTanh ? extract(acrossLanes(top, greaterOf<Vec>), 0) : Num();
}

Vecs BlockEmitter::dotTile(const Index &first, bool isEdge, const State &state) {
  Indices rows = keyRows(first, isEdge);
  OperandView from = key;
  if (scratch.keys.value()) {
    stageKeys(rows, /*isTanh=*/false);
    from = {scratch.keys, k.index(0), {}};
    from.strides[Dim::D] = k.index(1);
    for (int64_t r = 0; r < spec.keyTile; ++r)
      rows[r] = k.index(r * llvm::alignTo(keyWidth, lanes));
  }
  Vecs scores;
  for (int64_t r = 0; r < spec.keyTile; ++r)
    for (int64_t v = 0; v < vectors; ++v)
      scores.push_back(pureScale && !isNarrow ? state.maximum[v] : k.splat(0));
  scores = k.loop(0, isNarrow ? keyWidth / 2 : keyWidth, 1, scores, [&](Index d, Vecs sums) {
    Vecs columns = rowOf(scratch.queries, d);
    for (int64_t r = 0; r < spec.keyTile; ++r) {
      Vec element = isNarrow ? k.word(from.flat, rows[r] + d * 2) : k.splat(from.flat(from.along(rows[r], Dim::D, d)));
      for (int64_t v = 0; v < vectors; ++v) {
        Vec &sum = sums[r * vectors + v];
        sum = isNarrow ? k.addProducts(sum, element, columns[v]) : fma(element, columns[v], sum);
      }
    }
    return sums;
  });
  // Queries of bf16 are not scaled, which would round them once more.
  if (pureScale && isNarrow)
    for (auto [n, score] : llvm::enumerate(scores))
      score = fma(score, k.splat(*pureScale * kLog2E), state.maximum[n % vectors]);
  return scores;
}

Vecs BlockEmitter::givenTile(const Index &first, bool isEdge) {
  Vecs scores;
  for (const auto &row : givenReader->read(first, spec.keyTile, isEdge, numKeys))
    for (const Term &element : row)
      scores.push_back(k.toLanes(element));
  return scores;
}

/// sum_d of the products of the factors that the kind makes of q[d] and k[d].
Vecs BlockEmitter::sumTile(const Index &first, bool isEdge) {
  Indices rows = keyRows(first, isEdge);
  if (spec.isTanh()) {
    Num top = stageKeys(rows, /*isTanh=*/true) + queryMaximum;
    auto shared = [&](int64_t columns, llvm::function_ref<Vecs()> otherwise) {
      Mask isNear = (top <= rangeOf(columns)) & (alignmentMaximum <= std::exp2(126.0f / columns));
      return k.choose(isNear, [&] { return tanhTile(columns); }, otherwise);
    };
    auto pairs = [&] { return shared(2, [&] { return tanhTile(1); }); };
    // Four with an estimated reciprocal: additive B8 n64 m256 d512 on one thread 5.9 instead of 6.6 ms (Intel).
    return spec.hasSlowDivision ? shared(4, pairs) : pairs();
  }
  auto activate = [&](Value x) { return spec.activation ? vectorizeBlock(k.b, *spec.activation, x, lanes) : x; };
  return k.loop(0, keyWidth, 1, zeroTile(), [&](Index d, Vecs sums) {
    Vecs columns = rowOf(scratch.queries, d);
    Vec a;
    if (spec.formula().hasAlignment)
      a = k.splat(k.toF32(alignment.flat(alignment.along(alignment.base, Dim::D, d))));
    for (int64_t r = 0; r < spec.keyTile; ++r) {
      Vec element = k.splat(k.toF32(key.flat(key.along(rows[r], Dim::D, d))));
      for (int64_t v = 0; v < vectors; ++v) {
        Vec &sum = sums[r * vectors + v];
        auto [left, right] = makeScoreFactors(spec.kind, k.b, k.loc, {columns[v], element, a}, activate);
        sum = fma(k.asVec(left), k.asVec(right), sum);
      }
    }
    return sums;
  });
}

/// Adds a[d] tanh(q[d] + k[d]) of `count` columns from `d` on to `sums` as a[d] / (1 + exp(2q) exp(2k)), with one
/// division of all of them; or, unless `isFactored`, with exp(2(q + k)) of the raw sums.
Vecs BlockEmitter::addTanh(const Index &d, int64_t count, bool isFactored, const Vecs &sums) {
  int64_t padded = llvm::alignTo(keyWidth, lanes);
  const Buffer &columns = isFactored ? scratch.queries : scratch.rawQueries,
               &rows = isFactored ? scratch.keys : scratch.rawKeys;
  Vec one = k.splat(1);
  auto denominator = [&](const Index &d, int64_t r, const Vec &column) {
    Vec element = k.splat(rows(d + r * padded));
    if (isFactored)
      return fma(element, column, one);
    // 1 + exp(2x); x beyond 20 gives 1 or -1, as it should.
    return expTwice(k.clamp(element + column, 20)) + one;
  };
  Vecs a;
  SmallVector<Vecs> loaded;
  for (int64_t n = 0; n < count; ++n) {
    Index place = d + n;
    a.push_back(k.splat(k.toF32(alignment.flat(alignment.along(alignment.base, Dim::D, place)))));
    loaded.push_back(rowOf(columns, place));
  }
  Vecs next;
  for (int64_t r = 0; r < spec.keyTile; ++r)
    for (int64_t v = 0; v < vectors; ++v) {
      Vecs over = a, under;
      for (int64_t n = 0; n < count; ++n)
        under.push_back(denominator(d + n, r, loaded[n][v]));
      // w / x + y / z = (w z + x y) / (x z), neighbours first
      for (int64_t gap = 1; gap < count; gap *= 2)
        for (int64_t n = 0; n + gap < count; n += 2 * gap) {
          over[n] = fma(over[n], under[n + gap], over[n + gap] * under[n]);
          under[n] = under[n] * under[n + gap];
        }
      const Vec &sum = sums[r * vectors + v];
      next.push_back(isFactored && spec.hasSlowDivision ? k.addEstimatedQuotient(sum, over[0], under[0])
                                                        : sum + over[0] / under[0]);
    }
  return next;
}

/// sum_d a tanh(q + k) = sum_d a - 2 sum_d a / (1 + exp(2q) exp(2k)), from the
/// staged exponentials, `shared` columns with one division; or, of one column, with exp(2(q + k)) of the raw sums.
Vecs BlockEmitter::tanhTile(int64_t shared) {
  bool isFactored = shared > 1;
  // Chunks keep the sums short.
  constexpr int64_t kChunk = 128;
  int64_t whole = keyWidth / shared * shared;
  Vecs zeros = zeroTile();
  Vecs sums = k.loop(0, whole, kChunk, zeros, [&](Index chunk, Vecs before) {
    Index end = minimum(chunk + kChunk, whole);
    Vecs part =
        k.loop(chunk, end, shared, zeros, [&](Index d, Vecs inner) { return addTanh(d, shared, isFactored, inner); });
    for (auto [sum, of] : llvm::zip_equal(part, before))
      sum = sum + of;
    return part;
  });
  if (whole < keyWidth)
    sums = addTanh(k.index(whole), keyWidth - whole, isFactored, sums);
  for (Vec &sum : sums)
    sum = fma(sum, k.splat(-2), alignmentSum);
  return sums;
}

//===----------------------------------------------------------------------===//
// Region and mask
//===----------------------------------------------------------------------===//

/// Hidden keys of a tile score -inf; or what the masked region says in rows where they take part.
Vecs BlockEmitter::maskedTile(const Index &first, bool isEdge, const Vecs &scores) {
  Vec low = k.splat(hiddenScore(spec));
  Vecs marks = isPacked ? marksOfTile() : Vecs();
  SmallVector<CaptureReader::Tile> shown;
  for (const CaptureReader &reader : denseReaders)
    shown.push_back(reader.read(first, spec.keyTile, isEdge, numKeys));
  Vecs hidden(scores.size(), low);
  if (again) {
    Vecs other = scores;
    if (spec.masked)
      applyRegion(*spec.masked, other, first, isEdge);
    for (size_t n = 0; n < hidden.size(); ++n)
      hidden[n] = select(again->takesPart, other[n], low);
  }
  Vecs result;
  for (int64_t r = 0; r < spec.keyTile; ++r)
    for (int64_t v = 0; v < vectors; ++v) {
      Mask isVisible;
      if (!mask.isFull())
        isVisible = mask.visibleTo(v, first + r);
      if (isPacked)
        isVisible = joined(isVisible, (marks[v] & (int64_t(1) << r)) != 0);
      for (const CaptureReader::Tile &term : shown) {
        Mask shows = k.isNonZero(term[r][v]);
        if (isVisible.value() && shows.type() != isVisible.type()) // where the queries agree
          shows = k.toLanes(shows), isVisible = k.toLanes(isVisible);
        isVisible = joined(isVisible, shows);
      }
      result.push_back(select(isVisible, scores[r * vectors + v], hidden[r * vectors + v]));
    }
  return result;
}

/// maskedTile, where the tile has hidden keys.
Vecs BlockEmitter::maskTile(const Index &first, bool isEdge, const Vecs &scores) {
  if (!dense.empty())
    return maskedTile(first, isEdge, scores);
  Mask isInner = (bounds.innerLower - 1 < first) & (first + (spec.keyTile - 1) < bounds.innerUpper);
  if (isPacked) {
    Num common = andOfLanes(tree<Vec>(marksOfTile(), std::bit_and<>()));
    isInner = isInner & (common == (int64_t(1) << spec.keyTile) - 1);
  }
  return k.choose(isInner, [&] { return scores; }, [&] { return maskedTile(first, isEdge, scores); });
}

Vecs BlockEmitter::marksOfTile() {
  return llvm::map_to_vector(llvm::seq(vectors),
                             [&](int64_t v) { return scratch.marks.vector(lanes, tileMarks + v * lanes); });
}

/// Whether a list of blocks shows some query a key of the tile at hand.
Mask BlockEmitter::isListedTile() { return orOfLanes(tree<Vec>(marksOfTile(), std::bit_or<>())) != 0; }

/// Whether the dense masks may show a key of the tile; null where that is not
/// asked quickly.
Mask BlockEmitter::isLiveTile(const Index &first, bool isEdge) {
  Mask isLive;
  for (const OperandView &view : dense) {
    if (!view.isContiguous(Dim::J) || !view.elementType().isInteger(8))
      continue;
    Vecs rows;
    int64_t count = view.has(Dim::I) ? vectors * lanes : 1;
    for (int64_t n = 0; n < count; ++n) {
      Index offset = (count > 1 ? view.along(view.base, Dim::I, queries.row(n)) : view.base) + first;
      rows.push_back(isEdge ? view.flat.first(numKeys - first, spec.keyTile, offset)
                            : view.flat.vector(spec.keyTile, offset));
    }
    isLive = joined(isLive, orOfLanes(tree<Vec>(rows, std::bit_or<>())) != 0);
  }
  return isLive;
}

/// Replaces each element of a tile by what `region` makes of it.
void BlockEmitter::applyRegion(Block &region, Vecs &tile, const Index &first, bool isEdge) {
  if (k.isDear(&region))
    return applyInLoop(region, tile, first, isEdge);
  // Read only what the region uses.
  std::vector<CaptureReader::Tile> captured(readers.size());
  for (auto [n, reader] : llvm::enumerate(readers))
    if (!region.getArgument(1 + n).use_empty())
      captured[n] = reader.read(first, spec.keyTile, isEdge, numKeys);
  for (int64_t r = 0; r < spec.keyTile; ++r) {
    auto row = MutableArrayRef(tile).slice(r * vectors, vectors);
    applyToKey(region, row, first + r, [&](size_t n) { return captured[n][r]; });
  }
}

/// applyRegion by a loop over the keys of the tile, whose scores go through memory: scores and masks that are quantised
/// were more than half of the code of a small model.
void BlockEmitter::applyInLoop(Block &region, Vecs &tile, const Index &first, bool isEdge) {
  for (auto [n, element] : llvm::enumerate(tile))
    scratch.tile.setVector(element, at(k.index(n / vectors), n % vectors));
  auto isUsed = [&](size_t n) { return !region.getArgument(1 + n).use_empty(); };
  for (auto [n, reader] : llvm::enumerate(readers)) {
    if (!isUsed(n) || !reader.transposes())
      continue;
    for (auto [r, row] : llvm::enumerate(reader.read(first, spec.keyTile, isEdge, numKeys)))
      for (auto [v, element] : llvm::enumerate(row))
        scratch.captured[n].setVector(k.asVec(element), at(k.index(r), v));
  }
  k.loop(0, spec.keyTile, 1, [&](Index r) {
    Vecs row = rowOf(scratch.tile, r);
    applyToKey(region, row, first + r, [&](size_t n) -> SmallVector<Term> {
      if (!readers[n].transposes())
        return readers[n].read(first + r, 1, isEdge, numKeys).front();
      return llvm::map_to_vector(rowOf(scratch.captured[n], r), [](const Vec &element) { return Term(element); });
    });
    for (auto [v, element] : llvm::enumerate(row))
      scratch.tile.setVector(element, at(r, v));
  });
  for (auto [n, element] : llvm::enumerate(tile))
    element = scratch.tile.vector(lanes, at(k.index(n / vectors), n % vectors));
}

/// Replaces the scores of one key by what `region` makes of them; `capturedOf`: the elements of a capture, by vector.
void BlockEmitter::applyToKey(Block &region, MutableArrayRef<Vec> scores, const Index &position,
                              llvm::function_ref<SmallVector<Term>(size_t)> capturedOf) {
  std::vector<SmallVector<Term>> captured(readers.size());
  for (size_t n = 0; n < readers.size(); ++n)
    if (!region.getArgument(1 + n).use_empty())
      captured[n] = capturedOf(n);
  for (auto [v, element] : llvm::enumerate(scores)) {
    SmallVector<Value> arguments{element};
    for (const SmallVector<Term> &values : captured)
      arguments.push_back(values.empty() ? Value() : values[v].value());
    auto index = [&, v = v](OpBuilder &, Location, int64_t dim) -> Value {
      if (dim == Dim::B || dim == Dim::H)
        return dim == Dim::B ? batch : head;
      return dim == Dim::J ? position : k.indicesFrom(queries.first + v * lanes).value();
    };
    element = k.asVec(vectorizeBlock(k.b, region, arguments, lanes, index));
  }
}

} // namespace attn
