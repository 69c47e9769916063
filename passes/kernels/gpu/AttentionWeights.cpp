#include "passes/kernels/gpu/AttentionEmitter.h"

// What scores become: weights of the sweep at hand, or final ones in a sweep of their own.

using namespace mlir;

namespace attn {

using Values = LaneBuilder::Values;

constexpr float kLog2e = 1.44269504f;

std::optional<float> AttentionEmitter::powerScaleOf(const AttentionSpec &spec) {
  std::optional<double> scale = spec.getPureScale();
  if (!scale || spec.hasWeightSweep() || spec.letsHiddenTakePart())
    return std::nullopt;
  float factor = static_cast<float>(*scale * kLog2e);
  return factor > 0 && factor <= 1 ? std::optional<float>(factor) : std::nullopt;
}

Value AttentionEmitter::exponential(Value x) { return k.exp2Fast(powerScale ? x : k.mulf(x, k.scalar(kLog2e))); }

Value AttentionEmitter::weightOf(Value score, Value shift) {
  if (!powerScale)
    return exponential(k.subf(score, shift));
  return exponential(k.fma(score, k.scalar(*powerScale), arith::NegFOp::create(k.b, k.loc, shift)));
}

Value AttentionEmitter::roundToSoftmaxType(Value x) {
  return spec.softmaxType ? k.toF32(k.fromF32(x, spec.softmaxType)) : x;
}

Values AttentionEmitter::weigh(const Values &s, Value key, ValueRange state, Values &next) {
  Values factors, weights = weighTile(s, key, state, next, factors);
  if (pass == Pass::online)
    scaleColumns(next, factors);
  return weights;
}

Values AttentionEmitter::weighTile(const Values &s, Value key, ValueRange state, Values &next, Values &factors) {
  next.assign(state.begin(), state.end());
  if (pass == Pass::weights)
    return finalWeights(s, key);
  Values weights;
  for (int64_t r = 0; r < rows; ++r) {
    ArrayRef<Value> scores = ArrayRef(s).slice(r * columns, columns);
    auto addUp = [&](Value sum, ArrayRef<Value> terms) {
      for (Value term : terms)
        sum = k.addf(sum, term);
      return sum;
    };
    if (spec.normalizer != Normalizer::softmax) {
      weights.append(scores.begin(), scores.end());
      next[rows + r] = addUp(state[rows + r], scores);
      continue;
    }
    auto max = [&](Value x, Value y) { return k.greater(x, y); };
    Value highest = k.acrossThreads(k.tree(scores, max), groupWidth, max);
    Value top = k.greater(state[r], powerScale ? k.mulf(highest, k.scalar(*powerScale)) : highest);
    // Nothing seen so far: any finite number gives weights of 0.
    Value base = shiftOf(top);
    Value factor = exponential(k.subf(state[r], base));
    for (Value score : scores)
      weights.push_back(weightOf(score, base));
    next[r] = top;
    next[rows + r] = addUp(k.mulf(state[rows + r], factor), ArrayRef(weights).take_back(columns));
    factors.push_back(factor);
  }
  return weights;
}

void AttentionEmitter::scaleColumns(Values &state, ArrayRef<Value> factors) {
  for (auto [r, factor] : llvm::enumerate(factors))
    for (int64_t e = 0; e < width; ++e) {
      Value &column = state[2 * rows + r * width + e];
      column = k.mulf(column, factor);
    }
}

/// A second sweep, by the maxima and sums of the first, which stay in the state.
Values AttentionEmitter::sweepWeights(Value exchange, Value begin, Value end, const KeyMask::Bounds &bounds,
                                      ValueRange state) {
  k.waitForCopies(0);
  pass = Pass::weights;
  Values empty;
  Value zero = k.scalar(0);
  for (int64_t r = 0; r < rows; ++r) {
    Value sum = sumOfRow(state[rows + r]), isEmpty = isEmptyRow(sum), factor = k.divf(k.scalar(1), sum), share;
    bool hasShare = spec.maskedRows == MaskedRows::uniform && canHide();
    if (hasShare)
      share = k.select(isEmpty, k.divf(k.scalar(1), numKeysAsFloat()), zero);
    if (hasShare || spec.maskedRows == MaskedRows::zero)
      factor = k.select(isEmpty, zero, factor);
    shifts.push_back(shiftOf(state[r])), factors.push_back(factor), shares.push_back(share);
    empty.push_back(sweepsAgain() ? takesPart[r] : isEmpty);
  }
  // Where a row sees no key, what is hidden may have a weight, too.
  bool mayTakeHidden = canHide() && spec.normalizer != Normalizer::none && spec.maskedRows != MaskedRows::zero;
  if (storesTiles(spec) || mayTakeHidden) {
    sweepsAll = storesTiles(spec) ? boolean(true) : anyInBlock(empty, exchange);
    begin = k.select(sweepsAll, k.index(0), begin);
    end = k.select(sweepsAll, numKeys, end);
  }
  Values result(state.take_front(2 * rows)), swept = sweepTiles(begin, end, bounds);
  result.append(swept.begin() + 2 * rows, swept.end());
  return result;
}

Values AttentionEmitter::finalWeights(const Values &scores, Value key) {
  Values weights, made;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      Value weight = scores[weights.size()];
      if (spec.normalizer == Normalizer::softmax)
        weight = weightOf(weight, shifts[r]);
      if (spec.normalizer != Normalizer::none)
        weight = shares[r] ? k.fma(weight, factors[r], shares[r]) : k.mulf(weight, factors[r]);
      weights.push_back(roundToSoftmaxType(weight));
    }
  keep(ExtraSource::weights, weights, key);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      size_t n = made.size();
      Value weight = weights[n], place = keyOf(key, c);
      if (spec.weight) {
        weight = regionAt(*spec.weight, {}, weight, query(r), k.min(place, k.sub(numKeys, k.index(1))));
        if (keepsSeen()) {
          Value isSome = k.compare(arith::CmpFPredicate::UNE, weights[n], k.scalar(0));
          weight = k.select(k.either(seen[n], isSome), weight, k.scalar(0));
        }
      }
      made.push_back(k.select(k.less(place, numKeys), weight, k.scalar(0)));
    }
  keep(ExtraSource::final_weights, made, key);
  return made;
}

void AttentionEmitter::keep(ExtraSource stage, const Values &tile, Value key) {
  if (pass == Pass::reduce)
    return;
  for (const AttentionSpec::Extra &extra : spec.extras) {
    if (extra.source != stage)
      continue;
    const HeadView &view = views[extra.operand];
    for (int64_t n = 0; n < rows * columns; ++n) {
      Value i = k.add(first, row(n / columns)), j = keyOf(key, n % columns);
      Value offset = view.along(k, view.along(k, view.base, Dim::I, i), Dim::J, j);
      k.branch(k.both(k.less(i, numQueries), k.less(j, numKeys)), [&] { storeF32(tile[n], view, offset); });
    }
  }
}

bool storesTiles(const AttentionSpec &spec) {
  return llvm::any_of(spec.extras, [](const AttentionSpec::Extra &extra) { return extra.source != ExtraSource::lse; });
}

} // namespace attn
