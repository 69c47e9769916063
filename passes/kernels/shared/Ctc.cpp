// What scores of frames spell: the kernels of attn.ctc_search. One item is one
// task; all it needs besides is given as scratch.
#include "passes/kernels/shared/KernelFunction.h"
#include "passes/kernels/shared/SearchRow.h"

using namespace mlir;
using namespace attn;

namespace {
constexpr int64_t kDynamic = ShapedType::kDynamic;

/// What both searches have.
class Ctc {
public:
  Ctc(OpBuilder &b, StringRef symbol, const CtcKernelSpec &spec)
      : spec(spec), f(b, symbol), k(f.k), f32(b.getF32Type()), f64(b.getF64Type()), i64(b.getI64Type()) {
    scores = f.buffer({kDynamic, kDynamic, kDynamic}, f32);
    frames = f.buffer({kDynamic}, i64);
    labels = f.buffer({kDynamic, spec.best, kDynamic}, i64);
    lengths = f.buffer({kDynamic, spec.best}, i64);
    totals = f.buffer({kDynamic, spec.best}, f32);
    flags = f.buffer({kDynamic, 2}, i64);
  }

protected:
  /// `body(number of frames)` for each item.
  void forItems(llvm::function_ref<void(Index)> body) {
    most = scores.dim(spec.timeMajor ? 0 : 1);
    size = scores.dim(2);
    k.parallel(frames.dim(0), [&](Index number) {
      item = number;
      flags.set(k.i64(0), item, 0);
      Num given = frames(item);
      Mask isWrong = (given < 0) | (given > toNum(most, i64));
      flags.set(toNum(isWrong, i64), item, 1);
      body(toIndex(select(isWrong, k.i64(0), given)));
    });
  }

  Num score(Index time, Index label) { return spec.timeMajor ? scores(time, item, label) : scores(item, time, label); }
  Vec padded(Index time, Index label) {
    Num nothing = k.f32(-Code::kInfinity);
    return spec.timeMajor ? scores.padded(nothing, kRowLanes, time, item, label)
                          : scores.padded(nothing, kRowLanes, item, time, label);
  }
  LogSum sumOf(Index time) {
    if (spec.hasVectors)
      return logSumOfVectors(k, size, [&](Index label) { return padded(time, label); });
    Team alone(k);
    return logSum(alone, size, [&](Index label) { return score(time, label); });
  }
  /// Whether the scores of a frame are numbers; flags the item if not.
  Mask checkNumbers(const LogSum &sum) {
    Mask isGood = (sum.value - sum.value) == 0.0;
    k.when(!isGood, [&] { flags.set(k.i64(1), item, 0); });
    return isGood;
  }
  void clearLabels(Index best) {
    k.loop(0, most, 1, [&](Index n) { labels.set(k.i64(spec.blank), item, best, n); });
  }

  const CtcKernelSpec &spec;
  KernelFunction f;
  Code &k;
  Type f32, f64, i64;
  Buffer scores, frames, labels, lengths, totals, flags;
  Index item, most, size;
};

class Greedy : public Ctc {
public:
  using Ctc::Ctc;

  func::FuncOp emit() {
    forItems([&](Index count) {
      clearLabels(k.index(0));
      auto [length, last, total] =
          k.loop(0, count, 1, std::tuple(k.index(0), k.i64(spec.blank), k.f64(0)),
                 [&](Index time, Index length, Num before, Num total) {
                   LogSum sum = sumOf(time);
                   checkNumbers(sum);
                   Num label = toNum(firstOf(time, sum.greatest), i64);
                   auto append = [&] {
                     labels.set(label, item, 0, length);
                     return length + 1;
                   };
                   Index next = k.choose((label != before) & (label != spec.blank), append, [&] { return length; });
                   return std::tuple(next, label, total + convert(sum.greatest - sum.value, f64));
                 });
      lengths.set(toNum(length, i64), item, 0);
      totals.set(convert(total, f32), item, 0);
    });
    return f.function;
  }

private:
  /// The first label with this score, or the last label.
  Index firstOf(Index time, Num greatest) {
    return k.repeat(
        k.index(0), [&](Index label) { return (label < size - 1) & (score(time, label) < greatest); },
        [](Index label) { return label + 1; });
  }
};

// Prefixes are nodes of a tree, node 0 the empty one: two prefixes are equal
// where their nodes are.
class Beam : public Ctc {
public:
  Beam(OpBuilder &b, StringRef symbol, const CtcKernelSpec &spec)
      : Ctc(b, symbol, spec), width(spec.width), last(spec.width - 1) {
    tree = f.buffer({kDynamic, kDynamic, 4}, i64);
    places = f.buffer({kDynamic, 2, width, 2}, i64);
    numbers = f.buffer({kDynamic, 2, width, 3}, f64);
  }

