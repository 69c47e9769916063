// Which candidates live on: the kernels of greedy and beam search.
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/shared/KernelFunction.h"
#include "passes/kernels/shared/SearchRow.h"

using namespace mlir;
using namespace attn;

namespace {
constexpr int64_t kDynamic = ShapedType::kDynamic;
using arith::AtomicRMWKind;

/// What is known of a complete hypothesis.
enum Info { kLength, kRow, kToken, kInfos };
enum Flag { kGoesOn, kBadItem, kFlags };
/// What is wrong with an item: of one item numbers come first.
enum Wrong { kNoNumbers = 1, kNoToken };

/// The buffers of both, in their order. Items may be chosen from at once: flags are atomic.
class Choice {
public:
  Choice(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec)
      : spec(spec), f(b, symbol), k(f.k), width(spec.width), f32(b.getF32Type()), i64(b.getI64Type()) {
    int64_t candidates = spec.candidates();
    values = f.buffer({kDynamic, candidates}, f32);
    ids = f.buffer({kDynamic, candidates}, i64);
    logSums = f.buffer({kDynamic}, f32);
    live = f.buffer({kDynamic, width}, f32);
    best = f.buffer({kDynamic, width}, f32);
    info = f.buffer({kDynamic, width, kInfos}, i64);
    open = f.buffer({kDynamic}, i64);
    penalty = f.number(f32);
    step = f.number(i64);
    isLast = f.truth();
    if (spec.isBeam)
      kin = f.buffer({kDynamic, width + 1}, i64);
    if (spec.coverage)
      terms = f.buffer({kDynamic}, f32);
    nextLive = f.buffer({kDynamic, width}, f32);
    nextBest = f.buffer({kDynamic, width}, f32);
    nextInfo = f.buffer({kDynamic, width, kInfos}, i64);
    nextOpen = f.buffer({kDynamic}, i64);
    parents = f.buffer({kDynamic}, i64);
    tokens = f.buffer({kDynamic}, i64);
    flags = f.buffer({kFlags}, i64);
    if (spec.isBeam)
      nextKin = f.buffer({kDynamic, width + 1}, i64);
    for (int64_t flag = 0; flag < kFlags; ++flag)
      flags.set(k.i64(0), flag);
  }

protected:
  Mask isOpen(Index item) { return open(item) != 0; }
  /// Flags an item that counts and whose scores are no numbers.
  void checkNumbers(Index item, const Mask &counts, const Num &logSum) {
    Mask isBad = (logSum - logSum) != 0.0;
    flagItem(item, isBad & counts, kNoNumbers);
  }
  /// The first item of which it is true gets the flag.
  void flagItem(Index item, const Mask &isTrue, Wrong wrong) {
    k.when(isTrue, [&] { flags.atomic(AtomicRMWKind::maxu, -int64_t(wrong) - toNum(item, i64) * 2, kBadItem); });
  }
  void goOn(Index item, const Mask &goesOn) {
    Num bit = toNum(goesOn, i64);
    nextOpen.set(bit, item);
    flags.atomic(AtomicRMWKind::ori, bit, kGoesOn);
  }
  /// Whether a hypothesis ends with `token`, or because this step is the last.
  Mask isOver(const Num &token) { return isEnd(k, spec.eos, token) | isLast; }

  const SearchKernelSpec &spec;
  KernelFunction f;
  Code &k;
  const int64_t width;
  Type f32, i64;
  Buffer values, ids, logSums, live, best, info, open, kin, terms;
  Buffer nextLive, nextBest, nextInfo, nextOpen, parents, tokens, flags, nextKin;
  Num penalty, step;
  Mask isLast;
};

class Greedy : public Choice {
public:
  using Choice::Choice;

