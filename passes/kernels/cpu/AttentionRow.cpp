#include "passes/kernels/cpu/AttentionRowEmitter.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/cpu/RegionVectorizer.h"
#include "passes/kernels/shared/KernelFunction.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;
using Predicate = arith::CmpFPredicate;

/// Accumulators of the sum of values: the latency of an FMA times its rate.
static constexpr int64_t kChains = 8;

RowEmitter::RowEmitter(LaneBuilder &k, const AttentionSpec &spec, ValueRange buffers,
                       const AttentionRowScratch &scratch, const AttentionRowPlace &place, bool takesPart)
    : k(k), spec(spec), buffers(buffers), scratch(scratch), place(place), takesPart(takesPart),
      keyWidth(*spec.getStaticSize(Dim::D)), valueWidth(*spec.getStaticSize(Dim::E)),
      pureScale(takesPart ? std::nullopt : spec.getPureScale()), batch(place.batch), head(place.head), row(place.row),
      numKeys(getDimSize(k, spec, buffers, Dim::J)), mask(k, spec, buffers, batch, head, numKeys),
      lists(k, spec, buffers, batch, head, numKeys), weights(scratch.weights) {
  auto view = [&](size_t n) { return viewHead(k, buffers[n], spec.maps[n], batch, head); };
  query = view(spec.query);
  if (spec.formula().hasKey)
    key = view(spec.keyOperand);
  if (spec.formula().hasAlignment)
    alignment = view(spec.alignment);
  for (size_t operand : spec.denseMasks)
    dense.push_back(view(operand));
  value = view(spec.value);
  result = view(spec.result);
  for (size_t n = 0; n < spec.numCaptures; ++n)
    captures.push_back(view(spec.firstCapture + n));
  for (const AttentionSpec::Extra &extra : spec.extras)
    weightResults.push_back(view(extra.operand));
  bounds = mask.bounds(row, row);
  if (takesPart)
    bounds.lower = k.index(0), bounds.upper = numKeys;
}

/// exp of a difference of scores.
Value RowEmitter::exp(Value difference) { return k.exp2(pureScale ? difference : k.mulf(difference, k.splat(kLog2E))); }

/// exp(before - after); 1 itself where nothing moved: the roundings of many blocks would add up.
Value RowEmitter::rescaling(Value before, Value after) {
  return k.select(k.compare(Predicate::OEQ, before, after), k.splat(1), exp(k.subf(before, after)));
}

/// What is subtracted from the scores: 0 while no key counts, or only a NaN.
Value RowEmitter::orZero(Value maximum) {
  return k.select(k.compare(Predicate::OGT, maximum, k.splat(-kInfinity)), maximum, k.splat(0));
}

Value RowEmitter::isEmptyRow(Value sum) { return k.compare(Predicate::OLT, sum, k.splat(0.5f)); }

void RowEmitter::prefetch(const HeadView &view, Value offset) {
  memref::PrefetchOp::create(k.b, k.loc, view.flat, offset, /*isWrite=*/false, /*localityHint=*/3,
                             /*isDataCache=*/true);
}

void RowEmitter::begin() {
  for (int64_t n = 0; n < chunks(valueWidth) + 2; ++n)
    k.store(k.splat(n == chunks(valueWidth) ? -kInfinity : 0), place.records, sumsAt(n));
  if (!spec.formula().hasKey)
    return;
  Values staged = loadRow(query, query.along(k, query.base, Dim::I, row));
  for (Value &chunk : staged)
    chunk = pureScale ? k.mulf(chunk, k.splat(*pureScale * kLog2E)) : chunk;
  if (spec.formula().hasAlignment)
    staged.append(loadRow(alignment, alignment.base));
  for (auto [n, chunk] : llvm::enumerate(staged))
    k.store(chunk, scratch.queries, k.add(place.query, n * k.lanes));
}

