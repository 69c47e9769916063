#include "passes/kernels/gpu/AttentionEmitter.h"

#include "llvm/Support/MathExtras.h"

// Products one by one, in f32; queries and weights in shared memory. 16-bit
// elements pass through registers, where they are widened, on their way there.

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;

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
    OperandView view;
    Buffer shared;
    unsigned rowDim, widthDim;
    int64_t rows, pitch, width;
    bool isVector;

    /// Groups of four columns of a row that are copied.
    int64_t fours() const { return widthDim == Dim::E ? pitch / 4 : llvm::divideCeil(width, 4); }
  };
  Tile makeTile(size_t operand, const Buffer &shared, unsigned rowDim, unsigned widthDim, int64_t rows, int64_t pitch,
                int64_t width);
  void copy(const Tile &tile, const Index &first, const Index &extent);
  void copyWidened(const Tile &tile, const Index &first, const Index &extent);
  Nums readFour(const Tile &tile, const Index &offset, const Mask &isRow, const Index &column);
  SmallVector<int64_t> sharedElements() override {
    SmallVector<int64_t> elements = {cut.tile() * cut.valuePitch(), cut.queries() * cut.weightPitch()};
    if (hasKeys())
      elements.append({cut.queries() * cut.keyPitch(), cut.tile() * cut.keyPitch()});
    return elements;
  }
  void start() override;
  void copyKeys(const Index &key) override;
  Nums sweepTile(const Index &key, const Nums &state) override;
  /// Scores are not given.
  bool hasKeys() const { return cut.keyWidth > 0; }
  Nums products();
  Nums addColumns(const Index &d, Nums sums, int64_t count);
  Nums addProducts(const Nums &sums, bool canBeHidden);

  Index row(int64_t r) override { return k.thread / kGroup + r * kGroups; }
  Index member() { return k.thread % kGroup; }
  Index keyPlace(int64_t c) override { return member() + c * kGroup; }
  Index columnPlace(int64_t e) override { return member() * 4 + (e / 4 * 4 * kGroup + e % 4); }

  const Cut cut;
  Buffer weights;
  Tile queries, keys, values;
};

ThreadsEmitter::Tile ThreadsEmitter::makeTile(size_t operand, const Buffer &shared, unsigned rowDim, unsigned widthDim,
                                              int64_t rows, int64_t pitch, int64_t width) {
  return {views[operand], shared, rowDim, widthDim, rows, pitch, width, hasPieces(spec, operand, widthDim, 4)};
}

/// Starts to copy rows `begin`... into shared memory; zeros beyond `extent` and the width.
void ThreadsEmitter::copy(const Tile &tile, const Index &begin, const Index &extent) {
  if (!isF32(spec))
    return copyWidened(tile, begin, extent);
  int64_t inner = tile.fours(), groups = tile.rows * inner;
  for (int64_t n = 0; n < groups; n += kThreads) {
    Index group = k.thread + n;
    auto one = [&] {
      Index at = group / inner, column = group % inner * 4, source = begin + at;
      Mask isRow = source < extent;
      Index offset = tile.view.at({{tile.rowDim, source}}), target = at * tile.pitch + column;
      for (int64_t e = 0; e < (tile.isVector ? 1 : 4); ++e) {
        Index place = column + e, to = target + e, from = tile.view.along(offset, tile.widthDim, place);
        k.copyAsync(tile.shared, to, tile.view.flat, from, tile.isVector ? 4 : 1, isRow & (place < tile.width));
      }
    };
    if (n + kThreads <= groups)
      one();
    else
      k.when(group < groups, one);
  }
}

/// The same of 16-bit elements, which are f32 in shared memory: a thread reads some of them before it waits for any.
void ThreadsEmitter::copyWidened(const Tile &tile, const Index &begin, const Index &extent) {
  constexpr int64_t kAtOnce = 8;
  int64_t inner = tile.fours(), groups = tile.rows * inner;
  for (int64_t n = 0; n < groups; n += kAtOnce * kThreads) {
    SmallVector<std::pair<Nums, Index>> read;
    for (int64_t m = n; m < std::min(n + kAtOnce * kThreads, groups); m += kThreads) {
      Index group = k.thread + m, at = group / inner, column = group % inner * 4, source = begin + at;
      Mask isRow = source < extent;
      if (m + kThreads > groups)
        isRow = isRow & (group < groups);
      Nums four = readFour(tile, tile.view.at({{tile.rowDim, source}}), isRow, column);
      read.push_back({four, at * tile.pitch + column});
    }
    for (size_t m = 0; m < read.size(); ++m) {
      Index group = k.thread + (n + m * kThreads);
      auto put = [&] { k.store4(read[m].first, tile.shared, read[m].second); };
      if (n + static_cast<int64_t>(m + 1) * kThreads <= groups)
        put();
      else
        k.when(group < groups, put);
    }
  }
}

/// Four columns of a row as f32; nothing is read where none is, and zeros are there.
Nums ThreadsEmitter::readFour(const Tile &tile, const Index &offset, const Mask &isRow, const Index &column) {
  Nums four;
  int64_t step = tile.isVector ? 4 : 1;
  for (int64_t e = 0; e < 4; e += step) {
    Index place = column + e, at = tile.view.along(offset, tile.widthDim, place);
    auto read = [&] { return tile.isVector ? k.loadWide(tile.view.flat, at, 4) : Nums{loadF32(tile.view, at)}; };
    llvm::append_range(four, k.choose(isRow & (place < tile.width), read, [&] { return Nums(step, k.f32(0)); }));
  }
  return four;
}