  func::FuncOp emit() {
    k.loop(0, live.dim(0), 1, [&](Index row) {
      Mask goes = isOpen(row);
      Num token = ids(row, 0), logSum = logSums(row), old = live(row, 0);
      checkNumbers(row, goes, logSum);
      flagItem(row, goes & (values(row, 0) == -Code::kInfinity), kNoToken);
      Num score = select(goes, old + (values(row, 0) - logSum), old);
      nextLive.set(score, row, 0);
      nextBest.set(score, row, 0);
      nextInfo.set(select(goes, step, info(row, 0, kLength)), row, 0, kLength);
      nextInfo.set(select(goes, token, info(row, 0, kToken)), row, 0, kToken);
      Num self = toNum(row, i64);
      nextInfo.set(self, row, 0, kRow);
      parents.set(self, row);
      tokens.set(select(goes, token, k.i64(spec.idle())), row);
      goOn(row, !isOver(token) & goes);
    });
    return f.function;
  }
};

// The candidates of a row are sorted already: a merge of them gives those of an
// item in order. The first one that lives on from a row stays in it, the others
// take rows from which none does, so that states can move in place; the rows'
// order is kept in the table beside what they share.
class Beam : public Choice {
public:
  Beam(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec)
      : Choice(b, symbol, spec), heads(scratch(b.getIndexType())), order(scratch(b.getIndexType())),
        held(scratch(b.getI1Type())), liveOf(scratch(f32)), parentOf(scratch(b.getIndexType())), tokenOf(scratch(i64)) {
  }

  func::FuncOp emit() {
    k.loop(0, live.dim(0), 1, [&](Index number) {
      item = number;
      goes = isOpen(item);
      base = item * width;
      Num complete = begin();
      Index placed = merge(width - complete);
      assignRows(placed);
      recordKin();
      flagItem(item, goes & (placed == 0) & (nextInfo(item, 0, kLength) == 0), kNoToken);
      goOn(item, promises() & goes & !isLast);
    });
    return f.function;
  }

private:
  /// One entry for each row of the item.
  Buffer scratch(Type element) {
    return k.asBuffer(memref::AllocaOp::create(k.b, k.loc, MemRefType::get({width}, element)));
  }
  Index at(const Buffer &list, Place place) { return toIndex(list(place)); }

  /// Everything as before, nothing chosen; gives how many hypotheses are complete.
  Num begin() {
    return k.loop(0, width, 1, k.i64(0), [&](Index n, Num complete) {
      heads.set(k.index(0), n);
      held.set(k.truth(false), n);
      nextBest.set(best(item, n), item, n);
      k.loop(0, kInfos, 1, [&](Index j) { nextInfo.set(info(item, n, j), item, n, j); });
      nextLive.set(k.f32(-Code::kInfinity), item, n);
      Index row = base + n;
      order.set(toIndex(kin(row, width)), n);
      parents.set(toNum(row, i64), row);
      tokens.set(k.i64(spec.idle()), row);
      checkNumbers(item, (live(item, n) != -Code::kInfinity) & goes, logSums(row));
      return complete + toNum(info(item, n, kLength) != 0, i64);
    });
  }

  /// Takes candidates, best first; gives how many live on.
  Index merge(const Num &room) {
    return std::get<0>(
        k.loop(0, spec.candidates(), 1, std::tuple(k.index(0), k.i64(0)), [&](Index n, Index placed, Num used) {
          Num score;
          Index from;
          std::tie(score, from) = bestHead();
          Mask mayTake = from < width;
          mayTake = mayTake & (spec.shrink ? (used < room) & goes : goes);
          return k.choose(
              mayTake, [&] { return std::tuple(take(n, placed, score, from), used + 1); },
              [&] { return std::tuple(placed, used); });
        }));
  }

  /// The best of the rows' next candidates, and the row; `width` if there is none.
  std::tuple<Num, Index> bestHead() {
    Num nothing = k.f32(-Code::kInfinity);
    return k.loop(0, width, 1, std::tuple(nothing, k.index(width)), [&](Index n, Num most, Index which) {
      Index slot = at(order, n), head = at(heads, slot);
      auto score = [&] {
        Index row = base + slot;
        return live(item, slot) + (values(row, head) - logSums(row));
      };
      Num x = k.choose(head < spec.candidates(), score, [&] { return nothing; });
      Mask isBetter = x > most;
      return std::tuple(select(isBetter, x, most), select(isBetter, slot, which));
    });
  }

