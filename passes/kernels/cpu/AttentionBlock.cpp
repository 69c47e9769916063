#include "passes/kernels/cpu/AttentionBlock.h"

#include "passes/kernels/cpu/AttentionBlockEmitter.h"
#include "passes/kernels/cpu/AttentionTransfer.h"
#include "passes/kernels/shared/KernelFunction.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

BlockEmitter::BlockEmitter(AttentionCode &k, const AttentionScratch &scratch, const Index &batch, const Index &head,
                           const Index &begin, int64_t vectors, std::optional<Again> again)
    : k(k), spec(k.spec), lanes(k.lanes), scratch(scratch), vectors(vectors), keyWidth(*spec.getStaticSize(Dim::D)),
      valueWidth(*spec.getStaticSize(Dim::E)), paddedValueWidth(llvm::alignTo(valueWidth, lanes)),
      // Sums that start from the maximum are rounded with it; a sweep for weights finds another than the one before.
      pureScale(!again && !spec.hasWeightSweep() ? spec.getPureScale() : std::nullopt), canMask(spec.canMask()),
      isNarrow(spec.hasNarrowProducts), batch(batch), head(head), begin(begin), numKeys(k.size(Dim::J)),
      mask(k, spec, k.buffers, batch, head, numKeys), lists(k, batch, head, numKeys), again(again),
      end(again ? again->end : begin + vectors * lanes) {
  query = view(spec.query);
  value = view(spec.value);
  result = view(spec.result);
  if (spec.formula().hasKey)
    key = view(spec.keyOperand);
  if (spec.formula().hasAlignment)
    alignment = view(spec.alignment);
  int64_t rows = vectors * lanes;
  Index numQueries = k.size(Dim::I);
  std::optional<int64_t> known = getConstantIntValue(numQueries.value());
  // The last block reaches back over rows of the one before, so that it reads
  // no row twice; it stores its own rows only.
  Index first = maximum(minimum(begin, numQueries - rows), 0);
  queries = {first, numQueries, vectors, lanes, /*mayClamp=*/!known || *known < rows};
  for (size_t n = 0; n < spec.numCaptures; ++n)
    captures.push_back(view(spec.firstCapture + n));
  for (size_t operand : spec.denseMasks)
    dense.push_back(view(operand));
  auto readsRows = [](const OperandView &view) { return view.has(Dim::I) && view.isContiguous(Dim::J); };
  bool readsAnyRows = llvm::any_of(captures, readsRows) || llvm::any_of(dense, readsRows) ||
                      (!spec.formula().hasKey && readsRows(query));
  joinsEdge = lanes == 16 && (!readsAnyRows || k.isDear(spec.score));
  bounds = mask.bounds(begin, endOfRows() - 1);
  bool needsAll = needsAllKeys();
  // Whole tiles, but for the end of all keys.
  Index cut = floorTo(bounds.upper + (spec.keyTile - 1), spec.keyTile);
  bounds.lower = needsAll ? k.index(0) : floorTo(bounds.lower, spec.keyTile);
  bounds.upper = needsAll ? numKeys : minimum(cut, numKeys);
  if (again && !needsAll) {
    bounds.lower = select(again->isAgain, k.index(0), bounds.lower);
    bounds.upper = select(again->isAgain, numKeys, bounds.upper);
  }
}

