#include "passes/kernels/cpu/TopK.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/kernels/cpu/KernelAttrs.h"
#include "passes/kernels/cpu/LaneBuilder.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn {
namespace {

using Values = LaneBuilder::Values;
using Predicate = arith::CmpIPredicate;

/// One row: `length` elements of `input` from `first` on; `count` places from `out` on.
class RowSelection {
public:
  RowSelection(LaneBuilder &k, const TopKSpec &spec, ValueRange flat, Value row, Value length, Value places)
      : k(k), spec(spec), element(spec.input.getElementType()), input(flat[0]), values(flat[1]), positions(flat[2]),
        first(k.mul(row, length)), out(k.mul(row, places)), length(length), count(k.min(places, length)) {
    int64_t bits = element.getIntOrFloatBitWidth() > 32 ? 64 : 32;
    keyType = k.b.getIntegerType(bits);
    lanes = std::max<int64_t>(k.lanes * 32 / bits, 1);
  }

  void emit() {
    k.loop(k.index(0), count, 1, [&](Value place) { put(place, {place, elementOf(place)}); });
    Value parents = k.div(count, k.index(2));
    k.loop(k.index(0), parents, 1, [&](Value n) {
      Value place = k.sub(k.sub(parents, n), k.index(1));
      sink(place, at(place), count);
    });
    scan();
    k.loop(k.index(1), count, 1, [&](Value n) {
      Value end = k.sub(count, n);
      Item last = at(end);
      put(end, at(k.index(0)));
      sink(k.index(0), last, end);
    });
  }

  void clear(Value place) { put(place, {k.index(0), arith::ConstantOp::create(k.b, k.loc, k.b.getZeroAttr(element))}); }

private:
  /// An element and where it stands in the row.
  struct Item {
    Value position, element;
  };

  Value constant(Type type, int64_t value) {
    if (auto vector = dyn_cast<VectorType>(type))
      return arith::ConstantOp::create(
          k.b, k.loc, DenseElementsAttr::get(vector, k.b.getIntegerAttr(vector.getElementType(), value)));
    return arith::ConstantOp::create(k.b, k.loc, k.b.getIntegerAttr(type, value));
  }
  static Type like(Value x, Type element) {
    auto vector = dyn_cast<VectorType>(x.getType());
    return vector ? Type(VectorType::get(vector.getShape(), element)) : element;
  }
  Value compare(Predicate predicate, Value x, Value y) { return arith::CmpIOp::create(k.b, k.loc, predicate, x, y); }

  /// Signed integers for elements, scalar or vector: the greater comes first.
  Value keysOf(Value x) {
    Type type = like(x, keyType);
    int64_t bits = keyType.getIntOrFloatBitWidth(), greatest = bits == 32 ? INT32_MAX : INT64_MAX;
    Value keys = x;
    if (isa<FloatType>(element)) {
      if (element.getIntOrFloatBitWidth() < 32)
        x = arith::ExtFOp::create(k.b, k.loc, like(x, k.b.getF32Type()), x);
      Value isNaN = arith::CmpFOp::create(k.b, k.loc, arith::CmpFPredicate::UNO, x, x);
      // -0 becomes 0. The other bits of a negative number count backwards.
      x = arith::AddFOp::create(k.b, k.loc, x, arith::ConstantOp::create(k.b, k.loc, k.b.getZeroAttr(x.getType())));
      Value word = arith::BitcastOp::create(k.b, k.loc, type, x);
      Value sign = arith::ShRSIOp::create(k.b, k.loc, word, constant(type, bits - 1));
      keys = arith::XOrIOp::create(k.b, k.loc, word, arith::AndIOp::create(k.b, k.loc, sign, constant(type, greatest)));
      keys = k.select(isNaN, constant(type, greatest), keys);
    } else if (element.getIntOrFloatBitWidth() < bits) {
      keys = spec.isUnsigned ? arith::ExtUIOp::create(k.b, k.loc, type, x).getResult()
                             : arith::ExtSIOp::create(k.b, k.loc, type, x).getResult();
    } else if (spec.isUnsigned) {
      keys = arith::XOrIOp::create(k.b, k.loc, x, constant(type, -greatest - 1));
    }
    return spec.smallest ? arith::XOrIOp::create(k.b, k.loc, keys, constant(type, -1)).getResult() : keys;
  }

