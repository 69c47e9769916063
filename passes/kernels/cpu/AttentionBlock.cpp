#include "passes/kernels/cpu/AttentionBlock.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/cpu/AttentionMask.h"
#include "passes/kernels/cpu/AttentionOperands.h"
#include "passes/kernels/cpu/RegionVectorizer.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <deque>

using namespace mlir;

namespace attn {
namespace {

using Dim = AttentionOp::Dim;
using Values = LaneBuilder::Values;
using Predicate = arith::CmpFPredicate;

constexpr float kLog2E = 1.44269504f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
/// The maximum is moved when a score exceeds it by this much: weights reach
/// e^16 = 2^23, so that sums of 2^40 weights and values of 2^60 do not overflow.
constexpr float kSlack = 16;

/// What a sweep over the keys does with a tile of scores.
enum class Sweep {
  Online,  ///< weights relative to a running maximum, times values
  Reduce,  ///< maximum and sum only
  Weights, ///< final weights through the weight region, times values
};

class BlockEmitter {
public:
  BlockEmitter(LaneBuilder &k, const AttentionSpec &spec, ValueRange buffers, const AttentionScratch &scratch,
               Value batch, Value head, Value begin, int64_t vectors);
  void emit();

private:
  /// What travels from key tile to key tile, one a query vector. `maximum` is
  /// the running maximum or, with a pure scale, its negative in units of log 2.
  /// `sum` and `partial` (this key block's share) add up to the row sum.
  struct State {
    Values maximum, sum, partial;
    Values flat() const {
      Values all(maximum);
      all.append(sum);
      all.append(partial);
      return all;
    }
  };
  State stateOf(ValueRange values) const {
    State state;
    state.maximum.assign(values.begin(), values.begin() + vectors);
    state.sum.assign(values.begin() + vectors, values.begin() + 2 * vectors);
    state.partial.assign(values.begin() + 2 * vectors, values.end());
    return state;
  }

  void loadQueries();
  Value attend(Value isCareful);
  State sweepKeys(Sweep sweep, const State &start, Value isCareful);
  Values scoreTile(Value key, bool isEdge, const State &state);
  void applyRegion(Block &block, Value result, MutableArrayRef<Value> tile, Value key, bool isEdge);
  State softmaxTile(Sweep sweep, Value row, Values scores, State state);
  State rescale(Sweep sweep, Value row, MutableArrayRef<Value> scores, ArrayRef<Value> tops, const State &state);
  void storeWeights(Value row, Value key, bool isEdge, Values scores, const State &final);
  void addValues(Value key, Value count, Value isCareful);
  void addValueTile(Value key, Value count, Value column, int64_t width, Value isCareful);
  void fillUniformRows(State &state);
  Values normalisers(const State &state);
  void storeResult(ArrayRef<Value> factors);
  Value anyNotFinite();

  Values maskTile(Value first, Values scores);

  Value at(Value row, int64_t vector) { return k.add(k.mul(row, vectors * k.lanes), vector * k.lanes); }
  Value isEmptyRow(Value sum) { return k.compare(Predicate::OLT, sum, k.splat(0.5f)); }

