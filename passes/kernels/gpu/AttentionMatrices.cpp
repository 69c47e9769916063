#include "passes/kernels/gpu/AttentionEmitter.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

// Products by matrix units: four warps of 16 queries. A tile of keys or values is
// copied without waiting. From f32 to bf16 and f16 it is rounded once, each part by
// the thread that copied it; for tf32 it stays where it was copied to and is rounded
// as it is read; buffers of 16 bits are copied to where they are multiplied. Weights
// go from one product to the next in registers.

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;

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
    Value shared;
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
  void start(ArrayRef<Value> shared) override;
  void copyKeys(Value key) override;
  Values sweepTile(Value key, ValueRange state) override;

  /// Scores are not given.
  bool hasKeys() const { return spec.formula().hasKey; }
  void copy(const Tile &tile, Value begin);
  void copyEach(const Tile &tile, Value offset, Value isRow, Value column, Value to);
  void finishCopy(const Tile &tile, bool findsInfinite);
  Values readKeys(int64_t d, int64_t j);
  Values readValues(int64_t key, int64_t e);
  Values products();
  Values addProducts(ArrayRef<Values> weights, ValueRange sums);
  Values addVisible(ArrayRef<Values> weights, ValueRange sums);
  Values readTwo(Value shared, Value place);

  Value warp() { return k.div(k.thread, k.index(32)); }
  Value lane() { return k.rem(k.thread, k.index(32)); }
  Value group() { return k.div(lane(), k.index(4)); }
  Value member() { return k.rem(k.thread, k.index(4)); }
  Value row(int64_t r) override { return k.add(k.add(k.mul(warp(), kWarpQueries), group()), 8 * r); }
  Value keyPlace(int64_t c) override { return k.add(k.mul(member(), 2), c / 2 * 8 + c % 2); }
  Value columnPlace(int64_t e) override { return keyPlace(e); }

  const Precision precision;
  const bool isWide, isStaged;
  Tile keys, values;
  Value staging, isInfinite;
  /// [16 of the width][packed row g, packed row g + 8].
  SmallVector<std::pair<Values, Values>> queries;
};

void MatricesEmitter::copyKeys(Value key) {
  if (hasKeys())
    copy(keys, key);
  k.commitCopies();
}

void MatricesEmitter::start(ArrayRef<Value> shared) {
  staging = shared[0], keys.shared = shared[1], values.shared = shared[2], isInfinite = shared[3];
  if (!hasKeys())
    return;
  const HeadView &view = views[spec.query];
  Value bases[2];
  for (int64_t r = 0; r < 2; ++r)
    bases[r] = view.along(k, view.base, Dim::I, query(r));
  for (int64_t d = 0; d < keys.padded; d += 16) {
    Values packed[2];
    for (int64_t r = 0; r < 2; ++r) {
      Values four;
      for (int64_t c = 0; c < 4; ++c) {
        Value place = k.add(keyPlace(c), d);
        bool isInside = d + 16 <= keys.width;
        Value at = isInside ? place : k.min(place, k.index(keys.width - 1));
        Value x = loadF32(view, view.along(k, bases[r], Dim::D, at));
        four.push_back(isInside ? x : k.select(k.less(place, k.index(keys.width)), x, k.scalar(0)));
      }
      packed[r] = k.packed(four, precision);
    }
    queries.push_back({packed[0], packed[1]});
  }
}

