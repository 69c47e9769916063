#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/cpu/AttentionBlockEmitter.h"
#include "passes/kernels/cpu/RegionVectorizer.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Predicate = arith::CmpFPredicate;

/// Columns share a division where |q| + |k| is at most this, and no weight is above 2^(126 / columns): the product of
/// their 1 + exp(2q) exp(2k) stays below 2^126, and that of all but one with a weight is finite.
static float rangeOf(int64_t columns) { return 42.0f / columns; }

/// Scores of keyTile keys from `first` on, by key, then by query vector: in
/// units of log 2 and less the maximum with a pure scale, after the region
/// otherwise. Hidden keys and those beyond the last one score -inf (0 without
/// softmax). `row` is their place in the block of keys.
BlockEmitter::Values BlockEmitter::scoreTile(Value first, Value row, bool isEdge, const State &state) {
  ScoreFormula formula = spec.formula();
  Values scores = formula.isProduct ? dotTile(first, isEdge, state)
                  : formula.hasKey  ? sumTile(first, isEdge)
                                    : givenTile(first, isEdge);
  keepScores(ExtraSource::raw_scores, first, isEdge, scores);
  if (!pureScale)
    applyRegion(*spec.score, spec.scoreValue, scores, first, isEdge);
  keepScores(ExtraSource::scores, first, isEdge, scores);
  if (!mask.isFull() || !dense.empty() || !lists.isFull())
    scores = maskTile(first, isEdge, std::move(scores));
  keepScores(ExtraSource::masked_scores, first, isEdge, scores);
  for (Value &score : scores)
    score = roundToSoftmaxType(score);
  if (!isEdge)
    return scores;
  Value isPartial = k.less(numKeys, k.add(first, spec.keyTile));
  return k.branch(
      isPartial, ValueRange(scores).getTypes(),
      [&] {
        Value hidden = k.splat(spec.normalizer == Normalizer::softmax ? -kInfinity : 0);
        Values shown(scores);
        for (int64_t r = 1; r < spec.keyTile; ++r) {
          Value isKey = k.less(k.add(first, r), numKeys);
          for (int64_t v = 0; v < vectors; ++v)
            shown[r * vectors + v] = k.select(isKey, shown[r * vectors + v], hidden);
        }
        return shown;
      },
      [&] { return scores; });
}

/// scoreTile whose scores the first sweep leaves in scratch.scores, where there are not too many keys, and the sweep
/// for weights takes from there: a product, what the region and the mask make of it, and a result of scores are made
/// once.
BlockEmitter::Values BlockEmitter::storedTile(Sweep sweep, Value first, Value row, bool isEdge, const State &state) {
  std::optional<int64_t> keys = LaneBuilder::constant(numKeys);
  Value fits = keys && *keys <= spec.storedKeys ? Value() : k.less(numKeys, k.index(spec.storedKeys + 1));
  auto forTile = [&](llvm::function_ref<void(int64_t n, Value place)> body) {
    for (int64_t n = 0; n < spec.keyTile * vectors; ++n)
      body(n, at(k.add(first, n / vectors), n % vectors));
  };
  if (sweep == Sweep::Reduce) {
    Values scores = scoreTile(first, row, isEdge, state);
    auto store = [&] { forTile([&](int64_t n, Value place) { k.store(scores[n], scratch.scores, place); }); };
    fits ? k.branch(fits, store) : store();
    return scores;
  }
  auto load = [&] {
    Values scores;
    forTile([&](int64_t, Value place) { scores.push_back(k.loadVector(scratch.scores, place)); });
    return scores;
  };
  if (seesAll) { // the sweep before may have left this tile out
    Value isStored =
        arith::XOrIOp::create(k.b, k.loc, seesAll, arith::ConstantOp::create(k.b, k.loc, k.b.getBoolAttr(true)));
    fits = fits ? k.both(fits, isStored) : isStored;
  }
  if (!fits)
    return load();
  Values types(spec.keyTile * vectors, k.splat(0));
  return k.branch(fits, ValueRange(types).getTypes(), load, [&] { return scoreTile(first, row, isEdge, state); });
}

/// Scores of a stage that is asked for as a result.
void BlockEmitter::keepScores(ExtraSource stage, Value first, bool isEdge, const Values &scores) {
  for (const AttentionSpec::Extra &extra : spec.extras)
    if (extra.source == stage)
      storeExtra(view(extra.operand), first, isEdge, scores);
}

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

