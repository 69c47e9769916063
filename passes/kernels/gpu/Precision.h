#ifndef PASSES_KERNELS_GPU_PRECISION_H
#define PASSES_KERNELS_GPU_PRECISION_H

#include "mlir/IR/Types.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSwitch.h"
#include <optional>

namespace attn {

/// Multiprocessors of a card that forms and tiles are chosen for: an H100's; others have about as many.
constexpr int64_t kProcessors = 132;

/// What the operands of products are rounded to. Sums are f32 always; f32
/// products are of cores without matrix units, one rounding a multiply-add.
enum class Precision { f32, tf32, f16, bf16 };

/// What leaves operands of `type`, one of these, as they are.
inline Precision precisionOf(mlir::Type type) {
  return type.isF16() ? Precision::f16 : type.isBF16() ? Precision::bf16 : Precision::f32;
}

/// Whether kernels for images of sm_90a alone may be made: not, beside those for
/// any architecture, or in place of them.
enum class Sm90a { none, also, only };

inline std::optional<Precision> parsePrecision(llvm::StringRef text) {
  return llvm::StringSwitch<std::optional<Precision>>(text)
      .Case("f32", Precision::f32)
      .Case("tf32", Precision::tf32)
      .Case("f16", Precision::f16)
      .Case("bf16", Precision::bf16)
      .Default(std::nullopt);
}

inline std::optional<Sm90a> parseSm90a(llvm::StringRef text) {
  return llvm::StringSwitch<std::optional<Sm90a>>(text)
      .Case("none", Sm90a::none)
      .Case("also", Sm90a::also)
      .Case("only", Sm90a::only)
      .Default(std::nullopt);
}

} // namespace attn

#endif // PASSES_KERNELS_GPU_PRECISION_H
