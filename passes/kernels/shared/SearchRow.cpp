#include "passes/kernels/shared/SearchRow.h"
#include "builders/Mix.h"

#include "llvm/Support/MathExtras.h"
#include <limits>

using namespace mlir;
using namespace attn;

LogSum attn::logSum(Team &team, const Index &size, llvm::function_ref<Num(Index)> element) {
  Code &k = team.k;
  Num greatest = team.greatest(
      team.sweep(size, k.f32(-Code::kInfinity), [&](Index n, Num most) { return maximum(most, element(n)); }));
  Num sum = team.sum(team.sweep(size, k.f32(0), [&](Index n, Num sum) { return sum + exp(element(n) - greatest); }));
  return {greatest, greatest + log(sum)};
}

LogSum attn::logSumOfVectors(Code &k, const Index &size, llvm::function_ref<Vec(Index)> elements) {
  Num greatest = maximumOfLanes(k.loop(0, size, kRowLanes, k.splat(k.f32(-Code::kInfinity), kRowLanes),
                                       [&](Index n, Vec most) { return maximum(most, elements(n)); }));
  Vec none = k.splat(k.f32(0), kRowLanes);
  Num sum = sumOfLanes(k.loop(0, size, kRowLanes, none, [&](Index n, Vec sum) {
    return sum + select(firstLanes(size - n, kRowLanes), exp(elements(n) - greatest), none);
  }));
  return {greatest, greatest + log(sum)};
}

Mask attn::isEnd(Code &k, ArrayRef<int64_t> eos, const Num &token) {
  Mask ended = k.truth(false);
  for (int64_t id : eos)
    if (llvm::isIntN(token.type().getIntOrFloatBitWidth(), id))
      ended = ended | (token == id);
  return ended;
}

Index attn::makeRoom(Code &k, int64_t last, const Num &x, llvm::function_ref<Num(Index)> valueAt,
                     llvm::function_ref<void(Index from, Index to)> move) {
  auto isBelow = [&](Index place) {
    Index before = maximum(place - 1, 0); // read even at place 0
    return (place > 0) & (valueAt(before) < x);
  };
  return k.repeat(k.index(last), isBelow, [&](Index place) {
    move(place - 1, place);
    return place - 1;
  });
}

//===----------------------------------------------------------------------===//
// Drawing
//===----------------------------------------------------------------------===//

namespace {
constexpr int32_t kNone = std::numeric_limits<int32_t>::max();

class Draw {
public:
  Draw(Team &team, const SearchKernelSpec &spec, const SampledRow &row)
      : team(team), k(team.k), spec(spec), row(row), f32(k.b.getF32Type()), f64(k.b.getF64Type()),
        i32(k.b.getI32Type()), i64(k.b.getI64Type()) {}

  void emit(const Num &greatest) {
    weigh(greatestAllowed(greatest));
    Index pick = pickFrom(leastWeight(), uniform());
    team.once([&] {
      // Where all are banned no weight is above 0.
      row.values.set(select(weight(pick) > 0.0, row.scores(row.row, pick), k.f32(-Code::kInfinity)), row.row, 0);
      row.tokens.set(toNum(pick, i64), row.row, 0);
    });
  }

private:
  Mask isBanned(Index n) { return isEnd(k, spec.eos, toNum(n, i32)) & row.noEnd; }

  /// Without what is banned: the weights of the others might all be 0 beside it.
  Num greatestAllowed(const Num &greatest) {
    auto allowed = [&] {
      Num nothing = k.f32(-Code::kInfinity);
      return team.greatest(team.sweep(row.size, nothing, [&](Index n, Num most) {
        return maximum(most, select(isBanned(n), nothing, row.scores(row.row, n)));
      }));
    };
    return k.choose(row.noEnd, allowed, [&] { return greatest; });
  }

  Num weight(Index n) { return row.weights(row.row, n); }
  /// `weight` if it is at least `bar`, else 0.
  Num kept(const Num &weight, const Num &bar) { return select(weight >= bar, convert(weight, f64), k.f64(0)); }

  /// Weights in (0, 1], 0 for what is not allowed.
  void weigh(const Num &greatest) {
    auto store = [&](Index n) {
      Num x = exp((row.scores(row.row, n) - greatest) / row.temperature);
      row.weights.set(select(isBanned(n), k.f32(0), x), row.row, n);
    };
    k.loop(team.thread, row.size, team.threads, store);
    team.wait();
  }