/// Offsets of the rows of a tile of keys.
BlockEmitter::Values BlockEmitter::keyRows(Value first, bool isEdge) {
  Values rows;
  for (int64_t r = 0; r < spec.keyTile; ++r) {
    Value row = k.add(first, r);
    if (isEdge)
      row = k.min(row, k.sub(numKeys, k.index(1)));
    rows.push_back(key.along(k, key.base, Dim::J, row));
  }
  return rows;
}

Value BlockEmitter::stageKeys(ArrayRef<Value> rows, bool isTanh) {
  int64_t padded = llvm::alignTo(keyWidth, k.lanes);
  Value top = k.splat(0);
  Value scale;
  auto stage = [&](Value raw, int64_t r, Value d) {
    raw = k.toF32(raw);
    if (scale)
      raw = k.mulf(raw, scale);
    if (isTanh) {
      k.store(raw, scratch.rawKeys, k.add(d, r * padded));
      top = k.maxAbs(top, raw);
      raw = k.expTwice(raw);
    }
    k.store(raw, scratch.keys, k.add(d, r * padded));
    return top;
  };
  for (int64_t r = 0; r < spec.keyTile; ++r) {
    if (spec.isInBytes(spec.keyOperand))
      scale = k.broadcastWord(key.flat, k.add(rows[r], keyWidth));
    if (!key.isContiguous(Dim::D)) {
      for (int64_t d = 0; d < padded; d += k.lanes) {
        Values elements;
        for (int64_t n = 0; n < k.lanes; ++n)
          elements.push_back(k.load(key.flat, key.along(k, rows[r], Dim::D, k.index(std::min(d + n, keyWidth - 1)))));
        auto type = VectorType::get({k.lanes}, key.elementType());
        stage(vector::FromElementsOp::create(k.b, k.loc, type, elements), r, k.index(d));
      }
      continue;
    }
    int64_t whole = keyWidth / k.lanes * k.lanes;
    top = k.loop(k.index(0), k.index(whole), k.lanes, top, [&](Value d, ValueRange carried) -> Values {
             top = carried.front();
             return {stage(k.loadVector(key.flat, k.add(rows[r], d)), r, d)};
           }).front();
    if (whole < keyWidth)
      stage(k.loadFirst(key.flat, k.add(rows[r], whole), k.index(keyWidth - whole), k.lanes), r, k.index(whole));
  }
  if (!isTanh)
    return {};
  return k.extract(k.acrossLanes(top, [&](Value x, Value y) { return k.maxf(x, y); }), 0);
}

BlockEmitter::Values BlockEmitter::dotTile(Value first, bool isEdge, const State &state) {
  Values rows = keyRows(first, isEdge), accumulators;
  HeadView from = key;
  if (scratch.keys.value()) {
    stageKeys(rows, /*isTanh=*/false);
    from = HeadView{scratch.keys, k.index(0), {}};
    from.strides[Dim::D] = k.index(1);
    for (int64_t r = 0; r < spec.keyTile; ++r)
      rows[r] = k.index(r * llvm::alignTo(keyWidth, k.lanes));
  }
  for (int64_t r = 0; r < spec.keyTile; ++r)
    for (int64_t v = 0; v < vectors; ++v)
      accumulators.push_back(pureScale && !isNarrow ? state.maximum[v] : k.splat(0));
  auto products = [&](Value d, ValueRange carried) {
    Values columns, next;
    for (int64_t v = 0; v < vectors; ++v)
      columns.push_back(k.loadVector(scratch.queries, at(d, v)));
    for (int64_t r = 0; r < spec.keyTile; ++r) {
      Value element = isNarrow ? k.broadcastWord(from.flat, k.add(rows[r], k.mul(d, 2)))
                               : k.broadcast(k.load(from.flat, from.along(k, rows[r], Dim::D, d)));
      for (int64_t v = 0; v < vectors; ++v) {
        Value sum = carried[r * vectors + v];
        next.push_back(isNarrow ? k.addProducts(sum, element, columns[v]) : k.fma(element, columns[v], sum));
      }
    }
    return next;
  };
  Values scores = k.loop(k.index(0), k.index(isNarrow ? keyWidth / 2 : keyWidth), 1, accumulators, products);
  // Queries of bf16 are not scaled, which would round them once more.
  for (int64_t n = 0; pureScale && isNarrow && n < spec.keyTile * vectors; ++n)
    scores[n] = k.fma(scores[n], k.splat(*pureScale * kLog2E), state.maximum[n % vectors]);
  return scores;
}