/// Starts to copy the tile's rows `begin`...; zeros behind the last key and the width.
void MatricesEmitter::copy(const Tile &tile, Value begin) {
  const HeadView &view = views[tile.operand];
  int64_t inner = tile.padded / tile.group;
  for (int64_t n = 0; n < keysPerTile * inner; n += kThreads) {
    Value part = k.add(k.thread, n), at = k.div(part, k.index(inner)), group = k.rem(part, k.index(inner));
    Value column = k.mul(group, tile.group), source = k.add(begin, at), isRow = k.less(source, numKeys);
    Value offset = view.along(k, view.base, Dim::J, source);
    Value to = isStaged ? k.mul(part, 4) : k.add(k.mul(at, tile.pitch), k.mul(group, tile.group / perWord()));
    if (tile.piece < perCopied()) {
      copyEach(tile, offset, isRow, column, to);
      continue;
    }
    for (int64_t e = 0; e < tile.group; e += tile.piece) {
      Value place = k.add(column, e);
      Value isInside = tile.padded == tile.width ? isRow : k.both(isRow, k.less(place, k.index(tile.width)));
      k.copyAsync(isStaged ? staging : tile.shared, k.add(to, e / perCopied()), view.flat,
                  view.along(k, offset, tile.dim, place), tile.piece / perCopied(), isInside);
    }
  }
}

/// Elements of 16 bits one by one, which is less than can be copied without waiting.
void MatricesEmitter::copyEach(const Tile &tile, Value offset, Value isRow, Value column, Value to) {
  const HeadView &view = views[tile.operand];
  Values words;
  for (int64_t n = 0; n < tile.group; n += 4) {
    Values four;
    for (int64_t e = n; e < n + 4; ++e) {
      Value place = k.add(column, e), at = view.along(k, offset, tile.dim, place);
      four.append(k.branch(
          k.both(isRow, k.less(place, k.index(tile.width))), k.b.getF32Type(),
          [&] { return Values{loadF32(view, at)}; }, [&] { return Values{k.scalar(0)}; }));
    }
    for (Value pair : k.packed(four, precision))
      words.push_back(k.bitcast(pair, k.b.getF32Type()));
  }
  k.storeFew(words, tile.shared, to);
}

/// Rounds what the thread itself has copied, to where the warps read it; finds out whether all of it is finite then.
void MatricesEmitter::finishCopy(const Tile &tile, bool findsInfinite) {
  if (!isStaged && !findsInfinite)
    return;
  int64_t inner = tile.padded / tile.group;
  // Below it a finite number stays finite.
  Value limit = k.scalar(precision == Precision::f16 ? 65504.0f : 3.38e38f), isFine;
  for (int64_t n = 0; n < keysPerTile * inner; n += kThreads) {
    Value part = k.add(k.thread, n), at = k.div(part, k.index(inner)), column = k.rem(part, k.index(inner));
    Value place = k.add(k.mul(at, tile.pitch), k.mul(column, tile.group / perWord()));
    Values read, words;
    if (isF32(spec))
      read = isWide ? k.load4(tile.shared, place) : k.load4(staging, k.mul(part, 4));
    else
      for (Value word : k.loadFew(tile.shared, place, tile.group / 2))
        llvm::append_range(read, k.unpacked(word, precision));
    for (Value pair : isStaged ? k.packed(read, precision) : Values())
      words.push_back(k.bitcast(pair, k.b.getF32Type()));
    if (isStaged)
      k.storeFew(words, tile.shared, place);
    for (Value x : findsInfinite ? read : Values()) {
      Value isFinite = k.compare(arith::CmpFPredicate::OLE, math::AbsFOp::create(k.b, k.loc, x), limit);
      isFine = isFine ? k.both(isFine, isFinite) : isFinite;
    }
  }
  if (!findsInfinite)
    return;
  Value isFound = arith::XOrIOp::create(k.b, k.loc, isFine, arith::ConstantIntOp::create(k.b, k.loc, 1, 1));
  k.branch(isFound, [&] { memref::StoreOp::create(k.b, k.loc, k.scalar(1), isInfinite, k.index(0)); });
}

