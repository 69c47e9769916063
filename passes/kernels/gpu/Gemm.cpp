#include "passes/kernels/gpu/Gemm.h"

#include "passes/kernels/gpu/GemmEmitter.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace attn {

static bool fail(std::string &reason, const Twine &text) {
  reason = text.str();
  return false;
}

bool GpuGemmSpec::sortLoops(std::string &reason) {
  for (unsigned dim = 0; dim < resultMap.getNumDims(); ++dim) {
    bool inLeft = leftMap.isFunctionOfDim(dim), inRight = rightMap.isFunctionOfDim(dim);
    if (!inLeft && !inRight)
      return fail(reason, "the result has a dimension of its own");
    if (!resultMap.isFunctionOfDim(dim)) {
      if (!inLeft || !inRight)
        return fail(reason, "an operand has a dimension of its own");
      sums.push_back(dim);
    } else {
      (inLeft && inRight ? batch : inLeft ? rows : columns).push_back(dim);
    }
  }
  if (sums.empty())
    return fail(reason, "nothing is summed");
  for (AffineMap map : {leftMap, rightMap, resultMap})
    if (!map.isProjectedPermutation())
      return fail(reason, "an operand is not read at its loops");
  return true;
}

static int64_t guessProduct(ArrayRef<int64_t> sizes, ArrayRef<unsigned> dims) {
  constexpr int64_t kGuess = 64, kMany = 1 << 20;
  int64_t product = 1;
  for (unsigned dim : dims)
    product = std::min(kMany, product * std::min(kMany, ShapedType::isDynamic(sizes[dim]) ? kGuess : sizes[dim]));
  return product;
}

void GpuGemmSpec::chooseTile() {
  constexpr int64_t kProcessors = 132; // of an H100; other cards have about as many
  int64_t numRows = guessProduct(sizes, rows), numColumns = guessProduct(sizes, columns);
  auto blocks = [&](const Tile &tile) {
    return llvm::divideCeil(numRows, tile.rows) * llvm::divideCeil(numColumns, tile.columns) *
           guessProduct(sizes, batch);
  };
  bool isMatrix = precision != Precision::f32;
  // A dear epilogue on 64 sums a thread takes longer to compile than it saves.
  bool isDear = !isMatrix && epilogue && std::distance(epilogue->begin(), epilogue->end()) > 16;
  Tile large = {128, 128, 8, 8}, medium = {64, 64, 8, 4}, small = {32, 32, 4, 4};
  if (isMatrix) {
    // Warps of 64 x 32, 32 x 32 and 16 x 32; deeper ones do not fit 48 KiB.
    large = {128, 128, 8, 4, /*depth=*/16, /*isMatrix=*/true};
    medium = {64, 64, 4, 4, /*depth=*/32, /*isMatrix=*/true};
    small = {32, 64, 2, 4, /*depth=*/32, /*isMatrix=*/true};
  }
  if (!isDear && numRows >= 96 && numColumns >= 96 && blocks(large) >= kProcessors)
    tile = large;
  else
    tile = numRows > 32 && (isMatrix || numColumns > 32) ? medium : small;
}

func::FuncOp buildGpuGemm(OpBuilder &builder, Location loc, StringRef symbol, const GpuGemmSpec &spec) {
  OpBuilder::InsertionGuard guard(builder);
  return GpuGemmEmitter(builder, loc, spec).emit(symbol);
}

} // namespace attn
