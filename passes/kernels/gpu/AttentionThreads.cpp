#include "passes/kernels/gpu/AttentionEmitter.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

// Products one by one, in f32; queries and weights in shared memory. 16-bit
// elements pass through registers, where they are widened, on their way there.

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;

namespace {

// 16 groups of 8 threads: a group shares its queries, each thread has some of the keys.
constexpr int64_t kGroups = 16, kGroup = 8;

/// How a block is cut; `rows` queries and `keys` keys of a tile for each thread.
struct Cut {
  int64_t rows, keys, keyWidth, valueWidth;

  int64_t queries() const { return kGroups * rows; }
  int64_t tile() const { return kGroup * keys; }
  // Rows in shared memory are padded, so that those which a warp reads lie in different banks.
  int64_t keyPitch() const { return keyWidth ? llvm::alignTo(keyWidth, 4) + 4 : 0; } ///< no keys: 0
  int64_t valuePitch() const { return llvm::alignTo(valueWidth, 4 * kGroup); }
  int64_t weightPitch() const { return tile() + 4; }
  int64_t elements() const { return queries() * (keyPitch() + weightPitch()) + tile() * (keyPitch() + valuePitch()); }
};

std::optional<Cut> chooseCut(const AttentionSpec &spec) {
  std::optional<int64_t> d = spec.getStaticSize(Dim::D), e = spec.getStaticSize(Dim::E), i = spec.getStaticSize(Dim::I);
  if (!d || !e)
    return std::nullopt;
  ScoreFormula formula = spec.formula();
  static constexpr std::pair<int64_t, int64_t> kCuts[] = {{4, 4}, {2, 4}, {2, 2}, {1, 4}, {1, 2}, {1, 1}};
  for (auto [rows, keys] : kCuts) {
    Cut cut{rows, keys, formula.hasKey ? *d : 0, *e};
    bool isTooMany = (i && rows > 1 && *i <= kGroups * rows / 2) || (formula.hasAlignment && rows * keys > 4);
    int64_t elements =
        cut.elements() + countCommonElements(spec, {AttentionEmitter::kThreads, cut.queries(), cut.tile()});
    // Accumulators: rows times the values' width over the group.
    if (!isTooMany && elements <= AttentionEmitter::kSharedElements && rows * cut.valuePitch() / kGroup <= 64)
      return cut;
  }
  return std::nullopt;
}

class ThreadsEmitter : public AttentionEmitter {
public:
  ThreadsEmitter(OpBuilder &b, Location loc, const AttentionSpec &spec)
      : AttentionEmitter(b, loc, spec), cut(*chooseCut(spec)) {
    rows = cut.rows, columns = cut.keys, width = cut.valuePitch() / kGroup, groupWidth = kGroup;
    neighbours = 4;
    queriesPerBlock = cut.queries(), keysPerTile = cut.tile();
  }

private:
  struct Tile {
    HeadView view;
    Value shared;
    unsigned rowDim, widthDim;
    int64_t rows, pitch, width;
    bool isVector;

    /// Groups of four columns of a row that are copied.
    int64_t fours() const { return widthDim == Dim::E ? pitch / 4 : llvm::divideCeil(width, 4); }
  };
  Tile makeTile(size_t operand, Value shared, unsigned rowDim, unsigned widthDim, int64_t rows, int64_t pitch,
                int64_t width);
  void copy(const Tile &tile, Value first, Value extent);
  void copyWidened(const Tile &tile, Value first, Value extent);
  Values readFour(const Tile &tile, Value offset, Value isRow, Value column);
  SmallVector<int64_t> sharedElements() override {
    SmallVector<int64_t> elements = {cut.tile() * cut.valuePitch(), cut.queries() * cut.weightPitch()};
    if (hasKeys())
      elements.append({cut.queries() * cut.keyPitch(), cut.tile() * cut.keyPitch()});
    return elements;
  }
  void start(ArrayRef<Value> shared) override;
  void copyKeys(Value key) override;
  Values sweepTile(Value key, ValueRange state) override;
  /// Scores are not given.
  bool hasKeys() const { return cut.keyWidth > 0; }
  Values products();
  Values addProducts(ValueRange sums, bool canBeHidden);

  Value row(int64_t r) override { return k.add(k.div(k.thread, k.index(kGroup)), r * kGroups); }
  Value member() { return k.rem(k.thread, k.index(kGroup)); }
  Value keyPlace(int64_t c) override { return k.add(member(), c * kGroup); }
  Value columnPlace(int64_t e) override { return k.add(k.mul(member(), 4), e / 4 * 4 * kGroup + e % 4); }

