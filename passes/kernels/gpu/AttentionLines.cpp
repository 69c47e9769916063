#include "passes/kernels/gpu/AttentionEmitter.h"
#include "passes/kernels/gpu/NarrowRows.h"

#include "llvm/Support/MathExtras.h"

// Few queries, as in decoding: as fast as keys and values come from memory. A lane reads 16 bytes of a key's row and of
// its value's; as many as a row has lie side by side, a group, and have the same keys. Groups have keys of their own,
// with maxima and sums of their own, which are merged behind the last tile. Rows of bytes, of which codes and scale are
// no multiple of more than a word, are read by words.

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

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
  SmallVector<Buffer> launch(const Index &blocks) override;
  void sweep(Index begin, Index end, const KeyMask::Bounds &bounds) override;
  Nums sweepTile(const Index &key, const Nums &state) override;
  /// Lanes of a group agree.
  Num sumOfRow(const Num &part) override { return part; }

  void readQueries();
  std::optional<Mask> isInRow(int64_t dim);
  Nums readPiece(size_t operand, int64_t dim, const Index &key);
  Nums unpack(const Nums &words);
  Nums scoresOf(ArrayRef<Nums> keys, ArrayRef<Num> scales);
  Nums mergeWarp(const Nums &state);
  Nums mergeBlock(const Nums &state, const Buffer &shared);

  Index lane() { return k.thread % kWarp; }
  Index member() { return k.thread % cut.group; }
  Index firstColumn() { return member() * width; }
  Index row(int64_t r) override { return k.index(r); }
  Index keyPlace(int64_t c) override { return k.thread / cut.group + c * (cut.threads / cut.group); }
  /// Of what mergeBlock gives.
  Index columnPlace(int64_t) override { return k.thread; }

  const Cut cut;
  const bool isInBytes, isWide;
  const Precision precision; ///< of 16 bits
  SmallVector<Nums> queries;
};

Num add(const Num &x, const Num &y) { return x + y; }
Num greater(const Num &x, const Num &y) { return maximum(x, y); }

SmallVector<Buffer> LinesEmitter::launch(const Index &blocks) {
  SmallVector<Buffer> shared = k.launch(blocks, cut.threads, {cut.elements});
  k.setResidentBlocks(1);
  return shared;
}

void LinesEmitter::sweep(Index begin, Index end, const KeyMask::Bounds &bounds) {
  readQueries();
  Nums state = mergeBlock(mergeWarp(sweepTiles(begin, end, bounds)), arrays[0]);
  // From here on a thread has a column of all rows, and the group is all that have one.
  width = 1, groupWidth = valueWidth;
  k.when(k.thread < valueWidth, [&] {
    if (splits == 1)
      store(state);
    else
      storePart(state);
  });
}

/// The thread's part of the row of `key`, in f32, or words of two elements or four codes; zeros beyond the row's width.
Nums LinesEmitter::readPiece(size_t operand, int64_t dim, const Index &key) {
  const OperandView &view = views[operand];
  Index column = firstColumn();
  std::optional<Mask> isInside = isInRow(dim);
  if (isInside)
    column = select(*isInside, column, k.index(0));
  Index at = view.at({{Dim::J, key}, {dim, column}});
  Nums piece;
  if (isInBytes)
    for (int64_t n = 0; n < width; n += kWordBytes)
      piece.push_back(k.loadWords(view.flat, at + n, 1)[0]);
  else
    piece = isWide ? k.loadFew(view.flat, at, width) : k.loadWords(view.flat, at, width / 2);
  for (Num &part : piece)
    if (isInside)
      part = select(*isInside, part, constantLike(part, 0));
  return piece;
}

/// Whether the thread's piece is in a row; none: all are.
std::optional<Mask> LinesEmitter::isInRow(int64_t dim) {
  int64_t size = *spec.getStaticSize(dim);
  return size < cut.group * width ? std::optional(firstColumn() < size) : std::nullopt;
}

Nums LinesEmitter::unpack(const Nums &words) {
  if (isWide)
    return words;
  Type code = spec.types[spec.value].getElementType();
  Nums elements;
  for (const Num &word : words)
    llvm::append_range(elements, isInBytes ? codesOfWord(k, word, code) : k.unpacked(word, precision));
  return elements;
}

/// The same of the queries in f32, which may lie in any order.
void LinesEmitter::readQueries() {
  const OperandView &view = views[spec.query];
  std::optional<Mask> isInside = isInRow(Dim::D);
  for (int64_t r = 0; r < rows; ++r) {
    Nums &elements = queries.emplace_back();
    for (int64_t n = 0; n < width; ++n) {
      Index column = firstColumn() + n;
      if (isInside)
        column = select(*isInside, column, k.index(0));
      Num x = loadF32(view, view.at({{Dim::I, query(r)}, {Dim::D, column}}));
      elements.push_back(isInside ? select(*isInside, x, k.f32(0)) : x);
    }
  }
}