  func::FuncOp emit() {
    forItems([&](Index count) {
      begin();
      k.loop(0, count, 1, k.i64(1), [&](Index frame, Num nodes) {
        time = frame;
        LogSum sum = sumOf(time);
        logSum = sum.value;
        isGood = checkNumbers(sum);
        k.loop(0, width, 1, [&](Index n) {
          numbers.set(lowest(), item, kCandidate, n, kSum);
          places.set(k.i64(-1), item, kCandidate, n, kOrigin);
        });
        blankPart = part(k.index(spec.blank));
        k.loop(0, width, 1, [&](Index n) { extend(n); });
        return enterNodes(nodes);
      });
      k.loop(0, spec.best, 1, [&](Index n) { spell(n); });
    });
    return f.function;
  }

private:
  // What lives, and what may live after this frame.
  enum { kLive, kCandidate };
  // Logarithms of probabilities: of a prefix, of it behind a blank, and behind its last label.
  enum { kSum, kBlank, kLabel, kNumbers };
  // Of what lives the node (and meanwhile the one to be); of a candidate where it comes from and its label, or -1.
  enum { kNode, kNextNode, kOrigin = 0, kAdded = 1, kPlaces };
  enum { kParent, kLast, kChild, kSibling, kLinks };

  Num lowest() { return k.f64(-Code::kInfinity); }
  Num live(Index n, int64_t which) { return numbers(item, kLive, n, which); }
  Num nodeOf(Index n) { return places(item, kLive, n, kNode); }
  Num link(const Num &node, int64_t which) { return tree(item, toIndex(node), which); }
  /// The label's logarithm of probability in this frame.
  Num part(Index label) { return convert(score(time, label) - logSum, f64); }
  Num leastCandidate() { return numbers(item, kCandidate, last, kSum); }

  /// log(exp(x) + exp(y)); the small part in f32.
  Num addLogs(const Num &x, const Num &y) {
    Num top = maximum(x, y), low = minimum(x, y);
    Num small = convert(log1p(exp(convert(low - top, f32))), f64);
    return select(low > -Code::kInfinity, top + small, top);
  }

  void begin() {
    k.loop(0, width, 1, [&](Index n) {
      places.set(k.i64(0), item, kLive, n, kNode);
      k.loop(0, kNumbers, 1, [&](Index j) { numbers.set(lowest(), item, kLive, n, j); });
    });
    numbers.set(k.f64(0), item, kLive, 0, kSum);
    numbers.set(k.f64(0), item, kLive, 0, kBlank);
    k.loop(0, kLinks, 1, [&](Index j) { tree.set(k.i64(-1), item, 0, j); });
  }

  /// Candidates that prefix `n` gives: itself, and those with one more label.
  void extend(Index n) {
    Num sum = live(n, kSum);
    k.when((sum > -Code::kInfinity) & isGood, [&] {
      prefix = n;
      total = sum;
      inBlank = live(n, kBlank);
      node = nodeOf(n);
      own = link(node, kLast);
      Num stayBlank = total + blankPart, inLabel = live(n, kLabel), parent = link(node, kParent);
      Num stayLabel = k.choose(own < 0, [&] { return lowest(); }, [&] { return repeated(inLabel, parent); });
      Num stays = addLogs(stayBlank, stayLabel);
      k.when(stays > leastCandidate(), [&] { insert(stays, stayBlank, stayLabel, k.i64(-1)); });
      addLabels();
    });
  }

  /// Its last label once more, or for the first time: the prefix without it may live, too.
  Num repeated(Num inLabel, Num parent) {
    Num here = part(toIndex(own));
    Num came = k.loop(0, width, 1, lowest(), [&](Index n, Num came) {
      Num other = nodeOf(n), sum = live(n, kSum);
      Mask isParent = (other == parent) & (sum > -Code::kInfinity);
      Num base = select(link(other, kLast) == own, live(n, kBlank), sum);
      return select(isParent, base + here, came);
    });
    return addLogs(inLabel + here, came);
  }

  /// Puts a candidate behind those that are as good.
  void insert(Num sum, Num blank, Num label, Num added) {
    Index place = makeRoom(
        k, last, sum, [&](Index at) { return numbers(item, kCandidate, at, kSum); },
        [&](Index from, Index to) {
          k.loop(0, kNumbers, 1,
                 [&](Index j) { numbers.set(numbers(item, kCandidate, from, j), item, kCandidate, to, j); });
          k.loop(0, kPlaces, 1,
                 [&](Index j) { places.set(places(item, kCandidate, from, j), item, kCandidate, to, j); });
        });
    numbers.set(sum, item, kCandidate, place, kSum);
    numbers.set(blank, item, kCandidate, place, kBlank);
    numbers.set(label, item, kCandidate, place, kLabel);
    places.set(toNum(prefix, i64), item, kCandidate, place, kOrigin);
    places.set(added, item, kCandidate, place, kAdded);
  }

  /// All longer prefixes; sixteen labels of which none can enter are passed over.
  void addLabels() {
    if (!spec.hasVectors)
      return k.loop(0, size, 1, [&](Index label) { addLabel(label); });
    k.loop(0, size, kRowLanes, [&](Index first) {
      Vec sums = total + convert(padded(time, first) - logSum, f64);
      k.when(any(sums > leastCandidate()),
             [&] { k.loop(first, minimum(first + kRowLanes, size), 1, [&](Index label) { addLabel(label); }); });
    });
  }

