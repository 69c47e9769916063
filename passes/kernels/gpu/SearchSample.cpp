// One token drawn from each row of scores.
#include "passes/kernels/gpu/Search.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/gpu/SearchRows.h"
#include <limits>

using namespace mlir;
using namespace attn;

using Values = LaneBuilder::Values;

namespace {
constexpr int64_t kThreads = ScoreRow::kThreads, kWarp = 32, kBytes = 8;
constexpr int32_t kNone = std::numeric_limits<int32_t>::max();

class SampleEmitter {
public:
  SampleEmitter(OpBuilder &b, Location loc, const SearchKernelSpec &spec) : b(b), loc(loc), spec(spec), k(b, loc) {}

  func::FuncOp emit(StringRef symbol) {
    constexpr int64_t kDynamic = ShapedType::kDynamic;
    OpBuilder::InsertionGuard guard(b);
    auto matrix = MemRefType::get({kDynamic, kDynamic}, f32);
    func::FuncOp function =
        k.function(symbol, {matrix, b.getI1Type(), i64, MemRefType::get({kDynamic, 1}, f32),
                            MemRefType::get({kDynamic, 1}, i64), MemRefType::get({kDynamic}, f32), matrix});
    Value scores = function.getArgument(0), values = function.getArgument(3), tokens = function.getArgument(4);
    weights = function.getArgument(6);
    Value rows = b.createOrFold<memref::DimOp>(loc, scores, 0);
    size = b.createOrFold<memref::DimOp>(loc, scores, 1);
    Values arrays = k.launch(rows, kThreads, {kThreads / kWarp}, {}, (kThreads + kWarp) * kBytes);
    shared = arrays[0];
    auto space = cast<MemRefType>(arrays[1].getType()).getMemorySpace();
    auto wide = MemRefType::get({kThreads + kWarp}, f64, MemRefLayoutAttrInterface(), space);
    parts = memref::ViewOp::create(b, loc, wide, arrays[1], k.index(0), ValueRange());

    ScoreRow row(k, spec, scores, size, shared);
    Value top = row.logSum(function.getArgument(5));
    Value temperature = k.scalar(static_cast<float>(spec.temperature));
    k.loop(k.thread, size, kThreads, [&](Value n) {
      Value x = math::ExpOp::create(b, loc, k.divf(k.subf(row.element(n), top), temperature));
      Value banned = k.both(row.isEnd(arith::IndexCastOp::create(b, loc, i32, n)), function.getArgument(1));
      memref::StoreOp::create(b, loc, k.select(banned, k.scalar(0), x), weights, ValueRange{k.block, n});
    });
    k.barrier();
    Value pick = draw(leastWeight(), uniform(function.getArgument(2)));
    k.branch(compare(Predicate::eq, k.thread, k.index(0)), [&] {
      memref::StoreOp::create(b, loc, row.element(pick), values, ValueRange{k.block, k.index(0)});
      memref::StoreOp::create(b, loc, arith::IndexCastOp::create(b, loc, i64, pick), tokens,
                              ValueRange{k.block, k.index(0)});
    });
    return function;
  }

private:
  using Predicate = arith::CmpIPredicate;
  Value word(int64_t value) { return arith::ConstantIntOp::create(b, loc, value, 64); }
  Value number(int32_t value) { return arith::ConstantIntOp::create(b, loc, value, 32); }
  Value real(double value) { return arith::ConstantOp::create(b, loc, b.getF64FloatAttr(value)); }
  Value compare(Predicate predicate, Value x, Value y) { return arith::CmpIOp::create(b, loc, predicate, x, y); }
  Value floats(arith::CmpFPredicate predicate, Value x, Value y) {
    return arith::CmpFOp::create(b, loc, predicate, x, y);
  }
  Value add(Value x, Value y) { return arith::AddFOp::create(b, loc, x, y); }
  Value weightAt(Value n) { return memref::LoadOp::create(b, loc, weights, ValueRange{k.block, n}); }
  Value part(Value n) { return memref::LoadOp::create(b, loc, parts, n); }
  Value asBar(Value bits) { return arith::BitcastOp::create(b, loc, f32, bits); }
  /// `weight` if it is at least `bar`, else 0.
  Value kept(Value weight, Value bar) {
    Value stays = floats(arith::CmpFPredicate::OGE, weight, bar);
    return k.select(stays, arith::ExtFOp::create(b, loc, f64, weight), real(0));
  }