void RowEmitter::addKeys(Value first, Value upper) {
  end = upper;
  queryChunks.clear(), alignmentChunks.clear();
  int64_t all = !spec.formula().hasKey ? 0 : chunks(keyWidth);
  for (int64_t n = 0; n < all; ++n) {
    queryChunks.push_back(k.loadVector(scratch.queries, k.add(place.query, n * k.lanes)));
    if (spec.formula().hasAlignment)
      alignmentChunks.push_back(k.loadVector(scratch.queries, k.add(place.query, (all + n) * k.lanes)));
  }
  Value count = k.sub(upper, first), before = loadRecord(maximumAt(place.record));
  Value maximum = k.maxf(maximumOf(first, count), before), reference = orZero(maximum);
  Value factor = rescaling(before, reference);
  Values sum = k.loop(k.index(0), count, k.lanes, k.splat(0), [&](Value n, ValueRange inner) -> Values {
    Value scores = k.loadVector(weights, n), weight = exp(k.subf(scores, reference));
    k.store(weight, weights, n);
    keepScores(scores, k.add(first, n), k.sub(count, n));
    return {k.addf(inner.front(), weight)};
  });
  addValues(first, count, factor);
  // A block's sum first: short sums keep 128k keys accurate.
  Value total = k.fma(loadRecord(totalAt(place.record)), factor, sum.front());
  k.store(total, place.records, totalAt(place.record));
  k.store(maximum, place.records, maximumAt(place.record));
}

void RowEmitter::addListedKeys(Value first, Value upper) {
  first = k.max(first, bounds.lower), upper = k.min(upper, bounds.upper);
  auto runFrom = [&](Value position) -> Values {
    auto [start, stop] = lists.nextRun(row, position);
    return {start, k.min(stop, upper)};
  };
  auto addRuns = [&]() -> Values {
    k.repeat(
        runFrom(first), [&](ValueRange run) { return k.less(run[0], run[1]); },
        [&](ValueRange run) {
          Value stop = k.min(run[1], k.add(run[0], spec.keyBlock));
          addKeys(run[0], stop);
          return runFrom(stop);
        });
    return {};
  };
  if (!scratch.keys) {
    addRuns();
    return;
  }
  Value count = lists.countAscending(row);
  k.branch(k.unlikely(k.less(count, k.index(0))), TypeRange(), addRuns, [&] {
    addPickedKeys(first, upper, count);
    return Values();
  });
}

/// Adds those of the first `count` keys of the list that are in [first, upper), side by side as if they stood so.
void RowEmitter::addPickedKeys(Value first, Value upper, Value count) {
  k.loop(k.index(0), count, spec.keyBlock, [&](Value begin) {
    Value stop = k.min(k.add(begin, spec.keyBlock), count);
    Value picked = k.loop(begin, stop, 1, k.index(0), [&](Value n, ValueRange carried) -> Values {
                      Value key = lists.entryOf(row, n);
                      memref::StoreOp::create(k.b, k.loc, key, scratch.keys, carried.front());
                      Value isIn = k.both(k.less(key, upper), k.less(first, k.add(key, 1)));
                      return {k.select(isIn, k.add(carried.front(), 1), carried.front())};
                    }).front();
    isPicked = true;
    k.branch(k.less(k.index(0), picked), [&] { addKeys(k.index(0), picked); });
    isPicked = false;
  });
}

void RowEmitter::merge(Value other) {
  Value mine = loadRecord(maximumAt(place.record)), its = loadRecord(maximumAt(other));
  Value maximum = k.maxf(mine, its), reference = orZero(maximum);
  Value keeps = rescaling(mine, reference), takes = rescaling(its, reference);
  auto add = [&](Value to, Value from) {
    k.store(k.fma(loadRecord(from), takes, k.mulf(loadRecord(to), keeps)), place.records, to);
  };
  for (int64_t n = 0; n < chunks(valueWidth); ++n)
    add(sumsAt(n), k.add(other, n * k.lanes));
  add(totalAt(place.record), totalAt(other));
  k.store(maximum, place.records, maximumAt(place.record));
}

void RowEmitter::finish() {
  Value sum = k.acrossLanes(loadRecord(totalAt(place.record)), [&](Value x, Value y) { return k.addf(x, y); });
  auto store = [&] {
    Value factor = normaliser(sum);
    storeWeights(sum, factor);
    storeResult(factor);
    return Values();
  };
  if (!spec.letsHiddenTakePart() || takesPart) {
    store();
    return;
  }
  // Once more from the start, with hidden keys in a row that sees no other.
  auto again = [&] {
    RowEmitter all(k, spec, buffers, scratch, place, /*takesPart=*/true);
    all.begin();
    k.loop(k.index(0), numKeys, spec.keyBlock,
           [&](Value first) { all.addKeys(first, k.min(k.add(first, spec.keyBlock), numKeys)); });
    markLong(k.b);
    all.finish();
    return Values();
  };
  k.branch(k.unlikely(k.any(isEmptyRow(sum))), TypeRange(), again, store);
}