  Value elementOf(Value position) { return k.load(input, k.add(first, position)); }
  /// What the heap has: a row that is much longer than the caches is not read in its order again.
  Item at(Value place) {
    Value index = k.add(out, place);
    return {arith::IndexCastOp::create(k.b, k.loc, k.b.getIndexType(), k.load(positions, index)),
            k.load(values, index)};
  }
  void put(Value place, const Item &item) {
    Value index = k.add(out, place);
    Value position = arith::IndexCastOp::create(k.b, k.loc, k.b.getI64Type(), item.position);
    memref::StoreOp::create(k.b, k.loc, position, positions, index);
    memref::StoreOp::create(k.b, k.loc, item.element, values, index);
  }

  /// Whether the element at `position` comes after another one in the result.
  Value isAfter(Value key, Value position, Value otherKey, Value other) {
    Value isLater = arith::AndIOp::create(k.b, k.loc, compare(Predicate::eq, key, otherKey),
                                          compare(Predicate::sgt, position, other));
    return arith::OrIOp::create(k.b, k.loc, compare(Predicate::slt, key, otherKey), isLater);
  }

  /// Puts `item` where it belongs below `place`, among the first `size`
  /// places: children that come after it move up.
  void sink(Value place, const Item &item, Value size) {
    Value key = keysOf(item.element), yes = arith::ConstantIntOp::create(k.b, k.loc, k.b.getI1Type(), 1),
          no = arith::ConstantIntOp::create(k.b, k.loc, k.b.getI1Type(), 0);
    Values state{place, yes};
    SmallVector<Type> stateTypes{place.getType(), yes.getType()};
    state = k.repeat(
        state, [&](ValueRange carried) { return carried[1]; },
        [&](ValueRange carried) {
          Value hole = carried[0], left = k.add(k.mul(hole, 2), 1);
          return k.branch(
              k.less(left, size), stateTypes,
              [&]() -> Values {
                Value right = k.min(k.add(left, 1), k.sub(size, k.index(1)));
                Item below = at(left), other = at(right);
                Value leftKey = keysOf(below.element), rightKey = keysOf(other.element);
                Value picksRight = isAfter(rightKey, other.position, leftKey, below.position);
                Value child = k.select(picksRight, right, left);
                Item risen{k.select(picksRight, other.position, below.position),
                           k.select(picksRight, other.element, below.element)};
                Value rises = isAfter(k.select(picksRight, rightKey, leftKey), risen.position, key, item.position);
                return k.branch(
                    rises, stateTypes,
                    [&]() -> Values {
                      put(hole, risen);
                      return {child, yes};
                    },
                    [&]() -> Values { return {hole, no}; });
              },
              [&]() -> Values { return {hole, no}; });
        });
    put(state[0], item);
  }

  /// The elements behind the first `count`, against the root.
  void scan() {
    auto admit = [&](Value position, Value root) {
      Item item{position, elementOf(position)};
      Values next = k.branch(
          compare(Predicate::sgt, keysOf(item.element), root), TypeRange(keyType),
          [&]() -> Values {
            sink(k.index(0), item, count);
            return {keysOf(at(k.index(0)).element)};
          },
          [&]() -> Values { return {root}; });
      return next;
    };
    Value whole = k.add(count, k.floorTo(k.sub(length, count), lanes));
    Values root{keysOf(at(k.index(0)).element)};
    root = k.loop(count, whole, lanes, root, [&](Value position, ValueRange carried) {
      Value keys = keysOf(k.loadVector(input, k.add(first, position), lanes));
      Value roots = vector::BroadcastOp::create(k.b, k.loc, keys.getType(), carried[0]);
      return k.branch(
          k.unlikely(k.any(compare(Predicate::sgt, keys, roots))), TypeRange(keyType),
          [&] {
            return k.loop(position, k.add(position, lanes), 1, carried,
                          [&](Value one, ValueRange inner) { return admit(one, inner[0]); });
          },
          [&]() -> Values { return {carried[0]}; });
    });
    k.loop(whole, length, 1, root, [&](Value position, ValueRange carried) { return admit(position, carried[0]); });
  }

