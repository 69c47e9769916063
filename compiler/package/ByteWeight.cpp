#include "compiler/package/ByteWeight.h"
#include "passes/kernels/spec/StepOrder.h"

#include "llvm/Support/MathExtras.h"
#include <cstring>

using namespace mlir;

namespace attn {
namespace {

/// The matrix behind an expression, as K rows of N elements.
struct ByteMatrix {
  bool transposed = false, isUnsigned = false;
  int64_t width = 0, group = 1, k = 0, n = 0;

  ByteMatrix(Attribute expression, RankedTensorType source) {
    auto read = [&](auto attr) {
      transposed = attr.getTransposed();
      isUnsigned = attr.getIsUnsigned();
      width = attr.getWidth();
    };
    auto readGroups = [&](auto attr) {
      read(attr);
      group = attr.getGroup();
    };
    if (auto panels = dyn_cast<BytePanelsAttr>(expression))
      readGroups(panels);
    else if (auto steps = dyn_cast<StepOrderAttr>(expression))
      readGroups(steps);
    else
      read(cast<ColumnSumsAttr>(expression));
    if (source.getRank() == 2) {
      k = source.getDimSize(transposed ? 1 : 0);
      n = source.getDimSize(transposed ? 0 : 1);
    }
  }
  /// What is stored of an element, as a number.
  int8_t stored(char element) const { return static_cast<int8_t>(isUnsigned ? element ^ 0x80 : element); }
};

void sumColumns(const char *source, const ByteMatrix &matrix, char *target) {
  std::vector<uint32_t> sums(matrix.n, 0); // wraps, as the sums that they correct
  for (int64_t outer = 0; outer < (matrix.transposed ? matrix.n : matrix.k); ++outer)
    for (int64_t inner = 0; inner < (matrix.transposed ? matrix.k : matrix.n); ++inner)
      sums[matrix.transposed ? outer : inner] += matrix.stored(*source++);
  std::memcpy(target, sums.data(), sums.size() * sizeof(uint32_t));
}

/// Panels of words: a word has `group` rows of a column in 32 / group bits each, from 0 on. Byte i holds rows i, i + 4,
/// ..., the first one in its low bits.
void packWords(const char *source, const ByteMatrix &matrix, char *target) {
  int64_t group = matrix.group;
  int64_t rowStride = matrix.transposed ? 1 : matrix.n, columnStride = matrix.transposed ? matrix.k : 1;
  int64_t bits = 32 / group;
  uint32_t mask = (uint32_t(1) << bits) - 1, top = matrix.isUnsigned ? 0 : uint32_t(1) << (bits - 1);
  for (int64_t first = 0; first < matrix.n; first += matrix.width)
    for (int64_t firstRow = 0; firstRow < matrix.k; firstRow += group)
      for (int64_t column = first; column < first + matrix.width; ++column, target += sizeof(uint32_t)) {
        uint32_t word = 0;
        for (int64_t row = 0; column < matrix.n && row < std::min(group, matrix.k - firstRow); ++row) {
          // To add half the range to a signed number is to flip its top bit.
          auto number = static_cast<uint8_t>(source[(firstRow + row) * rowStride + column * columnStride]);
          word |= ((number ^ top) & mask) << (row % 4 * 8 + row / 4 * bits);
        }
        std::memcpy(target, &word, sizeof word);
      }
}

void groupRows(const char *source, const ByteMatrix &matrix, char *target) {
  int64_t width = matrix.width, group = matrix.group;
  int64_t rowStride = matrix.transposed ? 1 : matrix.n, columnStride = matrix.transposed ? matrix.k : 1;
  int64_t panelBytes = llvm::alignTo(matrix.k, group) * width;
  for (int64_t first = 0; first < matrix.n; first += width, target += panelBytes) {
    int64_t columns = std::min(width, matrix.n - first);
    for (int64_t row = 0; row < matrix.k; ++row) {
      const char *from = source + row * rowStride + first * columnStride;
      char *to = target + row / group * group * width + row % group;
      for (int64_t column = 0; column < columns; ++column)
        to[column * group] = matrix.stored(from[column * columnStride]);
    }
  }
}

/// The steps of a panel for products whose sums are made in 16 bits where they fit.
class StepSorter {
public:
  explicit StepSorter(int64_t pairs) : above(pairs), below(pairs), waitingAbove(pairs), waitingBelow(pairs) {}

  /// Takes two bytes side by side, pair `n` of the step at hand.
  void take(int64_t n, int first, int second) {
    above[n] = std::max(first, 0) + std::max(second, 0);
    below[n] = std::min(first, 0) + std::min(second, 0);
  }
  void endStep(int64_t step) {
    if (!fit(false)) {
      wide.push_back(step);
    } else if (waiting && fit(true)) {
      doubles.append({*waiting, step});
      waiting.reset();
    } else {
      endWaiting();
      waiting = step;
      std::swap(above, waitingAbove);
      std::swap(below, waitingBelow);
    }
  }
  /// What is stored of the panel. Takes the next one then.
  SmallVector<int64_t> endPanel() {
    endWaiting();
    SmallVector<int64_t> order = {static_cast<int64_t>(doubles.size()), static_cast<int64_t>(narrow.size())};
    for (SmallVector<int64_t> *steps : {&doubles, &narrow, &wide}) {
      llvm::append_range(order, *steps);
      steps->clear();
    }
    return order;
  }

private:
  void endWaiting() {
    if (waiting)
      narrow.push_back(*waiting);
    waiting.reset();
  }
  /// Whether 255 times the pairs, with those of the step that waits, fit 16 bits.
  bool fit(bool withWaiting) const {
    bool all = true;
    for (size_t n = 0; n < above.size(); ++n)
      all &= above[n] + (withWaiting ? waitingAbove[n] : 0) <= 128 &&
             below[n] + (withWaiting ? waitingBelow[n] : 0) >= -128;
    return all;
  }