Values MatricesEmitter::sweepTile(Value key, ValueRange state) {
  k.waitForCopies(0);
  if (hasKeys())
    finishCopy(keys, false);
  if (canHide())
    memref::StoreOp::create(k.b, k.loc, k.scalar(0), isInfinite, k.index(0));
  k.barrier(); // keys are there
  bool wantsValues = pass != Pass::reduce;
  if (wantsValues) {
    copy(values, key);
    k.commitCopies();
  }
  Values next, made = weigh(finishScores(hasKeys() ? products() : givenScores(key), key), key, state, next);
  if (!wantsValues) {
    k.barrier(); // keys have been read
    copyKeys(following);
    return next;
  }
  SmallVector<Values> packed; // [16 keys]: row g, then g + 8
  for (int64_t c = 0; c < columns; c += 4) {
    packed.push_back(k.packed(ArrayRef(made).slice(c, 4), precision));
    packed.back().append(k.packed(ArrayRef(made).slice(columns + c, 4), precision));
  }
  k.waitForCopies(0);
  finishCopy(values, canHide());
  k.barrier(); // values are there, keys have been read
  copyKeys(following);
  Values sums(ArrayRef(next).drop_front(2 * rows));
  if (!canHide()) {
    sums = addProducts(packed, sums);
  } else {
    // A hidden value reaches nothing, also where 0 times it is not 0.
    Value some = k.compare(arith::CmpFPredicate::ONE, k.load(isInfinite, k.index(0)), k.scalar(0));
    SmallVector<Type> types(sums.size(), k.b.getF32Type());
    sums = k.branch(some, types, [&] { return addVisible(packed, sums); }, [&] { return addProducts(packed, sums); });
  }
  k.barrier(); // values have been read
  next.truncate(2 * rows);
  next.append(sums);
  return next;
}

/// Keys `j`... and `j + 8`..., 16 of the width from `d` on, as multiplyMatrices takes two columns.
Values MatricesEmitter::readKeys(int64_t d, int64_t j) {
  if (!isWide) {
    // Lanes 8m to 8m + 7 name the rows of matrix m: keys m / 2 * 8..., width m % 2 * 8...
    Value matrix = k.div(lane(), k.index(8)), within = k.rem(lane(), k.index(8));
    Value key = k.add(k.mul(k.div(matrix, k.index(2)), 8), within);
    Value base = k.add(k.mul(key, keys.pitch), k.mul(k.rem(matrix, k.index(2)), 4));
    return k.loadMatrices(keys.shared, k.add(base, j * keys.pitch + d / 2), false, precision);
  }
  Values both;
  for (int64_t half = 0; half < 2; ++half) {
    Value base = k.add(k.mul(k.add(group(), j + 8 * half), keys.pitch), k.add(k.mul(member(), 2), d));
    Values four = k.loadFew(keys.shared, base, 2);
    four.append(k.loadFew(keys.shared, k.add(base, 8), 2));
    both.append(k.packed(four, precision));
  }
  return both;
}

/// Columns `e`... and `e + 8`... of 16 values from `key` on.
Values MatricesEmitter::readValues(int64_t key, int64_t e) {
  if (!isWide) {
    // Matrix m: keys m % 2 * 8..., columns m / 2 * 8..., transposed.
    Value matrix = k.div(lane(), k.index(8)), within = k.rem(lane(), k.index(8));
    Value at = k.add(k.mul(k.rem(matrix, k.index(2)), 8), within);
    Value base = k.add(k.mul(at, values.pitch), k.mul(k.div(matrix, k.index(2)), 4));
    return k.loadMatrices(values.shared, k.add(base, key * values.pitch + e / 2), true, precision);
  }
  Values both;
  for (int64_t half = 0; half < 2; ++half) {
    Value base = k.add(k.mul(k.mul(member(), 2), values.pitch), k.add(group(), key * values.pitch + e + 8 * half));
    Values four;
    for (int64_t place : {0, 1, 8, 9})
      four.push_back(k.load(values.shared, k.add(base, place * values.pitch)));
    both.append(k.packed(four, precision));
  }
  return both;
}

