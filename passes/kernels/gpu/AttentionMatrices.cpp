#include "passes/kernels/gpu/AttentionEmitter.h"

#include "llvm/Support/MathExtras.h"

// Products by matrix units: four warps of 16 queries. A tile of keys or values is
// copied without waiting. From f32 to bf16 and f16 it is rounded once, each part by
// the thread that copied it; for tf32 it stays where it was copied to and is rounded
// as it is read; buffers of 16 bits are copied to where they are multiplied. Weights
// go from one product to the next in registers.

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

namespace {

constexpr int64_t kWarpQueries = 16, kQueries = 64, kMaxWidth = 128, kMostKeys = 64;
/// What the largest tiles have, those of tf32 and heads of 128.
constexpr int64_t kMostElements = 10881;

class MatricesEmitter : public AttentionEmitter {
public:
  MatricesEmitter(OpBuilder &b, Location loc, const AttentionSpec &spec, Precision precision)
      : AttentionEmitter(b, loc, spec), precision(precision), isWide(precision == Precision::tf32),
        isStaged(isF32(spec) && !isWide) {
    keys.width = *spec.getStaticSize(Dim::D), values.width = *spec.getStaticSize(Dim::E);
    keys.operand = spec.keyOperand, values.operand = spec.value;
    keys.dim = Dim::D, values.dim = Dim::E;
    for (Tile *tile : {&keys, &values}) {
      tile->padded = llvm::alignTo(tile->width, 16);
      tile->pitch = tile->padded / 2 + 4;
    }
    // Of lanes (g, t) that read places 2t of key g, and column g of the values of key 2t, no two meet in a bank.
    if (isWide)
      keys.pitch = keys.padded + 8, values.pitch = values.padded + 4;
    // What fits 48 KiB.
    keysPerTile = std::max(keys.padded, values.padded) > 64 || (isWide && canHide()) ? kMostKeys / 2 : kMostKeys;
    for (Tile *tile : {&keys, &values}) {
      // All threads have some.
      bool isEight = !isF32(spec) && keysPerTile * tile->padded % (8 * kThreads) == 0;
      tile->group = isEight ? 8 : 4, tile->piece = tile->group;
      while (tile->piece > 1 && !hasPieces(spec, tile->operand, tile->dim, tile->piece))
        tile->piece /= isF32(spec) ? 4 : 2;
    }
    queriesPerBlock = kQueries, groupWidth = 4, neighbours = 2;
    rows = 2, columns = keysPerTile / 4, width = values.padded / 4;
  }

private:
  /// Of 16-bit elements, two in an element of shared memory; the rows of an 8 x 8
  /// matrix begin in different banks. For tf32 of f32.
  struct Tile {
    size_t operand;
    unsigned dim;
    int64_t width, padded, pitch;
    int64_t group, piece; ///< elements of a row that a thread copies, and of those at once
    Buffer shared;
  };

  SmallVector<int64_t> sharedElements() override {
    int64_t weights = kQueries * weightPitch(), copied = keysPerTile * std::max(keys.padded, values.padded);
    if (!isStaged)
      return {canHide() ? weights : 1, keysPerTile * keys.pitch, keysPerTile * values.pitch, 1};
    return {copied, std::max(keysPerTile * keys.pitch, weights), keysPerTile * values.pitch, 1};
  }
  int64_t weightPitch() const { return keysPerTile / perWord() + 4; }
  /// Rounded elements in a register, and in an element of shared memory.
  int64_t perWord() const { return isWide ? 1 : 2; }
  /// Elements in 32 bits of a buffer.
  int64_t perCopied() const { return isF32(spec) ? 1 : 2; }
  void start() override;
  void copyKeys(const Index &key) override;
  Nums sweepTile(const Index &key, const Nums &state) override;

  /// Scores are not given.
  bool hasKeys() const { return spec.formula().hasKey; }
  void copy(const Tile &tile, const Index &begin);
  void copyEach(const Tile &tile, const Index &offset, const Mask &isRow, const Index &column, const Index &to);
  void finishCopy(const Tile &tile, bool findsInfinite);
  Nums readQueries(int64_t d, const Index &offset);
  Nums readKeys(int64_t d, int64_t j);
  Nums readValues(int64_t key, int64_t e);
  Nums products();
  SmallVector<Nums> packWeights(ArrayRef<Num> weights);
  Nums addProducts(ArrayRef<Nums> weights, const Nums &sums);
  Nums addVisible(ArrayRef<Nums> weights, const Nums &sums);
  Nums readTwo(const Buffer &shared, const Index &place);