  std::vector<int16_t> above, below, waitingAbove, waitingBelow; ///< of each pair, its bytes above and below 0
  std::optional<int64_t> waiting;                                ///< for a step to be a double with
  SmallVector<int64_t> doubles, narrow, wide;
};

template <typename Number> void orderSteps(const char *source, const ByteMatrix &matrix, char *target) {
  int64_t rowStride = matrix.transposed ? 1 : matrix.n, columnStride = matrix.transposed ? matrix.k : 1;
  for (int64_t first = 0; first < matrix.n; first += matrix.width) {
    int64_t columns = std::min(matrix.width, matrix.n - first);
    StepSorter sorter(matrix.group / 2 * columns);
    for (int64_t step = 0; step < matrix.k / matrix.group; ++step) {
      for (int64_t pair = 0; pair < matrix.group / 2; ++pair) {
        const char *rows = source + (step * matrix.group + 2 * pair) * rowStride + first * columnStride;
        for (int64_t column = 0; column < columns; ++column) {
          const char *byte = rows + column * columnStride;
          sorter.take(pair * columns + column, matrix.stored(byte[0]), matrix.stored(byte[rowStride]));
        }
      }
      sorter.endStep(step);
    }
    for (int64_t number : sorter.endPanel()) {
      auto stored = static_cast<Number>(number);
      std::memcpy(target, &stored, sizeof stored);
      target += sizeof stored;
    }
  }
}

} // namespace

FailureOr<SmallVector<int64_t>> byteShape(GlobalOp global, RankedTensorType source) {
  Type element = cast<RankedTensorType>(global.getType()).getElementType();
  auto error = [&](const Twine &text) -> FailureOr<SmallVector<int64_t>> {
    return global.emitOpError(text), failure();
  };
  if (source.getRank() != 2 || !source.getElementType().isInteger(8))
    return error("expects a matrix of i8 to pack");
  ByteMatrix matrix(global.getExpression(), source);
  auto panels = dyn_cast<BytePanelsAttr>(global.getExpression());
  int64_t group = matrix.group;
  if (matrix.width < 1 || matrix.width > 65536 || group < 1 || group > 64)
    return error("expects a width from 1 to 65536 and a group from 1 to 64, got " + Twine(matrix.width) + " and " +
                 Twine(group));
  int64_t count = llvm::divideCeil(matrix.n, matrix.width);
  if (panels && element.isInteger(32)) {
    if (group != 4 && group != 8 && group != 16)
      return error("expects words of 4, 8 or 16 rows, got " + Twine(group));
    return SmallVector<int64_t>{count, static_cast<int64_t>(llvm::divideCeil(matrix.k, group)), matrix.width};
  }
  if (panels && !element.isInteger(8))
    return error("expects panels of i8, or words of i32");
  if (panels)
    return SmallVector<int64_t>{count, static_cast<int64_t>(llvm::divideCeil(matrix.k, group)), matrix.width * group};
  if (isa<StepOrderAttr>(global.getExpression())) {
    int64_t whole = matrix.k / group;
    if (group % 2 || !(element.isInteger(32) || (element.isInteger(16) && whole <= INT16_MAX)))
      return error("expects an even group and an order in i32, or i16 where that counts " + Twine(whole) +
                   " steps, got " + Twine(group));
    return SmallVector<int64_t>{count, StepOrder::kCounts + whole};
  }
  if (!element.isInteger(32))
    return error("expects column sums in i32");
  return SmallVector<int64_t>{count, matrix.width};
}

WeightBytes packBytes(GlobalOp global, RankedTensorType type, const WeightBytes &source) {
  auto result = std::make_shared<std::vector<char>>(*weightTensorBytes(cast<RankedTensorType>(global.getType())), 0);
  ByteMatrix matrix(global.getExpression(), type);
  auto panels = dyn_cast<BytePanelsAttr>(global.getExpression());
  Type element = cast<RankedTensorType>(global.getType()).getElementType();
  bool isShort = element.isInteger(16);
  if (panels && element.isInteger(32))
    packWords(source.bytes.data(), matrix, result->data());
  else if (panels)
    groupRows(source.bytes.data(), matrix, result->data());
  else if (isa<StepOrderAttr>(global.getExpression()))
    isShort ? orderSteps<int16_t>(source.bytes.data(), matrix, result->data())
            : orderSteps<int32_t>(source.bytes.data(), matrix, result->data());
  else
    sumColumns(source.bytes.data(), matrix, result->data());
  return {ArrayRef<char>(result->data(), result->size()), result};
}

} // namespace attn
