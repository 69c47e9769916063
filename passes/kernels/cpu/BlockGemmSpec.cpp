#include "passes/kernels/cpu/BlockGemm.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace attn {

BlockGemmSpec BlockGemmSpec::forTarget(TargetAttr target, int64_t m, int64_t k, int64_t n) {
  BlockGemmSpec spec;
  spec.m = m;
  spec.k = k;
  spec.n = n;
  spec.lanes = target.getF32Lanes();
  spec.dot = byteDotOf(target);
  // 24 + 4 + 1 of 32 registers; 10 + 2 + 1 and 8 + 2 + 1 of 16: what codes are unpacked with stays in two more. With 6
  // rows the products' loop spilled, and 128 rows took 3.4 times as long (AVX2, Zen 3). A narrow matrix is no wider in
  // its panel.
  int64_t vectors = spec.lanes == 16 ? 4 : 2;
  spec.tileRows = spec.lanes == 16 ? 6 : spec.lanes == 8 ? 5 : 4;
  spec.tileVectors = std::min<int64_t>(vectors, llvm::divideCeil(std::max<int64_t>(n, 1), spec.lanes));
  return spec;
}

bool BlockGemmSpec::mayHaveTiles(TargetAttr target) const {
  bool hasFactors = hasByteRows
                        ? hasSignedCodes() && IntegerGemmSpec::mayHaveTiles(target)
                        : zeros != BlockZeros::Float && block % kTileRows == 0 && GemmSpec::mayHaveTiles(target);
  return hasFactors && (ShapedType::isDynamic(m) || m >= kFewestTileRows);
}

bool BlockGemmSpec::mayHaveDigits() const {
  return !hasByteRows && dot == ByteDot::Quads && zeros != BlockZeros::Float && block % lanes == 0 &&
         (ShapedType::isDynamic(m) || m == 1);
}

std::string BlockGemmSpec::symbol() const {
  StringRef kinds[] = {"", "_zs", "_zu", "_zf"};
  std::string name = llvm::formatv("gemm_q{0}{1}b{2}{3}_m{4}_k{5}_n{6}_{7}_{8}x{9}x{10}{11}", isUnsigned ? "u" : "s",
                                   bits, block, hasHalfScales ? "h" : "", sizeText(m), k, n, hasFma() ? "fma" : "mul",
                                   tileRows, tileVectors, lanes, kinds[static_cast<int>(zeros)]);
  if (zeros == BlockZeros::Constant)
    name += "_z" + std::to_string(zeroPoint);
  if (hasByteRows)
    name += hasTiles ? "_amx" : dot == ByteDot::Quads ? "_i8" : "_i8p";
  else if (hasTiles)
    name += "_amx16";
  if (hasDigits)
    name += "_digits";
  return name + getEpilogueSuffix();
}

bool canBuildBlockGemm(const BlockGemmSpec &spec, std::string *reason) {
  if (spec.bits != 2 && spec.bits != 4 && spec.bits != 8)
    return fail(reason, "codes have " + Twine(spec.bits) + " bits, not 2, 4 or 8");
  if (spec.block < 1 || spec.block % spec.group() || BlockGemmSpec::kMostBlock % spec.block)
    return fail(reason, "blocks of " + Twine(spec.block) + " are not whole words of " + Twine(spec.group()) +
                            " codes, or do not divide " + Twine(BlockGemmSpec::kMostBlock));
  int64_t half = int64_t(1) << (spec.bits - 1), least = spec.isUnsigned ? 0 : -half;
  if (spec.zeroPoint < least || spec.zeroPoint >= least + 2 * half)
    return fail(reason, "the zero point " + Twine(spec.zeroPoint) + " is outside the codes' range");
  if (spec.hasByteRows &&
      (spec.lanes < 8 || spec.dot == ByteDot::Single || spec.zeros == BlockZeros::Float || spec.block % spec.lanes))
    return fail(reason, "rows of bytes need 8 or 16 lanes, blocks of whole registers, and zero points of integers");
  if (spec.hasDigits && !spec.mayHaveDigits())
    return fail(reason,
                "digits need products of four bytes, one row of f32, blocks of whole registers, and zero points "
                "of integers");
  if (spec.hasTiles && spec.hasByteRows && (spec.lanes != 16 || !spec.hasSignedCodes()))
    return fail(reason, "tiles of bytes need 16 lanes, and codes of s8");
  if (spec.hasTiles && (spec.lanes != 16 || spec.zeros == BlockZeros::Float || spec.block % BlockGemmSpec::kTileRows))
    return fail(reason, "tiles need 16 lanes, blocks of whole registers, and zero points of integers");
  // What a product of f32 may have for sizes and an epilogue.
  GemmSpec plain;
  static_cast<EpilogueSpec &>(plain) = spec;
  static_cast<PanelTile &>(plain) = spec;
  plain.m = spec.m;
  plain.k = spec.k;
  plain.n = spec.n;
  if (ShapedType::isDynamic(spec.k) || ShapedType::isDynamic(spec.n))
    return fail(reason, "the matrix has no fixed size");
  return canBuildGemm(plain, reason);
}

} // namespace attn
