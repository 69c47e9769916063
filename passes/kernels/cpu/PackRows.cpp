#include "passes/kernels/cpu/PackRows.h"

#include "passes/kernels/cpu/IntegerGemm.h"
#include "passes/kernels/shared/KernelFunction.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn {

SmallVector<int64_t> PackRowsSpec::shape() const {
  constexpr int64_t kDynamic = ShapedType::kDynamic;
  return {kDynamic, kDynamic, ShapedType::isDynamic(k) ? kDynamic : static_cast<int64_t>(llvm::divideCeil(k, kDepth)),
          kRows * kDepth};
}

std::string PackRowsSpec::symbol() const { return llvm::formatv("pack_rows_m{0}_k{1}", sizeText(m), sizeText(k)); }

func::FuncOp buildPackRows(OpBuilder &b, Location loc, const PackRowsSpec &spec) {
  KernelFunction f(b, loc, spec.symbol());
  f.function.setPrivate();
  Code &k = f.k;
  constexpr int64_t kDepth = PackRowsSpec::kDepth, kRows = PackRowsSpec::kRows;
  Type i8 = b.getI8Type();
  Buffer a = f.buffer({spec.m, spec.k}, i8), packed = f.buffer(spec.shape(), i8),
         sums = f.buffer({spec.m}, b.getI32Type());
  Index rows = a.dim(0), depth = a.dim(1), perMatrix = rows / maximum(packed.dim(0), 1);
  Mask hasTiles = k.asMask(HasTilesOp::create(b, loc, b.getI1Type()));
  hasTiles = hasTiles & (perMatrix >= IntegerGemmSpec::kFewestTileRows);
  k.parallel(select(hasTiles, rows, k.index(0)), [&](Index row) {
    Index matrix = row / perMatrix, inMatrix = row % perMatrix;
    Index block = inMatrix / kRows, line = inMatrix % kRows * kDepth, whole = depth / kDepth;
    Vec ones = k.splat(k.number(i8, int64_t(1)), kDepth), total = k.splat(k.i32(0), kDepth / 4);
    auto take = [&](const Vec &bytes, const Index &step, const Vec &total) {
      packed.setVector(bytes, matrix, block, step, line);
      return k.asVec(k.intrinsic("llvm.x86.avx512.vpdpbusd.512", total.type(), {total, bytes, ones}));
    };
    total = k.loop(0, whole, 1, total,
                   [&](Index step, Vec total) { return take(a.vector(kDepth, row, step * kDepth), step, total); });
    markLong(k.b);
    if (ShapedType::isDynamic(spec.k) || spec.k % kDepth)
      total = k.choose(
          whole < packed.dim(2),
          [&] { return take(a.first(depth - whole * kDepth, kDepth, row, whole * kDepth), whole, total); },
          [&] { return total; });
    sums.set(sumOfLanes(total), row);
  });
  return f.function;
}

} // namespace attn