  /// Of all threads of the block: 256 parts by 32 threads, these by all.
  Value sumAcross(Value x) {
    constexpr int64_t kEach = kThreads / kWarp;
    auto sum = [&](Value first, int64_t count) {
      return k.loop(k.index(0), k.index(count), 1, {real(0)},
                    [&](Value n, ValueRange sums) { return Values{add(sums[0], part(k.add(first, n)))}; })[0];
    };
    memref::StoreOp::create(b, loc, x, parts, k.thread);
    k.barrier();
    k.branch(k.less(k.thread, k.index(kWarp)), [&] {
      Value few = sum(k.mul(k.thread, kEach), kEach);
      memref::StoreOp::create(b, loc, few, parts, k.add(k.thread, kThreads));
    });
    k.barrier();
    return sum(k.index(kThreads), kWarp);
  }

  Value massFrom(Value bar) {
    Value mine = k.loop(k.thread, size, kThreads, {real(0)},
                        [&](Value n, ValueRange sums) { return Values{add(sums[0], kept(weightAt(n), bar))}; })[0];
    return sumAcross(mine);
  }

  /// Weights are not negative, so their bits are in their order: the greatest bits from `low` on of which `isEnough`.
  Value search(Value low, llvm::function_ref<Value(Value)> isEnough) {
    Value high = number(llvm::bit_cast<int32_t>(1.0f)), one = number(1);
    return k.repeat(
        {low, high}, [&](ValueRange ends) { return compare(Predicate::slt, ends[0], ends[1]); },
        [&](ValueRange ends) {
          Value sum = arith::AddIOp::create(b, loc, arith::AddIOp::create(b, loc, ends[0], ends[1]), one);
          Value middle = arith::ShRUIOp::create(b, loc, sum, one);
          Value enough = isEnough(asBar(middle)), below = arith::SubIOp::create(b, loc, middle, one);
          return Values{k.select(enough, middle, ends[0]), k.select(enough, ends[1], below)};
        })[0];
  }

  /// What a weight must be at least to be drawn.
  Value leastWeight() {
    Value least = number(0);
    if (spec.topK > 0) {
      Value all = arith::IndexCastOp::create(b, loc, i64, size);
      Value limit = arith::TruncIOp::create(b, loc, i32, arith::MinSIOp::create(b, loc, word(spec.topK), all));
      least = search(least, [&](Value bar) -> Value {
        Value mine = k.loop(k.thread, size, kThreads, {number(0)}, [&](Value n, ValueRange counts) {
          Value stays = floats(arith::CmpFPredicate::OGE, weightAt(n), bar);
          return Values{arith::AddIOp::create(b, loc, counts[0], arith::ExtUIOp::create(b, loc, i32, stays))};
        })[0];
        Value count = k.acrossBlock(mine, kThreads, shared,
                                    [&](Value x, Value y) -> Value { return arith::AddIOp::create(b, loc, x, y); });
        return compare(Predicate::sge, count, limit);
      });
    }
    if (spec.topP < 1) {
      Value wanted = arith::MulFOp::create(b, loc, massFrom(asBar(least)), real(spec.topP));
      least = search(least, [&](Value bar) { return floats(arith::CmpFPredicate::OGE, massFrom(bar), wanted); });
    }
    return asBar(least);
  }