BlockEmitter::Values BlockEmitter::givenTile(Value first, bool isEdge) {
  Values scores;
  for (Values &row : givenReader->read(first, spec.keyTile, isEdge, numKeys))
    for (Value element : row) {
      Value score = k.toF32(element);
      scores.push_back(isa<VectorType>(score.getType()) ? score : k.broadcast(score));
    }
  return scores;
}

/// sum_d of the products of the factors that the kind makes of q[d] and k[d].
BlockEmitter::Values BlockEmitter::sumTile(Value first, bool isEdge) {
  Values rows = keyRows(first, isEdge);
  if (spec.isTanh()) {
    Value top = k.addf(stageKeys(rows, /*isTanh=*/true), queryMaximum);
    SmallVector<Type> types(spec.keyTile * vectors, k.vectorType());
    auto shared = [&](int64_t columns, llvm::function_ref<Values()> otherwise) {
      Value isNear = k.both(k.compare(Predicate::OLE, top, k.scalar(rangeOf(columns))),
                            k.compare(Predicate::OLE, alignmentMaximum, k.scalar(std::exp2(126.0f / columns))));
      return k.branch(isNear, types, [&] { return tanhTile(columns); }, otherwise);
    };
    auto pairs = [&] { return shared(2, [&] { return tanhTile(1); }); };
    // Four with an estimated reciprocal: additive B8 n64 m256 d512 on one thread 5.9 instead of 6.6 ms (Intel).
    return spec.hasSlowDivision ? shared(4, pairs) : pairs();
  }
  auto activate = [&](Value x) {
    return spec.activation ? *vectorizeBlock(k.b, *spec.activation, x, k.lanes, nullptr) : x;
  };
  Values zeros(spec.keyTile * vectors, k.splat(0));
  return k.loop(k.index(0), k.index(keyWidth), 1, zeros, [&](Value d, ValueRange carried) {
    Values columns, next;
    for (int64_t v = 0; v < vectors; ++v)
      columns.push_back(k.loadVector(scratch.queries, at(d, v)));
    Value a;
    if (spec.formula().hasAlignment)
      a = k.broadcast(k.toF32(k.load(alignment.flat, alignment.along(k, alignment.base, Dim::D, d))));
    for (int64_t r = 0; r < spec.keyTile; ++r) {
      Value element = k.broadcast(k.toF32(k.load(key.flat, key.along(k, rows[r], Dim::D, d))));
      for (int64_t v = 0; v < vectors; ++v) {
        auto [left, right] = makeScoreFactors(spec.kind, k.b, k.loc, {columns[v], element, a}, activate);
        next.push_back(k.fma(left, right, carried[r * vectors + v]));
      }
    }
    return next;
  });
}