  /// The `n`th candidate in order ends, or lives on in the next place.
  Index take(Index n, Index placed, Num score, Index from) {
    Index head = at(heads, from), row = base + from;
    heads.set(head + 1, from);
    Num token = ids(row, head);
    auto end = [&] {
      if (spec.shrink)
        complete(score, row, token);
      else
        k.when(n < width, [&] { complete(score, row, token); });
      return placed;
    };
    auto live = [&] {
      auto put = [&] {
        liveOf.set(score, placed);
        parentOf.set(from, placed);
        tokenOf.set(token, placed);
        return placed + 1;
      };
      return k.choose(placed < width, put, [&] { return placed; });
    };
    return k.choose(isOver(token), end, live);
  }

  /// Among the complete hypotheses, should it be one of the best.
  void complete(Num sum, Index row, Num token) {
    Num score = sum / penalty + (spec.coverage ? terms(row) : k.f32(0));
    int64_t last = width - 1;
    k.when(score > nextBest(item, last), [&] {
      Index place = makeRoom(
          k, last, score, [&](Index at) { return nextBest(item, at); },
          [&](Index from, Index to) {
            nextBest.set(nextBest(item, from), item, to);
            k.loop(0, kInfos, 1, [&](Index j) { nextInfo.set(nextInfo(item, from, j), item, to, j); });
          });
      nextBest.set(score, item, place);
      nextInfo.set(step, item, place, kLength);
      nextInfo.set(toNum(row, i64), item, place, kRow);
      nextInfo.set(token, item, place, kToken);
    });
  }

  /// The first that lives on from a row stays in it; `order` names each one's row, `width` where none is left yet.
  void assignRows(Index placed) {
    k.loop(0, placed, 1, [&](Index n) {
      Index parent = at(parentOf, n);
      order.set(select(held(parent) != 0, k.index(width), parent), n);
      held.set(k.truth(true), parent);
    });
    k.loop(0, width, 1, k.index(0), [&](Index n, Index free) {
      Mask isPlaced = n < placed;
      Mask stays = k.choose(isPlaced, [&] { return at(order, n) < width; }, [&] { return k.truth(false); });
      auto findFree = [&] {
        Index slot = k.repeat(free, [&](Index slot) { return held(slot) != 0; }, [](Index slot) { return slot + 1; });
        order.set(slot, n);
        return slot + 1;
      };
      free = k.choose(stays, [&] { return free; }, findFree);
      Index slot = at(order, n);
      nextKin.set(toNum(slot, i64), base + n, width);
      k.when(isPlaced, [&] {
        Index row = base + slot;
        parents.set(toNum(base + at(parentOf, n), i64), row);
        nextLive.set(liveOf(n), item, slot);
        tokens.set(tokenOf(n), row);
      });
      return free;
    });
  }

  /// Rows share all until now if their parent is one, otherwise what their parents did.
  void recordKin() {
    k.loop(0, width, 1, [&](Index n) {
      Index row = base + n;
      Num parent = parents(row);
      k.loop(0, width, 1, [&](Index m) {
        Num other = parents(base + m);
        Num before = kin(toIndex(parent), toIndex(other) - base);
        nextKin.set(select(parent == other, step, before), row, m);
      });
    });
  }

  /// Whether what lives may still be better than what is complete.
  Mask promises() {
    Num front = nextLive(item, at(order, 0));
    int64_t last = width - 1;
    Mask promising = spec.shrink ? front > -Code::kInfinity : front / penalty > nextBest(item, last);
    return spec.earlyStop ? promising & (nextInfo(item, last, kLength) == 0) : promising;
  }

  Buffer heads, order, held, liveOf, parentOf, tokenOf;
  Index item, base;
  Mask goes;
};
} // namespace

func::FuncOp attn::buildSearchGreedy(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec) {
  return Greedy(b, symbol, spec).emit();
}

func::FuncOp attn::buildSearchBeam(OpBuilder &b, StringRef symbol, const SearchKernelSpec &spec) {
  return Beam(b, symbol, spec).emit();
}
