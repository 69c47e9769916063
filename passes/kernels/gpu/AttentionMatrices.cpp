#include "passes/kernels/gpu/AttentionEmitter.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

// Products by matrix units: four warps of 16 queries. A tile of keys or values is
// copied as f32 without waiting, and rounded once, each part by the thread that
// copied it; weights go from one product to the next in registers.

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;

namespace {

constexpr int64_t kWarpQueries = 16, kQueries = 64, kMaxWidth = 128;

class MatricesEmitter : public AttentionEmitter {
public:
  MatricesEmitter(OpBuilder &b, Location loc, const AttentionSpec &spec, Precision precision)
      : AttentionEmitter(b, loc, spec), precision(precision) {
    keys.width = *spec.getStaticSize(Dim::D), values.width = *spec.getStaticSize(Dim::E);
    keys.operand = spec.keyOperand, values.operand = spec.value;
    keys.dim = Dim::D, values.dim = Dim::E;
    for (Tile *tile : {&keys, &values}) {
      tile->padded = llvm::alignTo(tile->width, 16);
      AffineMap map = spec.maps[tile->operand];
      bool isLast = map.getNumResults() &&
                    map.getResult(map.getNumResults() - 1) == getAffineDimExpr(tile->dim, map.getContext());
      tile->isVector = isLast && tile->width % 4 == 0;
    }
    // What fits 48 KiB.
    keysPerTile = std::max(keys.padded, values.padded) > 64 ? 32 : 64;
    queriesPerBlock = kQueries, groupWidth = 4;
    rows = 2, columns = keysPerTile / 4, width = values.padded / 4;
  }

private:
  /// Of 16-bit elements, two in an element of shared memory; the rows of an 8 x 8
  /// matrix begin in different banks.
  struct Tile {
    size_t operand;
    unsigned dim;
    int64_t width, padded;
    bool isVector;
    Value shared;
    int64_t pitch() const { return padded / 2 + 4; }
  };

  SmallVector<int64_t> sharedElements() override {
    int64_t weights = kQueries * weightPitch();
    return {keysPerTile * std::max(keys.padded, values.padded), std::max(keysPerTile * keys.pitch(), weights),
            keysPerTile * values.pitch(), 1};
  }
  int64_t weightPitch() const { return keysPerTile / 2 + 4; }
  void start(ArrayRef<Value> shared, Value begin) override;
  Values sweepTile(Value key, ValueRange state) override;

  void copy(const Tile &tile, Value begin);
  void round(const Tile &tile, bool findsInfinite);
  Values products();
  Values addProducts(ArrayRef<Values> weights, ValueRange sums);
  Values addVisible(ArrayRef<Values> weights, ValueRange sums);

  Value warp() { return k.div(k.thread, k.index(32)); }
  Value lane() { return k.rem(k.thread, k.index(32)); }
  Value group() { return k.div(lane(), k.index(4)); }
  Value member() { return k.rem(k.thread, k.index(4)); }
  Value row(int64_t r) override { return k.add(k.add(k.mul(warp(), kWarpQueries), group()), 8 * r); }
  Value keyPlace(int64_t c) override { return k.add(k.mul(member(), 2), c / 2 * 8 + c % 2); }
  Value columnPlace(int64_t e) override { return keyPlace(e); }

