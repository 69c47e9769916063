#include "passes/kernels/gpu/AttentionEmitter.h"
#include "passes/kernels/gpu/NarrowRows.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

// Few queries, as in decoding: as fast as keys and values come from memory. A lane reads 16 bytes of a key's row and of
// its value's; as many as a row has lie side by side, a group, and have the same keys. Groups have keys of their own,
// with maxima and sums of their own, which are merged behind the last tile. Rows of bytes, of which codes and scale are
// no multiple of more than a word, are read by words.

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;

namespace {

constexpr int64_t kWarp = 32, kBytes = 16, kWordBytes = 4, kMostQueries = 4, kMostSplits = 16;

/// How a block is cut.
struct Cut {
  int64_t threads, group, keys; ///< lanes of a group; keys of a tile for each of them
  int64_t elements = 0;         ///< in shared memory
};

/// How many elements of a row a lane has.
int64_t laneWidth(const AttentionSpec &spec) {
  if (!spec.isInBytes(spec.value))
    return kBytes * 8 / spec.types[spec.query].getElementTypeBitWidth();
  // As many as of f16, so that a group of lanes is not larger than for these.
  bool hasPairs =
      *spec.getStaticSize(Dim::D) % (2 * kWordBytes) == 0 && *spec.getStaticSize(Dim::E) % (2 * kWordBytes) == 0;
  return hasPairs ? 2 * kWordBytes : kWordBytes;
}

std::optional<Cut> chooseCut(const AttentionSpec &spec, int64_t splits) {
  int64_t rows = *spec.getStaticSize(Dim::I), width = laneWidth(spec), e = *spec.getStaticSize(Dim::E);
  int64_t group = llvm::PowerOf2Ceil(llvm::divideCeil(std::max(*spec.getStaticSize(Dim::D), e), width));
  if (group > kWarp)
    return std::nullopt;
  // Loads of all keys of a tile are under way at once.
  constexpr int64_t kFewThreads = 128, kManyThreads = 1024, kUnknownKeys = 128, kFewKeys = 4, kMostKeys = 5;
  constexpr int64_t kProcessors = 132;
  std::optional<int64_t> j = spec.getStaticSize(Dim::J);
  int64_t keys = std::max<int64_t>(j ? llvm::divideCeil(*j, splits) : kUnknownKeys, 1);
  int64_t heads = spec.getStaticSize(Dim::B).value_or(1) * spec.getStaticSize(Dim::H).value_or(1);
  auto elements = [&](int64_t threads) { return threads / kWarp * rows * (e + 2); };
  auto fits = [&](int64_t threads) {
    return elements(threads) + countCommonElements(spec, {}) <= AttentionEmitter::kSharedElements;
  };
  // More queries, masks and score regions take more registers, which fewer threads have.
  bool isPlain = rows == 1 && !spec.hasMask() && spec.getPureScale();
  int64_t most = heads * splits >= kProcessors || rows > 2 ? 256 : isPlain ? kManyThreads : kManyThreads / 2;
  while (most > kFewThreads && !fits(most))
    most /= 2;
  Cut cut{kFewThreads, group, 1};
  auto rounds = [&] { return llvm::divideCeil(keys, cut.threads / group); };
  while (cut.threads < most && rounds() > kFewKeys)
    cut.threads *= 2;
  // Behind the last tile each column has a thread.
  cut.threads = std::max<int64_t>(cut.threads, llvm::alignTo(e, kWarp));
  cut.keys = llvm::divideCeil(rounds(), llvm::divideCeil(rounds(), kMostKeys));
  cut.elements = elements(cut.threads);
  return fits(cut.threads) ? std::optional(cut) : std::nullopt;
}

class LinesEmitter : public AttentionEmitter {
public:
  LinesEmitter(OpBuilder &b, Location loc, const AttentionSpec &spec)
      : AttentionEmitter(b, loc, spec), cut(*chooseCut(spec, splits)), isInBytes(spec.isInBytes(spec.value)),
        isWide(isF32(spec) && !isInBytes),
        precision(spec.types[spec.query].getElementType().isF16() ? Precision::f16 : Precision::bf16) {
    rows = *spec.getStaticSize(Dim::I), columns = cut.keys, width = laneWidth(spec);
    groupWidth = neighbours = 1;
    queriesPerBlock = rows, keysPerTile = cut.threads / cut.group * cut.keys;
  }

private:
  Values launch(Value blocks) override;
  void sweep(ArrayRef<Value> shared, Value begin, Value end, const KeyMask::Bounds &bounds) override;
  Values sweepTile(Value key, ValueRange state) override;
  /// Lanes of a group agree.
  Value sumOfRow(Value part) override { return part; }