  /// A number in [0, 1) that seed, row and step determine.
  Value uniform(Value step) {
    auto mix = [&](Value x, int64_t shift) -> Value {
      return arith::XOrIOp::create(b, loc, x, arith::ShRUIOp::create(b, loc, x, word(shift)));
    };
    auto times = [&](Value x, uint64_t factor) -> Value {
      return arith::MulIOp::create(b, loc, x, word(static_cast<int64_t>(factor)));
    };
    Value hash = word(0), row = arith::IndexCastOp::create(b, loc, i64, k.block);
    for (Value term : {word(spec.seed), row, step}) {
      Value z = arith::AddIOp::create(b, loc, hash, term);
      z = arith::AddIOp::create(b, loc, z, word(static_cast<int64_t>(0x9e3779b97f4a7c15)));
      hash = mix(times(mix(times(mix(z, 30), 0xbf58476d1ce4e5b9), 27), 0x94d049bb133111eb), 31);
    }
    Value bits = arith::ShRUIOp::create(b, loc, hash, word(11));
    return arith::MulFOp::create(b, loc, arith::UIToFPOp::create(b, loc, f64, bits), real(0x1p-53));
  }

  /// The first token at which the sum of what is kept passes its part `u`; the last that is kept, should rounding leave
  /// none. A thread has a piece of the row.
  Value draw(Value bar, Value u) {
    Value piece = k.ceilDiv(size, kThreads);
    Value begin = k.min(k.mul(k.thread, piece), size), end = k.min(k.add(begin, piece), size);
    Value mine = k.loop(begin, end, 1, {real(0)},
                        [&](Value n, ValueRange sums) { return Values{add(sums[0], kept(weightAt(n), bar))}; })[0];
    k.barrier(); // the sums before have been read
    memref::StoreOp::create(b, loc, mine, parts, k.thread);
    k.barrier();
    Values sums = k.loop(k.index(0), k.index(kThreads), 1, {real(0), real(0)}, [&](Value n, ValueRange carried) {
      Value each = part(n), before = k.select(k.less(n, k.thread), each, real(0));
      return Values{add(carried[0], before), add(carried[1], each)};
    });
    Value target = arith::MulFOp::create(b, loc, u, sums[1]);
    Values found = k.loop(begin, end, 1, {sums[0], number(kNone), number(-1)}, [&](Value n, ValueRange carried) {
      Value weight = weightAt(n), sum = add(carried[0], kept(weight, bar));
      Value stays = k.both(floats(arith::CmpFPredicate::OGE, weight, bar),
                           floats(arith::CmpFPredicate::OGT, weight, k.scalar(0)));
      Value token = arith::IndexCastOp::create(b, loc, i32, n);
      Value passes = k.both(stays, floats(arith::CmpFPredicate::OGT, sum, target));
      Value first = arith::MinSIOp::create(b, loc, carried[1], k.select(passes, token, number(kNone)));
      return Values{sum, first, k.select(stays, token, carried[2])};
    });
    Value first = k.acrossBlock(found[1], kThreads, shared,
                                [&](Value x, Value y) -> Value { return arith::MinSIOp::create(b, loc, x, y); });
    Value last = k.acrossBlock(found[2], kThreads, shared,
                               [&](Value x, Value y) -> Value { return arith::MaxSIOp::create(b, loc, x, y); });
    last = arith::MaxSIOp::create(b, loc, last, number(0));
    Value pick = k.select(compare(Predicate::eq, first, number(kNone)), last, first);
    return arith::IndexCastOp::create(b, loc, b.getIndexType(), pick);
  }

  OpBuilder &b;
  Location loc;
  const SearchKernelSpec &spec;
  BlockBuilder k;
  Type f32 = b.getF32Type(), f64 = b.getF64Type(), i32 = b.getI32Type(), i64 = b.getI64Type();
  Value weights, size, shared, parts;
};
} // namespace

func::FuncOp attn::buildGpuSearchSample(OpBuilder &b, Location loc, StringRef symbol, const SearchKernelSpec &spec) {
  return SampleEmitter(b, loc, spec).emit(symbol);
}