Mask BlockEmitter::emit() {
  if (spec.isTanh())
    measureQueries();
  for (const OperandView &capture : captures)
    readers.emplace_back(capture, queries);
  for (const OperandView &term : dense)
    denseReaders.emplace_back(term, queries);
  if (!spec.formula().hasKey)
    givenReader.emplace(query, queries);
  mask.setQueries(queries);
  if (!canMask || isAlwaysAgain()) {
    if (canMask)
      isCareful = k.truth(true);
    attend();
    return {};
  }
  // A masked key has weight 0, and 0 times an infinite or NaN value must not
  // count. Where a result is not finite the block is computed once more with
  // the products of zero weights left out.
  bool isFinite = spec.letsHiddenTakePart();
  // Whether there is an attempt to make, whether carefully, and which rows are empty.
  using Attempt = std::tuple<Mask, Mask, Masks>;
  Attempt first(k.truth(true), again ? again->isAgain : k.truth(false), Masks());
  if (isFinite)
    std::get<2>(first).assign(vectors, splat(k.truth(false), lanes));
  Masks empty = std::get<2>(k.loop(0, 2, 1, first, [&](Index, Mask isDue, Mask careful, Masks before) {
    return k.choose(
        isDue,
        [&] {
          isCareful = careful;
          State state = attend();
          Mask isFirst = !isCareful, isBad = isFirst & anyNotFinite();
          if (!isFinite)
            return Attempt{isBad, isCareful | isBad, {}};
          // Rows that see no key are NaN so far, and no reason to try again.
          Masks empty = emptyRows(state);
          isBad = isBad & !anyOf(empty);
          if (again) // and without keys there is nothing to take part
            empty.front() = empty.front() & splat(!again->isAgain, lanes);
          return Attempt{isBad, isCareful | isBad, empty};
        },
        [&] { return Attempt{k.truth(false), careful, before}; });
  }));
  if (!isFinite)
    return {};
  for (int64_t v = 0; v < vectors; ++v)
    scratch.emptyRows.setVector(select(empty[v], k.splat(1), k.splat(0)), v * lanes);
  return anyOf(empty);
}

//===----------------------------------------------------------------------===//
// One attempt
//===----------------------------------------------------------------------===//

/// Computes the block: scratch.results, and scratch.factors if there are any.
BlockEmitter::State BlockEmitter::attend() {
  Vec zero = k.splat(0);
  k.loop(0, valueWidth, 1, [&](Index e) {
    for (int64_t v = 0; v < vectors; ++v)
      scratch.results.setVector(zero, at(e, v));
  });
  State state{Vecs(vectors, zero), Vecs(vectors, zero), {}};
  if (!spec.hasWeightSweep()) {
    state = sweepKeys(Sweep::Online, state);
    fillExtras(state);
    storeLogSums(state);
    if (canMask && spec.maskedRows == MaskedRows::uniform)
      fillUniformRows(state);
    for (auto [v, factor] : llvm::enumerate(normalisers(state)))
      scratch.factors.setVector(factor, static_cast<int64_t>(v) * lanes);
    return state;
  }
  if (spec.normalizer != Normalizer::none)
    state = sweepKeys(Sweep::Reduce, state);
  fillExtras(state);
  // What becomes of the NaN of a row that sees no key, the weight region says: with such a row, no key is skipped.
  auto some = bounds;
  if (canMask && spec.maskedRows == MaskedRows::nan && spec.normalizer != Normalizer::none && !spec.needsAllKeys()) {
    seesAll = anyOf(emptyRows(state));
    bounds.lower = select(seesAll, k.index(0), bounds.lower);
    bounds.upper = select(seesAll, numKeys, bounds.upper);
  }
  sweepKeys(Sweep::Weights, state);
  bounds = some;
  seesAll = Mask();
  storeLogSums(state);
  return state;
}

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

BlockEmitter::State BlockEmitter::sweepKeys(Sweep sweep, const State &start) {
  bool isReducing = sweep != Sweep::Weights;
  State init = isReducing ? start : State(), end;
  // Blocks of keys between a prefix and the keys near the queries are left out.
  bool leavesGap = !mask.isInterval() && !needsAllKeys() && spec.extras.empty();
  auto block = [&](const Index &first, const State &state) {
    auto compute = [&] { return sweepBlock(sweep, first, isReducing ? state : start); };
    if (!leavesGap)
      return compute();
    Mask isSeen = (first < bounds.gapLower) | (bounds.gapUpper < first + spec.keyBlock);
    if (again)
      isSeen = isSeen | again->isAgain;
    if (seesAll.value())
      isSeen = isSeen | seesAll;
    return k.choose(isSeen, compute, [&] { return state; });
  };
  if (lists.isFull()) {
    end = k.loop(bounds.lower, bounds.upper, spec.keyBlock, init, block);
    markLong(k.b);
    return isReducing ? end : start;
  }
  // Blocks of keys before the next one that a list names are left out.
  using Packed = std::tuple<Index, State>;
  isPacked = true;
  end = std::get<1>(k.loop(bounds.lower, bounds.upper, spec.keyBlock, Packed(bounds.lower, init),
                           [&](Index first, Index next, State state) {
                             auto mark = [&] {
                               Index next = lists.markKeys(queries, scratch.marks, first);
                               return Packed(next, block(first, state));
                             };
                             if (needsAllKeys())
                               return mark();
                             Mask isListed = next < first + spec.keyBlock;
                             if (again)
                               isListed = isListed | again->isAgain;
                             if (seesAll.value())
                               isListed = isListed | seesAll;
                             return k.choose(isListed, mark, [&] { return Packed(next, state); });
                           }));
  markLong(k.b);
  isPacked = false;
  return isReducing ? end : start;
}