  Index warp() { return k.thread / 32; }
  Index lane() { return k.thread % 32; }
  Index group() { return lane() / 4; }
  Index member() { return k.thread % 4; }
  Index row(int64_t r) override { return warp() * kWarpQueries + group() + 8 * r; }
  Index keyPlace(int64_t c) override { return member() * 2 + (c / 2 * 8 + c % 2); }
  Index columnPlace(int64_t e) override { return keyPlace(e); }

  const Precision precision;
  const bool isWide, isStaged;
  Tile keys, values;
  Buffer staging, isInfinite;
  /// [16 of the width][packed row g, packed row g + 8].
  SmallVector<std::pair<Nums, Nums>> queries;
};

void MatricesEmitter::copyKeys(const Index &key) {
  if (hasKeys())
    copy(keys, key);
  k.commitCopies();
}

void MatricesEmitter::start() {
  staging = arrays[0], keys.shared = arrays[1], values.shared = arrays[2], isInfinite = arrays[3];
  if (!hasKeys())
    return;
  const OperandView &view = views[spec.query];
  Index top = view.at({{Dim::I, query(0)}}), bottom = view.at({{Dim::I, query(1)}});
  for (int64_t d = 0; d < keys.padded; d += 16) {
    Nums first = readQueries(d, top), second = readQueries(d, bottom);
    queries.push_back({first, second});
  }
}

/// Packed, 16 of the width from `d` on of the thread's query at `offset`.
Nums MatricesEmitter::readQueries(int64_t d, const Index &offset) {
  const OperandView &view = views[spec.query];
  bool isInside = d + 16 <= keys.width;
  Nums four;
  for (int64_t c = 0; c < 4; ++c) {
    Index place = keyPlace(c) + d, at = isInside ? place : minimum(place, keys.width - 1);
    Num x = loadF32(view, view.along(offset, Dim::D, at));
    four.push_back(isInside ? x : select(place < keys.width, x, k.f32(0)));
  }
  return k.packed(four, precision);
}

/// Starts to copy the tile's rows `begin`...; zeros behind the last key and the width.
void MatricesEmitter::copy(const Tile &tile, const Index &begin) {
  const OperandView &view = views[tile.operand];
  int64_t inner = tile.padded / tile.group;
  for (int64_t n = 0; n < keysPerTile * inner; n += kThreads) {
    Index part = k.thread + n, at = part / inner, group = part % inner;
    Index column = group * tile.group, source = begin + at;
    Mask isRow = source < numKeys;
    Index offset = view.at({{Dim::J, source}});
    Index to = isStaged ? part * 4 : at * tile.pitch + group * (tile.group / perWord());
    if (tile.piece < perCopied()) {
      copyEach(tile, offset, isRow, column, to);
      continue;
    }
    for (int64_t e = 0; e < tile.group; e += tile.piece) {
      Index place = column + e;
      Mask isInside = tile.padded == tile.width ? isRow : isRow & (place < tile.width);
      Index target = to + e / perCopied(), from = view.along(offset, tile.dim, place);
      k.copyAsync(isStaged ? staging : tile.shared, target, view.flat, from, tile.piece / perCopied(), isInside);
    }
  }
}

/// Elements of 16 bits one by one, which is less than can be copied without waiting.
void MatricesEmitter::copyEach(const Tile &tile, const Index &offset, const Mask &isRow, const Index &column,
                               const Index &to) {
  const OperandView &view = views[tile.operand];
  Nums words;
  for (int64_t n = 0; n < tile.group; n += 4) {
    Nums four;
    for (int64_t e = n; e < n + 4; ++e) {
      Index place = column + e, at = view.along(offset, tile.dim, place);
      auto read = [&] { return loadF32(view, at); };
      four.push_back(k.choose(isRow & (place < tile.width), read, [&] { return k.f32(0); }));
    }
    for (const Num &pair : k.packed(four, precision))
      words.push_back(k.asFloat(pair));
  }
  k.storeFew(words, tile.shared, to);
}

/// Rounds what the thread itself has copied, to where the warps read it; finds out whether all of it is finite then.
void MatricesEmitter::finishCopy(const Tile &tile, bool findsInfinite) {
  if (!isStaged && !findsInfinite)
    return;
  int64_t inner = tile.padded / tile.group;
  // Below it a finite number stays finite.
  const float limit = precision == Precision::f16 ? 65504.0f : 3.38e38f;
  Mask isFine;
  for (int64_t n = 0; n < keysPerTile * inner; n += kThreads) {
    Index part = k.thread + n, at = part / inner, column = part % inner;
    Index place = at * tile.pitch + column * (tile.group / perWord());
    Nums read, words;
    if (isF32(spec))
      read = isWide ? k.load4(tile.shared, place) : k.load4(staging, part * 4);
    else
      for (const Num &word : k.loadFew(tile.shared, place, tile.group / 2))
        llvm::append_range(read, k.unpacked(word, precision));
    for (const Num &pair : isStaged ? k.packed(read, precision) : Nums())
      words.push_back(k.asFloat(pair));
    if (isStaged)
      k.storeFew(words, tile.shared, place);
    for (const Num &x : findsInfinite ? read : Nums()) {
      Mask isFinite = abs(x) <= limit;
      isFine = isFine.value() ? isFine & isFinite : isFinite;
    }
  }
  if (findsInfinite)
    k.when(!isFine, [&] { isInfinite.set(k.f32(1), 0); });
}

Nums MatricesEmitter::sweepTile(const Index &key, const Nums &state) {
  k.waitForCopies(0);
  if (hasKeys())
    finishCopy(keys, false);
  if (canHide())
    isInfinite.set(k.f32(0), 0);
  k.barrier(); // keys are there
  bool wantsValues = pass != Pass::reduce;
  if (wantsValues) {
    copy(values, key);
    k.commitCopies();
  }
  Nums next, made = weigh(finishScores(hasKeys() ? products() : givenScores(key), key), key, state, next);
  if (!wantsValues) {
    k.barrier(); // keys have been read
    copyKeys(following);
    return next;
  }
  SmallVector<Nums> packed = packWeights(made);
  k.waitForCopies(0);
  finishCopy(values, canHide());
  k.barrier(); // values are there, keys have been read
  copyKeys(following);
  Nums sums(ArrayRef(next).drop_front(2 * rows));
  if (canHide()) // A hidden value reaches nothing, also where 0 times it is not 0.
    sums = k.choose(
        isNonZero(isInfinite(0)), [&] { return addVisible(packed, sums); }, [&] { return addProducts(packed, sums); });
  else
    sums = addProducts(packed, sums);
  k.barrier(); // values have been read
  next.truncate(2 * rows);
  next.append(sums);
  return next;
}

/// Of each 16 keys: row g, then g + 8.
SmallVector<Nums> MatricesEmitter::packWeights(ArrayRef<Num> weights) {
  SmallVector<Nums> packed;
  for (int64_t c = 0; c < columns; c += 4) {
    packed.push_back(k.packed(weights.slice(c, 4), precision));
    packed.back().append(k.packed(weights.slice(columns + c, 4), precision));
  }
  return packed;
}

/// Keys `j`... and `j + 8`..., 16 of the width from `d` on, as multiplyMatrices takes two columns.
Nums MatricesEmitter::readKeys(int64_t d, int64_t j) {
  if (!isWide) {
    // Lanes 8m to 8m + 7 name the rows of matrix m: keys m / 2 * 8..., width m % 2 * 8...
    Index matrix = lane() / 8, within = lane() % 8, key = matrix / 2 * 8 + within;
    Index base = key * keys.pitch + matrix % 2 * 4;
    return k.loadMatrices(keys.shared, base + (j * keys.pitch + d / 2), false, precision);
  }
  Nums both;
  for (int64_t half = 0; half < 2; ++half) {
    Index base = (group() + (j + 8 * half)) * keys.pitch + (member() * 2 + d);
    Nums four = k.loadFew(keys.shared, base, 2);
    llvm::append_range(four, k.loadFew(keys.shared, base + 8, 2));
    llvm::append_range(both, k.packed(four, precision));
  }
  return both;
}

/// Columns `e`... and `e + 8`... of 16 values from `key` on.
Nums MatricesEmitter::readValues(int64_t key, int64_t e) {
  if (!isWide) {
    // Matrix m: keys m % 2 * 8..., columns m / 2 * 8..., transposed.
    Index matrix = lane() / 8, within = lane() % 8, at = matrix % 2 * 8 + within;
    Index base = at * values.pitch + matrix / 2 * 4;
    return k.loadMatrices(values.shared, base + (key * values.pitch + e / 2), true, precision);
  }
  Nums both;
  for (int64_t half = 0; half < 2; ++half) {
    Index base = member() * 2 * values.pitch + (group() + (key * values.pitch + e + 8 * half));
    Nums four;
    for (int64_t place : {0, 1, 8, 9})
      four.push_back(values.shared(base + place * values.pitch));
    llvm::append_range(both, k.packed(four, precision));
  }
  return both;
}

/// Raw scores of the thread's rows and keys.
Nums MatricesEmitter::products() {
  SmallVector<Nums> tiles(keysPerTile / 8, Nums(4, k.f32(0)));
  int64_t registers = 4 / perWord();
  for (auto [n, query] : llvm::enumerate(queries))
    for (int64_t j = 0; j < keysPerTile; j += 16) {
      Nums read = readKeys(16 * n, j);
      for (int64_t half = 0; half < 2; ++half) {
        Nums &sums = tiles[j / 8 + half];
        ArrayRef<Num> columns = ArrayRef(read).slice(registers * half, registers);
        sums = k.multiplyMatrices(query.first, query.second, columns, sums, precision);
      }
    }
  Nums result(rows * columns);
  for (auto [n, sums] : llvm::enumerate(tiles))
    for (int64_t i = 0; i < 4; ++i)
      result[i / 2 * columns + 2 * n + i % 2] = sums[i];
  return result;
}

/// `sums` [row][column] plus weights times values.
Nums MatricesEmitter::addProducts(ArrayRef<Nums> weights, const Nums &sums) {
  Nums next = sums;
  int64_t registers = 4 / perWord();
  for (auto [n, packed] : llvm::enumerate(weights))
    for (int64_t e = 0; e < values.padded; e += 16) {
      Nums read = readValues(16 * n, e);
      ArrayRef<Num> top = ArrayRef(packed).take_front(registers), bottom = ArrayRef(packed).drop_front(registers);
      for (int64_t half = 0; half < 2; ++half) {
        int64_t at = 2 * (e / 8 + half);
        Nums old = {next[at], next[at + 1], next[width + at], next[width + at + 1]};
        ArrayRef<Num> columns = ArrayRef(read).slice(registers * half, registers);
        Nums made = k.multiplyMatrices(top, bottom, columns, old, precision);
        next[at] = made[0], next[at + 1] = made[1], next[width + at] = made[2], next[width + at + 1] = made[3];
      }
    }
  return next;
}

/// Two rounded elements of shared memory, side by side.
Nums MatricesEmitter::readTwo(const Buffer &shared, const Index &place) {
  if (!isWide)
    return k.unpacked(shared(place), precision);
  Nums two = k.loadFew(shared, place, 2), result;
  for (const Num &word : k.packed({two[0], two[1], two[0], two[1]}, precision))
    result.push_back(k.asFloat(word));
  result.truncate(2);
  return result;
}

/// The same one by one, where the weight is not 0. The weights pass through shared
/// memory, where the keys were unless the next ones are being copied there; a warp
/// needs its own alone.
Nums MatricesEmitter::addVisible(ArrayRef<Nums> weights, const Nums &sums) {
  Buffer memory = isStaged ? keys.shared : staging;
  for (auto [n, packed] : llvm::enumerate(weights))
    for (auto [i, word] : llvm::enumerate(packed)) {
      int64_t registers = 4 / perWord(), c = i % registers * perWord();
      Index column = keyPlace(4 * n + c) / perWord();
      Index place = row(i / registers) * weightPitch() + column;
      memory.set(k.asFloat(word), place);
    }
  k.warpBarrier();
  return k.loop(0, keysPerTile, 2, sums, [&](Index key, Nums sums) {
    Nums pairs[2];
    for (int64_t r = 0; r < 2; ++r)
      pairs[r] = readTwo(memory, row(r) * weightPitch() + key / perWord());
    for (int64_t q = 0; q < 2; ++q)
      for (int64_t e = 0; e < width; e += 2) {
        Index column = columnPlace(e) / perWord();
        Nums two = readTwo(values.shared, (key + q) * values.pitch + column);
        for (int64_t r = 0; r < 2; ++r)
          for (int64_t half = 0; half < 2; ++half) {
            Num &sum = sums[r * width + e + half];
            sum = select(pairs[r][q] == 0.0, sum, fma(pairs[r][q], two[half], sum));
          }
      }
    return sums;
  });
}

} // namespace

bool canUseMatrices(const AttentionSpec &spec, Precision precision) {
  std::optional<int64_t> d = spec.getStaticSize(Dim::D), e = spec.getStaticSize(Dim::E);
  std::optional<int64_t> i = spec.getStaticSize(Dim::I);
  // A warp takes 16 queries; fewer are a matter of memory, not of products.
  bool isFew = i && *i <= kWarpQueries;
  // What is no softmax's weight may be beyond f16.
  bool isBounded = spec.normalizer == Normalizer::softmax && !spec.weight;
  int64_t common = countCommonElements(spec, {AttentionEmitter::kThreads, kQueries, kMostKeys});
  ScoreFormula formula = spec.formula();
  return precision != Precision::f32 && d && e && *d <= kMaxWidth && *e <= kMaxWidth &&
         (formula.isProduct || !formula.hasKey) && !isFew && (isBounded || precision != Precision::f16) &&
         kMostElements + common <= AttentionEmitter::kSharedElements;
}

std::unique_ptr<AttentionEmitter> makeMatricesAttention(OpBuilder &builder, Location loc, const AttentionSpec &spec,
                                                        Precision precision) {
  return std::make_unique<MatricesEmitter>(builder, loc, spec, precision);
}

} // namespace attn