  const Cut cut;
  Value weights;
  Tile queries, keys, values;
};

ThreadsEmitter::Tile ThreadsEmitter::makeTile(size_t operand, Value shared, unsigned rowDim, unsigned widthDim,
                                              int64_t rows, int64_t pitch, int64_t width) {
  return {views[operand], shared, rowDim, widthDim, rows, pitch, width, hasPieces(spec, operand, widthDim, 4)};
}

/// Starts to copy rows `first`... into shared memory; zeros beyond `extent` and the width.
void ThreadsEmitter::copy(const Tile &tile, Value begin, Value extent) {
  if (!isF32(spec))
    return copyWidened(tile, begin, extent);
  int64_t inner = tile.fours(), groups = tile.rows * inner;
  for (int64_t n = 0; n < groups; n += kThreads) {
    Value group = k.add(k.thread, n);
    auto one = [&] {
      Value at = k.div(group, k.index(inner)), column = k.mul(k.rem(group, k.index(inner)), 4);
      Value source = k.add(begin, at), isRow = k.less(source, extent);
      Value offset = tile.view.along(k, tile.view.base, tile.rowDim, source);
      Value target = k.add(k.mul(at, tile.pitch), column);
      for (int64_t e = 0; e < (tile.isVector ? 1 : 4); ++e) {
        Value place = k.add(column, e);
        k.copyAsync(tile.shared, k.add(target, e), tile.view.flat, tile.view.along(k, offset, tile.widthDim, place),
                    tile.isVector ? 4 : 1, k.both(isRow, k.less(place, k.index(tile.width))));
      }
    };
    if (n + kThreads <= groups)
      one();
    else
      k.branch(k.less(group, k.index(groups)), one);
  }
}

/// The same of 16-bit elements, which are f32 in shared memory: a thread reads some of them before it waits for any.
void ThreadsEmitter::copyWidened(const Tile &tile, Value begin, Value extent) {
  constexpr int64_t kAtOnce = 8;
  int64_t inner = tile.fours(), groups = tile.rows * inner;
  for (int64_t n = 0; n < groups; n += kAtOnce * kThreads) {
    SmallVector<std::pair<Values, Value>> read;
    for (int64_t m = n; m < std::min(n + kAtOnce * kThreads, groups); m += kThreads) {
      Value group = k.add(k.thread, m), at = k.div(group, k.index(inner));
      Value column = k.mul(k.rem(group, k.index(inner)), 4), source = k.add(begin, at), isRow = k.less(source, extent);
      if (m + kThreads > groups)
        isRow = k.both(isRow, k.less(group, k.index(groups)));
      Value offset = tile.view.along(k, tile.view.base, tile.rowDim, source);
      read.push_back({readFour(tile, offset, isRow, column), k.add(k.mul(at, tile.pitch), column)});
    }
    for (auto [m, piece] : llvm::enumerate(read)) {
      Value group = k.add(k.thread, n + m * kThreads);
      auto put = [&] { k.store4(piece.first, tile.shared, piece.second); };
      if (n + static_cast<int64_t>(m + 1) * kThreads <= groups)
        put();
      else
        k.branch(k.less(group, k.index(groups)), put);
    }
  }
}

/// Four columns of a row as f32; nothing is read where none is, and zeros are there.
Values ThreadsEmitter::readFour(const Tile &tile, Value offset, Value isRow, Value column) {
  Values four;
  int64_t step = tile.isVector ? 4 : 1;
  SmallVector<Type> types(step, k.b.getF32Type());
  for (int64_t e = 0; e < 4; e += step) {
    Value place = k.add(column, e), at = tile.view.along(k, offset, tile.widthDim, place);
    four.append(k.branch(
        k.both(isRow, k.less(place, k.index(tile.width))), types,
        [&] { return tile.isVector ? k.loadWide(tile.view.flat, at, 4) : Values{loadF32(tile.view, at)}; },
        [&] { return Values(step, k.scalar(0)); }));
  }
  return four;
}

void ThreadsEmitter::start(ArrayRef<Value> shared) {
  values = makeTile(spec.value, shared[0], Dim::J, Dim::E, cut.tile(), cut.valuePitch(), cut.valueWidth);
  weights = shared[1];
  if (!hasKeys())
    return;
  queries = makeTile(spec.query, shared[2], Dim::I, Dim::D, cut.queries(), cut.keyPitch(), cut.keyWidth);
  keys = makeTile(spec.keyOperand, shared[3], Dim::J, Dim::D, cut.tile(), cut.keyPitch(), cut.keyWidth);
  copy(queries, first, numQueries);
}

void ThreadsEmitter::copyKeys(Value key) {
  if (hasKeys())
    copy(keys, key, numKeys);
  k.commitCopies();
}

Values ThreadsEmitter::sweepTile(Value key, ValueRange state) {
  bool wantsValues = pass != Pass::reduce;
  if (wantsValues) {
    copy(values, key, numKeys);
    k.commitCopies();
  }
  k.waitForCopies(wantsValues ? 1 : 0); // all but the values
  k.barrier();
  Values next, made = weigh(finishScores(hasKeys() ? products() : givenScores(key), key), key, state, next);
  if (!wantsValues) {
    k.barrier(); // keys have been read
    copyKeys(following);
    return next;
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      Value place = k.add(k.mul(row(r), cut.weightPitch()), keyPlace(c));
      memref::StoreOp::create(k.b, k.loc, made[r * columns + c], weights, place);
    }
  k.waitForCopies(0);
  k.barrier(); // values and weights are there, keys have been read
  copyKeys(following);
  Values sums(ArrayRef(next).drop_front(2 * rows));
  if (canHide()) {
    sums = addProducts(sums, true);
  } else {
    SmallVector<Type> types(sums.size(), k.b.getF32Type());
    sums = k.branch(isEdge, types, [&] { return addProducts(sums, true); }, [&] { return addProducts(sums, false); });
  }
  k.barrier(); // values and weights have been read
  next.truncate(2 * rows);
  next.append(sums);
  return next;
}

/// Raw scores of the thread's rows and keys.
Values ThreadsEmitter::products() {
  Values zeros(cut.rows * cut.keys, k.scalar(0));
  bool hasAlignment = spec.formula().hasAlignment;
  auto activate = [&](Value x) { return spec.activation ? k.cloneScalar(*spec.activation, x) : x; };
  // `count` columns from `d` on. Behind the last one are zeros, which a product may take, but a function may not.
  auto addColumns = [&](Value d, ValueRange carried, int64_t count) {
    auto read = [&](const Tile &tile, Value row) { return k.load4(tile.shared, k.add(k.mul(row, tile.pitch), d)); };
    SmallVector<Values> left, right;
    for (int64_t r = 0; r < cut.rows; ++r)
      left.push_back(read(queries, row(r)));
    for (int64_t c = 0; c < cut.keys; ++c)
      right.push_back(read(keys, k.add(member(), c * kGroup)));
    Values next(carried);
    for (int64_t q = 0; q < count; ++q) {
      Value alignment;
      if (hasAlignment) {
        const HeadView &view = views[spec.alignment];
        alignment = loadF32(view, view.along(k, view.base, Dim::D, k.add(d, q)));
      }
      for (int64_t r = 0; r < cut.rows; ++r)
        for (int64_t c = 0; c < cut.keys; ++c) {
          auto [x, y] = makeScoreFactors(spec.kind, k.b, k.loc, {left[r][q], right[c][q], alignment}, activate);
          Value &sum = next[r * cut.keys + c];
          sum = k.fma(x, y, sum);
        }
    }
    return next;
  };
  int64_t rest = hasAlignment ? cut.keyWidth % 4 : 0;
  Value whole = k.index(llvm::alignTo(cut.keyWidth - rest, 4));
  Values sums =
      k.loop(k.index(0), whole, 4, zeros, [&](Value d, ValueRange carried) { return addColumns(d, carried, 4); });
  return rest ? addColumns(whole, sums, rest) : sums;
}

/// The thread's rows and columns of weights times values added to `sums`; a
/// value of weight 0 reaches nothing, if `canBeHidden`.
Values ThreadsEmitter::addProducts(ValueRange sums, bool canBeHidden) {
  int64_t width = cut.valuePitch() / kGroup;
  return k.loop(k.index(0), k.index(cut.tile()), 4, sums, [&](Value key, ValueRange carried) {
    SmallVector<Values> left;
    for (int64_t r = 0; r < cut.rows; ++r)
      left.push_back(k.load4(weights, k.add(k.mul(row(r), cut.weightPitch()), key)));
    Values next(carried);
    for (int64_t q = 0; q < 4; ++q) {
      Value base = k.add(k.mul(k.add(key, q), cut.valuePitch()), k.mul(member(), 4));
      for (int64_t e = 0; e < width; e += 4) {
        Values right = k.load4(values.shared, k.add(base, e * kGroup));
        for (int64_t r = 0; r < cut.rows; ++r)
          for (int64_t n = 0; n < 4; ++n) {
            Value &sum = next[r * width + e + n];
            Value added = k.fma(left[r][q], right[n], sum);
            if (canBeHidden) {
              Value isNothing = k.compare(arith::CmpFPredicate::OEQ, left[r][q], k.scalar(0));
              added = k.select(isNothing, sum, added);
            }
            sum = added;
          }
      }
    }
    return next;
  });
}

} // namespace

bool canUseThreads(const AttentionSpec &spec) { return chooseCut(spec).has_value(); }

std::unique_ptr<AttentionEmitter> makeThreadsAttention(OpBuilder &builder, Location loc, const AttentionSpec &spec) {
  return std::make_unique<ThreadsEmitter>(builder, loc, spec);
}

} // namespace attn