void ThreadsEmitter::start() {
  values = makeTile(spec.value, arrays[0], Dim::J, Dim::E, cut.tile(), cut.valuePitch(), cut.valueWidth);
  weights = arrays[1];
  if (!hasKeys())
    return;
  queries = makeTile(spec.query, arrays[2], Dim::I, Dim::D, cut.queries(), cut.keyPitch(), cut.keyWidth);
  keys = makeTile(spec.keyOperand, arrays[3], Dim::J, Dim::D, cut.tile(), cut.keyPitch(), cut.keyWidth);
  copy(queries, first, numQueries);
}

void ThreadsEmitter::copyKeys(const Index &key) {
  if (hasKeys())
    copy(keys, key, numKeys);
  k.commitCopies();
}

Nums ThreadsEmitter::sweepTile(const Index &key, const Nums &state) {
  bool wantsValues = pass != Pass::reduce;
  if (wantsValues) {
    copy(values, key, numKeys);
    k.commitCopies();
  }
  k.waitForCopies(wantsValues ? 1 : 0); // all but the values
  k.barrier();
  Nums next, made = weigh(finishScores(hasKeys() ? products() : givenScores(key), key), key, state, next);
  if (!wantsValues) {
    k.barrier(); // keys have been read
    copyKeys(following);
    return next;
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      weights.set(made[r * columns + c], row(r) * cut.weightPitch() + keyPlace(c));
  k.waitForCopies(0);
  k.barrier(); // values and weights are there, keys have been read
  copyKeys(following);
  Nums sums(ArrayRef(next).drop_front(2 * rows));
  if (canHide())
    sums = addProducts(sums, true);
  else
    sums = k.choose(isEdge, [&] { return addProducts(sums, true); }, [&] { return addProducts(sums, false); });
  k.barrier(); // values and weights have been read
  next.truncate(2 * rows);
  next.append(sums);
  return next;
}

/// Raw scores of the thread's rows and keys.
Nums ThreadsEmitter::products() {
  Nums zeros(cut.rows * cut.keys, k.f32(0));
  // Behind the last column are zeros, which a product may take, but a function may not.
  int64_t rest = spec.formula().hasAlignment ? cut.keyWidth % 4 : 0;
  Index whole = k.index(llvm::alignTo(cut.keyWidth - rest, 4));
  Nums sums = k.loop(0, whole, 4, zeros, [&](Index d, Nums sums) { return addColumns(d, sums, 4); });
  return rest ? addColumns(whole, sums, rest) : sums;
}

/// `count` columns from `d` on added to the scores.
Nums ThreadsEmitter::addColumns(const Index &d, Nums sums, int64_t count) {
  auto read = [&](const Tile &tile, const Index &row) { return k.load4(tile.shared, row * tile.pitch + d); };
  SmallVector<Nums> left, right;
  for (int64_t r = 0; r < cut.rows; ++r)
    left.push_back(read(queries, row(r)));
  for (int64_t c = 0; c < cut.keys; ++c)
    right.push_back(read(keys, keyPlace(c)));
  auto activate = [&](Value x) { return spec.activation ? k.cloneScalar(*spec.activation, x).value() : x; };
  for (int64_t q = 0; q < count; ++q) {
    Value alignment;
    if (spec.formula().hasAlignment) {
      const OperandView &view = views[spec.alignment];
      alignment = loadF32(view, view.at({{Dim::D, d + q}}));
    }
    for (int64_t r = 0; r < cut.rows; ++r)
      for (int64_t c = 0; c < cut.keys; ++c) {
        auto [x, y] = makeScoreFactors(spec.kind, k.b, k.loc, {left[r][q], right[c][q], alignment}, activate);
        Num &sum = sums[r * cut.keys + c];
        sum = fma(k.asNum(x), k.asNum(y), sum);
      }
  }
  return sums;
}

/// The thread's rows and columns of weights times values added to `sums`; a
/// value of weight 0 reaches nothing, if `canBeHidden`.
Nums ThreadsEmitter::addProducts(const Nums &sums, bool canBeHidden) {
  return k.loop(0, cut.tile(), 4, sums, [&](Index key, Nums sums) {
    SmallVector<Nums> left;
    for (int64_t r = 0; r < cut.rows; ++r)
      left.push_back(k.load4(weights, row(r) * cut.weightPitch() + key));
    for (int64_t q = 0; q < 4; ++q) {
      Index base = (key + q) * cut.valuePitch() + member() * 4;
      for (int64_t e = 0; e < width; e += 4) {
        Nums right = k.load4(values.shared, base + e * kGroup);
        for (int64_t r = 0; r < cut.rows; ++r)
          for (int64_t n = 0; n < 4; ++n) {
            Num &sum = sums[r * width + e + n], added = fma(left[r][q], right[n], sum);
            sum = canBeHidden ? select(left[r][q] == 0.0, sum, added) : added;
          }
      }
    }
    return sums;
  });
}

} // namespace

bool canUseThreads(const AttentionSpec &spec) { return chooseCut(spec).has_value(); }

std::unique_ptr<AttentionEmitter> makeThreadsAttention(OpBuilder &builder, Location loc, const AttentionSpec &spec) {
  return std::make_unique<ThreadsEmitter>(builder, loc, spec);
}

} // namespace attn
