#include "passes/kernels/cpu/Range.h"
#include "passes/kernels/cpu/LaneBuilder.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/FormatVariadic.h"
#include <limits>

using namespace mlir;

namespace attn {
namespace {

using Values = LaneBuilder::Values;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
/// Vectors of one extreme that are at work at once.
constexpr int64_t kUnroll = 4;

class RangeEmitter {
public:
  RangeEmitter(OpBuilder &builder, Location loc, const RangeSpec &spec)
      : k(builder, loc, spec.lanes, /*hasScalef=*/false), spec(spec) {}

  func::FuncOp emit();

private:
  Value greater(Value x, Value y) { return arith::MaximumFOp::create(k.b, k.loc, x, y); }
  Value less(Value x, Value y) { return arith::MinimumFOp::create(k.b, k.loc, x, y); }
  /// The extremes of [begin, end) of `flat`, one in every lane of its vector.
  std::pair<Value, Value> reduce(Value flat, Value begin, Value end);
  void store(Value vector, Value flat, Value offset) {
    memref::StoreOp::create(k.b, k.loc, k.extract(vector, 0), flat, offset);
  }

  LaneBuilder k;
  const RangeSpec &spec;
};

std::pair<Value, Value> RangeEmitter::reduce(Value flat, Value begin, Value end) {
  int64_t lanes = spec.lanes, step = kUnroll * lanes;
  Value size = k.sub(end, begin);
  Value wide = k.add(begin, k.floorTo(size, step)), whole = k.add(begin, k.floorTo(size, lanes));
  Values sums(kUnroll, k.splat(-kInfinity));
  sums.append(kUnroll, k.splat(kInfinity));
  sums = k.loop(begin, wide, step, sums, [&](Value first, ValueRange carried) {
    Values next(carried);
    for (int64_t n = 0; n < kUnroll; ++n) {
      Value x = k.loadVector(flat, k.add(first, n * lanes));
      next[n] = greater(next[n], x);
      next[kUnroll + n] = less(next[kUnroll + n], x);
    }
    return next;
  });
  auto most = [&](Value x, Value y) { return greater(x, y); };
  auto least = [&](Value x, Value y) { return less(x, y); };
  Values both{k.tree(ArrayRef(sums).take_front(kUnroll), most), k.tree(ArrayRef(sums).drop_front(kUnroll), least)};
  both = k.loop(wide, whole, lanes, both, [&](Value first, ValueRange carried) -> Values {
    Value x = k.loadVector(flat, first);
    return {greater(carried[0], x), less(carried[1], x)};
  });
  both = k.loop(whole, end, 1, both, [&](Value at, ValueRange carried) -> Values {
    Value x = k.broadcast(k.load(flat, at));
    return {greater(carried[0], x), less(carried[1], x)};
  });
  return {k.acrossLanes(both[0], most), k.acrossLanes(both[1], least)};
}

func::FuncOp RangeEmitter::emit() {
  OpBuilder &b = k.b;
  auto scalar = MemRefType::get({}, b.getF32Type()), parts = MemRefType::get({2, RangeSpec::kParts}, b.getF32Type());
  auto function =
      func::FuncOp::create(b, k.loc, spec.symbol(), b.getFunctionType({spec.type, parts, scalar, scalar}, {}));
  function.setPrivate();
  function->setAttr(AttnDialect::kKernelAttr, b.getUnitAttr());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(function.addEntryBlock());
  Value input = k.flatten(function.getArgument(0)), results = k.flatten(function.getArgument(1));
  Value size = b.createOrFold<memref::DimOp>(k.loc, input, 0);
  // Parts of whole steps, so that only one has a tail.
  int64_t step = kUnroll * spec.lanes;
  Value length = k.mul(k.ceilDiv(k.ceilDiv(size, RangeSpec::kParts), step), step);
  auto parallel = scf::ParallelOp::create(b, k.loc, ValueRange{k.index(0)}, ValueRange{k.index(RangeSpec::kParts)},
                                          ValueRange{k.index(1)});
  b.setInsertionPointToStart(parallel.getBody());
  Value part = parallel.getInductionVars()[0], begin = k.min(k.mul(part, length), size);
  auto [most, least] = reduce(input, begin, k.min(k.add(begin, length), size));
  store(most, results, part);
  store(least, results, k.add(part, RangeSpec::kParts));
  b.setInsertionPointToEnd(&function.front());
  auto finish = [&](int64_t row, Value result, float neutral, llvm::function_ref<Value(Value, Value)> combine) {
    Value all = k.splat(neutral);
    for (int64_t n = 0; n < RangeSpec::kParts; n += spec.lanes)
      all = combine(all, k.loadVector(results, k.index(row * RangeSpec::kParts + n)));
    memref::StoreOp::create(b, k.loc, k.extract(k.acrossLanes(all, combine), 0), result, ValueRange());
  };
  finish(0, function.getArgument(2), -kInfinity, [&](Value x, Value y) { return greater(x, y); });
  finish(1, function.getArgument(3), kInfinity, [&](Value x, Value y) { return less(x, y); });
  func::ReturnOp::create(b, k.loc);
  return function;
}

} // namespace

RangeSpec RangeSpec::get(Value tensor, TargetAttr target) {
  auto type = cast<RankedTensorType>(tensor.getType());
  return {MemRefType::get(type.getShape(), type.getElementType()), target.getF32Lanes()};
}

std::string RangeSpec::symbol() const {
  std::string name = "range_f32";
  for (int64_t size : type.getShape())
    name += "_" + (ShapedType::isDynamic(size) ? std::string("n") : std::to_string(size));
  return name + "_v" + std::to_string(lanes);
}

bool canBuildRange(const RangeSpec &spec, std::string *reason) {
  if (spec.type && spec.type.getElementType().isF32() && spec.type.getRank() > 0 && spec.lanes > 0 &&
      RangeSpec::kParts % spec.lanes == 0)
    return true;
  if (reason)
    *reason = "it is not of f32, or of rank 0";
  return false;
}

FailureOr<func::FuncOp> buildRange(OpBuilder &builder, Location loc, const RangeSpec &spec) {
  std::string reason;
  if (!canBuildRange(spec, &reason))
    return emitError(loc, "cannot build a range kernel: ") << reason;
  return RangeEmitter(builder, loc, spec).emit();
}

} // namespace attn
