// What a search does to scores before it chooses from them.
#include "passes/kernels/shared/KernelFunction.h"
#include "passes/kernels/shared/SearchRow.h"

using namespace mlir;
using namespace attn;

namespace {
constexpr int64_t kDynamic = ShapedType::kDynamic;

class Adjust {
public:
  Adjust(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec)
      : spec(spec), f(b, symbol), k(f.k), f32(b.getF32Type()), i64(b.getI64Type()) {
    scores = f.buffer({kDynamic, kDynamic}, f32);
    prompt = f.buffer({kDynamic, kDynamic}, i64);
    history = f.buffer({kDynamic, kDynamic}, i64);
    parents = f.buffer({kDynamic, kDynamic}, i64);
    hidden = f.buffer({kDynamic}, i64);
    forbidden = f.buffer({kDynamic}, i64);
    suppressed = f.buffer({kDynamic}, i64);
    atBegin = f.buffer({kDynamic}, i64);
    steps = f.index();
    isBegin = f.truth();
    penalty = f.number(f32);
    ngram = f.number(i64);
    forced = f.number(i64);
    f.buffer({kDynamic, kDynamic}, i64); // the sequence as it was
    sequence = f.buffer({kDynamic, kDynamic}, i64);
    adjusted = f.buffer({kDynamic, kDynamic}, f32);
    logSums = f.buffer({kDynamic}, f32);
    size = scores.dim(1);
  }

  func::FuncOp emit() {
    k.parallel(scores.dim(0), [&](Index number) {
      row = number;
      sum = logSumOfRow();
      logSums.set(sum, row);
      Index length = writeSequence();
      k.loop(0, size, 1, [&](Index n) { adjusted.set(scores(row, n), row, n); });
      // In the order of GenerationMixin._get_logits_processor: what is forced overrides all before it, the least
      // length, too, and is taken from what is left by the lists behind it. The least length bans where tokens are
      // chosen, but in a step that forces one.
      k.when(penalty != 1.0, [&] { k.loop(padding(), length, 1, [&](Index n) { punish(sequence(n, row)); }); });
      k.when((ngram > 0) & (toNum(length, i64) + 1 > ngram), [&] { banRepeated(length); });
      banAll(forbidden, forbidden.dim(0));
      force();
      banAll(suppressed, suppressed.dim(0));
      banAll(atBegin, select(isBegin, atBegin.dim(0), k.index(0)));
    });
    return f.function;
  }

private:
  Num logSumOfRow() {
    Team alone(k);
    if (!spec.hasVectors)
      return logSum(alone, size, [&](Index n) { return scores(row, n); }).value;
    Num nothing = k.f32(-Code::kInfinity);
    return logSumOfVectors(k, size, [&](Index n) { return scores.padded(nothing, kRowLanes, row, n); }).value;
  }

  /// All tokens of the row until now, back through its parents; how many.
  Index writeSequence() {
    Index before = prompt.dim(1), item = row / spec.width;
    k.loop(0, before, 1, [&](Index n) { sequence.set(prompt(item, n), n, row); });
    k.loop(0, steps, 1, toNum(row, i64), [&](Index back, Num at) {
      Index place = steps - back - 1, from = toIndex(at);
      sequence.set(history(place, from), before + place, row);
      return spec.isBeam ? parents(place, from) : at;
    });
    return before + steps;
  }

  /// A prompt may hold what the step does not score.
  void whereScored(const Num &token, llvm::function_ref<void(Index)> then) {
    k.when((token >= 0) & (token < toNum(size, i64)), [&] { then(toIndex(token)); });
  }
  void ban(const Num &token) {
    whereScored(token, [&](Index n) { adjusted.set(k.f32(-Code::kInfinity), row, n); });
  }

  void banAll(const Buffer &tokens, Index count) {
    k.loop(0, count, 1, [&](Index n) { ban(tokens(n)); });
  }

  /// Tokens at the front of the row's prompt that no step sees.
  Index padding() {
    Index item = row / spec.width;
    return k.choose(item < hidden.dim(0), [&] { return toIndex(hidden(item)); }, [&] { return k.index(0); });
  }

  /// A beam's scores are logarithms of probabilities, a row's own are as they are.
  void punish(const Num &token) {
    Num zero = spec.isBeam ? sum : k.f32(0);
    whereScored(token, [&](Index n) {
      Num x = scores(row, n) - zero;
      adjusted.set(select(x < 0.0, x * penalty, x / penalty) + zero, row, n);
    });
  }

  /// The tokens that would end an n-gram that was there before.
  void banRepeated(Index length) {
    Index more = toIndex(ngram) - 1, last = length - more;
    k.loop(0, last, 1, [&](Index begin) {
      Num equal = k.loop(0, more, 1, k.i64(1), [&](Index n, Num equal) {
        return select(sequence(begin + n, row) == sequence(last + n, row), equal, k.i64(0));
      });
      k.when(equal != 0, [&] { ban(sequence(begin + more, row)); });
    });
  }

  /// One token alone, of probability 1.
  void force() {
    whereScored(forced, [&](Index n) {
      k.loop(0, size, 1, [&](Index other) { adjusted.set(k.f32(-Code::kInfinity), row, other); });
      adjusted.set(sum, row, n);
    });
  }

  const SearchKernelSpec &spec;
  KernelFunction f;
  Code &k;
  Type f32, i64;
  Buffer scores, prompt, history, parents, hidden, forbidden, suppressed, atBegin, sequence, adjusted, logSums;
  Index steps, size, row;
  Num penalty, ngram, forced, sum;
  Mask isBegin;
};
} // namespace

func::FuncOp attn::buildSearchAdjust(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec) {
  return Adjust(b, symbol, spec).emit();
}