/// Products of the thread's queries and keys; `scales` are those of codes.
Nums LinesEmitter::scoresOf(ArrayRef<Nums> keys, ArrayRef<Num> scales) {
  Nums scores(rows * columns);
  for (int64_t c = 0; c < columns; ++c) {
    Nums key = unpack(keys[c]);
    for (int64_t r = 0; r < rows; ++r) {
      Num sum = queries[r][0] * key[0];
      for (int64_t n = 1; n < width; ++n)
        sum = fma(queries[r][n], key[n], sum);
      sum = k.acrossThreads(sum, cut.group, add);
      scores[r * columns + c] = isInBytes ? sum * scales[c] : sum;
    }
  }
  return scores;
}

Nums LinesEmitter::sweepTile(const Index &key, const Nums &state) {
  SmallVector<Nums> keys, values;
  Nums keyScales, valueScales;
  auto place = [&](int64_t c) { return orLast(keyOf(key, c)); };
  for (int64_t c = 0; c < columns; ++c)
    values.push_back(readPiece(spec.value, Dim::E, place(c)));
  for (int64_t c = 0; c < columns; ++c)
    keys.push_back(readPiece(spec.keyOperand, Dim::D, place(c)));
  for (int64_t c = 0; isInBytes && c < columns; ++c) {
    keyScales.push_back(scaleOfRow(views[spec.keyOperand], Dim::D, place(c)));
    valueScales.push_back(scaleOfRow(views[spec.value], Dim::E, place(c)));
  }
  Nums next, weights = weigh(finishScores(scoresOf(keys, keyScales), key), key, state, next);
  for (int64_t c = 0; c < columns; ++c) {
    // A value of weight 0 reaches nothing.
    for (int64_t r = 0; r < rows; ++r) {
      Num weight = weights[r * columns + c];
      Mask isNothing = weight == 0.0;
      Nums taken = values[c];
      if (isInBytes) // codes are finite
        weight = select(isNothing, k.f32(0), weight * valueScales[c]);
      else
        for (Num &part : taken)
          part = select(isNothing, constantLike(part, 0), part);
      for (auto [n, x] : llvm::enumerate(unpack(taken))) {
        Num &sum = next[2 * rows + r * width + n];
        sum = fma(weight, x, sum);
      }
    }
  }
  return next;
}

/// States of a warp's groups as one, in all of them.
Nums LinesEmitter::mergeWarp(const Nums &state) {
  Nums merged = state;
  auto overGroups = [&](const Num &x, auto combine) {
    return k.acrossThreads(x, kWarp / cut.group, combine, cut.group);
  };
  for (int64_t r = 0; r < rows; ++r) {
    std::optional<Num> factor;
    if (spec.normalizer == Normalizer::softmax) {
      merged[r] = overGroups(state[r], greater);
      factor = exponential(state[r] - shiftOf(merged[r]));
    }
    auto merge = [&](Num &x) { x = overGroups(factor ? x * *factor : x, add); };
    merge(merged[rows + r]);
    for (int64_t e = 0; e < width; ++e)
      merge(merged[2 * rows + r * width + e]);
  }
  return merged;
}

/// The same of the block's warps: maxima and sums of the rows, then of each row the column of the thread's number. In
/// shared memory [row][warp] are maxima, [warp][row][column] what warps have relative to the greatest of them.
Nums LinesEmitter::mergeBlock(const Nums &state, const Buffer &shared) {
  int64_t warps = cut.threads / kWarp, pitch = valueWidth + 1;
  Index warp = k.thread / kWarp;
  Mask isFirst = lane() < 1;
  auto placeOf = [&](const Index &warp, int64_t r) { return (warp * rows + r) * pitch + rows * warps; };
  Nums merged(ArrayRef(state).take_front(rows)), factors;
  if (spec.normalizer == Normalizer::softmax) {
    k.when(isFirst, [&] {
      for (int64_t r = 0; r < rows; ++r)
        shared.set(state[r], warp + r * warps);
    });
    k.barrier();
    for (int64_t r = 0; r < rows; ++r) {
      Nums tops;
      for (int64_t w = 0; w < warps; ++w)
        tops.push_back(shared(r * warps + w));
      merged[r] = tree(ArrayRef(tops), greater);
      factors.push_back(exponential(state[r] - shiftOf(merged[r])));
    }
  }
  auto scaled = [&](const Num &x, int64_t r) { return factors.empty() ? x : x * factors[r]; };
  k.when((lane() < cut.group) & (firstColumn() < valueWidth), [&] {
    for (int64_t r = 0; r < rows; ++r) {
      Index base = placeOf(warp, r) + firstColumn();
      for (int64_t e = 0; e < width; ++e)
        shared.set(scaled(state[2 * rows + r * width + e], r), base + e);
      k.when(isFirst, [&] { shared.set(scaled(state[rows + r], r), base + valueWidth); });
    }
  });
  k.barrier();
  auto sumOf = [&](int64_t r, const Index &column) {
    Nums parts;
    for (int64_t w = 0; w < warps; ++w)
      parts.push_back(shared(placeOf(k.index(w), r) + column));
    return tree(ArrayRef(parts), add);
  };
  for (int64_t r = 0; r < rows; ++r)
    merged.push_back(sumOf(r, k.index(valueWidth)));
  for (int64_t r = 0; r < rows; ++r)
    merged.push_back(sumOf(r, minimum(k.thread, valueWidth - 1)));
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