  Num massFrom(const Num &bar) {
    return team.sum(team.sweep(row.size, k.f64(0), [&](Index n, Num sum) { return sum + kept(weight(n), bar); }));
  }
  Num countFrom(const Num &bar) {
    return team.sum(
        team.sweep(row.size, k.i32(0), [&](Index n, Num count) { return count + toNum(weight(n) >= bar, i32); }));
  }

  /// Weights are not negative, so their bits are in their order: the greatest
  /// bits from `low` on of which `isEnough`, found by halving.
  Num search(const Num &low, llvm::function_ref<Mask(Num)> isEnough) {
    Num high = bitcast(k.f32(1), i32);
    return std::get<0>(k.repeat(
        std::tuple(low, high), [&](Num low, Num high) { return low < high; },
        [&](Num low, Num high) {
          Num middle = (low + high + 1) >> 1;
          Mask enough = isEnough(bitcast(middle, f32));
          return std::tuple(select(enough, middle, low), select(enough, high, middle - 1));
        }));
  }

  /// What a weight must be at least to be drawn.
  Num leastWeight() {
    Num least;
    auto first = [&] {
      Num limit = convert(minimum(toNum(row.size, i64), row.topK), i32);
      return search(k.i32(0), [&](Num bar) { return countFrom(bar) >= limit; });
    };
    least = k.choose(row.topK > 0, first, [&] { return k.i32(0); });
    auto probable = [&] {
      Num wanted = massFrom(bitcast(least, f32)) * row.topP;
      return search(least, [&](Num bar) { return massFrom(bar) >= wanted; });
    };
    return bitcast(k.choose(row.topP < 1.0, probable, [&] { return least; }), f32);
  }

  /// A number in [0, 1) that seed, row and step determine.
  Num uniform() {
    Num hash = k.i64(0);
    for (const Num &term : {row.seed, toNum(row.row, i64), row.step})
      hash = mix(hash + term);
    return convertUnsigned(hash >> 11, f64) * 0x1p-53;
  }

  /// The first token at which the sum of what is kept passes its part `u`; the
  /// last that is kept, should rounding leave none. A thread has a piece of the row.
  Index pickFrom(const Num &bar, const Num &u) {
    Index piece = ceilDiv(row.size, team.threads);
    Index begin = minimum(team.thread * piece, row.size), end = minimum(begin + piece, row.size);
    Num mine = k.loop(begin, end, 1, k.f64(0), [&](Index n, Num sum) { return sum + kept(weight(n), bar); });
    auto [before, mass] = team.sumsBefore(mine);
    Num target = u * mass;
    auto [sum, first, last] =
        k.loop(begin, end, 1, std::tuple(before, k.i32(kNone), k.i32(-1)), [&](Index n, Num sum, Num first, Num last) {
          Num x = weight(n), token = toNum(n, i32), next = sum + kept(x, bar);
          Mask stays = (x >= bar) & (x > 0.0);
          Num hit = select(stays & (next > target), token, k.i32(kNone));
          return std::tuple(next, minimum(first, hit), select(stays, token, last));
        });
    first = team.least(first);
    last = maximum(team.greatest(last), 0);
    return toIndex(select(first == kNone, last, first));
  }

  Team &team;
  Code &k;
  const SearchKernelSpec &spec;
  const SampledRow &row;
  Type f32, f64, i32, i64;
};
} // namespace

SampledRow attn::sampledRow(KernelFunction &f, Buffer &logSums) {
  constexpr int64_t kDynamic = ShapedType::kDynamic;
  Type f32 = f.k.b.getF32Type(), i64 = f.k.b.getI64Type();
  SampledRow row;
  row.scores = f.buffer({kDynamic, kDynamic}, f32);
  row.noEnd = f.truth();
  row.step = f.number(i64);
  row.seed = f.number(i64);
  row.temperature = f.number(f32);
  row.topK = f.number(i64);
  row.topP = f.number(f.k.b.getF64Type());
  row.values = f.buffer({kDynamic, 1}, f32);
  row.tokens = f.buffer({kDynamic, 1}, i64);
  logSums = f.buffer({kDynamic}, f32);
  row.weights = f.buffer({kDynamic, kDynamic}, f32);
  row.size = row.scores.dim(1);
  return row;
}

void attn::drawToken(Team &team, const SearchKernelSpec &spec, const SampledRow &row, const Num &greatest) {
  Draw(team, spec, row).emit(greatest);
}
