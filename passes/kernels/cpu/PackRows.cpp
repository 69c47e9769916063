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

std::string PackRowsSpec::symbol() const {
  auto size = [](int64_t number) { return ShapedType::isDynamic(number) ? "x" : std::to_string(number); };
  return llvm::formatv("pack_rows_m{0}_k{1}", size(m), size(k));
}

func::FuncOp buildPackRows(OpBuilder &b, Location loc, const PackRowsSpec &spec) {
  KernelFunction f(b, loc, spec.symbol());
  f.function.setPrivate();
  Code &k = f.k;
  constexpr int64_t kDepth = PackRowsSpec::kDepth, kRows = PackRowsSpec::kRows;
  Buffer a = f.buffer({spec.m, spec.k}, b.getI8Type()), packed = f.buffer(spec.shape(), b.getI8Type());
  Index rows = a.dim(0), depth = a.dim(1), perMatrix = rows / maximum(packed.dim(0), 1);
  Mask hasTiles = k.asMask(HasTilesOp::create(b, loc, b.getI1Type()));
  hasTiles = hasTiles & (perMatrix >= IntegerGemmSpec::kFewestTileRows);
  k.parallel(select(hasTiles, rows, k.index(0)), [&](Index row) {
    Index matrix = row / perMatrix, inMatrix = row % perMatrix;
    Index block = inMatrix / kRows, line = inMatrix % kRows * kDepth, whole = depth / kDepth;
    k.rolledLoop(0, whole, 1, [&](Index step) {
      packed.setVector(a.vector(kDepth, row, step * kDepth), matrix, block, step, line);
    });
    markLong(k.b);
    if (ShapedType::isDynamic(spec.k) || spec.k % kDepth)
      k.when(whole < packed.dim(2), [&] {
        packed.setVector(a.first(depth - whole * kDepth, kDepth, row, whole * kDepth), matrix, block, whole, line);
      });
  });
  return f.function;
}

} // namespace attn
