#include "passes/kernels/gpu/AttentionEmitter.h"

#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;

namespace attn {

static constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Blocks of a launch that may have nothing to do: two a processor.
constexpr int64_t kFewBlocks = 2 * kProcessors;
/// What the threads of a block exchange, an element a warp; then the marks of lists, in bytes.
constexpr int64_t kExchanged = AttentionEmitter::kThreads / 32;
static int64_t markBytes(const AttentionSpec &spec, const TileSizes &sizes) {
  return spec.blockLists.empty() ? 0 : llvm::alignTo(BlockLists::countBytes(spec, sizes), 16);
}
int64_t countCommonElements(const AttentionSpec &spec, const TileSizes &sizes) {
  return kExchanged + markBytes(spec, sizes) / 4;
}

bool hasPieces(const AttentionSpec &spec, size_t operand, unsigned dim, int64_t count) {
  AffineMap map = spec.maps[operand];
  MemRefType type = spec.types[operand];
  bool isLast = map.getNumResults() && map.getResults().back() == getAffineDimExpr(dim, map.getContext());
  if (!isLast || *spec.getStaticSize(dim) % count)
    return false;
  if (type.getLayout().isIdentity())
    return true;
  auto [strides, offset] = type.getStridesAndOffset();
  auto isWhole = [&](int64_t x) { return !ShapedType::isDynamic(x) && x % count == 0; };
  // A stride that isn't known is a multiple of those behind it.
  ArrayRef<int64_t> outer = ArrayRef(strides).drop_back();
  return isWhole(offset) && strides.back() == 1 && (outer.empty() || isWhole(outer.back())) &&
         llvm::all_of(outer, [&](int64_t x) { return ShapedType::isDynamic(x) || isWhole(x); });
}

SmallVector<Buffer> AttentionEmitter::launch(const Index &blocks) {
  SmallVector<int64_t> elements = sharedElements();
  elements.push_back(kExchanged);
  SmallVector<Buffer> shared = k.launch(blocks, kThreads, elements, {}, markBytes(spec, tileSizes()));
  k.setResidentBlocks(1);
  return shared;
}

KeyMask::Bounds AttentionEmitter::seenKeys(KeyMask &mask) {
  KeyMask::Bounds bounds{k.index(0), numKeys, k.index(0), numKeys};
  if (mask.isFull())
    return bounds;
  Index last = minimum(first + (queriesPerBlock - 1), numQueries - 1);
  bounds = mask.bounds(first, last);
  if (testsHidden())
    bounds.lower = k.index(0), bounds.upper = numKeys;
  return bounds;
}

func::FuncOp AttentionEmitter::emit(StringRef symbol) {
  KernelFunction f(k.b, k.loc, symbol);
  for (MemRefType type : spec.types)
    f.buffer(type);
  if (splits > 1)
    parts = f.buffer({ShapedType::kDynamic}, k.b.getF32Type());
  emitLaunches(f.function.getArguments().take_front(spec.types.size()));
  return f.function;
}

void AttentionEmitter::emitLaunches(ValueRange buffers, IsWanted isWanted) {
  OpBuilder::InsertionGuard guard(k.b);
  numQueries = sizeOf(buffers, Dim::I), numKeys = sizeOf(buffers, Dim::J), heads = sizeOf(buffers, Dim::H);
  Index numBatches = sizeOf(buffers, Dim::B);
  blocksOfHead = ceilDiv(numQueries, queriesPerBlock);
  // Those that may have nothing to do are few, each for several blocks of queries.
  Index outer = numBatches * heads, perHead = blocksOfHead;
  if (isWanted)
    perHead = minimum(perHead, maximum(kFewBlocks / maximum(outer, 1), 1));
  arrays = launch(outer * perHead * splits);
  Operation *launched = k.b.getInsertionBlock()->getParentOp();
  auto emitSome = [&](const Index &begin) {
    auto isLeft = [&](Index at) { return at < blocksOfHead; };
    k.repeat(begin, isLeft, [&](Index at) {
      setQueries(at);
      emitBlock(buffers, [&](Index begin, Index end, const KeyMask::Bounds &bounds) { sweep(begin, end, bounds); });
      k.barrier(); // shared memory has been read
      return at + perHead;
    });
  };
  if (isWanted) {
    Index begin = setHead(k.block, perHead);
    k.when(isWanted(k, batch, head), [&] { emitSome(begin); });
  } else {
    emitBlocks(buffers);
  }
  if (splits == 1)
    return;
  k.b.setInsertionPointAfter(launched);
  mergeParts(buffers);
}

Index AttentionEmitter::setHead(const Index &number, const Index &perHead) {
  Index outer = number / perHead;
  batch = outer / heads, head = outer % heads;
  return number % perHead;
}

void AttentionEmitter::setQueries(const Index &last) { first = (blocksOfHead - 1 - last) * queriesPerBlock; }

void AttentionEmitter::setBlock(const Index &number) { setQueries(setHead(number, blocksOfHead)); }

void AttentionEmitter::emitBlocks(ValueRange buffers) {
  split = k.block % splits;
  setBlock(k.block / splits);
  emitBlock(buffers, [&](Index begin, Index end, const KeyMask::Bounds &bounds) { sweep(begin, end, bounds); });
}

void AttentionEmitter::emitBlock(ValueRange buffers, Sweep sweep) {
  views.clear();
  for (auto [buffer, map] : llvm::zip_equal(buffers, spec.maps))
    views.push_back(viewHead(k, buffer, map, batch, head));
  KeyMask mask(k, spec, buffers, batch, head, numKeys);
  keyMask = &mask;
  std::optional<BlockLists> blockLists;
  if (!spec.blockLists.empty()) {
    blockLists.emplace(k, spec, buffers, batch, head, tileSizes(), arrays.back(), exchanged());
    blockLists->setSizes(first, numQueries, numKeys);
    lists = &*blockLists;
  }
  KeyMask::Bounds bounds = seenKeys(mask);
  Index begin = floorTo(bounds.lower, keysPerTile), end = bounds.upper;
  if (splits > 1) {
    Index tiles = ceilDiv(maximum(end, begin) - begin, keysPerTile);
    Index part = ceilDiv(tiles, splits) * keysPerTile;
    begin = begin + split * part;
    end = minimum(end, begin + part);
  }
  sweep(begin, end, bounds);
  keyMask = nullptr, lists = nullptr;
}

void AttentionEmitter::sweep(Index begin, Index end, const KeyMask::Bounds &bounds) {
  start();
  pass = spec.hasWeightSweep() ? Pass::reduce : Pass::online;
  if (pass == Pass::online && storesTiles(spec))
    begin = k.index(0), end = numKeys, sweepsAll = k.truth(true);
  bool needsNoSum = pass == Pass::reduce && spec.normalizer == Normalizer::none;
  Nums state = needsNoSum      ? startState()
               : sweepsAgain() ? sweepTwice(begin, end, bounds)
                               : sweepTiles(begin, end, bounds);
  if (spec.hasWeightSweep())
    state = sweepWeights(begin, end, bounds, state);
  k.waitForCopies(0); // none may be under way when the block ends
  if (splits == 1)
    store(state);
  else
    storePart(state);
}

/// Once more, with hidden keys in the rows that see no other, if there are any.
Nums AttentionEmitter::sweepTwice(const Index &begin, const Index &end, const KeyMask::Bounds &bounds) {
  Mask no = k.truth(false), yes = k.truth(true), sweptAll = sweepsAll.value_or(no);
  // Whether to sweep, whether it is the second time, which rows take hidden keys, the state.
  std::tuple init(yes, no, Masks(rows, no), startState());
  auto goesOn = [](Mask isLeft, Mask, Masks, Nums) { return isLeft; };
  auto done = k.repeat(init, goesOn, [&](Mask, Mask isSecond, Masks taking, Nums) {
    sweepsAll = isSecond | sweptAll, takesPart = taking;
    Index from = select(isSecond, k.index(0), begin), to = select(isSecond, numKeys, end);
    Nums state = sweepTiles(from, to, bounds);
    k.waitForCopies(0);
    Masks areEmpty;
    for (int64_t r = 0; r < rows; ++r) {
      Mask isEmpty = isEmptyRow(sumOfRow(state[rows + r]));
      // The second time only the sweep for weights asks for the rows.
      areEmpty.push_back(spec.hasWeightSweep() ? select(isSecond, takesPart[r], isEmpty) : isEmpty);
    }
    Mask some = anyInBlock(areEmpty);
    return std::tuple(select(isSecond, no, some), yes, areEmpty, state);
  });
  sweepsAll.reset();
  takesPart = std::get<2>(done);
  return std::get<3>(done);
}

Mask AttentionEmitter::anyInBlock(ArrayRef<Mask> conditions) {
  Mask some = tree(conditions, [](Mask x, Mask y) { return x | y; });
  auto greatest = [](Num x, Num y) { return maximum(x, y); };
  return k.acrossBlock(select(some, k.f32(1), k.f32(0)), kThreads, exchanged(), greatest) > 0.0;
}

/// A hidden key's, before the normaliser.
Num AttentionEmitter::hiddenScore() { return k.f32(spec.normalizer == Normalizer::softmax ? -kInfinity : 0); }

Nums AttentionEmitter::startState() {
  // Of each row: maximum (of a softmax), this thread's part of the sum, its columns of the result.
  Nums state(rows, hiddenScore());
  state.append(rows + rows * width, k.f32(0));
  return state;
}

Nums AttentionEmitter::sweepTiles(const Index &begin, const Index &end, const KeyMask::Bounds &bounds) {
  if (lists)
    return sweepListedTiles(begin, end, bounds);
  copyKeys(begin);
  return k.loop(begin, end, keysPerTile, startState(),
                [&](Index key, Nums state) { return sweepOne(key, key + keysPerTile, bounds, state); });
}

void AttentionEmitter::setTile(const Index &key, const Index &next, const KeyMask::Bounds &bounds) {
  Index end = key + keysPerTile;
  isEdge = (key < bounds.innerLower) | (bounds.innerUpper < end);
  following = next;
}

Nums AttentionEmitter::sweepOne(const Index &key, const Index &next, const KeyMask::Bounds &bounds, const Nums &state) {
  setTile(key, next, bounds);
  return sweepTile(key, state);
}

/// Window by window; windows without a listed key are left out.
Nums AttentionEmitter::sweepListedTiles(const Index &begin, const Index &end, const KeyMask::Bounds &bounds) {
  Mask takesAll = sweepsAll ? *sweepsAll : k.truth(testsHidden());
  auto isBefore = [&](Index window, Nums) { return window < end; };
  auto done = k.repeat(std::tuple(begin, startState()), isBefore, [&](Index from, Nums state) {
    k.waitForCopies(0);
    Index window = floorTo(from, keysPerTile), next = lists->mark(window);
    Index windowEnd = minimum(lists->windowEnd(), end);
    next = select(takesAll, lists->windowEnd(), next);
    auto findTile = [&](const Index &from) {
      auto isPassed = [&](Index tile) {
        Mask isWanted = takesAll | lists->isListedTile(tile);
        return select(isWanted, k.truth(false), tile < windowEnd);
      };
      return k.repeat(from, isPassed, [&](Index tile) { return tile + keysPerTile; });
    };
    // Keys of tiles that are not listed are not read.
    auto orNone = [&](const Index &tile) { return select(tile < windowEnd, tile, numKeys); };
    Index firstTile = findTile(window);
    copyKeys(orNone(firstTile));
    auto isInWindow = [&](Index tile, Nums) { return tile < windowEnd; };
    auto swept = k.repeat(std::tuple(firstTile, state), isInWindow, [&](Index tile, Nums state) {
      Index after = findTile(tile + keysPerTile);
      return std::tuple(after, sweepOne(tile, orNone(after), bounds, state));
    });
    return std::tuple(next, std::get<1>(swept));
  });
  return std::get<1>(done);
}

Num AttentionEmitter::readAt(size_t operand, const Index &i, const Index &j) {
  const OperandView &view = views[operand];
  return view.flat(view.at({{Dim::I, i}, {Dim::J, j}}));
}

Nums AttentionEmitter::givenScores(const Index &key) {
  Nums scores;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      Index i = query(r), j = orLast(keyOf(key, c));
      scores.push_back(convert(readAt(spec.query, i, j), k.b.getF32Type()));
    }
  return scores;
}

