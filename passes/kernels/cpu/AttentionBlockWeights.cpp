// What a block makes of its scores: weights, and their rows.

#include "passes/kernels/cpu/AttentionBlockEmitter.h"
#include "passes/kernels/shared/KernelFunction.h"

using namespace mlir;

namespace attn {

using Predicate = arith::CmpFPredicate;

/// The maximum is moved when a score exceeds it by this much: weights reach
/// e^16 = 2^23, so that sums of 2^40 weights and values of 2^60 do not overflow.
static constexpr float kSlack = 16;

Value BlockEmitter::isEmptyRow(Value sum) {
  // A row that sees a key has a weight of 1 or more; a row of NaN is not empty.
  if (spec.normalizer == Normalizer::softmax)
    return k.compare(Predicate::OLT, sum, k.splat(0.5f));
  return k.compare(Predicate::OEQ, sum, k.splat(0));
}

Value BlockEmitter::roundToSoftmaxType(Value x) {
  return spec.softmaxType ? k.toF32(k.fromF32(x, spec.softmaxType)) : x;
}

/// 1 / row sum, and what the policy says for rows without a visible key.
LaneBuilder::Values BlockEmitter::normalisers(const State &state) {
  if (spec.normalizer == Normalizer::none)
    return {};
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

/// The number of keys as a vector.
Value BlockEmitter::countKeys() {
  Value count = arith::IndexCastOp::create(k.b, k.loc, k.b.getI32Type(), numKeys);
  return k.broadcast(arith::SIToFPOp::create(k.b, k.loc, k.b.getF32Type(), count));
}

/// Gives rows without a visible key the sum of all values and their number.
void BlockEmitter::fillUniformRows(State &state) {
  Values masks = llvm::map_to_vector(state.sum, [&](Value sum) { return isEmptyRow(sum); });
  Value any = k.any(k.tree(masks, [&](Value x, Value y) { return k.either(x, y); }));
  k.branch(k.unlikely(any), [&] {
    Value rows = k.min(numKeys, k.index(spec.keyBlock));
    k.loop(k.index(0), isNarrow ? k.ceilDiv(rows, 2) : rows, 1, [&](Value row) {
      for (int64_t v = 0; v < vectors; ++v) {
        Value weight = k.select(masks[v], k.splat(1), k.splat(0));
        k.store(isNarrow ? k.pack(weight, weight) : weight, scratch.weights, at(row, v));
      }
    });
    Value before = std::exchange(isCareful, arith::ConstantOp::create(k.b, k.loc, k.b.getBoolAttr(true)));
    k.loop(k.index(0), numKeys, spec.keyBlock,
           [&](Value first) { addValues(first, k.index(0), k.min(k.sub(numKeys, first), k.index(spec.keyBlock))); });
    markLong(k.b);
    isCareful = before;
  });
  Value all = countKeys();
  for (auto [sum, mask] : llvm::zip_equal(state.sum, masks))
    sum = k.select(mask, all, sum);
}

/// Weights of a tile of scores at row `row` of weightsT; moves the maximum first
/// where a score exceeds it by kSlack or a row sees its first key.
BlockEmitter::State BlockEmitter::softmaxTile(Sweep sweep, Value row, Values scores, State state) {
  auto either = [&](Value x, Value y) { return k.either(x, y); };
  if (spec.normalizer != Normalizer::softmax) {
    for (int64_t v = 0; v < vectors; ++v) {
      Values column;
      for (int64_t r = 0; r < spec.keyTile; ++r) {
        column.push_back(scores[r * vectors + v]);
        if (sweep == Sweep::Online)
          keepWeight(row, v, column);
      }
      state.partial[v] = k.addf(state.partial[v], k.tree(column, [&](Value x, Value y) { return k.addf(x, y); }));
    }
    return state;
  }
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
        keepWeight(row, v, weights);
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
    auto scale = [&](Value memory, Value rows, bool isPaired) {
      k.loop(k.index(0), rows, 1, [&](Value n) {
        Value before = k.loadVector(memory, at(n, v));
        if (!isPaired)
          return k.store(k.mulf(before, factor), memory, at(n, v));
        auto [low, high] = k.unpack(before);
        k.store(k.pack(k.mulf(low, factor), k.mulf(high, factor)), memory, at(n, v));
      });
    };
    scale(scratch.results, k.index(valueWidth), false);
    scale(scratch.weights, isNarrow ? k.div(row, k.index(2)) : row, isNarrow);
  }
  return moved;
}

/// Second sweep: final weights, through the weight region.
void BlockEmitter::storeWeights(Value row, Value first, bool isEdge, Values scores, const State &final) {
  for (int64_t v = 0; v < vectors && spec.normalizer != Normalizer::none; ++v) {
    Value isEmpty = isEmptyRow(final.sum[v]), factor = k.divf(k.splat(1), final.sum[v]), share;
    if (canMask && spec.maskedRows == MaskedRows::zero)
      factor = k.select(isEmpty, k.splat(0), factor);
    if (canMask && spec.maskedRows == MaskedRows::uniform) {
      share = k.select(isEmpty, k.divf(k.splat(1), countKeys()), k.splat(0));
      factor = k.select(isEmpty, k.splat(0), factor);
    }
    for (int64_t r = 0; r < spec.keyTile; ++r) {
      Value &score = scores[r * vectors + v];
      if (spec.normalizer == Normalizer::softmax)
        score = k.exp2(pureScale ? score : k.mulf(k.subf(score, final.maximum[v]), k.splat(kLog2E)));
      score = share ? k.fma(score, factor, share) : k.mulf(score, factor);
      score = roundToSoftmaxType(score);
    }
  }
  keepScores(ExtraSource::weights, first, isEdge, scores);
  if (spec.weight)
    applyRegion(*spec.weight, Value(), scores, first, isEdge);
  keepScores(ExtraSource::final_weights, first, isEdge, scores);
  for (int64_t v = 0; v < vectors; ++v) {
    Values column;
    for (int64_t r = 0; r < spec.keyTile; ++r) {
      column.push_back(scores[r * vectors + v]);
      keepWeight(row, v, column);
    }
  }
}

/// Stores the last of `weights`, those of the tile of keys at `row` so far.
void BlockEmitter::keepWeight(Value row, int64_t vector, ArrayRef<Value> weights) {
  int64_t n = weights.size() - 1;
  if (!isNarrow)
    k.store(weights[n], scratch.weights, weightAt(row, n, vector));
  else if (n % 2) // two keys side by side
    k.store(k.pack(weights[n - 1], weights[n]), scratch.weights, weightAt(row, n - 1, vector));
}

} // namespace attn
