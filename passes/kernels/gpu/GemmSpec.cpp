#include "passes/kernels/gpu/Gemm.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace attn {

StringRef nameOf(Precision precision) {
  static constexpr StringLiteral names[] = {"f32", "tf32", "f16", "bf16"};
  return names[static_cast<int>(precision)];
}

bool GpuGemmSpec::canBeNarrow(bool isLeft) const {
  const int64_t kVector = !isLeft && hasFloat8() ? 16 : 8;
  AffineMap map = isLeft ? leftMap : rightMap;
  if (map.getNumResults() == 0)
    return false;
  unsigned last = map.getDimPosition(map.getNumResults() - 1);
  ArrayRef<unsigned> outer = isLeft ? rows : columns;
  bool isInner = last == sums.back() || (!outer.empty() && last == outer.back());
  return isInner && !ShapedType::isDynamic(sizes[last]) && sizes[last] % kVector == 0;
}

bool GpuGemmSpec::isTiled(bool isLeft) const {
  AffineMap map = isLeft ? leftMap : rightMap;
  Type element = (isLeft ? left : right).getElementType();
  if (precision == Precision::f32 || precisionOf(element) != precision || !batch.empty() || !canBeNarrow(isLeft))
    return false;
  SmallVector<unsigned> outer(isLeft ? rows : columns), deep(sums), dims;
  if (outer.empty() || deep.empty())
    return false;
  for (unsigned n = 0; n < map.getNumResults(); ++n)
    dims.push_back(map.getDimPosition(n));
  auto isInOrder = [&](SmallVector<unsigned> first, ArrayRef<unsigned> last) {
    llvm::append_range(first, last);
    return dims == first;
  };
  return isInOrder(outer, deep) || isInOrder(deep, outer);
}

int64_t GpuGemmSpec::guessProduct(ArrayRef<unsigned> dims, int64_t unknown) const {
  constexpr int64_t kMany = 1 << 20;
  int64_t product = 1;
  for (unsigned dim : dims)
    product = std::min(kMany, product * std::min(kMany, ShapedType::isDynamic(sizes[dim]) ? unknown : sizes[dim]));
  return product;
}

void GpuGemmSpec::chooseForm(Precision products, Sm90a images) {
  // Operands of 16 bits are exact there, and so are their products.
  Precision own = precisionOf(left.getElementType());
  bool isOwn = own != Precision::f32 && (left.getElementType() == right.getElementType() || hasFloat8());
  precision = isOwn ? own : products;
  sm90a = images;
  chooseLines();
  if (hasTiles)
    chooseTile();
}

void GpuGemmSpec::chooseLines() {
  // What is known of the product of sizes, and whether all is.
  auto known = [&](ArrayRef<unsigned> dims) {
    std::pair<int64_t, bool> product = {1, true};
    for (unsigned dim : dims)
      if (ShapedType::isDynamic(sizes[dim]))
        product.second = false;
      else
        product.first = std::min<int64_t>(kFewRows + 1, product.first * sizes[dim]);
    return product;
  };
  auto [numRows, isRows] = known(rows);
  auto [numColumns, isColumns] = known(columns);
  // None are not few: lanes read the matrix whether or not there is a row for it.
  auto isFew = [](int64_t count) { return 0 < count && count <= kFewRows; };
  bool isFewRows = isRows && isFew(numRows), isFewColumns = isColumns && isFew(numColumns);
  if (isFewRows || isFewColumns) {
    bool isLeft = isFewRows && (!isFewColumns || numRows <= numColumns);
    lines.emplace(*this, isLeft, isLeft ? numRows : numColumns);
    hasTiles = false;
    return;
  }
  // Rows of a number that the run tells, times weights.
  if (isRows != isColumns && (isRows ? numColumns : numRows) <= kFewRows) {
    lines.emplace(*this, !isRows, kFewRows);
    singleLines.emplace(*this, !isRows, 1);
  }
}

void GpuGemmSpec::chooseTile() {
  constexpr int64_t kGuess = 64;
  int64_t numRows = guessProduct(rows, kGuess), numColumns = guessProduct(columns, kGuess);
  auto blocks = [&](const Tile &tile) {
    return llvm::divideCeil(numRows, tile.rows) * llvm::divideCeil(numColumns, tile.columns) *
           guessProduct(batch, kGuess);
  };
  bool isMatrix = precision != Precision::f32;
  // A dear epilogue on 64 sums a thread takes longer to compile than it saves.
  bool isDear = !isMatrix && epilogue && std::distance(epilogue->begin(), epilogue->end()) > 16;
  Tile large = {128, 128, 8, 8}, medium = {64, 64, 8, 4}, small = {32, 32, 4, 4};
  if (isMatrix) {
    // Warps of 64 x 32, 32 x 32 and 16 x 32; deeper ones do not fit 48 KiB, unless both sides are of 16 bits.
    bool areNarrow = true;
    for (bool isLeft : {true, false}) {
      bool isNarrow = precisionOf((isLeft ? left : right).getElementType()) == precision || (!isLeft && hasFloat8());
      areNarrow &= isNarrow && canBeNarrow(isLeft);
    }
    large = {128, 128, 8, 4, /*depth=*/areNarrow ? 32 : 16, /*isMatrix=*/true};
    medium = {64, 64, 4, 4, /*depth=*/32, /*isMatrix=*/true};
    small = {32, 64, 2, 4, /*depth=*/32, /*isMatrix=*/true};
  }
  if (!isDear && numRows >= 96 && numColumns >= 96 && blocks(large) >= kProcessors)
    tile = large;
  else
    tile = numRows > 32 && (isMatrix || numColumns > 32) ? medium : small;
  // Each element is rounded once, which takes as long as about 100 products of it: guesses, no card has told.
  constexpr int64_t kFewOuter = 256, kFewSums = 64;
  bool is16Bit = precision == Precision::bf16 || precision == Precision::f16;
  bool isCopied = !hasFloat8() || canBeNarrow(/*isLeft=*/false); // by 16 bytes
  if (sm90a == Sm90a::none || !is16Bit || !isCopied || numRows < kFewOuter || numColumns < kFewOuter ||
      guessProduct(sums, kGuess) < kFewSums)
    return;
  Tile wide = {kWarpgroupRows, 256, 1, 1};
  warpgroupColumns = blocks(wide) >= kProcessors ? 256 : 128;
}

std::string GpuGemmSpec::symbol() const {
  auto count = [&](ArrayRef<unsigned> dims) {
    uint64_t product = 1;
    for (unsigned dim : dims) {
      if (ShapedType::isDynamic(sizes[dim]))
        return std::string("x");
      product *= sizes[dim];
    }
    return std::to_string(product);
  };
  std::string key;
  llvm::raw_string_ostream os(key);
  os << left << right << result << leftMap << rightMap << resultMap;
  for (int64_t size : sizes)
    os << size << ',';
  os << static_cast<int>(sm90a) << hasTiles << hasRoundedFactor << warpgroupColumns << ';';
  if (lines)
    os << lines->isFewLeft << lines->rows << ';';
  for (int64_t size : {tile.rows, tile.columns, tile.threadRows, tile.threadColumns, tile.depth})
    os << size << ',';
  if (epilogue)
    os << blockSignature(*epilogue) << accumulator;
  for (auto [type, map] : llvm::zip_equal(operands, operandMaps))
    os << type << map;
  return llvm::formatv("gpu_gemm_{0}_b{1}_m{2}_k{3}_n{4}_{5:x-16}", nameOf(precision), count(batch), count(rows),
                       count(sums), count(columns), llvm::xxh3_64bits(key));
}

} // namespace attn
