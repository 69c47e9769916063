#include "passes/kernels/gpu/AttentionEmitter.h"

// What scores become: weights of the sweep at hand, or final ones in a sweep of their own.

using namespace mlir;

namespace attn {

constexpr float kLog2e = 1.44269504f;

std::optional<float> AttentionEmitter::powerScaleOf(const AttentionSpec &spec) {
  std::optional<double> scale = spec.getPureScale();
  if (!scale || spec.hasWeightSweep() || spec.letsHiddenTakePart())
    return std::nullopt;
  float factor = static_cast<float>(*scale * kLog2e);
  return factor > 0 && factor <= 1 ? std::optional<float>(factor) : std::nullopt;
}

Num AttentionEmitter::exponential(const Num &x) { return k.exp2Fast(powerScale ? x : x * kLog2e); }

Num AttentionEmitter::weightOf(const Num &score, const Num &shift) {
  return exponential(powerScale ? fma(score, k.f32(*powerScale), -shift) : score - shift);
}

Num AttentionEmitter::roundToSoftmaxType(const Num &x) {
  return spec.softmaxType ? convert(convert(x, spec.softmaxType), k.b.getF32Type()) : x;
}

Nums AttentionEmitter::weigh(const Nums &scores, const Index &key, const Nums &state, Nums &next) {
  Nums factors, weights = weighTile(scores, key, state, next, factors);
  if (pass == Pass::online)
    scaleColumns(next, factors);
  return weights;
}

Nums AttentionEmitter::weighTile(const Nums &tile, const Index &key, const Nums &state, Nums &next, Nums &factors) {
  next = state;
  if (pass == Pass::weights)
    return finalWeights(tile, key);
  Nums weights;
  for (int64_t r = 0; r < rows; ++r) {
    ArrayRef<Num> scores = ArrayRef(tile).slice(r * columns, columns);
    auto addUp = [](Num sum, ArrayRef<Num> terms) {
      for (const Num &term : terms)
        sum = sum + term;
      return sum;
    };
    if (spec.normalizer != Normalizer::softmax) {
      llvm::append_range(weights, scores);
      next[rows + r] = addUp(state[rows + r], scores);
      continue;
    }
    auto greater = [](Num x, Num y) { return maximum(x, y); };
    Num highest = k.acrossThreads(tree(scores, greater), groupWidth, greater);
    Num top = maximum(state[r], powerScale ? highest * *powerScale : highest);
    // Nothing seen so far: any finite number gives weights of 0.
    Num base = shiftOf(top), factor = exponential(state[r] - base);
    for (const Num &score : scores)
      weights.push_back(weightOf(score, base));
    next[r] = top;
    next[rows + r] = addUp(state[rows + r] * factor, ArrayRef(weights).take_back(columns));
    factors.push_back(factor);
  }
  return weights;
}

void AttentionEmitter::scaleColumns(Nums &state, ArrayRef<Num> factors) {
  for (auto [r, factor] : llvm::enumerate(factors))
    for (Num &column : MutableArrayRef(state).slice(2 * rows + r * width, width))
      column = column * factor;
}

/// A second sweep, by the maxima and sums of the first, which stay in the state.
Nums AttentionEmitter::sweepWeights(Index begin, Index end, const KeyMask::Bounds &bounds, const Nums &state) {
  k.waitForCopies(0);
  pass = Pass::weights;
  shifts.clear(), factors.clear(), shares.clear();
  Masks empty;
  Num zero = k.f32(0);
  for (int64_t r = 0; r < rows; ++r) {
    Num sum = sumOfRow(state[rows + r]);
    Mask isEmpty = isEmptyRow(sum);
    Num factor = 1.0 / sum;
    std::optional<Num> share;
    if (spec.maskedRows == MaskedRows::uniform && canHide())
      share = select(isEmpty, 1.0 / numKeysAsFloat(), zero);
    if (share || spec.maskedRows == MaskedRows::zero)
      factor = select(isEmpty, zero, factor);
    shifts.push_back(shiftOf(state[r])), factors.push_back(factor), shares.push_back(share);
    empty.push_back(sweepsAgain() ? takesPart[r] : isEmpty);
  }
  // Where a row sees no key, what is hidden may have a weight, too.
  bool mayTakeHidden = canHide() && spec.normalizer != Normalizer::none && spec.maskedRows != MaskedRows::zero;
  if (storesTiles(spec) || mayTakeHidden) {
    sweepsAll = storesTiles(spec) ? k.truth(true) : anyInBlock(empty);
    begin = select(*sweepsAll, k.index(0), begin);
    end = select(*sweepsAll, numKeys, end);
  }
  Nums result(ArrayRef(state).take_front(2 * rows)), swept = sweepTiles(begin, end, bounds);
  llvm::append_range(result, ArrayRef(swept).drop_front(2 * rows));
  return result;
}

Nums AttentionEmitter::finalWeights(const Nums &scores, const Index &key) {
  Nums weights, made;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      Num weight = scores[weights.size()];
      if (spec.normalizer == Normalizer::softmax)
        weight = weightOf(weight, shifts[r]);
      if (spec.normalizer != Normalizer::none)
        weight = shares[r] ? fma(weight, factors[r], *shares[r]) : weight * factors[r];
      weights.push_back(roundToSoftmaxType(weight));
    }
  keep(ExtraSource::weights, weights, key);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      size_t n = made.size();
      Num weight = weights[n], zero = k.f32(0);
      Index place = keyOf(key, c);
      if (spec.weight) {
        weight = regionAt(*spec.weight, weight, query(r), orLast(place));
        if (keepsSeen())
          weight = select(seen[n] | (weights[n] != 0.0), weight, zero);
      }
      made.push_back(select(place < numKeys, weight, zero));
    }
  keep(ExtraSource::final_weights, made, key);
  return made;
}

void AttentionEmitter::keep(ExtraSource stage, const Nums &tile, const Index &key) {
  if (pass == Pass::reduce)
    return;
  for (const AttentionSpec::Extra &extra : spec.extras) {
    if (extra.source != stage)
      continue;
    const OperandView &view = views[extra.operand];
    for (int64_t n = 0; n < rows * columns; ++n) {
      Index i = first + row(n / columns), j = keyOf(key, n % columns), at = view.at({{Dim::I, i}, {Dim::J, j}});
      k.when((i < numQueries) & (j < numKeys), [&] { storeF32(tile[n], view, at); });
    }
  }
}

bool storesTiles(const AttentionSpec &spec) {
  return llvm::any_of(spec.extras, [](const AttentionSpec::Extra &extra) { return extra.source != ExtraSource::lse; });
}

} // namespace attn
