#include "passes/kernels/cpu/AttentionRowEmitter.h"

#include "passes/kernels/shared/KernelFunction.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

/// Accumulators of the sum of values: the latency of an FMA times its rate.
static constexpr int64_t kChains = 8;

RowEmitter::RowEmitter(AttentionCode &k, const AttentionRowScratch &scratch, const AttentionRowPlace &place)
    : k(k), spec(k.spec), lanes(k.lanes), scratch(scratch), place(place), keyWidth(*spec.getStaticSize(Dim::D)),
      valueWidth(*spec.getStaticSize(Dim::E)), pureScale(spec.getPureScale()), batch(place.batch), head(place.head),
      row(place.row), numKeys(k.size(Dim::J)), mask(k, spec, k.buffers, batch, head, numKeys),
      lists(k, batch, head, numKeys), weights(scratch.weights) {
  auto view = [&](size_t n) { return k.view(n, batch, head); };
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
  KeyMask::Bounds bounds = mask.bounds(row, row);
  lower = bounds.lower;
  upper = bounds.upper;
}

/// exp of a difference of scores.
Vec RowEmitter::exp(const Vec &difference) { return k.exp2(pureScale ? difference : difference * kLog2E); }

/// exp(before - after); 1 itself where nothing moved: the roundings of many blocks would add up.
Vec RowEmitter::rescaling(const Vec &before, const Vec &after) {
  return select(before == after, k.splat(1), exp(before - after));
}

/// What is subtracted from the scores: 0 while no key counts, or only a NaN.
Vec RowEmitter::orZero(const Vec &maximum) { return select(maximum > -k.kInfinity, maximum, k.splat(0)); }

void RowEmitter::prefetch(const OperandView &view, const Index &offset) {
  view.flat.prefetch(offset, /*isWrite=*/false, /*locality=*/3);
}

void RowEmitter::begin() {
  for (int64_t n = 0; n < chunks(valueWidth) + 2; ++n)
    place.records.setVector(k.splat(n == chunks(valueWidth) ? -k.kInfinity : 0), sumsAt(n));
  if (!spec.formula().hasKey)
    return;
  Vecs staged = loadRow(query, query.along(query.base, Dim::I, row));
  if (pureScale)
    for (Vec &chunk : staged)
      chunk = chunk * (*pureScale * kLog2E);
  if (spec.formula().hasAlignment)
    staged.append(loadRow(alignment, alignment.base));
  for (auto [n, chunk] : llvm::enumerate(staged))
    scratch.queries.setVector(chunk, place.query + n * lanes);
}

void RowEmitter::addKeys(const Index &first, const Index &upper) {
  end = upper;
  queryChunks.clear(), alignmentChunks.clear();
  int64_t all = !spec.formula().hasKey ? 0 : chunks(keyWidth);
  for (int64_t n = 0; n < all; ++n) {
    queryChunks.push_back(scratch.queries.vector(lanes, place.query + n * lanes));
    if (spec.formula().hasAlignment)
      alignmentChunks.push_back(scratch.queries.vector(lanes, place.query + (all + n) * lanes));
  }
  Index count = upper - first;
  Vec before = loadRecord(maximumAt(place.record));
  Vec maximum = greaterOf(maximumOf(first, count), before), reference = orZero(maximum);
  Vec factor = rescaling(before, reference);
  Vec sum = k.loop(0, count, lanes, k.splat(0), [&](Index n, Vec sum) {
    Vec scores = weights.vector(lanes, n), weight = exp(scores - reference);
    weights.setVector(weight, n);
    keepScores(scores, first + n, count - n);
    return sum + weight;
  });
  addValues(first, count, factor);
  // A block's sum first: short sums keep 128k keys accurate.
  Vec total = fma(loadRecord(totalAt(place.record)), factor, sum);
  place.records.setVector(total, totalAt(place.record));
  place.records.setVector(maximum, maximumAt(place.record));
}

