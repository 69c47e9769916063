#include "passes/kernels/cpu/AttentionBlock.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/cpu/AttentionBlockEmitter.h"
#include "passes/kernels/shared/KernelFunction.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Predicate = arith::CmpFPredicate;

BlockEmitter::BlockEmitter(AttentionCode &code, const AttentionScratch &scratch, Value batch, Value head, Value begin,
                           int64_t vectors, Values takesPart)
    : code(code), k(code.untyped), spec(code.spec), buffers(code.buffers), scratch(scratch), vectors(vectors),
      keyWidth(*spec.getStaticSize(Dim::D)), valueWidth(*spec.getStaticSize(Dim::E)),
      paddedValueWidth(llvm::alignTo(valueWidth, k.lanes)),
      // Sums that start from the maximum are rounded with it; a sweep for weights finds another than the one before.
      pureScale(takesPart.empty() && !spec.hasWeightSweep() ? spec.getPureScale() : std::nullopt),
      canMask(spec.canMask()), isNarrow(spec.hasNarrowProducts), batch(batch), head(head), begin(begin),
      numKeys(getDimSize(k, spec, buffers, Dim::J)), mask(k, spec, buffers, batch, head, numKeys),
      lists(code, code.asIndex(batch), code.asIndex(head), code.asIndex(numKeys)), takesPart(std::move(takesPart)) {
  query = view(spec.query);
  value = view(spec.value);
  result = view(spec.result);
  if (spec.formula().hasKey)
    key = view(spec.keyOperand);
  if (spec.formula().hasAlignment)
    alignment = view(spec.alignment);
  int64_t rows = vectors * k.lanes;
  queries.numRows = getDimSize(k, spec, buffers, Dim::I);
  queries.vectors = vectors;
  std::optional<int64_t> known = LaneBuilder::constant(queries.numRows);
  queries.mayClamp = !known || *known < rows;
  // The last block reaches back over rows of the one before, so that it reads
  // no row twice; it stores its own rows only.
  queries.first = k.max(k.min(begin, k.sub(queries.numRows, k.index(rows))), k.index(0));
  for (size_t n = 0; n < spec.numCaptures; ++n)
    captures.push_back(view(spec.firstCapture + n));
  for (size_t operand : spec.denseMasks)
    dense.push_back(view(operand));
  auto readsRows = [](const HeadView &view) { return view.has(Dim::I) && view.isContiguous(Dim::J); };
  joinsEdge = k.lanes == 16 && llvm::none_of(captures, readsRows) && llvm::none_of(dense, readsRows) &&
              (spec.formula().hasKey || !readsRows(query));
  bounds = mask.bounds(begin, k.sub(k.min(k.add(begin, rows), queries.numRows), k.index(1)));
  bool needsAll = spec.needsAllKeys() || !this->takesPart.empty();
  // Whole tiles, but for the end of all keys.
  Value cut = k.floorTo(k.add(bounds.upper, spec.keyTile - 1), spec.keyTile);
  bounds.lower = needsAll ? k.index(0) : k.floorTo(bounds.lower, spec.keyTile);
  bounds.upper = needsAll ? numKeys : k.min(cut, numKeys);
}

Value BlockEmitter::emit() {
  loadQueries();
  for (const HeadView &capture : captures)
    readers.emplace_back(k, capture, queries);
  for (const HeadView &view : dense)
    denseReaders.emplace_back(k, view, queries);
  if (!spec.formula().hasKey)
    givenReader.emplace(k, query, queries);
  mask.setQueries(queries);
  if (!canMask) {
    attend();
    return {};
  }
  auto boolean = [&](bool value) -> Value { return arith::ConstantOp::create(k.b, k.loc, k.b.getBoolAttr(value)); };
  if (!takesPart.empty()) {
    isCareful = boolean(true);
    attend();
    return {};
  }
  // A masked key has weight 0, and 0 times an infinite or NaN value must not
  // count. Where a result is not finite the block is computed once more with
  // the products of zero weights left out.
  auto either = [&](Value x, Value y) { return k.either(x, y); };
  bool isFinite = spec.letsHiddenTakePart();
  auto type = VectorType::get({k.lanes}, k.b.getI1Type());
  Values init{boolean(true), boolean(false)};
  if (isFinite)
    init.append(vectors, arith::ConstantOp::create(k.b, k.loc, k.b.getZeroAttr(type)));
  Values end = k.loop(k.index(0), k.index(2), 1, init, [&](Value, ValueRange carried) {
    return k.branch(
        carried.front(), carried.getTypes(),
        [&]() -> Values {
          isCareful = carried[1];
          State state = attend();
          Value isFirst = arith::XOrIOp::create(k.b, k.loc, isCareful, boolean(true));
          Value isBad = k.both(isFirst, anyNotFinite());
          if (!isFinite)
            return Values{isBad, k.either(isCareful, isBad)};
          // Rows that see no key are NaN so far, and no reason to try again.
          Values empty = llvm::map_to_vector(state.sum, [&](Value sum) { return isEmptyRow(sum); });
          isBad = k.both(isBad, arith::XOrIOp::create(k.b, k.loc, k.any(k.tree(empty, either)), boolean(true)));
          Values next{isBad, k.either(isCareful, isBad)};
          next.append(empty);
          return next;
        },
        [&]() -> Values {
          Values same(carried);
          same[0] = boolean(false);
          return same;
        });
  });
  if (!isFinite)
    return {};
  Values empty(llvm::drop_begin(end, 2));
  for (int64_t v = 0; v < vectors; ++v)
    k.store(k.select(empty[v], k.splat(1), k.splat(0)), scratch.emptyRows, k.index(v * k.lanes));
  return k.any(k.tree(empty, either));
}

