#include "passes/kernels/gpu/SearchRows.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "passes/kernels/gpu/Search.h"
#include <limits>

using namespace mlir;
using namespace attn;

static constexpr int64_t kWarp = 32, kDynamic = ShapedType::kDynamic;
static constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
static constexpr double kInfinity = std::numeric_limits<double>::infinity();

//===----------------------------------------------------------------------===//
// Threads of a block
//===----------------------------------------------------------------------===//

BlockTeam BlockTeam::launch(KernelFunction &f, const Index &rows, int64_t threads) {
  constexpr int64_t kBytes = 8;
  const int64_t numParts = threads + kWarp;
  Code &k = f.k;
  ThreadCode block(k.b, k.loc);
  SmallVector<Buffer> arrays = block.launch(rows, threads, {threads / kWarp}, {}, numParts * kBytes);
  auto type =
      MemRefType::get({numParts}, k.b.getF64Type(), MemRefLayoutAttrInterface(), arrays[1].memref().getMemorySpace());
  Value parts = memref::ViewOp::create(k.b, k.loc, type, arrays[1], k.index(0), ValueRange());
  return BlockTeam(k, block, threads, arrays[0], k.asBuffer(parts));
}

Num BlockTeam::across(const Num &mine, llvm::function_ref<Num(Num, Num)> combine) {
  return block.acrossBlock(mine, threads, words, combine);
}

Num BlockTeam::greatest(const Num &mine) {
  return across(mine, [](Num x, Num y) { return maximum(x, y); });
}
Num BlockTeam::least(const Num &mine) {
  return across(mine, [](Num x, Num y) { return minimum(x, y); });
}

Num BlockTeam::sumOfParts(Index first, int64_t count) {
  return k.loop(0, count, 1, k.f64(0), [&](Index n, Num sum) { return sum + parts(first + n); });
}

// f64: parts of all threads by 32 of them, these by all.
Num BlockTeam::sum(const Num &mine) {
  if (!mine.type().isF64())
    return across(mine, [](Num x, Num y) { return x + y; });
  const int64_t each = threads / kWarp;
  parts.set(mine, thread);
  wait();
  k.when(thread < kWarp, [&] { parts.set(sumOfParts(thread * each, each), thread + threads); });
  wait();
  return sumOfParts(k.index(threads), kWarp);
}

std::pair<Num, Num> BlockTeam::sumsBefore(const Num &mine) {
  wait(); // the sums before have been read
  parts.set(mine, thread);
  wait();
  auto [before, all] = k.loop(0, threads, 1, std::tuple(k.f64(0), k.f64(0)), [&](Index n, Num before, Num all) {
    Num each = parts(n);
    return std::tuple(before + select(n < thread, each, k.f64(0)), all + each);
  });
  return {before, all};
}

//===----------------------------------------------------------------------===//
// Rows of scores
//===----------------------------------------------------------------------===//

// Candidates come one after the other: the best of those that come after the
// last one in order, by value and then by place. A sweep over the row for each.
func::FuncOp attn::buildGpuSearchRows(OpBuilder &b, Location loc, StringRef symbol, const SearchKernelSpec &spec) {
  KernelFunction f(b, loc, symbol);
  Code &k = f.k;
  Type f32 = b.getF32Type(), i64 = b.getI64Type(), i32 = b.getI32Type();
  int64_t candidates = spec.candidates();
  Buffer scores = f.buffer({kDynamic, kDynamic}, f32);
  Mask noEnd = f.truth();
  Buffer values = f.buffer({kDynamic, candidates}, f32), tokens = f.buffer({kDynamic, candidates}, i64);
  Buffer logSums = f.buffer({kDynamic}, f32);
  Index size = scores.dim(1);
  constexpr int64_t kThreads = 1024;
  BlockTeam team = BlockTeam::launch(f, scores.dim(0), kThreads);
  LogSum sum = logSum(team, size, [&](Index n) { return scores(team.row, n); });
  team.once([&] { logSums.set(sum.value, team.row); });
  k.loop(0, candidates, 1, std::tuple(k.f32(kInfinity), k.i32(-1)), [&](Index n, Num last, Num lastPlace) {
    auto mine = team.sweep(size, std::tuple(k.f32(-kInfinity), k.i32(kNone)), [&](Index at, Num best, Num bestAt) {
      Num x = scores(team.row, at), token = toNum(at, i32);
      Mask follows = (x < last) | ((x == last) & (token > lastPlace));
      Mask isBetter = follows & (x > best) & !(isEnd(k, spec.eos, token) & noEnd);
      return std::tuple(select(isBetter, x, best), select(isBetter, token, bestAt));
    });
    Num value = team.greatest(std::get<0>(mine));
    Num place = team.least(select(std::get<0>(mine) == value, std::get<1>(mine), k.i32(kNone)));
    team.once([&] {
      values.set(value, team.row, n);
      tokens.set(convert(select(place == kNone, k.i32(0), place), i64), team.row, n);
    });
    return std::tuple(value, place);
  });
  return f.function;
}

func::FuncOp attn::buildGpuSearchSample(OpBuilder &b, Location loc, StringRef symbol, const SearchKernelSpec &spec) {
  KernelFunction f(b, loc, symbol);
  Buffer logSums;
  SampledRow row = sampledRow(f, logSums);
  constexpr int64_t kThreads = 256; // their parts are summed up one after the other
  BlockTeam team = BlockTeam::launch(f, row.scores.dim(0), kThreads);
  row.row = team.row;
  LogSum sum = logSum(team, row.size, [&](Index n) { return row.scores(row.row, n); });
  team.once([&] { logSums.set(sum.value, row.row); });
  drawToken(team, spec, row, sum.greatest);
  return f.function;
}
