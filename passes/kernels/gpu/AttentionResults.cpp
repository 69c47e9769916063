#include "passes/kernels/gpu/AttentionEmitter.h"

#include <limits>

// What a block gives: results of its queries, or of some keys for a second launch.

using namespace mlir;

namespace attn {

static constexpr float kInfinity = std::numeric_limits<float>::infinity();

Num AttentionEmitter::sumOfRow(const Num &part) {
  return k.acrossThreads(part, groupWidth, [](Num x, Num y) { return x + y; });
}

Num AttentionEmitter::normalizer(const Num &sum) {
  if (spec.normalizer == Normalizer::none || pass == Pass::weights)
    return k.f32(1);
  Num factor = 1.0 / sum;
  if (spec.maskedRows == MaskedRows::zero) // else 0 times infinity is the NaN that is asked for
    factor = select(isEmptyRow(sum), k.f32(0), factor);
  return orWithoutKeys(factor);
}

/// With no keys at all the product of weights and values is an empty sum.
Num AttentionEmitter::orWithoutKeys(const Num &x) { return select(0 < numKeys, x, k.f32(0)); }

Num AttentionEmitter::numKeysAsFloat() { return convert(toNum(numKeys, k.b.getI64Type()), k.b.getF32Type()); }

Num AttentionEmitter::scaleOfRow(const OperandView &view, int64_t dim, const Index &j) {
  Index at = view.at({{Dim::J, j}}) + *spec.getStaticSize(dim);
  return k.asFloat(k.loadWords(view.flat, at, 1)[0]);
}

/// What a row without a visible key gets of policy `uniform`.
Num AttentionEmitter::meanOfValues(const OperandView &value, const Index &column) {
  Index corner = value.at({{Dim::E, column}});
  Num sum = k.loop(0, numKeys, 1, k.f32(0), [&](Index j, Num sum) {
    Num x = k.loadWide(value.flat, value.along(corner, Dim::J, j), 1)[0];
    return sum + (spec.isInBytes(spec.value) ? x * scaleOfRow(value, Dim::E, j) : x);
  });
  return orWithoutKeys(sum / numKeysAsFloat());
}

/// The log-sum-exp of row `i`, where it is asked for; `shift` is finite.
void AttentionEmitter::storeLogSum(ArrayRef<OperandView> views, const Index &i, const Num &shift, const Num &sum) {
  for (const AttentionSpec::Extra &extra : spec.extras) {
    if (extra.source != ExtraSource::lse)
      continue;
    const OperandView &view = views[extra.operand];
    constexpr float kLn2 = 0.693147181f;
    Num natural = powerScale ? shift * kLn2 : shift;
    storeF32(natural + log(sum), view, view.at({{Dim::I, i}}));
  }
}

Num AttentionEmitter::shiftOf(const Num &maximum) { return select(maximum == -kInfinity, k.f32(0), maximum); }

/// Columns of 16 bits that a store of 16 bytes takes.
static constexpr int64_t kEight = 8;

/// Whether results of 16 bits, of which four threads have two columns each in turns, may be stored by 16 bytes.
bool AttentionEmitter::storesEight() {
  return groupWidth == 4 && neighbours == 2 && width % kEight == 0 && hasPieces(spec, spec.result, Dim::E, kEight) &&
         spec.types[spec.result].getElementTypeBitWidth() == 16;
}

/// The columns of a row times `factor`, rounded, each four words those of eight columns side by side: a warp's store
/// then writes 64 bytes of each of eight rows in place of 16, and a row takes a quarter as many stores, each of which
/// keeps the warps from exchanging numbers.
Nums AttentionEmitter::roundedRow(ArrayRef<Num> columns, const Num &factor) {
  Precision precision = precisionOf(spec.types[spec.result].getElementType());
  Nums words;
  for (size_t e = 0; e < columns.size(); e += kEight) {
    Nums scaled, four;
    for (const Num &x : columns.slice(e, kEight))
      scaled.push_back(x * factor);
    for (size_t half : {0, 4})
      for (const Num &word : k.packed(ArrayRef(scaled).slice(half, 4), precision))
        four.push_back(k.asWord(word));
    llvm::append_range(words, k.transposeFour(four));
  }
  return words;
}

/// `body` where the result has `column`, if a thread may have others.
void AttentionEmitter::whenColumn(const Index &column, llvm::function_ref<void()> body) {
  if (width * groupWidth == valueWidth)
    body();
  else
    k.when(column < valueWidth, body);
}

void AttentionEmitter::storeRounded(ArrayRef<Num> words, const Index &member, const Index &offset) {
  const OperandView &view = views[spec.result];
  for (size_t n = 0; n < words.size(); n += 4) {
    Index column = (member + n) * kEight;
    whenColumn(column, [&] { k.storeWords(words.slice(n, 4), view.flat, view.along(offset, Dim::E, column)); });
  }
}

void AttentionEmitter::storeColumns(ArrayRef<Num> columns, const Num &factor, const Index &offset) {
  const OperandView &view = views[spec.result];
  // As many columns a store as the memory has in one piece.
  int64_t together = neighbours;
  while (together > 1 && !hasPieces(spec, spec.result, Dim::E, together))
    together /= 2;
  for (int64_t e = 0; e < width; e += together) {
    Index column = columnPlace(e);
    whenColumn(column, [&] {
      Nums few;
      for (const Num &x : columns.slice(e, together))
        few.push_back(x * factor);
      k.storeFew(few, view.flat, view.along(offset, Dim::E, column));
    });
  }
}

void AttentionEmitter::store(const Nums &state) {
  const OperandView &view = views[spec.result];
  Index member = k.thread % groupWidth;
  for (int64_t r = 0; r < rows; ++r) {
    ArrayRef<Num> columns = ArrayRef(state).slice(2 * rows + r * width, width);
    Num sum = sumOfRow(state[rows + r]);
    Index i = first + row(r);
    Num factor = normalizer(sum);
    Nums rounded = storesEight() ? roundedRow(columns, factor) : Nums(); // by all threads of the warp
    k.when(i < numQueries, [&] {
      Index offset = view.at({{Dim::I, i}});
      auto usual = [&] {
        rounded.empty() ? storeColumns(columns, factor, offset) : storeRounded(rounded, member, offset);
      };
      auto uniform = [&] {
        k.loop(member, valueWidth, groupWidth, [&](Index column) {
          Num mean = meanOfValues(views[spec.value], column);
          storeF32(mean, view, view.along(offset, Dim::E, column));
        });
      };
      if (spec.maskedRows == MaskedRows::uniform && canHide() && pass == Pass::online)
        k.when(isEmptyRow(sum), uniform, usual);
      else
        usual();
      if (spec.wants(ExtraSource::lse))
        k.when(member < 1, [&] { storeLogSum(views, i, shiftOf(state[r]), sum); });
    });
  }
}

//===----------------------------------------------------------------------===//
// Keys in parts
//===----------------------------------------------------------------------===//

// Of each query and part: the columns, not yet divided, then maximum and sum.

void AttentionEmitter::storePart(const Nums &state) {
  for (int64_t r = 0; r < rows; ++r) {
    Num sum = sumOfRow(state[rows + r]);
    Index i = first + row(r);
    k.when(i < numQueries, [&] {
      Index number = (batch * heads + head) * numQueries + i;
      Index base = (number * splits + split) * (valueWidth + 2);
      for (int64_t e = 0; e < width; ++e) {
        Index column = columnPlace(e);
        k.when(column < valueWidth, [&] { parts.set(state[2 * rows + r * width + e], base + column); });
      }
      // The same in all threads of the group.
      parts.set(state[r], base + valueWidth);
      parts.set(sum, base + (valueWidth + 1));
    });
  }
}

/// A second launch, a warp a query.
void AttentionEmitter::mergeParts(ValueRange buffers) {
  constexpr int64_t kWarp = 32, kWarps = kThreads / kWarp;
  Index rowsInAll = sizeOf(buffers, Dim::B) * heads * numQueries;
  k.launch(ceilDiv(rowsInAll, kWarps), kThreads, {});
  Index number = k.block * kWarps + k.thread / kWarp;
  k.when(number < rowsInAll, [&] {
    Index outer = number / numQueries, i = number % numQueries;
    SmallVector<OperandView> views;
    for (auto [buffer, map] : llvm::zip_equal(buffers, spec.maps)) {
      Index batch = outer / heads, head = outer % heads;
      views.push_back(viewHead(k, buffer, map, batch, head));
    }
    const OperandView &view = views[spec.result];
    Index base = number * (splits * (valueWidth + 2)), lane = k.thread % kWarp;
    auto read = [&](const Index &part, const Index &place) { return parts(base + part * (valueWidth + 2) + place); };
    auto topOf = [&](const Index &part) { return read(part, k.index(valueWidth)); };
    Num top = k.loop(0, splits, 1, k.f32(-kInfinity), [&](Index part, Num top) { return maximum(top, topOf(part)); });
    Num shift = shiftOf(top);
    // The sum, which is the same in all columns, and one of them.
    auto merge = [&](const Index &column) {
      std::tuple zeros(k.f32(0), k.f32(0));
      return k.loop(0, splits, 1, zeros, [&](Index part, Num sum, Num x) {
        Num factor = exponential(topOf(part) - shift);
        sum = fma(factor, read(part, k.index(valueWidth + 1)), sum);
        return std::tuple(sum, fma(factor, read(part, column), x));
      });
    };
    k.loop(lane, valueWidth, kWarp, [&](Index column) {
      auto [sum, x] = merge(column);
      Num result = x * normalizer(sum);
      if (spec.maskedRows == MaskedRows::uniform && canHide())
        result =
            k.choose(isEmptyRow(sum), [&] { return meanOfValues(views[spec.value], column); }, [&] { return result; });
      storeF32(result, view, view.at({{Dim::I, i}, {Dim::E, column}}));
    });
    if (spec.wants(ExtraSource::lse))
      k.when(lane < 1, [&] { storeLogSum(views, i, shift, std::get<0>(merge(k.index(0)))); });
  });
}

} // namespace attn