Num AttentionEmitter::regionAt(Block &block, const Num &score, const Index &i, const Index &j) {
  SmallVector<Value> arguments = {score};
  for (size_t n = 0; n < spec.numCaptures; ++n)
    arguments.push_back(readAt(spec.firstCapture + n, i, j));
  auto index = [&](Operation &op) -> Value {
    auto place = dyn_cast<IndexOp>(op);
    if (!place)
      return {};
    Value known[] = {batch, head, i, j};
    return known[place.getDim()];
  };
  return k.cloneScalar(block, arguments, index);
}

Nums AttentionEmitter::finishScores(const Nums &raw, const Index &key) {
  keep(ExtraSource::raw_scores, raw, key);
  Nums result = powerScale ? raw : Nums();
  for (int64_t r = 0; r < rows && !powerScale; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      Index j = orLast(keyOf(key, c));
      result.push_back(regionAt(*spec.score, raw[result.size()], query(r), j));
    }
  seen.clear();
  keep(ExtraSource::scores, result, key);
  if (testsAllTiles())
    result = masked(result, key);
  else
    result = k.choose(isEdge, [&] { return masked(result, key); }, [&] { return result; });
  keep(ExtraSource::masked_scores, result, key);
  for (Num &score : result)
    score = roundToSoftmaxType(score);
  return result;
}