/// sums = sums * factor + the weighted values of `count` keys.
void RowEmitter::addValues(Value first, Value count, Value factor) {
  int64_t all = chunks(valueWidth);
  Value zero = k.splat(0);
  for (int64_t begin = 0; begin < all; begin += kChains) {
    int64_t width = std::min(kChains, all - begin), unroll = llvm::bit_floor<uint64_t>(kChains / width);
    auto step = [&](Value n, ValueRange carried, int64_t keys) {
      Values next(carried);
      for (int64_t u = 0; u < keys; ++u) {
        Value position = k.add(n, u), weight = k.broadcast(k.load(weights, position));
        // A masked key's value must not count, whatever it is.
        Value isLive =
            pureScale && mask.isInterval() && dense.empty() ? Value() : k.compare(Predicate::UNE, weight, zero);
        Value offset = value.along(k, value.base, Dim::J, keyAt(k.add(first, position)));
        if (spec.isInBytes(spec.value))
          weight = k.mulf(weight, k.broadcastWord(value.flat, k.add(offset, valueWidth)));
        int64_t line = 64 / (value.elementType().getIntOrFloatBitWidth() / 8);
        for (int64_t e = 0; e < valueWidth && begin == 0 && !isPicked; e += line)
          prefetch(value, k.add(value.along(k, offset, Dim::J, k.index(kAhead)), e));
        for (int64_t c = 0; c < width; ++c) {
          Value &sum = next[u * width + c];
          Value after = k.fma(loadChunk(value, offset, begin + c, valueWidth), weight, sum);
          sum = isLive ? k.select(isLive, after, sum) : after;
        }
      }
      return next;
    };
    Value whole = k.floorTo(count, unroll);
    Values partial = k.loop(k.index(0), whole, unroll, Values(unroll * width, zero),
                            [&](Value n, ValueRange carried) { return step(n, carried, unroll); });
    if (unroll > 1)
      partial = k.loop(whole, count, 1, partial, [&](Value n, ValueRange carried) { return step(n, carried, 1); });
    for (int64_t c = 0; c < width; ++c) {
      Values column;
      for (int64_t u = 0; u < unroll; ++u)
        column.push_back(partial[u * width + c]);
      Value sum = k.tree(column, [&](Value x, Value y) { return k.addf(x, y); });
      k.store(k.fma(loadRecord(sumsAt(begin + c)), factor, sum), place.records, sumsAt(begin + c));
    }
  }
}

/// 1 / row sum, and what the policy says of a row without a visible key.
Value RowEmitter::normaliser(Value sum) {
  Value zero = k.splat(0), one = k.splat(1);
  if (spec.canMask() && spec.maskedRows == MaskedRows::uniform) {
    Value isEmpty = isEmptyRow(sum);
    k.branch(k.unlikely(k.any(isEmpty)), [&] {
      k.loop(k.index(0), k.index(spec.keyBlock), k.lanes, [&](Value n) { k.store(one, weights, n); });
      k.loop(k.index(0), numKeys, spec.keyBlock,
             [&](Value first) { addValues(first, k.min(k.sub(numKeys, first), k.index(spec.keyBlock)), one); });
      markLong(k.b);
    });
    Value count = arith::IndexCastOp::create(k.b, k.loc, k.b.getI64Type(), numKeys);
    Value all = k.broadcast(arith::SIToFPOp::create(k.b, k.loc, k.b.getF32Type(), count));
    sum = k.select(isEmpty, all, sum);
  }
  Value factor = k.divf(one, sum);
  if (spec.canMask() && spec.maskedRows == MaskedRows::zero)
    factor = k.select(isEmptyRow(sum), zero, factor);
  // With no keys at all the product of weights and values is an empty sum.
  if (std::optional<int64_t> keys = LaneBuilder::constant(numKeys); !keys || !*keys)
    factor = k.select(k.less(k.index(0), numKeys), factor, zero);
  return factor;
}