/// sum_d a tanh(q + k) = sum_d a - 2 sum_d a / (1 + exp(2q) exp(2k)), from the
/// staged exponentials, `shared` columns with one division; or, of one column, with exp(2(q + k)) of the raw sums.
BlockEmitter::Values BlockEmitter::tanhTile(int64_t shared) {
  bool isFactored = shared > 1;
  int64_t padded = llvm::alignTo(keyWidth, k.lanes);
  Value one = k.splat(1), columns = isFactored ? scratch.queries : scratch.rawQueries,
        rows = isFactored ? scratch.keys : scratch.rawKeys;
  auto denominator = [&](Value d, int64_t r, Value column) {
    Value element = k.broadcast(k.load(rows, k.add(d, r * padded)));
    if (isFactored)
      return k.fma(element, column, one);
    // 1 + exp(2x); x beyond 20 gives 1 or -1, as it should.
    Value x = k.clamp(k.addf(element, column), 20);
    return k.addf(k.expTwice(x), one);
  };
  auto body = [&](Value d, ValueRange carried, int64_t count) {
    Values next, a;
    SmallVector<Values> loaded(count);
    for (int64_t n = 0; n < count; ++n) {
      Value at = k.add(d, n);
      a.push_back(k.broadcast(k.toF32(k.load(alignment.flat, alignment.along(k, alignment.base, Dim::D, at)))));
      for (int64_t v = 0; v < vectors; ++v)
        loaded[n].push_back(k.loadVector(columns, this->at(at, v)));
    }
    for (int64_t r = 0; r < spec.keyTile; ++r)
      for (int64_t v = 0; v < vectors; ++v) {
        Values over(a), under;
        for (int64_t n = 0; n < count; ++n)
          under.push_back(denominator(k.add(d, n), r, loaded[n][v]));
        // w / x + y / z = (w z + x y) / (x z), neighbours first
        for (int64_t gap = 1; gap < count; gap *= 2)
          for (int64_t n = 0; n + gap < count; n += 2 * gap) {
            over[n] = k.fma(over[n], under[n + gap], k.mulf(over[n + gap], under[n]));
            under[n] = k.mulf(under[n], under[n + gap]);
          }
        Value sum = carried[r * vectors + v];
        next.push_back(isFactored && spec.hasSlowDivision ? k.addEstimatedQuotient(sum, over[0], under[0])
                                                          : k.addf(sum, k.divf(over[0], under[0])));
      }
    return next;
  };
  // Chunks keep the sums short.
  constexpr int64_t kChunk = 128;
  int64_t whole = keyWidth / shared * shared;
  Values zeros(spec.keyTile * vectors, k.splat(0));
  Values sums = k.loop(k.index(0), k.index(whole), kChunk, zeros, [&](Value chunk, ValueRange carried) {
    Value end = k.min(k.add(chunk, kChunk), k.index(whole));
    Values part = k.loop(chunk, end, shared, zeros, [&](Value d, ValueRange inner) { return body(d, inner, shared); });
    for (auto [sum, before] : llvm::zip_equal(part, carried))
      sum = k.addf(sum, before);
    return part;
  });
  if (whole < keyWidth)
    sums = body(k.index(whole), sums, keyWidth - whole);
  for (Value &sum : sums)
    sum = k.fma(sum, k.splat(-2), alignmentSum);
  return sums;
}

//===----------------------------------------------------------------------===//
// Region and mask
//===----------------------------------------------------------------------===//

/// Hidden keys of a tile, where it has some, score -inf; or what the masked
/// region says in rows where they take part.
BlockEmitter::Values BlockEmitter::maskTile(Value first, bool isEdge, Values scores) {
  Value low = k.splat(spec.normalizer == Normalizer::softmax ? -kInfinity : 0);
  auto masked = [&] {
    SmallVector<SmallVector<Values>> shown;
    Values marks = isPacked ? marksOfTile() : Values();
    for (CaptureReader &reader : denseReaders)
      shown.push_back(reader.read(first, spec.keyTile, isEdge, numKeys));
    Values hidden(scores.size(), low);
    if (!takesPart.empty()) {
      Values other(scores);
      if (spec.masked)
        applyRegion(*spec.masked, Value(), other, first, isEdge);
      for (size_t n = 0; n < hidden.size(); ++n)
        hidden[n] = k.select(takesPart[n % vectors], other[n], low);
    }
    Values result;
    for (int64_t r = 0; r < spec.keyTile; ++r)
      for (int64_t v = 0; v < vectors; ++v) {
        Value isVisible = mask.isFull() ? Value() : mask.visibleTo(v, k.add(first, r));
        if (isPacked) {
          auto bit = SplatElementsAttr::get(cast<VectorType>(marks[v].getType()), k.b.getI32IntegerAttr(1 << r));
          Value isListed = k.isNonZero(k.both(marks[v], arith::ConstantOp::create(k.b, k.loc, bit)));
          isVisible = isVisible ? k.both(isVisible, isListed) : isListed;
        }
        for (auto &term : shown) {
          Value shows = k.isNonZero(term[r][v]);
          if (isVisible && shows.getType() != isVisible.getType())
            for (Value *one : {&shows, &isVisible}) // where the queries agree
              if (!isa<VectorType>(one->getType()))
                *one = k.broadcast(*one);
          isVisible = isVisible ? k.both(isVisible, shows) : shows;
        }
        result.push_back(k.select(isVisible, scores[r * vectors + v], hidden[r * vectors + v]));
      }
    return result;
  };
  if (!dense.empty())
    return masked();
  Value isInner = k.both(k.less(k.sub(bounds.innerLower, k.index(1)), first),
                         k.less(k.add(first, spec.keyTile - 1), bounds.innerUpper));
  if (isPacked) {
    Value common = vector::ReductionOp::create(k.b, k.loc, vector::CombiningKind::AND,
                                               k.tree(marksOfTile(), [&](Value x, Value y) { return k.both(x, y); }));
    Value all = arith::ConstantOp::create(k.b, k.loc, k.b.getI32IntegerAttr((1 << spec.keyTile) - 1));
    isInner = k.both(isInner, arith::CmpIOp::create(k.b, k.loc, arith::CmpIPredicate::eq, common, all));
  }
  return k.branch(isInner, ValueRange(scores).getTypes(), [&] { return scores; }, masked);
}