  void readQueries();
  Value isInRow(int64_t dim);
  Values readPiece(size_t operand, int64_t dim, Value key);
  Values unpack(ValueRange words);
  Value zeroOf(Type type) { return arith::ConstantOp::create(k.b, k.loc, k.b.getZeroAttr(type)); }
  Values mergeWarp(ValueRange state);
  Values mergeBlock(ValueRange state, Value shared);

  Value lane() { return k.rem(k.thread, k.index(kWarp)); }
  Value member() { return k.rem(k.thread, k.index(cut.group)); }
  Value firstColumn() { return k.mul(member(), width); }
  Value row(int64_t r) override { return k.index(r); }
  Value keyPlace(int64_t c) override {
    return k.add(k.div(k.thread, k.index(cut.group)), c * (cut.threads / cut.group));
  }
  /// Of what mergeBlock gives.
  Value columnPlace(int64_t) override { return k.thread; }

  const Cut cut;
  const bool isInBytes, isWide;
  const Precision precision; ///< of 16 bits
  SmallVector<Values> queries;
};

Values LinesEmitter::launch(Value blocks) {
  Values shared = k.launch(blocks, cut.threads, {cut.elements});
  k.setResidentBlocks(1);
  return shared;
}

void LinesEmitter::sweep(ArrayRef<Value> shared, Value begin, Value end, const KeyMask::Bounds &bounds) {
  readQueries();
  Values state = mergeBlock(mergeWarp(sweepTiles(begin, end, bounds)), shared[0]);
  // From here on a thread has a column of all rows, and the group is all that have one.
  width = 1, groupWidth = valueWidth;
  k.branch(k.less(k.thread, k.index(valueWidth)), [&] {
    if (splits == 1)
      store(state);
    else
      storePart(state);
  });
}

/// The thread's part of the row of `key`, in f32, or words of two elements or four codes; zeros beyond the row's width.
Values LinesEmitter::readPiece(size_t operand, int64_t dim, Value key) {
  const HeadView &view = views[operand];
  Value column = firstColumn(), isInside = isInRow(dim);
  if (isInside)
    column = k.select(isInside, column, k.index(0));
  Value at = view.along(k, view.along(k, view.base, Dim::J, key), dim, column);
  Values piece;
  if (isInBytes)
    for (int64_t n = 0; n < width; n += kWordBytes)
      piece.push_back(k.loadWords(view.flat, k.add(at, n), 1)[0]);
  else
    piece = isWide ? k.loadFew(view.flat, at, width) : k.loadWords(view.flat, at, width / 2);
  for (Value &part : piece)
    if (isInside)
      part = k.select(isInside, part, zeroOf(part.getType()));
  return piece;
}

/// Whether the thread's piece is in a row; null: all are.
Value LinesEmitter::isInRow(int64_t dim) {
  int64_t size = *spec.getStaticSize(dim);
  return size < cut.group * width ? k.less(firstColumn(), k.index(size)) : Value();
}

Values LinesEmitter::unpack(ValueRange words) {
  if (isWide)
    return Values(words);
  Values elements;
  ThreadCode thread(k.b, k.loc);
  for (Value word : words)
    llvm::append_range(elements, isInBytes ? ThreadCode::values<Num>(codesOfWord(
                                                 thread, thread.asNum(word), spec.types[spec.value].getElementType()))
                                           : k.unpacked(word, precision));
  return elements;
}

/// The same of the queries in f32, which may lie in any order.
void LinesEmitter::readQueries() {
  const HeadView &view = views[spec.query];
  Value isInside = isInRow(Dim::D);
  for (int64_t r = 0; r < rows; ++r) {
    Values &elements = queries.emplace_back();
    for (int64_t n = 0; n < width; ++n) {
      Value column = k.add(firstColumn(), n);
      if (isInside)
        column = k.select(isInside, column, k.index(0));
      Value x = loadF32(view, view.along(k, view.along(k, view.base, Dim::I, query(r)), Dim::D, column));
      elements.push_back(isInside ? k.select(isInside, x, k.scalar(0)) : x);
    }
  }
}

Values LinesEmitter::sweepTile(Value key, ValueRange state) {
  SmallVector<Values> keys, values;
  Values keyScales, valueScales;
  auto place = [&](int64_t c) { return k.min(keyOf(key, c), k.sub(numKeys, k.index(1))); };
  for (int64_t c = 0; c < columns; ++c)
    values.push_back(readPiece(spec.value, Dim::E, place(c)));
  for (int64_t c = 0; c < columns; ++c)
    keys.push_back(readPiece(spec.keyOperand, Dim::D, place(c)));
  for (int64_t c = 0; isInBytes && c < columns; ++c) {
    keyScales.push_back(scaleOfRow(views[spec.keyOperand], Dim::D, place(c)));
    valueScales.push_back(scaleOfRow(views[spec.value], Dim::E, place(c)));
  }
  Values scores(rows * columns);
  for (int64_t c = 0; c < columns; ++c) {
    Values row = unpack(keys[c]);
    for (int64_t r = 0; r < rows; ++r) {
      Value sum = k.mulf(queries[r][0], row[0]);
      for (int64_t n = 1; n < width; ++n)
        sum = k.fma(queries[r][n], row[n], sum);
      sum = k.acrossThreads(sum, cut.group, [&](Value x, Value y) { return k.addf(x, y); });
      scores[r * columns + c] = isInBytes ? k.mulf(sum, keyScales[c]) : sum;
    }
  }
  Values next, weights = weigh(finishScores(scores, key), key, state, next);
  for (int64_t c = 0; c < columns; ++c) {
    // A value of weight 0 reaches nothing.
    for (int64_t r = 0; r < rows; ++r) {
      Value weight = weights[r * columns + c], isNothing = k.compare(arith::CmpFPredicate::OEQ, weight, k.scalar(0));
      Values taken;
      if (isInBytes) // codes are finite
        taken = values[c], weight = k.select(isNothing, k.scalar(0), k.mulf(weight, valueScales[c]));
      else
        for (Value part : values[c])
          taken.push_back(k.select(isNothing, zeroOf(part.getType()), part));
      for (auto [n, x] : llvm::enumerate(unpack(taken))) {
        Value &sum = next[2 * rows + r * width + n];
        sum = k.fma(weight, x, sum);
      }
    }
  }
  return next;
}

/// States of a warp's groups as one, in all of them.
Values LinesEmitter::mergeWarp(ValueRange state) {
  Values merged(state);
  auto overGroups = [&](Value x, llvm::function_ref<Value(Value, Value)> combine) {
    return k.acrossThreads(x, kWarp / cut.group, combine, cut.group);
  };
  auto add = [&](Value x, Value y) { return k.addf(x, y); };
  for (int64_t r = 0; r < rows; ++r) {
    Value factor;
    if (spec.normalizer == Normalizer::softmax) {
      merged[r] = overGroups(state[r], [&](Value x, Value y) { return k.greater(x, y); });
      factor = exponential(k.subf(state[r], shiftOf(merged[r])));
    }
    auto merge = [&](Value &x) { x = overGroups(factor ? k.mulf(x, factor) : x, add); };
    merge(merged[rows + r]);
    for (int64_t e = 0; e < width; ++e)
      merge(merged[2 * rows + r * width + e]);
  }
  return merged;
}

/// The same of the block's warps: maxima and sums of the rows, then of each row the column of the thread's number. In
/// shared memory [row][warp] are maxima, [warp][row][column] what warps have relative to the greatest of them.
Values LinesEmitter::mergeBlock(ValueRange state, Value shared) {
  int64_t warps = cut.threads / kWarp, pitch = valueWidth + 1;
  Value warp = k.div(k.thread, k.index(kWarp)), isFirst = k.less(lane(), k.index(1));
  auto put = [&](Value x, Value place) { memref::StoreOp::create(k.b, k.loc, x, shared, place); };
  auto placeOf = [&](Value warp, int64_t r) { return k.add(k.mul(k.add(k.mul(warp, rows), r), pitch), rows * warps); };
  Values merged(state.take_front(rows)), factors;
  if (spec.normalizer == Normalizer::softmax) {
    k.branch(isFirst, [&] {
      for (int64_t r = 0; r < rows; ++r)
        put(state[r], k.add(warp, r * warps));
    });
    k.barrier();
    for (int64_t r = 0; r < rows; ++r) {
      Values tops;
      for (int64_t w = 0; w < warps; ++w)
        tops.push_back(k.load(shared, k.index(r * warps + w)));
      merged[r] = k.tree(tops, [&](Value x, Value y) { return k.greater(x, y); });
      factors.push_back(exponential(k.subf(state[r], shiftOf(merged[r]))));
    }
  }
  auto scaled = [&](Value x, int64_t r) { return factors.empty() ? x : k.mulf(x, factors[r]); };
  k.branch(k.both(k.less(lane(), k.index(cut.group)), k.less(firstColumn(), k.index(valueWidth))), [&] {
    for (int64_t r = 0; r < rows; ++r) {
      Value base = k.add(placeOf(warp, r), firstColumn());
      for (int64_t e = 0; e < width; ++e)
        put(scaled(state[2 * rows + r * width + e], r), k.add(base, e));
      k.branch(isFirst, [&] { put(scaled(state[rows + r], r), k.add(base, valueWidth)); });
    }
  });
  k.barrier();
  auto sumOf = [&](int64_t r, Value column) {
    Values parts;
    for (int64_t w = 0; w < warps; ++w)
      parts.push_back(k.load(shared, k.add(placeOf(k.index(w), r), column)));
    return k.tree(parts, [&](Value x, Value y) { return k.addf(x, y); });
  };
  for (int64_t r = 0; r < rows; ++r)
    merged.push_back(sumOf(r, k.index(valueWidth)));
  for (int64_t r = 0; r < rows; ++r)
    merged.push_back(sumOf(r, k.min(k.thread, k.index(valueWidth - 1))));
  return merged;
}

} // namespace