  LaneBuilder &k;
  const AttentionSpec &spec;
  const int64_t vectors;
  const int64_t keyWidth, valueWidth, paddedValueWidth;
  const std::optional<double> pureScale;
  const bool canMask;
  Value batch, head, begin, numKeys;
  HeadView query, key, value, result;
  QueryBlock queries;
  KeyMask mask;
  KeyMask::Bounds bounds;
  std::deque<HeadView> captures; ///< readers point into it
  SmallVector<CaptureReader> readers;
  Value queryT, resultT, weightsT; ///< the scratch
};

BlockEmitter::BlockEmitter(LaneBuilder &k, const AttentionSpec &spec, ValueRange buffers,
                           const AttentionScratch &scratch, Value batch, Value head, Value begin, int64_t vectors)
    : k(k), spec(spec), vectors(vectors), keyWidth(*spec.getStaticSize(Dim::D)),
      valueWidth(*spec.getStaticSize(Dim::E)), paddedValueWidth(llvm::alignTo(valueWidth, k.lanes)),
      pureScale(spec.getPureScale()), canMask(spec.canMask()), batch(batch), head(head), begin(begin),
      numKeys(getDimSize(k, spec, buffers, Dim::J)), mask(k, spec, buffers, batch, head, numKeys),
      queryT(scratch.queries), resultT(scratch.results), weightsT(scratch.weights) {
  auto view = [&](size_t n) { return viewHead(k, buffers[n], spec.maps[n], batch, head); };
  query = view(0);
  key = view(1);
  value = view(2);
  result = view(buffers.size() - 1);
  int64_t rows = vectors * k.lanes;
  queries.numRows = getDimSize(k, spec, buffers, Dim::I);
  queries.vectors = vectors;
  std::optional<int64_t> known = LaneBuilder::constant(queries.numRows);
  queries.mayClamp = !known || *known < rows;
  // The last block reaches back over rows of the one before, so that it reads
  // no row twice; it stores its own rows only.
  queries.first = k.max(k.min(begin, k.sub(queries.numRows, k.index(rows))), k.index(0));
  for (size_t n = 0; n < spec.getNumCaptures(); ++n)
    captures.push_back(view(3 + n));
  bounds = mask.bounds(begin, k.sub(k.min(k.add(begin, rows), queries.numRows), k.index(1)));
  // Whole tiles, but for the end of all keys.
  Value cut = k.floorTo(k.add(bounds.upper, spec.keyTile - 1), spec.keyTile);
  bounds.lower = k.floorTo(bounds.lower, spec.keyTile);
  bounds.upper = k.min(cut, numKeys);
}

void BlockEmitter::emit() {
  loadQueries();
  for (const HeadView &capture : captures)
    readers.emplace_back(k, capture, queries);
  mask.setQueries(queries);
  if (!canMask) {
    attend(Value());
    return;
  }
  // A masked key has weight 0, and 0 times an infinite or NaN value must not
  // count. Where a result is not finite the block is computed once more with
  // the products of zero weights left out.
  Value again = arith::ConstantOp::create(k.b, k.loc, k.b.getBoolAttr(true));
  k.loop(k.index(0), k.index(2), 1, again, [&](Value attempt, ValueRange carried) {
    return k.branch(
        carried.front(), k.b.getI1Type(),
        [&]() -> Values {
          Value isCareful = k.less(k.index(0), attempt);
          return {attend(isCareful)};
        },
        [&]() -> Values { return {arith::ConstantOp::create(k.b, k.loc, k.b.getBoolAttr(false))}; });
  });
}

//===----------------------------------------------------------------------===//
// Queries in, results out
//===----------------------------------------------------------------------===//

void BlockEmitter::loadQueries() {
  auto scaled = [&](Value row) { return pureScale ? k.mulf(row, k.splat(*pureScale * kLog2E)) : row; };
  if (!query.isContiguous(Dim::D) || query.isContiguous(Dim::I)) {
    k.loop(k.index(0), k.index(keyWidth), 1, [&](Value d) {
      for (int64_t v = 0; v < vectors; ++v)
        k.store(scaled(gatherRows(k, query, queries, query.along(k, query.base, Dim::D, d), v)), queryT, at(d, v));
    });
    return;
  }
  auto tile = [&](Value d, int64_t width) {
    for (int64_t v = 0; v < vectors; ++v) {
      Values rows;
      for (int64_t n = 0; n < k.lanes; ++n) {
        Value row = queries.row(k, v * k.lanes + n);
        Value offset = k.add(query.along(k, query.base, Dim::I, row), d);
        rows.push_back(scaled(width < k.lanes ? k.loadFirst(query.flat, offset, k.index(width), k.lanes)
                                              : k.loadVector(query.flat, offset)));
      }
      Values columns = k.transpose(rows);
      for (int64_t n = 0; n < width; ++n)
        k.store(columns[n], queryT, at(k.add(d, n), v));
    }
  };
  int64_t whole = keyWidth / k.lanes * k.lanes;
  k.loop(k.index(0), k.index(whole), k.lanes, [&](Value d) { tile(d, k.lanes); });
  if (keyWidth < k.lanes)
    tile(k.index(0), keyWidth);
  else if (whole < keyWidth) // the last columns once more, in one whole tile
    tile(k.index(keyWidth - k.lanes), k.lanes);
}

/// resultT, times the factors, to the rows of the result that this block owns.
void BlockEmitter::storeResult(ArrayRef<Value> factors) {
  // Row by row into the scratch of the weights, which are used up.
  k.loop(k.index(0), k.index(paddedValueWidth), k.lanes, [&](Value e) {
    for (int64_t v = 0; v < vectors; ++v) {
      Values columns;
      for (int64_t n = 0; n < k.lanes; ++n) {
        Value column = k.loadVector(resultT, at(k.add(e, n), v));
        columns.push_back(factors.empty() ? column : k.mulf(column, factors[v]));
      }
      for (auto [n, row] : llvm::enumerate(k.transpose(columns)))
        k.store(row, weightsT, k.add(e, (v * k.lanes + n) * paddedValueWidth));
    }
  });
  Value end = k.min(k.add(begin, vectors * k.lanes), queries.numRows);
  k.loop(begin, end, 1, [&](Value row) {
    Value source = k.mul(k.sub(row, queries.first), paddedValueWidth);
    Value target = result.along(k, result.base, Dim::I, row);
    if (!result.isContiguous(Dim::E)) {
      k.loop(k.index(0), k.index(valueWidth), 1, [&](Value e) {
        Value element = k.load(weightsT, k.add(source, e));
        memref::StoreOp::create(k.b, k.loc, element, result.flat, result.along(k, target, Dim::E, e));
      });
      return;
    }
    auto copy = [&](Value e) { k.store(k.loadVector(weightsT, k.add(source, e)), result.flat, k.add(target, e)); };
    int64_t whole = valueWidth / k.lanes * k.lanes;
    for (int64_t e = 0; e < whole; e += k.lanes)
      copy(k.index(e));
    if (valueWidth < k.lanes)
      k.storeFirst(k.loadVector(weightsT, source), result.flat, target, k.index(valueWidth));
    else if (whole < valueWidth)
      copy(k.index(valueWidth - k.lanes));
  });
}

/// Whether resultT holds an infinity or a NaN.
Value BlockEmitter::anyNotFinite() {
  Values zeros(vectors, k.splat(0));
  Values sums = k.loop(k.index(0), k.index(valueWidth), 1, zeros, [&](Value e, ValueRange carried) {
    Values next;
    for (int64_t v = 0; v < vectors; ++v)
      next.push_back(k.fma(k.loadVector(resultT, at(e, v)), zeros[v], carried[v]));
    return next;
  });
  return k.any(k.tree(llvm::map_to_vector(sums, [&](Value sum) { return k.compare(Predicate::UNE, sum, zeros[0]); }),
                      [&](Value x, Value y) { return k.either(x, y); }));
}

//===----------------------------------------------------------------------===//
// One attempt
//===----------------------------------------------------------------------===//

/// Computes and stores the block. Returns whether a sum was not finite, where
/// `isCareful` is given and false.
Value BlockEmitter::attend(Value isCareful) {
  Value zero = k.splat(0);
  k.loop(k.index(0), k.index(valueWidth), 1, [&](Value e) {
    for (int64_t v = 0; v < vectors; ++v)
      k.store(zero, resultT, at(e, v));
  });
  State state{Values(vectors, zero), Values(vectors, zero), {}};
  if (spec.weight) {
    state = sweepKeys(Sweep::Reduce, state, isCareful);
    sweepKeys(Sweep::Weights, state, isCareful);
    storeResult({});
  } else {
    state = sweepKeys(Sweep::Online, state, isCareful);
    if (canMask && spec.maskedRows == MaskedRows::uniform)
      fillUniformRows(state);
    storeResult(normalisers(state));
  }
  if (!isCareful)
    return {};
  Value isFirst =
      arith::XOrIOp::create(k.b, k.loc, isCareful, arith::ConstantOp::create(k.b, k.loc, k.b.getBoolAttr(true)));
  return arith::AndIOp::create(k.b, k.loc, isFirst, anyNotFinite());
}

/// 1 / row sum, and what the policy says for rows without a visible key.
Values BlockEmitter::normalisers(const State &state) {
  Values factors;
  for (Value sum : state.sum) {
    Value factor = k.divf(k.splat(1), sum); // inf for an empty row: 0 * inf is the NaN of policy `nan`
    if (canMask && spec.maskedRows == MaskedRows::zero)
      factor = k.select(isEmptyRow(sum), k.splat(0), factor);
    // With no keys at all the product of weights and values is an empty sum.
    if (std::optional<int64_t> keys = LaneBuilder::constant(numKeys); !keys || !*keys)
      factor = k.select(k.less(k.index(0), numKeys), factor, k.splat(0));
    factors.push_back(factor);
  }
  return factors;
}

/// Gives rows without a visible key the sum of all values and their number.
void BlockEmitter::fillUniformRows(State &state) {
  Values masks = llvm::map_to_vector(state.sum, [&](Value sum) { return isEmptyRow(sum); });
  Value any = k.any(k.tree(masks, [&](Value x, Value y) { return k.either(x, y); }));
  k.branch(k.unlikely(any), [&] {
    k.loop(k.index(0), k.min(numKeys, k.index(spec.keyBlock)), 1, [&](Value row) {
      for (int64_t v = 0; v < vectors; ++v)
        k.store(k.select(masks[v], k.splat(1), k.splat(0)), weightsT, at(row, v));
    });
    k.loop(k.index(0), numKeys, spec.keyBlock, [&](Value first) {
      Value isCareful = arith::ConstantOp::create(k.b, k.loc, k.b.getBoolAttr(true));
      addValues(first, k.min(k.sub(numKeys, first), k.index(spec.keyBlock)), isCareful);
    });
  });
  Value count = arith::IndexCastOp::create(k.b, k.loc, k.b.getI32Type(), numKeys);
  Value all = k.broadcast(arith::SIToFPOp::create(k.b, k.loc, k.b.getF32Type(), count));
  for (auto [sum, mask] : llvm::zip_equal(state.sum, masks))
    sum = k.select(mask, all, sum);
}

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

BlockEmitter::State BlockEmitter::sweepKeys(Sweep sweep, const State &start, Value isCareful) {
  bool isReducing = sweep != Sweep::Weights;
  std::optional<int64_t> keys = LaneBuilder::constant(numKeys);
  bool hasEdge = !keys || *keys % spec.keyTile;
  Values init = isReducing ? start.flat() : Values();
  Values end = k.loop(bounds.lower, bounds.upper, spec.keyBlock, init, [&](Value first, ValueRange carried) {
    Value count = k.min(k.sub(bounds.upper, first), k.index(spec.keyBlock));
    Value whole = k.floorTo(count, spec.keyTile);
    auto tile = [&](Value row, ValueRange values, bool isEdge) -> Values {
      State state = isReducing ? stateOf(values) : start;
      Value keyIndex = k.add(first, row);
      Values scores = scoreTile(keyIndex, isEdge, state);
      if (isReducing)
        return softmaxTile(sweep, row, std::move(scores), std::move(state)).flat();
      storeWeights(row, keyIndex, isEdge, std::move(scores), state);
      return {};
    };
    Values values(carried);
    if (isReducing)
      values.append(vectors, k.splat(0)); // partial sums of this block
    values = k.loop(k.index(0), whole, spec.keyTile, values,
                    [&](Value row, ValueRange inner) { return tile(row, inner, /*isEdge=*/false); });
    if (hasEdge)
      values = k.branch(
          k.less(whole, count), ValueRange(values).getTypes(), [&] { return tile(whole, values, /*isEdge=*/true); },
          [&] { return values; });
    if (sweep != Sweep::Reduce)
      addValues(first, count, isCareful);
    if (!isReducing)
      return Values();
    State state = stateOf(values);
    for (auto [sum, partial] : llvm::zip_equal(state.sum, state.partial))
      sum = k.addf(sum, partial);
    state.partial.clear();
    return state.flat();
  });
  return isReducing ? stateOf(end) : start;
}

/// Scores of keyTile keys from `first` on, by key, then by query vector: in
/// units of log 2 and less the maximum with a pure scale, after the region
/// otherwise. Keys beyond the last one score -inf.
Values BlockEmitter::scoreTile(Value first, bool isEdge, const State &state) {
  Values rows, accumulators;
  for (int64_t r = 0; r < spec.keyTile; ++r) {
    Value row = k.add(first, r);
    if (isEdge)
      row = k.min(row, k.sub(numKeys, k.index(1)));
    rows.push_back(key.along(k, key.base, Dim::J, row));
    for (int64_t v = 0; v < vectors; ++v)
      accumulators.push_back(pureScale ? state.maximum[v] : k.splat(0));
  }
  Values scores = k.loop(k.index(0), k.index(keyWidth), 1, accumulators, [&](Value d, ValueRange carried) {
    Values columns, next;
    for (int64_t v = 0; v < vectors; ++v)
      columns.push_back(k.loadVector(queryT, at(d, v)));
    for (int64_t r = 0; r < spec.keyTile; ++r) {
      Value element = k.broadcast(k.load(key.flat, key.along(k, rows[r], Dim::D, d)));
      for (int64_t v = 0; v < vectors; ++v)
        next.push_back(k.fma(element, columns[v], carried[r * vectors + v]));
    }
    return next;
  });
  if (!pureScale)
    applyRegion(*spec.score, spec.scoreValue, scores, first, isEdge);
  if (!mask.isFull())
    scores = maskTile(first, std::move(scores));
  if (isEdge)
    for (int64_t r = 1; r < spec.keyTile; ++r) {
      Value isKey = k.less(k.add(first, r), numKeys);
      for (int64_t v = 0; v < vectors; ++v)
        scores[r * vectors + v] = k.select(isKey, scores[r * vectors + v], k.splat(-kInfinity));
    }
  return scores;
}

/// -inf for keys outside the limits, where the tile has some.
Values BlockEmitter::maskTile(Value first, Values scores) {
  Value isInner = k.both(k.less(k.sub(bounds.innerLower, k.index(1)), first),
                         k.less(k.add(first, spec.keyTile - 1), bounds.innerUpper));
  return k.branch(
      isInner, ValueRange(scores).getTypes(), [&] { return scores; },
      [&] {
        Values masked;
        for (int64_t r = 0; r < spec.keyTile; ++r)
          for (int64_t v = 0; v < vectors; ++v)
            masked.push_back(
                k.select(mask.visibleTo(v, k.add(first, r)), scores[r * vectors + v], k.splat(-kInfinity)));
        return masked;
      });
}

/// Replaces each element of a tile by what `region` makes of it.
void BlockEmitter::applyRegion(Block &region, Value result, MutableArrayRef<Value> tile, Value first, bool isEdge) {
  // Read only what the region uses.
  SmallVector<SmallVector<Values>> captured(readers.size());
  for (auto [n, reader] : llvm::enumerate(readers))
    if (!region.getArgument(1 + n).use_empty())
      captured[n] = reader.read(first, spec.keyTile, isEdge, numKeys);
  for (int64_t r = 0; r < spec.keyTile; ++r)
    for (int64_t v = 0; v < vectors; ++v) {
      Value &element = tile[r * vectors + v];
      Values arguments{element};
      for (auto [n, values] : llvm::enumerate(captured))
        arguments.push_back(values.empty() ? Value() : values[r][v]);
      auto index = [&](OpBuilder &, Location, int64_t dim) -> Value {
        if (dim == Dim::B || dim == Dim::H)
          return dim == Dim::B ? batch : head;
        if (dim == Dim::J)
          return k.add(first, r);
        auto type = VectorType::get({k.lanes}, k.b.getIndexType());
        return k.b.createOrFold<arith::AddIOp>(k.loc, k.broadcast(k.add(queries.first, v * k.lanes)),
                                               vector::StepOp::create(k.b, k.loc, type));
      };
      // canBuildAttention has asked canVectorizeBlock.
      element = *vectorizeBlock(k.b, region, arguments, k.lanes, index, nullptr, result);
    }
}

//===----------------------------------------------------------------------===//
// Softmax
//===----------------------------------------------------------------------===//

/// Weights of a tile of scores at row `row` of weightsT; moves the maximum first
/// where a score exceeds it by kSlack or a row sees its first key.
BlockEmitter::State BlockEmitter::softmaxTile(Sweep sweep, Value row, Values scores, State state) {
  auto either = [&](Value x, Value y) { return k.either(x, y); };
  Values tops, needs;
  for (int64_t v = 0; v < vectors; ++v) {
    Values column;
    for (int64_t r = 0; r < spec.keyTile; ++r)
      column.push_back(scores[r * vectors + v]);
    tops.push_back(k.tree(column, [&](Value x, Value y) { return k.maxf(x, y); }));
    Value excess = pureScale ? tops[v] : k.subf(tops[v], state.maximum[v]);
    needs.push_back(k.compare(Predicate::OGT, excess, k.splat(pureScale ? kSlack * kLog2E : kSlack)));
    needs.push_back(isEmptyRow(k.addf(state.sum[v], state.partial[v])));
  }
  // The scores change with the maximum where they are relative to it.
  Values before = state.flat();
  if (pureScale)
    before.append(scores);
  Values after = k.branch(
      k.unlikely(k.any(k.tree(needs, either))), ValueRange(before).getTypes(),
      [&] {
        Values moved(scores);
        Values values = rescale(sweep, row, moved, tops, state).flat();
        if (pureScale)
          values.append(moved);
        return values;
      },
      [&] { return before; });
  state = stateOf(ArrayRef<Value>(after).take_front(3 * vectors));
  if (pureScale)
    scores.assign(after.begin() + 3 * vectors, after.end());
  for (int64_t v = 0; v < vectors; ++v) {
    Values weights;
    for (int64_t r = 0; r < spec.keyTile; ++r) {
      Value score = scores[r * vectors + v];
      // Subtract before scaling: -FLT_MAX, a usual mask, times log2(e) is -inf.
      Value power = pureScale ? score : k.mulf(k.subf(score, state.maximum[v]), k.splat(kLog2E));
      weights.push_back(k.exp2(power));
      if (sweep == Sweep::Online)
        k.store(weights.back(), weightsT, at(k.add(row, r), v));
    }
    state.partial[v] = k.addf(state.partial[v], k.tree(weights, [&](Value x, Value y) { return k.addf(x, y); }));
  }
  return state;
}

/// Moves the maximum up to the tops of this tile, and all that was accumulated
/// relative to it along.
BlockEmitter::State BlockEmitter::rescale(Sweep sweep, Value row, MutableArrayRef<Value> scores, ArrayRef<Value> tops,
                                          const State &state) {
  State moved = state;
  Value zero = k.splat(0);
  for (int64_t v = 0; v < vectors; ++v) {
    Value isEmpty = isEmptyRow(k.addf(state.sum[v], state.partial[v]));
    Value power;
    // A row without a key takes the top, even a lower one, unless it is -inf.
    if (pureScale) {
      Value up = k.select(isEmpty, tops[v], k.maxf(tops[v], zero));
      up = k.select(k.compare(Predicate::OGT, up, k.splat(-kInfinity)), up, zero);
      moved.maximum[v] = k.subf(state.maximum[v], up);
      for (int64_t r = 0; r < spec.keyTile; ++r)
        scores[r * vectors + v] = k.subf(scores[r * vectors + v], up);
      power = k.subf(zero, up);
    } else {
      Value maximum = k.select(isEmpty, tops[v], k.maxf(tops[v], state.maximum[v]));
      maximum = k.select(k.compare(Predicate::OGT, maximum, k.splat(-kInfinity)), maximum, zero);
      power = k.mulf(k.subf(state.maximum[v], maximum), k.splat(kLog2E));
      moved.maximum[v] = maximum;
    }
    // Nothing is accumulated in an empty row, and its power may be anything. A
    // row that stays is multiplied by 1 itself, not by exp2(0) = 1 + 2^-23: each
    // of the other rows may bring a rescaling, and the roundings would add up.
    Value stays = k.either(isEmpty, k.compare(Predicate::OEQ, power, zero));
    Value factor = k.select(stays, k.splat(1), k.exp2(power));
    moved.sum[v] = k.mulf(state.sum[v], factor);
    moved.partial[v] = k.mulf(state.partial[v], factor);
    if (sweep != Sweep::Online)
      continue;
    auto scale = [&](Value scratch, Value rows) {
      k.loop(k.index(0), rows, 1,
             [&](Value n) { k.store(k.mulf(k.loadVector(scratch, at(n, v)), factor), scratch, at(n, v)); });
    };
    scale(resultT, k.index(valueWidth));
    scale(weightsT, row);
  }
  return moved;
}

/// Second sweep: final weights, through the weight region.
void BlockEmitter::storeWeights(Value row, Value first, bool isEdge, Values scores, const State &final) {
  for (int64_t v = 0; v < vectors; ++v) {
    Value isEmpty = isEmptyRow(final.sum[v]), factor = k.divf(k.splat(1), final.sum[v]), share;
    if (canMask && spec.maskedRows == MaskedRows::zero)
      factor = k.select(isEmpty, k.splat(0), factor);
    if (canMask && spec.maskedRows == MaskedRows::uniform) {
      Value count = arith::IndexCastOp::create(k.b, k.loc, k.b.getI32Type(), numKeys);
      Value all = k.broadcast(arith::SIToFPOp::create(k.b, k.loc, k.b.getF32Type(), count));
      share = k.select(isEmpty, k.divf(k.splat(1), all), k.splat(0));
      factor = k.select(isEmpty, k.splat(0), factor);
    }
    for (int64_t r = 0; r < spec.keyTile; ++r) {
      Value &score = scores[r * vectors + v];
      Value power = pureScale ? score : k.mulf(k.subf(score, final.maximum[v]), k.splat(kLog2E));
      score = k.exp2(power);
      score = share ? k.fma(score, factor, share) : k.mulf(score, factor);
    }
  }
  applyRegion(*spec.weight, Value(), scores, first, isEdge);
  for (int64_t r = 0; r < spec.keyTile; ++r)
    for (int64_t v = 0; v < vectors; ++v)
      k.store(scores[r * vectors + v], weightsT, at(k.add(row, r), v));
}

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

/// resultT += V^T weightsT over `count` keys from `first` on.
void BlockEmitter::addValues(Value first, Value count, Value isCareful) {
  int64_t whole = valueWidth / spec.valueTile * spec.valueTile;
  k.loop(k.index(0), k.index(whole), spec.valueTile,
         [&](Value column) { addValueTile(first, count, column, spec.valueTile, isCareful); });
  if (whole < valueWidth)
    addValueTile(first, count, k.index(whole), valueWidth - whole, isCareful);
}

void BlockEmitter::addValueTile(Value first, Value count, Value column, int64_t width, Value isCareful) {
  Value corner = value.along(k, value.along(k, value.base, Dim::J, first), Dim::E, column);
  Value zero = k.splat(0);
  auto products = [&](bool skipsZeros) {
    return k.loop(k.index(0), count, 1, Values(width * vectors, zero), [&](Value n, ValueRange carried) {
      Values weights, isLive, next;
      for (int64_t v = 0; v < vectors; ++v) {
        weights.push_back(k.loadVector(weightsT, at(n, v)));
        isLive.push_back(skipsZeros ? k.compare(Predicate::UNE, weights[v], zero) : Value());
      }
      Value row = value.along(k, corner, Dim::J, n);
      for (int64_t e = 0; e < width; ++e) {
        Value element = k.broadcast(k.load(value.flat, value.along(k, row, Dim::E, k.index(e))));
        for (int64_t v = 0; v < vectors; ++v) {
          Value before = carried[e * vectors + v], after = k.fma(element, weights[v], before);
          next.push_back(skipsZeros ? k.select(isLive[v], after, before) : after);
        }
      }
      return next;
    });
  };
  Values sums;
  if (isCareful)
    sums = k.branch(
        k.unlikely(isCareful), SmallVector<Type>(width * vectors, k.vectorType()), [&] { return products(true); },
        [&] { return products(false); });
  else
    sums = products(false);
  // A block's sum first, then the total: short sums keep 128k keys accurate.
  for (int64_t e = 0; e < width; ++e)
    for (int64_t v = 0; v < vectors; ++v) {
      Value offset = at(k.add(column, e), v);
      k.store(k.addf(k.loadVector(resultT, offset), sums[e * vectors + v]), resultT, offset);
    }
}

} // namespace

AttentionScratch AttentionScratch::allocate(LaneBuilder &k, const AttentionSpec &spec, int64_t vectors) {
  int64_t rows = vectors * k.lanes, width = llvm::alignTo(*spec.getStaticSize(Dim::E), k.lanes);
  AttentionScratch scratch;
  scratch.queries = k.scratch(*spec.getStaticSize(Dim::D) * rows);
  scratch.results = k.scratch(width * rows);
  scratch.weights = k.scratch(std::max(spec.keyBlock, width) * rows);
  return scratch;
}

void emitAttentionBlock(LaneBuilder &k, const AttentionSpec &spec, ValueRange buffers, const AttentionScratch &scratch,
                        Value batch, Value head, Value begin, int64_t vectors) {
  BlockEmitter(k, spec, buffers, scratch, batch, head, begin, vectors).emit();
}

} // namespace attn
