#include "passes/kernels/gpu/Rows.h"

#include "passes/kernels/gpu/ThreadCode.h"
#include <limits>

using namespace mlir;

namespace attn {

func::FuncOp buildGpuRange(OpBuilder &builder, Location loc, StringRef symbol, MemRefType type) {
  constexpr int64_t kThreads = 256, kAtOnce = 4, kWarps = kThreads / 32, kPart = kThreads * kAtOnce;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  KernelFunction f(builder, loc, symbol);
  ThreadCode k(builder, loc);
  Type f32 = builder.getF32Type();
  Buffer from = f.buffer(type), parts = f.buffer({2, kGpuRangeParts}, f32);
  Buffer greatest = f.buffer({}, f32), least = f.buffer({}, f32);
  Index count = k.index(1);
  for (int64_t n = 0; n < type.getRank(); ++n)
    count = count * from.dim(n);
  Index blocks = minimum(ceilDiv(count, kPart), kGpuRangeParts);
  Buffer flat = from.flat();
  Num nothing[] = {k.f32(-kInfinity), k.f32(kInfinity)};
  auto join = [](int64_t n, const Num &x, const Num &y) { return n ? minimum(x, y) : maximum(x, y); };
  /// Of the block, and `store` has the first thread.
  auto acrossBlock = [&](const Nums &mine, const Buffer &shared, llvm::function_ref<void(int64_t, Num)> store) {
    for (int64_t n = 0; n < 2; ++n) {
      Num all = k.acrossBlock(mine[n], kThreads, shared, [&](Num x, Num y) { return join(n, x, y); });
      k.when(k.thread < 1, [&] { store(n, all); });
    }
  };
  {
    OpBuilder::InsertionGuard guard(builder);
    Buffer shared = k.launch(blocks, kThreads, {kWarps})[0];
    Nums mine = k.loop(k.block * kPart + k.thread, count, blocks * kPart, Nums{nothing[0], nothing[1]},
                       [&](Index first, Nums now) {
                         for (int64_t n = 0; n < kAtOnce; ++n) {
                           // One that is not there is another one.
                           Num x = flat(n ? minimum(first + n * kThreads, count - 1) : first);
                           now = {join(0, now[0], x), join(1, now[1], x)};
                         }
                         return now;
                       });
    acrossBlock(mine, shared, [&](int64_t n, Num all) { parts.set(all, n, k.block); });
  }
  OpBuilder::InsertionGuard guard(builder);
  Buffer shared = k.launch(k.index(1), kThreads, {kWarps})[0];
  Nums mine = k.loop(k.thread, blocks, kThreads, Nums{nothing[0], nothing[1]}, [&](Index at, Nums now) {
    return Nums{join(0, now[0], parts(0, at)), join(1, now[1], parts(1, at))};
  });
  acrossBlock(mine, shared, [&](int64_t n, Num all) { (n ? least : greatest).set(all); });
  return f.function;
}

} // namespace attn
