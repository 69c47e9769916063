#include "passes/kernels/cpu/PackPanels.h"

#include "passes/kernels/shared/KernelFunction.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn {

std::string PackPanelsSpec::symbol() const {
  return llvm::formatv("pack_panels_f32_k{0}_n{1}_w{2}x{3}", sizeText(k), sizeText(n), width, lanes);
}

func::FuncOp buildPackPanels(OpBuilder &b, Location loc, const PackPanelsSpec &spec) {
  constexpr int64_t kDynamic = ShapedType::kDynamic;
  KernelFunction f(b, loc, spec.symbol());
  f.function.setPrivate();
  Code &k = f.k;
  Buffer source = f.buffer({kDynamic, spec.k, spec.n}, b.getF32Type());
  Buffer target = f.buffer({kDynamic, spec.k, spec.width}, b.getF32Type());
  Index rows = source.dim(1), columns = source.dim(2), panelsOfOne = ceilDiv(columns, spec.width);
  k.parallel(target.dim(0), [&](Index at) {
    Index matrix = at / panelsOfOne, first = at % panelsOfOne * spec.width;
    auto copyRows = [&](bool isWhole) {
      k.loop(0, rows, 1, [&](Index row) {
        for (int64_t n = 0; n < spec.width; n += spec.lanes) {
          Index column = first + n; // less than nothing may be left from it on: no lane then
          Vec x = isWhole ? source.vector(spec.lanes, matrix, row, column)
                          : source.first(columns - column, spec.lanes, matrix, row, column);
          target.setVector(x, at, row, n);
        }
      });
      markLong(k.b);
    };
    k.when(first + spec.width <= columns, [&] { copyRows(true); }, [&] { copyRows(false); });
  });
  return f.function;
}

} // namespace attn
