#ifndef PASSES_GRAPH_ELEMENT_CONSTANTTABLE_H
#define PASSES_GRAPH_ELEMENT_CONSTANTTABLE_H

#include "mlir/IR/BuiltinAttributeInterfaces.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <cstdint>
#include <cstring>
#include <optional>

namespace attn {

class WeightStore;

/// A tensor whose bytes are known, row-major.
struct ConstantTable {
  /// Larger tables are left alone: each entry is looked at a few times.
  static constexpr int64_t kMaxEntries = int64_t(1) << 24;

  llvm::ArrayRef<char> bytes;
  int64_t width = 1; ///< bytes of an entry as it is read, up to 8
  /// Of what is stored in 16 bits and read as f32: the number of each pattern of bits.
  const float *widened = nullptr;
  mlir::Type element = {};

  /// The constant or weight `value`; `bytes` is empty where it is no table of
  /// at most kMaxEntries entries, is a splat, or is not known.
  static ConstantTable read(mlir::Value value, const mlir::SymbolTable &symbols, const WeightStore *weights);

  int64_t storedWidth() const { return widened ? 2 : width; }
  int64_t size() const { return bytes.size() / storedWidth(); }
  uint64_t bitsAt(int64_t n) const {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + n * storedWidth(), storedWidth());
    if (widened)
      std::memcpy(&bits, widened + bits, sizeof(float));
    return bits;
  }
  /// The same as an integer with a sign.
  int64_t integerAt(int64_t n) const {
    unsigned unused = 64 - 8 * width;
    return int64_t(bitsAt(n) << unused) >> unused;
  }
  mlir::TypedAttr attributeAt(int64_t n) const;
};

/// By how much the numbers of a table of this shape differ from place to place along each dimension, where that is the
/// same everywhere.
std::optional<llvm::SmallVector<int64_t>> findSteps(llvm::ArrayRef<int64_t> shape,
                                                    llvm::function_ref<int64_t(int64_t)> number);

} // namespace attn

#endif // PASSES_GRAPH_ELEMENT_CONSTANTTABLE_H
