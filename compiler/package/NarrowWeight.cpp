#include "compiler/package/NarrowWeight.h"

#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <cstring>
#include <limits>

using namespace mlir;

namespace attn {

double Narrowing::meanError() const { return squaredValue > 0 ? std::sqrt(squaredError / squaredValue) : 0; }

void Narrowing::note(float value, double stored) {
  double error = std::fabs(stored - value), size = std::fabs(value);
  if (!std::isfinite(error))
    return;
  maxError = std::max(maxError, error);
  maxValue = std::max(maxValue, size);
  squaredError += error * error;
  squaredValue += size * size;
}

void Narrowing::merge(const Narrowing &other) {
  elements += other.elements;
  maxError = std::max(maxError, other.maxError);
  maxValue = std::max(maxValue, other.maxValue);
  squaredError += other.squaredError;
  squaredValue += other.squaredValue;
}

namespace {

/// The parameters that narrow_panels and panel_scales share, and the matrix.
struct Panels {
  bool transposed = false;
  int64_t width = 0, group = 0, depth = 1, parts = 1, k = 0, n = 0;

  Panels(Attribute expression, RankedTensorType source) {
    auto read = [&](auto attr) {
      transposed = attr.getTransposed();
      width = attr.getWidth();
      group = attr.getGroup();
    };
    if (auto panels = dyn_cast<NarrowPanelsAttr>(expression)) {
      read(panels);
      depth = panels.getDepth();
      parts = panels.getParts();
    } else {
      read(cast<PanelScalesAttr>(expression));
    }
    if (source.getRank() == 2) {
      k = source.getDimSize(transposed ? 1 : 0);
      n = source.getDimSize(transposed ? 0 : 1);
    }
  }
  int64_t count() const { return llvm::divideCeil(n, width); }
  int64_t groups() const { return llvm::divideCeil(k, group); }
  /// Of a panel in bf16: pairs of rows, and elements of a pair.
  int64_t pairs() const { return llvm::divideCeil(llvm::alignTo(k, depth), 2); }
  int64_t pairElements() const { return 2 * width * parts; }
};

/// Panel number `panel` of the source as K x width, zeros beyond N.
void gatherPanel(const char *source, const Panels &panels, int64_t panel, std::vector<float> &block) {
  int64_t first = panel * panels.width, columns = std::min(panels.width, panels.n - first);
  block.assign(panels.k * panels.width, 0);
  if (!panels.transposed) {
    for (int64_t row = 0; row < panels.k; ++row)
      std::memcpy(&block[row * panels.width], source + (row * panels.n + first) * sizeof(float),
                  columns * sizeof(float));
    return;
  }
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t row = 0; row < panels.k; ++row)
      std::memcpy(&block[row * panels.width + column], source + ((first + column) * panels.k + row) * sizeof(float),
                  sizeof(float));
}

/// max |w| / 127 of each column over the rows of group number `group`; false
/// where one is not finite.
bool findScales(const std::vector<float> &block, const Panels &panels, int64_t group, MutableArrayRef<float> scales) {
  std::fill(scales.begin(), scales.end(), 0.0f);
  int64_t begin = group * panels.group, end = begin + std::min(panels.group, panels.k - begin);
  bool isFinite = true;
  for (int64_t row = begin; row < end; ++row)
    for (int64_t column = 0; column < panels.width; ++column) {
      float size = std::fabs(block[row * panels.width + column]);
      isFinite &= size <= std::numeric_limits<float>::max();
      scales[column] = std::max(scales[column], size);
    }
  for (float &scale : scales) {
    scale /= 127;
    if (std::isinf(127 * scale)) // of the largest floats, rounded up
      scale = std::nextafter(scale, 0.0f);
  }
  return isFinite;
}

/// The nearest whole number, ties to even, of |x| < 2^22.
float roundToWhole(float x) { return (x + 12582912.0f) - 12582912.0f; }

/// A finite value stays finite: masks hold the largest float.
uint16_t roundToBf16(float value) {
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  if (std::isnan(value))
    return (word >> 16) | 0x40; // stays a NaN whatever bits go
  uint16_t half = (word + 0x7fff + ((word >> 16) & 1)) >> 16;
  return std::isfinite(value) && (half & 0x7f80) == 0x7f80 ? half - 1 : half;
}

float widenBf16(uint16_t half) {
  uint32_t word = uint32_t(half) << 16;
  float value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

/// As roundToBf16.
uint16_t roundToF16(float value) {
  constexpr uint32_t kInfinity = 0x7f800000, kBeyond = 0x477ff000, kLeastNormal = 0x38800000, kBias = 0x38000000;
  uint32_t word;
  std::memcpy(&word, &value, sizeof word);
  uint32_t sign = word >> 16 & 0x8000, size = word & 0x7fffffff;
  if (size >= kInfinity)
    return sign | (size > kInfinity ? 0x7e00 : 0x7c00);
  if (size >= kBeyond)
    return sign | 0x7bff;
  if (size < kLeastNormal) // denormals are multiples of 2^-24
    return sign | static_cast<uint32_t>(roundToWhole(std::fabs(value) * 16777216.0f));
  return sign | (size + 0xfff + (size >> 13 & 1) - kBias) >> 13;
}

float widenF16(uint16_t half) {
  uint32_t size = half & 0x7fff;
  float value =
      std::ldexp(static_cast<float>((size & 0x3ff) + (size >= 0x400 ? 0x400 : 0)), std::max<int>(size >> 10, 1) - 25);
  if (size >= 0x7c00)
    value = size > 0x7c00 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  return half & 0x8000 ? -value : value;
}

} // namespace

FailureOr<SmallVector<int64_t>> narrowShape(GlobalOp global, RankedTensorType source) {
  Type element = cast<RankedTensorType>(global.getType()).getElementType();
  Panels panels(global.getExpression(), source);
  auto error = [&](const Twine &text) -> FailureOr<SmallVector<int64_t>> {
    return global.emitOpError(text), failure();
  };
  if (source.getRank() != 2 || !source.getElementType().isF32() || panels.width <= 0 || panels.width > 65536)
    return error("expects an f32 matrix to pack and a width from 1 to 65536");
  bool isScales = isa<PanelScalesAttr>(global.getExpression());
  if (!isScales && element.isBF16()) {
    if (panels.group != 0)
      return error("expects group 0 of elements in bf16, got " + Twine(panels.group));
    if (panels.depth < 1 || panels.depth > 65536 || (panels.depth > 1 && panels.depth % 2))
      return error("expects a depth that is 1 or even, at most 65536, got " + Twine(panels.depth));
    if (panels.parts < 1 || panels.parts > 3)
      return error("expects elements in 1 to 3 parts, got " + Twine(panels.parts));
    return SmallVector<int64_t>{panels.count(), panels.pairs(), panels.pairElements()};
  }
  if (panels.depth != 1 || panels.parts != 1)
    return error("expects depth and parts of elements in bf16 alone");
  if (isScales ? !element.isF32() : !element.isSignlessInteger(8))
    return error(isScales ? "expects scales in f32" : "expects panels in bf16 or i8");
  if (panels.group <= 0)
    return error("expects a positive group, got " + Twine(panels.group));
  return SmallVector<int64_t>{panels.count(), isScales ? panels.groups() : panels.k, panels.width};
}

/// Each element where it lies.
static WeightBytes narrowElements(RankedTensorType declared, const WeightBytes &source,
                                  std::shared_ptr<std::vector<char>> result, Narrowing *narrowing) {
  bool isF16 = declared.getElementType().isF16();
  Narrowing lost;
  lost.elements = declared.getNumElements();
  for (int64_t n = 0; n < declared.getNumElements(); ++n) {
    float value;
    std::memcpy(&value, source.bytes.data() + n * sizeof value, sizeof value);
    uint16_t half = isF16 ? roundToF16(value) : roundToBf16(value);
    std::memcpy(result->data() + n * sizeof half, &half, sizeof half);
    lost.note(value, isF16 ? widenF16(half) : widenBf16(half));
  }
  if (narrowing)
    narrowing->merge(lost);
  return {ArrayRef<char>(result->data(), result->size()), result};
}

/// Each element where it lies, exactly.
static WeightBytes widenElements(RankedTensorType type, const WeightBytes &source,
                                 std::shared_ptr<std::vector<char>> result) {
  bool isF16 = type.getElementType().isF16();
  for (int64_t n = 0; n < type.getNumElements(); ++n) {
    uint16_t half;
    std::memcpy(&half, source.bytes.data() + n * sizeof half, sizeof half);
    float value = isF16 ? widenF16(half) : widenBf16(half);
    std::memcpy(result->data() + n * sizeof value, &value, sizeof value);
  }
  return {ArrayRef<char>(result->data(), result->size()), result};
}

WeightBytes narrowWeight(GlobalOp global, RankedTensorType type, const WeightBytes &source, Narrowing *narrowing) {
  auto declared = cast<RankedTensorType>(global.getType());
  auto result = std::make_shared<std::vector<char>>(*weightTensorBytes(declared), 0);
  if (isa<ReshapeAttr>(global.getExpression()))
    return declared.getElementType().isF32() ? widenElements(type, source, result)
                                             : narrowElements(declared, source, result, narrowing);
  Panels panels(global.getExpression(), type);
  bool isScales = isa<PanelScalesAttr>(global.getExpression()), isBf16 = declared.getElementType().isBF16();
  Narrowing lost;
  lost.elements = type.getNumElements();
  std::vector<float> block, scales(panels.width);
  char *target = result->data();
  for (int64_t panel = 0; panel < panels.count(); ++panel) {
    gatherPanel(source.bytes.data(), panels, panel, block);
    if (isBf16) {
      for (int64_t row = 0; row < panels.k; ++row)
        for (int64_t column = 0; column < panels.width; ++column) {
          float value = block[row * panels.width + column];
          float rest = value;
          double stored = 0;
          for (int64_t part = 0; part < panels.parts; ++part) {
            uint16_t half = roundToBf16(rest);
            int64_t at = row / 2 * panels.pairElements() + 2 * (part * panels.width + column) + row % 2;
            std::memcpy(target + at * sizeof half, &half, sizeof half);
            stored += widenBf16(half);
            rest = std::isfinite(value) ? rest - widenBf16(half) : 0;
          }
          lost.note(value, stored);
        }
      target += sizeof(uint16_t) * panels.pairs() * panels.pairElements();
      continue;
    }
    for (int64_t group = 0; group < panels.groups(); ++group) {
      if (!findScales(block, panels, group, scales)) {
        global.emitOpError("has elements that are not finite, which int8 cannot hold");
        return {};
      }
      if (isScales) {
        std::memcpy(target, scales.data(), panels.width * sizeof(float));
        target += panels.width * sizeof(float);
        continue;
      }
      int64_t begin = group * panels.group, end = begin + std::min(panels.group, panels.k - begin);
      for (int64_t row = begin; row < end; ++row, target += panels.width)
        for (int64_t column = 0; column < panels.width; ++column) {
          float value = block[row * panels.width + column], scale = scales[column];
          // The quotient by a denormal scale may be beyond 127.
          float step = scale > 0 ? roundToWhole(std::clamp(value / scale, -127.0f, 127.0f)) : 0;
          lost.note(value, step * scale);
          target[column] = static_cast<char>(static_cast<int8_t>(step));
        }
    }
  }
  if (narrowing && !isScales)
    narrowing->merge(lost);
  return {ArrayRef<char>(result->data(), result->size()), result};
}

} // namespace attn