  void addLabel(Index at) {
    Num label = toNum(at, i64), here = part(at);
    Num longer = select(label == own, inBlank, total) + here;
    Mask mayEnter = (longer > leastCandidate()) & (label != spec.blank);
    // One that lives already got its part from `repeated`.
    auto isNew = [&] {
      return k.loop(0, width, 1, k.truth(true), [&](Index n, Mask isNew) {
        Num other = nodeOf(n);
        Mask isDead = live(n, kSum) == -Code::kInfinity;
        return isNew & ((link(other, kParent) != node) | (link(other, kLast) != label) | isDead);
      });
    };
    Mask enters = k.choose(mayEnter, isNew, [&] { return mayEnter; });
    k.when(enters, [&] { insert(longer, lowest(), longer, label); });
  }

  /// What lives from now on, with a node for each; gives how many nodes there are.
  Num enterNodes(Num nodes) {
    Num all = k.loop(0, width, 1, nodes, [&](Index n, Num nodes) {
      Num origin = places(item, kCandidate, n, kOrigin), label = places(item, kCandidate, n, kAdded);
      Num from = nodeOf(toIndex(maximum(origin, 0)));
      Num now;
      std::tie(now, nodes) = k.choose((label >= 0) & (origin >= 0), [&] { return childOf(from, label, nodes); },
                                      [&] { return std::tuple(from, nodes); });
      places.set(now, item, kLive, n, kNextNode);
      return nodes;
    });
    k.loop(0, width, 1, [&](Index n) {
      places.set(places(item, kLive, n, kNextNode), item, kLive, n, kNode);
      k.loop(0, kNumbers, 1, [&](Index j) { numbers.set(numbers(item, kCandidate, n, j), item, kLive, n, j); });
    });
    return all;
  }

  /// The node of `parent` and one more label, a new one if there is none, and how many nodes there are then.
  std::tuple<Num, Num> childOf(Num parent, Num label, Num nodes) {
    Num first = link(parent, kChild);
    Num child = k.repeat(
        first, [&](Num child) { return (child >= 0) & (link(maximum(child, 0), kLast) != label); },
        [&](Num child) { return link(child, kSibling); });
    auto add = [&] {
      Index place = toIndex(nodes);
      tree.set(parent, item, place, kParent);
      tree.set(label, item, place, kLast);
      tree.set(k.i64(-1), item, place, kChild);
      tree.set(first, item, place, kSibling);
      tree.set(nodes, item, toIndex(parent), kChild);
      return std::tuple(nodes, nodes + 1);
    };
    return k.choose(child >= 0, [&] { return std::tuple(child, nodes); }, add);
  }

  /// The labels of prefix `n`, from its last one back.
  void spell(Index n) {
    clearLabels(n);
    Num sum = live(n, kSum);
    totals.set(convert(sum, f32), item, n);
    Num end = select(sum > -Code::kInfinity, nodeOf(n), k.i64(0));
    Index length = std::get<1>(k.repeat(
        std::tuple(end, k.index(0)), [](Num node, Index) { return node > 0; },
        [&](Num node, Index length) { return std::tuple(link(node, kParent), length + 1); }));
    lengths.set(toNum(length, i64), item, n);
    k.loop(0, length, 1, end, [&](Index back, Num node) {
      labels.set(link(node, kLast), item, n, length - back - 1);
      return link(node, kParent);
    });
  }

  const int64_t width, last;
  Buffer tree, places, numbers;
  Index time, prefix;
  Mask isGood;
  // Of the frame, then of the prefix that is extended.
  Num logSum, blankPart, total, inBlank, node, own;
};
} // namespace

func::FuncOp attn::buildCtc(OpBuilder &b, StringRef symbol, const CtcKernelSpec &spec) {
  return spec.width > 0 ? Beam(b, symbol, spec).emit() : Greedy(b, symbol, spec).emit();
}

func::FuncOp attn::buildCtcLength(OpBuilder &b, StringRef symbol, int64_t best) {
  KernelFunction f(b, symbol);
  Code &k = f.k;
  Type i64 = b.getI64Type();
  Buffer lengths = f.buffer({kDynamic, best}, i64), flags = f.buffer({kDynamic, 2}, i64);
  Buffer result = f.buffer({3}, i64);
  auto [longest, bad, wrong] = k.loop(
      0, lengths.dim(0), 1, std::tuple(k.i64(0), k.i64(0), k.i64(0)), [&](Index item, Num longest, Num bad, Num wrong) {
        Num most = k.loop(0, best, 1, longest, [&](Index n, Num most) { return maximum(most, lengths(item, n)); });
        Num number = toNum(item, i64) + 1;
        auto firstOf = [&](Num found, int64_t which) { return select(found == 0, flags(item, which) * number, found); };
        return std::tuple(most, firstOf(bad, 0), firstOf(wrong, 1));
      });
  result.set(longest, 0);
  result.set(bad, 1);
  result.set(wrong, 2);
  return f.function;
}