  const Precision precision;
  Tile keys, values;
  Value staging, isInfinite;
  /// [16 of the width][packed row g, packed row g + 8].
  SmallVector<std::pair<Values, Values>> queries;
};

void MatricesEmitter::start(ArrayRef<Value> shared, Value begin) {
  staging = shared[0], keys.shared = shared[1], values.shared = shared[2], isInfinite = shared[3];
  copy(keys, begin);
  k.commitCopies();
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
        Value x = k.load(view.flat, view.along(k, bases[r], Dim::D, at));
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
  int64_t inner = tile.padded / 4;
  for (int64_t n = 0; n < keysPerTile * inner; n += kThreads) {
    Value part = k.add(k.thread, n), at = k.div(part, k.index(inner)), column = k.mul(k.rem(part, k.index(inner)), 4);
    Value source = k.add(begin, at), isRow = k.less(source, numKeys);
    Value offset = view.along(k, view.base, Dim::J, source);
    for (int64_t e = 0; e < (tile.isVector ? 1 : 4); ++e) {
      Value place = k.add(column, e);
      Value isInside = tile.padded == tile.width ? isRow : k.both(isRow, k.less(place, k.index(tile.width)));
      k.copyAsync(staging, k.add(k.mul(part, 4), e), view.flat, view.along(k, offset, tile.dim, place),
                  tile.isVector ? 4 : 1, isInside);
    }
  }
}

/// Rounds what the thread itself has copied, to where the warps read it.
void MatricesEmitter::round(const Tile &tile, bool findsInfinite) {
  int64_t inner = tile.padded / 4;
  // Below it a finite number stays finite.
  Value limit = k.scalar(precision == Precision::f16 ? 65504.0f : 3.38e38f), isFine;
  for (int64_t n = 0; n < keysPerTile * inner; n += kThreads) {
    Value part = k.add(k.thread, n), at = k.div(part, k.index(inner)), column = k.mul(k.rem(part, k.index(inner)), 2);
    Values four = k.load4(staging, k.mul(part, 4));
    Values words;
    for (Value pair : k.packed(four, precision))
      words.push_back(k.bitcast(pair, k.b.getF32Type()));
    k.storeFew(words, tile.shared, k.add(k.mul(at, tile.pitch()), column));
    for (Value x : findsInfinite ? four : Values()) {
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
  round(keys, false);
  if (canHide())
    memref::StoreOp::create(k.b, k.loc, k.scalar(0), isInfinite, k.index(0));
  k.barrier(); // keys are there
  copy(values, key);
  k.commitCopies();
  Values next, made = weigh(finishScores(products(), key), state, next);
  SmallVector<Values> packed; // [16 keys]: rows g and g + 8, two registers each
  for (int64_t c = 0; c < columns; c += 4) {
    Values top = k.packed(ArrayRef(made).slice(c, 4), precision);
    Values bottom = k.packed(ArrayRef(made).slice(columns + c, 4), precision);
    packed.push_back({top[0], top[1], bottom[0], bottom[1]});
  }
  k.waitForCopies(0);
  round(values, canHide());
  k.barrier(); // values are there, keys have been read
  copy(keys, k.add(key, keysPerTile));
  k.commitCopies();
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

/// Raw scores of the thread's rows and keys.
Values MatricesEmitter::products() {
  SmallVector<Values> tiles(keysPerTile / 8, Values(4, k.scalar(0)));
  // Lanes 8m to 8m + 7 name the rows of matrix m: keys m / 2 * 8..., width m % 2 * 8...
  Value matrix = k.div(lane(), k.index(8)), within = k.rem(lane(), k.index(8));
  Value key = k.add(k.mul(k.div(matrix, k.index(2)), 8), within);
  Value base = k.add(k.mul(key, keys.pitch()), k.mul(k.rem(matrix, k.index(2)), 4));
  for (auto [n, query] : llvm::enumerate(queries))
    for (int64_t j = 0; j < keysPerTile; j += 16) {
      Values four = k.loadMatrices(keys.shared, k.add(base, j * keys.pitch() + 8 * n), false, precision);
      for (int64_t half = 0; half < 2; ++half) {
        Values &sums = tiles[j / 8 + half];
        sums = k.multiplyMatrices(query.first, query.second, ArrayRef(four).slice(2 * half, 2), sums, precision);
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
  // Matrix m: keys m % 2 * 8..., columns m / 2 * 8..., transposed.
  Value matrix = k.div(lane(), k.index(8)), within = k.rem(lane(), k.index(8));
  Value key = k.add(k.mul(k.rem(matrix, k.index(2)), 8), within);
  Value base = k.add(k.mul(key, values.pitch()), k.mul(k.div(matrix, k.index(2)), 4));
  for (auto [n, packed] : llvm::enumerate(weights))
    for (int64_t e = 0; e < values.padded; e += 16) {
      Values four = k.loadMatrices(values.shared, k.add(base, 16 * n * values.pitch() + e / 2), true, precision);
      for (int64_t half = 0; half < 2; ++half) {
        int64_t at = 2 * (e / 8 + half);
        Values old = {next[at], next[at + 1], next[width + at], next[width + at + 1]};
        ArrayRef<Value> all = packed;
        Values made =
            k.multiplyMatrices(all.take_front(2), all.drop_front(2), ArrayRef(four).slice(2 * half, 2), old, precision);
        next[at] = made[0], next[at + 1] = made[1], next[width + at] = made[2], next[width + at + 1] = made[3];
      }
    }
  return next;
}

/// The same one by one, where the weight is not 0. The weights pass through shared
/// memory, where the keys were; a warp needs its own alone.
Values MatricesEmitter::addVisible(ArrayRef<Values> weights, ValueRange sums) {
  for (auto [n, packed] : llvm::enumerate(weights))
    for (int64_t i = 0; i < 4; ++i) {
      Value place = k.add(k.mul(row(i / 2), weightPitch()), k.add(member(), 8 * n + i % 2 * 4));
      memref::StoreOp::create(k.b, k.loc, k.bitcast(packed[i], k.b.getF32Type()), keys.shared, place);
    }
  k.warpBarrier();
  return k.loop(k.index(0), k.index(keysPerTile), 2, sums, [&](Value key, ValueRange carried) {
    Values next(carried), pairs[2];
    for (int64_t r = 0; r < 2; ++r)
      pairs[r] =
          k.unpacked(k.load(keys.shared, k.add(k.mul(row(r), weightPitch()), k.div(key, k.index(2)))), precision);
    for (int64_t q = 0; q < 2; ++q)
      for (int64_t e = 0; e < width; e += 2) {
        Value place = k.add(k.mul(k.add(key, q), values.pitch()), k.add(member(), e / 2 * 4));
        Values two = k.unpacked(k.load(values.shared, place), precision);
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
  bool isNarrow = precision == Precision::bf16 || precision == Precision::f16;
  return isNarrow && d && e && *d <= kMaxWidth && *e <= kMaxWidth && spec.kind == ScoreKind::dot && !isFew;
}

std::unique_ptr<AttentionEmitter> makeMatricesAttention(OpBuilder &builder, Location loc, const AttentionSpec &spec,
                                                        Precision precision) {
  return std::make_unique<MatricesEmitter>(builder, loc, spec, precision);
}

} // namespace attn
