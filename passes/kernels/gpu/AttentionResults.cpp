#include "passes/kernels/gpu/AttentionEmitter.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include <limits>

// What a block gives: results of its queries, or of some keys for a second launch.

using namespace mlir;

namespace attn {

using Values = LaneBuilder::Values;

static constexpr float kInfinity = std::numeric_limits<float>::infinity();

Value AttentionEmitter::sumOfRow(Value part) {
  return k.acrossThreads(part, groupWidth, [&](Value x, Value y) { return k.addf(x, y); });
}

Value AttentionEmitter::isEmptyRow(Value sum) { return k.compare(arith::CmpFPredicate::OEQ, sum, k.scalar(0)); }

Value AttentionEmitter::normalizer(Value sum) {
  if (spec.normalizer == Normalizer::none || pass == Pass::weights)
    return k.scalar(1);
  Value factor = k.divf(k.scalar(1), sum);
  if (spec.maskedRows == MaskedRows::zero) // else 0 times infinity is the NaN that is asked for
    factor = k.select(isEmptyRow(sum), k.scalar(0), factor);
  return orWithoutKeys(factor);
}

/// With no keys at all the product of weights and values is an empty sum.
Value AttentionEmitter::orWithoutKeys(Value x) { return k.select(k.less(k.index(0), numKeys), x, k.scalar(0)); }

Value AttentionEmitter::numKeysAsFloat() {
  Value count = arith::IndexCastOp::create(k.b, k.loc, k.b.getI64Type(), numKeys);
  return arith::SIToFPOp::create(k.b, k.loc, k.b.getF32Type(), count);
}

Value AttentionEmitter::scaleOfRow(const HeadView &view, int64_t dim, Value j) {
  Value at = k.add(view.along(k, view.base, Dim::J, j), *spec.getStaticSize(dim));
  return k.bitcast(k.loadWords(view.flat, at, 1)[0], k.b.getF32Type());
}

/// What a row without a visible key gets of policy `uniform`.
Value AttentionEmitter::meanOfValues(const HeadView &value, Value column) {
  Value corner = value.along(k, value.base, Dim::E, column);
  Value sum = k.loop(k.index(0), numKeys, 1, {k.scalar(0)}, [&](Value j, ValueRange carried) -> Values {
    Value x = k.loadWide(value.flat, value.along(k, corner, Dim::J, j), 1)[0];
    if (spec.isInBytes(spec.value))
      x = k.mulf(x, scaleOfRow(value, Dim::E, j));
    return {k.addf(carried[0], x)};
  })[0];
  return orWithoutKeys(k.divf(sum, numKeysAsFloat()));
}

/// The log-sum-exp of row `i`, where it is asked for; `shift` is finite.
void AttentionEmitter::storeLogSum(ArrayRef<HeadView> views, Value i, Value shift, Value sum) {
  for (const AttentionSpec::Extra &extra : spec.extras) {
    if (extra.source != ExtraSource::lse)
      continue;
    const HeadView &view = views[extra.operand];
    constexpr float kLn2 = 0.693147181f;
    Value natural = powerScale ? k.mulf(shift, k.scalar(kLn2)) : shift;
    Value result = k.addf(natural, math::LogOp::create(k.b, k.loc, sum));
    storeF32(result, view, view.along(k, view.base, Dim::I, i));
  }
}

Value AttentionEmitter::shiftOf(Value maximum) {
  Value isNone = k.compare(arith::CmpFPredicate::OEQ, maximum, k.scalar(-kInfinity));
  return k.select(isNone, k.scalar(0), maximum);
}

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
Values AttentionEmitter::roundedRow(ArrayRef<Value> columns, Value factor) {
  Precision precision = precisionOf(spec.types[spec.result].getElementType());
  Values words;
  for (size_t e = 0; e < columns.size(); e += kEight) {
    Values scaled, four;
    for (Value x : columns.slice(e, kEight))
      scaled.push_back(k.mulf(x, factor));
    for (size_t half : {0, 4})
      for (Value word : k.packed(ArrayRef(scaled).slice(half, 4), precision))
        four.push_back(k.bitcast(word, k.b.getI32Type()));
    llvm::append_range(words, k.transposeFour(four));
  }
  return words;
}

void AttentionEmitter::store(ValueRange state) {
  const HeadView &view = views[spec.result];
  Value member = k.rem(k.thread, k.index(groupWidth));
  // As many columns a store as the memory has in one piece.
  int64_t together = neighbours;
  while (together > 1 && !hasPieces(spec, spec.result, Dim::E, together))
    together /= 2;
  for (int64_t r = 0; r < rows; ++r) {
    Value sum = sumOfRow(state[rows + r]), i = k.add(first, row(r)), factor = normalizer(sum);
    Values eight;
    if (storesEight()) // by all threads of the warp
      eight = roundedRow(Values(state.slice(2 * rows + r * width, width)), factor);
    k.branch(k.less(i, numQueries), [&] {
      Value offset = view.along(k, view.base, Dim::I, i);
      auto put = [&](Value x, Value column) { storeF32(x, view, view.along(k, offset, Dim::E, column)); };
      auto putEight = [&] {
        for (size_t n = 0; n < eight.size(); n += 4) {
          Value column = k.mul(k.add(member, int64_t(n)), kEight);
          auto putInside = [&] {
            k.storeWords(ArrayRef(eight).slice(n, 4), view.flat, view.along(k, offset, Dim::E, column));
          };
          if (width * groupWidth == valueWidth)
            putInside();
          else
            k.branch(k.less(column, k.index(valueWidth)), putInside);
        }
        return Values();
      };
      auto usual = [&] {
        if (!eight.empty())
          return putEight();
        for (int64_t e = 0; e < width; e += together) {
          Value column = columnPlace(e);
          auto putFew = [&] {
            Values few;
            for (int64_t n = e; n < e + together; ++n)
              few.push_back(k.mulf(state[2 * rows + r * width + n], factor));
            k.storeFew(few, view.flat, view.along(k, offset, Dim::E, column));
          };
          if (width * groupWidth == valueWidth)
            putFew();
          else
            k.branch(k.less(column, k.index(valueWidth)), putFew);
        }
        return Values();
      };
      auto uniform = [&] {
        k.loop(member, k.index(valueWidth), groupWidth,
               [&](Value column) { put(meanOfValues(views[spec.value], column), column); });
        return Values();
      };
      if (spec.maskedRows == MaskedRows::uniform && canHide() && pass == Pass::online)
        k.branch(isEmptyRow(sum), TypeRange(), uniform, usual);
      else
        usual();
      if (spec.wants(ExtraSource::lse))
        k.branch(k.less(member, k.index(1)), [&] { storeLogSum(views, i, shiftOf(state[r]), sum); });
    });
  }
}

//===----------------------------------------------------------------------===//
// Keys in parts
//===----------------------------------------------------------------------===//

// Of each query and part: the columns, not yet divided, then maximum and sum.

void AttentionEmitter::storePart(ValueRange state) {
  for (int64_t r = 0; r < rows; ++r) {
    Value sum = sumOfRow(state[rows + r]), i = k.add(first, row(r));
    k.branch(k.less(i, numQueries), [&] {
      Value number = k.add(k.mul(k.add(k.mul(batch, heads), head), numQueries), i);
      Value base = k.mul(k.add(k.mul(number, splits), split), valueWidth + 2);
      auto put = [&](Value x, Value place) { memref::StoreOp::create(k.b, k.loc, x, parts, k.add(base, place)); };
      for (int64_t e = 0; e < width; ++e) {
        Value column = columnPlace(e);
        k.branch(k.less(column, k.index(valueWidth)), [&] { put(state[2 * rows + r * width + e], column); });
      }
      // The same in all threads of the group.
      put(state[r], k.index(valueWidth));
      put(sum, k.index(valueWidth + 1));
    });
  }
}

/// A second launch, a warp a query.
void AttentionEmitter::mergeParts(ValueRange buffers) {
  constexpr int64_t kWarps = kThreads / 32;
  Value rowsInAll = k.mul(k.mul(getDimSize(k, spec, buffers, Dim::B), heads), numQueries);
  k.launch(k.ceilDiv(rowsInAll, kWarps), kThreads, {});
  Value number = k.add(k.mul(k.block, kWarps), k.div(k.thread, k.index(32)));
  k.branch(k.less(number, rowsInAll), [&] {
    Value outer = k.div(number, numQueries), i = k.rem(number, numQueries);
    SmallVector<HeadView> views;
    for (auto [buffer, map] : llvm::zip_equal(buffers, spec.maps))
      views.push_back(viewHead(k, buffer, map, k.div(outer, heads), k.rem(outer, heads)));
    const HeadView &view = views[spec.result];
    Value base = k.mul(number, splits * (valueWidth + 2)), lane = k.rem(k.thread, k.index(32));
    auto read = [&](Value part, Value place) {
      return k.load(parts, k.add(k.add(base, k.mul(part, valueWidth + 2)), place));
    };
    Value top =
        k.loop(k.index(0), k.index(splits), 1, {k.scalar(-kInfinity)}, [&](Value part, ValueRange carried) -> Values {
          return {k.greater(carried[0], read(part, k.index(valueWidth)))};
        })[0];
    Value shift = shiftOf(top);
    // Columns and the sum, which is the same in all of them.
    auto merge = [&](Value column) {
      Values zeros(2, k.scalar(0));
      return k.loop(k.index(0), k.index(splits), 1, zeros, [&](Value part, ValueRange carried) -> Values {
        Value factor = exponential(k.subf(read(part, k.index(valueWidth)), shift));
        return {k.fma(factor, read(part, k.index(valueWidth + 1)), carried[0]),
                k.fma(factor, read(part, column), carried[1])};
      });
    };
    k.loop(lane, k.index(valueWidth), 32, [&](Value column) {
      Values both = merge(column);
      Value result = k.mulf(both[1], normalizer(both[0]));
      if (spec.maskedRows == MaskedRows::uniform && canHide())
        result = k.branch(
            isEmptyRow(both[0]), result.getType(), [&] { return Values{meanOfValues(views[spec.value], column)}; },
            [&] { return Values{result}; })[0];
      storeF32(result, view, view.along(k, view.along(k, view.base, Dim::I, i), Dim::E, column));
    });
    if (spec.wants(ExtraSource::lse))
      k.branch(k.less(lane, k.index(1)), [&] { storeLogSum(views, i, shift, merge(k.index(0))[0]); });
  });
}

} // namespace attn