bool canUseLines(const AttentionSpec &spec) {
  std::optional<int64_t> i = spec.getStaticSize(Dim::I), d = spec.getStaticSize(Dim::D), e = spec.getStaticSize(Dim::E);
  if (!i || *i < 1 || *i > kMostQueries || !d || !e || !spec.formula().isProduct)
    return false;
  bool isPlain = spec.blockLists.empty() && !spec.hasWeightSweep() && !spec.letsHiddenTakePart() && !storesTiles(spec);
  auto typeOf = [&](size_t operand) { return spec.types[operand].getElementType(); };
  bool isInBytes = spec.isInBytes(spec.value);
  bool isOne = typeOf(spec.keyOperand) == typeOf(spec.value) && (isInBytes || typeOf(spec.query) == typeOf(spec.value));
  int64_t width = isInBytes ? kWordBytes : laneWidth(spec);
  return isPlain && isOne && hasPieces(spec, spec.keyOperand, Dim::D, width) &&
         hasPieces(spec, spec.value, Dim::E, width) && chooseCut(spec, 1) && chooseCut(spec, kMostSplits);
}

std::unique_ptr<AttentionEmitter> makeLinesAttention(OpBuilder &builder, Location loc, const AttentionSpec &spec) {
  return std::make_unique<LinesEmitter>(builder, loc, spec);
}

} // namespace attn