//===----------------------------------------------------------------------===//
// One attempt
//===----------------------------------------------------------------------===//

/// Computes and stores the block.
BlockEmitter::State BlockEmitter::attend() {
  Value zero = k.splat(0);
  k.loop(k.index(0), k.index(valueWidth), 1, [&](Value e) {
    for (int64_t v = 0; v < vectors; ++v)
      k.store(zero, scratch.results, at(e, v));
  });
  State state{Values(vectors, zero), Values(vectors, zero), {}};
  if (spec.hasWeightSweep()) {
    if (spec.normalizer != Normalizer::none)
      state = sweepKeys(Sweep::Reduce, state);
    fillExtras(state);
    // What becomes of the NaN of a row that sees no key, the weight region says: with such a row, no key is skipped.
    KeyMask::Bounds some = bounds;
    if (canMask && spec.maskedRows == MaskedRows::nan && spec.normalizer != Normalizer::none && !spec.needsAllKeys()) {
      Values empty = llvm::map_to_vector(state.sum, [&](Value sum) { return isEmptyRow(sum); });
      seesAll = k.any(k.tree(empty, [&](Value x, Value y) { return k.either(x, y); }));
      bounds.lower = k.select(seesAll, k.index(0), bounds.lower);
      bounds.upper = k.select(seesAll, numKeys, bounds.upper);
    }
    sweepKeys(Sweep::Weights, state);
    bounds = some;
    seesAll = Value();
    storeResult({});
  } else {
    state = sweepKeys(Sweep::Online, state);
    fillExtras(state);
    if (spec.wants(ExtraSource::lse))
      storeLogSums(state);
    if (canMask && spec.maskedRows == MaskedRows::uniform)
      fillUniformRows(state);
    storeResult(normalisers(state));
    return state;
  }
  if (spec.wants(ExtraSource::lse))
    storeLogSums(state);
  return state;
}

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

BlockEmitter::State BlockEmitter::sweepKeys(Sweep sweep, const State &start) {
  bool isReducing = sweep != Sweep::Weights;
  Values init = isReducing ? start.flat() : Values();
  if (lists.isFull()) {
    Values end = k.loop(bounds.lower, bounds.upper, spec.keyBlock, init, [&](Value first, ValueRange carried) {
      return sweepBlock(sweep, first, start, carried).flat();
    });
    markLong(k.b);
    return isReducing ? stateOf(end) : start;
  }
  // Blocks of keys before the next one that a list names are left out.
  isPacked = true;
  init.insert(init.begin(), bounds.lower);
  Values end = k.loop(bounds.lower, bounds.upper, spec.keyBlock, init, [&](Value first, ValueRange carried) {
    auto mark = [&]() -> Values {
      Values next{lists.markKeys(queries, scratch.marks, code.asIndex(first))};
      next.append(sweepBlock(sweep, first, start, carried.drop_front()).flat());
      return next;
    };
    if (spec.needsAllKeys() || !takesPart.empty())
      return mark();
    Value isListed = k.less(carried.front(), k.add(first, spec.keyBlock));
    if (seesAll)
      isListed = k.either(isListed, seesAll);
    return k.branch(isListed, carried.getTypes(), mark, [&] { return Values(carried); });
  });
  markLong(k.b);
  isPacked = false;
  return isReducing ? stateOf(ValueRange(end).drop_front()) : start;
}

/// The block of keys from `first` on; what it returns is empty in the sweep of the weights.
BlockEmitter::State BlockEmitter::sweepBlock(Sweep sweep, Value first, const State &start, ValueRange carried) {
  bool isReducing = sweep != Sweep::Weights;
  std::optional<int64_t> keys = LaneBuilder::constant(numKeys);
  bool hasEdge = !keys || *keys % spec.keyTile, hasOwnEdge = hasEdge && !joinsEdge;
  Value count = k.min(k.sub(bounds.upper, first), k.index(spec.keyBlock));
  Value whole = hasOwnEdge ? k.floorTo(count, spec.keyTile) : count;
  // The rows of weights that some tile of keys fills; partial sums of this block.
  Values values{isPacked ? k.index(0) : count, k.index(0)};
  values.append(carried.begin(), carried.end());
  if (isReducing)
    values.append(vectors, k.splat(0));
  values = k.loop(k.index(0), whole, spec.keyTile, values, [&](Value row, ValueRange inner) {
    return sweepTile(sweep, first, row, /*isEdge=*/hasEdge && !hasOwnEdge, start, inner);
  });
  if (hasOwnEdge)
    values = k.branch(
        k.less(whole, count), ValueRange(values).getTypes(),
        [&] { return sweepTile(sweep, first, whole, /*isEdge=*/true, start, values); }, [&] { return values; });
  if (sweep != Sweep::Reduce) {
    if (dense.empty() && !isPacked)
      addValues(first, k.index(0), count);
    else
      addValues(first, values[0], k.min(values[1], count));
  }
  if (!isReducing)
    return {};
  State state = stateOf(ValueRange(values).drop_front(2));
  for (auto [sum, partial] : llvm::zip_equal(state.sum, state.partial))
    sum = k.addf(sum, partial);
  state.partial.clear();
  return state;
}