/// The block of keys from `first` on; what it returns is empty in the sweep of the weights, for which `before` is
/// final.
BlockEmitter::State BlockEmitter::sweepBlock(Sweep sweep, const Index &first, const State &before) {
  bool isReducing = sweep != Sweep::Weights;
  std::optional<int64_t> keys = getConstantIntValue(numKeys.value());
  bool hasEdge = !keys || *keys % spec.keyTile, hasOwnEdge = hasEdge && !joinsEdge;
  Index count = minimum(bounds.upper - first, spec.keyBlock);
  Index whole = hasOwnEdge ? floorTo(count, spec.keyTile) : count;
  Swept swept(isPacked ? k.index(0) : count, k.index(0), State());
  if (isReducing)
    std::get<State>(swept) = {before.maximum, before.sum, Vecs(vectors, k.splat(0))};
  swept = k.loop(0, whole, spec.keyTile, swept, [&](Index row, Index lower, Index upper, State state) {
    return sweepTile(sweep, first, row, /*isEdge=*/hasEdge && !hasOwnEdge, before, {lower, upper, state});
  });
  if (hasOwnEdge)
    swept = k.choose(
        whole < count, [&] { return sweepTile(sweep, first, whole, /*isEdge=*/true, before, swept); },
        [&] { return swept; });
  auto [lower, upper, state] = swept;
  if (sweep != Sweep::Reduce) {
    if (dense.empty() && !isPacked)
      addValues(first, k.index(0), count);
    else
      addValues(first, lower, minimum(upper, count));
  }
  for (auto [sum, partial] : llvm::zip_equal(state.sum, state.partial))
    sum = sum + partial;
  state.partial.clear();
  return state;
}

