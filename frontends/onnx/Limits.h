#ifndef FRONTENDS_ONNX_LIMITS_H
#define FRONTENDS_ONNX_LIMITS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/MathExtras.h"
#include <cstdint>
#include <optional>

// How much a model file may ask for, and the arithmetic to find out. Each limit
// is the greatest value that is accepted; test/frontends/onnx tries each one
// and one above.

namespace attn::onnx {

/// Levels of subgraphs inside one another, and of functions calling functions.
/// MLIR itself dies between 2,000 and 5,000 nested regions.
inline constexpr unsigned kMaxNesting = 64;
/// Recursion that protobuf may use. One level of nesting is three messages
/// (graph, node, attribute); above the limit there must be room to find out
/// that it is too deep and say so.
inline constexpr int kMaxProtoDepth = 400;
/// Nodes of all graphs, functions inlined.
inline constexpr size_t kMaxNodes = 100'000;
/// Nodes imported, where each try at a loop's body counts.
inline constexpr size_t kMaxImportedNodes = 1'000'000;
/// Graph inputs, outputs and initialisers, each.
inline constexpr size_t kMaxTensors = 100'000;
/// Inputs or outputs of one node.
inline constexpr size_t kMaxOperands = 16'384;
/// Dimensions of a tensor.
inline constexpr size_t kMaxRank = 8;
/// Bytes of a tensor: known at import, or of sizes that the run reads.
inline constexpr uint64_t kMaxTensorBytes = uint64_t(1) << 40;
/// A dimension of what is computed: sums of sizes, and products with strides
/// and dilations, stay in 64 bits.
inline constexpr int64_t kMaxSize = int64_t(1) << 40;
/// Bytes of a model file: protobuf counts in int.
inline constexpr uint64_t kMaxFileBytes = (uint64_t(1) << 31) - 1;
/// Bytes of all sparse tensors of a model, made dense: as many as a file has for others.
inline constexpr uint64_t kMaxDenseBytes = kMaxFileBytes;
/// How often the bytes of a file of external data may be read, as ranges that differ.
inline constexpr uint64_t kMaxOverlap = 4;
/// Bytes of a name (of a value, node, operator, dimension or external file).
inline constexpr size_t kMaxNameBytes = 4096;
/// Bytes of all elements that are computed at import.
inline constexpr uint64_t kMaxFoldedBytes = uint64_t(64) << 20;
/// Constants above this become weights, which never enter the IR.
inline constexpr uint64_t kMaxInlineBytes = 1024;
/// A node's constant of this size or more that is one number over and over is
/// computed instead: exporters store tensors of zeros of 100 MB. An initializer is
/// a weight, whatever it holds now.
inline constexpr uint64_t kMinUniformBytes = 64 << 10;
/// Terms and degree of a shape expression, and functions inside functions in
/// it; more is computed at run time.
inline constexpr size_t kMaxTerms = 64, kMaxDegree = 16, kMaxExprDepth = 128;

/// IR versions and opsets (of the default domain) that the reader knows.
inline constexpr int64_t kMinIrVersion = 3, kMaxIrVersion = 14;
inline constexpr int64_t kMinOpset = 1, kMaxOpset = 28;

//===----------------------------------------------------------------------===//
// Checked arithmetic: nullopt where 64 bits are not enough
//===----------------------------------------------------------------------===//

inline std::optional<int64_t> checkedAdd(int64_t a, int64_t b) {
  int64_t result;
  return llvm::AddOverflow(a, b, result) ? std::nullopt : std::optional(result);
}

inline std::optional<int64_t> checkedMul(int64_t a, int64_t b) {
  int64_t result;
  return llvm::MulOverflow(a, b, result) ? std::nullopt : std::optional(result);
}

/// Number of elements of a shape; nullopt for a negative size too. A zero
/// anywhere does not excuse an overflow elsewhere.
inline std::optional<int64_t> checkedElements(llvm::ArrayRef<int64_t> shape) {
  int64_t product = 1;
  bool empty = false;
  for (int64_t size : shape) {
    if (size < 0)
      return std::nullopt;
    if (size == 0) {
      empty = true;
      continue;
    }
    std::optional<int64_t> next = checkedMul(product, size);
    if (!next)
      return std::nullopt;
    product = *next;
  }
  return empty ? 0 : product;
}

/// Bytes of a tensor, nullopt above kMaxTensorBytes as well.
inline std::optional<int64_t> checkedBytes(llvm::ArrayRef<int64_t> shape, int64_t elementBytes) {
  std::optional<int64_t> elements = checkedElements(shape);
  std::optional<int64_t> bytes = elements ? checkedMul(*elements, elementBytes) : std::nullopt;
  return bytes && uint64_t(*bytes) <= kMaxTensorBytes ? bytes : std::nullopt;
}

} // namespace attn::onnx

#endif // FRONTENDS_ONNX_LIMITS_H
