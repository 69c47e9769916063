#include "compiler/package/BlockWeight.h"

#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <cstring>

using namespace mlir;

namespace attn {
namespace {

/// From the least code to the greatest.
struct Codes {
  float least, greatest;
  explicit Codes(int64_t bits) : least(-std::ldexp(1.0f, bits - 1)), greatest(-least - 1) {}
};

/// The matrix behind an expression, as K rows of N elements in blocks of rows.
struct BlockMatrix {
  bool transposed = false;
  int64_t block = 0, bits = 0, k = 0, n = 0;

  BlockMatrix(Attribute expression, RankedTensorType source) {
    auto read = [&](auto attr) {
      transposed = attr.getTransposed();
      block = attr.getBlock();
      bits = attr.getBits();
    };
    if (auto codes = dyn_cast<BlockCodesAttr>(expression))
      read(codes);
    else
      read(cast<BlockScalesAttr>(expression));
    if (source.getRank() == 2) {
      k = source.getDimSize(transposed ? 1 : 0);
      n = source.getDimSize(transposed ? 0 : 1);
    }
  }
  int64_t numBlocks() const { return llvm::divideCeil(k, block); }
  int64_t at(int64_t row, int64_t column) const { return transposed ? column * k + row : row * n + column; }
  int64_t scaleAt(int64_t number, int64_t column) const {
    return transposed ? column * numBlocks() + number : number * n + column;
  }
};

/// The nearest whole number, of |x| < 2^22.
float roundToEven(float x) { return (x + 12582912.0f) - 12582912.0f; }

float codeOf(float value, float scale, Codes codes) {
  return scale != 0 ? roundToEven(std::clamp(value / scale, codes.least, codes.greatest)) : 0;
}

/// The code of the number of e4m3 that is nearest to `value`, of |value| < 464, ties to even, and that number.
std::pair<uint8_t, float> roundToE4M3(float value) {
  llvm::APFloat number(value);
  bool lost = false;
  number.convert(llvm::APFloat::Float8E4M3FN(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return {static_cast<uint8_t>(number.bitcastToAPInt().getZExtValue()), number.convertToFloat()};
}

double errorOf(ArrayRef<float> values, float scale, Codes codes) {
  double sum = 0;
  for (float value : values) {
    double error = double(codeOf(value, scale, codes)) * scale - value;
    sum += error * error;
  }
  return sum;
}

/// The scale of a block: of the two that hold its largest element, by a code of either sign, the one that is nearer to
/// all of them. Of many codes the last one makes no difference. NaN where an element is not finite.
float scaleOf(ArrayRef<float> values, Codes codes) {
  float extreme = 0;
  for (float value : values) {
    if (!std::isfinite(value))
      return std::numeric_limits<float>::quiet_NaN();
    if (std::fabs(value) > std::fabs(extreme))
      extreme = value;
  }
  float even = std::fabs(extreme) / codes.greatest, full = extreme / codes.least;
  if (codes.greatest > 7)
    return even;
  return errorOf(values, full, codes) < errorOf(values, even, codes) ? full : even;
}

} // namespace

FailureOr<SmallVector<int64_t>> blockShape(GlobalOp global, RankedTensorType source) {
  Type element = cast<RankedTensorType>(global.getType()).getElementType();
  BlockMatrix matrix(global.getExpression(), source);
  auto error = [&](const Twine &text) -> FailureOr<SmallVector<int64_t>> {
    return global.emitOpError(text), failure();
  };
  if (source.getRank() != 2 || !source.getElementType().isF32() || matrix.block < 1)
    return error("expects an f32 matrix to store and blocks of 1 or more");
  if (matrix.bits != 4 && matrix.bits != 8)
    return error("expects codes of 4 or 8 bits, got " + Twine(matrix.bits));
  bool isCodes = isa<BlockCodesAttr>(global.getExpression());
  bool isFloat8 = isa<Float8E4M3FNType>(element) && matrix.bits == 8;
  if (isCodes ? !element.isSignlessInteger(8) && !isFloat8 : !element.isF32())
    return error(isCodes ? "expects codes in i8, or in f8E4M3FN of 8 bits" : "expects scales in f32");
  int64_t rows = isCodes ? matrix.k : matrix.numBlocks();
  return matrix.transposed ? SmallVector<int64_t>{matrix.n, rows} : SmallVector<int64_t>{rows, matrix.n};
}

WeightBytes storeInBlocks(GlobalOp global, RankedTensorType type, const WeightBytes &source, Narrowing *narrowing) {
  auto result = std::make_shared<std::vector<char>>(*weightTensorBytes(cast<RankedTensorType>(global.getType())), 0);
  BlockMatrix matrix(global.getExpression(), type);
  bool isCodes = isa<BlockCodesAttr>(global.getExpression());
  Codes codes(matrix.bits);
  Narrowing lost;
  lost.elements = type.getNumElements();
  std::vector<float> values;
  bool isNumber = true, isFloat8 = isa<Float8E4M3FNType>(cast<RankedTensorType>(global.getType()).getElementType());
  auto narrowed = [&](float value, float scale) -> std::pair<uint8_t, float> {
    if (isFloat8)
      return roundToE4M3(scale != 0 ? value / scale : 0);
    float code = codeOf(value, scale, codes);
    return {static_cast<uint8_t>(static_cast<int8_t>(code)), code};
  };
  auto store = [&](int64_t number, int64_t column) {
    int64_t first = number * matrix.block;
    values.resize(std::min(matrix.block, matrix.k - first));
    for (auto [n, value] : llvm::enumerate(values))
      std::memcpy(&value, source.bytes.data() + matrix.at(first + n, column) * sizeof value, sizeof value);
    float scale = scaleOf(values, codes);
    isNumber &= !std::isnan(scale);
    if (!isCodes) {
      std::memcpy(result->data() + matrix.scaleAt(number, column) * sizeof scale, &scale, sizeof scale);
      return;
    }
    for (auto [n, value] : llvm::enumerate(values)) {
      auto [code, number] = narrowed(value, scale);
      lost.note(value, double(number) * scale);
      (*result)[matrix.at(first + n, column)] = static_cast<char>(code);
    }
  };
  // Block by block: the rows of one, side by side in memory unless transposed, stay in the cache.
  for (int64_t number = 0; number < matrix.numBlocks() && isNumber; ++number)
    for (int64_t column = 0; column < matrix.n && isNumber; ++column)
      store(number, column);
  if (!isNumber) {
    global.emitOpError("has elements that are not finite, which codes of " + Twine(matrix.bits) + " bits cannot hold");
    return {};
  }
  if (narrowing && isCodes)
    narrowing->merge(lost);
  return {ArrayRef<char>(result->data(), result->size()), result};
}

} // namespace attn
