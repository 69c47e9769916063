#include "passes/kernels/cpu/TopK.h"

#include "passes/kernels/shared/KernelFunction.h"
#include "passes/kernels/spec/KernelAttrs.h"
#include "passes/kernels/spec/Storage.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn {
namespace {

/// One row: `length` elements of `input` from `first` on; `count` places from `out` on.
class RowSelection {
public:
  RowSelection(Code &k, const TopKSpec &spec, const Buffer &input, const Buffer &values, const Buffer &positions,
               Index row, Index length, Index places)
      : k(k), spec(spec), element(spec.input.getElementType()), input(input), values(values), positions(positions),
        first(row * length), out(row * places), length(length), count(minimum(places, length)),
        bits(element.getIntOrFloatBitWidth() > 32 ? 64 : 32), keyType(k.b.getIntegerType(bits)),
        lanes(std::max<int64_t>(spec.lanes * 32 / bits, 1)) {}

  void emit() {
    k.loop(0, count, 1, [&](Index place) { put(place, {place, elementOf(place)}); });
    Index parents = count / 2;
    k.loop(0, parents, 1, [&](Index n) {
      Index place = parents - n - 1;
      sink(place, at(place), count);
    });
    scan();
    k.loop(1, count, 1, [&](Index n) {
      Index end = count - n;
      Item last = at(end);
      put(end, at(k.index(0)));
      sink(k.index(0), last, end);
    });
  }

  void clear(Index place) { put(place, {k.index(0), k.number(element, int64_t(0))}); }

private:
  /// An element and where it stands in the row.
  struct Item {
    Index position;
    Num element;
  };

  /// Signed integers for elements, one or a vector: the greater comes first.
  template <typename T> T keysOf(T x) {
    int64_t greatest = bits == 32 ? INT32_MAX : INT64_MAX;
    T keys = x;
    if (isa<FloatType>(element)) {
      if (element.getIntOrFloatBitWidth() < 32)
        x = convert(x, k.b.getF32Type());
      auto isNone = isNaN(x);
      // -0 becomes 0. The other bits of a negative number count backwards.
      T word = bitcast(x + 0.0, keyType);
      T sign = select(word < 0, constantLike(word, -1), constantLike(word, 0));
      keys = select(isNone, constantLike(word, greatest), word ^ (sign & greatest));
    } else if (element.getIntOrFloatBitWidth() < bits) {
      keys = spec.isUnsigned ? convertUnsigned(x, keyType) : convert(x, keyType);
    } else if (spec.isUnsigned) {
      keys = x ^ constantLike(x, -greatest - 1);
    }
    return spec.smallest ? !keys : keys;
  }

  Num elementOf(Index position) { return input(first + position); }
  /// What the heap has: a row that is much longer than the caches is not read in its order again.
  Item at(Index place) {
    Index index = out + place;
    return {toIndex(positions(index)), values(index)};
  }
  void put(Index place, const Item &item) {
    Index index = out + place;
    positions.set(toNum(item.position, k.b.getI64Type()), index);
    values.set(item.element, index);
  }

  /// Whether the element at `position` comes after another one in the result.
  Mask isAfter(Num key, Index position, Num otherKey, Index other) {
    Mask isLater = (key == otherKey) & (position > other);
    return (key < otherKey) | isLater;
  }

  /// Puts `item` where it belongs below `place`, among the first `size`
  /// places: children that come after it move up.
  void sink(Index place, const Item &item, Index size) {
    Num key = keysOf(item.element);
    Mask yes = k.truth(true), no = k.truth(false);
    // The hole that moves down, and whether it does once more.
    std::tuple<Index, Mask> state(place, yes);
    state = k.repeat(
        state, [](Index, Mask moves) { return moves; },
        [&](Index hole, Mask) {
          auto stay = [&] { return std::tuple(hole, no); };
          Index left = hole * 2 + 1;
          return k.choose(
              left < size,
              [&] {
                Index right = minimum(left + 1, size - 1);
                Item below = at(left), other = at(right);
                Num leftKey = keysOf(below.element), rightKey = keysOf(other.element);
                Mask picksRight = isAfter(rightKey, other.position, leftKey, below.position);
                Index child = select(picksRight, right, left);
                Item risen{select(picksRight, other.position, below.position),
                           select(picksRight, other.element, below.element)};
                Mask rises = isAfter(select(picksRight, rightKey, leftKey), risen.position, key, item.position);
                auto rise = [&] {
                  put(hole, risen);
                  return std::tuple(child, yes);
                };
                return k.choose(rises, rise, stay);
              },
              stay);
        });
    put(std::get<0>(state), item);
  }

  /// The elements behind the first `count`, against the root.
  void scan() {
    auto admit = [&](Index position, Num root) {
      Item item{position, elementOf(position)};
      auto enter = [&] {
        sink(k.index(0), item, count);
        return keysOf(at(k.index(0)).element);
      };
      return k.choose(keysOf(item.element) > root, enter, [&] { return root; });
    };
    Index whole = count + floorTo(length - count, lanes);
    Num root = keysOf(at(k.index(0)).element);
    root = k.loop(count, whole, lanes, root, [&](Index position, Num root) {
      Vec keys = keysOf(input.vector(lanes, first + position));
      auto each = [&] { return k.loop(position, position + lanes, 1, root, admit); };
      return k.choose(unlikely(any(keys > root)), each, [&] { return root; });
    });
    k.loop(whole, length, 1, root, admit);
  }

  Code &k;
  const TopKSpec &spec;
  Type element;
  Buffer input, values, positions;
  Index first, out, length, count;
  int64_t bits; ///< of a key
  Type keyType;
  int64_t lanes;
};

} // namespace

TopKSpec TopKSpec::get(TopKOp op, TargetAttr target) {
  return {bufferOf(op.getInput()), bufferOf(op.getValues()), bufferOf(op.getPositions()),
          op.getSmallest(),        op.getIsUnsigned(),       target.getF32Lanes()};
}

std::string TopKSpec::symbol() const {
  return llvm::formatv("top_{0}xi64_{1}{2}_{3}x{4}_v{5}", shapeText(positions), smallest ? "least_" : "",
                       isUnsigned ? "u" : "s", shapeText(input), input.getElementType(), lanes);
}

bool canBuildTopK(const TopKSpec &spec, std::string *reason) {
  Type element = spec.input.getElementType();
  if (element.isF16() || element.isBF16() || element.isF32() || element.isF64() || element.isInteger(8) ||
      element.isInteger(16) || element.isInteger(32) || element.isInteger(64))
    return true;
  return fail(reason, "its element type has no kernel");
}

func::FuncOp buildTopK(OpBuilder &builder, Location loc, const TopKSpec &spec) {
  assert(canBuildTopK(spec));
  KernelFunction f(builder, loc, spec.symbol());
  f.function->setAttr(kPollsAttr, builder.getUnitAttr());
  Code &k = f.k;
  Buffer input = f.buffer(spec.input), values = f.buffer(spec.values), positions = f.buffer(spec.positions);
  int64_t last = spec.input.getRank() - 1;
  k.parallel(input.count(0, last), [&](Index row) {
    Index length = input.dim(last), places = values.dim(last);
    // Nothing to choose: an empty heap has no root. Places without an element hold 0.
    RowSelection selection(k, spec, input.flat(), values.flat(), positions.flat(), row, length, places);
    k.loop(minimum(places, length), places, 1, [&](Index place) { selection.clear(place); });
    k.when(minimum(places, length) > 0, [&] { selection.emit(); });
  });
  return f.function;
}

} // namespace attn
