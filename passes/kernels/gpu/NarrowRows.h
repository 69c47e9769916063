#ifndef PASSES_KERNELS_GPU_NARROWROWS_H
#define PASSES_KERNELS_GPU_NARROWROWS_H

#include "passes/kernels/gpu/ThreadCode.h"
#include "passes/kernels/spec/Rows.h"

// Rows of attn.narrow_rows: codes, and the scale of them all behind.

namespace attn {

/// Whether there is such a kernel of the rows; if not, `reason` says why.
bool canBuildGpuNarrowRows(const NarrowRowsSpec &spec, std::string *reason = nullptr);

/// As the kernel for CPUs, with the same bytes, or with codes of e4m3: a warp a row. Rows and bytes may be views whose
/// rows lie in one piece each, so that bytes are written where a cache has them.
mlir::func::FuncOp buildGpuNarrowRows(mlir::OpBuilder &builder, mlir::Location loc, llvm::StringRef symbol,
                                      const NarrowRowsSpec &spec);

/// The four codes of a word, i32, of rows of `element`, the first one in its low bits, as f32.
Nums codesOfWord(ThreadCode &k, const Num &word, mlir::Type element);

} // namespace attn

#endif // PASSES_KERNELS_GPU_NARROWROWS_H
