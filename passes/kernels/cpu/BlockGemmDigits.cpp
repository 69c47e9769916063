#include "passes/kernels/cpu/BlockGemmEmitter.h"

// One row of A in digits:
//   a = 2^e (d0 + 2^8 d1 + 2^16 d2 + 2^24 d3),   |a| < 2^(e + 30) in all of a block
//   sum_k (q - z) a = 2^e (low + 2^16 high),     low = sum_k (q - z) (d0 + 2^8 d1),   high the same of d2 and d3
// Both are exact in i32: q - z is within 255, a pair of digits within 32896, and a block has 256 at most. A register of
// 4-bit codes becomes two of bytes by three instructions, and each is multiplied four times; in f32 every 16 codes take
// three. A product by 768 x 50257 from the third-level cache (Zen 4, 2 threads) takes 0.41 ms instead of 0.66 in 4
// bits, 59 GB/s, and 0.88 instead of 1.02 in 8 bits. More rows gain nothing: 2 rows took 1.0 (4 bits) and 1.3 times (8
// bits) as long.

using namespace mlir;

namespace attn {

/// Takes the row apart, by the caller alone: to wake other threads takes longer.
void BlockGemmEmitter::takeDigits() {
  int64_t whole = spec.k / spec.block, rest = spec.k % spec.block;
  Mask isAlone = rows == 1;
  isInDigits = k.loop(0, select(isAlone, k.index(whole), k.index(0)), 1, isAlone,
                      [&](Index number, Mask before) { return before & takeDigitsOf(number, spec.block); });
  if (rest)
    isInDigits = k.choose(isInDigits, [&] { return takeDigitsOf(k.index(whole), rest); }, [&] { return isInDigits; });
}

/// Takes block `number` apart, of which `size` elements are there; zeros behind them. Gives whether it can be: not
/// where a number is not finite, or all are so small that the power of two would be denormal.
Mask BlockGemmEmitter::takeDigitsOf(const Index &number, int64_t size) {
  constexpr int64_t kBias = 127, kMantissaBits = 23, kTop = 29, kInfinity = 255;
  Vecs parts = blockOfRow(k.index(0), number, size);
  Num greatest = greatestOf(parts);
  // The greatest is below 2^(exponent + 1), and times the factor below 2^30.
  Num exponent = bitcast(greatest, i32) >> kMantissaBits, least = k.i32(kTop + 1);
  Num factorExponent = k.i32(2 * kBias + kTop) - maximum(exponent, least);
  Num factor = bitcast(factorExponent << kMantissaBits, f32);
  digitScales.set(bitcast((k.i32(2 * kBias) - factorExponent) << kMantissaBits, f32), 0, number);

  Vec lowSum = k.splat(k.i32(0), spec.lanes), highSum = lowSum;
  for (auto [n, part] : llvm::enumerate(parts)) {
    Vec number32 = convert(roundEven(part * factor), i32), left = number32;
    for (int64_t digit = 0; digit < BlockGemmSpec::kDigits; ++digit) {
      if (digit) // less the digit before, which is from -128 to 127
        left = shiftRightSigned(left + 128, 8);
      if (digit == 2) {
        lowSum = lowSum + (number32 - (left << 16));
        highSum = highSum + left;
      }
      digits.setVector(convert(left, i8), digit, number * spec.block + static_cast<int64_t>(n) * spec.lanes);
    }
  }
  int64_t zero = spec.zeros == BlockZeros::Constant ? base() : 1;
  digitStarts.set(sumOfLanes(lowSum) * -zero, 0, number);
  digitStarts.set(sumOfLanes(highSum) * -zero, 1, number);
  return (greatest == 0.0) | ((exponent >= least) & (exponent < kInfinity));
}

/// The sums of the row and the panel, to the scratch.
void BlockGemmEmitter::emitDigits() {
  Vecs totals = k.loop(0, spec.numBlocks(), 1, Vecs(spec.tileVectors, zeroVec()),
                       [&](Index number, Vecs now) { return addDigitBlock(number, now); });
  sums.setVectors(totals, 0);
}

/// totals + the sums of block `number`, times its scales.
Vecs BlockGemmEmitter::addDigitBlock(const Index &number, const Vecs &totals) {
  int64_t vectors = spec.tileVectors;
  Vecs start;
  for (int64_t digit = 0; digit < BlockGemmSpec::kDigits; ++digit)
    for (int64_t v = 0; v < vectors; ++v) {
      Vec first = k.splat(digit % 2 ? k.i32(0) : digitStarts(digit / 2, number), spec.lanes);
      bool isScaled = digit % 2 == 0 && spec.zeros != BlockZeros::Constant;
      start.push_back(isScaled ? first * zeroPoints(number, k.index(v * spec.lanes)) : first);
    }
  Vecs byDigit = addBytes(BlockGemmSpec::kDigits, k.index(0), digits, number, start);
  Vecs factor = factors(number).scales, result;
  Vec rowScale = k.splat(digitScales(0, number), spec.lanes);
  for (int64_t v = 0; v < vectors; ++v) {
    auto pair = [&](int64_t lower) {
      return convert(byDigit[lower * vectors + v] + (byDigit[(lower + 1) * vectors + v] << 8), f32);
    };
    Vec sum = multiplyAdd(pair(2), k.splat(k.f32(65536), spec.lanes), pair(0));
    result.push_back(multiplyAdd(sum * rowScale, factor[v], totals[v]));
  }
  return result;
}

} // namespace attn