/// One tile of keys, `row` keys behind `first`, where the block of keys starts; with `isEdge` it may reach beyond the
/// last key.
/// `values`: the range of filled rows of weights, then the state.
LaneBuilder::Values BlockEmitter::sweepTile(Sweep sweep, Value first, Value row, bool isEdge, const State &start,
                                            ValueRange values) {
  bool isReducing = sweep != Sweep::Weights, needsAll = spec.needsAllKeys() || !takesPart.empty();
  Value keyIndex = k.add(first, row), filled = k.add(row, spec.keyTile), isLive;
  if (isPacked) {
    tileMarks = k.mul(row, vectors * k.lanes / spec.keyTile);
    isLive = needsAll ? Value() : isListedTile();
    row = values[1];
    Value rest = k.index(spec.keyTile);
    filled = k.add(row, isEdge ? k.min(k.sub(numKeys, keyIndex), rest) : rest);
  }
  bool isOwnEdge = isEdge && !joinsEdge;
  if (spec.isWindow() && !isOwnEdge)
    prefetchNext(keyIndex);
  else if (!isOwnEdge && takesPart.empty())
    prefetchNextBlock(keyIndex);
  auto compute = [&]() -> Values {
    State state = isReducing ? stateOf(values.drop_front(2)) : start;
    if (isPacked)
      memref::StoreOp::create(k.b, k.loc, keyIndex, scratch.tileKeys, k.div(row, k.index(spec.keyTile)));
    Values scores =
        spec.storedKeys ? storedTile(sweep, keyIndex, row, isEdge, state) : scoreTile(keyIndex, row, isEdge, state);
    Values next{k.min(values[0], row), dense.empty() && !isPacked ? values[1] : filled};
    if (isReducing)
      next.append(softmaxTile(sweep, row, std::move(scores), std::move(state)).flat());
    else
      storeWeights(row, keyIndex, isEdge, std::move(scores), state);
    return next;
  };
  if (Value shows = needsAll ? Value() : isLiveTile(keyIndex, isEdge))
    isLive = isLive ? k.both(isLive, shows) : shows;
  if (!isLive)
    return compute();
  if (seesAll)
    isLive = k.either(isLive, seesAll);
  return k.branch(isLive, values.getTypes(), compute, [&]() -> Values {
    if (sweep != Sweep::Reduce && !isPacked)
      for (int64_t v = 0; v < vectors; ++v)
        for (int64_t r = 0; r < spec.keyTile; ++r)
          keepWeight(row, v, Values(r + 1, k.splat(0)));
    return Values(values);
  });
}

//===----------------------------------------------------------------------===//
// Softmax
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
  if (spec.letsHiddenTakePart())
    scratch.emptyRows = k.scratch(rows);
  if (!spec.extras.empty())
    scratch.tile = k.scratch(spec.keyTile * rows);
  if (!spec.blockLists.empty()) {
    scratch.marks = k.scratch(KeyLists::sizeOfMarks(spec, rows), k.b.getI32Type());
    scratch.tileKeys = k.scratch(spec.keyBlock / spec.keyTile, k.b.getIndexType());
  }
  return scratch;
}

std::optional<Mask> emitAttentionBlock(AttentionCode &k, const AttentionScratch &scratch, const Index &batch,
                                       const Index &head, const Index &begin, int64_t vectors) {
  Value isAgain = BlockEmitter(k, scratch, batch, head, begin, vectors).emit();
  return isAgain ? std::optional(k.asMask(isAgain)) : std::nullopt;
}

void emitEmptyRows(AttentionCode &k, const AttentionScratch &scratch, const Index &batch, const Index &head,
                   const Index &begin, const Index &first, const Index &end) {
  Index rows = k.size(Dim::I);
  k.rolledLoop(begin, end, k.lanes, [&](Index row) {
    // Where the block begins, one of a single register may reach back less far than that of more.
    Index own = maximum(minimum(row, rows - k.lanes), 0);
    Mask isEmpty = scratch.emptyRows.vector(k.lanes, own - first) > 0;
    BlockEmitter(k, scratch, batch, head, row, /*vectors=*/1, {isEmpty}).emit();
  });
}

} // namespace attn
