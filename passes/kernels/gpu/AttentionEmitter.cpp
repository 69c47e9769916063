#include "passes/kernels/gpu/AttentionEmitter.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;

namespace attn {

using Values = LaneBuilder::Values;

static constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Blocks of a launch that may have nothing to do: two a processor.
constexpr int64_t kFewBlocks = 264;
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

Values AttentionEmitter::launch(Value blocks) {
  SmallVector<int64_t> elements = sharedElements();
  elements.push_back(kExchanged);
  Values shared = k.launch(blocks, kThreads, elements, {}, markBytes(spec, tileSizes()));
  k.setResidentBlocks(1);
  return shared;
}

KeyMask::Bounds AttentionEmitter::seenKeys(KeyMask &mask) {
  KeyMask::Bounds bounds{k.index(0), numKeys, k.index(0), numKeys};
  if (mask.isFull())
    return bounds;
  Value last = k.min(k.add(first, queriesPerBlock - 1), k.sub(numQueries, k.index(1)));
  bounds = mask.bounds(first, last);
  if (testsHidden())
    bounds.lower = k.index(0), bounds.upper = numKeys;
  return bounds;
}

func::FuncOp AttentionEmitter::emit(StringRef symbol) {
  SmallVector<Type> types(spec.types.begin(), spec.types.end());
  if (splits > 1)
    types.push_back(MemRefType::get({ShapedType::kDynamic}, k.b.getF32Type()));
  func::FuncOp function = k.function(symbol, types);
  ValueRange buffers = function.getArguments();
  if (splits > 1)
    parts = buffers.back(), buffers = buffers.drop_back();
  emitLaunches(buffers);
  return function;
}

void AttentionEmitter::emitLaunches(ValueRange buffers, IsWanted isWanted) {
  OpBuilder::InsertionGuard guard(k.b);
  numQueries = getDimSize(k, spec, buffers, Dim::I), numKeys = getDimSize(k, spec, buffers, Dim::J);
  heads = getDimSize(k, spec, buffers, Dim::H);
  Value numBatches = getDimSize(k, spec, buffers, Dim::B);
  blocksOfHead = k.ceilDiv(numQueries, queriesPerBlock);
  // Those that may have nothing to do are few, each for several blocks of queries.
  Value outer = k.mul(numBatches, heads), perHead = blocksOfHead;
  if (isWanted)
    perHead = k.min(perHead, k.max(k.div(k.index(kFewBlocks), k.max(outer, k.index(1))), k.index(1)));
  Values shared = launch(k.mul(k.mul(outer, perHead), splits));
  Operation *launched = k.b.getInsertionBlock()->getParentOp();
  auto emitSome = [&](Value begin) {
    auto isLeft = [&](ValueRange at) { return k.less(at[0], blocksOfHead); };
    k.repeat(begin, isLeft, [&](ValueRange at) -> Values {
      setQueries(at[0]);
      emitBlock(buffers, shared,
                [&](Value begin, Value end, const KeyMask::Bounds &bounds) { sweep(shared, begin, end, bounds); });
      k.barrier(); // shared memory has been read
      return {k.add(at[0], perHead)};
    });
  };
  if (isWanted) {
    Value begin = setHead(k.block, perHead);
    k.branch(isWanted(k, batch, head), [&] { emitSome(begin); });
  } else {
    emitBlocks(buffers, shared);
  }
  if (splits == 1)
    return;
  k.b.setInsertionPointAfter(launched);
  mergeParts(buffers);
}

Value AttentionEmitter::setHead(Value number, Value perHead) {
  Value outer = k.div(number, perHead);
  batch = k.div(outer, heads), head = k.rem(outer, heads);
  return k.rem(number, perHead);
}

void AttentionEmitter::setQueries(Value last) {
  first = k.mul(k.sub(k.sub(blocksOfHead, k.index(1)), last), queriesPerBlock);
}

void AttentionEmitter::setBlock(Value number) { setQueries(setHead(number, blocksOfHead)); }

void AttentionEmitter::emitBlocks(ValueRange buffers, ArrayRef<Value> shared) {
  split = k.rem(k.block, k.index(splits));
  setBlock(k.div(k.block, k.index(splits)));
  emitBlock(buffers, shared,
            [&](Value begin, Value end, const KeyMask::Bounds &bounds) { sweep(shared, begin, end, bounds); });
}

void AttentionEmitter::emitBlock(ValueRange buffers, ArrayRef<Value> shared, Sweep sweep) {
  views.clear();
  for (auto [buffer, map] : llvm::zip_equal(buffers, spec.maps))
    views.push_back(viewHead(k, buffer, map, batch, head));
  KeyMask mask(k, spec, buffers, batch, head, numKeys);
  keyMask = &mask;
  std::optional<BlockLists> blockLists;
  if (!spec.blockLists.empty()) {
    blockLists.emplace(k, spec, buffers, batch, head, tileSizes(), shared.back(), exchanged(shared));
    blockLists->setSizes(first, numQueries, numKeys);
    lists = &*blockLists;
  }
  KeyMask::Bounds bounds = seenKeys(mask);
  Value begin = k.floorTo(bounds.lower, keysPerTile), end = bounds.upper;
  if (splits > 1) {
    Value tiles = k.ceilDiv(k.sub(k.max(end, begin), begin), keysPerTile);
    Value part = k.mul(k.ceilDiv(tiles, splits), keysPerTile);
    begin = k.add(begin, k.mul(split, part));
    end = k.min(end, k.add(begin, part));
  }
  sweep(begin, end, bounds);
  keyMask = nullptr, lists = nullptr;
}

void AttentionEmitter::sweep(ArrayRef<Value> shared, Value begin, Value end, const KeyMask::Bounds &bounds) {
  start(shared);
  Values state;
  pass = spec.hasWeightSweep() ? Pass::reduce : Pass::online;
  if (pass == Pass::online && storesTiles(spec))
    begin = k.index(0), end = numKeys, sweepsAll = boolean(true);
  if (pass == Pass::reduce && spec.normalizer == Normalizer::none)
    state = startState();
  else
    state = sweepsAgain() ? sweepTwice(exchanged(shared), begin, end, bounds) : sweepTiles(begin, end, bounds);
  if (spec.hasWeightSweep())
    state = sweepWeights(exchanged(shared), begin, end, bounds, state);
  k.waitForCopies(0); // none may be under way when the block ends
  if (splits == 1)
    store(state);
  else
    storePart(state);
}

/// Once more, with hidden keys in the rows that see no other, if there are any.
Values AttentionEmitter::sweepTwice(Value exchange, Value begin, Value end, const KeyMask::Bounds &bounds) {
  Value sweptAll = sweepsAll ? sweepsAll : boolean(false);
  // Whether to sweep, whether it is the second time, which rows take hidden keys, the state.
  Values init = {boolean(true), boolean(false)};
  init.append(rows, boolean(false));
  init.append(startState());
  auto goesOn = [](ValueRange carried) { return carried[0]; };
  Values done = k.repeat(init, goesOn, [&](ValueRange carried) {
    Value isSecond = carried[1], takesAll = k.either(isSecond, sweptAll);
    sweepsAll = takesAll;
    takesPart.assign(carried.begin() + 2, carried.begin() + 2 + rows);
    Value from = k.select(isSecond, k.index(0), begin), to = k.select(isSecond, numKeys, end);
    Values state = sweepTiles(from, to, bounds), next = {Value(), boolean(true)};
    k.waitForCopies(0);
    for (int64_t r = 0; r < rows; ++r) {
      Value isEmpty = isEmptyRow(sumOfRow(state[rows + r]));
      // The second time only the sweep for weights asks for the rows.
      next.push_back(spec.hasWeightSweep() ? k.select(isSecond, takesPart[r], isEmpty) : isEmpty);
    }
    Value some = anyInBlock(ArrayRef(next).drop_front(2), exchange);
    next[0] = k.select(isSecond, boolean(false), some);
    next.append(state);
    return next;
  });
  sweepsAll = Value();
  takesPart.assign(done.begin() + 2, done.begin() + 2 + rows);
  return Values(ArrayRef(done).drop_front(2 + rows));
}

Value AttentionEmitter::anyInBlock(ArrayRef<Value> conditions, Value exchange) {
  Value some = k.tree(conditions, [&](Value x, Value y) { return k.either(x, y); });
  some = k.acrossBlock(k.select(some, k.scalar(1), k.scalar(0)), kThreads, exchange,
                       [&](Value x, Value y) { return k.greater(x, y); });
  return k.compare(arith::CmpFPredicate::OGT, some, k.scalar(0));
}

/// A hidden key's, before the normaliser.
Value AttentionEmitter::hiddenScore() { return k.scalar(spec.normalizer == Normalizer::softmax ? -kInfinity : 0); }

Values AttentionEmitter::startState() {
  // Of each row: maximum (of a softmax), this thread's part of the sum, its columns of the result.
  Values state(rows, hiddenScore());
  state.append(rows + rows * width, k.scalar(0));
  return state;
}

Values AttentionEmitter::sweepTiles(Value begin, Value end, const KeyMask::Bounds &bounds) {
  if (lists)
    return sweepListedTiles(begin, end, bounds);
  copyKeys(begin);
  return k.loop(begin, end, keysPerTile, startState(),
                [&](Value key, ValueRange carried) { return sweepOne(key, k.add(key, keysPerTile), bounds, carried); });
}

void AttentionEmitter::setTile(Value key, Value next, const KeyMask::Bounds &bounds) {
  Value end = k.add(key, keysPerTile);
  isEdge = k.either(k.less(key, bounds.innerLower), k.less(bounds.innerUpper, end));
  following = next;
}

Values AttentionEmitter::sweepOne(Value key, Value next, const KeyMask::Bounds &bounds, ValueRange state) {
  setTile(key, next, bounds);
  return sweepTile(key, state);
}

/// Window by window; windows without a listed key are left out.
Values AttentionEmitter::sweepListedTiles(Value begin, Value end, const KeyMask::Bounds &bounds) {
  Value takesAll = sweepsAll ? sweepsAll : arith::ConstantIntOp::create(k.b, k.loc, testsHidden(), 1);
  Values init = {begin};
  init.append(startState());
  auto isBefore = [&](ValueRange carried) { return k.less(carried[0], end); };
  Values behind = k.repeat(init, isBefore, [&](ValueRange outer) -> Values {
    k.waitForCopies(0);
    Value window = k.floorTo(outer[0], keysPerTile), next = lists->mark(window);
    Value windowEnd = k.min(lists->windowEnd(), end);
    next = k.select(takesAll, lists->windowEnd(), next);
    auto findTile = [&](Value from) -> Value {
      auto isPassed = [&](ValueRange tile) {
        Value isWanted = k.either(takesAll, lists->isListedTile(tile[0]));
        return k.select(isWanted, arith::ConstantIntOp::create(k.b, k.loc, 0, 1), k.less(tile[0], windowEnd));
      };
      return k.repeat(from, isPassed, [&](ValueRange tile) { return Values{k.add(tile[0], keysPerTile)}; })[0];
    };
    // Keys of tiles that are not listed are not read.
    auto orNone = [&](Value tile) { return k.select(k.less(tile, windowEnd), tile, numKeys); };
    Values inner(outer);
    inner[0] = findTile(window);
    copyKeys(orNone(inner[0]));
    auto isInWindow = [&](ValueRange carried) { return k.less(carried[0], windowEnd); };
    Values result = k.repeat(inner, isInWindow, [&](ValueRange carried) {
      Value tile = findTile(k.add(carried[0], keysPerTile));
      Values one = {tile};
      one.append(sweepOne(carried[0], orNone(tile), bounds, carried.drop_front()));
      return one;
    });
    result[0] = next;
    return result;
  });
  behind.erase(behind.begin());
  return behind;
}

Value AttentionEmitter::readAt(size_t operand, Value i, Value j) {
  const HeadView &view = views[operand];
  return k.load(view.flat, view.along(k, view.along(k, view.base, Dim::I, i), Dim::J, j));
}

void AttentionEmitter::storeF32(Value x, const HeadView &view, Value offset) {
  memref::StoreOp::create(k.b, k.loc, k.fromF32(x, view.elementType()), view.flat, offset);
}

Values AttentionEmitter::givenScores(Value key) {
  Values scores;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      scores.push_back(k.toF32(readAt(spec.query, query(r), k.min(keyOf(key, c), k.sub(numKeys, k.index(1))))));
  return scores;
}

Value AttentionEmitter::regionAt(Block &block, Value root, Value score, Value i, Value j) {
  Values arguments = {score};
  for (size_t n = 0; n < spec.numCaptures; ++n)
    arguments.push_back(readAt(spec.firstCapture + n, i, j));
  auto index = [&](Operation &op) -> Value {
    auto place = dyn_cast<IndexOp>(op);
    if (!place)
      return {};
    Value known[] = {batch, head, i, j};
    return known[place.getDim()];
  };
  return k.cloneScalar(block, arguments, index, root);
}

Values AttentionEmitter::finishScores(const Values &raw, Value key) {
  keep(ExtraSource::raw_scores, raw, key);
  Values result = powerScale ? raw : Values();
  for (int64_t r = 0; r < rows && !powerScale; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      Value j = k.min(keyOf(key, c), k.sub(numKeys, k.index(1)));
      result.push_back(regionAt(*spec.score, spec.scoreValue, raw[result.size()], query(r), j));
    }
  seen.clear();
  keep(ExtraSource::scores, result, key);
  SmallVector<Type> types(result.size(), k.b.getF32Type());
  if (testsAllTiles())
    result = masked(result, key);
  else
    result = k.branch(isEdge, types, [&] { return masked(result, key); }, [&] { return result; });
  keep(ExtraSource::masked_scores, result, key);
  for (Value &score : result)
    score = roundToSoftmaxType(score);
  return result;
}

Values AttentionEmitter::masked(const Values &values, Value key) {
  Values result;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      Value score = values[result.size()], i = query(r), place = keyOf(key, c);
      Value j = k.min(place, k.sub(numKeys, k.index(1)));
      Value isSeen;
      if (!keyMask->isFull()) // what it says of keys behind the last does not matter
        isSeen = k.extract(keyMask->visibleKeys(i, place), 0);
      auto join = [&](Value bit) { isSeen = isSeen ? k.both(isSeen, bit) : bit; };
      for (size_t operand : spec.denseMasks)
        join(k.isNonZero(readAt(operand, i, j)));
      if (lists)
        join(lists->isListed(i, j));
      if (isSeen) {
        Value hidden = hiddenScore();
        if (spec.letsHiddenTakePart()) {
          Value other = spec.masked ? regionAt(*spec.masked, {}, score, i, j) : score;
          hidden = testsHidden() ? other : k.select(takesPart[r], other, hidden);
        }
        score = k.select(isSeen, score, hidden);
      }
      if (keepsSeen())
        seen.push_back(isSeen ? isSeen : arith::ConstantIntOp::create(k.b, k.loc, 1, 1).getResult());
      result.push_back(k.select(k.less(place, numKeys), score, hiddenScore()));
    }
  return result;
}

} // namespace attn
