#include "passes/kernels/gpu/ByteProducts.h"
#include "passes/kernels/gpu/IntegerGemm.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn {

std::string GpuPackBytesSpec::symbol() const {
  return llvm::formatv("gpu_pack_bytes_k{0}_n{1}{2}{3}", sizeText(k), sizeText(n), isTransposed ? "_t" : "",
                       isUnsigned ? "_u" : "");
}

func::FuncOp buildGpuPackBytes(OpBuilder &builder, Location loc, const GpuPackBytesSpec &spec) {
  constexpr int64_t kThreads = 128, kDynamic = ShapedType::kDynamic, kWidth = GpuIntegerSpec::kWidth,
                    kGroup = GpuIntegerSpec::kGroup;
  KernelFunction f(builder, loc, spec.symbol());
  ThreadCode k(builder, loc);
  Type i8 = builder.getI8Type(), i32 = builder.getI32Type();
  GpuIntegerSpec product;
  product.k = spec.k, product.n = spec.n, product.isBatched = true;
  Buffer from = spec.isTransposed ? f.buffer({kDynamic, spec.n, spec.k}, i8) : f.buffer({kDynamic, spec.k, spec.n}, i8);
  Buffer panels = f.buffer(product.panelShape(), i8), sums = f.buffer(product.sumShape(), i32);
  Index depth = from.dim(spec.isTransposed ? 2 : 1), columns = from.dim(spec.isTransposed ? 1 : 2);
  Index numPanels = panels.dim(0), numGroups = panels.dim(1), ofMatrix = ceilDiv(columns, kWidth);
  Buffer flat = panels.flat(), flatSums = sums.flat();
  {
    OpBuilder::InsertionGuard guard(builder);
    Index count = numPanels * numGroups * kWidth;
    k.launch(ceilDiv(count, kThreads), kThreads, {});
    Index at = k.block * kThreads + k.thread;
    k.when(at < count, [&] {
      Index within = at % kWidth, group = at / kWidth % numGroups, panel = at / (numGroups * kWidth);
      Index matrix = panel / ofMatrix, column = panel % ofMatrix * kWidth + within;
      Nums bytes;
      for (int64_t n = 0; n < kGroup; ++n) {
        Index row = group * kGroup + n;
        auto read = [&] {
          Num byte = spec.isTransposed ? from(matrix, column, row) : from(matrix, row, column);
          return spec.isUnsigned ? byte ^ k.number(i8, int64_t(-128)) : byte;
        };
        bytes.push_back(k.choose((row < depth) & (column < columns), read, [&] { return k.number(i8, int64_t(0)); }));
      }
      k.storeFew(bytes, flat, at * kGroup);
    });
  }
  OpBuilder::InsertionGuard guard(builder);
  Index count = numPanels * kWidth;
  k.launch(ceilDiv(count, kThreads), kThreads, {});
  Index at = k.block * kThreads + k.thread;
  k.when(at < count, [&] {
    Index first = at / kWidth * numGroups * kWidth + at % kWidth;
    Num sum = k.loop(0, numGroups, 1, k.i32(0), [&](Index group, Num sum) {
      for (const Num &word : k.loadWords(flat, (first + group * kWidth) * kGroup, kGroup / 4))
        sum = multiplyFours(k, k.i32(0x01010101), word, sum);
      return sum;
    });
    flatSums.set(sum, at);
  });
  return f.function;
}

} // namespace attn
