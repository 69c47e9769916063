#include "passes/kernels/gpu/Attention.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/cpu/AttentionMask.h"
#include "passes/kernels/cpu/AttentionOperands.h"
#include "passes/kernels/gpu/BlockBuilder.h"
#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;

namespace attn {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;

namespace {

// 16 groups of 8 threads: a group shares its queries, each thread has some of the keys.
constexpr int64_t kThreads = 128, kGroups = 16, kGroup = 8;
constexpr int64_t kSharedElements = 48 * 1024 / 4;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// How a block is cut; `rows` queries and `keys` keys of a tile for each thread.
struct Cut {
  int64_t rows, keys, keyWidth, valueWidth;

  int64_t queries() const { return kGroups * rows; }
  int64_t tile() const { return kGroup * keys; }
  // Rows in shared memory are padded, so that those which a warp reads lie in different banks.
  int64_t keyPitch() const { return llvm::alignTo(keyWidth, 4) + 4; }
  int64_t valuePitch() const { return llvm::alignTo(valueWidth, 4 * kGroup); }
  int64_t weightPitch() const { return tile() + 4; }
  int64_t elements() const { return queries() * (keyPitch() + weightPitch()) + tile() * (keyPitch() + valuePitch()); }
};

std::optional<Cut> chooseCut(const AttentionSpec &spec) {
  std::optional<int64_t> d = spec.getStaticSize(Dim::D), e = spec.getStaticSize(Dim::E), i = spec.getStaticSize(Dim::I);
  if (!d || !e)
    return std::nullopt;
  bool isAdditive = spec.kind == ScoreKind::additive;
  static constexpr std::pair<int64_t, int64_t> kCuts[] = {{4, 4}, {2, 4}, {2, 2}, {1, 4}, {1, 2}, {1, 1}};
  for (auto [rows, keys] : kCuts) {
    Cut cut{rows, keys, *d, *e};
    bool isTooMany = (i && rows > 1 && *i <= kGroups * rows / 2) || (isAdditive && rows * keys > 4);
    // Accumulators: rows times the values' width over the group.
    if (!isTooMany && cut.elements() <= kSharedElements && rows * cut.valuePitch() / kGroup <= 64)
      return cut;
  }
  return std::nullopt;
}

class AttentionEmitter {
public:
  AttentionEmitter(OpBuilder &b, Location loc, const AttentionSpec &spec) : k(b, loc), spec(spec) {}

  func::FuncOp emit(StringRef symbol);

private:
  struct Tile {
    HeadView view;
    Value shared;
    unsigned rowDim, widthDim;
    int64_t rows, pitch, width;
    bool isVector;
  };
  Tile makeTile(size_t operand, Value shared, unsigned rowDim, unsigned widthDim, int64_t rows, int64_t pitch,
                int64_t width);
  void copy(const Tile &tile, Value first, Value extent);
  Values sweepTile(const KeyMask &mask, Value key, ValueRange state);
  Values products(Value key);
  Values scores(const Values &raw, Value key);
  Values masked(const Values &values, Value key);
  Values addProducts(ValueRange sums, bool canBeHidden);
  void store(ValueRange state);

  Value row(int64_t r) { return k.add(k.div(k.thread, k.index(kGroup)), r * kGroups); }
  Value member() { return k.rem(k.thread, k.index(kGroup)); }
  Value query(int64_t r) { return k.min(k.add(first, row(r)), k.sub(numQueries, k.index(1))); }
  Value keyOf(Value key, int64_t c) { return k.add(k.add(key, member()), c * kGroup); }
  Value exponential(Value x) { return k.exp2Fast(k.mulf(x, k.scalar(1.44269504f))); }
  bool testsAllTiles() const { return !spec.denseMasks.empty() || spec.letsHiddenTakePart(); }
  Value readAt(size_t operand, Value i, Value j) {
    const HeadView &view = views[operand];
    return k.load(view.flat, view.along(k, view.along(k, view.base, Dim::I, i), Dim::J, j));
  }
  Value regionAt(Block &block, Value root, Value score, Value i, Value j);

