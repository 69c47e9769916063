// What the best labels of frames spell.
#include "passes/kernels/gpu/Search.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/gpu/ThreadCode.h"
#include "passes/kernels/shared/KernelFunction.h"

using namespace mlir;
using namespace attn;

// A warp takes 32 frames of its item at once: a frame counts if its label is neither the blank nor that of the frame
// before, and its place is the number of those that count before it.
func::FuncOp attn::buildGpuCtcGreedy(OpBuilder &b, Location loc, StringRef symbol, const CtcKernelSpec &spec) {
  constexpr int64_t kWarp = 32, kDynamic = ShapedType::kDynamic, kBytes = 8;
  KernelFunction f(b, loc, symbol);
  Code &k = f.k;
  Type f32 = b.getF32Type(), f64 = b.getF64Type(), i32 = b.getI32Type(), i64 = b.getI64Type();
  Buffer values = f.buffer({kDynamic, 1}, f32), best = f.buffer({kDynamic, 1}, i64);
  Buffer logSums = f.buffer({kDynamic}, f32), frames = f.buffer({kDynamic}, i64);
  Buffer labels = f.buffer({kDynamic, 1, kDynamic}, i64), lengths = f.buffer({kDynamic, 1}, i64);
  Buffer totals = f.buffer({kDynamic, 1}, f32), flags = f.buffer({kDynamic, 2}, i64);
  Index items = labels.dim(0), most = labels.dim(2);
  ThreadCode warp(b, loc);
  Buffer bytes = warp.launch(items, kWarp, {}, {}, kWarp * kBytes)[0];
  Index item = warp.block, lane = warp.thread;

  // Bit n of what is returned is lane n's.
  auto vote = [&](const Mask &bit) {
    return k.asNum(NVVM::VoteSyncOp::create(b, loc, i32, k.i32(-1), bit, NVVM::VoteSyncKind::ballot));
  };
  auto count = [&](const Num &bits) { return toIndex(convertUnsigned(countOnes(bits), i64)); };
  auto rowOf = [&](const Index &time) { return spec.timeMajor ? time * items + item : item * most + time; };

  Num given = frames(item);
  Mask isWrong = (given < 0) | (given > toNum(most, i64));
  Index length = toIndex(select(isWrong, k.i64(0), given));
  k.loop(lane, most, kWarp, [&](Index at) { labels.set(k.i64(spec.blank), item, 0, at); });
  warp.warpBarrier();

  Num below = (k.i32(1) << toNum(lane, i32)) - 1;
  auto [places, bad, part] = k.loop(
      0, length, kWarp, std::tuple(k.index(0), k.i32(0), k.f64(0)), [&](Index first, Index places, Num bad, Num part) {
        Index time = first + lane;
        Mask isInside = time < length, isFirst = time == 0;
        Index row = rowOf(select(isInside, time, k.index(0)));
        Num label = best(row, 0);
        // Of frame 0 any other will do.
        Num before = best(rowOf(select(isFirst | !isInside, k.index(0), time - 1)), 0);
        before = select(isFirst, k.i64(spec.blank), before);
        Mask counts = (label != before) & (label != spec.blank) & isInside;
        Num bits = vote(counts);
        k.when(counts, [&] { labels.set(label, item, 0, places + count(bits & below)); });
        Num logSum = logSums(row);
        Mask isBad = (logSum - logSum) != 0.0;
        Num score = convert(values(row, 0) - logSum, f64);
        return std::tuple(places + count(bits), bad | vote(isBad & isInside), part + select(isInside, score, k.f64(0)));
      });

  auto type = MemRefType::get({kWarp}, f64, MemRefLayoutAttrInterface(), bytes.memref().getMemorySpace());
  Buffer parts = k.asBuffer(memref::ViewOp::create(b, loc, type, bytes, k.index(0), ValueRange()));
  parts.set(part, lane);
  warp.warpBarrier();
  Num spelled = toNum(places, i64), isBad = toNum(bad != 0, i64);
  k.when(lane == 0, [&] {
    Num total = k.loop(0, kWarp, 1, k.f64(0), [&](Index n, Num sum) { return sum + parts(n); });
    totals.set(convert(total, f32), item, 0);
    lengths.set(spelled, item, 0);
    flags.set(isBad, item, 0);
    flags.set(toNum(isWrong, i64), item, 1);
  });
  return f.function;
}