void RowEmitter::addListedKeys(const Index &first, const Index &upper) {
  Index from = maximum(first, this->lower), to = minimum(upper, this->upper);
  auto runFrom = [&](const Index &position) {
    auto [start, stop] = lists.nextRun(row, position);
    return KeyLists::Run{start, minimum(stop, to)};
  };
  auto addRuns = [&] {
    k.repeat(
        runFrom(from), [&](Index start, Index stop) { return start < stop; },
        [&](Index start, Index stop) {
          Index cut = minimum(stop, start + spec.keyBlock);
          addKeys(start, cut);
          return runFrom(cut);
        });
  };
  if (!scratch.keys.value())
    return addRuns();
  Index count = lists.countAscending(row);
  k.when(unlikely(count < 0), addRuns, [&] { addPickedKeys(from, to, count); });
}

/// Adds those of the first `count` keys of the list that are in [first, upper), side by side as if they stood so.
void RowEmitter::addPickedKeys(const Index &first, const Index &upper, const Index &count) {
  k.loop(0, count, spec.keyBlock, [&](Index begin) {
    Index stop = minimum(begin + spec.keyBlock, count);
    Index picked = k.loop(begin, stop, 1, k.index(0), [&](Index n, Index picked) {
      Index key = lists.entryOf(row, n);
      scratch.keys.set(key, picked);
      Mask isIn = (key < upper) & (first < key + 1);
      return select(isIn, picked + 1, picked);
    });
    isPicked = true;
    k.when(picked > 0, [&] { addKeys(k.index(0), picked); });
    isPicked = false;
  });
}

void RowEmitter::merge(const Index &other) {
  Vec mine = loadRecord(maximumAt(place.record)), its = loadRecord(maximumAt(other));
  Vec maximum = greaterOf(mine, its), reference = orZero(maximum);
  Vec keeps = rescaling(mine, reference), takes = rescaling(its, reference);
  auto add = [&](const Index &to, const Index &from) {
    Vec its = loadRecord(from);
    place.records.setVector(fma(its, takes, loadRecord(to) * keeps), to);
  };
  for (int64_t n = 0; n < chunks(valueWidth); ++n)
    add(sumsAt(n), other + n * lanes);
  add(totalAt(place.record), totalAt(other));
  place.records.setVector(maximum, maximumAt(place.record));
}

void RowEmitter::finish(const QueuedRows &queue) {
  Vec sum = acrossLanes(loadRecord(totalAt(place.record)), std::plus<>()), factor = normaliser(sum);
  storeWeights(sum, factor);
  storeResult(factor);
  if (spec.letsHiddenTakePart())
    k.when(unlikely(any(isEmptyRow(sum))),
           [&] { queue.addEmpty(k, attn::splat(k.truth(true), lanes), batch, head, row, row + 1); });
}

/// Adds the weighted values of the key at `position` to `sums`, from chunk `chunk` on.
void RowEmitter::addValue(const Index &first, const Index &position, int64_t chunk, MutableArrayRef<Vec> sums) {
  Vec weight = k.splat(weights(position));
  // A masked key's value must not count, whatever it is.
  std::optional<Mask> isLive;
  if (!pureScale || !mask.isInterval() || !dense.empty())
    isLive = weight != 0;
  Index offset = value.along(value.base, Dim::J, keyAt(first + position));
  if (spec.isInBytes(spec.value))
    weight = weight * k.word(value.flat, offset + valueWidth);
  int64_t line = 64 / value.elementBytes();
  for (int64_t e = 0; e < valueWidth && chunk == 0 && !isPicked; e += line)
    prefetch(value, value.along(offset, Dim::J, kAhead) + e);
  for (auto [n, sum] : llvm::enumerate(sums)) {
    Vec after = fma(loadChunk(value, offset, chunk + n, valueWidth), weight, sum);
    sum = isLive ? select(*isLive, after, sum) : after;
  }
}

