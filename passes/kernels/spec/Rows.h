#ifndef PASSES_KERNELS_SPEC_ROWS_H
#define PASSES_KERNELS_SPEC_ROWS_H

#include "dialects/attn/AttnOps.h"
#include "dialects/attn/CacheOps.h"
#include <string>

namespace attn {

/// A softmax over dimension `dim`.
struct SoftmaxSpec {
  mlir::MemRefType type; ///< of input and result; identity layout
  int64_t dim = 0;
  bool log = false;
  int64_t lanes = 4; ///< f32 lanes of a register

  static SoftmaxSpec get(SoftmaxOp op, TargetAttr target);
  bool isOverLast() const { return dim + 1 == type.getRank(); }
  /// Names the kernel; equal symbols mean identical code.
  std::string symbol() const;
};

bool canBuildSoftmax(const SoftmaxSpec &spec, std::string *reason = nullptr);

/// A layer normalisation over the dimensions from `axis` on.
struct LayerNormSpec {
  mlir::MemRefType type; ///< of input and result; identity layout
  mlir::MemRefType scaleType;
  mlir::MemRefType biasType; ///< null: no bias
  int64_t axis = 0;
  float epsilon = 0;
  int64_t lanes = 4;

  static LayerNormSpec get(LayerNormOp op, TargetAttr target);
  std::string symbol() const;
};

bool canBuildLayerNorm(const LayerNormSpec &spec, std::string *reason = nullptr);

/// Rows of a cache as bytes, attn.narrow_rows.
struct NarrowRowsSpec {
  mlir::MemRefType type; ///< of the rows; identity layout
  int64_t lanes = 4;
  bool isFloat8 = false; ///< codes of e4m3

  static NarrowRowsSpec get(NarrowRowsOp op, TargetAttr target);
  /// Of the bytes.
  mlir::MemRefType resultType() const;
  std::string symbol() const;
};

/// Whether a kernel may take the rows; targets ask for more.
bool canBuildNarrowRows(const NarrowRowsSpec &spec, std::string *reason = nullptr);

} // namespace attn

#endif // PASSES_KERNELS_SPEC_ROWS_H
