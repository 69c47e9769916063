// What the best labels of frames spell.
#include "passes/kernels/gpu/Search.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/gpu/BlockBuilder.h"

using namespace mlir;
using namespace attn;

using Values = LaneBuilder::Values;

// A warp takes 32 frames of its item at once: a frame counts if its label is neither the blank nor that of the frame
// before, and its place is the number of those that count before it.
func::FuncOp attn::buildGpuCtcGreedy(OpBuilder &b, Location loc, StringRef symbol, const CtcKernelSpec &spec) {
  constexpr int64_t kWarp = 32, kDynamic = ShapedType::kDynamic, kBytes = 8;
  OpBuilder::InsertionGuard guard(b);
  BlockBuilder k(b, loc);
  Type f32 = b.getF32Type(), f64 = b.getF64Type(), i32 = b.getI32Type(), i64 = b.getI64Type();
  func::FuncOp function =
      k.function(symbol, {MemRefType::get({kDynamic, 1}, f32), MemRefType::get({kDynamic, 1}, i64),
                          MemRefType::get({kDynamic}, f32), MemRefType::get({kDynamic}, i64),
                          MemRefType::get({kDynamic, 1, kDynamic}, i64), MemRefType::get({kDynamic, 1}, i64),
                          MemRefType::get({kDynamic, 1}, f32), MemRefType::get({kDynamic, 2}, i64)});
  auto arguments = function.getArguments();
  Value values = arguments[0], best = arguments[1], logSums = arguments[2], frames = arguments[3],
        labels = arguments[4], lengths = arguments[5], totals = arguments[6], flags = arguments[7];
  Value items = b.createOrFold<memref::DimOp>(loc, labels, 0), most = b.createOrFold<memref::DimOp>(loc, labels, 2);
  Value bytes = k.launch(items, kWarp, {}, {}, kWarp * kBytes)[0];

  using Predicate = arith::CmpIPredicate;
  Value zero = k.index(0), one = k.index(1), item = k.block, lane = k.thread;
  auto word = [&](int64_t value) -> Value { return arith::ConstantIntOp::create(b, loc, value, 64); };
  auto load = [&](Value buffer, ValueRange at) -> Value { return memref::LoadOp::create(b, loc, buffer, at); };
  auto store = [&](Value value, Value buffer, ValueRange at) { memref::StoreOp::create(b, loc, value, buffer, at); };
  auto compare = [&](Predicate predicate, Value x, Value y) -> Value {
    return arith::CmpIOp::create(b, loc, predicate, x, y);
  };
  auto toWord = [&](Value x) -> Value { return arith::IndexCastOp::create(b, loc, i64, x); };
  // Bit n of what is returned is lane n's.
  auto vote = [&](Value bit) -> Value {
    return NVVM::VoteSyncOp::create(b, loc, i32, arith::ConstantIntOp::create(b, loc, -1, 32), bit,
                                    NVVM::VoteSyncKind::ballot);
  };
  auto countBits = [&](Value bits) -> Value {
    Value count = math::CtPopOp::create(b, loc, bits);
    return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), count);
  };

  Value blank = word(spec.blank), given = load(frames, item);
  Value isWrong = k.either(compare(Predicate::slt, given, word(0)), compare(Predicate::sgt, given, toWord(most)));
  Value count = arith::IndexCastOp::create(b, loc, b.getIndexType(), k.select(isWrong, word(0), given));
  k.loop(lane, most, kWarp, [&](Value at) { store(blank, labels, {item, zero, at}); });
  k.warpBarrier();

  auto rowOf = [&](Value time) {
    return spec.timeMajor ? k.add(k.mul(time, items), item) : k.add(k.mul(item, most), time);
  };
  Value narrowLane = arith::IndexCastOp::create(b, loc, i32, lane);
  Value unit = arith::ConstantIntOp::create(b, loc, 1, 32);
  Value below = arith::SubIOp::create(b, loc, arith::ShLIOp::create(b, loc, unit, narrowLane), unit);
  Value nothing = arith::ConstantOp::create(b, loc, b.getF64FloatAttr(0));
  Value none = arith::ConstantIntOp::create(b, loc, 0, 32);
  Values found = k.loop(zero, count, kWarp, {zero, none, nothing}, [&](Value first, ValueRange carried) {
    Value time = k.add(first, lane), isInside = k.less(time, count);
    Value row = rowOf(k.select(isInside, time, zero));
    Value label = load(best, {row, zero});
    // Of frame 0 any other will do.
    Value isFirst = compare(Predicate::eq, time, zero);
    Value previous = load(
        best, {rowOf(k.select(k.either(isFirst, compare(Predicate::sge, time, count)), zero, k.sub(time, one))), zero});
    previous = k.select(isFirst, blank, previous);
    Value counts = k.both(compare(Predicate::ne, label, previous), compare(Predicate::ne, label, blank));
    counts = k.both(counts, isInside);
    Value bits = vote(counts);
    Value place = k.add(carried[0], countBits(arith::AndIOp::create(b, loc, bits, below)));
    k.branch(counts, [&] { store(label, labels, {item, zero, place}); });
    Value logSum = load(logSums, row), zerof = k.scalar(0);
    Value isBad = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, k.subf(logSum, logSum), zerof);
    Value bad = arith::OrIOp::create(b, loc, carried[1], vote(k.both(isBad, isInside)));
    Value p = arith::ExtFOp::create(b, loc, f64, k.subf(load(values, {row, zero}), logSum));
    Value sum = arith::AddFOp::create(b, loc, carried[2], k.select(isInside, p, nothing));
    return Values{k.add(carried[0], countBits(bits)), bad, sum};
  });

  Value parts = memref::ViewOp::create(
      b, loc,
      MemRefType::get({kWarp}, f64, MemRefLayoutAttrInterface(), cast<MemRefType>(bytes.getType()).getMemorySpace()),
      bytes, zero, ValueRange());
  store(found[2], parts, lane);
  k.warpBarrier();
  k.branch(compare(Predicate::eq, lane, zero), [&] {
    Value total = k.loop(zero, k.index(kWarp), 1, {nothing}, [&](Value n, ValueRange sum) {
      return Values{arith::AddFOp::create(b, loc, sum[0], load(parts, n))};
    })[0];
    store(arith::TruncFOp::create(b, loc, f32, total), totals, {item, zero});
    store(toWord(found[0]), lengths, {item, zero});
    store(arith::ExtUIOp::create(b, loc, i64, compare(Predicate::ne, found[1], none)), flags, {item, zero});
    store(arith::ExtUIOp::create(b, loc, i64, isWrong), flags, {item, one});
  });
  return function;
}
