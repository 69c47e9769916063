#include "passes/kernels/shared/Search.h"

#include "passes/kernels/shared/KernelFunction.h"
#include "passes/kernels/shared/SearchRow.h"

using namespace mlir;
using namespace attn;

static constexpr int64_t kDynamic = ShapedType::kDynamic;

//===----------------------------------------------------------------------===//
// A row of scores
//===----------------------------------------------------------------------===//

// The best of a row lie sorted in its candidates; a vector of which no element
// is better than the last one is passed over.
func::FuncOp attn::buildSearchRows(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec) {
  KernelFunction f(b, symbol);
  Code &k = f.k;
  int64_t count = spec.candidates(), last = count - 1;
  Type f32 = b.getF32Type(), i64 = b.getI64Type();
  Buffer scores = f.buffer({kDynamic, kDynamic}, f32);
  Mask noEnd = f.truth();
  Buffer values = f.buffer({kDynamic, count}, f32), tokens = f.buffer({kDynamic, count}, i64);
  Buffer logSums = f.buffer({kDynamic}, f32);
  Index size = scores.dim(1);
  k.parallel(scores.dim(0), [&](Index row) {
    Num nothing = k.f32(-Code::kInfinity);
    auto elements = [&](Index n) { return scores.padded(nothing, kRowLanes, row, n); };
    logSums.set(logSumOfVectors(k, size, elements).value, row);
    k.loop(0, count, 1, [&](Index place) {
      values.set(nothing, row, place);
      tokens.set(k.i64(0), row, place);
    });
    // Takes a token that is better than the last candidate; the last one's value then.
    auto consider = [&](Index n, Num bar) {
      Num x = scores(row, n), token = toNum(n, i64);
      Mask isTaken = (x > bar) & !(isEnd(k, spec.eos, token) & noEnd);
      auto take = [&] {
        Index place = makeRoom(
            k, last, x, [&](Index at) { return values(row, at); },
            [&](Index from, Index to) {
              values.set(values(row, from), row, to);
              tokens.set(tokens(row, from), row, to);
            });
        values.set(x, row, place);
        tokens.set(token, row, place);
        return values(row, last);
      };
      return k.choose(isTaken, take, [&] { return bar; });
    };
    k.loop(0, size, kRowLanes, nothing, [&](Index n, Num bar) {
      auto each = [&] { return k.loop(n, minimum(n + kRowLanes, size), 1, bar, consider); };
      return k.choose(any(elements(n) > bar), each, [&] { return bar; });
    });
  });
  return f.function;
}

func::FuncOp attn::buildSearchSample(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec) {
  KernelFunction f(b, symbol);
  Code &k = f.k;
  Buffer logSums;
  SampledRow row = sampledRow(f, logSums);
  k.parallel(row.scores.dim(0), [&](Index n) {
    row.row = n;
    Num nothing = k.f32(-Code::kInfinity);
    LogSum sum = logSumOfVectors(k, row.size, [&](Index at) { return row.scores.padded(nothing, kRowLanes, n, at); });
    logSums.set(sum.value, n);
    Team alone(k);
    drawToken(alone, spec, row, sum.greatest);
  });
  return f.function;
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

func::FuncOp attn::buildSearchLength(OpBuilder &b, StringRef symbol, int64_t width, int64_t best) {
  KernelFunction f(b, symbol);
  Code &k = f.k;
  Type i64 = b.getI64Type();
  Buffer info = f.buffer({kDynamic, width, 3}, i64), longest = f.buffer({1}, i64);
  Num most = k.loop(0, info.dim(0), 1, k.i64(0), [&](Index item, Num most) {
    return k.loop(0, best, 1, most, [&](Index n, Num most) { return maximum(most, info(item, n, 0)); });
  });
  longest.set(most, 0);
  return f.function;
}

func::FuncOp attn::buildSearchTrace(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec, int64_t best) {
  KernelFunction f(b, symbol);
  Code &k = f.k;
  Type i64 = b.getI64Type();
  Buffer history = f.buffer({kDynamic, kDynamic}, i64), parents = f.buffer({kDynamic, kDynamic}, i64);
  Buffer info = f.buffer({kDynamic, spec.width, 3}, i64);
  Buffer tokens = f.buffer({kDynamic, best, kDynamic}, i64), rows = f.buffer({kDynamic, best, kDynamic}, i64);
  Buffer lengths = f.buffer({kDynamic, best}, i64);
  Index size = tokens.dim(2);
  auto trace = [&](Index item, Index n) {
    k.loop(0, size, 1, [&](Index place) {
      tokens.set(k.i64(spec.padding.value_or(spec.idle())), item, n, place);
      rows.set(k.i64(-1), item, n, place);
    });
    Num length = info(item, n, 0), row = info(item, n, 1), token = info(item, n, 2);
    lengths.set(length, item, n);
    Index steps = toIndex(length);
    // The row after step i - 1 is the one that step i was taken from.
    k.loop(0, steps, 1, row, [&](Index back, Num row) {
      Index place = steps - back - 1, before = place - 1;
      rows.set(row, item, n, place);
      k.when(back == 0, [&] { tokens.set(token, item, n, place); });
      auto follow = [&] {
        Index at = toIndex(row);
        tokens.set(history(before, at), item, n, before);
        return parents(before, at);
      };
      return k.choose(before >= 0, follow, [&] { return row; });
    });
  };
  k.loop(0, info.dim(0), 1, [&](Index item) { k.loop(0, best, 1, [&](Index n) { trace(item, n); }); });
  return f.function;
}