std::optional<Mask> AttentionEmitter::isVisible(const Index &i, const Index &place, const Index &j) {
  std::optional<Mask> isSeen;
  auto join = [&](Mask bit) { isSeen = isSeen ? *isSeen & bit : bit; };
  if (!keyMask->isFull()) // what it says of keys behind the last does not matter
    join(any(keyMask->visibleKeys(i, place, 1)));
  for (size_t operand : spec.denseMasks)
    join(readAt(operand, i, j) != 0);
  if (lists)
    join(lists->isListed(i, j));
  return isSeen;
}

Nums AttentionEmitter::masked(const Nums &values, const Index &key) {
  Nums result;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      Num score = values[result.size()];
      Index i = query(r), place = keyOf(key, c), j = orLast(place);
      std::optional<Mask> isSeen = isVisible(i, place, j);
      if (isSeen) {
        Num hidden = hiddenScore();
        if (spec.letsHiddenTakePart()) {
          Num other = spec.masked ? regionAt(*spec.masked, score, i, j) : score;
          hidden = testsHidden() ? other : select(takesPart[r], other, hidden);
        }
        score = select(*isSeen, score, hidden);
      }
      if (keepsSeen())
        seen.push_back(isSeen ? *isSeen : k.truth(true));
      result.push_back(select(place < numKeys, score, hiddenScore()));
    }
  return result;
}

} // namespace attn