BlockEmitter::Values BlockEmitter::marksOfTile() {
  Values marks;
  for (int64_t v = 0; v < vectors; ++v)
    marks.push_back(k.loadVector(scratch.marks, k.add(tileMarks, v * k.lanes)));
  return marks;
}

/// Whether a list of blocks shows some query a key of the tile at hand.
Value BlockEmitter::isListedTile() {
  Value some = k.tree(marksOfTile(), [&](Value x, Value y) { return k.either(x, y); });
  return k.isNonZero(vector::ReductionOp::create(k.b, k.loc, vector::CombiningKind::OR, some));
}

/// Whether the dense masks may show a key of the tile; null where that is not
/// asked quickly.
Value BlockEmitter::isLiveTile(Value first, bool isEdge) {
  Value live;
  for (const HeadView &view : dense) {
    bool isRow = view.isContiguous(Dim::J);
    if (!isRow || !view.elementType().isInteger(8))
      continue;
    Values rows;
    int64_t count = view.has(Dim::I) ? vectors * k.lanes : 1;
    for (int64_t n = 0; n < count; ++n) {
      Value offset = k.add(count > 1 ? view.along(k, view.base, Dim::I, queries.row(k, n)) : view.base, first);
      rows.push_back(isEdge ? k.loadFirst(view.flat, offset, k.sub(numKeys, first), spec.keyTile)
                            : k.loadVector(view.flat, offset, spec.keyTile));
    }
    Value all = k.tree(rows, [&](Value x, Value y) -> Value { return arith::OrIOp::create(k.b, k.loc, x, y); });
    Value bits = vector::ReductionOp::create(k.b, k.loc, vector::CombiningKind::OR, all);
    Value some = k.isNonZero(bits);
    live = live ? k.both(live, some) : some;
  }
  return live;
}

/// Replaces each element of a tile by what `region` makes of it.
void BlockEmitter::applyRegion(Block &region, Value result, MutableArrayRef<Value> tile, Value first, bool isEdge) {
  // Read only what the region uses.
  SmallVector<SmallVector<Values>> captured(readers.size());
  for (auto [n, reader] : llvm::enumerate(readers))
    if (!region.getArgument(1 + n).use_empty())
      captured[n] = reader.read(first, spec.keyTile, isEdge, numKeys);
  for (int64_t r = 0; r < spec.keyTile; ++r)
    for (int64_t v = 0; v < vectors; ++v) {
      Value &element = tile[r * vectors + v];
      Values arguments{element};
      for (auto [n, values] : llvm::enumerate(captured))
        arguments.push_back(values.empty() ? Value() : values[r][v]);
      auto index = [&](OpBuilder &, Location, int64_t dim) -> Value {
        if (dim == Dim::B || dim == Dim::H)
          return dim == Dim::B ? batch : head;
        if (dim == Dim::J)
          return k.add(first, r);
        auto type = VectorType::get({k.lanes}, k.b.getIndexType());
        return k.b.createOrFold<arith::AddIOp>(k.loc, k.broadcast(k.add(queries.first, v * k.lanes)),
                                               vector::StepOp::create(k.b, k.loc, type));
      };
      // canBuildAttention has asked canVectorizeBlock.
      element = *vectorizeBlock(k.b, region, arguments, k.lanes, index, nullptr, result);
    }
}

} // namespace attn