/// One tile of keys, `row` keys behind `first`, where the block of keys starts; with `isEdge` it may reach beyond the
/// last key. `final`: the state in the sweep of the weights.
BlockEmitter::Swept BlockEmitter::sweepTile(Sweep sweep, const Index &first, Index row, bool isEdge, const State &final,
                                            const Swept &before) {
  bool isReducing = sweep != Sweep::Weights, needsAll = needsAllKeys();
  const auto &[lower, upper, carried] = before;
  const State &state = isReducing ? carried : final;
  Index keyIndex = first + row, filled = row + spec.keyTile;
  Mask isLive;
  if (isPacked) {
    tileMarks = row * (vectors * lanes / spec.keyTile);
    if (!needsAll)
      isLive = isListedTile();
    row = upper;
    filled = row + (isEdge ? minimum(numKeys - keyIndex, spec.keyTile) : k.index(spec.keyTile));
  }
  bool isOwnEdge = isEdge && !joinsEdge;
  if (spec.isWindow() && !isOwnEdge)
    prefetchNext(keyIndex);
  else if (!isOwnEdge && !isAlwaysAgain())
    prefetchNextBlock(keyIndex);
  auto compute = [&, &lower = lower, &upper = upper] {
    if (isPacked)
      scratch.tileKeys.set(keyIndex, row / spec.keyTile);
    Vecs scores =
        spec.storedKeys ? storedTile(sweep, keyIndex, row, isEdge, state) : scoreTile(keyIndex, row, isEdge, state);
    Swept next(minimum(lower, row), dense.empty() && !isPacked ? upper : filled, State());
    if (isReducing)
      std::get<State>(next) = softmaxTile(sweep, row, std::move(scores), state);
    else
      storeWeights(row, keyIndex, isEdge, std::move(scores), state);
    return next;
  };
  if (Mask shows = needsAll ? Mask() : isLiveTile(keyIndex, isEdge); shows.value())
    isLive = joined(isLive, shows);
  if (!isLive.value())
    return compute();
  if (seesAll.value())
    isLive = isLive | seesAll;
  if (again)
    isLive = isLive | again->isAgain; // not null: needsAllKeys
  return k.choose(isLive, compute, [&] {
    if (sweep != Sweep::Reduce && !isPacked)
      for (int64_t v = 0; v < vectors; ++v)
        keepWeights(row, v, Vecs(spec.keyTile, k.splat(0)));
    return before;
  });
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

AttentionScratch AttentionScratch::allocate(AttentionCode &k, int64_t vectors) {
  const AttentionSpec &spec = k.spec;
  int64_t rows = vectors * k.lanes, d = *spec.getStaticSize(Dim::D), padded = llvm::alignTo(d, k.lanes);
  int64_t width = llvm::alignTo(*spec.getStaticSize(Dim::E), k.lanes);
  AttentionScratch scratch;
  scratch.results = k.scratch(width * rows);
  scratch.weights = k.scratch(std::max(spec.keyBlock, width) * rows);
  if (spec.formula().hasKey) {
    scratch.queries = k.scratch(d * rows);
    bool isWidened = spec.formula().isProduct && !spec.types[spec.keyOperand].getElementType().isF32();
    if (spec.isTanh() || (isWidened && !spec.hasNarrowProducts))
      scratch.keys = k.scratch(padded * spec.keyTile);
  }
  if (spec.isTanh()) {
    scratch.rawQueries = k.scratch(d * rows);
    scratch.rawKeys = k.scratch(padded * spec.keyTile);
  }
  if (!spec.types[spec.value].getElementType().isF32())
    scratch.values = k.scratch(spec.keyBlock * width);
  if (spec.storedKeys)
    scratch.scores = k.scratch(spec.storedKeys * rows);
  if (!spec.hasWeightSweep() && spec.normalizer != Normalizer::none)
    scratch.factors = k.scratch(rows);
  if (spec.letsHiddenTakePart())
    scratch.emptyRows = k.scratch(rows);
  bool hasDear = k.isDear(spec.score) || k.isDear(spec.weight) || k.isDear(spec.masked);
  if (!spec.extras.empty() || hasDear)
    scratch.tile = k.scratch(spec.keyTile * rows);
  scratch.captured.resize(spec.numCaptures);
  for (auto [n, buffer] : llvm::enumerate(scratch.captured)) {
    AffineMap map = spec.maps[spec.firstCapture + n];
    if (hasDear && map.isFunctionOfDim(Dim::I) && map.isFunctionOfDim(Dim::J))
      buffer = k.scratch(spec.keyTile * rows, spec.types[spec.firstCapture + n].getElementType());
  }
  if (!spec.blockLists.empty()) {
    scratch.marks = k.scratch(KeyLists::sizeOfMarks(spec, rows), k.b.getI32Type());
    scratch.tileKeys = k.scratch(spec.keyBlock / spec.keyTile, k.b.getIndexType());
  }
  return scratch;
}

/// What queries are multiplied by, where the scores want no more of them.
static std::optional<double> getQueryFactor(const AttentionSpec &spec) {
  std::optional<double> scale = spec.getPureScale();
  if (!scale || spec.hasWeightSweep() || spec.hasNarrowProducts)
    return std::nullopt;
  return *scale * AttentionCode::kLog2E;
}

void emitAttentionBlock(AttentionCode &k, const AttentionScratch &scratch, const Index &batch, const Index &head,
                        const Index &begin, int64_t most, const Mask &isWhole) {
  Index vectors = isWhole.value() ? select(isWhole, k.index(most), k.index(1)) : k.index(most);
  BlockTransfer transfer(k, scratch, {batch, head, begin, begin + vectors * k.lanes, vectors}, most);
  std::optional<double> factor = getQueryFactor(k.spec);
  transfer.loadQueries(factor ? k.f32(*factor) : Num());
  auto emit = [&](int64_t count) { BlockEmitter(k, scratch, batch, head, begin, count).emit(); };
  isWhole.value() ? k.when(isWhole, [&] { emit(most); }, [&] { emit(1); }) : emit(most);
  transfer.storeResult();
}

QueuedRows QueuedRows::allocate(AttentionCode &k, int64_t most, int64_t vectors) {
  QueuedRows rows;
  rows.vectors = vectors;
  rows.count = k.scratch(1, k.b.getIndexType());
  rows.fields = k.scratch(most * kFields, k.b.getIndexType());
  rows.marks = k.scratch(most * k.lanes);
  rows.count.set(k.index(0), 0);
  return rows;
}

void QueuedRows::add(AttentionCode &k, int64_t kind, const Mask &isEmpty, ArrayRef<Index> place) const {
  Index n = toIndex(count(0));
  for (auto [field, value] : llvm::enumerate(place))
    fields.set(value, n * kFields + field);
  fields.set(k.index(kind), n * kFields + (kFields - 1));
  marks.setVector(select(isEmpty, k.splat(1), k.splat(0)), n * k.lanes);
  count.set(n + 1, 0);
}

void QueuedRows::addWhole(AttentionCode &k, const Index &batch, const Index &head, const Index &begin) const {
  add(k, kWhole, splat(k.truth(false), k.lanes), {batch, head, begin, begin + vectors * k.lanes});
}

void QueuedRows::addSingle(AttentionCode &k, const Index &batch, const Index &head, const Index &begin) const {
  add(k, kSingle, splat(k.truth(false), k.lanes), {batch, head, begin, begin + k.lanes});
}

void QueuedRows::addEmpty(AttentionCode &k, const Mask &isEmpty, const Index &batch, const Index &head,
                          const Index &begin, const Index &end) const {
  add(k, kAgain, isEmpty, {batch, head, begin, end});
}

void QueuedRows::emit(AttentionCode &k, const AttentionScratch &scratch) const {
  // Those that turn out to see no key join the end.
  k.repeat(
      k.index(0), [&](Index n) { return n < toIndex(count(0)); },
      [&](Index n) {
        auto field = [&](int64_t number) { return toIndex(fields(n * kFields + number)); };
        emitQueued(k, scratch, {field(0), field(1), field(2), field(3), k.index(1)}, field(4),
                   marks.vector(k.lanes, n * k.lanes) > 0);
        return n + 1;
      });
}

/// What is queued at `place`, of this `kind`.
void QueuedRows::emitQueued(AttentionCode &k, const AttentionScratch &scratch, BlockPlace place, const Index &kind,
                            const Mask &isEmpty) const {
  const auto &[batch, head, begin, end, one] = place;
  std::optional<double> whole = vectors > 1 ? getQueryFactor(k.spec) : std::nullopt;
  Mask isWhole = vectors > 1 ? kind == kWhole : Mask();
  Num factor = whole ? select(isWhole, k.f32(*whole), k.f32(1)) : Num();
  if (isWhole.value())
    place.vectors = select(isWhole, k.index(vectors), one);
  BlockTransfer transfer(k, scratch, place, std::max<int64_t>(vectors, 1));
  transfer.loadQueries(factor);
  auto emitOne = [&] {
    BlockEmitter::Again again{vectors ? kind == kAgain : Mask(), isEmpty, end};
    Mask areEmpty = BlockEmitter(k, scratch, batch, head, begin, /*vectors=*/1, again).emit();
    if (areEmpty.value())
      k.when(unlikely(areEmpty),
             [&] { addEmpty(k, scratch.emptyRows.vector(k.lanes, 0) > 0, batch, head, begin, end); });
  };
  auto emitWhole = [&] {
    Mask areEmpty = BlockEmitter(k, scratch, batch, head, begin, vectors).emit();
    k.when(unlikely(areEmpty), [&] {
      Index rows = k.size(Dim::I), first = transfer.firstRow();
      k.loop(begin, minimum(end, rows), k.lanes, [&](Index row) {
        // Where the block begins, one of a single register may reach back less far than that of more.
        Index own = maximum(minimum(row, rows - k.lanes), 0);
        addEmpty(k, scratch.emptyRows.vector(k.lanes, own - first) > 0, batch, head, row, row + k.lanes);
      });
    });
  };
  isWhole.value() ? k.when(isWhole, emitWhole, emitOne) : emitOne();
  transfer.storeResult();
}

} // namespace attn
