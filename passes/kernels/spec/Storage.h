#ifndef PASSES_KERNELS_SPEC_STORAGE_H
#define PASSES_KERNELS_SPEC_STORAGE_H

#include "dialects/attn/AttnOps.h"
#include "llvm/ADT/StringRef.h"
#include <optional>

namespace attn {

/// The buffer of a tensor that lies in memory element after element.
mlir::MemRefType bufferOf(mlir::Value tensor);

/// How the panels of B are stored; what is narrower is widened to f32 in
/// registers. See #attn.narrow_panels; those of f16 are #attn.pack_panels.
enum class PanelStorage { F32, F16, BF16, I8 };

/// Of the panels' elements in memory.
mlir::Type elementType(PanelStorage storage, mlir::MLIRContext *context);

/// What `--weights` asks of constant operands.
struct WeightStorage {
  PanelStorage storage = PanelStorage::F32;
  int64_t group = 0; ///< I8: rows that share a scale; 0: all
  int64_t block = 0; ///< of products in blocks: codes of 4 bits that share a scale; 0: there are none

  /// Of "f32", "bf16", "int8", "int8:GROUP" or "int4:BLOCK", whose blocks are of 16, 32, 64, 128 or 256.
  static std::optional<WeightStorage> parse(llvm::StringRef text);
};

/// Whether the target has vdpbf16ps; feature bits alone decide.
bool hasNarrowProducts(TargetAttr target);

} // namespace attn

#endif // PASSES_KERNELS_SPEC_STORAGE_H