/// Raw scores of the thread's rows and keys.
Values MatricesEmitter::products() {
  SmallVector<Values> tiles(keysPerTile / 8, Values(4, k.scalar(0)));
  int64_t registers = 4 / perWord();
  for (auto [n, query] : llvm::enumerate(queries))
    for (int64_t j = 0; j < keysPerTile; j += 16) {
      Values read = readKeys(16 * n, j);
      for (int64_t half = 0; half < 2; ++half) {
        Values &sums = tiles[j / 8 + half];
        sums = k.multiplyMatrices(query.first, query.second, ArrayRef(read).slice(registers * half, registers), sums,
                                  precision);
      }
    }
  Values result(rows * columns);
  for (auto [n, sums] : llvm::enumerate(tiles))
    for (int64_t i = 0; i < 4; ++i)
      result[i / 2 * columns + 2 * n + i % 2] = sums[i];
  return result;
}

/// `sums` [row][column] plus weights times values.
Values MatricesEmitter::addProducts(ArrayRef<Values> weights, ValueRange sums) {
  Values next(sums);
  int64_t registers = 4 / perWord();
  for (auto [n, packed] : llvm::enumerate(weights))
    for (int64_t e = 0; e < values.padded; e += 16) {
      Values read = readValues(16 * n, e);
      for (int64_t half = 0; half < 2; ++half) {
        int64_t at = 2 * (e / 8 + half);
        Values old = {next[at], next[at + 1], next[width + at], next[width + at + 1]};
        ArrayRef<Value> all = packed;
        Values made = k.multiplyMatrices(all.take_front(registers), all.drop_front(registers),
                                         ArrayRef(read).slice(registers * half, registers), old, precision);
        next[at] = made[0], next[at + 1] = made[1], next[width + at] = made[2], next[width + at + 1] = made[3];
      }
    }
  return next;
}

/// Two rounded elements of shared memory, side by side.
Values MatricesEmitter::readTwo(Value shared, Value place) {
  if (!isWide)
    return k.unpacked(k.load(shared, place), precision);
  Values two = k.loadFew(shared, place, 2), result;
  for (Value word : k.packed({two[0], two[1], two[0], two[1]}, precision))
    result.push_back(k.bitcast(word, k.b.getF32Type()));
  result.truncate(2);
  return result;
}

/// The same one by one, where the weight is not 0. The weights pass through shared
/// memory, where the keys were unless the next ones are being copied there; a warp
/// needs its own alone.
Values MatricesEmitter::addVisible(ArrayRef<Values> weights, ValueRange sums) {
  Value memory = isStaged ? keys.shared : staging;
  for (auto [n, packed] : llvm::enumerate(weights))
    for (auto [i, word] : llvm::enumerate(packed)) {
      int64_t registers = 4 / perWord(), c = i % registers * perWord();
      Value column = k.div(keyPlace(4 * n + c), k.index(perWord()));
      Value place = k.add(k.mul(row(i / registers), weightPitch()), column);
      memref::StoreOp::create(k.b, k.loc, k.bitcast(word, k.b.getF32Type()), memory, place);
    }
  k.warpBarrier();
  return k.loop(k.index(0), k.index(keysPerTile), 2, sums, [&](Value key, ValueRange carried) {
    Values next(carried), pairs[2];
    for (int64_t r = 0; r < 2; ++r) {
      Value place = k.add(k.mul(row(r), weightPitch()), k.div(key, k.index(perWord())));
      pairs[r] = readTwo(memory, place);
    }
    for (int64_t q = 0; q < 2; ++q)
      for (int64_t e = 0; e < width; e += 2) {
        Value column = k.div(columnPlace(e), k.index(perWord()));
        Values two = readTwo(values.shared, k.add(k.mul(k.add(key, q), values.pitch), column));
        for (int64_t r = 0; r < 2; ++r)
          for (int64_t half = 0; half < 2; ++half) {
            Value &sum = next[r * width + e + half];
            Value isNothing = k.compare(arith::CmpFPredicate::OEQ, pairs[r][q], k.scalar(0));
            sum = k.select(isNothing, sum, k.fma(pairs[r][q], two[half], sum));
          }
      }
    return next;
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