  BlockBuilder k;
  const AttentionSpec &spec;
  Cut cut{};
  Value batch, head, first, numQueries, numKeys, weights, isEdge;
  SmallVector<HeadView> views;
  Tile queries, keys, values;
  KeyMask *keyMask = nullptr;
};

AttentionEmitter::Tile AttentionEmitter::makeTile(size_t operand, Value shared, unsigned rowDim, unsigned widthDim,
                                                  int64_t rows, int64_t pitch, int64_t width) {
  AffineMap map = spec.maps[operand];
  bool isLast =
      map.getNumResults() && map.getResult(map.getNumResults() - 1) == getAffineDimExpr(widthDim, map.getContext());
  return {views[operand], shared, rowDim, widthDim, rows, pitch, width, isLast && width % 4 == 0};
}

/// Starts to copy rows `first`... into shared memory; zeros beyond `extent` and the width.
void AttentionEmitter::copy(const Tile &tile, Value begin, Value extent) {
  int64_t inner = tile.widthDim == Dim::E ? tile.pitch / 4 : llvm::divideCeil(tile.width, 4);
  int64_t groups = tile.rows * inner;
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

func::FuncOp AttentionEmitter::emit(StringRef symbol) {
  cut = *chooseCut(spec);
  SmallVector<Type> types(spec.types.begin(), spec.types.end());
  func::FuncOp function = k.function(symbol, types);
  ValueRange buffers = function.getArguments();
  numQueries = getDimSize(k, spec, buffers, Dim::I), numKeys = getDimSize(k, spec, buffers, Dim::J);
  Value heads = getDimSize(k, spec, buffers, Dim::H), blocks = k.ceilDiv(numQueries, cut.queries());
  Value total = k.mul(k.mul(getDimSize(k, spec, buffers, Dim::B), heads), blocks);
  Values shared = k.launch(total, kThreads,
                           {cut.queries() * cut.keyPitch(), cut.tile() * cut.keyPitch(), cut.tile() * cut.valuePitch(),
                            cut.queries() * cut.weightPitch()});
  weights = shared[3];
  Value number = k.div(k.block, blocks);
  batch = k.div(number, heads), head = k.rem(number, heads);
  // Later queries see more keys where a limit moves: the longest work comes first.
  first = k.mul(k.sub(k.sub(blocks, k.index(1)), k.rem(k.block, blocks)), cut.queries());
  for (auto [buffer, map] : llvm::zip_equal(buffers, spec.maps))
    views.push_back(viewHead(k, buffer, map, batch, head));
  queries = makeTile(spec.query, shared[0], Dim::I, Dim::D, cut.queries(), cut.keyPitch(), cut.keyWidth);
  keys = makeTile(spec.keyOperand, shared[1], Dim::J, Dim::D, cut.tile(), cut.keyPitch(), cut.keyWidth);
  values = makeTile(spec.value, shared[2], Dim::J, Dim::E, cut.tile(), cut.valuePitch(), cut.valueWidth);

  KeyMask mask(k, spec, buffers, batch, head, numKeys);
  keyMask = &mask;
  KeyMask::Bounds bounds{k.index(0), numKeys, k.index(0), numKeys};
  if (!mask.isFull()) {
    Value last = k.min(k.add(first, cut.queries() - 1), k.sub(numQueries, k.index(1)));
    bounds = mask.bounds(first, last);
    if (spec.letsHiddenTakePart())
      bounds.lower = k.index(0), bounds.upper = numKeys;
  }
  Value begin = k.floorTo(bounds.lower, cut.tile());
  copy(queries, first, numQueries);
  copy(keys, begin, numKeys);
  k.commitCopies();

  // Of each row: maximum, this thread's part of the sum, its columns of the result.
  Values state(cut.rows, k.scalar(-kInfinity));
  state.append(cut.rows + cut.rows * cut.valuePitch() / kGroup, k.scalar(0));
  state = k.loop(begin, bounds.upper, cut.tile(), state, [&](Value key, ValueRange carried) {
    Value end = k.add(key, cut.tile());
    isEdge = k.either(k.less(key, bounds.innerLower), k.less(bounds.innerUpper, end));
    copy(values, key, numKeys);
    k.commitCopies();
    return sweepTile(mask, key, carried);
  });
  k.waitForCopies(0); // none may be under way when the block ends
  store(state);
  return function;
}

Values AttentionEmitter::sweepTile(const KeyMask &mask, Value key, ValueRange state) {
  int64_t rows = cut.rows, columns = cut.keys, width = cut.valuePitch() / kGroup;
  k.waitForCopies(1); // all but the values
  k.barrier();
  Values s = scores(products(key), key);
  if (testsAllTiles()) {
    s = masked(s, key);
  } else {
    SmallVector<Type> types(s.size(), k.b.getF32Type());
    s = k.branch(isEdge, types, [&] { return masked(s, key); }, [&] { return s; });
  }
  Values next(state);
  for (int64_t r = 0; r < rows; ++r) {
    auto max = [&](Value x, Value y) { return k.greater(x, y); };
    Value top = k.tree(ArrayRef(s).slice(r * columns, columns), max);
    top = k.greater(state[r], k.acrossThreads(top, kGroup, max));
    // Nothing seen so far: any finite number gives weights of 0.
    Value isNone = k.compare(arith::CmpFPredicate::OEQ, top, k.scalar(-kInfinity));
    Value base = k.select(isNone, k.scalar(0), top);
    Value factor = exponential(k.subf(state[r], base));
    Value sum = k.mulf(state[rows + r], factor);
    for (int64_t c = 0; c < columns; ++c) {
      Value weight = exponential(k.subf(s[r * columns + c], base));
      sum = k.addf(sum, weight);
      Value place = k.add(k.add(k.mul(row(r), cut.weightPitch()), member()), c * kGroup);
      memref::StoreOp::create(k.b, k.loc, weight, weights, place);
    }
    next[r] = top, next[rows + r] = sum;
    for (int64_t e = 0; e < width; ++e)
      next[2 * rows + r * width + e] = k.mulf(state[2 * rows + r * width + e], factor);
  }
  k.waitForCopies(0);
  k.barrier(); // values and weights are there, keys have been read
  copy(keys, k.add(key, cut.tile()), numKeys);
  k.commitCopies();
  Values sums(ArrayRef(next).drop_front(2 * rows));
  if (testsAllTiles() || spec.canMask()) {
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
Values AttentionEmitter::products(Value key) {
  Values zeros(cut.rows * cut.keys, k.scalar(0));
  return k.loop(k.index(0), k.index(llvm::alignTo(cut.keyWidth, 4)), 4, zeros, [&](Value d, ValueRange carried) {
    auto read = [&](const Tile &tile, Value row) { return k.load4(tile.shared, k.add(k.mul(row, tile.pitch), d)); };
    SmallVector<Values> left, right;
    for (int64_t r = 0; r < cut.rows; ++r)
      left.push_back(read(queries, row(r)));
    for (int64_t c = 0; c < cut.keys; ++c)
      right.push_back(read(keys, k.add(member(), c * kGroup)));
    Values next(carried);
    for (int64_t q = 0; q < 4; ++q) {
      Value alignment;
      if (spec.kind == ScoreKind::additive) {
        const HeadView &view = views[spec.alignment];
        alignment = k.load(view.flat, view.along(k, view.base, Dim::D, k.add(d, q)));
      }
      for (int64_t r = 0; r < cut.rows; ++r)
        for (int64_t c = 0; c < cut.keys; ++c) {
          Value &sum = next[r * cut.keys + c];
          if (!alignment) {
            sum = k.fma(left[r][q], right[c][q], sum);
            continue;
          }
          Value x = k.addf(left[r][q], right[c][q]);
          sum = k.fma(spec.activation ? k.cloneScalar(*spec.activation, x) : x, alignment, sum);
        }
    }
    return next;
  });
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

Values AttentionEmitter::scores(const Values &raw, Value key) {
  Values result;
  for (int64_t r = 0; r < cut.rows; ++r)
    for (int64_t c = 0; c < cut.keys; ++c) {
      Value j = k.min(keyOf(key, c), k.sub(numKeys, k.index(1)));
      result.push_back(regionAt(*spec.score, spec.scoreValue, raw[result.size()], query(r), j));
    }
  return result;
}

Values AttentionEmitter::masked(const Values &values, Value key) {
  Values result;
  for (int64_t r = 0; r < cut.rows; ++r)
    for (int64_t c = 0; c < cut.keys; ++c) {
      Value score = values[result.size()], i = query(r), place = keyOf(key, c);
      Value j = k.min(place, k.sub(numKeys, k.index(1)));
      Value isSeen;
      if (!keyMask->isFull())
        isSeen = k.extract(keyMask->visibleKeys(i, j), 0);
      for (size_t operand : spec.denseMasks) {
        Value bit = k.isNonZero(readAt(operand, i, j));
        isSeen = isSeen ? k.both(isSeen, bit) : bit;
      }
      if (isSeen) {
        Value hidden = k.scalar(-kInfinity);
        if (spec.letsHiddenTakePart())
          hidden = spec.masked ? regionAt(*spec.masked, {}, score, i, j) : score;
        score = k.select(isSeen, score, hidden);
      }
      result.push_back(k.select(k.less(place, numKeys), score, k.scalar(-kInfinity)));
    }
  return result;
}

/// The thread's rows and columns of weights times values added to `sums`; a
/// value of weight 0 reaches nothing, if `canBeHidden`.
Values AttentionEmitter::addProducts(ValueRange sums, bool canBeHidden) {
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

void AttentionEmitter::store(ValueRange state) {
  int64_t width = cut.valuePitch() / kGroup;
  const HeadView &view = views[spec.result];
  for (int64_t r = 0; r < cut.rows; ++r) {
    Value sum = k.acrossThreads(state[cut.rows + r], kGroup, [&](Value x, Value y) { return k.addf(x, y); });
    Value factor = k.divf(k.scalar(1), sum);
    if (spec.maskedRows == MaskedRows::zero) // else 0 times infinity is the NaN that is asked for
      factor = k.select(k.compare(arith::CmpFPredicate::OEQ, sum, k.scalar(0)), k.scalar(0), factor);
    Value i = k.add(first, row(r));
    k.branch(k.less(i, numQueries), [&] {
      Value offset = view.along(k, view.base, Dim::I, i);
      for (int64_t e = 0; e < width; ++e) {
        Value column = k.add(k.mul(member(), 4), e / 4 * 4 * kGroup + e % 4);
        auto one = [&] {
          memref::StoreOp::create(k.b, k.loc, k.mulf(state[2 * cut.rows + r * width + e], factor), view.flat,
                                  view.along(k, offset, Dim::E, column));
        };
        if (cut.valuePitch() == cut.valueWidth)
          one();
        else
          k.branch(k.less(column, k.index(cut.valueWidth)), one);
      }
    });
  }
}

bool fail(std::string *reason, const Twine &text) {
  if (reason)
    *reason = text.str();
  return false;
}

} // namespace

bool canBuildGpuAttention(const AttentionSpec &spec, std::string *reason) {
  if (!canBuildAttention(spec, reason))
    return false;
  for (size_t n : {spec.query, spec.value, spec.result})
    if (!spec.types[n].getElementType().isF32())
      return fail(reason, "only f32 has a kernel for a GPU so far");
  if (spec.kind == ScoreKind::given || spec.normalizer != Normalizer::softmax)
    return fail(reason, "given scores and other normalisers than softmax have no kernel for a GPU yet");
  if (spec.weight || spec.softmaxType || !spec.extras.empty())
    return fail(reason, "a weight region, a narrow softmax and extra results have no kernel for a GPU yet");
  if (spec.maskedRows == MaskedRows::uniform)
    return fail(reason, "uniform weights for masked rows have no kernel for a GPU yet");
  if (spec.kind == ScoreKind::additive && *spec.getStaticSize(Dim::D) % 4)
    return fail(reason, "additive scores of a width that is no multiple of 4 have no kernel for a GPU yet");
  if (!chooseCut(spec))
    return fail(reason, "heads this wide do not fit the shared memory of a GPU");
  return true;
}

func::FuncOp buildGpuAttention(OpBuilder &builder, Location loc, StringRef symbol, const AttentionSpec &spec) {
  OpBuilder::InsertionGuard guard(builder);
  return AttentionEmitter(builder, loc, spec).emit(symbol);
}

} // namespace attn