  LaneBuilder &k;
  const TopKSpec &spec;
  Type element, keyType;
  Value input, values, positions, first, out, length, count;
  int64_t lanes;
};

std::string describe(MemRefType type) {
  std::string text;
  for (int64_t size : type.getShape())
    text += (ShapedType::isDynamic(size) ? std::string("n") : std::to_string(size)) + "x";
  llvm::raw_string_ostream(text) << type.getElementType();
  return text;
}

} // namespace

TopKSpec TopKSpec::get(TopKOp op, TargetAttr target) {
  auto bufferOf = [](Value tensor) {
    auto type = cast<RankedTensorType>(tensor.getType());
    return MemRefType::get(type.getShape(), type.getElementType());
  };
  return {bufferOf(op.getInput()), bufferOf(op.getValues()), bufferOf(op.getPositions()),
          op.getSmallest(),        op.getIsUnsigned(),       target.getF32Lanes()};
}

std::string TopKSpec::symbol() const {
  return llvm::formatv("top_{0}_{1}{2}_{3}_v{4}", describe(positions), smallest ? "least_" : "", isUnsigned ? "u" : "s",
                       describe(input), lanes);
}

bool canBuildTopK(const TopKSpec &spec, std::string *reason) {
  Type element = spec.input.getElementType();
  if (element.isF16() || element.isBF16() || element.isF32() || element.isF64() || element.isInteger(8) ||
      element.isInteger(16) || element.isInteger(32) || element.isInteger(64))
    return true;
  if (reason)
    *reason = "its element type has no kernel";
  return false;
}

FailureOr<func::FuncOp> buildTopK(OpBuilder &builder, Location loc, const TopKSpec &spec) {
  std::string reason;
  if (!canBuildTopK(spec, &reason))
    return emitError(loc, "cannot build a top-k kernel: ") << reason;
  auto type = builder.getFunctionType({spec.input, spec.values, spec.positions}, {});
  auto function = func::FuncOp::create(builder, loc, spec.symbol(), type);
  function->setAttr(AttnDialect::kKernelAttr, builder.getUnitAttr());
  function->setAttr(kPollsAttr, builder.getUnitAttr());
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(function.addEntryBlock());
  LaneBuilder k(builder, loc, spec.lanes, /*hasScalef=*/false);
  Value input = function.getArgument(0), rows = k.index(1);
  int64_t last = spec.input.getRank() - 1;
  for (int64_t n = 0; n < last; ++n)
    rows = k.mul(rows, builder.createOrFold<memref::DimOp>(loc, input, n));
  scf::ParallelOp::create(builder, loc, ValueRange{k.index(0)}, ValueRange{rows}, ValueRange{k.index(1)},
                          [&](OpBuilder &, Location, ValueRange position) {
                            Value length = builder.createOrFold<memref::DimOp>(loc, input, last);
                            Value places = builder.createOrFold<memref::DimOp>(loc, function.getArgument(1), last);
                            auto flat = llvm::map_to_vector(function.getArguments(),
                                                            [&](Value buffer) { return k.flatten(buffer); });
                            // Nothing to choose: an empty heap has no root. Places without an element hold 0.
                            RowSelection row(k, spec, flat, position[0], length, places);
                            k.loop(k.min(places, length), places, 1, [&](Value place) { row.clear(place); });
                            k.branch(k.less(k.index(0), k.min(places, length)), [&] { row.emit(); });
                          });
  func::ReturnOp::create(builder, loc);
  return function;
}

} // namespace attn
