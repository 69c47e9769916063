// What a block makes of its scores: weights, and their rows.

#include "passes/kernels/cpu/AttentionBlockEmitter.h"
#include "passes/kernels/shared/KernelFunction.h"

using namespace mlir;

namespace attn {

/// The maximum is moved when a score exceeds it by this much: weights reach
/// e^16 = 2^23, so that sums of 2^40 weights and values of 2^60 do not overflow.
static constexpr float kSlack = 16;

Mask BlockEmitter::isEmptyRow(const Vec &sum) {
  // A row that sees a key has a weight of 1 or more; a row of NaN is not empty.
  return spec.normalizer == Normalizer::softmax ? sum < 0.5 : sum == 0;
}

Masks BlockEmitter::emptyRows(const State &state) {
  return llvm::map_to_vector(state.sum, [&](const Vec &sum) { return isEmptyRow(sum); });
}

Vec BlockEmitter::roundToSoftmaxType(const Vec &x) {
  return spec.softmaxType ? k.toF32(convert(x, spec.softmaxType)) : x;
}

/// 1 / row sum, and what the policy says for rows without a visible key.
Vecs BlockEmitter::normalisers(const State &state) {
  if (spec.normalizer == Normalizer::none)
    return {};
  Vecs factors;
  for (const Vec &sum : state.sum) {
    Vec factor = 1.0 / sum; // inf for an empty row: 0 * inf is the NaN of policy `nan`
    if (canMask && spec.maskedRows == MaskedRows::zero)
      factor = select(isEmptyRow(sum), k.splat(0), factor);
    // With no keys at all the product of weights and values is an empty sum.
    if (std::optional<int64_t> keys = getConstantIntValue(numKeys.value()); !keys || !*keys)
      factor = select(numKeys > 0, factor, k.splat(0));
    factors.push_back(factor);
  }
  return factors;
}

/// The number of keys as a vector.
Vec BlockEmitter::countKeys() { return k.splat(convert(toNum(numKeys, k.b.getI32Type()), k.f32Type())); }

/// Gives rows without a visible key the sum of all values and their number.
void BlockEmitter::fillUniformRows(State &state) {
  Masks isEmpty = emptyRows(state);
  k.when(unlikely(anyOf(isEmpty)), [&] {
    Index rows = minimum(numKeys, spec.keyBlock);
    k.loop(0, isNarrow ? ceilDiv(rows, 2) : rows, 1, [&](Index row) {
      for (int64_t v = 0; v < vectors; ++v) {
        Vec weight = select(isEmpty[v], k.splat(1), k.splat(0));
        scratch.weights.setVector(isNarrow ? k.pack(weight, weight) : weight, at(row, v));
      }
    });
    Mask before = std::exchange(isCareful, k.truth(true));
    k.loop(0, numKeys, spec.keyBlock,
           [&](Index first) { addValues(first, k.index(0), minimum(numKeys - first, spec.keyBlock)); });
    markLong(k.b);
    isCareful = before;
  });
  Vec all = countKeys();
  for (auto [sum, mask] : llvm::zip_equal(state.sum, isEmpty))
    sum = select(mask, all, sum);
}

/// Sums of scores that are the weights, which stand at row `row` of weightsT.
BlockEmitter::State BlockEmitter::addPlainTile(Sweep sweep, const Index &row, const Vecs &scores, State state) {
  for (int64_t v = 0; v < vectors; ++v) {
    Vecs column = columnOf(scores, v);
    if (sweep == Sweep::Online)
      keepWeights(row, v, column);
    state.partial[v] = state.partial[v] + tree<Vec>(column, std::plus<>());
  }
  return state;
}

/// Weights of a tile of scores at row `row` of weightsT; moves the maximum first
/// where a score exceeds it by kSlack or a row sees its first key.
BlockEmitter::State BlockEmitter::softmaxTile(Sweep sweep, const Index &row, Vecs scores, State state) {
  if (spec.normalizer != Normalizer::softmax)
    return addPlainTile(sweep, row, scores, std::move(state));
  Vecs tops;
  Masks needs;
  for (int64_t v = 0; v < vectors; ++v) {
    tops.push_back(tree<Vec>(columnOf(scores, v), greaterOf<Vec>));
    Vec excess = pureScale ? tops[v] : tops[v] - state.maximum[v];
    needs.push_back(excess > (pureScale ? kSlack * kLog2E : kSlack));
    needs.push_back(isEmptyRow(state.sum[v] + state.partial[v]));
  }
  // The scores change with the maximum where they are relative to it.
  using Moved = std::tuple<State, Vecs>;
  auto moved = [&](const State &state, const Vecs &scores) { return Moved(state, pureScale ? scores : Vecs()); };
  Moved after = k.choose(
      unlikely(anyOf(needs)),
      [&] {
        Vecs relative = scores;
        State risen = rescale(sweep, row, relative, tops, state);
        return moved(risen, relative);
      },
      [&] { return moved(state, scores); });
  state = std::get<State>(after);
  if (pureScale)
    scores = std::get<Vecs>(after);
  for (int64_t v = 0; v < vectors; ++v) {
    Vecs weights;
    for (const Vec &score : columnOf(scores, v)) {
      // Subtract before scaling: -FLT_MAX, a usual mask, times log2(e) is -inf.
      weights.push_back(k.exp2(pureScale ? score : (score - state.maximum[v]) * kLog2E));
      if (sweep == Sweep::Online)
        keepWeight(row, v, weights);
    }
    state.partial[v] = state.partial[v] + tree<Vec>(weights, std::plus<>());
  }
  return state;
}

/// Multiplies `rows` rows of `memory`, those of a query vector, by its factor.
void BlockEmitter::scaleRows(const Buffer &memory, const Index &rows, int64_t vector, const Vec &factor,
                             bool isPaired) {
  k.loop(0, rows, 1, [&](Index n) {
    Vec before = memory.vector(lanes, at(n, vector)), after;
    if (isPaired) {
      auto [low, high] = k.unpack(before);
      after = k.pack(low * factor, high * factor);
    } else {
      after = before * factor;
    }
    memory.setVector(after, at(n, vector));
  });
}

/// Moves the maximum up to the tops of this tile, and all that was accumulated
/// relative to it along.
BlockEmitter::State BlockEmitter::rescale(Sweep sweep, const Index &row, Vecs &scores, const Vecs &tops,
                                          const State &state) {
  State moved = state;
  Vec zero = k.splat(0);
  for (int64_t v = 0; v < vectors; ++v) {
    Mask isEmpty = isEmptyRow(state.sum[v] + state.partial[v]);
    Vec power;
    // A row without a key takes the top, even a lower one, unless it is -inf.
    auto risen = [&](const Vec &before) {
      Vec top = select(isEmpty, tops[v], greaterOf(tops[v], before));
      return select(top > -k.kInfinity, top, zero);
    };
    if (pureScale) {
      Vec up = risen(zero);
      moved.maximum[v] = state.maximum[v] - up;
      for (int64_t r = 0; r < spec.keyTile; ++r)
        scores[r * vectors + v] = scores[r * vectors + v] - up;
      power = zero - up;
    } else {
      moved.maximum[v] = risen(state.maximum[v]);
      power = (state.maximum[v] - moved.maximum[v]) * kLog2E;
    }
    // Nothing is accumulated in an empty row, and its power may be anything. A
    // row that stays is multiplied by 1 itself, not by exp2(0) = 1 + 2^-23: each
    // of the other rows may bring a rescaling, and the roundings would add up.
    Mask stays = isEmpty | (power == zero);
    Vec factor = select(stays, k.splat(1), k.exp2(power));
    moved.sum[v] = state.sum[v] * factor;
    moved.partial[v] = state.partial[v] * factor;
    if (sweep != Sweep::Online)
      continue;
    scaleRows(scratch.results, k.index(valueWidth), v, factor, false);
    scaleRows(scratch.weights, isNarrow ? row / 2 : row, v, factor, isNarrow);
  }
  return moved;
}

/// Second sweep: final weights, through the weight region.
void BlockEmitter::storeWeights(const Index &row, const Index &first, bool isEdge, Vecs scores, const State &final) {
  for (int64_t v = 0; v < vectors && spec.normalizer != Normalizer::none; ++v) {
    Mask isEmpty = isEmptyRow(final.sum[v]);
    Vec factor = 1.0 / final.sum[v], share;
    if (canMask && spec.maskedRows == MaskedRows::zero)
      factor = select(isEmpty, k.splat(0), factor);
    if (canMask && spec.maskedRows == MaskedRows::uniform) {
      share = select(isEmpty, 1.0 / countKeys(), k.splat(0));
      factor = select(isEmpty, k.splat(0), factor);
    }
    for (int64_t r = 0; r < spec.keyTile; ++r) {
      Vec &score = scores[r * vectors + v];
      if (spec.normalizer == Normalizer::softmax)
        score = k.exp2(pureScale ? score : (score - final.maximum[v]) * kLog2E);
      score = share.value() ? fma(score, factor, share) : score * factor;
      score = roundToSoftmaxType(score);
    }
  }
  keepScores(ExtraSource::weights, first, isEdge, scores);
  if (spec.weight)
    applyRegion(*spec.weight, scores, first, isEdge);
  keepScores(ExtraSource::final_weights, first, isEdge, scores);
  for (int64_t v = 0; v < vectors; ++v)
    keepWeights(row, v, columnOf(scores, v));
}

/// Stores the last of `weights`, those of the tile of keys at `row` so far.
void BlockEmitter::keepWeight(const Index &row, int64_t vector, ArrayRef<Vec> weights) {
  int64_t n = weights.size() - 1;
  if (!isNarrow)
    scratch.weights.setVector(weights[n], weightAt(row, n, vector));
  else if (n % 2) // two keys side by side
    scratch.weights.setVector(k.pack(weights[n - 1], weights[n]), weightAt(row, n - 1, vector));
}

/// Stores those of a tile of keys.
void BlockEmitter::keepWeights(const Index &row, int64_t vector, ArrayRef<Vec> weights) {
  for (size_t n = 1; n <= weights.size(); ++n)
    keepWeight(row, vector, weights.take_front(n));
}

} // namespace attn