/// sums = sums * factor + the weighted values of `count` keys.
void RowEmitter::addValues(const Index &first, const Index &count, const Vec &factor) {
  int64_t all = chunks(valueWidth);
  for (int64_t begin = 0; begin < all; begin += kChains) {
    int64_t width = std::min(kChains, all - begin), unroll = llvm::bit_floor<uint64_t>(kChains / width);
    auto step = [&](const Index &n, Vecs sums, int64_t keys) {
      for (int64_t u = 0; u < keys; ++u)
        addValue(first, n + u, begin, MutableArrayRef(sums).slice(u * width, width));
      return sums;
    };
    Index whole = floorTo(count, unroll);
    Vecs partial = k.loop(0, whole, unroll, Vecs(unroll * width, k.splat(0)),
                          [&](Index n, Vecs sums) { return step(n, sums, unroll); });
    if (unroll > 1)
      partial = k.loop(whole, count, 1, partial, [&](Index n, Vecs sums) { return step(n, sums, 1); });
    for (int64_t c = 0; c < width; ++c) {
      Vecs column;
      for (int64_t u = 0; u < unroll; ++u)
        column.push_back(partial[u * width + c]);
      Vec sum = tree<Vec>(column, std::plus<>());
      place.records.setVector(fma(loadRecord(sumsAt(begin + c)), factor, sum), sumsAt(begin + c));
    }
  }
}

/// 1 / row sum, and what the policy says of a row without a visible key.
Vec RowEmitter::normaliser(Vec sum) {
  Vec zero = k.splat(0), one = k.splat(1);
  if (spec.canMask() && spec.maskedRows == MaskedRows::uniform) {
    Mask isEmpty = isEmptyRow(sum);
    k.when(unlikely(any(isEmpty)), [&] {
      k.loop(0, spec.keyBlock, lanes, [&](Index n) { weights.setVector(one, n); });
      k.loop(0, numKeys, spec.keyBlock,
             [&](Index first) { addValues(first, minimum(numKeys - first, spec.keyBlock), one); });
      markLong(k.b);
    });
    Vec all = k.splat(convert(toNum(numKeys, k.b.getI64Type()), k.f32Type()));
    sum = select(isEmpty, all, sum);
  }
  Vec factor = one / sum;
  if (spec.canMask() && spec.maskedRows == MaskedRows::zero)
    factor = select(isEmptyRow(sum), zero, factor);
  // With no keys at all the product of weights and values is an empty sum.
  if (std::optional<int64_t> keys = getConstantIntValue(numKeys.value()); !keys || !*keys)
    factor = select(numKeys > 0, factor, zero);
  return factor;
}

void RowEmitter::storeResult(const Vec &factor) {
  Index base = result.along(result.base, Dim::I, row);
  bool isDense = result.isContiguous(Dim::E);
  Type type = result.elementType();
  for (int64_t n = 0; n < chunks(valueWidth); ++n) {
    Vec chunk = loadRecord(sumsAt(n)) * factor;
    if (!isDense)
      place.records.setVector(chunk, sumsAt(n));
    else
      result.flat.setFirst(convert(chunk, type), valueWidth - n * lanes, base + n * lanes);
  }
  if (!isDense)
    k.loop(0, valueWidth, 1, [&](Index e) {
      Num element = convert(place.records(place.record + e), type);
      result.flat.set(element, result.along(base, Dim::E, e));
    });
}

/// Scores of keys from `first` on wait for the sum of all where their weights will stand.
void RowEmitter::keepScores(const Vec &scores, const Index &first, const Index &count) {
  for (const OperandView &to : weightResults)
    to.flat.setFirst(scores, count, to.along(to.base, Dim::I, row) + first);
}

/// Makes weights of the scores that keepScores has stored, and stores those of the keys outside the bounds.
void RowEmitter::storeWeights(const Vec &sum, const Vec &factor) {
  if (weightResults.empty())
    return;
  Vec reference = orZero(loadRecord(maximumAt(place.record))), zero = k.splat(0);
  std::optional<Vec> share;
  if (spec.canMask() && spec.maskedRows == MaskedRows::uniform)
    share = select(isEmptyRow(sum), factor, zero);
  for (const OperandView &to : weightResults) {
    Index base = to.along(to.base, Dim::I, row);
    k.loop(0, numKeys, lanes, [&](Index first) {
      Index offset = base + first, count = numKeys - first;
      Vec weight = exp(to.flat.first(count, lanes, offset) - reference);
      // Keys outside the bounds were not read; 0 times the factor is the NaN of a row that has one.
      if (!mask.isFull()) {
        weight = select(firstLanes(upper - first, lanes), weight, zero);
        weight = select(firstLanes(lower - first, lanes), zero, weight);
      }
      weight = weight * factor;
      to.flat.setFirst(share ? weight + *share : weight, count, offset);
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