void RowEmitter::storeResult(Value factor) {
  Value base = result.along(k, result.base, Dim::I, row);
  bool isDense = result.isContiguous(Dim::E);
  Type type = result.elementType();
  for (int64_t n = 0; n < chunks(valueWidth); ++n) {
    Value offset = k.index(n * k.lanes), chunk = k.mulf(loadRecord(sumsAt(n)), factor);
    int64_t rest = valueWidth - n * k.lanes;
    if (!isDense)
      k.store(chunk, place.records, sumsAt(n));
    else if (rest < k.lanes)
      k.storeFirst(k.fromF32(chunk, type), result.flat, k.add(base, offset), k.index(rest));
    else
      k.store(k.fromF32(chunk, type), result.flat, k.add(base, offset));
  }
  if (!isDense)
    k.loop(k.index(0), k.index(valueWidth), 1, [&](Value e) {
      memref::StoreOp::create(k.b, k.loc, k.fromF32(k.load(place.records, k.add(place.record, e)), type), result.flat,
                              result.along(k, base, Dim::E, e));
    });
}

/// Scores of keys from `first` on wait for the sum of all where their weights will stand.
void RowEmitter::keepScores(Value scores, Value first, Value count) {
  for (const HeadView &to : weightResults)
    k.storeFirst(scores, to.flat, k.add(to.along(k, to.base, Dim::I, row), first), count);
}

/// Makes weights of the scores that keepScores has stored, and stores those of the keys outside the bounds.
void RowEmitter::storeWeights(Value sum, Value factor) {
  if (weightResults.empty())
    return;
  Value reference = orZero(loadRecord(maximumAt(place.record))), zero = k.splat(0), share;
  if (spec.canMask() && spec.maskedRows == MaskedRows::uniform)
    share = k.select(isEmptyRow(sum), factor, zero);
  auto type = VectorType::get({k.lanes}, k.b.getI1Type());
  auto before = [&](Value key, Value first) -> Value {
    return vector::CreateMaskOp::create(k.b, k.loc, type, k.sub(key, first));
  };
  for (const HeadView &to : weightResults) {
    Value base = to.along(k, to.base, Dim::I, row);
    k.loop(k.index(0), numKeys, k.lanes, [&](Value first) {
      Value offset = k.add(base, first), count = k.sub(numKeys, first);
      Value weight = exp(k.subf(k.loadFirst(to.flat, offset, count, k.lanes), reference));
      // Keys outside the bounds were not read; 0 times the factor is the NaN of a row that has one.
      if (!mask.isFull() && !takesPart) {
        weight = k.select(before(bounds.upper, first), weight, zero);
        weight = k.select(before(bounds.lower, first), zero, weight);
      }
      weight = k.mulf(weight, factor);
      k.storeFirst(share ? k.addf(weight, share) : weight, to.flat, offset, count);
    });
  }
}

bool listsKeys(const AttentionSpec &spec) {
  return spec.blockLists.size() == 1 && spec.blockLists.front().rows == 1 && spec.blockLists.front().columns == 1;
}

bool canEmitAttentionRow(const AttentionSpec &spec) {
  // Elements along `dim` stand side by side, but for dimensions of size 1.
  auto isDense = [&](size_t operand, unsigned dim) {
    AffineMap map = spec.maps[operand];
    AffineExpr expr = getAffineDimExpr(dim, map.getContext());
    unsigned last = map.getNumResults();
    while (last > 0 && map.getResult(last - 1) != expr && spec.types[operand].getDimSize(last - 1) == 1)
      --last;
    return last > 0 && map.getResult(last - 1) == expr && llvm::count(map.getResults(), expr) == 1;
  };
  // Weights take the place of scores, in the same type.
  bool keepsWeights = llvm::all_of(spec.extras, [&](const AttentionSpec::Extra &extra) {
    bool isWeights = extra.source == ExtraSource::weights || extra.source == ExtraSource::final_weights;
    return isWeights && spec.types[extra.operand].getElementType().isF32() && isDense(extra.operand, Dim::J);
  });
  // Keys that a list leaves out are never looked at.
  bool canSkip =
      spec.blockLists.empty() || (spec.blockLists.size() == 1 && spec.extras.empty() && !spec.letsHiddenTakePart());
  // Sums of one feature have no rows of keys.
  bool hasRows = isDense(spec.keyOperand, Dim::D) || (listsKeys(spec) && spec.getStaticSize(Dim::D) == 1);
  return spec.normalizer == Normalizer::softmax && !spec.weight && !spec.softmaxType && keepsWeights && canSkip &&
         isDense(spec.value, Dim::E) && (!spec.formula().hasKey || hasRows);
}

} // namespace attn
